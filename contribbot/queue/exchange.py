"""Exchanging two files or folders in one step, and copies of folders that cost next to nothing."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import functools
import os
import shutil
import stat
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Final

from contribbot import process

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
