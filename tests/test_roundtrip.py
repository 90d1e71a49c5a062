"""`git am` applies an export to the same tree, and the export can be imported again."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conftest import Program
from tests.lifetoy import SPOILERS, awkward, clone, reloaded, three_commits, tree_of
from tests.toy import Toy, git

REAL = Path(__file__).parent.parent / "patches"


def work_tree(source: Path, folder: Path, at: str) -> Path:
    """Return a work tree of a commit, with nobody's settings."""
    git(source.parent, "clone", "-q", "--no-checkout", str(source), str(folder))
    git(folder, "checkout", "-q", "-B", "main", at)
    return folder


def spoilt(root: Path) -> dict[str, str]:
    """Return an environment in which the user's own git settings spoil every patch."""
    for key, value in SPOILERS.items():
        git(root, "config", "-f", "spoilt", key, value)
    return {"GIT_CONFIG_GLOBAL": str(root / "spoilt"), "GIT_DIR": str(root / "no-such-folder")}


@pytest.fixture
def filled(toy: Toy) -> tuple[Toy, str]:
    """A queue with an awkward patch that came from a clone, and the clone's tree."""
    awkward(toy)
    folder = clone(toy)
    base = three_commits(folder)
    git(folder, "config", "core.autocrlf", "true")
    git(folder, "config", "commit.gpgsign", "true")
    (folder / ".git/hook-ran").unlink()
    source = (folder, f"{base}..main")
    program = Program(toy.queue, spoilt(toy.root))
    program.ok("new", "area", *source, "--title", "Multiply the sides")
    return toy, git(folder, "rev-parse", "main^{tree}").decode().strip()


def test_a_range_gives_the_tree_of_the_clone(filled: tuple[Toy, str]) -> None:
    toy, tree = filled
    assert tree_of(reloaded(toy), "area") == tree
    assert {"docs/old name.md", "docs/n\xe4me.md"} <= {*reloaded(toy).patch("area").paths}
    first, second, third = (file.content for file in reloaded(toy).patch("area").files)
    assert b"=?UTF-8?q?J=C3=B6rg=20=C3=84rger?=" in first
    assert b"-und k\xfcsse\n+\xfcnd k\xfcsse\n" in first
    assert b"-two\r\n+zwei\r\n" in first
    assert b"rename from docs/old name.md" in second
    assert b"new mode 100755" in third
    assert not (toy.root / "clone/.git/hook-ran").exists()


def test_git_am(program: Program, filled: tuple[Toy, str], tmp_path: Path) -> None:
    toy, tree = filled
    out = tmp_path / "out.mbox"
    Program(toy.queue, spoilt(toy.root)).ok("queue", "export", "area", "-o", out)
    folder = work_tree(toy.upstream, tmp_path / "tree", toy.commit)
    git(folder, "am", "--keep-cr", str(out))
    assert git(folder, "rev-parse", "HEAD^{tree}").decode().strip() == tree
    said = git(folder, "log", "-3", "--format=%an %B").decode()
    assert "J\xf6rg \xc4rger Multiply the sides" in said
    assert "From here on: \xe4rea." in said
    program.ok("new", "same", out)
    assert reloaded(toy).patch("same").files == reloaded(toy).patch("area").files


def test_the_bytes_of_gits_own_mails_stay(
    program: Program, filled: tuple[Toy, str], tmp_path: Path
) -> None:
    toy, _ = filled
    folder = tmp_path / "patches"
    plain = work_tree(toy.root / "clone", tmp_path / "plain", "origin/main")
    git(plain, "format-patch", "-q", "-U5", "-3", "-o", str(folder))
    written = {path.read_bytes() for path in folder.iterdir()}
    program.ok("new", "back", folder)
    assert {file.content for file in reloaded(toy).patch("back").files} == written


def test_mails_in_another_encoding(
    program: Program, filled: tuple[Toy, str], tmp_path: Path
) -> None:
    toy, tree = filled
    plain = work_tree(toy.root / "clone", tmp_path / "plain", "origin/main")
    latin = git(plain, "-c", "i18n.logOutputEncoding=ISO-8859-1", "format-patch", "-3", "--stdout")
    assert b"From here on: \xe4rea." in latin
    program.ok("new", "back", "-", stdin=latin)
    queue = reloaded(toy)
    assert tree_of(queue, "back") == tree
    assert "From here on: \xe4rea.".encode() in queue.patch("back").files[0].content
    assert b"J=C3=B6rg" in queue.patch("back").files[0].content
