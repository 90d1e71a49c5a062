"""reorder, mv, fold, split, restore, undo: each one change of the queue, or none."""

from __future__ import annotations

from pathlib import Path

import pytest

from contribbot.git.patch_format import read_mail
from contribbot.queue.load import Queue, load_queue
from tests.conftest import Program
from tests.lifetoy import resolve
from tests.test_refresh import (
    CUBE,
    HALF,
    applied_tree,
    halve,
    put_stack,
    put_three,
)
from tests.toy import Toy, git, snapshot


@pytest.fixture
def queue(toy: Toy) -> Toy:
    put_three(toy)
    return toy


def order(queue: Queue) -> list[tuple[str, tuple[str, ...]]]:
    return [(name, spec.depends_on) for name, spec in queue.specs.items()]


AREA, ON_AREA, README = ("area", ()), ("cube", ("area",)), ("readme", ())


@pytest.mark.parametrize(
    ("args", "after"),
    [
        ("queue reorder readme --before area", [README, AREA, ON_AREA]),
        ("queue reorder readme --after area", [AREA, README, ON_AREA]),
        ("queue reorder cube", [AREA, README, ON_AREA]),
        ("queue mv area plane", [("plane", ()), ("cube", ("plane",)), README]),
        ("queue fold cube area", [AREA, README]),
        ("queue fold readme area", [AREA, ON_AREA]),
        (
            "queue split area more --from 2",
            [AREA, ("more", ("area",)), ("cube", ("more",)), README],
        ),
        (
            "queue split area more docs NEW",
            [AREA, ("more", ("area",)), ("cube", ("more",)), README],
        ),
    ],
)
def test_the_queue_is_another_and_gives_the_same_tree(
    queue: Toy, program: Program, args: str, after: list[tuple[str, tuple[str, ...]]]
) -> None:
    before = applied_tree(queue, queue.queue, "area", "cube", "readme")
    ran = program.ok(*args.split())
    now = load_queue(queue.queue)
    assert order(now) == after
    assert ran.out.splitlines()[-1] == f"order: {', '.join(now.specs)}"
    assert applied_tree(queue, queue.queue, *now.specs) == before
    for name, spec in now.specs.items():
        changed = {row for file in now.patch(name).files for row in file.content.splitlines()}
        assert {f"+++ b/{path}".encode() for path in spec.files} <= changed
    texts = [program("status", "--json").json()["patches"]]
    assert "conflict" not in str(texts)


def test_what_is_split_off_has_a_title_of_its_own(queue: Toy, program: Program) -> None:
    title = load_queue(queue.queue).specs["area"].title
    program.ok("queue", "split", "area", "more", "--from", "2")
    program.ok("queue", "split", "more", "rest", "docs")
    specs = load_queue(queue.queue).specs
    subject = read_mail(load_queue(queue.queue).patch("more").files[0]).subject
    assert [specs[name].title for name in ("area", "more", "rest")] == [
        title, subject, f"{subject}: rest",
    ]  # fmt: skip
    assert subject != title
    # Files that stay as they are get numbers of their own where two would have one.
    for name in ("rest", "more"):
        program.ok("queue", "fold", name, "area" if name == "more" else "more")
    names = [file.name for file in load_queue(queue.queue).patch("area").files]
    assert [name.partition("-")[0] for name in names] == ["0001", "0002", "0003"]


def test_history_tells_what_was_done(queue: Toy, program: Program) -> None:
    program.ok("queue", "split", "area", "more", "docs")
    program.ok("queue", "fold", "more", "area")
    queue.put("evidence/area/x.json", "{}")
    program.ok("queue", "mv", "area", "plane")
    said = program("queue", "log", "plane").out
    assert [words in said for words in ("split of more", "fold of more")] == [True, True]
    assert "folded into area" in program("queue", "log", "more").out
    assert not (queue.queue / "evidence/area").exists()
    program.ok("queue", "diff", "plane", "v1..v2")


def test_versions_come_back(queue: Toy, program: Program) -> None:
    tree = queue.queue / ".contribbot/edit/area"
    before = snapshot(queue.queue / "patches/area")
    program.ok("edit", "area")
    (tree / "NEW").write_text("newer\n")
    program.ok("refresh", "area")
    after = snapshot(queue.queue / "patches/area")
    for args, files, said in (
        (("undo", "area", "v1"), before, f"the tree at {tree} is as it was"),
        (("undo", "area", "v2"), after, "area: v2 is back as v4, 2 commits"),
        (("undo", "area", "v1"), before, "area: v1 is back as v5, 2 commits"),
        (("undo", "area", "v1"), before, "nothing has changed"),
    ):
        ran = program.ok(*args)
        assert said in ran.out.replace("\n  ", " ")
        assert snapshot(queue.queue / "patches/area") == files
    assert "saved as v6" in program("refresh", "area").out
    assert "restore of v1" in program("queue", "log", "area").out


def test_a_version_under_a_patch_that_clashes_is_refused(toy: Toy, program: Program) -> None:
    put_stack(toy)
    git(toy.queue, "init", "-q")
    halve(program)
    tree = Path(str(program("refresh", "area", "--json").json()["resolve"]))
    resolve(tree, HALF + CUBE)
    program.ok("refresh", cwd=tree)
    ran = program.refused("undo", "area", "v1", code=1)
    assert "area: cube depends on it, and conflicts with it now\n" in ran.out
    assert ran.out.endswith("area: nothing was written; --force leaves them behind\n")
    ran = program("undo", "area", "v1", "--force")
    assert (ran.code, "cube: no longer applies" in ran.out) == (0, True)


@pytest.mark.usefixtures("queue")
@pytest.mark.parametrize(
    ("args", "said"),
    [
        ("queue reorder cube --before area", "cube would stand before area, on which it depends"),
        ("queue mv area ..", "not possible here"),
        ("queue fold area cube", "area cannot be folded into cube: they do not stand on the same"),
        (
            "queue fold cube readme",
            "cube cannot be folded into readme: readme does not depend on area",
        ),
        ("queue split area more src NEW docs", "area: nothing would be in one of the two"),
        ("queue split area cube --from 2", "there is a patch cube already"),
    ],
)
def test_what_is_refused_writes_nothing(program: Program, args: str, said: str) -> None:
    assert said in program.refused(*args.split()).err
