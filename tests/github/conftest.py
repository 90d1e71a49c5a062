"""The fixture `github`: a local GitHub, started, and judged when the test is over."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.github.handle import GitHub
from tests.github.server import LocalServer
from tests.github.state import State
from tests.github.validate import Validation
from tests.github.world import World, make_world


@pytest.fixture
def github(tmp_path: Path) -> Iterator[GitHub]:
    """A local GitHub with nobody in it.

    What it does not model, or what GitHub does not describe, fails the test.
    """
    server = LocalServer(State(tmp_path / "github"))
    server.hooks.append(Validation())
    server.start()
    try:
        yield GitHub(server)
    finally:
        server.stop()
    assert server.broken == [], "\n".join(server.broken)


@pytest.fixture
def world(github: GitHub, tmp_path: Path) -> World:
    """An upstream with a maintainer, a fork with its owner, and a bystander."""
    return make_world(github, tmp_path / "source")
