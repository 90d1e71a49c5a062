"""vLLM's test file of V4's store, from the tree; of the rest of vLLM there are stand-ins."""

from __future__ import annotations

from vllm_stand_ins import GIVEN

from contribbot.testing import import_file

REAL = [
    "vllm.model_executor.layers.quantization.utils.quant_utils",
    "vllm.model_executor.warmup",
    "vllm.models.deepseek_v4.common.ops",
    "vllm.v1.attention.ops.common",
]
upstream = import_file("tests/kernels/test_compressor_kv_cache.py", real=REAL, given=GIVEN)
