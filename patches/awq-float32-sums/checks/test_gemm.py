"""vLLM's own test of float32 results, two of its sizes.

Pass-to-pass.
"""

import awq
import pytest


@pytest.mark.parametrize("split", [1, 8])
def test_float32(split: int) -> None:
    awq.own.test_gemm(N=14, K=128, M=24, splitK=split, group_size=32)
