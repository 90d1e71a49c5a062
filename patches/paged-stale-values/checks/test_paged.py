"""vLLM's Triton decode at a GQA ratio of 2: what stands behind a sequence decides no bit.

Pass-to-pass, without a change: the issue's failure does not show. The real kernel and its launch
run; the custom kernel is refused, as the issue has it.
"""

from __future__ import annotations

from unittest.mock import Mock

import pytest
import torch
import triton
import triton.language as tl

from contribbot.testing import answers, import_file

SIZE, BLOCK, HEADS, KV_HEADS, X = 128, 16, 2, 1, 8


decode = import_file(
    "vllm/v1/attention/ops/chunked_prefill_paged_decode.py",
    given={
        "vllm.triton_utils": {"tl": tl, "triton": triton},
        "vllm.logger": {"init_logger": lambda _name: Mock()},
        "vllm.platforms.rocm": answers("use_rocm_custom_paged_attention", answer=False),
    },
).chunked_prefill_paged_decode


def attend(length: int, behind: float) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the output for one token, with this value behind the sequence, and the right one."""
    torch.manual_seed(0)
    blocks = -(-length // BLOCK)
    q = torch.randn(1, HEADS, SIZE).half()
    k, v = (torch.randn(blocks * BLOCK, SIZE).half() for _ in range(2))
    weights = torch.softmax(q[0].float() @ k[:length].float().t() / SIZE**0.5, dim=-1)
    right = weights @ v[:length].float()
    k[length:], v[length:] = behind, behind
    keys = k.view(blocks, 1, BLOCK, SIZE // X, X).permute(0, 1, 3, 2, 4).contiguous()
    values = v.view(blocks, 1, BLOCK, SIZE).permute(0, 1, 3, 2).contiguous()
    out = torch.full_like(q, torch.nan).cuda()
    one = torch.ones(1, device="cuda")
    decode(
        query=q.cuda(),
        key=torch.zeros(1, KV_HEADS, SIZE).half().cuda(),
        value=torch.zeros(1, KV_HEADS, SIZE).half().cuda(),
        output=out,
        kv_cache_dtype="auto",
        key_cache=keys.cuda(),
        value_cache=values.cuda(),
        block_table=torch.arange(blocks, dtype=torch.int32)[None].cuda(),
        query_start_loc=torch.tensor([0, 1], dtype=torch.int32, device="cuda"),
        seq_lens=torch.tensor([length], dtype=torch.int32, device="cuda"),
        max_seq_len=length,
        max_query_len=1,
        k_scale=one,
        v_scale=one,
    )
    return out[0].cpu(), right


@pytest.mark.parametrize(
    ("length", "values"), [(37, (1.5, 60000.0, torch.nan)), (4090, (60000.0,))]
)
def test_what_is_behind_a_sequence(length: int, values: tuple[float, ...]) -> None:
    zeros, right = attend(length, 0.0)
    torch.testing.assert_close(zeros.float(), right, atol=2e-3, rtol=2e-3)
    for behind in values:
        assert torch.equal(attend(length, behind)[0], zeros)
