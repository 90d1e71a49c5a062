"""Changing files of a queue: all of them at once, or none.

For whoever looks at the files, killed at any moment, the queue is what it was before
or what it is after. The smallest folder that holds all changes is copied aside (its
files get second names, which costs nothing), changed there, brought to the disk, and
exchanged with the one in place in one step. The folder that was there is then brought
up to date and exchanged back: a shell or an editor that stands in it stays where it is.
"""

from __future__ import annotations

import contextlib
import errno
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Final

from contribbot import process
from contribbot.errors import ContribbotError, MachineError, QueueError
from contribbot.locks import lock
from contribbot.queue import swap, torn

#: Full, or this user's share of it is.
_FULL: Final = frozenset({errno.ENOSPC, errno.EDQUOT})


@dataclass(frozen=True)
class _Change:
    """What becomes of one file: its content, or None where it goes."""

    content: bytes | None
    executable: bool


class Transaction:
    """Changes of a queue's files that take effect together. Made by `transaction`."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._changes: dict[str, _Change] = {}
        self._done = False

    def write(self, path: str, content: bytes, *, executable: bool = False) -> None:
        """Note what a file shall hold; folders are made for it.

        A file that is there keeps its permissions. A link to a file is followed.
        """
        self._changes[_checked(path)] = _Change(content, executable)

    def delete(self, path: str) -> None:
        """Note that a file goes, and its folder with it when nothing is left in it."""
        self._changes[_checked(path)] = _Change(None, executable=False)

    def read(self, path: str) -> bytes | None:
        """Return what a file holds, or will hold after `commit`; None where there is none."""
        change = self._changes.get(_checked(path))
        if change is not None:
            return change.content
        place = self._folder / path
        return place.read_bytes() if place.is_file() else None

    def commit(self) -> bool:
        """Bring all changes onto the disk in one step, now and not at the end of the block."""
        if self._done:
            raise RuntimeError("a transaction ends once")
        self._done = True
        try:
            wanted = {
                self._place(path, change): swap.Wanted(change.content, change.executable)
                for path, change in self._changes.items()
            }
            wanted = {place: one for place, one in wanted.items() if not one.is_there(place)}
            if not wanted:
                return False
            swap.make(self._folder, _root(self._folder, list(wanted)), wanted)
        except OSError as error:
            raise _unchanged(error, self._folder) from error
        return True

    @property
    def finished(self) -> bool:
        """Whether `commit` was called."""
        return self._done

    def _place(self, path: str, change: _Change) -> Path:
        """Return where a change happens: links are followed, but a link that goes is itself."""
        place = self._folder / path
        if change.content is not None and place.is_symlink():
            place = place.resolve()
        place = place.parent.resolve() / place.name
        if place.is_dir() and not place.is_symlink():
            raise QueueError(f"{place}: a folder, where a file belongs", hint="move it away")
        return place


def _checked(path: str) -> str:
    """Refuse what is no plain relative path into a folder of the queue."""
    parts = path.split("/")
    if len(parts) < 2 or any(part in {"", ".", ".."} for part in parts) or "\0" in path:  # noqa: PLR2004  a folder and a file
        raise ValueError(f"{path}: not a path into a folder of the queue")
    return str(PurePosixPath(path))


def _root(folder: Path, places: list[Path]) -> Path:
    """Return the folder around all changes that the queue has as a whole."""
    top = folder.resolve()
    roots = {_belongs(top, place): place for place in places}
    if len(roots) > 1:
        first, second = sorted(str(place) for place in roots.values())[:2]
        raise QueueError(
            f"{first} and {second} lie in folders that cannot be changed in one step",
            hint="put the patch's own folder where the link to it is",
        )
    return next(iter(roots))


def _belongs(top: Path, place: Path) -> Path:
    """Return the outermost folder of the queue around a place."""
    if place.is_relative_to(top):
        return top / place.relative_to(top).parts[0]
    linked = [
        one.resolve()
        for one in (top / "patches", *(top / "patches").glob("*"))
        if one.is_symlink() and one.is_dir()
    ]
    around = [one for one in linked if place.is_relative_to(one)]
    return min(around, key=lambda one: len(one.parts), default=place.parent)


def _unchanged(error: OSError, folder: Path) -> ContribbotError:
    """Word an error of the operating system before which nothing was changed."""
    place = error.filename2 or error.filename or folder
    said = f"{place}: {error.strerror or error}; the queue is as it was"
    if error.errno in _FULL:
        return process.no_space(said)
    if error.errno == errno.EXDEV:
        return MachineError(
            f"{place}: on another file system than what is changed with it; the queue is as it was",
            hint="keep the folders of a queue on one file system",
        )
    return MachineError(said, hint="check that the folder is yours and can be written")


@contextlib.contextmanager
def transaction(folder: Path) -> Iterator[Transaction]:
    """Hold the queue's lock, and bring changes onto the disk when the block ends well.

    Who waited for the lock must read the queue afresh: load it inside the block.
    A block that raises changes nothing.
    """
    with contextlib.ExitStack() as stack:
        try:
            guard = lock(folder / ".contribbot" / "queue.lock", f"the queue {folder}")
            stack.enter_context(guard)
            torn.put_back(folder)
        except OSError as error:
            raise _unchanged(error, folder) from error
        changes = Transaction(folder)
        yield changes
        if not changes.finished:
            changes.commit()


def recover(folder: Path) -> None:
    """Put back what a kill left where the file system knows no exchange. One look, as a rule."""
    if not torn.is_torn(folder):
        return
    try:
        with lock(folder / ".contribbot" / "queue.lock", f"the queue {folder}"):
            torn.put_back(folder)
    except OSError as error:
        raise MachineError(
            f"{folder}: a change was cut short, and cannot be put back: {error}",
            hint=f"see {torn.torn_file(folder)}",
        ) from error
