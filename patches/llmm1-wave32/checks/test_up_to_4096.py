"""Up to 16 waves all rows are written, and right, for each number of rows a block.

Pass-to-pass, emulated for both targets: neither a K between 2,048 and 4,096 fails, nor rows beyond
the first pair.
"""

from __future__ import annotations

import pytest
from llmm1 import assert_right


@pytest.mark.parametrize("target", ["gfx1100", "gfx1201"])
@pytest.mark.parametrize("k", [512, 3072, 4096])
@pytest.mark.parametrize("rows", [2, 4, 8, 16])
def test_rocm_llmm1_kernel(target: str, rows: int, k: int) -> None:
    assert_right(target, 16, k, rows)
