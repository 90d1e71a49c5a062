"""The stand-ins for vLLM's platform and for the parts of vLLM that the tests only import."""

from __future__ import annotations

from types import SimpleNamespace

import torch
import triton
import triton.language as tl

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
