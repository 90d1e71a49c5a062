"""vLLM's own logits in torch, for a key with a value that was stored as -0 in e4m3fn.

Pass-to-pass: no reader changes. Read as e4m3fnuz, the key's logit is NaN.
"""

from __future__ import annotations

from types import SimpleNamespace

import torch
import triton
import triton.language as tl

from contribbot.testing import import_file

PLATFORM = SimpleNamespace(
    fp8_dtype=lambda: torch.float8_e4m3fnuz,
    is_cuda=lambda: False,
    is_cuda_alike=lambda: True,
    is_fp8_fnuz=lambda: True,
    is_rocm=lambda: True,
)
mla = import_file(
    "vllm/v1/attention/ops/rocm_aiter_mla_sparse.py",
    given={
        "vllm.platforms": {"current_platform": PLATFORM},
        "vllm.platforms.rocm": {"_ON_GFX942": True, "_ON_GFX950": False},
        "vllm.triton_utils": {"tl": tl, "triton": triton},
    },
)


def test_the_key_of_the_best_match_is_nan_in_the_prefill() -> None:
    keys = torch.ones(4, 128)
    keys[2] = 8
    keys[2, 0] = -1e-6
    stored = keys.to(torch.float8_e4m3fn).view(torch.float8_e4m3fnuz)
    logits = mla.fp8_mqa_logits_torch(
        torch.ones(1, 2, 128).to(torch.float8_e4m3fnuz),
        (stored, torch.ones(4, 1)),
        torch.ones(1, 2),
        torch.zeros(1, dtype=torch.int32),
        torch.full((1,), 4, dtype=torch.int32),
    )
    assert logits.isnan().tolist() == [[False, False, True, False]]
