"""Answers are kept for the next time, for the same token only, and may be damaged or gone."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from contribbot.github import cache as kept_answers
from contribbot.github.auth import Secret
from contribbot.github.cache import Cache, Kept
from contribbot.github.client import GitHub as Client
from tests.github.ours import client
from tests.github.scene import Scene


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    return tmp_path / "queue" / ".contribbot" / "github"


def assert_pull(ours: Client, scene: Scene, *, changed: bool) -> None:
    got = ours.pull(scene.upstream.full_name, scene.pull.number).complete()
    assert got.title == scene.pull.issue.title
    assert statuses(scene)[-1] == (200 if changed else 304)


def statuses(scene: Scene) -> list[int]:
    return [one.status for one in scene.github.requests]


def test_nothing_new_costs_nothing(scene: Scene, cache: Path) -> None:
    for changed in (True, False, False):
        with client(scene.github, scene.author.tokens[0].text, cache=cache) as ours:
            assert_pull(ours, scene, changed=changed)
    assert statuses(scene) == [200, 304, 304]
    assert scene.author.used["core"] == 1
    scene.pull.issue.title = "Another"
    with client(scene.github, scene.author.tokens[0].text, cache=cache) as ours:
        assert_pull(ours, scene, changed=True)
        assert_pull(ours, scene, changed=False)


def test_nobody_else_on_the_machine_can_read_what_is_kept(scene: Scene, cache: Path) -> None:
    # Made before by something with other habits: a copy, an archive.
    cache.mkdir(parents=True, mode=0o755)
    cache.chmod(0o755)
    with client(scene.github, scene.author.tokens[0].text, cache=cache) as ours:
        assert_pull(ours, scene, changed=True)
    assert cache.stat().st_mode & 0o777 == 0o700


def test_lists_are_kept_page_by_page(scene: Scene, cache: Path) -> None:
    where, number = scene.upstream.full_name, scene.pull.number
    with client(scene.github, scene.author.tokens[0].text, cache=cache) as ours:
        pull = ours.pull(where, number)
        made = [pull.create_issue_comment(f"{one}").id for one in range(205)]
        for _ in range(2):
            assert [one.id for one in pull.get_issue_comments()] == made
        assert statuses(scene)[205:] == [200, 200, 200, 304, 304, 304]
        made.append(pull.create_issue_comment("more").id)
        assert [one.id for one in pull.get_issue_comments()] == made


def test_another_token_sees_nothing_of_it(scene: Scene, cache: Path) -> None:
    for user in (scene.author, scene.reviewer):
        with client(scene.github, user.tokens[0].text, cache=cache) as ours:
            assert_pull(ours, scene, changed=True)
    assert statuses(scene) == [200, 200]
    assert not any(one.conditional for one in scene.github.requests)


def test_the_folder_can_be_deleted_and_names_tell_nothing(scene: Scene, cache: Path) -> None:
    names = []
    for _ in range(2):
        with client(scene.github, scene.author.tokens[0].text, cache=cache) as ours:
            assert_pull(ours, scene, changed=True)
        (file,) = cache.iterdir()
        names.append(file.name)
        assert scene.author.tokens[0].text.encode() not in file.read_bytes()
        file.unlink()
    assert not any("pull" in name or "author" in name for name in names)


@pytest.mark.parametrize("damage", ["cut", "empty", "body", "url", "etag", "folder", "link"])
def test_a_damaged_answer_is_none(scene: Scene, cache: Path, damage: str) -> None:
    with client(scene.github, scene.author.tokens[0].text, cache=cache) as ours:
        assert_pull(ours, scene, changed=True)
        (path,) = cache.glob("*.answer")
        content = path.read_bytes()
        head, _, body = content.partition(b"\n")
        if damage == "folder":
            path.unlink()
            path.mkdir()
        elif damage == "link":
            path.unlink()
            path.symlink_to(path)
        else:
            path.write_bytes(
                {
                    "cut": content[:-10],
                    "empty": b"",
                    "body": head + b"\n" + body.replace(b"Fix", b"Fox"),
                    "url": content.replace(b"/pulls/", b"/pools/", 1),
                    "etag": content.replace(b'"W/', b'"\\r\\nX: y', 1),
                }[damage]
            )
        assert_pull(ours, scene, changed=True)


def test_where_nothing_can_be_written_all_works(scene: Scene, tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_bytes(b"")
    with client(scene.github, scene.author.tokens[0].text, cache=blocked / "github") as ours:
        assert_pull(ours, scene, changed=True)
        assert_pull(ours, scene, changed=True)


def test_how_much_is_kept_is_bounded(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept_answers, "_FILES", 5)
    monkeypatch.setattr(kept_answers, "_LOOK_AFTER", 1)
    kept = Cache(cache, Secret("one"))
    for number in range(8):
        kept.keep(f"url {number}", Kept('"x"', "", b"body"))
        for path in cache.glob("*.answer"):
            os.utime(path, (path.stat().st_atime, path.stat().st_mtime - 10))
    found = [number for number in range(8) if kept.find(f"url {number}")]
    assert found == [3, 4, 5, 6, 7]
    monkeypatch.setattr(kept_answers, "_BYTES", 2000)
    kept.keep("large", Kept('"x"', "", b" " * 1500))
    kept.keep("too large", Kept('"x"', "", b" " * (kept_answers._LARGEST + 1)))
    assert kept.find("large")
    assert kept.find("too large") is None
    assert sum(path.stat().st_size for path in cache.glob("*.answer")) <= 2000


def test_nothing_is_kept_without_a_folder(scene: Scene) -> None:
    with client(scene.github, scene.author.tokens[0].text) as ours:
        assert_pull(ours, scene, changed=True)
        assert_pull(ours, scene, changed=True)
