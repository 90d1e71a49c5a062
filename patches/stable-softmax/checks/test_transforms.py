"""transform_cases.py on a CPU. Pass-to-pass."""

from __future__ import annotations

import pytest

# These are the tests that pytest finds here.
from transform_cases import *  # noqa: F403  all of them


@pytest.fixture
def device() -> str:
    return "cpu"
