"""SIGKILL anywhere: the next command finds a queue as it was before or as it is after."""

from __future__ import annotations

import os
import sys
import textwrap
from pathlib import Path

import pytest
from _pytest.mark import ParameterSet

from tests.kills import Case, Seen, at_each_step, at_random, run
from tests.toy import AREA, Toy, git

#: More rounds, or other ones, for a long look: CONTRIBBOT_KILLS=200 CONTRIBBOT_KILL_SEED=7.
ROUNDS = int(os.environ.get("CONTRIBBOT_KILLS", "6"))
#: The cases that `make test` kills too, a few times.
SHORT = {"transaction patches/area/x patches/notes.txt -patches/area/checks/test_same.py",
         "new", "refresh"}  # fmt: skip
SEED = int(os.environ.get("CONTRIBBOT_KILL_SEED", "20261121"))

WRITES = textwrap.dedent(
    """
    import sys
    from pathlib import Path
    from contribbot.queue.transaction import transaction
    with transaction(Path.cwd()) as changes:
        for path in sys.argv[1:]:
            if path.startswith("-"):
                changes.delete(path[1:])
            else:
                changes.write(path, path.encode())
    """
)


def contribbot(queue: Path, *argv: str) -> int:
    """Run the program in a queue to its end."""
    child = run(queue, list(argv))
    child.communicate(timeout=120)
    return child.returncode


def two_patches(toy: Toy) -> None:
    """Make a queue of two patches, one on top of the other's file."""
    toy.put_patch()
    toy.put_patch(
        "readme",
        patch=toy.format_patch({"README": "toys\n"}, "Say that they are many"),
        files=("README",),
        extra='depends_on = ["area"]',
    )
    toy.put("patches/area/notes.txt", "mine\n")
    toy.put_queue(["area", "readme"])


def writes(*paths: str) -> Case:
    """Return a case that writes through a transaction."""

    def prepare(toy: Toy) -> list[str]:
        two_patches(toy)
        return ["-c", WRITES, *paths]

    return Case(f"transaction {' '.join(paths)}", prepare)


def new(toy: Toy) -> list[str]:
    two_patches(toy)
    return ["new", "third", "--title", "A third patch", "--depends-on", "readme"]


def import_(toy: Toy) -> list[str]:
    two_patches(toy)
    mail = toy.format_patch({"LICENSE": "toys\n"}, "Add a licence")
    toy.put("third.mbox", mail)
    return ["import", "third", str(toy.queue / "third.mbox"), "--after", "area"]


def edited(toy: Toy) -> Path:
    """Open the patch area, and return its work tree."""
    two_patches(toy)
    assert contribbot(toy.queue, "edit", "area") == 0
    return toy.queue / ".contribbot" / "edit" / "area"


def edit(toy: Toy) -> list[str]:
    two_patches(toy)
    return ["edit", "area"]


def refresh(toy: Toy) -> list[str]:
    tree = edited(toy)
    area = tree / "src" / "toy" / "area.py"
    area.write_text(area.read_text() + "\n\nSIDES = 4\n")
    (tree / "CORNERS").write_text("4\n")
    git(tree, "add", "-A")
    git(tree, "commit", "-qm", "Count sides and corners")
    return ["refresh", "area"]


def rebase(toy: Toy) -> list[str]:
    two_patches(toy)
    toy.write("src/toy/area.py", '"""Areas of plane figures."""\n' + AREA.partition("\n")[2])
    git(toy.upstream, "commit", "-qam", "Toy 2.0")
    git(toy.upstream, "tag", "v2.0")
    git(toy.upstream, "reset", "-q", "--hard", toy.commit)
    return ["rebase", "--to", "v2.0", "--text-only"]


def resolved(toy: Toy) -> list[str]:
    two_patches(toy)
    later = AREA.replace("return width + height", "return height + width")
    toy.write("src/toy/area.py", later)
    git(toy.upstream, "commit", "-qam", "Toy 2.0")
    git(toy.upstream, "tag", "v2.0")
    git(toy.upstream, "reset", "-q", "--hard", toy.commit)
    assert contribbot(toy.queue, "rebase", "--to", "v2.0", "--text-only", "--resolve") == 1
    tree = toy.queue / ".contribbot" / "edit" / "area"
    (tree / "src/toy/area.py").write_text(later.replace("height + width", "height * width"))
    git(tree, "add", "-A")
    git(tree, "-c", "core.editor=true", "cherry-pick", "--continue")
    return ["rebase", "--continue"]


def export(toy: Toy) -> list[str]:
    two_patches(toy)
    return ["export", "area", "--output", "area.mbox"]


#: Each command that writes: what it may say when it is run again after it had its effect.
CASES = [
    writes("patches/area/x", "patches/notes.txt", "-patches/area/checks/test_same.py"),
    Case("new", new, again=frozenset({2})),
    Case("import", import_, again=frozenset({2})),
    Case("edit", edit, changes=False),
    Case("refresh", refresh),
    Case("rebase", rebase, again=frozenset({1, 2})),
    Case("rebase --continue", resolved, again=frozenset({2})),
    Case("export", export, changes=False),
]


def kills(most: int, few: int, cases: set[str]) -> list[ParameterSet]:
    """Return each case with how often it is killed, and a few kills of some cases."""
    slow = [pytest.param(case, most, marks=pytest.mark.slow, id=case.name) for case in CASES]
    short = [pytest.param(case, few, id=f"{case.name}, in short") for case in CASES
           if case.name in cases]  # fmt: skip
    return short + slow


def assert_whole(seen: Seen, case: Case) -> None:
    assert seen.state in {"before", "after"}, seen
    assert seen.listed == 0, seen
    assert seen.again in ({0} if seen.state == "before" else {0, *case.again}), seen
    assert seen.final == "after", seen


@pytest.mark.skipif(not hasattr(os, "fork"), reason="forks")
@pytest.mark.parametrize(("case", "most"), kills(5 * ROUNDS, 6, SHORT))
def test_a_kill_before_any_change_of_a_file(
    case: Case, most: int, toy: Toy, tmp_path: Path
) -> None:
    all_seen = list(at_each_step(case, toy, tmp_path, most=most, seed=SEED))
    for seen in all_seen:
        assert_whole(seen, case)
    # It was killed at every step but the last.
    assert [seen.killed for seen in all_seen] == [True] * (len(all_seen) - 1) + [False]
    assert all_seen[0].state == ("before" if case.changes else "after")
    assert all_seen[-1].state == "after"
    print(f"{case.name}: {len(all_seen) - 1} kills", file=sys.stderr)  # noqa: T201  -s shows it


def test_what_is_written_file_by_file_is_seen_torn(toy: Toy, tmp_path: Path) -> None:
    """Were it not, the tests above would show nothing."""

    def prepare(toy: Toy) -> list[str]:
        two_patches(toy)
        text = "import pathlib\nfor n in 'ab': pathlib.Path('patches/area', n).write_text('x')"
        return ["-c", text]

    states = [seen.state for seen in at_each_step(Case("plain", prepare), toy, tmp_path)]
    assert states == ["before", "torn", "after"]


@pytest.mark.slow
def test_a_kill_at_a_random_time(toy: Toy, tmp_path: Path) -> None:
    case = next(case for case in CASES if case.name == "rebase")
    for seen in at_random(case, toy, tmp_path, rounds=ROUNDS, seed=SEED):
        assert_whole(seen, case)
