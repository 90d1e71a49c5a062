"""Reading a source archive member by member, believing nothing that it says.

An archive may come from anyone: names that lead out of its folder, links out
of it, devices, git's own folder, the same name twice and members that swell to
fill the disk are refused by name.
"""

from __future__ import annotations

import contextlib
import posixpath
import re
import stat
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, Final

from contribbot.errors import IntegrityError
from contribbot.sources.gunzip import Gunzip, in_pieces
from contribbot.store.fastimport import Mode

#: The largest member, the most members and the largest sum that a source tree can
#: reasonably have: several times what PyTorch with all its submodules has.
MAX_MEMBER: Final = 512 * 2**20
MAX_MEMBERS: Final = 300_000
MAX_TOTAL: Final = 4 * 2**30
#: Limits of Linux: names beyond them cannot be written when the tree is exported.
_MAX_NAME: Final = 255
_MAX_PATH: Final = 4000

_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f]")
#: Names that some file system takes for git's own folder.
_GIT_FOLDERS: Final = frozenset({".git", "git~1"})
_ZIP_METHODS: Final = frozenset({zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED})


@dataclass(frozen=True)
class Member:
    """A file of an archive, checked.

    Attributes:
        path: Relative to the archive's one top folder, where it has one.
        mode: What it is.
        size: Bytes of content (of a link: of its target).
        pieces: The content; to be read before the next member is asked for.
        copy_of: The path of the earlier member that it is a hard link to, or empty;
            then it has no content of its own.
    """

    path: str
    mode: Mode
    size: int
    pieces: Iterator[bytes]
    copy_of: str = ""


class _Guard:
    """Checks what members say about themselves; remembers what came before."""

    def __init__(self, archive: str, *, topless: bool) -> None:
        self._archive = archive
        self._topless = topless
        self._top = ""
        self._files: set[str] = set()
        self._folders: set[str] = set()
        self._count = 0
        self._total = 0

    def refuse(self, member: str, why: str) -> IntegrityError:
        """Return the error for a hostile member."""
        return IntegrityError(
            f"{self._archive}: {member!a}: {why}",
            hint="do not use this archive; see which digest the project publishes",
        )

    def place(self, name: str) -> str:
        """Return a member's path below the top folder, if any; empty for the folder itself."""
        self._count += 1
        if self._count > MAX_MEMBERS:
            raise self.refuse(name, f"more than {MAX_MEMBERS} members")
        if _CONTROL.search(name):
            raise self.refuse(name, "control character in the name")
        if name.startswith("/"):
            raise self.refuse(name, "absolute path")
        parts = [part for part in name.split("/") if part not in {"", "."}]
        for part in parts:
            if why := _fault(part):
                raise self.refuse(name, why)
        if len(name) > _MAX_PATH:
            raise self.refuse(name, "path too long")
        if not parts or self._topless:
            return "/".join(parts)
        self._top = self._top or parts[0]
        if parts[0] != self._top:
            raise self.refuse(name, f"outside the archive's top folder {self._top}")
        return "/".join(parts[1:])

    def take(self, name: str, path: str, size: int) -> None:
        """Note that a file is about to be read."""
        if not path:
            raise self.refuse(name, "a file in place of the top folder")
        if path in self._files or path in self._folders:
            raise self.refuse(name, "is there twice")
        for folder in _parents(path):
            if folder in self._files:
                raise self.refuse(name, f"{folder} is a file and a folder")
            if folder in self._folders:
                break
            self._folders.add(folder)
        self._files.add(path)
        self._total += size
        if not 0 <= size <= MAX_MEMBER:
            raise self.refuse(name, f"{size} bytes; at most {MAX_MEMBER} are accepted")
        if self._total > MAX_TOTAL:
            raise self.refuse(name, f"the archive unpacks to more than {MAX_TOTAL} bytes")

    def enter(self, name: str, path: str) -> None:
        """Note that a folder is there."""
        if path in self._files:
            raise self.refuse(name, "is there twice")

    def link(self, name: str, path: str, target: str) -> None:
        """Check that a symbolic link stays inside."""
        if not target or _CONTROL.search(target):
            raise self.refuse(name, "link without a usable target")
        reached = posixpath.normpath(posixpath.join(posixpath.dirname(path), target))
        if target.startswith("/") or reached == ".." or reached.startswith("../"):
            raise self.refuse(name, f"link out of the archive's folder, to {target!a}")
        if any(part.lower() in _GIT_FOLDERS for part in reached.split("/")):
            raise self.refuse(name, "link into git's own folder")

    def hard_link(self, name: str, target: str) -> str:
        """Return the path of the earlier member that a hard link names."""
        path = self.place(target)
        if path not in self._files:
            raise self.refuse(name, f"hard link to {target!a}, which is no earlier member")
        return path


def _fault(part: str) -> str:
    """Return why a part of a path is refused, or nothing."""
    if part == "..":
        return "leads out of the archive's folder"
    if part.lower().rstrip(". ") in _GIT_FOLDERS:
        return "is git's own folder"
    return "name too long" if len(part.encode("utf-8", "surrogateescape")) > _MAX_NAME else ""


def _parents(path: str) -> Iterator[str]:
    """Yield the folders of a path, the nearest first."""
    while "/" in path:
        path = path.rpartition("/")[0]
        yield path


def read_members(
    archive: Path, *, advance: Callable[[int], None], topless: bool = False
) -> Iterator[Member]:
    """Yield the files of a source archive, in its order."""
    guard = _Guard(archive.name, topless=topless)
    with _damage_named(archive.name), archive.open("rb") as file:
        magic = file.read(2)
        file.seek(0)
        if magic == b"PK":
            members = _read_zip(file, guard, advance)
        else:
            members = _read_tar(file, archive.name, guard, advance)
        for member in members:
            # Content is read by the caller, outside this block.
            yield replace(member, pieces=_named(archive.name, member.pieces))


@contextlib.contextmanager
def _damage_named(archive: str) -> Iterator[None]:
    """Turn what the libraries say of a damaged archive into an error that names it."""
    try:
        yield
    except (tarfile.TarError, zipfile.BadZipFile, zlib.error, EOFError) as error:
        raise IntegrityError(
            f"{archive}: damaged or cut short: {error}", hint="download it again"
        ) from error


def _named(archive: str, pieces: Iterator[bytes]) -> Iterator[bytes]:
    with _damage_named(archive):
        yield from pieces


def _read_tar(
    file: IO[bytes], archive: str, guard: _Guard, advance: Callable[[int], None]
) -> Iterator[Member]:
    stream = Gunzip(file, archive, limit=MAX_TOTAL, advance=advance)
    # Not tarfile's own stream mode: it takes twice as long as all the rest of an import.
    with tarfile.open(fileobj=stream, mode="r:") as tar:
        while (info := tar.next()) is not None:
            path = guard.place(info.name)
            if info.isdir():
                guard.enter(info.name, path)
            elif info.isreg() and not info.issparse():
                guard.take(info.name, path, info.size)
                mode = Mode.EXECUTABLE if info.mode & stat.S_IXUSR else Mode.FILE
                stream.seek(info.offset_data)
                yield Member(path, mode, info.size, stream.pieces(info.size))
            elif info.issym():
                guard.link(info.name, path, info.linkname)
                yield _symlink(guard, info.name, path, info.linkname)
            elif info.islnk():
                source = guard.hard_link(info.name, info.linkname)
                guard.take(info.name, path, 0)
                yield Member(path, Mode.FILE, 0, iter(()), copy_of=source)
            else:
                raise guard.refuse(info.name, "neither a file, nor a folder, nor a link")
        # tarfile takes a damaged header for the end; the real end is a block of zeros.
        stream.seek(tar.offset)
        if stream.read(tarfile.BLOCKSIZE) != bytes(tarfile.BLOCKSIZE):
            raise tarfile.ReadError("no end marker")
    stream.drain()


def _symlink(guard: _Guard, name: str, path: str, target: str) -> Member:
    content = target.encode("utf-8", "surrogateescape")
    guard.take(name, path, len(content))
    return Member(path, Mode.SYMLINK, len(content), iter((content,)))


def _read_zip(file: IO[bytes], guard: _Guard, advance: Callable[[int], None]) -> Iterator[Member]:
    with zipfile.ZipFile(file) as bundle:
        for info in bundle.infolist():
            path = guard.place(info.filename)
            attributes = info.external_attr >> 16
            kind = stat.S_IFMT(attributes)
            if info.is_dir():
                guard.enter(info.filename, path)
                continue
            if info.flag_bits & 1 or info.compress_type not in _ZIP_METHODS:
                raise guard.refuse(info.filename, "encrypted, or packed in an unusual way")
            if kind not in {0, stat.S_IFREG, stat.S_IFLNK}:
                raise guard.refuse(info.filename, "neither a file, nor a folder, nor a link")
            if kind == stat.S_IFLNK:
                if info.file_size > _MAX_PATH:
                    raise guard.refuse(info.filename, "link without a usable target")
                target = bundle.read(info).decode("utf-8", "surrogateescape")
                guard.link(info.filename, path, target)
                yield _symlink(guard, info.filename, path, target)
            else:
                guard.take(info.filename, path, info.file_size)
                mode = Mode.EXECUTABLE if attributes & stat.S_IXUSR else Mode.FILE
                with bundle.open(info) as content:
                    yield Member(path, mode, info.file_size, in_pieces(content, info.file_size))
            advance(info.compress_size)
