"""Small real kernels for the toy upstream, and who compiles them."""

from __future__ import annotations

import os
import shlex
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from contribbot.compile.toolchain import Lack, Toolchain
from contribbot.model.evidence import StageResult
from tests.buildtoy import with_sources
from tests.toy import FIXED, Toy

if TYPE_CHECKING:
    from tests.conftest import Ran

#: HIP, and vectors of words.
VECTORS = "#include <hip/hip_runtime.h>\ntypedef unsigned V1;\n" + "".join(
    f"typedef unsigned V{words} __attribute__((ext_vector_type({words})));\n"
    for words in range(2, 33)
)
#: Kernels for two element types; `{body}` is what a patch changes.
KERNEL = """\
#include <hip/hip_runtime.h>
#include "scale.h"

template <typename T>
__global__ void scale(T* values, float factor, int count) {{
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < count) {{
    {body}
  }}
}}

template __global__ void scale<float>(float*, float, int);
template __global__ void scale<int>(int*, float, int);

__global__ void untouched(float* values) {{
  values[threadIdx.x] = sqrtf(values[threadIdx.x]);
}}
"""
HEADER = "#pragma once\n#define TWICE 2.0F\n"
#: A division takes many more instructions than a multiplication.
LONG = KERNEL.format(body="values[i] = (T)((float)values[i] / factor);")
QUICK = KERNEL.format(body="values[i] = (T)((float)values[i] * factor);")
#: LONG with another comment: nothing for a compiler.
SAME = LONG.replace("template <", "// Scales.\ntemplate <", 1)
BROKEN = KERNEL.format(body="values[i] = no_such_function(factor);")
CUDA_ONLY = "#include <cuda_fp8.h>\n" + LONG
#: A function of the device library that no builtin stands for, and one that nothing has.
SINE = KERNEL.format(body="values[i] = (T)(sinf((float)values[i]) * factor);")
ABSENT = SINE.replace("sinf(", "nowhere(").replace(
    "template <", "__device__ float nowhere(float);\ntemplate <", 1
)
#: FP8 in software, and by instruction.
SOFT_FP8 = KERNEL.format(body="values[i] = (T)(int)((float)values[i] * factor);")
HARD_FP8 = KERNEL.format(
    body="values[i] = (T)__builtin_amdgcn_cvt_pk_fp8_f32((float)values[i], factor, 0, false);"
)
#: More values at once than the registers that it may use can hold.
CROWDED = LONG.replace(
    "__global__ void scale", "__attribute__((amdgpu_num_vgpr(8))) __global__ void scale"
).replace(
    "    values[i] = ",
    "    T many[16];\n    for (int n = 0; n < 16; ++n) many[n] = values[i + n * count];\n"
    "    __syncthreads();\n"
    "    for (int n = 0; n < 16; ++n) values[i + n * count + many[15 - n] > 0] = many[n];\n"
    "    values[i] = ",
)


def put_kernel(toy: Toy, source: str, header: str = HEADER) -> None:
    with_sources(toy, {"csrc/scale.hip": source, "csrc/include/scale.h": header})


def entry(
    expect: str = "pass-to-pass", more: str = "", targets: tuple[str, ...] = ("gfx942",)
) -> str:
    listed = ", ".join(f'"{target}"' for target in targets)
    return (
        '[[compile]]\nname = "scale"\nsource = "csrc/scale.hip"\ninclude = ["csrc/include"]\n'
        f'targets = [{listed}]\nexpect = "{expect}"\n{more}\n'
    )


def put_change(toy: Toy, before: str, after: str, stated: str) -> None:
    put_kernel(toy, before)
    # The Python file makes the patch one even where the kernel stays as it is.
    patch = toy.format_patch({"csrc/scale.hip": after, "src/toy/area.py": FIXED})
    files = ("csrc/scale.hip", "src/toy/area.py") if before != after else ("src/toy/area.py",)
    toy.put_patch("scale", patch=patch, files=files, checks=stated, check_files={})
    toy.put_queue(["scale"])


def needed(found: Toolchain | Lack) -> Toolchain:
    """Return the toolchain; without one, fail where CI promises it and skip elsewhere."""
    if isinstance(found, Lack):
        if os.environ.get("CI"):
            pytest.fail(f"CI installs a toolchain, and: {found}")
        pytest.skip(str(found))
    return found


def calls(using: Toolchain) -> str:
    return f'exec {shlex.join(using.argv)} "$@"'


def program_file(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return path


def compiled(ran: Ran) -> dict[str, StageResult]:
    """Return the outcomes of `compile` by target."""
    return {stage.target: stage for stage in ran.report().stages if stage.stage == "compile"}
