"""The local GitHub, and a world in it."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.github.handle import GitHub
from tests.github.world import World, make_world


@pytest.fixture
def github(tmp_path: Path) -> Iterator[GitHub]:
    """A local GitHub that fails the test where GitHub's description says otherwise."""
    made = GitHub(tmp_path / "github")
    thread = threading.Thread(target=made.http.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield made
    finally:
        made.http.shutdown()
        thread.join()
        made.http.server_close()
    assert made.broken == [], "\n".join(made.broken)


@pytest.fixture
def world(github: GitHub, tmp_path: Path) -> World:
    """An upstream with a maintainer, a fork with its owner, and faults that can be armed."""
    return make_world(github, tmp_path / "source")
