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

    @property
    def signature(self) -> str:
        """It, as a commit has it."""
        return f"{self.name} <{self.email}> {int(self.date.timestamp())} {self.date:%z}"


def object_id(kind: str, content: bytes) -> str:
    """Return the id of an object."""
    head = f"{kind} {len(content)}\0".encode()
    return hashlib.sha1(head + content, usedforsecurity=False).hexdigest()


def blob_id(content: bytes) -> str:
    """Return the id of a file's content."""
    return object_id("blob", content)


def tree_id(entries: Iterable[Entry]) -> str:
    """Return the id of one folder's tree; `path` is the plain name of each entry."""

    def order(entry: Entry) -> bytes:
        # git sorts folders as if their names ended with a slash.
        return entry.path.encode() + (b"/" if entry.mode == FOLDER else b"")

    content = b"".join(
        f"{entry.mode.lstrip('0')} {entry.path}\0".encode() + bytes.fromhex(entry.sha)
        for entry in sorted(entries, key=order)
    )
    return object_id("tree", content)


def commit_id(message: str, tree: str, parents: Sequence[str], author: Author) -> str:
    """Return the id of a commit that its author makes."""
    lines = [
        f"tree {tree}",
        *(f"parent {parent}" for parent in parents),
        f"author {author.signature}",
        f"committer {author.signature}",
        "",
        message,
    ]
    return object_id("commit", "\n".join(lines).encode())
