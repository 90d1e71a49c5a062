"""Applying in the store: exact, with an offset, and not at all."""

from __future__ import annotations

from pathlib import Path

import pytest

from contribbot.errors import QueueError
from contribbot.git.apply import Series, apply_series
from contribbot.git.patch_format import altered, export
from contribbot.git.repository import Store
from contribbot.model.patch import PatchFile
from tests.toy import AREA, FIXED, Toy, git


@pytest.fixture
def store(toy: Toy) -> Store:
    return toy.fetched()


def apply(store: Store, base: str, *patches: bytes) -> Series:
    """Apply patch files to a commit."""
    files = tuple(PatchFile(f"000{n}-x.patch", content) for n, content in enumerate(patches, 1))
    return apply_series(store, base, files, pin="toy v1.0")


def moved(toy: Toy, store: Store, changes: dict[str, str | None]) -> str:
    """Return a commit of the store in which the toy's files have other contents, or are gone."""
    commit = toy.change(changes, "Move on")
    store.git("fetch", "-q", str(toy.upstream), "+main:refs/heads/moved")
    git(toy.upstream, "reset", "-q", "--hard", toy.commit)
    return commit


def test_an_offset_is_said_and_context_fits_whole(toy: Toy, store: Store) -> None:
    patch = toy.format_patch({"src/toy/area.py": FIXED})
    base = moved(toy, store, {"src/toy/area.py": "# one\n# two\n" + AREA})
    (applied,) = apply(store, base, patch).applied
    assert [each.phrase for each in applied.adjustments] == ["src/toy/area.py:9 at offset +2"]
    # The outermost line of context is another one.
    text = AREA.replace("triangle(base, height)", "triangle(b, h)")
    series = apply(store, moved(toy, store, {"src/toy/area.py": text}), patch)
    assert (series.applied, series.conflicts[0].hunk) == ((), 1)


BRANCH = """\
    if x:
        # This is right.
        y = x
        x = 1

    y = 2
    return y


"""
TWICE = f"def one(x):\n{BRANCH}def two(x):\n{BRANCH}"


def test_a_moved_hunk_fits_one_place_or_none(toy: Toy, store: Store) -> None:
    """The second of two functions that look alike is changed, and something comes before them."""
    toy.commit = moved(toy, store, {"two.py": TWICE})
    git(toy.upstream, "reset", "-q", "--hard", toy.commit)
    at = TWICE.rindex("x = 1")
    patch = toy.format_patch({"two.py": f"{TWICE[:at]}x = 3{TWICE[at + 5 :]}"})
    other = toy.format_patch({"README": "else\n"})
    for lines in (2, 9):
        base = moved(toy, store, {"two.py": "# \n" * lines + TWICE})
        for mails in ([patch], [other, patch]):
            series = apply(store, base, *mails)
            (conflict,) = series.conflicts
            assert len(series.applied) == len(mails) - 1
            places = f"{lines + 2}, {lines + 12}"
            assert conflict.why == f"its lines have moved, and stand at 2 places: {places}"


def test_only_the_hunks_that_do_not_fit_are_named(toy: Toy, store: Store) -> None:
    long = AREA + "\n" * 20 + "LAST = 1\n"
    toy.commit = moved(toy, store, {"src/toy/area.py": long})
    git(toy.upstream, "reset", "-q", "--hard", toy.commit)
    both = long.replace("width + height", "width * height").replace("= 1", "= 2")
    patch = toy.format_patch({"src/toy/area.py": both})
    base = moved(toy, store, {"src/toy/area.py": long.replace("LAST = 1", "LAST = 7")})
    (conflict,) = apply(store, base, patch).conflicts
    assert conflict.hunk == 2
    assert "LAST = 7" in conflict.found


def test_conflicts_of_whole_files_and_odd_names(toy: Toy, store: Store) -> None:
    odd = 'src/ä "b".py'
    toy.commit = moved(toy, store, {odd: "one\n", "test/a.py": "A = 1\n"})
    git(toy.upstream, "reset", "-q", "--hard", toy.commit)
    changes = {"src/toy/area.py": FIXED, "src/toy/new.py": "NEW = 1\n", odd: "two\n"}
    changes["test/a.py"] = "A = 2\n"
    patches = [toy.format_patch({path: text}) for path, text in changes.items()]
    other: dict[str, str | None] = {
        "src/toy/area.py": None, "src/toy/new.py": "OTHER = 1\n", odd: "three\n",
        "test/a.py": None,
    }  # fmt: skip
    base = moved(toy, store, other)

    gone, there, changed, left_out = (apply(store, base, each).conflicts[0] for each in patches)

    pin = "src/toy/area.py does not apply to toy v1.0"
    assert gone.headline.endswith(f"{pin}: the pin has no such file")
    assert there.headline.endswith("the pin has this file already")
    assert "the pin has no test at all; a git source has" in left_out.headline
    assert (changed.path, changed.hunk, changed.found) == (odd, 1, ("three",))


def test_renames_modes_links_and_bytes_stay_as_they_are(
    toy: Toy, store: Store, tmp_path: Path
) -> None:
    toy.write("latin.txt", b"caf\xe9\n")
    toy.write("windows.txt", b"one\r\ntwo\r\n")
    toy.write("blob.bin", bytes(range(256)))
    toy.write(".gitattributes", "*.txt text eol=crlf\n*.bin filter=nothing\n")
    git(toy.upstream, "mv", "README", "REÄDME with space")
    (toy.upstream / "src/toy/area.py").chmod(0o755)
    (toy.upstream / "link").symlink_to("src/toy/area.py")
    git(toy.upstream, "-c", "core.attributesFile=/dev/null", "add", "-A")
    git(toy.upstream, "commit", "-qm", "Everything")
    patch = git(toy.upstream, "format-patch", "-1", "--stdout", "--binary", "-M")

    applied = apply(store, toy.commit, patch).applied[0]

    assert applied.tree == git(toy.upstream, "rev-parse", "HEAD^{tree}").decode().strip()
    base = store.tree_of(toy.commit)
    first = export(store, base, tmp_path / "base", index=tmp_path / "base.index")
    for like in (None, first):
        folder = tmp_path / f"exported {like is None}"
        index = folder.with_suffix(".index")
        made = export(store, applied.tree, folder, index=index, like=like)
        assert (folder / "blob.bin").read_bytes() == bytes(range(256))
        assert (folder / "latin.txt").read_bytes() == b"caf\xe9\n"
        assert (folder / "link").readlink() == Path("src/toy/area.py")
        assert (folder / "src/toy/area.py").stat().st_mode & 0o100
        assert altered(store, made) == altered(store, first) == ""
        (folder / "blob.bin").write_bytes(bytes(256))
        assert altered(store, made) == "blob.bin"
        assert altered(store, first) == ""
    assert not (first.folder / "src/toy/area.py").stat().st_mode & 0o100
    assert not (folder / "README").exists()
    assert (folder / "src/toy/__init__.py").samefile(first.folder / "src/toy/__init__.py")


NO_AUTHOR = b"From x\nSubject: [PATCH] y\n\n---\ndiff --git a/x b/x\n--- a/x\n+++ b/x\n@@ what\n"
CUT_SHORT = b"""\
From 0000000000000000000000000000000000000000 Mon Sep 17 00:00:00 2001
From: A <a@b.c>
Date: Thu, 1 Jan 2026 00:00:00 +0000
Subject: [PATCH] x

---
diff --git a/README b/README
--- a/README
+++ b/README
@@ -1,9 +1,9 @@
-toy
+x
"""


@pytest.mark.parametrize(
    ("content", "said"), [(NO_AUTHOR, "author"), (CUT_SHORT, "corrupt patch at line")]
)
def test_what_git_cannot_read_is_said(toy: Toy, store: Store, content: bytes, said: str) -> None:
    with pytest.raises(QueueError, match=rf"0001-x\.patch: .*{said}"):
        apply(store, toy.commit, content)
