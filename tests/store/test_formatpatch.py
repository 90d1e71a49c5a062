"""Commits as files: the bytes that git writes, whatever anybody's settings are."""

from __future__ import annotations

from pathlib import Path

import pytest

from contribbot.git.patch_format import format_chains, format_commits, keep_unchanged
from contribbot.git.repository import Store
from contribbot.model.patch import PatchFile
from tests.toy import FIXED, Toy, git

NEUTRAL = ("--zero-commit", "--no-signature", "--abbrev=12", "--binary", "-M")


@pytest.fixture
def store(toy: Toy) -> Store:
    """A store that holds three commits on top of the toy's."""
    git(toy.upstream, "mv", "README", "REÄDME with space")
    (toy.upstream / "src/toy/area.py").chmod(0o755)
    toy.change(
        {"src/toy/area.py": FIXED}, "[AMD][x] One: a (title) / with. signs\n\nWhy.\n\nS-o-b: Ä"
    )
    two = {"blob.bin": bytes(range(256)) * 40, "latin.txt": b"caf\xe9\r\nno end"}
    toy.change(two, "Zwei: ünï" + "x" * 80)
    git(toy.upstream, "commit", "-q", "--amend", "--no-edit", "--author=Zoë Ω <z@example.com>")
    toy.change({"latin.txt": b"caf\xe8\r\nno end"}, "Three")
    return toy.fetched()


def theirs(toy: Toy, folder: Path, *what: str) -> list[PatchFile]:
    git(toy.upstream, "format-patch", "-q", *NEUTRAL, "-o", str(folder), *what)
    return [PatchFile(path.name, path.read_bytes()) for path in sorted(folder.iterdir())]


def test_the_files_are_those_that_git_writes(toy: Toy, store: Store, tmp_path: Path) -> None:
    tip = git(toy.upstream, "rev-parse", "HEAD").decode().strip()
    expected = theirs(toy, tmp_path / "theirs", f"{toy.commit}..{tip}")
    assert list(format_commits(store, toy.commit, tip)) == expected
    assert len(expected) == 3
    assert format_commits(store, tip, tip) == ()


def test_many_chains_are_the_same_as_one_by_one(toy: Toy, store: Store, tmp_path: Path) -> None:
    one, two, three = (
        git(toy.upstream, "rev-list", "--reverse", f"{toy.commit}..HEAD").decode().split()
    )
    chains = [[three], [one, two], [], [two], [three]]
    made = format_chains(store, chains)
    assert list(made[0]) == theirs(toy, tmp_path / "a", "-1", three)
    assert list(made[1]) == theirs(toy, tmp_path / "b", f"{toy.commit}..{two}")
    assert made[2] == ()
    assert list(made[3]) == theirs(toy, tmp_path / "c", "-1", two)
    assert made[4] == made[0]


def test_unchanged_commits_keep_their_bytes() -> None:
    old = (PatchFile("0001-a.patch", b"A"), PatchFile("0002-b.patch", b"B"))
    new = (PatchFile("0001-x.patch", b"a"), PatchFile("0002-y.patch", b"b"),
           PatchFile("0003-z.patch", b"c"))  # fmt: skip
    assert keep_unchanged(old, ["1", "2"], new, ["1", "9", "3"]) == (old[0], *new[1:])
    assert keep_unchanged(old, ["1", "2"], new, ["1", "2", "3"]) == (*old, new[2])
    assert keep_unchanged(old, ["1", "2"], new[:1], ["2"]) == new[:1]
    named = (PatchFile("fix.patch", b"A"), PatchFile("more.patch", b"B"))
    kept = keep_unchanged(named, ["1", "2"], new, ["1", "2", "3"])
    assert [file.name for file in kept] == [file.name for file in new]
    assert [file.content for file in kept] == [b"A", b"B", b"c"]
