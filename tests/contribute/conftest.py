"""Fixtures of the tests of contributions: the local GitHub, and patches that were proved once."""

from __future__ import annotations

import functools
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from contribbot.github import client
from contribbot.github.client import Waits
from tests.conftest import once
from tests.contribute.bodytoy import describe
from tests.contribute.following import Post, make_post
from tests.contribute.place import (
    Desk,
    Proved,
    Table,
    make_desk,
    make_proved,
    make_table,
    make_verified,
)
from tests.github.conftest import github
from tests.github.handle import GitHub
from tests.github.state import Pull
from tests.toy import Toy

__all__ = ["github"]


@pytest.fixture(autouse=True)
def _no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    """The local GitHub asks nobody to wait a second between writes."""
    monkeypatch.setattr(client, "Waits", functools.partial(Waits, between_writes=0))


@pytest.fixture(scope="session")
def proved(shared: Path) -> Proved:
    """A patch that its gate lets through; copy it to change it."""
    return once(shared / "proved", make_proved)


@pytest.fixture(scope="session")
def verified(shared: Path) -> Proved:
    """The toy's plain patch, without rules or template; copy it to change it."""
    return once(shared / "verified", make_verified)


@pytest.fixture
def known(toy: Toy, verified: Proved) -> Toy:
    """The toy with its patch, which was proved before, and its upstream's rules."""
    shutil.copytree(verified.toy.queue, toy.queue, dirs_exist_ok=True)
    describe(toy)
    return toy


@pytest.fixture
def table(proved: Proved, github: GitHub, tmp_path: Path) -> Iterator[Table]:
    """A person with the proved patch, whose machine has its pin, and the GitHub that it goes to."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CONTRIBBOT_CACHE", str(proved.cache))
        yield make_table(proved.copy(tmp_path), github)


@pytest.fixture
def desk(toy: Toy, github: GitHub) -> Desk:
    return make_desk(toy, github)


@pytest.fixture
def post(toy: Toy, github: GitHub) -> Post:
    return make_post(toy, github)


@pytest.fixture
def opened(post: Post) -> Pull:
    return post.open()
