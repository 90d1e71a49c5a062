"""Reading `git format-patch` files: what they touch and what their hunks say.

Patches are bytes. They are read as Latin-1, which maps every byte to one
character and back, so that content in any encoding survives.
"""

from __future__ import annotations

import io
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from contribbot.errors import QueueError

if TYPE_CHECKING:
    from unidiff.patch import PatchSet

#: How the lines start that give a diff its structure.
_STRUCTURE: Final = (b"diff --git ", b"--- a/", b"+++ b/", b"@@ -")
_DIFF: Final = re.compile(rb"^diff --git ", re.MULTILINE)
#: Lines of a diff's header that name a path, with the side's prefix where git writes one.
_NAMED: Final = re.compile(
    rb"^(?:--- |\+\+\+ |rename from |rename to |copy from |copy to )(?P<path>\"[^\n]*\"|[^\t\n]*)"
)
_ESCAPE: Final = re.compile(rb"\\([0-7]{3}|.)")
_SINGLE: Final = {b"n": b"\n", b"t": b"\t", b"r": b"\r", b"a": b"\a", b"b": b"\b", b"f": b"\f",
                  b"v": b"\v"}  # fmt: skip


@dataclass(frozen=True)
class Touched:
    """A path that a patch names.

    Attributes:
        path: The path, without the `a/` or `b/` prefix.
        line: The line of the patch file that names it, from 1.
    """

    path: str
    line: int


def check_form(name: str, content: bytes) -> None:
    """Refuse a patch file that git would misread, or read outside the tree."""
    again = "write it again with `git format-patch`"
    first, _, _ = content.partition(b"\n")
    if first.endswith(b"\r"):
        raise QueueError(f"{name}:1: CRLF line endings", hint=f"{again}, core.autocrlf off")
    if not content.endswith(b"\n"):
        line = content.count(b"\n") + 1
        raise QueueError(f"{name}:{line}: no newline at the end, so it may be cut off", hint=again)
    found = _DIFF.search(content)
    if not found:
        raise QueueError(f"{name}: no `diff --git` in it", hint=again)
    try:
        content[: found.start()].decode("utf-8")
    except UnicodeDecodeError as error:
        line = content[: error.start].count(b"\n") + 1
        raise QueueError(f"{name}:{line}: the message is not UTF-8", hint=again) from error
    for number, row in enumerate(content.split(b"\n"), start=1):
        if row.endswith(b"\r") and row.startswith(_STRUCTURE):
            raise QueueError(
                f"{name}:{number}: CRLF line endings", hint=f"{again}, core.autocrlf off"
            )
    for touched in paths(content):
        fault = _path_fault(touched.path)
        if fault:
            raise QueueError(
                f"{name}:{touched.line}: the path {touched.path!a} {fault}", hint=again
            )


def _path_fault(path: str) -> str:
    """Say why a path of a patch is refused, or nothing."""
    parts = path.split("/")
    if path.startswith("/") or {"..", ".", ""} & set(parts):
        return "leaves the tree"
    if any(part.lower() == ".git" for part in parts):
        return "is git's own"
    return "" if path.isprintable() else "is not UTF-8, or not printable"


def paths(content: bytes) -> list[Touched]:
    """Return every path that a patch names, each with the first line that does."""
    found: dict[str, int] = {}
    in_header = False
    for number, row in enumerate(content.split(b"\n"), start=1):
        if row.startswith(b"diff --git "):
            in_header = True
        elif row.startswith(b"@@ "):
            in_header = False
        elif in_header and (named := _NAMED.match(row)):
            path = unquote(named["path"])
            if path == b"/dev/null":
                continue
            if row.startswith((b"--- ", b"+++ ")):
                path = path.partition(b"/")[2] if path.startswith((b"a/", b"b/")) else path
            found.setdefault(path.decode("utf-8", "surrogateescape"), number)
    return [Touched(path, line) for path, line in found.items()]


def plain_path(name: str) -> str:
    """Return a path as the tree has it, from the way a diff writes it."""
    path = unquote(name.encode("latin-1"))
    if path.startswith((b"a/", b"b/")):
        path = path[2:]
    return path.decode("utf-8", "surrogateescape")


def unquote(path: bytes) -> bytes:
    """Undo git's C-style quoting of a path."""
    if not path.startswith(b'"'):
        return path
    return _ESCAPE.sub(
        lambda m: bytes([int(m[1], 8)]) if len(m[1]) == 3 else _SINGLE.get(m[1], m[1]),  # noqa: PLR2004  three octal digits
        path[1:-1],
    )


def parse(name: str, content: bytes) -> PatchSet:
    """Parse the hunks of a patch file; its text is Latin-1 for bytes."""
    # Only commands that look into hunks pay for the import.
    from unidiff.errors import UnidiffParseError  # noqa: PLC0415
    from unidiff.patch import PatchSet  # noqa: PLC0415

    # What stands behind "-- " is the mail signature that format-patch adds.
    text = re.sub(rb"\n-- \n[^\n]*\n\s*\Z", b"\n", content).decode("latin-1")
    try:
        return PatchSet(io.StringIO(text, newline="\n"))
    except UnidiffParseError as error:
        raise QueueError(
            f"{name}: not a well-formed diff: {error}",
            hint="write it again with `git format-patch`",
        ) from error
