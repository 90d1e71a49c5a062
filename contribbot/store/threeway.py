"""Carrying a change of one file over to another version of it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from contribbot.store.conflict import Conflict
from contribbot.store.difftext import Hunk, lines_of
from contribbot.store.repository import Store

#: Long enough that no file has such lines by itself.
_MARKER: Final = 43
_CONFLICT: Final = re.compile(
    rb"^<{43}[^\n]*\n(?P<ours>.*?)^\|{43}[^\n]*\n(?P<base>.*?)"
    rb"^={43}\n(?P<theirs>.*?)^>{43}[^\n]*\n?",
    re.MULTILINE | re.DOTALL,
)
#: How many conflicts `git merge-file` can count; beyond it, it could not merge at all.
_MOST: Final = 127


@dataclass(frozen=True)
class Shift:
    """A hunk that went elsewhere than it says.

    Attributes:
        line: The line where it went, from 1.
        offset: Lines between that and where it says.
    """

    line: int
    offset: int


@dataclass(frozen=True)
class Region:
    """A place that both sides changed.

    Attributes:
        line: Its first line in our version, from 1.
        base: What both sides had.
        ours: What our version has there.
        theirs: What the change wants there.
    """

    line: int
    base: tuple[str, ...]
    ours: tuple[str, ...]
    theirs: tuple[str, ...]


def transplant(
    hunks: Sequence[Hunk], base: bytes, ours: bytes
) -> tuple[bytes, tuple[Shift, ...]] | None:
    """Apply hunks where their lines stand in another version of the file, if that is beyond doubt.

    Beyond doubt is a hunk whose lines, with context on both sides, occur once in
    the file that it was made for and once in the other version. A three-way
    merge would do the same, for a process each.
    """
    pieces: list[bytes] = []
    shifts: list[Shift] = []
    at = lines = 0
    for hunk in hunks:
        old = b"".join(hunk.old)
        start = _only(ours, old)
        if not (hunk.leading and hunk.trailing) or start < at or _only(base, old) < 0:
            return None
        if not old.endswith(b"\n") and start + len(old) != len(ours):
            return None
        new = b"".join(hunk.new)
        lines += ours.count(b"\n", at, start) + (pieces[-1].count(b"\n") if pieces else 0)
        if lines + 1 != hunk.goes:
            shifts.append(Shift(lines + 1, lines + 1 - hunk.goes))
        pieces += [ours[at:start], new]
        at = start + len(old)
    pieces.append(ours[at:])
    return b"".join(pieces), tuple(shifts)


def merge_file(
    store: Store, versions: tuple[bytes, ...], scratch: Path
) -> bytes | tuple[Region, ...]:
    """Merge three versions of a file."""
    names = ("ours", "base", "theirs")
    for name, content in zip(("base", "ours", "theirs"), versions, strict=True):
        (scratch / name).write_bytes(content)
    done = store.git(
        "merge-file", "-p", "-q", "--zdiff3", f"--marker-size={_MARKER}", *names,
        cwd=scratch, accept=range(256),
    )  # fmt: skip
    if done.returncode == 0:
        return done.stdout
    if done.returncode > _MOST:
        return ()
    return tuple(_regions(done.stdout))


def conflicts_of(name: str, path: str, pin: str, regions: Sequence[Region]) -> list[Conflict]:
    """Say each place of conflict as a conflict of a patch file."""
    if not regions:
        return [Conflict(name, path, pin, 0, "both changed it, and it is no text")]
    why = "the release changed the same lines"
    return [
        Conflict(name, path, pin, number, why, one.line, one.base, one.ours, one.theirs)
        for number, one in enumerate(regions, start=1)
    ]


def _only(content: bytes, lines: bytes) -> int:
    """Return where whole lines stand in a file that has them once; -1 otherwise."""
    # A newline before each: lines are found only at the start of one.
    hay, needle = b"\n" + content, b"\n" + lines
    first = hay.find(needle)
    return first if first < 0 or hay.find(needle, first + 1) < 0 else -1


def _regions(merged: bytes) -> list[Region]:
    """Read the places of conflict from a file with markers."""
    found: list[Region] = []
    line, at = 1, 0
    for spot in _CONFLICT.finditer(merged):
        line += merged.count(b"\n", at, spot.start())
        base, ours, theirs = (_readable(spot[side]) for side in ("base", "ours", "theirs"))
        found.append(Region(line, base, ours, theirs))
        line += len(ours)
        at = spot.end()
    return found


def _readable(content: bytes) -> tuple[str, ...]:
    return tuple(row.rstrip(b"\n").decode("utf-8", "replace") for row in lines_of(content))
