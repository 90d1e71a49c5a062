"""The test that the patch adds to AOTriton: gradients of large inputs.

Fail-to-pass: on the base softmax weights exceed 1. The kernels and the test are AOTriton's own.
"""

# pytest runs what this file has.
from test_backward import test_large_bf16_grads  # noqa: F401
