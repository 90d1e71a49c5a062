"""The `a/` and `b/` before the paths of a diff, where somebody left them out."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from contribbot.store.patchtext import unquote

#: A file's first line as git writes it by default.
PREFIXED: Final = re.compile(rb'diff --git "?a/[^\n]+ "?b/')
_NAMED: Final = re.compile(
    rb"(?:--- |\+\+\+ |(?:rename|copy) (?:from|to) )(?P<path>\"[^\n]*\"|[^\t\n]*)"
)
_HUNK: Final = re.compile(rb"@@ -\d+(?:,(?P<old>\d+))? \+\d+(?:,(?P<new>\d+))? @@")


def canonical(diff: bytes) -> bytes:
    """Undo `diff.noprefix`: where a file has one name on both sides, that is its path."""
    row = diff.partition(b"\n")[0]
    if not row.startswith(b"diff --git ") or PREFIXED.match(row):
        return diff
    names = row[len(b"diff --git ") :]
    half = len(names) // 2
    bare = names[:half] == names[half + 1 :] and names[half : half + 1] == b" "
    source = re.search(rb"^rename from ([^\n]+)\nrename to ([^\n]+)$", diff, re.MULTILINE)
    if bare or (source and names == source[1] + b" " + source[2]):
        return prefixed(diff)
    return diff


def prefixed(diff: bytes) -> bytes:
    """Return a diff with `a/` and `b/` before the paths that have nothing before them."""
    rows = diff.split(b"\n")
    for number in list(_outside(rows)):
        row = rows[number]
        if row.startswith(b"diff --git "):
            rows[number] = _prefixed_names(row)
        elif row.startswith((b"--- ", b"+++ ")) and not row[4:].startswith(b"/dev/null"):
            rows[number] = row[:4] + _before(row[4:], b"a/" if row[:1] == b"-" else b"b/")
    return b"\n".join(rows)


def outside_tree(diff: bytes) -> str:
    """Return a path of a diff that no tree has: one that leads out of it, say; or nothing."""
    rows = diff.split(b"\n")
    for number in _outside(rows):
        named = _NAMED.match(rows[number])
        path = unquote(named["path"]) if named else b"/dev/null"
        parts = path.lower().split(b"/")
        if path != b"/dev/null" and {b"", b".", b"..", b".git"} & {*parts}:
            return path.decode("utf-8", "surrogateescape")
    return ""


def _outside(rows: list[bytes]) -> Iterator[int]:
    """Yield the numbers of the rows that are in no hunk.

    Inside one, a removed line `-- x` looks like a header, and is none.
    """
    old = new = 0
    for number, row in enumerate(rows):
        if old > 0 or new > 0:
            old -= row[:1] in {b"-", b" ", b""}
            new -= row[:1] in {b"+", b" ", b""}
        elif hunk := _HUNK.match(row):
            old, new = (int(hunk[side] or 1) for side in ("old", "new"))
        else:
            yield number


def _prefixed_names(row: bytes) -> bytes:
    names = row[len(b"diff --git ") :]
    half = len(names) // 2
    if names[:half] != names[half + 1 :]:
        first, _, second = names.partition(b" ")
    else:
        first, second = names[:half], names[half + 1 :]
    return b"diff --git " + _before(first, b"a/") + b" " + _before(second, b"b/")


def _before(path: bytes, prefix: bytes) -> bytes:
    """Put a prefix before a path, inside its quotes where git quoted it."""
    return b'"' + prefix + path[1:] if path.startswith(b'"') else prefix + path
