"""The ids that git gives to objects: they follow from the content (SHA-1, as GitHub has them)."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

FOLDER: Final = "040000"
SUBMODULE: Final = "160000"


@dataclass(frozen=True)
class Entry:
    """What a tree has at a path: its mode as git writes it, and its object.

    In a change of a tree, an empty one takes the path away.
    """

    path: str
    mode: str = "100644"
    sha: str = ""

    @property
    def kind(self) -> str:
        """What git calls its object."""
        return {FOLDER: "tree", SUBMODULE: "commit"}.get(self.mode, "blob")


@dataclass(frozen=True)
class Author:
    """Who wrote a commit, and when, with the offset from UTC."""

    name: str
    email: str
    date: datetime


def _object_id(kind: str, content: bytes) -> str:
    head = f"{kind} {len(content)}\0".encode()
    return hashlib.sha1(head + content, usedforsecurity=False).hexdigest()


def blob_id(content: bytes) -> str:
    """Return the id of a file's content."""
    return _object_id("blob", content)


def tree_id(entries: Iterable[Entry]) -> str:
    """Return the id of one folder's tree; `path` is the plain name of each entry."""
    # git sorts folders as if their names ended with a slash.
    rows = sorted(
        ((entry.path + "/" * (entry.mode == FOLDER)).encode(), entry) for entry in entries
    )  # no two have the same name
    return _object_id("tree", b"".join(
        f"{entry.mode.lstrip('0')} {entry.path}\0".encode() + bytes.fromhex(entry.sha)
        for _, entry in rows
    ))  # fmt: skip


def commit_id(message: str, tree: str, parents: Sequence[str], author: Author) -> str:
    """Return the id of a commit that its author makes."""
    who = f"{author.name} <{author.email}> {int(author.date.timestamp())} {author.date:%z}"
    above = [f"parent {parent}" for parent in parents]
    lines = [f"tree {tree}", *above, f"author {who}", f"committer {who}", "", message]
    return _object_id("commit", "\n".join(lines).encode())
