"""Reading a source archive member by member, believing nothing that it says.

An archive may come from anyone: names that lead out of its folder, links out
of it, devices, git's own folder, the same name twice and members that swell to
fill the disk are refused by name.
"""

from __future__ import annotations

import base64
import binascii
import contextlib
import csv
import gzip
import hashlib
import importlib.metadata
import io
import os
import posixpath
import re
import stat
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, Final, Protocol

from contribbot.errors import IntegrityError, SourceError
from contribbot.git.package_index import obtain
from contribbot.git.repository import Mode, TreeWriter, import_tree
from contribbot.git.source import Job
from contribbot.model.pin import InstalledSource, ReleaseSource, SdistSource, WheelSource

#: How much content is handed on at a time.
PIECE: Final = 2**20
#: How much content is inflated at a time.
_READ: Final = 2**17


class Readable(Protocol):
    """What content can be read from."""

    def read(self, size: int, /) -> bytes:
        """Return the next bytes; none only at the end."""


def in_pieces(content: Readable, size: int) -> Iterator[bytes]:
    """Yield the next bytes of a file, exactly as many as were announced."""
    while size > 0:
        piece = content.read(min(size, PIECE))
        if not piece:
            raise EOFError("a member is cut short")
        size -= len(piece)
        yield piece


class _Content(io.BufferedReader):
    """The content of a gzip file; tarfile cannot be made to read a header of any size."""

    def read(self, size: int | None = -1, /) -> bytes:
        """Return the next bytes."""
        if size is None or not 0 <= size <= PIECE:
            raise IntegrityError(f"a header of {size} bytes, which is not sane")
        return super().read(size)


_SUFFIX: Final = ".py"


@dataclass(frozen=True)
class _File:
    """A file that RECORD lists: its path there, its SHA-256 and its size in bytes."""

    path: str
    digest: bytes
    size: int


class InstalledFiles:
    """Imports what is installed beside this Python."""

    def detail(self, job: Job) -> str:
        """Return the distribution, its release and its folders."""
        spec = job.spec_as(InstalledSource)
        return (
            f"installed {spec.distribution} {spec.version}, Python files of"
            f" {', '.join(spec.packages)}"
        )

    def bring(self, job: Job) -> bool:
        """Import the files; see `Source.bring`."""
        spec = job.spec_as(InstalledSource)
        installed = _distribution(spec)
        root = Path(str(installed.locate_file("")))
        files = _listed(spec, installed)
        _refuse_strangers(spec, root, files)
        # Depends on the files alone, so that the same wheel gives the same commit anywhere.
        summary = hashlib.sha256()
        for file in files:
            summary.update(f"{file.digest.hex()}  {file.path}\n".encode())
        total = sum(file.size for file in files)
        with job.store.exclusive():
            if job.landed():
                return False
            with _importing(job, self.detail(job), total, summary.hexdigest()) as tree:
                for file in files:
                    content = _checked(spec, root, file)
                    tree.add(file.path, Mode.FILE, len(content), (content,))
                    job.progress.advance(len(content))
        return True


@contextlib.contextmanager
def _importing(job: Job, label: str, total: int, digest: str) -> Iterator[TreeWriter]:
    """Write the tree of a pin, and show how far it is."""
    job.progress.start(f"importing {label}", total)
    try:
        with import_tree(job.store, ref=job.ref, message=job.message(digest)) as tree:
            yield tree
    finally:
        job.progress.done()


def is_installed(spec: InstalledSource) -> bool:
    """Say whether the release is installed beside this Python, as a source would ask."""
    try:
        _distribution(spec)
    except SourceError:
        return False
    return True


def _distribution(spec: InstalledSource) -> importlib.metadata.Distribution:
    """Return the installed distribution of the right release."""
    wanted = f"{spec.distribution}=={spec.version}"
    hint = f"python -m pip install {wanted}, or add another source to the pin"
    try:
        installed = importlib.metadata.distribution(spec.distribution)
    except importlib.metadata.PackageNotFoundError:
        raise SourceError(f"{spec.distribution} is not installed", hint=hint) from None
    # A local label names a build of the release: `+cpu`, `+rocm6.4`.
    if spec.version not in {installed.version, installed.version.partition("+")[0]}:
        raise SourceError(
            f"{spec.distribution} {installed.version} is installed, not {spec.version}", hint=hint
        )
    return installed


def _listed(spec: InstalledSource, installed: importlib.metadata.Distribution) -> list[_File]:
    """Return the Python files that RECORD lists under the packages, by path.

    Read as text: `Distribution.files` passes over what is not on the disk.
    """
    record = installed.read_text("RECORD")
    if record is None:
        raise IntegrityError(
            f"{spec.distribution}: installed without a RECORD, so its files cannot be checked",
            hint="install it from a wheel with pip",
        )
    files: dict[str, _File] = {}
    for row in csv.reader(record.splitlines()):
        path, digest, size = (*row, "", "", "")[:3]
        if not path.endswith(_SUFFIX) or not _inside(path, spec.packages):
            continue
        # The size is only for showing progress; the digest decides.
        length = int(size) if size.isdecimal() else 0
        files[path] = _File(path, _digest(spec, path, digest), length)
    if not files:
        raise SourceError(
            f"{spec.distribution}: RECORD lists no Python files under {', '.join(spec.packages)}",
            hint="an editable install has none; install a wheel, or add another source",
        )
    return [files[path] for path in sorted(files)]


def _inside(path: str, packages: tuple[str, ...]) -> bool:
    """Say whether a path of RECORD is under one of the folders, without detours."""
    if any(part in {"", ".", ".."} for part in path.split("/")):
        return False
    return path.startswith(tuple(f"{package}/" for package in packages))


def _digest(spec: InstalledSource, path: str, text: str) -> bytes:
    """Return a digest of RECORD, which is written `sha256=` and base64 without padding."""
    name, _, encoded = text.partition("=")
    try:
        digest = base64.b64decode(encoded + "=" * (-len(encoded) % 4), b"-_", validate=True)
    except binascii.Error:
        digest = b""
    if name != "sha256" or len(digest) != hashlib.sha256().digest_size:
        raise IntegrityError(
            f"{spec.distribution}: RECORD has no sha256 for {path}",
            hint=f"reinstall {spec.distribution} from its wheel",
        )
    return digest


def _refuse_strangers(spec: InstalledSource, root: Path, files: list[_File]) -> None:
    """Refuse Python files that lie among the distribution's and that RECORD does not know.

    They would be imported at run time and not be in the tree: what then runs is
    not what the pin names.
    """
    known = {file.path for file in files}
    for path in _on_disk(root, spec.packages):
        if path not in known:
            raise IntegrityError(
                f"{spec.distribution}: {path} is not in its RECORD",
                hint=f"remove the file, or reinstall {spec.distribution}",
            )


def _on_disk(root: Path, packages: tuple[str, ...]) -> Iterator[str]:
    for package in packages:
        for folder, _, names in os.walk(root / package):
            relative = Path(folder).relative_to(root).as_posix()
            yield from (f"{relative}/{name}" for name in names if name.endswith(_SUFFIX))


def _checked(spec: InstalledSource, root: Path, file: _File) -> bytes:
    """Return the content of a file that is what RECORD says."""
    hint = f"reinstall it: python -m pip install --force-reinstall --no-deps {spec.distribution}"
    try:
        content = (root / file.path).read_bytes()
    except OSError as error:
        raise IntegrityError(
            f"{spec.distribution}: {file.path}: {error.strerror}", hint=hint
        ) from error
    got = hashlib.sha256(content).digest()
    if got != file.digest:
        raise IntegrityError(
            f"{spec.distribution}: {file.path} was changed after it was installed:"
            f" expected sha256 {file.digest.hex()}, got {got.hex()}",
            hint=hint,
        )
    return content


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
    """A file of an archive, checked."""

    #: Relative to the archive's one top folder, where it has one.
    path: str
    mode: Mode
    #: Bytes of content (of a link: of its target).
    size: int
    #: The content; to be read before the next member is asked for.
    pieces: Iterator[bytes]
    #: The path of the earlier member that it is a hard link to, or empty; then it has no content.
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
    except (
        tarfile.TarError,
        gzip.BadGzipFile,
        zipfile.BadZipFile,
        zlib.error,
        EOFError,
    ) as error:
        raise IntegrityError(
            f"{archive}: damaged or cut short: {error}", hint="download it again"
        ) from error


def _named(archive: str, pieces: Iterator[bytes]) -> Iterator[bytes]:
    with _damage_named(archive):
        yield from pieces


def _read_tar(
    file: IO[bytes], archive: str, guard: _Guard, advance: Callable[[int], None]
) -> Iterator[Member]:
    done = 0
    packed = gzip.GzipFile(fileobj=file)
    with _Content(packed, _READ) as stream, tarfile.open(fileobj=stream, mode="r:") as tar:
        while (info := tar.next()) is not None:
            advance(file.tell() - done)
            done = file.tell()
            path = guard.place(info.name)
            if info.isdir():
                guard.enter(info.name, path)
            elif info.isreg() and not info.issparse():
                guard.take(info.name, path, info.size)
                mode = Mode.EXECUTABLE if info.mode & stat.S_IXUSR else Mode.FILE
                stream.seek(info.offset_data)
                yield Member(path, mode, info.size, in_pieces(stream, info.size))
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
        # The end of the gzip file holds its check sum.
        while stream.read(PIECE):
            if stream.tell() > MAX_TOTAL:
                raise IntegrityError(f"{archive}: unpacks to more than {MAX_TOTAL} bytes")
    advance(file.tell() - done)


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


#: What setuptools writes into the archive beside the repository's files.
_GENERATED: Final = re.compile(r"PKG-INFO|(?:src/)?[^/]+\.egg-info/.*", re.DOTALL)
#: The setup.cfg that setuptools makes when the repository has none. Where the
#: repository has one, setuptools adds these lines to it and it is kept as it is.
_SETUP_CFG: Final = re.compile(rb"\s*\[egg_info\]\s*(?:tag_\w+ *=[^\n]*\s*)*")
_SETUP_CFG_MAX: Final = 500
_PKG_INFO: Final = re.compile("PKG-INFO")
_METADATA: Final = re.compile(r"[^/]+\.dist-info/METADATA")
_METADATA_MAX: Final = 2**20


class SourceArchive:
    """Finds, downloads, checks and imports a release's source archive. Builds nothing."""

    def detail(self, job: Job) -> str:
        """Return the release and its digest."""
        spec = job.spec_as(SdistSource)
        return f"{spec.distribution} {spec.version} source archive, sha256 {spec.sha256}"

    def bring(self, job: Job) -> bool:
        """Import the archive; see `Source.bring`."""
        archive = obtain(job.spec_as(SdistSource), progress=job.progress)
        with job.store.exclusive():
            if job.landed():
                return False
            import_archive(job, archive)
        return True


def import_archive(job: Job, archive: Path) -> None:
    """Stream an archive into the store, below the folder that the source names.

    Call it inside `store.exclusive()`.
    """
    spec = job.spec_as(SdistSource)
    prefix = f"{spec.root}/" if spec.root else ""
    empty = True
    with _importing(job, archive.name, archive.stat().st_size, spec.sha256) as tree:
        for member in _upstream_files(archive, job):
            empty = False
            if member.copy_of:
                tree.copy(prefix + member.copy_of, prefix + member.path)
            else:
                tree.add(prefix + member.path, member.mode, member.size, member.pieces)
        if empty:
            raise IntegrityError(f"{archive.name}: holds no files")


def _of_its_release(
    members: Iterator[Member], archive: str, spec: ReleaseSource, metadata: re.Pattern[str]
) -> Iterator[Member]:
    """Pass members on; refuse an archive whose metadata names another release than its pin.

    A pin's version decides which file is asked for, and is quoted (PyPA, "Core metadata").
    """
    for member in members:
        if metadata.fullmatch(member.path) and member.size <= _METADATA_MAX:
            content = b"".join(member.pieces)
            if other := _other_release(content, spec):
                raise IntegrityError(
                    f"{archive}: says that it is {other}, and the pin names"
                    f" {spec.distribution} {spec.version}",
                    hint="correct the pin's tag and version, or its sha256",
                )
            yield replace(member, pieces=iter((content,)))
        else:
            yield member


def _other_release(metadata: bytes, spec: ReleaseSource) -> str:
    """Return which other release some metadata is of, or nothing."""
    from email.parser import BytesHeaderParser  # noqa: PLC0415  start-up time

    from packaging.utils import canonicalize_name  # noqa: PLC0415  start-up time
    from packaging.version import InvalidVersion, Version  # noqa: PLC0415  start-up time

    fields = BytesHeaderParser().parsebytes(metadata)
    name, version = (str(fields.get(key, "without a name")) for key in ("Name", "Version"))
    try:
        same = Version(version) == Version(spec.version)
    except InvalidVersion:
        same = version == spec.version
    same = same and canonicalize_name(name) == canonicalize_name(spec.distribution)
    return "" if same else f"{name} {version}"


def _upstream_files(archive: Path, job: Job) -> Iterator[Member]:
    """Yield the members that the upstream's repository has too."""
    left_out: set[str] = set()
    members = read_members(archive, advance=job.progress.advance)
    spec = job.spec_as(SdistSource)
    for member in _of_its_release(members, archive.name, spec, _PKG_INFO):
        if member.copy_of in left_out:
            raise IntegrityError(f"{archive.name}: {member.path!a}: hard link to a generated file")
        kept: Member | None = member
        if _GENERATED.fullmatch(member.path):
            kept = None
        elif member.path == "setup.cfg" and member.size <= _SETUP_CFG_MAX:
            kept = _unless_generated(member)
        if kept is None:
            left_out.add(member.path)
        else:
            yield kept


def _unless_generated(member: Member) -> Member | None:
    """Return a setup.cfg, unless setuptools made all of it."""
    content = b"".join(member.pieces)
    if _SETUP_CFG.fullmatch(content):
        return None
    return Member(member.path, member.mode, member.size, iter((content,)), member.copy_of)


class WheelFiles:
    """Finds, downloads, checks and imports a release's wheel."""

    def detail(self, job: Job) -> str:
        """Return the release, the folders and the digest."""
        spec = job.spec_as(WheelSource)
        return (
            f"{spec.distribution} {spec.version} wheel {spec.tags}, Python files of"
            f" {', '.join(spec.packages)}, sha256 {spec.sha256}"
        )

    def bring(self, job: Job) -> bool:
        """Import the wheel's Python files; see `Source.bring`."""
        spec = job.spec_as(WheelSource)
        wheel = obtain(spec, progress=job.progress)
        prefix = f"{spec.root}/" if spec.root else ""
        with job.store.exclusive():
            if job.landed():
                return False
            with _importing(job, wheel.name, wheel.stat().st_size, spec.sha256) as tree:
                empty = True
                members = read_members(wheel, advance=job.progress.advance, topless=True)
                members = _of_its_release(members, wheel.name, spec, _METADATA)
                for member in _python_files(spec, members):
                    empty = False
                    tree.add(prefix + member.path, member.mode, member.size, member.pieces)
                if empty:
                    raise IntegrityError(
                        f"{wheel.name}: holds no Python files under {', '.join(spec.packages)}",
                        hint="correct the packages of the pin's source",
                    )
            return True


def _python_files(spec: WheelSource, members: Iterator[Member]) -> Iterator[Member]:
    folders = tuple(f"{package}/" for package in spec.packages)
    for member in members:
        if member.path.endswith(_SUFFIX) and member.path.startswith(folders):
            yield member
