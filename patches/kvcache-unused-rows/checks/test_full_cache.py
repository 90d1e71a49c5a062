"""A cache that is used to its last row, on emulated AMD GPUs.

Fail-to-pass: on the base the last tile reads past the end of K.
"""

from __future__ import annotations

import pytest
import torch

from contribbot.testing import import_file

_attention = import_file(
    "aiter/ops/triton/attention/mha_v3.py",
    real=["aiter.ops.triton", "aiter.jit.utils.torch_guard"],
)


@pytest.mark.parametrize("heads_kv", [6, 3])
@pytest.mark.parametrize("head", [96, 128])
def test_the_last_tile_stays_within_the_cache(head: int, heads_kv: int) -> None:
    generator = torch.Generator().manual_seed(0)
    q = torch.randn(2, 1, 6, head, generator=generator)
    k, v = (torch.randn(2, 339, heads_kv, head, generator=generator) for _ in range(2))
    lengths = torch.tensor([339, 339], dtype=torch.int32)
    inputs = [tensor.to("cuda", torch.bfloat16) for tensor in (q, k, v)]
    out = _attention.flash_attn_with_kvcache(*inputs, cache_seqlens=lengths.cuda()).cpu().float()
    k, v = (tensor.repeat_interleave(6 // heads_kv, 2) for tensor in (k, v))
    q, k, v = (tensor.bfloat16().double().transpose(1, 2) for tensor in (q, k, v))
    exact = torch.softmax(q @ k.transpose(-2, -1) / head**0.5, -1) @ v
    torch.testing.assert_close(out.transpose(1, 2).double(), exact, rtol=1.6e-2, atol=2e-3)
