"""A router of 8 experts at batch 1, where a block has more than 16 waves of 32 lanes.

Fail-to-pass: the kernel adds up 16 waves, that is the first 4,096 of K.
"""

from __future__ import annotations

import pytest
from llmm1 import assert_right


@pytest.mark.parametrize("k", [5120, 6144, 8192])
def test_rocm_llmm1_kernel(target: str, k: int) -> None:
    assert_right(target, 8, k, 4)
