"""Applying what fits exactly: the same lines at the stated place, byte for byte.

Anything else, an offset even, is for `git apply`, which has rules for it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from contribbot.store.difftext import Hunk, Part, lines_of
from contribbot.store.overlay import FOLDER, Change, Overlay

_SUBMODULE: Final = "160000"


def apply_parts(tree: Overlay, parts: Sequence[Part]) -> list[Change] | None:
    """Apply a diff to a tree, all of it or nothing."""
    results: list[tuple[str, str, bytes | None]] = []
    for part in parts:
        result = _result(tree, part)
        if result is None:
            return None
        results.append((part.path, *result))
    if _clash([path for path, _, content in results if content is not None]):
        return None
    # What goes first: a folder may come where a file was.
    gone = [tree.set(path, None) for path, _, content in results if content is None]
    return gone + [
        tree.put(path, mode, content) for path, mode, content in results if content is not None
    ]


def _result(tree: Overlay, part: Part) -> tuple[str, bytes | None] | None:
    """Return mode and bytes that a path gets (no bytes: it goes); None when it does not fit."""
    entry = tree.entry(part.path)
    if part.added:
        free = entry is None and not tree.blocker(part.path)
        return (part.new_mode, _side(part.hunks, new=True)) if free else None
    if entry is None or entry.mode in {FOLDER, _SUBMODULE}:
        return None
    if part.old_mode not in {"", entry.mode}:
        return None
    old = tree.content(entry.blob)
    if part.deleted:
        return ("", None) if _side(part.hunks, new=False) == old else None
    content = apply_hunks(part.hunks, old)
    return None if content is None else (part.new_mode or entry.mode, content)


def apply_hunks(hunks: Sequence[Hunk], content: bytes) -> bytes | None:
    """Apply hunks where they say that they go."""
    have = lines_of(content)
    made: list[bytes] = []
    at = 0
    for hunk in hunks:
        start = hunk.start - 1
        end = start + len(hunk.old)
        if start < at or have[start:end] != hunk.old:
            return None
        made += have[at:start]
        # git goes by the line after the change: both must say the same.
        if hunk.goes - 1 != len(made):
            return None
        # Without context behind it, a hunk belongs at the end of the file.
        if not hunk.trailing and end != len(have):
            return None
        made += hunk.new
        at = end
    made += have[at:]
    return b"".join(made)


def _side(hunks: Sequence[Hunk], *, new: bool) -> bytes:
    """Return one side of hunks as bytes."""
    return b"".join(line for hunk in hunks for line in (hunk.new if new else hunk.old))


def _clash(paths: Sequence[str]) -> bool:
    """Say whether one path is to be a file and a folder."""
    files = set(paths)
    return any(
        path[:cut] in files for path in paths for cut, sign in enumerate(path) if sign == "/"
    )
