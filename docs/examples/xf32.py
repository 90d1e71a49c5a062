"""What a float32 product becomes on AMD's matrix units: `python xf32.py`. Needs triton, no GPU."""

import re
from collections import Counter

import triton
import triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource


@triton.jit  # type: ignore[untyped-decorator]  # triton has no types
def product(a: tl.tensor, b: tl.tensor, c: tl.tensor, precision: tl.constexpr) -> None:
    """Multiply (32, 64) by (64, 32)."""
    i, k = tl.arange(0, 32), tl.arange(0, 64)
    x = tl.load(a + i[:, None] * 64 + k[None, :])
    y = tl.load(b + k[:, None] * 32 + i[None, :])
    tl.store(c + i[:, None] * 32 + i[None, :], tl.dot(x, y, input_precision=precision))


def instructions(target: str, precision: str) -> Counter[str]:
    """Count what multiplies, and what could round its inputs before."""
    types = {"a": "*fp32", "b": "*fp32", "c": "*fp32", "precision": "constexpr"}
    source = ASTSource(product, types, {(3,): precision})
    listing = triton.compile(source, target=GPUTarget("hip", target, 64)).asm["amdgcn"]
    return Counter(re.findall(r"\bv_(?:mfma|cvt|add_f32|fma|perm)\w*", listing))


if __name__ == "__main__":
    for precision in ("ieee", "tf32"):
        print(f"gfx942 {precision}: {dict(instructions('gfx942', precision))}")
