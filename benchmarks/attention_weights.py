"""What float32 attention weights cost on a GPU, operator by operator. Needs CUDA, and torch alone.

Beside each operator stands the one that half precision takes. The text of stable-softmax has
these figures.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from triton.testing import do_bench

HEADS, LENGTH, WIDTH = 64, 2048, 64


def main() -> None:
    """Print milliseconds, and bytes a second of what moves memory alone."""
    q, k = (torch.randn(HEADS, LENGTH, WIDTH, device="cuda").half() for _ in range(2))
    k_t = k.transpose(1, 2)
    half = torch.empty(HEADS, LENGTH, LENGTH, device="cuda", dtype=torch.float16)
    wide = half.float()

    def product() -> torch.Tensor:
        return torch.baddbmm(wide, q, k_t, wide.dtype, beta=0, out=wide)

    pairs: dict[str, tuple[Callable[[], object], Callable[[], object]]] = {
        "matmul": (lambda: torch.bmm(q, k_t, out=half), product),
        "softmax": (lambda: torch.softmax(half, -1), lambda: torch.softmax(wide, -1, out=wide)),
    }
    for name, (before, after) in pairs.items():
        print(f"{name:8} half {do_bench(before):.3f} ms, float32 {do_bench(after):.3f} ms")
    copy = do_bench(lambda: half.copy_(wide))
    moved = half.numel() * 6 / copy / 1e6
    print(f"copy of float32 to half {copy:.3f} ms, {moved:,.0f} GB/s")


if __name__ == "__main__":
    main()
