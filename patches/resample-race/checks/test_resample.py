"""The test of bonus tokens that the patch adds to vLLM, on emulated AMD GPUs.

Fail-to-pass: on the base a wave reads num_sampled after another one has incremented it, and so
past the end of a tensor. Of vLLM the real kernels and the real test are there; what only imports
is a stand-in.
"""

from __future__ import annotations

import triton
import triton.language as tl
from triton.language.extra import libdevice

from contribbot.testing import import_file

_own = import_file(
    "tests/v1/spec_decode/test_rejection_sampler_utils.py",
    real=[
        "vllm.v1.spec_decode.fly",
        "vllm.v1.worker.gpu.sample.gumbel",
        "vllm.v1.worker.gpu.sample.watermark",
        "vllm.v1.worker.gpu.spec_decode.rejection_sampler_utils",
        # Triton 3.8 compares the constants that its kernels read.
        "vllm.v1.watermarking.prfs.base",
        "vllm.v1.watermarking.prfs.philox",
    ],
    given={
        "vllm.triton_utils": {"HAS_TRITON": True, "tl": tl, "tldevice": libdevice, "triton": triton}
    },
)
test_bonus_token = _own.test_bonus_token_before_greedy_request
