"""The tests that the patch adds, on a CPU: on the release all of them fail."""

from __future__ import annotations

import pytest
from added_test import cases

CASES = cases("cpu")


@pytest.mark.parametrize("name", CASES)
def test_added(name: str) -> None:
    CASES[name].debug()
