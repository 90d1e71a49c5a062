"""What the tests of contributions share: the local GitHub, and patches that were proved once."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from pathlib import Path

import pytest

from contribbot.github import client
from contribbot.github.waits import Waits
from tests.contribute.gatetoy import Proved, make_proved, make_verified
from tests.github.handle import GitHub, serve


@pytest.fixture(autouse=True)
def _no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    """The local GitHub asks nobody to wait a second between writes."""
    monkeypatch.setattr(client, "Waits", functools.partial(Waits, between_writes=0))


@pytest.fixture
def github(tmp_path: Path) -> Iterator[GitHub]:
    """A local GitHub that fails the test where it is asked for what it does not model."""
    with serve(tmp_path / "github") as made:
        yield made


@pytest.fixture(scope="session")
def proved(tmp_path_factory: pytest.TempPathFactory) -> Proved:
    """A patch that its gate lets through; copy it to change it."""
    return make_proved(tmp_path_factory.mktemp("proved"))


@pytest.fixture(scope="session")
def verified(tmp_path_factory: pytest.TempPathFactory) -> Proved:
    """The toy's plain patch, without rules or template; copy it to change it."""
    return make_verified(tmp_path_factory.mktemp("verified"))
