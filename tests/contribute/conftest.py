"""The local GitHub, for all tests of contributions."""

from __future__ import annotations

from tests.github.conftest import github

__all__ = ["github"]
