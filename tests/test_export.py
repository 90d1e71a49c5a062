"""`contribbot queue export`: what is chosen, where it goes, and what cannot be written."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from contribbot.errors import QueueError
from contribbot.model.patch import PatchFile
from contribbot.queue.exchange import mbox
from tests.conftest import Program
from tests.test_refresh import AREA_FILE, series
from tests.toy import FIXED, Toy, git, snapshot

UPPER = FIXED.replace("return area", "return int(area)")


@pytest.fixture
def stack(toy: Toy) -> Toy:
    """A queue of `lower`, `upper` on top of it, and `beside`."""
    lower, upper = series(toy, {AREA_FILE: FIXED}, {AREA_FILE: UPPER})
    toy.put_patch("lower", patch=lower)
    toy.put_patch("upper", patch=upper, extra='depends_on = ["lower"]')
    toy.put_patch(
        "beside", patch=toy.format_patch({"README": "more\n"}, "Beside"), files=("README",)
    )
    toy.put_queue(["lower", "beside", "upper"])
    return toy


def applied(toy: Toy, folder: Path, content: str, *program: str) -> str:
    """Apply an export on the upstream's release; return the file that all is about."""
    git(toy.root, "clone", "-q", str(toy.upstream), str(folder))
    git(folder, *(program or ("am",)), stdin=content.encode())
    return (folder / "src/toy/area.py").read_text()


def test_what_it_depends_on_comes_along(stack: Toy, program: Program, tmp_path: Path) -> None:
    before = snapshot(stack.queue)
    ran = program.ok("queue", "export", "upper")
    assert "lower, upper: 2 commits for toy v1.0" in ran.err
    assert "with lower, on which they depend" in ran.err
    assert applied(stack, tmp_path / "tree", ran.out) == UPPER
    assert snapshot(stack.queue) == before


def test_everything_in_the_queues_order(stack: Toy, program: Program) -> None:
    ran = program("queue", "export", "-o", "out.mbox")
    assert (ran.code, ran.out) == (0, ""), ran.err
    subjects = re.findall(r"^Subject: (.*)", (stack.queue / "out.mbox").read_text(), re.MULTILINE)
    assert subjects == ["[PATCH] Step 1", "[PATCH] Beside", "[PATCH] Step 2"]


def test_what_does_not_apply_exactly_is_written_anew(
    stack: Toy, program: Program, tmp_path: Path
) -> None:
    path = stack.queue / "patches/lower/0001-change.patch"
    text = path.read_text()
    (hunk,) = re.findall(r"^@@ -[^\n]*", text, re.MULTILINE)
    path.write_text(text.replace(hunk, re.sub(r"(?<=[-+])\d+", "2", hunk)))
    ran = program("queue", "export", "lower")
    assert (ran.code, hunk in ran.out) == (0, True), ran.err
    assert applied(stack, tmp_path / "tree", ran.out) == FIXED


def test_a_conflict_is_shown(stack: Toy, program: Program) -> None:
    stack.put_patch("lower", patch=stack.format_patch({"src/toy/area.py": UPPER}))
    ran = program("queue", "export", "upper")
    assert (ran.code, ran.out) == (1, "")
    assert "hunk 1 of src/toy/area.py does not apply to toy v1.0" in ran.err
    assert "the pin has, at line" in ran.err


def test_patches_of_several_pins_and_one_without_commits(stack: Toy, program: Program) -> None:
    program("new", "bare", "--title", "T")
    ran = program("queue", "export")
    assert (ran.code, ran.out) == (2, "")
    assert "bare: no commits yet" in ran.err
    stack.add_pin()
    stack.edit("patches/bare/patch.toml", "v1.0", "v2.0")
    ran = program("queue", "export", "bare", "lower")
    assert (ran.code, ran.out) == (2, "")
    assert "the patches stand on several pins (toy v1.0, toy v2.0)" in ran.err
    assert "name those of one pin: contribbot queue export NAME" in ran.err


def test_a_mail_without_its_first_line_gets_one_and_holds_no_other() -> None:
    mail = b"From: A <a@b.c>\nDate: now\nSubject: x\n\n---\n\ndiff --git a/x b/x\n"
    assert mbox([PatchFile("0001-x.patch", mail)]).endswith(b"2001\n" + mail)
    with pytest.raises(QueueError, match="a line reads as the first line of another mail"):
        mbox([PatchFile("0001-x.patch", mail.replace(b"---", b"From me Mon Sep 17 10:00:00 2001"))])
