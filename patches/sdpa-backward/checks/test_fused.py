"""The test that the patch adds, with the gradients of `bwd_kernel_fuse`.

Fail-to-pass, as `test_added.py`.
"""

import attention
from test_backward import test_large_bf16_grads  # noqa: F401  pytest runs what this file has

attention.use_fused_backward()
