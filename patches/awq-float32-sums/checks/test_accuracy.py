"""The test that the patch adds to vLLM: float16 results at K = 4096.

Fail-to-pass: on the base partial sums are rounded to float16.
"""

import awq

test_gemm_float16_accuracy = awq.own.test_gemm_float16_accuracy
