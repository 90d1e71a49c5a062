"""Changing files of a queue: all of them at once, or none.

For whoever looks at the files, killed at any moment, the queue is what it was before
or what it is after. The smallest folder that holds all changes is copied aside (its
files get second names, which costs nothing), changed there, brought to the disk, and
exchanged with the one in place in one step. The folder that was there is then brought
up to date and exchanged back: a shell or an editor that stands in it stays where it is.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import functools
import hashlib
import json
import os
import shutil
import stat
import uuid
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Final

from contribbot import process
from contribbot.errors import ContribbotError, MachineError, QueueError
from contribbot.files import lock, write_atomically

#: renameat2(2) of Linux.
_AT_FDCWD: Final = -100
_RENAME_EXCHANGE: Final = 2
#: What renameat2(2) says where the kernel or the file system does not know the flag.
_UNKNOWN: Final = frozenset({errno.ENOSYS, errno.EINVAL, errno.EOPNOTSUPP})
#: What link(2) says where a file cannot have a second name: the file system knows no hard
#: links, the file has too many, or it is somebody else's (fs.protected_hardlinks).
_NO_LINK: Final = frozenset({errno.EPERM, errno.EACCES, errno.EOPNOTSUPP, errno.EMLINK})


class CannotExchangeError(Exception):
    """The kernel or the file system knows no exchange."""


@functools.cache
def _renameat2() -> Callable[[int, bytes, int, bytes, int], int] | None:
    """Return the C library's renameat2; None where it has none."""
    try:
        function = ctypes.CDLL(None, use_errno=True).renameat2
    except (OSError, AttributeError):
        return None
    function.restype = ctypes.c_int
    function.argtypes = (
        ctypes.c_int, ctypes.c_char_p, ctypes.c_int, ctypes.c_char_p, ctypes.c_uint,
    )  # fmt: skip
    return function


def exchange(first: Path, second: Path) -> None:
    """Let two names change places in one step. Whoever looks sees both or neither moved."""
    function = _renameat2()
    if function is None:
        raise CannotExchangeError
    names = os.fsencode(first), os.fsencode(second)
    if function(_AT_FDCWD, names[0], _AT_FDCWD, names[1], _RENAME_EXCHANGE) == 0:
        return
    number = ctypes.get_errno()
    if number in _UNKNOWN:
        raise CannotExchangeError
    raise OSError(number, os.strerror(number), str(second))


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


def write_file(path: Path, content: bytes, *, before: Path, executable: bool) -> None:
    """Write a new file, down to the disk."""
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)
    with os.fdopen(handle, "wb") as file:
        file.write(content)
        file.flush()
        found = os.fstat(handle)
        mode = stat.S_IMODE(found.st_mode)
        with contextlib.suppress(FileNotFoundError):
            old = before.stat()
            mode = stat.S_IMODE(old.st_mode)
            if (old.st_uid, old.st_gid) != (found.st_uid, found.st_gid):
                with contextlib.suppress(PermissionError):
                    os.fchown(handle, old.st_uid, old.st_gid)
        os.fchmod(handle, mode | (mode & 0o444) >> 2 if executable else mode)
        os.fsync(handle)


#: What a copy held when it was made: for each path the inode, size and time of change (ns).
Inventory = dict[str, tuple[int, int, int]]


def mark(path: Path) -> tuple[int, int, int]:
    """Return what tells a file from another, or from itself after a change."""
    found = path.lstat()
    return found.st_ino, found.st_size, found.st_mtime_ns


def copy_folder(source: Path, target: Path, *, without: Collection[str]) -> Inventory:
    """Copy a folder by giving its files second names; what cannot have one is copied.

    Folders keep permissions and owner. Links are copied as links. The names are not
    brought to the disk yet: see `sync_folders`.
    """
    held: Inventory = {}
    # Open to us while it is filled; it gets the source's permissions at the end.
    target.mkdir(mode=0o700)
    device = source.stat().st_dev
    pending = [(source, target, "")]
    folders = []
    while pending:
        old, new, prefix = pending.pop()
        folders.append((old, new))
        for entry in sorted(os.scandir(old), key=lambda one: one.name):
            inside = prefix + entry.name
            if inside in without:
                continue
            if entry.is_dir(follow_symlinks=False):
                if entry.stat(follow_symlinks=False).st_dev != device:
                    raise OSError(errno.EXDEV, "another file system is mounted there", entry.path)
                (new / entry.name).mkdir(mode=0o700)
                pending.append((Path(entry.path), new / entry.name, inside + "/"))
                continue
            _second_name(Path(entry.path), new / entry.name)
            held[inside] = mark(new / entry.name)
    for old, new in reversed(folders):
        like(old, new)
    return held


def _second_name(source: Path, target: Path) -> None:
    """Give a file or link a second name, or copy it."""
    try:
        os.link(source, target, follow_symlinks=False)
    except OSError as error:
        if error.errno not in _NO_LINK:
            raise
    else:
        return
    kind = source.lstat().st_mode
    if stat.S_ISLNK(kind):
        target.symlink_to(source.readlink())
    elif stat.S_ISREG(kind):
        shutil.copy2(source, target)
        sync(target)
    else:
        raise OSError(errno.EPERM, "neither file nor folder nor link", str(source))


def like(old: Path, new: Path) -> None:
    """Give a folder the permissions, owner, times and attributes of another."""
    found = old.stat()
    if (found.st_uid, found.st_gid) != (new.stat().st_uid, new.stat().st_gid):
        with contextlib.suppress(PermissionError):
            os.chown(new, found.st_uid, found.st_gid)
    shutil.copystat(old, new)


def sync_folders(folder: Path) -> None:
    """Bring all names in a folder, at any depth, to the disk."""
    for place, _, _ in os.walk(folder, topdown=False):
        sync(Path(place))


def discard(folder: Path) -> None:
    """Remove a folder with all that is in it, folders without write permission too."""
    if not folder.is_dir():
        return
    for place, _, _ in os.walk(folder):
        with contextlib.suppress(OSError):
            Path(place).chmod(0o700)
    try:
        shutil.rmtree(folder)
    except (OSError, RecursionError):
        # Nested some hundred deep, or partly somebody else's.
        process.remove_tree(folder)


#: Where the folder in place waits, beside it, while another takes its name.
_ASIDE: Final = ".contribbot-old"


def torn_file(queue: Path) -> Path:
    """Return the file that is there while a folder has lost its name."""
    return queue / ".contribbot" / "queue.torn"


def is_torn(queue: Path) -> bool:
    """Say whether a change without an exchange is going on, or was cut short."""
    return torn_file(queue).exists()


def rename_twice(queue: Path, new: Path, target: Path) -> None:
    """Let a folder take the place of another in two steps; `put_back` undoes the first."""
    old = target.parent / _ASIDE / target.name
    discard(old.parent)
    old.parent.mkdir()
    write_atomically(torn_file(queue), json.dumps({"folder": str(target)}).encode() + b"\n")
    sync(torn_file(queue).parent)
    try:
        target.rename(old)
        new.rename(target)
        sync(target.parent)
    finally:
        put_back(queue)


def put_back(queue: Path) -> None:
    """Give a folder its name back, where a change without an exchange was cut short."""
    torn = torn_file(queue)
    try:
        said = json.loads(torn.read_bytes())
    except FileNotFoundError:
        return
    except ValueError:
        said = {}
    if isinstance(said, dict) and isinstance(said.get("folder"), str):
        target = Path(said["folder"])
        old = target.parent / _ASIDE / target.name
        if old.is_dir() and not os.path.lexists(target):
            old.rename(target)
            sync(target.parent)
        discard(old.parent)
    torn.unlink(missing_ok=True)


@dataclass(frozen=True)
class Wanted:
    """What becomes of a file.

    Attributes:
        content: What it holds; None where it goes.
        executable: Whether it may be run by whoever may read it.
    """

    content: bytes | None
    executable: bool

    def is_there(self, place: Path) -> bool:
        """Say whether a place is so already."""
        if self.content is None:
            return not os.path.lexists(place)
        return (
            place.is_file()
            and not place.is_symlink()
            and (not self.executable or os.access(place, os.X_OK))
            and place.read_bytes() == self.content
        )


Changes = Mapping[Path, Wanted]


def make(queue: Path, root: Path, changes: Changes) -> None:
    """Make changes, all in one step."""
    target = Path(os.path.commonpath([place.parent for place in changes]))
    for place in changes:
        _check_writable(place.parent)
    gone = _emptied(root, changes)
    # Beside the folder only where it must be: whoever lists patches/ shall not see it.
    for number, places in enumerate((queue / ".contribbot" / "stage", _beside(queue, target))):
        try:
            with _stage(places) as stage:
                _make_in(stage, queue, target, gone, changes)
        except OSError as error:
            if error.errno != errno.EXDEV or number:
                raise
        else:
            return


def _make_in(stage: Path, queue: Path, target: Path, gone: Path | None, changes: Changes) -> None:
    """Choose the way that needs no more than one step."""
    new = stage / "new"
    if gone is not None:
        gone.rename(new)
        sync(gone.parent)
        return
    if not target.is_dir():
        while not target.parent.is_dir():
            target = target.parent
        new.mkdir()
        _write_into(new, target, changes)
        sync_folders(new)
        new.rename(target)
        sync(target.parent)
        return
    if len(changes) > 1:
        _exchange_folder(new, queue, target, changes)
        return
    (place, wanted), *_ = changes.items()
    if wanted.content is None:
        place.unlink()
    else:
        write_file(new, wanted.content, before=place, executable=wanted.executable)
        new.rename(place)
    sync(place.parent)


def _exchange_folder(new: Path, queue: Path, target: Path, changes: Changes) -> None:
    """Copy a folder with the changes made, and let it take the folder's place."""
    names = {place.relative_to(target).as_posix() for place in changes}
    held = copy_folder(target, new, without=names)
    for place in _write_into(new, target, changes):
        held[place.relative_to(new).as_posix()] = mark(place)
    sync_folders(new)
    try:
        exchange(new, target)
    except CannotExchangeError:
        rename_twice(queue, new, target)
        return
    # From here on the change is made: nothing that fails may say otherwise.
    with contextlib.suppress(OSError):
        sync(target.parent)
        _bring_back(new, target, changes, held)


def _write_into(new: Path, target: Path, changes: Changes) -> list[Path]:
    """Make changes in a copy from which the files that change were left out."""
    written = []
    for place, wanted in _writes_first(changes):
        inside = new / place.relative_to(target)
        if wanted.content is None:
            _prune(inside.parent, new)
            continue
        inside.parent.mkdir(parents=True, exist_ok=True)
        write_file(inside, wanted.content, before=place, executable=wanted.executable)
        written.append(inside)
    return written


def _bring_back(old: Path, target: Path, changes: Changes, held: Inventory) -> None:
    """Bring the folder that was in place up to date, and exchange it back.

    What others wrote into either of them meanwhile is kept.
    """
    for place, wanted in _writes_first(changes):
        inside = old / place.relative_to(target)
        if wanted.content is None:
            inside.unlink(missing_ok=True)
            _prune(inside.parent, old)
            continue
        inside.parent.mkdir(parents=True, exist_ok=True)
        fresh = inside.with_name(f".{uuid.uuid4().hex}.partial")
        os.link(place, fresh)
        fresh.rename(inside)
    for touched in _touched(old, target, changes):
        sync(touched)
    exchange(old, target)
    sync(target.parent)
    _keep_newer(old, target, held)


def _keep_newer(copy: Path, target: Path, held: Inventory) -> None:
    """Move what others wrote into a copy while it was in place to where it belongs."""
    for folder, _, files in os.walk(copy):
        for name in files:
            path = Path(folder, name)
            inside = path.relative_to(copy)
            if held.get(inside.as_posix()) != mark(path):
                (target / inside).parent.mkdir(parents=True, exist_ok=True)
                path.replace(target / inside)


def _touched(old: Path, target: Path, changes: Changes) -> set[Path]:
    """Return the folders in which names changed, with those around them."""
    touched = {old}
    for place in changes:
        folder = (old / place.relative_to(target)).parent
        while folder != old:
            touched.add(folder)
            folder = folder.parent
    return {folder for folder in touched if folder.is_dir()}


def _writes_first(changes: Changes) -> list[tuple[Path, Wanted]]:
    """Order changes so that no folder is emptied, and goes, which a file is written to."""
    return sorted(changes.items(), key=lambda one: one[1].content is None)


def _prune(folder: Path, top: Path) -> None:
    """Remove a folder and those above it, below a top, as far as nothing is left in them."""
    with contextlib.suppress(OSError):
        while folder != top:
            folder.rmdir()
            folder = folder.parent


def _emptied(root: Path, changes: Changes) -> Path | None:
    """Return the folder that holds all changes and would have nothing left in it, if any."""
    if any(wanted.content is not None for wanted in changes.values()):
        return None
    going = set(changes)
    found = None
    folder = Path(os.path.commonpath([place.parent for place in changes]))
    while folder != root and folder.is_relative_to(root) and _all_go(folder, going):
        found = folder
        going.add(folder)
        folder = folder.parent
    return found


def _all_go(folder: Path, going: set[Path]) -> bool:
    """Say whether all that is in a folder goes."""
    return all(
        one in going or (one.is_dir() and not one.is_symlink() and _all_go(one, going))
        for one in folder.iterdir()
    )


def _check_writable(folder: Path) -> None:
    """Refuse to change a folder that its owner closed; the copy of it would be open."""
    while not folder.is_dir():
        folder = folder.parent
    if not os.access(folder, os.W_OK | os.X_OK):
        raise PermissionError(errno.EACCES, "it may not be written", str(folder))


@contextlib.contextmanager
def _stage(place: Path) -> Iterator[Path]:
    """Give a folder for one change; those that killed runs left are removed first."""
    place.mkdir(parents=True, exist_ok=True)
    for left in list(place.iterdir()):
        discard(left)
    stage = place / uuid.uuid4().hex
    stage.mkdir()
    try:
        yield stage
    finally:
        discard(stage)
        with contextlib.suppress(OSError):
            place.rmdir()


def _beside(queue: Path, target: Path) -> Path:
    """Return where to stage for a folder that `.contribbot/` has no common file system with."""
    # Two queues may link to one folder; each sweeps its own.
    mine = hashlib.sha256(os.fsencode(queue.resolve())).hexdigest()[:8]
    while not target.parent.is_dir():
        target = target.parent
    return target.parent / f".contribbot-stage-{mine}"


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
                self._place(path, change): Wanted(change.content, change.executable)
                for path, change in self._changes.items()
            }
            wanted = {place: one for place, one in wanted.items() if not one.is_there(place)}
            if not wanted:
                return False
            make(self._folder, _root(self._folder, list(wanted)), wanted)
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
            put_back(folder)
        except OSError as error:
            raise _unchanged(error, folder) from error
        changes = Transaction(folder)
        yield changes
        if not changes.finished:
            changes.commit()


def recover(folder: Path) -> None:
    """Put back what a kill left where the file system knows no exchange. One look, as a rule."""
    if not is_torn(folder):
        return
    try:
        with lock(folder / ".contribbot" / "queue.lock", f"the queue {folder}"):
            put_back(folder)
    except OSError as error:
        raise MachineError(
            f"{folder}: a change was cut short, and cannot be put back: {error}",
            hint=f"see {torn_file(folder)}",
        ) from error
