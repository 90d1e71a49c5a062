"""V4.1's store, by its own test.

Fail-to-pass: on the base a key that rounds to -0 is NaN for its reader.
"""

from __future__ import annotations

from vllm_stand_ins import GIVEN

from contribbot.testing import import_file

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
