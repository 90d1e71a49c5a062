"""How many rows count without cache_seqlens, where all scores are 0.

Fail-to-pass: on the base scores of rows behind the cache are not masked.
"""

from __future__ import annotations

import torch
from test_unused_rows import own


def test_each_row_counts_once() -> None:
    v = torch.zeros(3, 1020, 4, 128).bfloat16()
    v[0] = 1
    k_cache, v_cache = torch.zeros_like(v).cuda()[:2], v.cuda()[:2]
    last, zeros = v_cache[:, -1:].clone(), k_cache[:, :1].clone()
    out = own.flash_attn_with_kvcache(zeros, k_cache, v_cache, zeros, last, causal=False)
    rows = 1020 / out[0].mean().item()
    assert rows == 1020, f"{rows:.0f} rows of 1020 count"
