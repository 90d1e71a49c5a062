"""Every source has the output that CMake names, and every header it reaches is hipified.

Fail-to-pass: on the base each of these leaves a header as it is, or an output out.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from hipify_script import LAYOUTS, USUAL, Project, lay_out, missing

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

#: vLLM's own sources that show it at v0.22.0.
INT8 = "csrc/libtorch_stable/quantization/w8a8/int8/per_token_group_quant.cu"
AWQ = ""

layouts = pytest.mark.parametrize("layout", [one for one in LAYOUTS if one not in USUAL])


def _sources(files: dict[str, str]) -> list[str]:
    return [f"csrc/{name}" for name in files if name.endswith(".cu")]


def assert_hipified(project: Project, file: str, header: str, becomes: str) -> None:
    text = project.read(file)
    assert f'#include "{becomes}"' in text, f"not hipified: {header}, as {file} includes it"
    assert "cuda" not in project.read(becomes if "/" in becomes else f"kernels/{becomes}")


@layouts
def test_a_header_by_its_path_from_the_project(layout: str, tmp_path: Path) -> None:
    project = lay_out(tmp_path, layout, FILES)
    project.hipify("csrc/kernels/scale.cu")
    assert_hipified(project, "kernels/scale.hip", "common/launch.h", "common/launch_hip.h")
    assert_hipified(project, "common/launch_hip.h", "common/inner.h", "common/inner_hip.h")


@pytest.mark.parametrize("layout", ["linked build", "linked both", "brackets"])
def test_a_header_beside_the_source(layout: str, tmp_path: Path) -> None:
    project = lay_out(tmp_path, layout, {**FILES, "kernels/sibling.h": "#include <cuda.h>\n"})
    project.hipify("csrc/kernels/bias.cu")
    assert_hipified(project, "kernels/bias.hip", "sibling.h", "sibling_hip.h")


@layouts
def test_a_header_that_another_header_reaches(layout: str, tmp_path: Path) -> None:
    project = lay_out(tmp_path, layout, FILES)
    project.hipify("csrc/kernels/bias.cu")
    header = "common/cuda_compat.h"
    assert_hipified(project, "kernels/bias.hip", "sibling.h", "sibling_hip.h")
    assert_hipified(project, "kernels/sibling_hip.h", header, "common/hip_compat.h")


@layouts
def test_an_unchanged_source_has_its_output(layout: str, tmp_path: Path) -> None:
    project = lay_out(tmp_path, layout, FILES)
    sources = _sources(UNCHANGED)
    for source in sources:
        project.hipify(source)
    assert not missing(project, sources), f"no output: {missing(project, sources)}"
    for source in sources:
        text = project.output(source).read_text(encoding="utf-8")
        assert text == UNCHANGED[source.removeprefix("csrc/")]


@layouts
def test_all_in_one_call(layout: str, tmp_path: Path) -> None:
    project = lay_out(tmp_path, layout, FILES)
    sources = [one for pair in zip(_sources(CHANGED), _sources(UNCHANGED), strict=False)
               for one in pair] + ["csrc/deep/cuda_x.cu"]  # fmt: skip
    printed = project.hipify(*sources)
    assert not missing(project, sources), f"no output: {missing(project, sources)}"
    assert [Path(line).resolve() for line in printed] == [
        project.output(source).resolve() for source in sources
    ]
    for source in ("scale", "shift"):
        file = f"kernels/{source}.hip"
        assert_hipified(project, file, "common/launch.h", "common/launch_hip.h")
    assert_hipified(project, "kernels/bias.hip", "sibling.h", "sibling_hip.h")


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_source_by_its_path_in_the_project(layout: str, tmp_path: Path) -> None:
    project = lay_out(tmp_path, layout, FILES)
    before, sources = project.state(), _sources(FILES)
    project.hipify(*(project.csrc / source.removeprefix("csrc/") for source in sources))
    assert not missing(project, sources), f"no output: {missing(project, sources)}"
    assert project.state() == before
