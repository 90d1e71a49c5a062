"""vLLM's DiffKV kernel and its tests, from the tree; of the rest of vLLM there are stand-ins."""

from __future__ import annotations

import logging
from types import ModuleType, SimpleNamespace

import torch
import triton
import triton.language as tl

from contribbot.testing import import_file

_OPS = "vllm.v1.attention.ops"
_KERNEL = f"{_OPS}.triton_unified_attention_diffkv"
_REAL = [_KERNEL, f"{_OPS}.triton_attention_helpers"]
_TESTS = "tests.kernels.attention"


def fp8_dtype() -> torch.dtype:
    """Return the format that vLLM takes on this GPU."""
    fnuz = getattr(torch.cuda.get_device_properties(0), "gcnArchName", "").startswith("gfx94")
    return torch.float8_e4m3fnuz if fnuz else torch.float8_e4m3fn


def _given() -> dict[str, dict[str, object]]:
    platform = SimpleNamespace(
        device_type="cuda",
        fp8_dtype=fp8_dtype,
        is_cuda=lambda: torch.version.hip is None,
        is_rocm=lambda: torch.version.hip is not None,
        has_device_capability=lambda _: True,
        supports_fp8=lambda: True,
    )
    return {
        "vllm.envs": {"VLLM_BATCH_INVARIANT": False},
        "vllm.logger": {"init_logger": logging.getLogger},
        "vllm.platforms": {"current_platform": platform},
        "vllm.triton_utils": {"tl": tl, "triton": triton},
        "vllm.utils.math_utils": {"next_power_of_2": triton.next_power_of_2},
        "vllm.utils.torch_utils": {"set_random_seed": torch.manual_seed},
    }


def load_kernel() -> ModuleType:
    """Return the module of `unified_attention_diffkv`."""
    return import_file(_KERNEL.replace(".", "/") + ".py", real=_REAL, given=_given())


def load_sibling() -> ModuleType:
    """Return vLLM's test file of the kernel from which DiffKV's was forked."""
    real = [*_REAL, f"{_OPS}.triton_unified_attention", "vllm.v1.kv_cache_interface"]
    path = f"{_TESTS.replace('.', '/')}/test_triton_unified_attention.py"
    return import_file(path, real=real, given=_given())


def load_test(*, reference: bool = False) -> ModuleType:
    """Return vLLM's test file of the kernel, with or without what it compares random input to."""
    sibling = f"{_TESTS}.test_triton_unified_attention"
    real, given = _REAL, _given()
    if reference:
        real = [*real, f"{_OPS}.triton_unified_attention", sibling]
    else:
        given[sibling] = {"ref_paged_attn": None}
    path = f"{_TESTS.replace('.', '/')}/test_triton_unified_attention_diffkv.py"
    return import_file(path, real=real, given=given)
