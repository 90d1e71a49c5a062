"""The test that the patch adds to vLLM, on an emulated AMD GPU: small weights count in FP8.

Fail-to-pass: on the base all weights but the largest are rounded to 0. Of vLLM the real kernels
and the real test are there; the platform and what only imports are stand-ins.
"""

from __future__ import annotations

import logging
from types import SimpleNamespace

import torch
import triton
import triton.language as tl

from contribbot.testing import import_file


def _fp8_dtype() -> torch.dtype:
    """Return the format that vLLM takes on this GPU."""
    fnuz = torch.cuda.get_device_properties(0).gcnArchName.startswith("gfx94")
    return torch.float8_e4m3fnuz if fnuz else torch.float8_e4m3fn


_PLATFORM = SimpleNamespace(
    device_type="cuda",
    fp8_dtype=_fp8_dtype,
    is_cuda=lambda: False,
    is_rocm=lambda: True,
    has_device_capability=lambda _: True,
)
_added = import_file(
    "tests/kernels/attention/test_triton_unified_attention_diffkv.py",
    real=[
        "vllm.v1.attention.ops.triton_unified_attention_diffkv",
        "vllm.v1.attention.ops.triton_attention_helpers",
    ],
    given={
        "tests.kernels.attention.test_triton_unified_attention": {"ref_paged_attn": None},
        "vllm.envs": {"VLLM_BATCH_INVARIANT": False},
        "vllm.logger": {"init_logger": logging.getLogger},
        "vllm.platforms": {"current_platform": _PLATFORM},
        "vllm.triton_utils": {"tl": tl, "triton": triton},
        "vllm.utils.math_utils": {"next_power_of_2": triton.next_power_of_2},
    },
)
test_small_weights_count = _added.test_diffkv_fp8_keeps_small_softmax_weights
