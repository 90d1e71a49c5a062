"""The ids that git gives to objects: they follow from the content."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

from contribbot.model.gitdata import NewCommit, Person, TreeEntry


def object_id(kind: str, content: bytes) -> str:
    """Return the id of an object (SHA-1, the format that GitHub uses)."""
    head = f"{kind} {len(content)}\0".encode()
    return hashlib.sha1(head + content, usedforsecurity=False).hexdigest()


def blob_id(content: bytes) -> str:
    """Return the id of a file's content."""
    return object_id("blob", content)


def tree_id(entries: Sequence[TreeEntry]) -> str:
    """Return the id of one folder's tree; `path` is the plain name of each entry."""

    def order(entry: TreeEntry) -> bytes:
        # git sorts folders as if their names ended with a slash.
        return entry.path.encode("utf-8", "surrogateescape") + (b"/" if entry.is_folder else b"")

    content = b"".join(
        entry.mode.lstrip("0").encode()
        + b" "
        + entry.path.encode("utf-8", "surrogateescape")
        + b"\0"
        + bytes.fromhex(entry.sha)
        for entry in sorted(entries, key=order)
    )
    return object_id("tree", content)


def commit_id(commit: NewCommit) -> str:
    """Return the id of a commit."""
    lines = [
        f"tree {commit.tree}",
        *(f"parent {one}" for one in commit.parents),
        f"author {_signature(commit.author)}",
        f"committer {_signature(commit.committer or commit.author)}",
        "",
        commit.message,
    ]
    return object_id("commit", "\n".join(lines).encode("utf-8", "surrogateescape"))


def _signature(person: Person) -> str:
    return f"{person.name} <{person.email}> {int(person.date.timestamp())} {person.date:%z}"
