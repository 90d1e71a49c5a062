"""Changing files of a queue: all of them or none, by a redo log.

The new contents are staged in `.contribbot/txn-N`, and `.contribbot/queue.log`, written last, names
what is to be done with them. From then on the change is made: whoever meets a log that was
not carried out carries it out first, so no command works on half a change.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final, TypeVar

from pydantic import ValidationError

from contribbot import process
from contribbot.errors import ContribbotError, MachineError, QueueError
from contribbot.files import lock, write_atomically
from contribbot.model.base import Model

T = TypeVar("T")

#: Full, or this user's share of it is.
_FULL: Final = frozenset({errno.ENOSPC, errno.EDQUOT})


class _Step(Model):
    """What becomes of a file: it gets what is staged, or lines at its end; or it goes."""

    path: str
    staged: str = ""
    lines: tuple[str, ...] = ()


class _Log(Model):
    """The last change: its number, and its steps as long as they are not carried out."""

    number: int = 0
    steps: tuple[_Step, ...] = ()


def _log_file(folder: Path) -> Path:
    return folder / ".contribbot" / "queue.log"


def _read_log(folder: Path) -> _Log:
    path = _log_file(folder)
    try:
        return _Log.model_validate(json.loads(path.read_bytes()), strict=False)
    except (FileNotFoundError, NotADirectoryError):
        return _Log()
    except (ValidationError, ValueError) as error:
        raise MachineError(
            f"{path}: cannot be read, and may hold a change that a kill cut short",
            hint="restore patches/ and history/ from the queue's own git, and remove the file",
        ) from error


def sync(path: Path) -> None:
    """Bring a file, or the names in a folder, to the disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    except OSError as error:
        if error.errno != errno.EINVAL:
            raise
    finally:
        os.close(handle)


@contextlib.contextmanager
def held_history(folder: Path) -> Iterator[None]:
    """Hold the journals of a queue: nobody else adds to them meanwhile."""
    with lock(folder / ".contribbot" / "history.lock", f"the history of {folder}"):
        yield


def append_line(path: Path, line: bytes) -> None:
    """Add a line of JSON to a file, down to the disk; a last line that a kill cut short goes."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("ab+", buffering=0) as file:
        file.seek(0)
        content = file.read()
        size = content.rfind(b"\n") + 1
        if last := content[size:]:
            try:
                json.loads(last)
                size, line = len(content), b"\n" + line
            except ValueError:
                file.truncate(size)
        try:
            while line:
                line = line[file.write(line) :]
            os.fsync(file.fileno())
        except OSError:
            # A full disk: no part of the line stays.
            file.truncate(size)
            raise
    for folder in (path.parent, path.parent.parent):
        sync(folder)


class Transaction:
    """Changes of a queue's files that take effect together. Made by `transaction`."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._contents: dict[str, bytes | None] = {}
        self._lines: dict[str, list[bytes]] = {}
        self.finished = False

    def write(self, path: str, content: bytes) -> None:
        """Note what a file shall hold. It keeps its permissions; a link to a file is followed."""
        self._contents[_checked(path)] = content

    def delete(self, path: str) -> None:
        """Note that a file goes, and its folder with it when nothing is left in it."""
        self._contents[_checked(path)] = None

    def append(self, path: str, line: bytes) -> None:
        """Note a line of JSON, its end included, that comes to the end of a journal."""
        self._lines.setdefault(_checked(path), []).append(line)

    def read(self, path: str) -> bytes | None:
        """Return what a file holds, or will hold after `commit`; None where there is none."""
        content = self._contents.get(_checked(path), b"")
        if path not in self._contents:
            place = self._folder / path
            content = place.read_bytes() if place.is_file() else None
        added = b"".join(self._lines.get(path, ()))
        return (content or b"") + added if added else content

    def commit(self) -> bool:
        """Make all changes, now and not at the end of the block; say whether there were any."""
        if self.finished:
            raise RuntimeError("a transaction ends once")
        self.finished = True
        try:
            changed = {path: new for path, new in self._contents.items() if self._differs(path)}
            if not changed and not self._lines:
                return False
            self._log(changed)
        except OSError as error:
            raise _unchanged(error, self._folder) from error
        _carry_out(self._folder)
        return True

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
                steps.append(_Step(path=path, staged="" if content is None else str(count)))
            for path, lines in self._lines.items():
                steps.append(_Step(path=path, lines=tuple(line.decode() for line in lines)))
            sync(stage)
            # Files first: no folder goes that a file is written to.
            steps.sort(key=lambda step: not (step.staged or step.lines))
            _write_log(self._folder, _Log(number=number, steps=tuple(steps)))
        except BaseException:
            process.remove_tree(stage)
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


def _write_log(folder: Path, log: _Log) -> None:
    write_atomically(_log_file(folder), log.model_dump_json(exclude_defaults=True).encode())
    sync(_log_file(folder).parent)


def _carry_out(folder: Path) -> None:
    """Do what the log says, as often as need be, and note that it is done."""
    log = _read_log(folder)
    stage = folder / ".contribbot" / f"txn-{log.number}"
    try:
        for step in log.steps:
            place = folder / _checked(step.path)
            if step.lines:
                _append(folder, place, step.lines)
            elif step.staged:
                _put(stage / step.staged, place.resolve())
            else:
                place.unlink(missing_ok=True)
                _prune(place.parent, top=folder / step.path.partition("/")[0])
        for around in {(folder / step.path).parent.resolve() for step in log.steps}:
            if around.is_dir():
                sync(around)
        _write_log(folder, _Log(number=log.number))
        process.remove_tree(stage)
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
    try:
        staged.replace(place)
    except OSError as error:
        if error.errno != errno.EXDEV:
            raise
        # The patch is a link to another file system.
        write_atomically(place, staged.read_bytes())
        place.chmod(stat.S_IMODE(staged.stat().st_mode))


def _append(folder: Path, path: Path, lines: tuple[str, ...]) -> None:
    """Add lines to a journal, those that a killed run did not."""
    with held_history(folder):
        known = path.read_bytes() if path.is_file() else b""
        for line in lines:
            if line.encode() not in known:
                append_line(path, line.encode())


def _prune(folder: Path, *, top: Path) -> None:
    """Remove a folder and those above it, below a top, as far as nothing is left in them."""
    with contextlib.suppress(OSError):
        while folder != top:
            folder.rmdir()
            folder = folder.parent


def _unchanged(error: OSError, folder: Path) -> ContribbotError:
    """Word an error of the operating system before which nothing was changed."""
    place = error.filename2 or error.filename or folder
    said = f"{place}: {error.strerror or error}; the queue is as it was"
    if error.errno in _FULL:
        return process.no_space(said)
    return MachineError(said, hint="check that the folder is yours and can be written")


@contextlib.contextmanager
def transaction(folder: Path) -> Iterator[Transaction]:
    """Hold the queue's lock, and make changes when the block ends well.

    Who waited for the lock must read the queue afresh: load it inside the block.
    A block that raises changes nothing.
    """
    with contextlib.ExitStack() as stack:
        try:
            guard = lock(folder / ".contribbot" / "queue.lock", f"the queue {folder}")
            stack.enter_context(guard)
            if _read_log(folder).steps:
                _carry_out(folder)
            for left in (folder / ".contribbot").glob("txn-*"):
                process.remove_tree(left)
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
            with transaction(folder):
                continue
        try:
            result = read()
        except (QueueError, OSError):
            if _read_log(folder) == before:
                raise
            continue
        if _read_log(folder) == before:
            return result
