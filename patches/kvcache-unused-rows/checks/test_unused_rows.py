"""The test of unused rows that the patch adds to aiter, on emulated AMD GPUs.

Fail-to-pass: on the base NaN in rows past cache_seqlens reaches the output. The wrapper, the
kernels and the test are aiter's own; what they only import is a stand-in.
"""

from __future__ import annotations

from contribbot.testing import import_file

own = import_file(
    "op_tests/triton_tests/attention/test_mha_v3.py",
    real=["aiter.ops.triton", "aiter.jit.utils.torch_guard"],
)
test_flash_attn_kvcache_unused_rows = own.test_flash_attn_kvcache_unused_rows
