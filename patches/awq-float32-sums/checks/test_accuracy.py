"""The test that the patch adds to vLLM: float16 and bfloat16 results.

Fail-to-pass: on the base partial sums are rounded to float16, and bfloat16 does not compile.
"""

import awq

test_gemm_accuracy = awq.own.test_gemm_accuracy
