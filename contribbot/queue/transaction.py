"""Changing files of a queue, all or none: whoever meets a log left by a kill carries it out."""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import stat
from collections.abc import Callable, Iterator, Sequence
from contextvars import ContextVar
from pathlib import Path
from typing import Annotated, Final, TypeVar

from pydantic import Field, ValidationError

from contribbot import process
from contribbot.errors import ContribbotError, MachineError, QueueError
from contribbot.files import lock, write_atomically
from contribbot.model.base import Model
from contribbot.model.patch import PatchFile
from contribbot.process import remove_tree

T = TypeVar("T")

_FULL: Final = frozenset({errno.ENOSPC, errno.EDQUOT})


class _LoggedChange(Model):
    """A file that gets what is staged under a name; without one it goes."""

    path: str
    staged: str = ""


class _Log(Model):
    """The last change: its number, and its steps as long as they are not carried out."""

    number: int = 0
    steps: Annotated[tuple[_LoggedChange, ...], Field(strict=False)] = ()


def _read_log(folder: Path) -> _Log:
    path = folder / ".contribbot" / "queue.log"
    try:
        return _Log.model_validate_json(path.read_bytes())
    except (FileNotFoundError, NotADirectoryError):
        return _Log()
    except ValidationError as error:
        raise MachineError(
            f"{path}: cannot be read, and may hold a change that a kill cut short",
            hint="restore patches/ and history/ from the queue's own git, and remove the file",
        ) from error


def _write_log(folder: Path, log: _Log) -> None:
    path = folder / ".contribbot" / "queue.log"
    write_atomically(path, log.model_dump_json(exclude_defaults=True).encode())
    _sync(path.parent)


def _sync(path: Path) -> None:
    """Bring the names in a folder to the disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    except OSError as error:
        if error.errno != errno.EINVAL:
            raise
    finally:
        os.close(handle)


#: What transactions would change, while a rehearsal lasts.
_rehearsal: Final[ContextVar[list[str] | None]] = ContextVar("_rehearsal", default=None)


@contextlib.contextmanager
def rehearsal() -> Iterator[list[str]]:
    """Let transactions do all but the writing; give what they would do, a line each file."""
    planned: list[str] = []
    token = _rehearsal.set(planned)
    try:
        yield planned
    finally:
        _rehearsal.reset(token)


class Transaction:
    """Changes of a queue's files that take effect together. Made by `transaction`."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._contents: dict[str, bytes | None] = {}
        self.finished = False

    def write(self, path: str, content: bytes) -> None:
        """Note what a file shall hold. It keeps its permissions; a link to a file is followed."""
        self._contents[_checked(path)] = content

    def delete(self, path: str) -> None:
        """Note that a file goes, and its folder with it when nothing is left in it."""
        self._contents[_checked(path)] = None

    def replace_files(
        self, folder: str, old: Sequence[PatchFile], new: Sequence[PatchFile]
    ) -> None:
        """Note that files of a folder go, and others come."""
        for file in old:
            self.delete(f"{folder}/{file.name}")
        for file in new:
            self.write(f"{folder}/{file.name}", file.content)

    def read(self, path: str) -> bytes | None:
        """Return what a file holds, or will hold after `commit`; None where there is none."""
        if _checked(path) in self._contents:
            return self._contents[path]
        place = self._folder / path
        return place.read_bytes() if place.is_file() else None

    def commit(self) -> bool:
        """Make all changes, now and not at the end of the block; say whether there were any."""
        if self.finished:
            raise RuntimeError("a transaction ends once")
        self.finished = True
        try:
            changed = {path: new for path, new in self._contents.items() if self._differs(path)}
            if (planned := _rehearsal.get()) is not None:
                planned += [f"{'delete' if new is None else 'write'} {path}"
                            for path, new in changed.items()]  # fmt: skip
                return bool(changed)
            if changed:
                self._log(changed)
        except OSError as error:
            raise _unchanged(error, self._folder) from error
        if changed:
            _carry_out(self._folder)
        return bool(changed)

    def _differs(self, path: str) -> bool:
        """Say whether a change is one; refuse what could not be carried out."""
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

    def _log(self, changed: dict[str, bytes | None]) -> None:
        """Stage contents, and write the log: from then on the change is made."""
        number = _read_log(self._folder).number + 1
        stage = self._folder / ".contribbot" / f"txn-{number}"
        stage.mkdir()
        steps = []
        try:
            for count, (path, content) in enumerate(changed.items()):
                if content is not None:
                    _stage(stage / str(count), content, self._folder / path)
                steps.append(_LoggedChange(path=path, staged="" if content is None else str(count)))
            _sync(stage)
            # Files first: no folder goes that a file is written to.
            steps.sort(key=lambda step: not step.staged)
            _write_log(self._folder, _Log(number=number, steps=tuple(steps)))
        except BaseException:
            remove_tree(stage)
            raise


def _checked(path: str) -> str:
    """Refuse what is no plain relative path into a folder of the queue."""
    parts = path.split("/")
    if len(parts) < 2 or any(part in {"", ".", ".."} for part in parts) or "\0" in path:  # noqa: PLR2004  a folder and a file
        raise ValueError(f"{path}: not a path into a folder of the queue")
    return path


def _stage(staged: Path, content: bytes, place: Path) -> None:
    """Write what a file shall hold, down to the disk, with the permissions that it has now."""
    with staged.open("xb") as file:
        file.write(content)
        file.flush()
        with contextlib.suppress(FileNotFoundError):
            old = place.stat()
            if old.st_uid != os.geteuid():
                with contextlib.suppress(PermissionError):
                    os.fchown(file.fileno(), old.st_uid, old.st_gid)
            os.fchmod(file.fileno(), stat.S_IMODE(old.st_mode))
        os.fsync(file.fileno())


def _carry_out(folder: Path) -> None:
    """Do what the log says, as often as need be, and note that it is done."""
    log = _read_log(folder)
    stage = folder / ".contribbot" / f"txn-{log.number}"
    try:
        for step in log.steps:
            place = folder / _checked(step.path)
            if step.staged:
                _put(stage / step.staged, place.resolve())
                continue
            place.unlink(missing_ok=True)
            # Folders go with their last file, but for `patches` and its like.
            top, around = folder / step.path.partition("/")[0], place.parent
            with contextlib.suppress(OSError):
                while around != top:
                    around.rmdir()
                    around = around.parent
        for around in {(folder / step.path).parent.resolve() for step in log.steps}:
            if around.is_dir():
                _sync(around)
        _write_log(folder, _Log(number=log.number))
        remove_tree(stage)
    except OSError as error:
        raise MachineError(
            f"{error.filename2 or error.filename or folder}: {error.strerror or error}; a change "
            "of the queue is not carried out to its end",
            hint="put that right: the next command does the rest",
        ) from error


def _put(staged: Path, place: Path) -> None:
    """Put a staged file into its place, unless a killed run did so."""
    if not staged.exists():
        return
    place.parent.mkdir(parents=True, exist_ok=True)
    # Also where the patch is a link to another file system.
    shutil.move(staged, place)


def _unchanged(error: OSError, folder: Path) -> ContribbotError:
    """Word an error of the operating system before which nothing was changed."""
    place = error.filename2 or error.filename or folder
    message = f"{place}: {error.strerror or error}; the queue is as it was"
    if error.errno in _FULL:
        return process.no_space(message)
    return MachineError(message, hint="check that the folder is yours and can be written")


@contextlib.contextmanager
def hold_queue(folder: Path) -> Iterator[None]:
    """Hold the queue's lock; a change that was cut short is carried out first."""
    with lock(folder / ".contribbot" / "queue.lock", f"the queue {folder}"):
        if _read_log(folder).steps:
            _carry_out(folder)
        for left in (folder / ".contribbot").glob("txn-*"):
            remove_tree(left)
        yield


@contextlib.contextmanager
def transaction(folder: Path) -> Iterator[Transaction]:
    """Hold the lock, and make changes if the block ends well; load the queue inside the block."""
    with contextlib.ExitStack() as stack:
        try:
            stack.enter_context(hold_queue(folder))
        except OSError as error:
            raise _unchanged(error, folder) from error
        changes = Transaction(folder)
        yield changes
        if not changes.finished:
            changes.commit()


def consistent(folder: Path, read: Callable[[], T]) -> T:
    """Read files of a queue as they are between two changes, never in the middle of one."""
    while True:
        before = _read_log(folder)
        if before.steps:
            # Somebody is at it, or was killed: the next who gets the lock finishes it.
            with hold_queue(folder):
                continue
        try:
            result = read()
        except (QueueError, OSError):
            if _read_log(folder) == before:
                raise
            continue
        if _read_log(folder) == before:
            return result
