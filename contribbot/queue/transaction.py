"""Change files of a queue: lock, write all to a stage, rename into place, log the operation.

If a crash stops a change between two renames, the next process with the lock finishes it.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import shutil
import stat
from collections.abc import Callable, Iterator, Sequence
from contextvars import ContextVar
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final, TypeVar

from contribbot.errors import ContribbotError, MachineError, NoSpaceError, QueueError
from contribbot.files import lock
from contribbot.model.patch import PatchFile
from contribbot.process import remove_tree
from contribbot.queue.operations import OperationLog

T = TypeVar("T")

_FULL: Final = frozenset({errno.ENOSPC, errno.EDQUOT})
#: The folder of a completely written change, and the file in this folder that lists the paths.
_STAGE: Final = ".contribbot/change"
_PLAN: Final = "change.json"

#: Whether this thread has a queue's lock.
_holding: Final[ContextVar[bool]] = ContextVar("_holding", default=False)


class Transaction:
    """Changes of a queue's files that take effect together; `transaction` makes this object."""

    def __init__(self, folder: Path, operation: str = "") -> None:
        self._folder, self._operation = folder, operation
        self._contents: dict[str, bytes | None] = {}
        self.finished = False
        #: Whether a journal gets a version: then the operation log must get the version's files.
        self.has_version = False

    def write(self, path: str, content: bytes) -> None:
        """Note a file's new content; permissions stay, and a symbolic link is followed."""
        self._contents[path] = content

    def delete(self, path: str) -> None:
        """Note that a file must be deleted, and its folder if the folder becomes empty."""
        self._contents[path] = None

    def replace_files(
        self, folder: str, old: Sequence[PatchFile], new: Sequence[PatchFile]
    ) -> None:
        """Note that a folder's old files must be deleted and new files written."""
        for file in old:
            self.delete(f"{folder}/{file.name}")
        for file in new:
            self.write(f"{folder}/{file.name}", file.content)

    def read(self, path: str) -> bytes | None:
        """Return a file's noted content, or else that on the disk; None: there is no file."""
        if path in self._contents:
            return self._contents[path]
        place = self._folder / path
        return place.read_bytes() if place.is_file() else None

    def commit(self) -> bool:
        """Make all noted changes now; return whether a file changed."""
        self.finished = True
        try:
            changed = {path: new for path, new in self._contents.items() if self._differs(path)}
            if changed:
                self._make(changed)
        except OSError as error:
            raise _unchanged(error, self._folder) from error
        return bool(changed)

    def _make(self, changed: dict[str, bytes | None]) -> None:
        """Write all contents to a stage, log the old files, and move the new files into place."""
        operation = any(path.startswith("patches/") for path in changed)
        log = OperationLog.find(self._folder) if operation or self.has_version else None
        summary = self._operation or f"change of {', '.join(changed)}"
        stage = self._folder / _STAGE
        building = stage.with_suffix(".partial")
        remove_tree(building)
        try:
            for path, content in changed.items():
                if content is not None:
                    _stage(building / "files" / path, content, self._folder / path)
            gone = tuple(path for path, content in changed.items() if content is None)
            written = tuple(path for path in changed if path not in gone)
            staged = _Staged(summary=summary, operation=operation, written=written, gone=gone)
            _stage(building / _PLAN, json.dumps(asdict(staged)).encode(), building / _PLAN)
            if log is not None:
                log.record("state" if operation else "version", summary, changed)
        except BaseException:
            remove_tree(building)
            raise
        building.rename(stage)
        _finish(self._folder)

    def _differs(self, path: str) -> bool:
        """Return whether a file's new content differs from the disk; raise if the disk refuses."""
        place, content = self._folder / path, self._contents[path]
        if place.is_dir() and not place.is_symlink():
            raise QueueError(f"{place}: a folder, where a file belongs", hint="move it away")
        if content is None and not os.path.lexists(place):
            return False
        if content is not None and place.is_file() and place.read_bytes() == content:
            return False
        around = (place.resolve() if content is not None else place).parent
        while not os.path.lexists(around):
            around = around.parent
        if not around.is_dir():
            raise QueueError(f"{around}: a file, where a folder belongs", hint="move it away")
        if not os.access(around, os.W_OK | os.X_OK):
            raise PermissionError(errno.EACCES, "it may not be written", str(around))
        return True


def _stage(staged: Path, content: bytes, place: Path) -> None:
    """Write a file's new content to the stage, flushed to disk, with the old permissions."""
    staged.parent.mkdir(parents=True, exist_ok=True)
    with staged.open("xb") as file:
        file.write(content)
        file.flush()
        with contextlib.suppress(FileNotFoundError):
            old = place.stat()
            os.fchmod(file.fileno(), stat.S_IMODE(old.st_mode))
        os.fsync(file.fileno())


@dataclass(frozen=True)
class _Staged:
    """The list of a staged change: the paths to write, then the paths to delete."""

    summary: str
    operation: bool
    written: Sequence[str]
    gone: Sequence[str]


def _finish(folder: Path) -> None:
    """Move staged files into place, delete files, remove the stage, and log the operation."""
    stage = folder / _STAGE
    try:
        staged = _Staged(**json.loads((stage / _PLAN).read_bytes()))
    except FileNotFoundError:  # an older contribbot made this stage
        remove_tree(stage)
        return
    try:
        for path in staged.written:
            content, place = stage / "files" / path, (folder / path).resolve()
            if content.exists():  # else an interrupted run has moved the file already
                place.parent.mkdir(parents=True, exist_ok=True)
                # `move`, not `rename`: a patch's folder may be a link to another file system.
                shutil.move(content, place)
        for path in staged.gone:
            place = folder / path
            place.unlink(missing_ok=True)
            # Remove folders that became empty, except top folders such as `patches`.
            top, around = folder / path.partition("/")[0], place.parent
            with contextlib.suppress(OSError):
                while around != top:
                    around.rmdir()
                    around = around.parent
    except OSError as error:
        raise MachineError(
            f"{error.filename2 or error.filename or folder}: {error.strerror or error}; a change "
            "of the queue was cut short",
            hint="put that right; the next command finishes the change",
        ) from error
    remove_tree(stage)
    log = OperationLog.find(folder) if staged.operation else None
    if log is not None:
        log.record("operation", staged.summary, (*staged.written, *staged.gone))


def _unchanged(error: OSError, folder: Path) -> ContribbotError:
    """Return the error for an OSError that came before any file of the queue changed."""
    place = error.filename2 or error.filename or folder
    message = f"{place}: {error.strerror or error}; the queue is as it was"
    if error.errno in _FULL:
        return NoSpaceError(message, hint="free some space there")
    return MachineError(message, hint="check that the folder is yours and can be written")


@contextlib.contextmanager
def hold_queue(folder: Path) -> Iterator[None]:
    """Hold the queue's lock; first finish a change that a crash interrupted."""
    with lock(folder / ".contribbot" / "queue.lock", f"the queue {folder}"):
        token = _holding.set(True)
        try:
            if (folder / _STAGE).exists():
                _finish(folder)
            yield
        finally:
            _holding.reset(token)


@contextlib.contextmanager
def transaction(folder: Path, operation: str = "") -> Iterator[Transaction]:
    """Hold the queue's lock, yield a transaction, and commit it if the block raises nothing."""
    with contextlib.ExitStack() as stack:
        try:
            if not _holding.get():
                stack.enter_context(hold_queue(folder))
        except OSError as error:
            raise _unchanged(error, folder) from error
        changes = Transaction(folder, operation)
        yield changes
        if not changes.finished:
            changes.commit()


def consistent(folder: Path, read: Callable[[], T]) -> T:
    """Return what `read` returns for a queue's files, at a time without a half-made change."""
    try:
        found = read()
        if _holding.get() or not (folder / _STAGE).exists():
            return found
    except (QueueError, OSError):
        if _holding.get() or not (folder / ".contribbot" / "queue.lock").exists():
            raise
    with hold_queue(folder):
        return read()
