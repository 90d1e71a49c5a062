"""The tests that the patch adds, on CUDA: on the release all of them fail."""

from __future__ import annotations

import pytest
from added_test import cases

CASES = cases("cuda")


@pytest.mark.parametrize("name", CASES)
def test_added(name: str) -> None:
    CASES[name].debug()
