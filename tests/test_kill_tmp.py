"""SIGKILL anywhere: the next command finds a queue as it was before or as it is after."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.conftest import Program
from tests.kills_tmp import Case, at_each_step
from tests.toy import AREA, Toy, git

#: More kills, or other ones, for a long look: CONTRIBBOT_KILLS=1000 CONTRIBBOT_KILL_SEED=7.
MOST = int(os.environ.get("CONTRIBBOT_KILLS", "24"))
SEED = int(os.environ.get("CONTRIBBOT_KILL_SEED", "20261121"))
#: The cases that `make test` kills too, a few times.
SHORT = ("transaction",)
FEW = 6

WRITES = """
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
PLAIN = "import pathlib\nfor n in 'ab': pathlib.Path('patches/area', n).write_text('x')"


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
    git(toy.queue, "init", "-q")
    (toy.queue / ".gitignore").write_text(".contribbot/")
    git(toy.queue, "add", "-A")
    git(toy.queue, "commit", "-qm", "q")


def writes(*paths: str) -> Case:
    """Return a case that writes through a transaction."""

    def prepare(toy: Toy) -> list[str]:
        two_patches(toy)
        return ["-c", WRITES, *paths]

    return Case("transaction", prepare)


def new(toy: Toy) -> list[str]:
    two_patches(toy)
    return ["new", "third", "--title", "A third patch", "--depends-on", "readme"]


def import_(toy: Toy) -> list[str]:
    two_patches(toy)
    mail = toy.format_patch({"LICENSE": "toys\n"}, "Add a licence")
    toy.put("third.mbox", mail)
    return ["new", "third", str(toy.queue / "third.mbox"), "--after", "area"]


def edited(toy: Toy) -> Path:
    """Open the patch area, and return its work tree."""
    two_patches(toy)
    assert Program(toy.queue)("edit", "area").code == 0
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
    return ["rebase", "v2.0", "--text-only"]


def resolved(toy: Toy) -> list[str]:
    two_patches(toy)
    later = AREA.replace("return width + height", "return height + width")
    toy.write("src/toy/area.py", later)
    git(toy.upstream, "commit", "-qam", "Toy 2.0")
    git(toy.upstream, "tag", "v2.0")
    git(toy.upstream, "reset", "-q", "--hard", toy.commit)
    assert Program(toy.queue)("rebase", "v2.0", "--text-only", "--resolve").code == 1
    tree = toy.queue / ".contribbot" / "edit" / "area"
    (tree / "src/toy/area.py").write_text(later.replace("height + width", "height * width"))
    git(tree, "add", "-A")
    git(tree, "-c", "core.editor=true", "cherry-pick", "--continue")
    return ["rebase", "--continue"]


def fold(toy):
    two_patches(toy)
    return ["queue", "fold", "readme", "area"]


def mv(toy):
    two_patches(toy)
    return ["queue", "mv", "area", "plane"]


def retire(toy):
    two_patches(toy)
    return ["queue", "retire", "readme", "--why", "x"]


def undo(toy):
    two_patches(toy)
    assert Program(toy.queue)("queue", "fold", "readme", "area").code == 0
    return ["undo"]


def export(toy: Toy) -> list[str]:
    two_patches(toy)
    return ["queue", "export", "area", "--output", "area.mbox"]


#: Each command that writes.
CASES = [
    Case("refresh", refresh),
    Case("fold", fold, again=frozenset({2})),
    Case("mv", mv, again=frozenset({2})),
    Case("retire", retire, again=frozenset({2})),
    Case("undo", undo),
    Case("rebase", rebase, again=frozenset({1, 2})),
    Case("new", new, again=frozenset({2})),
]


@pytest.mark.parametrize(
    ("case", "most"),
    [
        *(pytest.param(case, FEW, id=case.name) for case in CASES if case.name in SHORT),
        *(
            pytest.param(case, MOST, marks=pytest.mark.slow, id=f"{case.name}, at length")
            for case in CASES
        ),
    ],
)
def test_a_kill_before_any_change_of_a_file(
    case: Case, most: int, toy: Toy, tmp_path: Path
) -> None:
    seen = list(at_each_step(case, toy, tmp_path, most=most, seed=SEED))
    import collections

    import tests.kills_tmp as k

    print(case.name, len(seen), collections.Counter(k.TORN))
    k.TORN.clear()
    for kill in seen:
        assert kill.state in {"before", "after"}, kill
        if case.name != "undo":
            assert kill.again in ({0} if kill.state == "before" else {0, *case.again}), kill
            assert (kill.listed, kill.final) == (0, "after"), kill
