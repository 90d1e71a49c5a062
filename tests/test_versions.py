from __future__ import annotations

import shutil

import pytest

from contribbot.errors import QueueError, UsageError
from contribbot.queue.arrange import range_diff, read_range
from contribbot.queue.history import journal_file, versions
from contribbot.queue.load import Queue, load_queue
from tests.conftest import Program
from tests.releases import release
from tests.test_refresh import AREA_FILE, HALF, series
from tests.toy import AREA, FIXED, Toy, git, record

BETTER = AREA.replace("return width + height", "return width * height")


def reloaded(toy: Toy, *order: str) -> Queue:
    toy.put_queue(list(order or ("area",)))
    return load_queue(toy.queue)


@pytest.fixture
def changed(toy: Toy) -> Toy:
    """A patch that was refreshed once: v1 is what was there before, v2 what is there."""
    git(toy.root, "init", "-q", "queue")
    toy.put_patch()
    queue = reloaded(toy)
    assert record(queue, queue.patch("area"), why="before refresh") == 1
    toy.put_patch(patch=toy.format_patch({"src/toy/area.py": BETTER}))
    queue = reloaded(toy)
    assert record(queue, queue.patch("area"), why="refresh") == 2
    return toy


def test_the_first_change_records_what_was_there_before_too(changed: Toy) -> None:
    queue = load_queue(changed.queue)
    assert record(queue, queue.patch("area"), queue.patch("area"), why="refresh") is None
    first, second = versions(changed.queue, "area")
    assert [one.event.why for one in (first, second)] == ["before refresh", "refresh"]
    assert second.event.summary == "v2: 1 commit on toy v1.0, refresh"
    assert second.files() == load_queue(changed.queue).patch("area").files
    assert b"+    area = width * height" in first.files()[0].content


def test_a_version_is_found_in_commits_and_in_mailboxes(
    changed: Toy,
) -> None:
    queue = changed.queue
    first, second = versions(queue, "area")
    old, new = first.files(), second.files()
    git(queue, "update-ref", "-d", "refs/worktree/contribbot/queue")
    for version in (first, second):
        with pytest.raises(QueueError, match=r"the files of v\d are not in the operation log"):
            version.files()
    git(queue, "add", "patches")
    git(queue, "commit", "-qm", "The queue")
    changed.put("history/area/v1.mbox", old[0].content)
    assert (first.files(), second.files()) == (old, new)
    changed.put("history/area/v1.mbox", b"cut short")
    with pytest.raises(QueueError, match="the files of v1 are not"):
        first.files()


def test_diff_shows_what_changed_between_versions(changed: Toy, program: Program) -> None:
    ran = program.ok("queue", "diff", "area", "v1..v2")
    assert ran.out.startswith("area: v1 against v2\n1:  ")
    assert "-+    area = width * height" in ran.out
    assert "++    return width * height" in ran.out
    # Without numbers: the last version against the files.
    assert program("queue", "diff", "area").out == "area: v2 and files are the same\n"
    changed.put_patch()
    ran = program("queue", "diff", "area")
    assert ran.out.startswith("area: v2 against files\n")
    assert "++    area = width * height" in ran.out
    document = program("queue", "diff", "area", "1..", "--json").json()
    assert {key: document[key] for key in ("patch", "old", "new", "same")} == {
        "patch": "area", "old": "v1", "new": "files", "same": True,
    }  # fmt: skip


def test_diff_names_what_is_not_there(changed: Toy, program: Program) -> None:
    changed.put_patch("other")
    reloaded(changed, "area", "other")
    for args, said in (
        (("area", "v1..v7"), "area: there is no version v7; it has v1 to v2"),
        (("other",), "other: no version is recorded yet"),
    ):
        assert said in program.refused("queue", "diff", *args).err


@pytest.mark.parametrize("text", ["", "v0", "v1...v2", "..v2", "1.5", "HEAD~1"])
def test_what_is_no_range_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="not versions of a patch"):
        read_range(text)


def test_a_version_is_compared_on_what_it_stood_on(toy: Toy) -> None:
    """What is below has changed too: each version stands on its own state of it."""
    git(toy.root, "init", "-q", "queue")
    toy.put_patch()
    _, patch = series(toy, {AREA_FILE: FIXED}, {AREA_FILE: HALF})
    toy.put_patch("upper", patch=patch, extra='depends_on = ["area"]')
    first = reloaded(toy, "area", "upper")
    record(first, first.patch("upper"), why="import")
    assert versions(toy.queue, "upper")[0].event.below == {"area": first.patch("area").digest}

    # Below it the same line says something else now, and so its context differs.
    below_before = first.patch("area")
    toy.put_patch(patch=toy.format_patch({"src/toy/area.py": BETTER}))
    second = load_queue(toy.queue)
    with pytest.raises(QueueError, match=r"stood on area .* recorded nowhere"):
        range_diff(second, "upper", 1)
    record(second, below_before, second.patch("area"), why="refresh")
    compared = range_diff(second, "upper", 1)
    assert (compared.old, compared.new, compared.same) == ("v1", "files", True)
    assert " = 1: " in compared.range_diff


def test_a_version_of_a_release_that_left_is_compared(changed: Toy) -> None:
    old = changed.commit
    release(changed, {"README": "toys\n"})
    changed.commit = git(changed.upstream, "rev-parse", "v2.0").decode().strip()
    changed.put_queue(["area"])
    for path in ("patches/queue.toml", "patches/area/patch.toml"):
        changed.edit(path, '"v1.0"', '"v2.0"')
    queue = load_queue(changed.queue)
    assert queue.pin("toy", "v1.0") is None
    compared = range_diff(queue, "area", 1)
    assert "-+    area = width * height" in compared.range_diff
    assert versions(changed.queue, "area")[0].event.base.commit == old
    assert journal_file(changed.queue, "area").is_file()


def test_versions_of_a_patch_that_left_are_compared(changed: Toy, program: Program) -> None:
    shutil.rmtree(changed.queue / "patches/area")
    changed.put_patch("other")
    changed.put_queue(["other"])
    ran = program.ok("queue", "diff", "area", "v1..v2")
    assert ran.out.startswith("area: v1 against v2\n")
    ran = program("queue", "diff", "area")
    assert ran.code == 2
    assert "area: not in the queue any more" in ran.err
    assert "name two versions: v1..v2" in ran.err
    assert "no such patch: are" in program("queue", "diff", "are", "v1..v2").err


def test_what_a_version_stood_on_is_found_under_its_new_name(toy: Toy) -> None:
    git(toy.root, "init", "-q", "queue")
    toy.put_patch()
    toy.put_patch(
        "upper",
        patch=toy.format_patch({"README": "toys\n"}),
        files=("README",),
        extra='depends_on = ["area"]',
    )
    first = reloaded(toy, "area", "upper")
    record(first, first.patch("area"), why="import")
    record(first, first.patch("upper"), why="import")
    for folder in ("patches", "history"):
        (toy.queue / folder / "area").rename(toy.queue / folder / "field")
    toy.edit("patches/upper/patch.toml", '["area"]', '["field"]')
    second = reloaded(toy, "field", "upper")
    assert range_diff(second, "upper", 1).same
    assert range_diff(second, "field", 1).same
