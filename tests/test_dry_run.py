"""What --dry-run announces is what is then done; reports that programs read."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from tests.conftest import Program, dig
from tests.toy import AREA, Toy


@pytest.fixture
def pair(toy: Toy) -> Toy:
    """A queue of two patches of the same pin, the second of two files."""
    triangle = {"src/toy/area.py": AREA.replace("/ 2", "* 0.5"), "notes.txt": "new\n"}
    toy.put_patch()
    toy.put_patch("other", patch=toy.format_patch({**triangle}), files=(*triangle,))
    toy.put_queue(["area", "other"])
    readme = toy.format_patch({"README": "toy, and more\n"}, subject="Say more")
    toy.put("../fix.patch", readme)
    return toy


def content(toy: Toy) -> dict[str, bytes]:
    """Return the queue's files, but for what git ignores."""
    paths = (path for path in toy.queue.rglob("*") if path.is_file())
    return {
        name: path.read_bytes()
        for path in paths
        if not (name := path.relative_to(toy.queue).as_posix()).startswith(".contribbot")
    }


@pytest.mark.parametrize(
    "line",
    [
        "new fix ../fix.patch",
        "new fix --title 'To come'",
        "queue retire area --why 'by mistake'",
    ],
)
def test_what_is_announced_is_done(pair: Toy, program: Program, line: str) -> None:
    before = content(pair)
    planned = program(*shlex.split(line), "--dry-run", "--json")
    said = program(*shlex.split(line), "--dry-run")
    assert (planned.code, said.code, content(pair)) == (0, 0, before)
    rows = planned.json()["planned"]
    assert isinstance(rows, list)
    assert said.out.splitlines() == [
        *(f"would {row}" for row in rows), "nothing was written: --dry-run",
    ]  # fmt: skip
    ran = program(*shlex.split(line))
    assert (ran.code, ran.err) == (0, "")
    after = content(pair)
    changed = {name for name in before | after if before.get(name) != after.get(name)}
    assert {str(row).partition(" ")[2] for row in rows} == changed
    assert {row for row in rows if str(row).startswith("delete ")} == {
        f"delete {name}" for name in changed if name not in after
    }


@pytest.mark.parametrize(
    "line",
    [
        "queue retire {0} --why x --dry-run", "queue reorder {0}", "undo {0}", "undo {0} v9",
        "show {0}", "queue log {0}",
    ],
)  # fmt: skip
@pytest.mark.usefixtures("pair")
def test_a_folder_names_its_patch(program: Program, line: str) -> None:
    by_name = program(*line.format("area", "other").split())
    by_folder = program(*line.format("patches/area", "patches/other").split())
    # At the first change alone, a queue outside git says what it does without.
    assert (by_folder.code, by_folder.out) == (by_name.code, by_name.out)
    assert "no such patch" not in by_name.err + by_folder.err


@pytest.mark.usefixtures("pair")
def test_reports_for_programs(program: Program, tmp_path: Path) -> None:
    begun = program("init", tmp_path / "new", "--json").json()
    assert begun["written"] == [
        ".gitignore",
        ".gitattributes",
        "runners.toml",
        "patches/queue.toml",
    ]
    mbox = tmp_path / "area.mbox"
    done = program("queue", "export", "area", "--output", mbox, "--json").json()
    assert (done["patches"], done["output"]) == (["area"], str(mbox))
    assert mbox.read_bytes().startswith(b"From ")
    ran = program("check", "area", "--check", "red", "--json")
    runs = ran.json()["runs"]
    assert ran.code == 0
    assert [dig(runs, side, "outcome") for side in (0, 1)] == ["passed", "passed"]
    assert dig(runs, 0, "failures", 0, "message") == "AssertionError: assert 5 == 6"
    assert "2 failed" in ran.err
