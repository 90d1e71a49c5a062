"""A project with each kind of source and header, and what must become of a header."""

from __future__ import annotations

from hipify_script import Project

#: What hipify finds nothing to change in.
UNCHANGED = {
    "plain.cu": "int plain() { return 0; }\n",
    "deep/er/plain.cu": "int deep() { return 0; }\n",
    "cuda_plain.cu": "int cuda_plain() { return 0; }\n",
    "deep/cuda_x.cu": "int cuda_x() { return 0; }\n",
}
CHANGED = {
    "kernels/scale.cu": '#include "common/launch.h"\n__global__ void scale() {}\n',
    "kernels/shift.cu": '#include "common/launch.h"\n__global__ void shift() {}\n',
    "kernels/bias.cu": '#include "sibling.h"\n__global__ void bias() {}\n',
}
HEADERS = {
    "common/launch.h": '#include <cuda_runtime.h>\n#include "common/inner.h"\n',
    "common/inner.h": "inline cudaError_t inner() { return cudaSuccess; }\n",
    "common/cuda_compat.h": "#include <cuda_runtime.h>\n",
    "kernels/sibling.h": '#include "common/cuda_compat.h"\n',
}
FILES = {**UNCHANGED, **CHANGED, **HEADERS}


def sources_of(files: dict[str, str]) -> list[str]:
    return [f"csrc/{name}" for name in files if name.endswith(".cu")]


def assert_hipified(project: Project, file: str, header: str, becomes: str) -> None:
    text = project.read(file)
    assert f'#include "{becomes}"' in text, f"not hipified: {header}, as {file} includes it"
    assert "cuda" not in project.read(becomes if "/" in becomes else f"kernels/{becomes}")
