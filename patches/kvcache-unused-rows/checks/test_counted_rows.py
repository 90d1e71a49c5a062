"""How many rows count without cache_seqlens, where all scores are 0.

Fail-to-pass: on the base scores of rows behind the cache are not masked.
"""

from __future__ import annotations

import torch
from test_unused_rows import own


def test_each_row_counts_once() -> None:
    generator = torch.Generator().manual_seed(0)
    v = torch.randn(3, 1020, 4, 128, generator=generator).bfloat16()
    k_cache, v_cache = torch.zeros_like(v).cuda()[:2], v.cuda()[:2]
    last, zeros = v_cache[:, -1:].clone(), k_cache[:, :1].clone()
    out = own.flash_attn_with_kvcache(zeros, k_cache, v_cache, zeros, last, causal=False)
    out = out.cpu().double()
    exact = v[:2].double().mean(1, keepdim=True)
    ratio = ((out * exact).sum() / exact.square().sum()).item()
    assert abs(ratio - 1) < 5e-4, f"{1020 / ratio:.1f} rows of 1020 count"
