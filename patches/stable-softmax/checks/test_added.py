"""The test that the patch adds to PyTorch, where it is about precision.

Fail-to-pass: on the base the same test finds errors that SDPA does not make.
"""

from __future__ import annotations

import pytest
from added_test import RED, run


@pytest.mark.parametrize("test", RED)
def test_added(test: str) -> None:
    run(test)
