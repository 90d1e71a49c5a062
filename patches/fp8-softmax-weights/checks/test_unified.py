"""vLLM's own test of small weights in `kernel_unified_attention`, from which the scaling comes.

Pass-to-pass: the scaling moved into a helper of both kernels.
"""

from diffkv import load_sibling

test_fp8_softmax_preserves_small_probabilities = (
    load_sibling().test_fp8_softmax_preserves_small_probabilities
)
