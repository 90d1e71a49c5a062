"""`ops.LLMM1` of vLLM: its kernel, cut out of the tree's source, compiled and executed.

The whole source does not compile without ROCm; `LLGemm1_kernel` and what stands before it need no
more of it than `__half` and shuffles. The host code is followed here.
"""

from __future__ import annotations

import functools

import torch

from contribbot import emulate
from contribbot.testing import tree

#: RDNA: `Utils::get_warp_size` gives 32 where `__GFX9__` is not defined.
LANES = 32
HEAD = """
#include <hip/hip_runtime.h>
#include <hip/hip_fp16.h>
#include <hip/hip_bf16.h>
#define WARP_SIZE 32
namespace c10 { struct Half; struct BFloat16; }
"""
KERNEL = "template __global__ void LLGemm1_kernel<c10::Half, %d>(const c10::Half*, "
KERNEL += "const c10::Half*, c10::Half*, int);\n"
#: The last reduction of a block, and the same over all of its waves, as the description has it.
FIRST_16 = "acc[qwarpid] = qthreadid < num_warps ? red_smem[qwarpid][qthreadid] : 0.f;"
EVERY = """float sum = 0.f;
    for (int w = qthreadid; w < num_warps; w += 16) sum += red_smem[qwarpid][w];
    acc[qwarpid] = sum;"""


@functools.cache
def kernels(target: str, *, strided: bool) -> dict[int, emulate.Kernel]:
    """Compile the kernels of a target by the rows of a block."""
    text = (tree() / "csrc/rocm/skinny_gemms.cu").read_text()
    begin = text.index("template <typename T>\nstruct scalar {};")
    text = text[begin : text.index("torch::Tensor LLMM1(")]
    assert text.count(FIRST_16) == 1
    text = text.replace(FIRST_16, EVERY) if strided else text
    rows = (2, 4, 8, 16)
    made = emulate.compile_hip(HEAD + text + "".join(KERNEL % each for each in rows), target)
    return {each: made[f"_Z14LLGemm1_kernelIN3c104HalfELi{each}EEvPKT_S4_PS2_i"] for each in rows}


def llmm1(
    target: str, b: torch.Tensor, a: torch.Tensor, rows: int, *, strided: bool
) -> torch.Tensor:
    """Multiply the rows of `b` with the one row of `a`; what is not written stays NaN."""
    m, k = b.shape
    threads = max(rows * 16, -(-k // 8 // LANES) * LANES)
    out = torch.full((1, m), torch.nan, dtype=b.dtype)
    kernel = kernels(target, strided=strided)[rows]
    emulate.launch(kernel, grid=m // rows, block=threads, args=[b, a, out, k])
    return out


def assert_right(target: str, m: int, k: int, rows: int, *, strided: bool = False) -> None:
    """Compare as vLLM's `test_rocm_llmm1_kernel` does, on what it draws."""
    torch.manual_seed(0)
    a = torch.rand(1, k, dtype=torch.float16)
    b = torch.rand(m, k, dtype=torch.float16)
    expected = (a.float() @ b.float().t()).to(b.dtype)
    out = llmm1(target, b, a, rows, strided=strided)
    torch.testing.assert_close(out, expected, atol=1e-8, rtol=1e-2)
