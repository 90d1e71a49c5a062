"""Reading the commits that are to be carried over, and how they differ from where they go."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from contribbot.store.difftext import Part, read_diff
from contribbot.store.formatpatch import raw_changes
from contribbot.store.objects import read_objects
from contribbot.store.overlay import Entry, Overlay
from contribbot.store.repository import Store

#: The modes of files that can be merged as text.
TEXT: Final = frozenset({"100644", "100755"})
#: The mode that git writes for a path that is not there.
NOTHING: Final = "000000"
_ID: Final = 40


@dataclass(frozen=True)
class Step:
    """A commit that is to be carried.

    Attributes:
        commit: Its id.
        parent: Its parent's.
        author: Its author line.
        committer: Its committer line.
        message: Its message.
        touched: What it changes: path, before, after.
        parts: Its diff by path, as far as it was needed and is plain.
    """

    commit: str
    parent: str
    author: bytes
    committer: bytes
    message: bytes
    touched: tuple[tuple[str, Entry | None, Entry | None], ...]
    parts: Mapping[str, Part]


def read_steps(store: Store, commits: Sequence[str], tree: Overlay) -> dict[str, Step]:
    """Read commits that will be carried, with a few processes for all."""
    touched: dict[str, list[tuple[str, Entry | None, Entry | None]]] = {}
    for commit, row, path in raw_changes(store, commits):
        modes = row.split(" ")
        old = None if modes[0] == NOTHING else Entry(modes[0], modes[2])
        new = None if modes[1] == NOTHING else Entry(modes[1], modes[3])
        touched.setdefault(commit, []).append((path, old, new))
    tree.prefetch(path for rows in touched.values() for path, _, _ in rows)
    different = {
        commit: [row for row in rows if tree.entry(row[0]) not in row[1:]]
        for commit, rows in touched.items()
    }
    needed = [commit for commit in commits if different.get(commit)]
    tree.contents(
        entry.blob
        for commit in needed
        for _, *sides in different[commit]
        for entry in sides
        if isinstance(entry, Entry) and entry.mode in TEXT
    )
    parts = _diffs(store, needed)
    found: dict[str, Step] = {}
    for commit, object_ in zip(commits, read_objects(store, commits), strict=True):
        head, _, message = (object_.content if object_ else b"").partition(b"\n\n")
        fields = dict(row.split(b" ", 1) for row in head.split(b"\n"))
        found[commit] = Step(
            commit, fields[b"parent"].decode(), fields[b"author"], fields[b"committer"],
            message, tuple(touched.get(commit, ())), parts.get(commit, {}),
        )  # fmt: skip
    return found


def _diffs(store: Store, commits: Sequence[str]) -> dict[str, dict[str, Part]]:
    """Return the plain diffs of commits, path by path."""
    said = store.git(
        "diff-tree", "--stdin", "-r", "-p", "-U3", "--no-renames", "--no-color", "--no-ext-diff",
        "--full-index", stdin="".join(f"{commit}\n" for commit in commits).encode(),
    ).stdout  # fmt: skip
    wanted = {commit.encode() for commit in commits}
    texts: dict[str, list[bytes]] = {}
    rows: list[bytes] = []
    for row in said.split(b"\n"):
        # No line of a diff is a bare id: each starts with its sign, or with a word.
        if len(row) == _ID and row in wanted:
            rows = texts.setdefault(row.decode(), [])
        else:
            rows.append(row)
    found: dict[str, dict[str, Part]] = {}
    for commit, lines in texts.items():
        found[commit] = {part.path: part for part in _by_file(lines)}
    return found


def _by_file(lines: list[bytes]) -> list[Part]:
    """Read each file's part by itself: one that is not plain says nothing of the others."""
    starts = [at for at, row in enumerate(lines) if row.startswith(b"diff --git ")]
    found: list[Part] = []
    for start, end in zip(starts, [*starts[1:], len(lines)], strict=True):
        found += read_diff(b"\n".join([*lines[start:end], b""])) or ()
    return found
