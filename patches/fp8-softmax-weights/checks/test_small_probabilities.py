"""The test that the patch adds to vLLM: small weights count in FP8.

Fail-to-pass: on the base all weights but the largest are rounded to 0. Of vLLM the real kernels
and the real test are there; the platform and what only imports are stand-ins.
"""

from diffkv import load_test

test_fp8_softmax_preserves_small_probabilities = (
    load_test().test_fp8_softmax_preserves_small_probabilities
)
