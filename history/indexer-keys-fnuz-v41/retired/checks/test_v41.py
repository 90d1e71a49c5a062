"""V4.1's store, by its own test.

Fail-to-pass: on the base a key that rounds to -0 is NaN for its reader.
"""

from __future__ import annotations

from types import SimpleNamespace

import torch
import triton
import triton.language as tl

from contribbot.testing import import_file

# Of vLLM the real kernels and the real test are there; the platform and what only imports are
# stand-ins.
FNUZ = torch.cuda.get_device_properties(0).gcnArchName.startswith("gfx94")
PLATFORM = SimpleNamespace(
    fp8_dtype=lambda: torch.float8_e4m3fnuz if FNUZ else torch.float8_e4m3fn,
    is_cuda=lambda: False,
    is_cuda_alike=lambda: True,
    is_device_capability_family=lambda _: False,
    is_fp8_fnuz=lambda: FNUZ,
    is_rocm=lambda: True,
)
GIVEN = {
    "vllm.platforms": {"current_platform": PLATFORM},
    "vllm.platforms.rocm": {"_ON_GFX942": FNUZ, "_ON_GFX950": False},
    "vllm.triton_utils": {"tl": tl, "triton": triton},
    "vllm.utils.deep_gemm": {"mqa_logits_use_mx_scales": lambda: False},
    "vllm.utils.import_utils": {"has_cutedsl": lambda: False},
}
REAL = [
    "vllm.model_executor.layers.quantization.utils.quant_utils",
    "vllm.model_executor.warmup",
    "vllm.models.deepseek_v4.common.ops",
    "vllm.models.deepseek_v41.common.ops",
    "vllm.v1.attention.ops.common",
    "vllm.v1.attention.ops.rocm_aiter_mla_sparse",
]
upstream = import_file("tests/kernels/test_fused_indexer_q_rope_quant.py", real=REAL, given=GIVEN)

test_v41 = upstream.test_indexer_k_store_roundtrips_through_rocm_gather
