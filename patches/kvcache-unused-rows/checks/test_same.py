"""Decoding over finite caches that are used in part, contiguous or in pages of 256 rows.

Pass-to-pass: results are near those of float64, and have the same bits on both trees.
"""

from __future__ import annotations

import hashlib

import pytest
import torch

from contribbot.testing import import_file

_attention = import_file(
    "aiter/ops/triton/attention/mha_v3.py",
    real=["aiter.ops.triton", "aiter.jit.utils.torch_guard"],
)

#: Of the bytes of the result without the change, gfx942, Triton 3.7.0.
BYTES = {
    (96, 6, False, 339): "aaa1aec1c2c44c85",
    (96, 3, True, 339): "ac265a66017318d7",
    (128, 6, True, 339): "da7c360fbb58fb37",
    (128, 3, False, 339): "b42807507f3f80df",
    (96, 6, True, 256): "aba9a891ae79d9bf",
    (128, 3, False, 256): "7cdd673e52e5f244",
}


@pytest.mark.parametrize(("head", "heads_kv", "causal", "page"), BYTES)
def test_same_bits(head: int, heads_kv: int, page: int, *, causal: bool) -> None:
    generator = torch.Generator().manual_seed(0)
    q = torch.randn(2, 8, 6, head, generator=generator).bfloat16()
    k, v = (torch.randn(2, page, heads_kv, head, generator=generator).bfloat16() for _ in "kv")
    lengths = torch.tensor([90, 250])
    out = _attention.flash_attn_with_kvcache(
        q.cuda(),
        k.cuda(),
        v.cuda(),
        cache_seqlens=lengths.int().cuda(),
        causal=causal,
        page_table=torch.arange(2).int()[:, None].cuda() if page == 256 else None,
    ).cpu()

    k, v = (tensor.repeat_interleave(6 // heads_kv, 2) for tensor in (k, v))
    q, k, v = (tensor.double().transpose(1, 2) for tensor in (q, k, v))
    last = lengths[:, None] - (7 - torch.arange(8) if causal else 0)
    hidden = torch.arange(page) >= last.reshape(2, 1, -1, 1)
    scores = (q @ k.transpose(-2, -1) / head**0.5).masked_fill(hidden, float("-inf"))
    exact = (scores.softmax(-1) @ v).transpose(1, 2)
    torch.testing.assert_close(out.double(), exact, rtol=1.6e-2, atol=4e-3)
    content = hashlib.sha256(out.view(torch.uint8).numpy().tobytes()).hexdigest()[:16]
    assert content == BYTES[head, heads_kv, causal, page]
