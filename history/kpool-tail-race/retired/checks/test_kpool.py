"""vLLM's own test of the batched decode update, where a pool completes among several tokens.

Fail-to-pass: on the base a wave pools what the ring held before another wave has stashed. Of vLLM
the real kernels and the real test are there; what only imports is a stand-in.
"""

from __future__ import annotations

import pytest
import triton
import triton.language as tl

from contribbot.testing import answers, import_file

upstream = import_file(
    "tests/kernels/test_kpool_decode_update_batched.py",
    real=["vllm.models.glm5next.amd.ops.kpool_compress"],
    given={
        "vllm.triton_utils": {"tl": tl, "triton": triton},
        "vllm.utils.deep_gemm": answers("mqa_logits_use_mx_scales", answer=False),
    },
)


@pytest.mark.parametrize(
    "case", ["completion_at_end", "completion_mid_batch", "non_uniform_padding"]
)
def test_pool_of_tokens_that_one_launch_stashes(case: str) -> None:
    upstream.test_batched_matches_reference(case)
