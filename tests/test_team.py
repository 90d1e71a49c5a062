"""A queue that two people change in clones of its repository, and merge with git."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from contribbot.queue import history
from contribbot.queue.load import load_queue
from tests.conftest import Program
from tests.toy import GIT_ENV, Toy, git

NAMES = tuple(f"p{number}" for number in range(8))


def mail(toy: Toy, name: str) -> bytes:
    """Return a patch that adds a file of its own."""
    return toy.format_patch({f"{name}.txt": f"{name}\n"}, subject=f"Add {name}")


@pytest.fixture
def clones(toy: Toy, program: Program) -> tuple[Path, Path]:
    """Eight patches that touch different files, committed and cloned twice."""
    git(toy.queue, "init", "-q", "-b", "main")
    stated = toy.queue.joinpath("patches/queue.toml").read_bytes()
    toy.queue.joinpath("patches/queue.toml").unlink()
    program.ok("init", ".")
    toy.put("patches/queue.toml", stated)
    for name in NAMES:
        program.ok("new", name, "-", stdin=mail(toy, name))
    commit(toy.queue)
    for name in ("one", "two"):
        git(toy.root, "clone", "-q", str(toy.queue), name)
    return toy.root / "one", toy.root / "two"


def commit(folder: Path) -> None:
    git(folder, "add", "-A")
    git(folder, "commit", "-qm", "Work")


def merge(folder: Path, other: Path) -> bool:
    """Merge the other clone's work; return whether git needed nobody."""
    git(folder, "fetch", "-q", str(other), "HEAD")
    command = ["git", "merge", "-q", "-m", "Merge", "FETCH_HEAD"]
    done = subprocess.run(command, cwd=folder, env=GIT_ENV, capture_output=True, check=False)
    return done.returncode == 0


def change(program: Program, folder: Path, *commands: str, stdin: bytes = b"") -> None:
    for command in commands:
        program.ok(*command.split(), cwd=folder, stdin=stdin)
    commit(folder)


def test_two_people_add_fold_and_retire(
    toy: Toy, program: Program, clones: tuple[Path, Path]
) -> None:
    one, two = clones
    change(program, one, "new mine -", stdin=mail(toy, "mine"))
    change(program, two, "new theirs -", stdin=mail(toy, "theirs"))
    change(program, one, "queue fold p1 p0", "queue retire p2 --why done", "queue mv p3 q3")
    change(
        program, two, "queue fold p5 p4", "queue retire p6 --why done", "queue split p4 s p5.txt"
    )
    assert merge(one, two)
    assert merge(two, one)
    for folder in clones:
        queue = load_queue(folder)
        assert set(queue.specs) == {"mine", "theirs", "p0", "q3", "p4", "s", "p7"}
        assert [path.name for path in (folder / "history").glob("*/retired")]
        assert len(queue.patch("p0").files) == 2
        kept = {path.parent.parent.name for path in folder.glob("history/*/retired/*.patch")}
        assert kept == {"p1", "p2", "p5", "p6"}
        program.ok("queue", "export", "-o", "all.mbox", cwd=folder)
    assert program("queue", "export", cwd=one).out == program("queue", "export", cwd=two).out


def test_two_orders_conflict_in_lines(
    toy: Toy, program: Program, clones: tuple[Path, Path]
) -> None:
    one, two = clones
    change(program, one, "queue reorder p7 --before p0", "new mine -", stdin=mail(toy, "mine"))
    change(program, two, "queue reorder p0", "queue retire p3 --why done")
    assert not merge(one, two)
    assert git(one, "diff", "--name-only", "--diff-filter=U").split() == [b"patches/queue.toml"]
    text = (one / "patches/queue.toml").read_text()
    line = text.split("\n").index("<<<<<<< HEAD") + 1
    ran = program("queue", "list", cwd=one)
    assert (ran.code, f"queue.toml:{line}: a merge conflict; keep what" in ran.err) == (2, True)
    git(one, "checkout", "--ours", "patches/queue.toml")
    ran = program("queue", "list", cwd=one)
    assert (ran.code, "order names p3, and there is no " in ran.err) == (2, True)
    place = one / "patches/queue.toml"
    place.write_text(place.read_text().replace('    "p3",\n', ""))
    commit(one)
    assert merge(two, one)
    for folder in clones:
        assert [*load_queue(folder).specs] == ["p7", "p0", "p1", "p2", "p4", "p5", "p6", "mine"]


def test_two_events_of_one_patch_are_both_in_its_journal(clones: tuple[Path, Path]) -> None:
    one, two = clones
    for folder in clones:
        first = history.read(folder, "p0")[0]
        history.append(folder, "p0", first.model_copy(update={"summary": folder.name}))
        commit(folder)
    assert merge(one, two)
    summaries = [event.summary for event in history.read(one, "p0")]
    assert sorted(summaries[1:]) == ["one", "two"]


CONFLICT = b"<<<<<<< HEAD\n%s=======\n%s>>>>>>> theirs\n"


@pytest.mark.parametrize(
    ("path", "command", "said"),
    [
        ("patches/queue.toml", "queue list", "queue.toml:1: a merge conflict; keep"),
        ("patches/area/patch.toml", "queue list", "patch.toml:1: a merge conflict; keep"),
        ("upstreams/toy.toml", "queue list", "toy.toml:1: a merge conflict; keep"),
        (
            "patches/area/0001-change.patch",
            "show area",
            "change.patch:1: a merge conflict; take one",
        ),
        ("history/area/journal.jsonl", "queue log area", "journal.jsonl:1: a merge conflict; keep"),
    ],
)
def test_a_merge_conflict_is_named(
    area: Toy, program: Program, path: str, command: str, said: str
) -> None:
    git(area.queue, "init", "-q")
    place = area.queue / path
    content = place.read_bytes() if place.is_file() else b"{}\n"
    area.put(path, CONFLICT % (content, content))
    ran = program(*command.split())
    assert (ran.code, said in ran.err) == (2, True), ran.err
    assert ran.err.count("\n") == 1
