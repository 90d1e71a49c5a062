"""The test without cache_seqlens that the patch adds to aiter, on emulated AMD GPUs.

Fail-to-pass: on the base NaN behind the cache reaches the output.
"""

from test_unused_rows import own

test_flash_attn_kvcache_without_cache_seqlens = own.test_flash_attn_kvcache_without_cache_seqlens
