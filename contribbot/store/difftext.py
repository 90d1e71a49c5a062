"""Reading the plain diffs that git writes, as bytes.

What is read here is what can be applied without asking git: changes, new and
deleted files, changes of a mode. For renames, copies, binary patches and
anything unusual, `read_diff` says None, and `git apply` has the word.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from contribbot.store.patchtext import unquote

_HEAD: Final = re.compile(rb'diff --git (?:a/(?P<plain>.+) b/(?P=plain)|"a/(?P<quoted>.+)" "b/(?P=quoted)")')  # fmt: skip  # noqa: E501  one pattern, not shorter in two
_HUNK: Final = re.compile(rb"@@ -(\d+)(?:,(\d+))? \+(\d+)(?:,(\d+))? @@")
_MODE: Final = re.compile(rb"(old mode|new mode|new file mode|deleted file mode) (100644|100755|120000)")  # fmt: skip  # noqa: E501  one pattern
_INDEX: Final = re.compile(rb"index [0-9a-f]+\.\.[0-9a-f]+(?: (100644|100755|120000))?")
_NAME: Final = re.compile(
    rb"(?:diff --git |--- |\+\+\+ |rename from |rename to |copy from |copy to )(?P<rest>.*)"
)
_QUOTED: Final = re.compile(rb'"(?:[^"\\]|\\.)*"')
#: What git takes for the start of something that it must apply.
_STARTS: Final = (b"diff --git ", b"--- ", b"@@ -")


@dataclass(frozen=True)
class Hunk:
    """One hunk.

    Attributes:
        start: The first line that it expects in the old file, from 1.
        goes: Where that line is once the hunks before it are applied, from 1.
        old: The lines that it expects, each with its end.
        new: The lines that it puts there.
        leading: Lines of context before the first change.
        trailing: Lines of context after the last change.
    """

    start: int
    goes: int
    old: list[bytes]
    new: list[bytes]
    leading: int
    trailing: int


@dataclass(frozen=True)
class Part:
    """What a diff does to one path.

    Attributes:
        path: The path.
        old_mode: The mode that it expects; empty for a new file, or where it does not say.
        new_mode: The mode afterwards; empty for a deleted file, or where it stays.
        added: Whether the file is new.
        deleted: Whether it goes.
        hunks: Its hunks.
    """

    path: str
    old_mode: str
    new_mode: str
    added: bool
    deleted: bool
    hunks: tuple[Hunk, ...]


class _NotPlainError(Exception):
    """Something that only git shall read."""


def read_diff(diff: bytes) -> tuple[Part, ...] | None:
    """Read a diff, or say that it is not plain."""
    rows = diff.split(b"\n")
    parts: list[Part] = []
    at = 0
    try:
        while at < len(rows):
            if rows[at].startswith(b"diff --git "):
                part, at = _part(rows, at)
                parts.append(part)
            elif rows[at].startswith(_STARTS):
                return None
            else:
                at += 1
    except (_NotPlainError, IndexError):
        return None
    paths = {part.path for part in parts}
    return tuple(parts) if parts and len(paths) == len(parts) else None


def named_paths(diff: bytes) -> set[str]:
    """Return every path inside a tree that git could take from a diff, and perhaps more."""
    found: set[bytes] = set()
    for row in diff.split(b"\n"):
        if not (match := _NAME.match(row)):
            continue
        rest = match["rest"].rstrip(b"\r")
        names = {rest, rest.partition(b"\t")[0]}
        names.update(quoted[0] for quoted in _QUOTED.finditer(rest))
        if row.startswith(b"diff --git "):
            cuts = [spot.start() for spot in re.finditer(rb" ", rest)]
            names.update(half for cut in cuts for half in (rest[:cut], rest[cut + 1 :]))
        for name in names:
            plain = unquote(name)
            found |= {plain, plain.partition(b"/")[2]}
    # What leads elsewhere is no path of any tree, and git refuses to look it up.
    return {
        name.decode("utf-8", "surrogateescape")
        for name in found
        if not {b"", b".", b".."} & set(name.split(b"/"))
    }


def lines_of(content: bytes) -> list[bytes]:
    """Cut bytes into lines, each with its newline; only the last may have none."""
    rows = content.split(b"\n")
    last = rows.pop()
    lines = [row + b"\n" for row in rows]
    return [*lines, last] if last else lines


def _part(rows: list[bytes], at: int) -> tuple[Part, int]:
    """Read one file's part; return it and the line after it."""
    head = _HEAD.fullmatch(rows[at])
    if head is None:
        raise _NotPlainError
    raw = head["plain"] if head["quoted"] is None else b'"' + head["quoted"] + b'"'
    spelled = (b"%s", raw) if head["quoted"] is None else (b'"%s"', head["quoted"])
    path = unquote(raw).decode("utf-8", "surrogateescape")
    if {"", ".", ".."} & set(path.split("/")) or ".git" in path.lower().split("/"):
        raise _NotPlainError
    at += 1
    modes: dict[bytes, str] = {}
    while mode := _MODE.fullmatch(rows[at]):
        modes[mode[1]] = mode[2].decode()
        at += 1
    added, deleted = b"new file mode" in modes, b"deleted file mode" in modes
    if (index := _INDEX.fullmatch(rows[at])) is not None:
        if index[1] and not modes:
            modes[b"index"] = index[1].decode()
        at += 1
    before = b"/dev/null" if added else spelled[0] % (b"a/" + spelled[1])
    after = b"/dev/null" if deleted else spelled[0] % (b"b/" + spelled[1])
    hunks, at = _hunks(rows, at, before, after)
    old = modes.get(b"old mode") or modes.get(b"deleted file mode") or modes.get(b"index", "")
    new = modes.get(b"new mode") or modes.get(b"new file mode") or ""
    _check(modes, hunks, added=added, deleted=deleted)
    return Part(path, old, new, added, deleted, tuple(hunks)), at


def _hunks(rows: list[bytes], at: int, before: bytes, after: bytes) -> tuple[list[Hunk], int]:
    """Read the two names and the hunks, where there are any."""
    if not rows[at].startswith(b"--- "):
        if rows[at] and not rows[at].startswith((b"diff --git ", b"-- ")):
            # A rename, a copy, a binary patch, or something new.
            raise _NotPlainError
        return [], at
    # A tab stands behind a name with a space in it.
    names = (rows[at].rstrip(b"\t"), rows[at + 1].rstrip(b"\t"))
    if names != (b"--- " + before, b"+++ " + after):
        raise _NotPlainError
    at += 2
    hunks: list[Hunk] = []
    while rows[at].startswith(b"@@ -"):
        hunk, at = _hunk(rows, at)
        hunks.append(hunk)
    if not hunks:
        raise _NotPlainError
    return hunks, at


def _check(modes: dict[bytes, str], hunks: list[Hunk], *, added: bool, deleted: bool) -> None:
    """Refuse what does not go together."""
    both = (b"old mode" in modes) != (b"new mode" in modes)
    odd = added + deleted + (b"old mode" in modes) > 1
    nothing = not hunks and not (added or deleted or b"new mode" in modes)
    if both or odd or nothing:
        raise _NotPlainError
    if added or deleted:
        if len(hunks) > 1 or any(hunk.old if added else hunk.new for hunk in hunks):
            raise _NotPlainError
    elif not all(hunk.old and hunk.new for hunk in hunks):
        # Without a line of context git decides by rules of its own.
        raise _NotPlainError


def _hunk(rows: list[bytes], at: int) -> tuple[Hunk, int]:
    """Read one hunk; return it and the line after it."""
    head = _HUNK.match(rows[at])
    if head is None:
        raise _NotPlainError
    start, olds, goes, news = (int(field) if field is not None else 1 for field in head.groups())
    at += 1
    signs = bytearray()
    old: list[bytes] = []
    new: list[bytes] = []
    while olds > len(old) or news > len(new):
        row = rows[at]
        sign, line = row[:1], row[1:] + b"\n"
        sides = {b" ": (old, new), b"-": (old,), b"+": (new,)}.get(sign)
        if sides is None:
            raise _NotPlainError
        at += 1
        if rows[at].startswith(b"\\ "):
            line = line[:-1]
            at += 1
        for side in sides:
            side.append(line)
        signs += sign
    if (olds, news) != (len(old), len(new)) or not signs.strip():
        raise _NotPlainError
    if any(not line.endswith(b"\n") for side in (old, new) for line in side[:-1]):
        raise _NotPlainError
    leading = len(signs) - len(signs.lstrip(b" "))
    trailing = len(signs) - len(signs.rstrip(b" "))
    return Hunk(start, goes, old, new, leading, trailing), at
