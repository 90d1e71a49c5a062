"""The same with the reduction over all waves that the pull request describes.

Pass-to-pass, emulated for both targets: it is right for each K that vLLM lets in.
"""

from __future__ import annotations

import pytest
from llmm1 import assert_right


@pytest.mark.parametrize("target", ["gfx1100", "gfx1201"])
@pytest.mark.parametrize("k", [4096, 5120, 6144, 8192])
def test_rocm_llmm1_kernel(target: str, k: int) -> None:
    assert_right(target, 8, k, 4, strided=True)
