"""vLLM's unified attention: the last tile of a sequence loads blocks behind its block table.

Fail-to-pass, without a change. The real kernel and its launch run.
"""

from __future__ import annotations

from types import SimpleNamespace

import torch
import triton
import triton.language as tl

from contribbot.testing import import_file

SIZE, BLOCK, LENGTH = 64, 16, 40
PLATFORM = SimpleNamespace(
    device_type="cuda",
    fp8_dtype=lambda: torch.float8_e4m3fn,
    is_cuda=lambda: False,
    is_rocm=lambda: True,
    is_xpu=lambda: False,
    has_device_capability=lambda _: True,
)
unified = import_file(
    "vllm/v1/attention/ops/triton_unified_attention.py",
    real=["vllm.v1.attention.ops.triton_attention_helpers"],
    given={
        "vllm.triton_utils": {"tl": tl, "triton": triton},
        "vllm.platforms": {"current_platform": PLATFORM},
        "vllm.envs": {"VLLM_BATCH_INVARIANT": False},
        "vllm.v1.kv_cache_interface": {
            "KVQuantMode": SimpleNamespace(
                NONE=0, FP8_PER_TENSOR=1, INT8_PER_TOKEN_HEAD=2, FP8_PER_TOKEN_HEAD=3,
                INT4_PER_TOKEN_HEAD=4,
            )
        },
    },
)  # fmt: skip


def test_the_last_tile_of_three_blocks() -> None:
    torch.manual_seed(0)
    q = torch.randn(LENGTH, 1, SIZE).half().cuda()
    k, v = (torch.randn(3, BLOCK, 1, SIZE).half().cuda() for _ in range(2))
    out = torch.full_like(q, torch.nan)
    unified.unified_attention(
        q=q, k=k, v=v, out=out,
        cu_seqlens_q=torch.tensor([0, LENGTH], dtype=torch.int32, device="cuda"),
        max_seqlen_q=LENGTH,
        seqused_k=torch.tensor([LENGTH], dtype=torch.int32, device="cuda"),
        max_seqlen_k=LENGTH, softmax_scale=SIZE**-0.5, causal=True, window_size=(-1, -1),
        block_table=torch.arange(3, dtype=torch.int32, device="cuda")[None],
        softcap=0, q_descale=None, k_descale=None, v_descale=None, kv_quant_mode=0,
    )  # fmt: skip
    assert not out.isnan().any()
