"""Writing commits into a store: all of a run with one process."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from contribbot.errors import MachineError
from contribbot.store.fastimport import quoted
from contribbot.store.objects import object_id
from contribbot.store.overlay import Change
from contribbot.store.repository import Store

_ARGV: Final = (
    # Small objects that are thrown away soon: speed before size.
    "-c", "core.compression=1",
    "fast-import", "--done", "--quiet", "--date-format=raw-permissive", "--depth=0",
)  # fmt: skip
#: Only a name for fast-import to work with: no such ref is ever written.
_REF: Final = b"refs/contribbot/unwritten"


@dataclass(frozen=True)
class Commit:
    """A commit with one parent, before it is written.

    Attributes:
        tree: The id of its tree.
        parent: The id of its parent.
        author: Name, address, seconds and zone, as a commit has them.
        committer: The same of who commits.
        message: The message.
        changes: What is different in its tree from its parent's.
    """

    tree: str
    parent: str
    author: bytes
    committer: bytes
    message: bytes
    changes: tuple[Change, ...]

    @property
    def id(self) -> str:
        """The id that git gives to it."""
        head = b"tree %s\nparent %s\nauthor %s\ncommitter %s\n\n" % (
            self.tree.encode(), self.parent.encode(), self.author, self.committer,
        )  # fmt: skip
        return object_id("commit", head + self.message)


def committer(author: bytes) -> bytes:
    """Return contribbot as the committer, at the author's date."""
    return b"contribbot <contribbot@localhost>" + author[author.rindex(b">") + 1 :]


def write_commits(store: Store, commits: Sequence[Commit]) -> None:
    """Write commits, with their trees and blobs, that are not there yet.

    Call it inside `store.exclusive()`.
    """
    wanted = [one for one in {one.id: one for one in commits}.values() if not _loose(store, one.id)]
    if not wanted:
        return
    marks = {one.id: mark for mark, one in enumerate(wanted, start=1)}
    pieces: list[bytes] = []
    for one, mark in zip(wanted, marks.values(), strict=True):
        above = marks.get(one.parent)
        parent = f":{above}" if above else one.parent
        pieces.append(
            b"commit %s\nmark :%d\nauthor %s\ncommitter %s\ndata %d\n%s\nfrom %s\n"
            % (_REF, mark, one.author, one.committer, len(one.message), one.message,
               parent.encode())
        )  # fmt: skip
        # What goes first: a folder may stand where a file was.
        pieces += [_change(change) for change in sorted(one.changes, key=_stays)]
        pieces.append(b"\nget-mark :%d\n" % mark)
    # Forgets the branch, so that no ref is written.
    pieces.append(b"reset %s\n\ndone\n" % _REF)
    made = store.git(*_ARGV, stdin=b"".join(pieces), timeout=600.0).stdout.decode().split()
    if made != list(marks):
        raise MachineError(
            f"{store.path.name}: git wrote other commits than were asked for",
            hint="report this with the patch; nothing was changed",
        )


def _stays(change: Change) -> bool:
    return change.entry is not None


def _change(change: Change) -> bytes:
    """Return a change as fast-import reads it."""
    path = quoted(change.path)
    if change.entry is None:
        return b"D %s\n" % path
    mode = change.entry.mode.encode()
    if change.content is None:
        return b"M %s %s %s\n" % (mode, change.entry.blob.encode(), path)
    return b"M %s inline %s\ndata %d\n%s\n" % (mode, path, len(change.content), change.content)


def _loose(store: Store, commit_id: str) -> bool:
    """Say whether a commit lies in the store by itself; of those in packs git knows."""
    return (store.path / "objects" / commit_id[:2] / commit_id[2:]).is_file()
