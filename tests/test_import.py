"""`contribbot new`: all the ways that patches come, and what is refused with nothing changed."""

from __future__ import annotations

import json
import quopri
import re
from pathlib import Path

import pytest

from contribbot.files import stores_folder
from contribbot.git.repository import open_store
from contribbot.model.lifecycle import ConflictSide
from contribbot.model.patch import PatchFile
from contribbot.queue.exchange import is_plain
from tests.conftest import Program
from tests.lifetoy import clone, commit, reloaded, tree_of
from tests.toy import AREA, FIXED, Toy, git, snapshot

HEAD = b"From: A <a@b.c>\nDate: Tue, 14 Nov 2023 23:13:20 +0100\nSubject: x\n\n"
HUNK = b"--- a/README\n+++ b/README\n@@ -1 +1 @@\n-toy\n+x\n"
HEADLINE = "hunk 1 of src/toy/area.py does not apply to toy v1.0"


@pytest.fixture
def mine(toy: Toy) -> Path:
    """A developer's clone with a branch of one commit."""
    folder = clone(toy)
    git(folder, "checkout", "-q", "-b", "fix")
    commit(folder, "Multiply the sides\n\nAdding them is no area.\n", {"src/toy/area.py": FIXED})
    return folder


def assert_refused(program: Program, *args: str | Path, said: str, code: int = 2) -> None:
    """An import says this in one line, and the queue is as it was."""
    ran = program.refused("new", "area", *args, code=code)
    assert (ran.out, ran.err.count("\n")) == ("", 1)
    assert said in ran.err


def test_a_branch_of_a_clone(toy: Toy, program: Program, mine: Path) -> None:
    ran = program.ok("new", "area", mine, "fix", "--json")
    said = ran.json()
    assert said["written"] is True
    assert said["files"] == ["src/toy/area.py"]
    assert said["version"] == 1
    spec = reloaded(toy).specs["area"]
    assert spec.title == "Multiply the sides"
    assert reloaded(toy).patch("area").paths == ("src/toy/area.py",)
    assert [check.file for check in spec.checks] == ["test_red.py"]
    # It is what verify takes: only the proof is missing.
    report = program("verify", "area", "--json").report()
    assert [one.outcome for one in report.stages if one.stage in {"apply", "style"}] == [
        "passed", "passed",
    ]  # fmt: skip


def test_a_branch_of_a_work_tree_that_edit_made(toy: Toy, program: Program, tmp_path: Path) -> None:
    toy.put_patch("readme", patch=toy.format_patch({"README": "mine\n"}), files=("README",))
    tree = tmp_path / "tree"
    program.ok("edit", "readme", "--at", tree)
    git(tree, "checkout", "-q", "-b", "fix", "refs/contribbot/base")
    commit(tree, "Multiply the sides", {"src/toy/area.py": FIXED})
    # As of a source archive, whose tree has a commit of its own.
    place = toy.queue / "patches/queue.toml"
    place.write_text(re.sub(r"(?m)^commit = .*\n", "", place.read_text()))
    program.ok("new", "area", tree, "fix")
    assert reloaded(toy).patch("area").paths == ("src/toy/area.py",)


def made(folder: Path) -> Path:
    folder.mkdir()
    return folder


def test_a_work_tree_of_a_clone_and_a_shallow_one(toy: Toy, program: Program, mine: Path) -> None:
    tree = toy.root / "tree"
    git(mine, "worktree", "add", "-q", str(tree), "fix~0")
    program.ok("new", "area", tree, "v1.0..HEAD")
    shallow = toy.root / "shallow"
    git(toy.root, "clone", "-q", "--depth=2", "-b", "fix", mine.as_uri(), str(shallow))
    program.ok("new", "again", shallow, "HEAD~1..")
    assert reloaded(toy).patch("again").files == reloaded(toy).patch("area").files


def test_commits_that_no_patch_file_can_hold(toy: Toy, program: Program, mine: Path) -> None:
    def refused(said: str, branch: str = "fix") -> None:
        assert_refused(program, mine, branch, said=said)
        git(mine, "reset", "-q", "--hard", "HEAD~1")

    git(mine, "commit", "-q", "--allow-empty", "-m", "Nothing in it")
    refused("Nothing in it")
    for subject, body in (
        ("Cut", "From: B <b@b.c>\nbelow\n"),
        ("Re: Areas", ""),
        ("[PATCH] A", ""),
    ):
        commit(mine, f"{subject}\n\n{body}", {"README": "x\n"})
        refused(f"commit {subject!r}: its message cannot stand in a patch file")
    commit(mine, "Cut\n\nabove\n---\nbelow\n", {"README": "x\n"})
    program.ok("new", "cut", mine, "fix~1..fix")
    (file,) = reloaded(toy).patch("cut").files
    assert b"\n\nabove\n ---\nbelow\n---\n" in file.content
    git(mine, "reset", "-q", "--hard", "HEAD~1")
    commit(mine, "Odd\n", {"new\nline": "x\n"})
    refused("name the file so that it can be printed")
    git(mine, "update-index", "--add", "--cacheinfo", f"160000,{toy.commit},vendor/sub")
    git(mine, "commit", "-q", "-m", "Take a submodule")
    plain = toy.root / "plain"
    git(toy.root, "clone", "-q", "-b", "fix", str(mine), str(plain))
    (toy.root / "sub.mbox").write_bytes(git(plain, "format-patch", "-1", "--stdout"))
    assert_refused(program, toy.root / "sub.mbox", said="submodule")
    refused("vendor/sub")
    git(mine, "checkout", "-q", "-b", "side", "main")
    commit(mine, "Beside it\n", {"README": "side\n"})
    git(mine, "merge", "-q", "--no-ff", "-m", "Join them", "fix")
    refused("Join them", "side")


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (("v1.0...fix",), "not a range"),
        (("--all",), "no such option"),
    ],
)
def test_ranges_that_are_none(
    toy: Toy, program: Program, mine: Path, args: tuple[str, ...], said: str
) -> None:
    ran = program("new", "area", mine, *args)
    assert ran.code == 2
    assert said in ran.err
    assert "area" not in reloaded(toy).specs


def test_a_branch_of_a_clone_without_the_pin(program: Program, tmp_path: Path) -> None:
    other = made(tmp_path / "other")
    git(other, "init", "-q", "-b", "main")
    commit(other, "Else\n", {"README": "else\n"})
    assert_refused(program, other, "main", said="where does main start? It has no tag v1.0")
    assert_refused(program, tmp_path, "a..b", said="not a git repository")


def test_a_conflict_shows_three_sides_and_writes_nothing(program: Program, mine: Path) -> None:
    commit(mine, "More\n", {"src/toy/area.py": FIXED.replace("area", "surface")})
    ran = program.refused("new", "area", mine, "fix~1..fix", code=1)
    rows = ran.out.splitlines()
    headline = f"0001-More.patch: {HEADLINE}: the lines that it expects at line 7 are not there"
    assert (rows[0], rows[-1]) == (headline, "area: not imported, nothing was written")
    assert [row for row in rows if not row.startswith("    ")][1:-1] == [
        "  the patch expects:", "  the pin has, at line 7:", "  the patch wants:",
    ]  # fmt: skip
    assert {"    >     return area", "    >     return width + height"} <= {*rows}
    document = program("new", "area", mine, "fix~1..fix", "--json").json()
    assert document["written"] is False
    assert isinstance(document["conflicts"], list)
    side = ConflictSide.model_validate_json(json.dumps(document["conflicts"][0]))
    assert (side.patch_file, side.path, side.hunk, side.line) == (
        "0001-More.patch", "src/toy/area.py", 1, 7,
    )  # fmt: skip
    assert side.headline in ran.out


def test_on_top_of_another_patch(toy: Toy, program: Program, mine: Path) -> None:
    toy.put_patch("lower")
    toy.put_queue(["lower"])
    commit(mine, "More\n", {"src/toy/area.py": FIXED.replace("area =", "surface =").replace(
        "return area", "return surface")})  # fmt: skip
    program.ok("new", "upper", mine, "fix~1..fix", "--depends-on", "lower")
    assert reloaded(toy).below("upper") == ["lower"]
    tree = git(mine, "rev-parse", "fix^{tree}").decode().strip()
    assert tree_of(reloaded(toy), "upper") == tree


def test_standard_input_with_a_cover_letter_and_crlf(
    toy: Toy, program: Program, mine: Path
) -> None:
    plain = toy.root / "plain"
    git(toy.root, "clone", "-q", "-b", "fix", str(mine), str(plain))
    commit(plain, "More\n", {"README": "more\n"})
    mbox = git(plain, "format-patch", "--cover-letter", "-2", "--stdout")
    assert b"[PATCH 0/2]" in mbox
    program.ok("new", "area", "-", stdin=mbox)
    assert [one.name for one in reloaded(toy).patch("area").files] == [
        "0001-Multiply-the-sides.patch", "0002-More.patch",
    ]  # fmt: skip
    program.ok("new", "dos", "-", stdin=mbox.replace(b"\n", b"\r\n"))
    out = toy.root / "out"
    git(plain, "format-patch", "-q", "--cover-letter", "-2", "-o", str(out))
    letter = out / "0000-cover-letter.patch"
    program.ok("new", "folder", out)
    contents = [
        [file.content for file in reloaded(toy).patch(name).files]
        for name in ("area", "dos", "folder")
    ]
    assert contents[0] == contents[1]
    assert len(contents[2]) == 2
    assert (
        "no patch in it; it holds a cover letter only" in program.refused("new", "none", letter).err
    )


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (HUNK, "no author in its header; write it again with"),
        (b"From: A <a@b.c>\nSubject: x\n\n" + HUNK, "no date in its header"),
        (HEAD + b"body\n---\n", "No valid patches in input"),
        (HEAD.replace(b"Tue, 14 Nov 2023 23:13:20 +0100", b"gestern") + HUNK, "date"),
        (HEAD + HUNK.replace(b"+++ b/", b"+++ b/../"), "../README does not apply"),
        (HEAD + HUNK.replace(b"/README", b"/.git/x"), ".git/x does not apply"),
        (HEAD + HUNK.replace(b"/README", b"/./README"), "./README does not apply"),
        (HEAD + HUNK.replace(b"/README", b"/src//README"), "src//README does not apply"),
        (HEAD + HUNK.replace(b"a/", b"").replace(b"b/", b""), "README does not apply"),
    ],
)
def test_what_is_no_patch(toy: Toy, program: Program, content: bytes, said: str) -> None:
    path = toy.put("../x.patch", content)
    before = snapshot(toy.queue)
    ran = program("new", "area", path)
    assert ran.code in {1, 2}, ran.err
    assert said in ran.err + ran.out
    assert snapshot(toy.queue) == before


def test_another_release_is_merged_from_the_text_that_the_commits_were_made_of(
    toy: Toy, program: Program, mine: Path
) -> None:
    """The branch stands on a commit that is not the pin, whose context differs."""
    git(mine, "checkout", "-q", "-B", "fix", "v1.0")
    later = AREA.replace("triangle(base, height)", "triangle(b, h)")
    commit(mine, "Move on\n", {"src/toy/area.py": later})
    fixed = FIXED.replace("triangle(base, height)", "triangle(b, h)")
    commit(mine, "Multiply\n", {"src/toy/area.py": fixed})
    commit(mine, "Say so\n", {"src/toy/area.py": fixed.replace("Areas.", "Areas, by product.")})
    ran = program.ok("new", "area", mine, "fix~2..fix")
    assert "merged with what the pin has: 0001-Multiply.patch" in ran.out
    tree = tree_of(reloaded(toy), "area")
    store = open_store(stores_folder(), "toy")
    expected = FIXED.replace("Areas.", "Areas, by product.").encode()
    assert store.file(f"{tree}:src/toy/area.py") == expected
    # Where both changed a line, nothing is written.
    other = later.replace("width + height", "height + width")
    commit(mine, "Turn\n", {"src/toy/area.py": other})
    commit(mine, "Mend\n", {"src/toy/area.py": other.replace("height + width", "abs(width)")})
    assert program("new", "turned", mine, "fix~1..fix").code == 1


def test_what_no_patch_is_in(toy: Toy, program: Program, tmp_path: Path) -> None:
    folder = made(tmp_path / "patches")
    assert_refused(program, folder, "-", said="- stands alone")
    assert_refused(program, tmp_path / "gone", said="gone: no such file or folder")
    assert_refused(program, toy.upstream, said="no patches in it; name the commits too")
    (folder / "x.mbox").write_bytes(toy.format_patch({"src/toy/area.py": FIXED}))
    toy.upstream.rename(toy.root / "away")
    assert_refused(program, folder, said="toy v1.0: no source can provide it", code=3)


def test_a_mail_is_read_whatever_wraps_it(toy: Toy, program: Program) -> None:
    mail = toy.format_patch({"src/toy/area.py": FIXED})
    assert is_plain(PatchFile("0001-x.patch", mail))
    head, _, body = mail.partition(b"\n\n")
    quoted = (
        head + b"\nMIME-Version: 1.0\nContent-Type: text/plain; charset=UTF-8\n"
        b"Content-Transfer-Encoding: quoted-printable\n\n" + quopri.encodestring(body)
    )
    assert b"=3D" in quoted
    program.ok("new", "quoted", "-", stdin=quoted)
    content = reloaded(toy).patch("quoted").files[0].content
    assert b"+    area = width * height\n" in content
    # What editors put before a text is none of it.
    for number, before in enumerate([b"\xef\xbb\xbf", b"\n\r\n", b"\xef\xbb\xbf\n"]):
        program.ok("new", f"bom{number}", "-", stdin=before + mail)
        assert [file.content for file in reloaded(toy).patch(f"bom{number}").files] == [mail]


def test_a_subject_with_escapes_gives_a_title_that_loads(toy: Toy, program: Program) -> None:
    mail = toy.format_patch({"README": "x\n"}, "\x1b[31mRed\x1b[0m and \x07a bell")
    program.ok("new", "area", "-", stdin=mail)
    queue = reloaded(toy)
    assert queue.specs["area"].title == "[31mRed [0m and a bell"
    assert queue.patch("area").files[0].content == mail
    bells = toy.format_patch({"README": "x\n"}, "\x07\x07")
    ran = program("new", "bells", "-", stdin=bells)
    assert (ran.code, ran.out) == (2, "")
    assert "is no title; give one with --title" in ran.err
    assert reloaded(toy).specs.keys() == {"area"}
