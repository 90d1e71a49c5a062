"""Moving patches to another release: what merges merges, the rest says why."""

from __future__ import annotations

from pathlib import Path

import pytest

from contribbot.git.apply import apply_series
from contribbot.git.merge import Moving, RebaseResult, move
from contribbot.model.lifecycle import Text
from contribbot.model.patch import PatchFile
from tests.toy import AREA, FIXED, Toy, git

#: What becomes of files: None deletes one, a path makes a symbolic link to it.
Changes = dict[str, str | bytes | Path | None]
LONG = "".join(f"line {n}\n" for n in range(60))


class Mover:
    """A toy with two releases, and patches on the old one."""

    def __init__(self, toy: Toy) -> None:
        self.toy, self.store = toy, toy.fetched()
        files: Changes = {"long.txt": LONG, "other.txt": LONG, "blob.bin": bytes(range(256))}
        self.old = self.new = toy.commit = self.commit("Old", files)
        self.patches: list[Moving] = []
        self.tips = {"": self.old}

    def commit(self, subject: str, changes: Changes) -> str:
        files: dict[str, str | bytes | None] = {}
        for path, content in changes.items():
            if isinstance(content, Path):
                (self.toy.upstream / path).unlink()
                (self.toy.upstream / path).symlink_to(content)
            else:
                files[path] = content
        made = self.toy.change(files, subject)
        self.toy.fetched()
        return made

    def release(self, changes: Changes) -> str:
        """Make the new release."""
        git(self.toy.upstream, "reset", "-q", "--hard", self.old)
        self.new = self.commit("New", changes)
        return self.new

    def add(self, name: str, *commits: Changes, below: tuple[str, ...] = ()) -> Moving:
        """Add a patch, on the old release or on those below it."""
        base = self.tips[below[-1] if below else ""]
        git(self.toy.upstream, "fetch", "-q", str(self.store.path), base)
        git(self.toy.upstream, "reset", "-q", "--hard", base)
        for number, changes in enumerate(commits):
            self.commit(f"{name} {number}\n\nWhy.", changes)
        made = git(self.toy.upstream, "format-patch", "--stdout", f"{base}..HEAD", "--binary")
        parts = made.split(b"\nFrom ")
        files = [
            PatchFile(f"000{n}-{name}.patch", (b"From " if n > 1 else b"") + part + b"\n")
            for n, part in enumerate(parts, start=1)
        ]
        series = apply_series(self.store, base, files, pin="old")
        assert not series.conflicts
        self.tips[name] = series.commit
        self.patches.append(Moving(name, below, series))
        return self.patches[-1]

    def move(self) -> dict[str, RebaseResult]:
        made = move(self.store, self.patches, old=self.old, new=self.new, pin="toy v2")
        return {one.name: one for one in made}

    def read(self, commit: str, path: str) -> bytes:
        return self.store.git("cat-file", "blob", f"{commit}:{path}").stdout


@pytest.fixture
def mover(toy: Toy) -> Mover:
    return Mover(toy)


def test_untouched_files_move_as_they_are(mover: Mover) -> None:
    mover.add("a", {"src/toy/area.py": FIXED, "src/new.py": "N = 1\n"})
    mover.release({"README": "two\n"})

    moved = mover.move()["a"]

    assert (moved.status, moved.base) == (Text.CLEAN, mover.new)
    (file,) = moved.files
    again = apply_series(mover.store, mover.new, [file], pin="x")
    assert (again.commit,) == moved.commits
    assert mover.read(again.commit, "README") == b"two\n"
    assert mover.read(again.commit, "src/new.py") == b"N = 1\n"


def test_changes_beside_each_other_are_merged(mover: Mover) -> None:
    mover.add("a", {"long.txt": LONG.replace("line 30\n", "line thirty\n")})
    mover.release({"long.txt": LONG.replace("line 28\n", "line twenty-eight\n")})
    moved = mover.move()["a"]
    assert moved.status is Text.MERGED
    assert b"twenty-eight\nline 29\nline thirty\n" in mover.read(moved.commits[-1], "long.txt")
    assert b"-line 30\n+line thirty" in moved.files[0].content


def test_a_conflict_has_three_sides_and_stops_nobody(mover: Mover) -> None:
    text = LONG.replace("line 30\n", "line thirty\n").replace("line 12\n", "line twelve\n")
    mover.add("a", {"long.txt": text})
    mover.add("b", {"other.txt": LONG.replace("line 5\n", "five\n")})
    text = LONG.replace("line 30\n", "line XXX\n").replace("line 3\n", "new\nline 3\n")
    mover.release({"long.txt": text})

    moved = mover.move()

    (conflict,) = moved["a"].conflicts
    assert conflict.path == "long.txt"
    assert "does not apply to toy v2" in conflict.headline
    sides = (conflict.expected, conflict.found, conflict.wanted)
    assert sides == (("line 30",), ("line XXX",), ("line thirty",))
    assert text.splitlines()[conflict.line - 1] == "line XXX"
    assert conflict.patch_file == "0001-a.patch"
    assert (moved["a"].status, moved["a"].files) == (Text.CONFLICT, ())
    assert moved["b"].status is Text.CLEAN


def test_what_the_release_has_is_upstream(mover: Mover) -> None:
    mover.add("all", {"src/toy/area.py": FIXED, "src/new.py": "N = 1\n"})
    mover.add("half", {"long.txt": LONG.replace("line 30\n", "30\n")},
              {"other.txt": LONG.replace("line 5\n", "five\n")})  # fmt: skip
    # Has it, and went on close by: a merge conflicts, but it can be taken back.
    mover.add("went-on", {"other.txt": LONG.replace("line 50\n", "fifty\n")})
    mover.release({
        "src/toy/area.py": FIXED, "src/new.py": "N = 1\n",
        "long.txt": LONG.replace("line 30\n", "30\n"),
        "other.txt": LONG.replace("line 50\n", "fifty\n").replace("line 46\n", "46\n"),
    })  # fmt: skip

    moved = mover.move()

    assert (moved["all"].status, moved["all"].commits) == (Text.UPSTREAM, ())
    assert moved["went-on"].status is Text.UPSTREAM
    assert (moved["half"].status, len(moved["half"].files)) == (Text.CLEAN, 1)
    assert moved["half"].why == "toy v2 has all of half/0001-half.patch already"
    assert moved["half"].files[0].name.startswith("0001-")


def test_renames_of_the_release_are_followed(mover: Mover) -> None:
    mover.add("a", {"src/toy/area.py": FIXED})
    mover.add("b", {"long.txt": LONG.replace("line 30\n", "30\n")})
    mover.add("c", {"other.txt": LONG.replace("line 30\n", "30\n")})
    mover.release({
        "src/toy/area.py": None, "src/deep/areas.py": AREA.replace('"""Areas', '"""All areas'),
        "long.txt": None,
    })  # fmt: skip

    moved = mover.move()

    assert moved["a"].status is Text.MERGED
    assert "src/deep/areas.py" in moved["a"].why
    assert b"area = width * height" in mover.read(moved["a"].commits[0], "src/deep/areas.py")
    assert b"+++ b/src/deep/areas.py" in moved["a"].files[0].content
    assert moved["b"].status is Text.CONFLICT
    assert (
        moved["b"].conflicts[0].why == "long.txt deleted in the release and modified in the patch"
    )
    assert moved["c"].status is Text.CLEAN
    # What git looked at is no part of any history that is kept.
    assert mover.store.git("for-each-ref", "refs/contribbot").stdout == b""


def test_stacks(mover: Mover) -> None:
    one = LONG.replace("line 30\n", "30\n")
    two = one.replace("line 31\n", "31\n")
    mover.add("one", {"long.txt": one})
    mover.add("two", {"long.txt": two}, below=("one",))
    mover.add("three", {"long.txt": two.replace("line 32\n", "32\n")}, below=("one", "two"))
    other = LONG.replace("line 30\n", "30\n")
    mover.add("low", {"other.txt": other})
    mover.add("high", {"other.txt": other.replace("line 50\n", "50\n")}, below=("low",))
    mover.add("bad", {"README": "mine\n"})
    mover.add("on-bad", {"src/toy/area.py": FIXED}, below=("bad",))
    mover.release({"long.txt": "new\n" + LONG, "README": "theirs\n", "other.txt": other})

    moved = mover.move()

    assert [moved[name].status for name in ("one", "two", "three")] == [Text.CLEAN] * 3
    assert moved["three"].base == moved["two"].commits[-1]
    assert moved["two"].base == moved["one"].commits[-1]
    assert b"30\n31\n32\nline 33\n" in mover.read(moved["three"].commits[-1], "long.txt")
    assert moved["low"].status is Text.UPSTREAM
    assert (moved["high"].status, moved["high"].base) == (Text.CLEAN, mover.new)
    assert moved["bad"].status is Text.CONFLICT
    assert moved["on-bad"].status is Text.BLOCKED
    assert moved["on-bad"].why == "bad, on which it depends, does not move"


def test_the_order_given_does_not_matter_and_gaps_are_refused(mover: Mover) -> None:
    one = LONG.replace("line 30\n", "30\n")
    mover.add("one", {"long.txt": one})
    mover.add("two", {"long.txt": one.replace("line 31\n", "31\n")}, below=("one",))
    mover.release({"README": "x\n"})
    straight = mover.move()
    mover.patches.reverse()
    assert list(mover.move()) == ["two", "one"]
    assert mover.move() == straight
    mover.patches = mover.patches[:1]
    with pytest.raises(ValueError, match="not moved: two"):
        mover.move()


def test_the_same_text_elsewhere_in_the_old_release_is_no_proof(mover: Mover) -> None:
    # The patch does to the second function what the first one has already.
    one = "def {}():\n    # a\n    # b\n    # c\n    return {}\n    # d\n    # e\n    # f\n\n\n"
    text = one.format("f", "good") + one.format("g", "bad")
    mover.release({"long.txt": text})
    mover.old = mover.tips[""] = mover.new
    mover.add("a", {"long.txt": one.format("f", "good") + one.format("g", "good")})
    mover.release({"long.txt": "# new\n" + text})
    assert mover.move()["a"].status is Text.CLEAN


MOVED: Changes = {"other.txt": None, "theirs.txt": LONG}
FIVE = LONG.replace("line 5\n", "five\n")
THIRTY = LONG.replace("line 30\n", "30\n")
#: The lines around it stand together in what it makes as well: its text fits there again.
BLOCK = LONG.replace("line 13\n", "line 13\nmore\nline 11\nline 12\nline 13\n")
HAS_ALL = "toy v2 has all of it"


@pytest.mark.parametrize(
    ("patch", "release", "status", "path", "why"),
    [
        ({"both.txt": "mine\n"}, {"both.txt": "theirs\n"}, Text.CONFLICT, "both.txt",
         "the release changed the same lines"),
        ({"blob.bin": bytes(range(255, -1, -1))}, {"blob.bin": bytes(200)}, Text.CONFLICT,
         "blob.bin", "Cannot merge binary files: blob.bin (the release vs. the patch)"),
        ({"thing": "a file\n"}, {"thing/inside": "x\n"}, Text.CONFLICT, "thing",
         "directory in the way of thing from the patch"),
        ({"other.txt": None}, MOVED, Text.CONFLICT, "other.txt",
         "other.txt renamed to theirs.txt in the release, but deleted in the patch"),
        ({"other.txt": None, "mine.txt": LONG}, MOVED, Text.CONFLICT, "other.txt",
         "other.txt renamed to theirs.txt in the release and to mine.txt in the patch"),
        ({"src/toy/area.py": None, "areas.py": FIXED}, {"src/toy/area.py": None},
         Text.CONFLICT, "areas.py",
         "src/toy/area.py renamed to areas.py in the patch, but deleted in the release"),
        ({"other.txt": Path("README")}, {"other.txt": THIRTY}, Text.CONFLICT, "other.txt",
         "other.txt had different types on each side"),
        ({"blob.bin": None}, {"blob.bin": None}, Text.UPSTREAM, "", HAS_ALL),
        ({"long.txt": BLOCK}, {"long.txt": BLOCK}, Text.UPSTREAM, "", HAS_ALL),
        ({"long.txt": BLOCK}, {"long.txt": f"first\n{BLOCK}"}, Text.UPSTREAM, "", HAS_ALL),
        # What the release has of it is said, and not dropped in silence.
        ({"long.txt": THIRTY, "other.txt": FIVE}, {"other.txt": FIVE}, Text.MERGED, "",
         "toy v2 has what case/0001-case.patch does to other.txt"),
    ],
)  # fmt: skip
def test_what_becomes_of_a_patch(
    mover: Mover, *, patch: Changes, release: Changes, status: Text, path: str, why: str
) -> None:
    mover.add("case", patch)
    mover.release(release)
    moved = mover.move()["case"]
    assert moved.status is status
    if path:
        (conflict,) = moved.conflicts
        assert (conflict.path, conflict.why) == (path, why)
    else:
        assert moved.why == why
