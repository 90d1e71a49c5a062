"""The two test files of the index keys, from the tree, on an emulated AMD GPU.

Of vLLM the real kernels and the real tests are there; the platform and what only imports are
stand-ins.
"""

from __future__ import annotations

from types import SimpleNamespace

import torch
import triton
import triton.language as tl

from contribbot.testing import import_file

_FNUZ = torch.cuda.get_device_properties(0).gcnArchName.startswith("gfx94")
_PLATFORM = SimpleNamespace(
    fp8_dtype=lambda: torch.float8_e4m3fnuz if _FNUZ else torch.float8_e4m3fn,
    is_cuda=lambda: False,
    is_cuda_alike=lambda: True,
    is_device_capability_family=lambda _: False,
    is_fp8_fnuz=lambda: _FNUZ,
    is_rocm=lambda: True,
)
_REAL = [
    "vllm.model_executor.layers.quantization.utils.quant_utils",
    "vllm.model_executor.warmup",
    "vllm.models.deepseek_v4.common.ops",
    "vllm.models.deepseek_v41.common.ops",
    "vllm.v1.attention.ops.common",
    "vllm.v1.attention.ops.rocm_aiter_mla_sparse",
]
_GIVEN = {
    "vllm.platforms": {"current_platform": _PLATFORM},
    "vllm.platforms.rocm": {"_ON_GFX942": _FNUZ, "_ON_GFX950": False},
    "vllm.triton_utils": {"tl": tl, "triton": triton},
    "vllm.utils.deep_gemm": {"mqa_logits_use_mx_scales": lambda: False},
    "vllm.utils.import_utils": {"has_cutedsl": lambda: False},
}
v41 = import_file("tests/kernels/test_fused_indexer_q_rope_quant.py", real=_REAL, given=_GIVEN)
v4 = import_file("tests/kernels/test_compressor_kv_cache.py", real=_REAL, given=_GIVEN)
