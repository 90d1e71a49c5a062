"""`contribbot queue export`: what is chosen, where it goes, and what cannot be written."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from contribbot.errors import QueueError, UsageError
from contribbot.model.patch import PatchFile
from contribbot.queue.export import mbox, write_export
from tests.lifetoy import BINARY, awkward, contribbot, snapshot
from tests.toy import FIXED, Toy, git

UPPER = FIXED.replace("return area", "return int(area)")


@pytest.fixture
def stack(toy: Toy) -> Toy:
    """A queue of `lower`, `upper` on top of it, and `beside`."""
    toy.put_patch("lower")
    toy.write("src/toy/area.py", FIXED)
    git(toy.upstream, "add", "-A")
    git(toy.upstream, "commit", "-q", "-m", "lower")
    toy.write("src/toy/area.py", UPPER)
    git(toy.upstream, "commit", "-q", "-a", "-m", "[AMD] Whole numbers")
    upper = git(toy.upstream, "format-patch", "-1", "--stdout", "--zero-commit", "--no-signature")
    git(toy.upstream, "reset", "-q", "--hard", toy.commit)
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


def test_what_it_depends_on_comes_along(stack: Toy, tmp_path: Path) -> None:
    before = snapshot(stack.queue)
    ran = contribbot(stack.queue, "queue", "export", "upper")
    assert ran.code == 0, ran.err
    assert "lower, upper: 2 commits for toy v1.0" in ran.err
    assert "with lower, which it depends on" in ran.err
    assert "git am --keep-non-patch" in ran.err
    assert applied(stack, tmp_path / "tree", ran.out) == UPPER
    assert snapshot(stack.queue) == before


def test_alone_is_without_it(stack: Toy, tmp_path: Path) -> None:
    ran = contribbot(stack.queue, "queue", "export", "upper", "--alone", "--format", "diff")
    assert ran.code == 0, ran.err
    assert "+    return int(area)" in ran.out
    assert "height\n" not in [row[1:] for row in ran.out.splitlines() if row[:1] == "+"]
    ran = contribbot(stack.queue, "queue", "export", "lower", "upper", "--format", "diff")
    assert applied(stack, tmp_path / "tree", ran.out, "apply") == UPPER


def test_everything_in_the_queues_order(stack: Toy) -> None:
    ran = contribbot(stack.queue, "queue", "export", "--format", "quilt", "-o", "out/quilt")
    assert ran.code == 0, ran.err
    assert (stack.queue / "out/quilt/series").read_text().splitlines() == [
        "lower-0001-change.patch", "beside-0001-change.patch", "upper-0001-change.patch",
    ]  # fmt: skip
    ran = contribbot(stack.queue, "queue", "export", "--format", "quilt", "-o", "out/quilt")
    assert (ran.code, ran.err) == (
        2, "contribbot: out/quilt: there is something already; name a new folder\n",
    )  # fmt: skip
    assert [path.name for path in (stack.queue / "out").iterdir()] == ["quilt"]


def test_what_does_not_apply_exactly_is_written_anew(stack: Toy, tmp_path: Path) -> None:
    path = stack.queue / "patches/lower/0001-change.patch"
    text = path.read_text()
    assert " # The caller gives the sides.\n" in text
    # Two lines of context that the release has not: git am takes none of that.
    path.write_text(text.replace("\n \n def rectangle", "\n #\n def rectangle"))
    git(stack.root, "clone", "-q", str(stack.upstream), str(tmp_path / "raw"))
    with pytest.raises(Exception, match="returned non-zero"):
        git(tmp_path / "raw", "am", str(path))
    ran = contribbot(stack.queue, "queue", "export", "lower")
    assert ran.code == 0, ran.err
    assert applied(stack, tmp_path / "tree", ran.out) == FIXED


def test_a_conflict_is_shown(stack: Toy) -> None:
    stack.put_patch("lower", patch=stack.format_patch({"src/toy/area.py": UPPER}))
    ran = contribbot(stack.queue, "queue", "export", "upper")
    assert (ran.code, ran.out) == (1, "")
    assert "hunk 1 of src/toy/area.py does not apply to toy v1.0" in ran.err
    assert "the pin has, at line" in ran.err


def test_patches_of_several_pins_and_one_without_commits(stack: Toy) -> None:
    contribbot(stack.queue, "new", "bare", "--title", "T")
    ran = contribbot(stack.queue, "queue", "export")
    assert (ran.code, ran.out) == (2, "")
    assert "bare: no commits yet" in ran.err
    path = stack.queue / "patches/queue.toml"
    path.write_text(
        path.read_text()
        + '\n[[pins]]\nupstream = "toy"\ntag = "v2.0"\n\n[[pins.sources]]\nkind = "git"\n'
    )
    (stack.queue / "patches/bare/patch.toml").write_text(
        (stack.queue / "patches/bare/patch.toml").read_text().replace("v1.0", "v2.0")
    )
    ran = contribbot(stack.queue, "queue", "export", "bare", "lower")
    assert (ran.code, ran.out) == (2, "")
    assert "the patches stand on several pins (toy v1.0, toy v2.0)" in ran.err
    assert "name those of one: contribbot queue export lower" in ran.err


def test_quilt_is_not_given_what_it_cannot_do(toy: Toy) -> None:
    awkward(toy)
    for name, changes in (("bytes", {"data.bin": BINARY[::-1]}), ("link", {})):
        if name == "link":
            (toy.upstream / "other").symlink_to("dos.txt")
        toy.put_patch(name, patch=toy.format_patch(dict(changes)), files=("data.bin",))
    toy.put_queue(["bytes", "link"])
    for name, what in (("bytes", "a binary file"), ("link", "a symbolic link")):
        assert contribbot(toy.queue, "queue", "export", name).code == 0
        ran = contribbot(toy.queue, "queue", "export", name, "--format", "quilt", "-o", "out")
        assert ran.code == 2
        assert f"0001-change.patch changes {what}, which quilt cannot do" in ran.err
        assert not (toy.queue / "out").exists()
    ran = contribbot(toy.queue, "queue", "export", "link", "--format", "quilt")
    assert ran.code == 2


def test_a_mail_without_its_first_line_gets_one() -> None:
    mail = b"From: A <a@b.c>\nDate: now\nSubject: x\n\n---\n\ndiff --git a/x b/x\n"
    assert mbox([PatchFile("0001-x.patch", mail)]).endswith(b"2001\n" + mail)


def test_an_encoding_that_no_mbox_keeps() -> None:
    mail = (
        b"From: A <a@b.c>\nSubject: x\nContent-Type: text/plain; charset=ISO-8859-1\n\n"
        b"x\r\n---\ndiff --git a/x b/x\n"
    )
    with pytest.raises(QueueError, match="encoded in a way that no mbox keeps"):
        mbox([PatchFile("0001-x.patch", mail)])


@pytest.mark.parametrize(
    "body",
    [
        "*** note\n- item\n\n+++ b/x\n ---\n-- is no header, +1 -1, > @@ -1 +1 @@ neither",
        "seen as\n\n    --- a/x\n    +++ b/x\n    @@ -1 +1 @@\n    -a\n    +b",
        "of the kind\n\n  diff --git a/x b/x\n  new file mode 100644",
        "*** a/x\n --- b/x\n  ***************\n  *** 1 ****\n  ! a",
        "Prereq: 1.0",
    ],
)
def test_a_message_that_patch_would_take_for_a_diff(toy: Toy, body: str) -> None:
    mail = toy.format_patch({"README": "x\n"}, body=body)
    toy.put_patch("area", patch=mail, files=("README",))
    toy.put_queue(["area"])
    assert contribbot(toy.queue, "queue", "export").out.encode() == mail
    ran = contribbot(toy.queue, "queue", "export", "--format", "quilt", "-o", "out")
    harmless = "is no header" in body
    assert ran.code == (0 if harmless else 2)
    assert ("0001-change.patch has a message that quilt takes for a diff" in ran.err) != harmless
    assert (toy.queue / "out").exists() == harmless


@pytest.mark.parametrize("folder", [False, True])
def test_a_folder_that_becomes_a_file_is_nothing_for_quilt(toy: Toy, *, folder: bool) -> None:
    gone, new = ("src", "src") if folder else ("README", "README/inner")
    git(toy.upstream, "rm", "-q", "-r", gone)
    toy.write(new, "x\n")
    git(toy.upstream, "add", "-A")
    git(toy.upstream, "commit", "-q", "-m", "change")
    mail = git(toy.upstream, "format-patch", "-1", "--stdout", "--zero-commit", "--no-signature")
    git(toy.upstream, "reset", "-q", "--hard", toy.commit)
    toy.put_patch("swap", patch=mail, files=("src", "README"))
    toy.put_queue(["swap"])
    assert contribbot(toy.queue, "queue", "export").code == 0
    ran = contribbot(toy.queue, "queue", "export", "--format", "quilt", "-o", "out")
    assert ran.code == 2
    assert "swap: 0001-change.patch makes a file of a folder, or a folder of a file" in ran.err
    assert not (toy.queue / "out").exists()


def test_where_an_export_cannot_go(stack: Toy) -> None:
    ran = contribbot(stack.queue, "queue", "export", "-o", "patches")
    assert (ran.code, ran.err) == (2, "contribbot: patches: a folder; name a file\n")
    ran = contribbot(
        stack.queue, "queue", "export", "--format", "quilt", "-o", "patches/queue.toml"
    )
    assert (ran.code, "there is something already" in ran.err) == (2, True)
    empty = stack.queue / "empty"
    empty.mkdir()
    (stack.queue / "link").symlink_to("empty")
    assert contribbot(stack.queue, "queue", "export", "--format", "quilt", "-o", "link").code == 0
    assert (empty / "series").is_file()
    assert (stack.queue / "link").is_symlink()


def test_the_folder_that_one_stands_in_is_not_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = tmp_path / "here"
    here.mkdir()
    monkeypatch.chdir(here)
    with pytest.raises(UsageError, match=r"\.: you are in it"):
        write_export({"series": b"x\n"}, Path(), stdout=sys.stdout.buffer)
    assert list(here.iterdir()) == []
