"""The local GitHub, and a world in it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.github.handle import GitHub, serve
from tests.github.world import World, make_world


@pytest.fixture
def github(tmp_path: Path) -> Iterator[GitHub]:
    """A local GitHub that fails the test where GitHub's description says otherwise."""
    with serve(tmp_path / "github") as made:
        yield made


@pytest.fixture
def world(github: GitHub, tmp_path: Path) -> World:
    """An upstream with a maintainer, a fork with its owner, and faults that can be armed."""
    return make_world(github, tmp_path / "source")
