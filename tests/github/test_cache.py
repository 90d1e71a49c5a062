"""Answers are kept for the next time, for the same token only, and may be damaged or gone."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from contribbot.github import requester as kept_answers
from contribbot.github.auth import Secret
from contribbot.github.requester import Cache, Response
from tests.github.ours import client
from tests.github.state import User
from tests.github.world import World


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    return tmp_path / "queue" / ".contribbot" / "github"


def ask(world: World, cache: Path | None, times: int = 1, who: User | None = None) -> list[int]:
    """Ask for the pull request with a new client, and return the statuses of the answers."""
    title = world.pull.issue.title
    before = len(world.github.requests)
    with client(world.github, (who or world.ada).tokens[0].text, cache=cache) as ours:
        for _ in range(times):
            assert ours.pull("org/tool", 1).complete().title == title
    return [request.status for request in world.github.requests[before:]]


def test_nothing_new_costs_nothing(world: World, cache: Path) -> None:
    # Made before by something with other habits: a copy, an archive.
    cache.mkdir(parents=True, mode=0o755)
    assert [ask(world, cache) for _ in range(3)] == [[200], [304], [304]]
    assert cache.stat().st_mode & 0o777 == 0o700
    assert world.ada.used["core"] == 1
    world.pull.issue.title = "Another"
    assert ask(world, cache, times=2) == [200, 304]
    assert ask(world, cache, who=world.mia) == [200]
    assert not world.github.requests[-1].conditional
    for path in cache.iterdir():
        assert world.ada.tokens[0].text.encode() not in path.read_bytes()
        assert "pull" not in path.name


def test_lists_are_kept_page_by_page(world: World, cache: Path) -> None:
    with client(world.github, world.ada.tokens[0].text, cache=cache) as ours:
        pull = ours.pull("org/tool", world.pull.number)
        numbers = [pull.create_issue_comment(f"{number}").id for number in range(205)]
        for _ in range(2):
            assert [comment.id for comment in pull.get_issue_comments()] == numbers
        statuses = [request.status for request in world.github.requests[205:]]
        assert statuses == [200, 200, 200, 304, 304, 304]
        numbers.append(pull.create_issue_comment("more").id)
        assert [comment.id for comment in pull.get_issue_comments()] == numbers


def lessen(path: Path) -> None:
    """Leave an intact answer of which less was read once."""
    head, _, body = path.read_bytes().partition(b"\n")
    headers, _ = json.loads(head)
    less = body.replace(b'"title"', b'"words"')
    digest = hashlib.sha256(less).hexdigest()
    path.write_bytes(json.dumps([headers, digest]).encode() + b"\n" + less)


DAMAGE: dict[str, Callable[[Path], object]] = {
    "gone": lambda path: path.unlink(),
    "cut": lambda path: path.write_bytes(path.read_bytes()[:-10]),
    "shape": lessen,
    "empty": lambda path: path.write_bytes(b""),
    "body": lambda path: path.write_bytes(path.read_bytes().replace(b"Fix", b"Fox")),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_answer_is_none(world: World, cache: Path, damage: str) -> None:
    assert ask(world, cache) == [200]
    (path,) = cache.glob("*.answer")
    DAMAGE[damage](path)
    assert ask(world, cache) == [200]


def test_where_nothing_can_be_kept_all_works(world: World, tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    for folder in (tmp_path / "file" / "github", None):
        assert ask(world, folder, times=2) == [200, 200]


def test_how_much_is_kept_is_bounded(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept_answers, "_FILES", 5)
    kept = Cache(cache, Secret("one"))
    for number in range(8):
        kept.keep(f"url {number}", Response(200, {"etag": "x"}, b"body"))
        for path in cache.glob("*.answer"):
            os.utime(path, (0, path.stat().st_mtime - 10))
    kept = Cache(cache, Secret("one"))
    assert [number for number in range(8) if kept.find(f"url {number}")] == [3, 4, 5, 6, 7]
    monkeypatch.setattr(kept_answers, "_BYTES", 2000)
    kept.keep("large", Response(200, {"etag": "x"}, b" " * 1800))
    kept.keep("too large", Response(200, {"etag": "x"}, b" " * (kept_answers._LARGEST + 1)))
    kept = Cache(cache, Secret("one"))
    assert kept.find("large")
    assert kept.find("too large") is None
    assert sum(path.stat().st_size for path in cache.glob("*.answer")) <= 2000
