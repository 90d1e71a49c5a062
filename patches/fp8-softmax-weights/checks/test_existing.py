"""vLLM's own test of FP8 queries through this kernel, against its reference in torch.

Pass-to-pass: on random input the small weights are too few to show.
"""

from diffkv import load_test

test_triton_unified_attn_diffkv_fp8_query = load_test(
    reference=True
).test_triton_unified_attn_diffkv_fp8_query
