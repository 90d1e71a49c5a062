"""Trees from releases: source archives, wheels and what is installed, believing none of them.

An archive may come from anyone: names that lead out of its folder, links out
of it, devices, git's own folder, the same name twice and members that swell to
fill the disk are refused by name.
"""

from __future__ import annotations

import base64
import binascii
import contextlib
import csv
import functools
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
from typing import IO, Final

from contribbot.errors import IntegrityError, SourceError
from contribbot.git.package_index import obtain
from contribbot.git.repository import Mode, TreeWriter, import_tree
from contribbot.git.source import SourceRequest
from contribbot.model.pin import InstalledSource, ReleaseSource, SdistSource, WheelSource

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
#: How much content is handed on at a time, and inflated at a time.
_PIECE: Final = 2**20
_READ: Final = 2**17


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

    def read(self) -> bytes:
        """Return all of the content."""
        return b"".join(self.pieces)

    def again(self, content: bytes) -> Member:
        """Return the member with the content that was read of it."""
        return replace(self, pieces=iter((content,)))


#: What an archive says of a member, in the terms of a .tar, and its content.
_Entry = tuple[tarfile.TarInfo, Callable[[], IO[bytes]]]


def read_members(
    archive: Path, *, advance: Callable[[int], None], topless: bool = False
) -> Iterator[Member]:
    """Yield the files of an archive, in its order."""
    guard = _Guard(archive.name, topless=topless)
    with _damage_named(archive.name), archive.open("rb") as file:
        is_zip = file.read(2) == b"PK"
        file.seek(0)
        entries = _read_zip(file, guard) if is_zip else _read_tar(file)
        done = 0
        for info, opened in entries:
            # Content is read by the caller, outside this block.
            member = _member(guard, info, opened)
            if member is not None:
                yield replace(member, pieces=_named(archive.name, member.pieces))
            advance(file.tell() - done)
            done = file.tell()
        advance(archive.stat().st_size - done)


@contextlib.contextmanager
def _damage_named(archive: str) -> Iterator[None]:
    """Turn what the libraries say of a damaged archive into an error that names it."""
    try:
        yield
    except (tarfile.TarError, gzip.BadGzipFile, zipfile.BadZipFile, zlib.error, EOFError) as error:
        raise IntegrityError(
            f"{archive}: damaged or cut short: {error}", hint="download it again"
        ) from error


def _named(archive: str, pieces: Iterator[bytes]) -> Iterator[bytes]:
    with _damage_named(archive):
        yield from pieces


class _Content(io.BufferedReader):
    """The content of a gzip file; tarfile cannot be made to read a header of any size."""

    def read(self, size: int | None = -1, /) -> bytes:
        """Return the next bytes."""
        if size is None or not 0 <= size <= _PIECE:
            raise IntegrityError(f"a header of {size} bytes, which is not sane")
        return super().read(size)


def _read_tar(file: IO[bytes]) -> Iterator[_Entry]:
    packed = gzip.GzipFile(fileobj=file)
    with _Content(packed, _READ) as stream, tarfile.open(fileobj=stream, mode="r:") as tar:
        while (info := tar.next()) is not None:
            yield info, functools.partial(_at, stream, info.offset_data)
        # tarfile takes a damaged header for the end; the real end is a block of zeros.
        stream.seek(tar.offset)
        if stream.read(tarfile.BLOCKSIZE) != bytes(tarfile.BLOCKSIZE):
            raise tarfile.ReadError("no end marker")
        # The end of the gzip file holds its check sum.
        while stream.read(_PIECE):
            if stream.tell() > MAX_TOTAL:
                raise tarfile.ReadError(f"unpacks to more than {MAX_TOTAL} bytes")


def _at(stream: IO[bytes], offset: int) -> IO[bytes]:
    """Return a stream at an offset; quicker than a file of its own for each member."""
    stream.seek(offset)
    return stream


def _read_zip(file: IO[bytes], guard: _Guard) -> Iterator[_Entry]:
    types = {0: tarfile.REGTYPE, stat.S_IFREG: tarfile.REGTYPE, stat.S_IFLNK: tarfile.SYMTYPE}
    with zipfile.ZipFile(file) as bundle:
        for entry in bundle.infolist():
            info = tarfile.TarInfo(entry.filename)
            info.size, info.mode = entry.file_size, entry.external_attr >> 16
            info.type = types.get(stat.S_IFMT(info.mode), tarfile.FIFOTYPE)
            if entry.is_dir():
                info.type = tarfile.DIRTYPE
            elif entry.flag_bits & 1 or entry.compress_type not in _ZIP_METHODS:
                raise guard.refuse(entry.filename, "encrypted, or packed in an unusual way")
            elif info.issym():
                if entry.file_size > _MAX_PATH:
                    raise guard.refuse(entry.filename, "link without a usable target")
                info.linkname = bundle.read(entry).decode("utf-8", "surrogateescape")
            yield info, functools.partial(bundle.open, entry)


def _member(guard: _Guard, info: tarfile.TarInfo, opened: Callable[[], IO[bytes]]) -> Member | None:
    """Check what an archive says of a member; return it if it is a file or a link."""
    path = guard.place(info.name)
    if info.isdir():
        guard.enter(info.name, path)
        return None
    if info.isreg() and not info.issparse():
        guard.take(info.name, path, info.size)
        mode = Mode.EXECUTABLE if info.mode & stat.S_IXUSR else Mode.FILE
        return Member(path, mode, info.size, _in_pieces(opened, info.size))
    if info.issym():
        guard.link(info.name, path, info.linkname)
        target = info.linkname.encode("utf-8", "surrogateescape")
        guard.take(info.name, path, len(target))
        return Member(path, Mode.SYMLINK, len(target), iter((target,)))
    if info.islnk():
        source = guard.hard_link(info.name, info.linkname)
        guard.take(info.name, path, 0)
        return Member(path, Mode.FILE, 0, iter(()), copy_of=source)
    raise guard.refuse(info.name, "neither a file, nor a folder, nor a link")


def _in_pieces(opened: Callable[[], IO[bytes]], size: int) -> Iterator[bytes]:
    """Yield the content of a member, exactly as many bytes as were announced."""
    content = opened()
    while size > 0:
        piece = content.read(min(size, _PIECE))
        if not piece:
            raise EOFError("a member is cut short")
        size -= len(piece)
        yield piece


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
        parts = [part for part in name.split("/") if part not in {"", "."}]
        refused = {
            f"more than {MAX_MEMBERS} members": self._count > MAX_MEMBERS,
            "control character in the name": _CONTROL.search(name) is not None,
            "absolute path": name.startswith("/"),
            "leads out of the archive's folder": ".." in parts,
            "is git's own folder": any(p.lower().rstrip(". ") in _GIT_FOLDERS for p in parts),
            "name too long": any(len(os.fsencode(part)) > _MAX_NAME for part in parts),
            "path too long": len(name) > _MAX_PATH,
        }
        for why in (why for why, is_so in refused.items() if is_so):
            raise self.refuse(name, why)
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
        folder = path.rpartition("/")[0]
        while folder and folder not in self._folders:
            if folder in self._files:
                raise self.refuse(name, f"{folder} is a file and a folder")
            self._folders.add(folder)
            folder = folder.rpartition("/")[0]
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
        if not _GIT_FOLDERS.isdisjoint(reached.lower().split("/")):
            raise self.refuse(name, "link into git's own folder")

    def hard_link(self, name: str, target: str) -> str:
        """Return the path of the earlier member that a hard link names."""
        path = self.place(target)
        if path not in self._files:
            raise self.refuse(name, f"hard link to {target!a}, which is no earlier member")
        return path


class ReleaseFile:
    """Finds, downloads, checks and imports a release's source archive or wheel; builds nothing."""

    def detail(self, job: SourceRequest) -> str:
        """Return the release and its digest, of a wheel also the folders."""
        spec = _release(job)
        what = "source archive"
        if isinstance(spec, WheelSource):
            what = f"wheel {spec.tags}, Python files of {', '.join(spec.packages)}"
        return f"{spec.distribution} {spec.version} {what}, sha256 {spec.sha256}"

    def bring(self, job: SourceRequest) -> bool:
        """Import the file; see `Source.bring`."""
        archive = obtain(_release(job), progress=job.progress)
        with job.store.exclusive():
            if job.landed():
                return False
            import_archive(job, archive)
        return True


def _release(job: SourceRequest) -> ReleaseSource:
    if not isinstance(job.spec, SdistSource | WheelSource):
        raise TypeError(f"{job.spec.kind} is no file of a release")
    return job.spec


def import_archive(job: SourceRequest, archive: Path) -> None:
    """Stream an archive into the store, below the folder that the source names.

    Call it inside `store.exclusive()`.
    """
    spec = _release(job)
    is_wheel = isinstance(spec, WheelSource)
    prefix = f"{spec.root}/" if spec.root else ""
    everything = read_members(archive, advance=job.progress.advance, topless=is_wheel)
    members = _of_its_release(everything, archive.name, spec)
    kept: Iterator[Member]
    if isinstance(spec, WheelSource):
        packages = spec.packages
        kept = filter(lambda member: _is_python(member.path, packages), members)
    else:
        kept = _upstream_files(archive.name, members)
    empty = True
    with _importing(job, archive.name, archive.stat().st_size, spec.sha256) as tree:
        for member in kept:
            empty = False
            if member.copy_of:
                tree.copy(prefix + member.copy_of, prefix + member.path)
            else:
                tree.add(prefix + member.path, member.mode, member.size, member.pieces)
        if empty and isinstance(spec, WheelSource):
            raise IntegrityError(
                f"{archive.name}: holds no Python files under {', '.join(spec.packages)}",
                hint="correct the packages of the pin's source",
            )
        if empty:
            raise IntegrityError(f"{archive.name}: holds no files")


@contextlib.contextmanager
def _importing(
    job: SourceRequest, label: str, total: int | None, digest: str
) -> Iterator[TreeWriter]:
    """Write the tree of a pin, and show how far it is."""
    job.progress.start(f"importing {label}", total)
    try:
        with import_tree(job.store, ref=job.ref, message=job.message(digest)) as tree:
            yield tree
    finally:
        job.progress.done()


#: Where a source archive and a wheel say which release they are of.
_METADATA: Final = re.compile(r"PKG-INFO|[^/]+\.dist-info/METADATA")
_METADATA_MAX: Final = 2**20
#: What setuptools writes into the archive beside the repository's files.
_GENERATED: Final = re.compile(r"PKG-INFO|(?:src/)?[^/]+\.egg-info/.*", re.DOTALL)
#: The setup.cfg that setuptools makes when the repository has none. Where the
#: repository has one, setuptools adds these lines to it and it is kept as it is.
_SETUP_CFG: Final = re.compile(rb"\s*\[egg_info\]\s*(?:tag_\w+ *=[^\n]*\s*)*")
_SETUP_CFG_MAX: Final = 500
_SUFFIX: Final = ".py"


def _of_its_release(
    members: Iterator[Member], archive: str, spec: ReleaseSource
) -> Iterator[Member]:
    """Pass members on; refuse an archive whose metadata names another release than its pin.

    A pin's version decides which file is asked for, and is quoted (PyPA, "Core metadata").
    """
    for member in members:
        if not _METADATA.fullmatch(member.path) or member.size > _METADATA_MAX:
            yield member
            continue
        content = member.read()
        if other := _other_release(content, spec):
            raise IntegrityError(
                f"{archive}: says that it is {other}, and the pin names"
                f" {spec.distribution} {spec.version}",
                hint="correct the pin's tag and version, or its sha256",
            )
        yield member.again(content)


def _other_release(metadata: bytes, spec: ReleaseSource) -> str | None:
    """Return which other release some metadata is of."""
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
    return None if same else f"{name} {version}"


def _upstream_files(archive: str, members: Iterator[Member]) -> Iterator[Member]:
    """Yield the members that the upstream's repository has too."""
    generated: set[str] = set()
    for member in members:
        if member.copy_of in generated:
            raise IntegrityError(f"{archive}: {member.path!a}: hard link to a generated file")
        if _GENERATED.fullmatch(member.path):
            generated.add(member.path)
        elif member.path == "setup.cfg" and member.size <= _SETUP_CFG_MAX:
            content = member.read()
            if not _SETUP_CFG.fullmatch(content):
                yield member.again(content)
        else:
            yield member


def _is_python(path: str, packages: tuple[str, ...]) -> bool:
    """Say whether a path is a Python file under one of the folders, without detours."""
    inside = path.startswith(tuple(f"{package}/" for package in packages))
    return inside and path.endswith(_SUFFIX) and {"", ".", ".."}.isdisjoint(path.split("/"))


class InstalledFiles:
    """Imports what is installed beside this Python."""

    def detail(self, job: SourceRequest) -> str:
        """Return the distribution, its release and its folders."""
        spec = job.spec_as(InstalledSource)
        return (
            f"installed {spec.distribution} {spec.version}, Python files of"
            f" {', '.join(spec.packages)}"
        )

    def bring(self, job: SourceRequest) -> bool:
        """Import the files; see `Source.bring`."""
        spec = job.spec_as(InstalledSource)
        installed = _distribution(spec)
        root = Path(str(installed.locate_file("")))
        digests = _recorded(spec, installed)
        # Python files that RECORD does not know would be imported at run time and not be in
        # the tree: what then runs is not what the pin names.
        for package in spec.packages:
            for file in (root / package).rglob(f"*{_SUFFIX}"):
                path = file.relative_to(root).as_posix()
                if path not in digests:
                    raise IntegrityError(
                        f"{spec.distribution}: {path} is not in its RECORD",
                        hint=f"remove the file, or reinstall {spec.distribution}",
                    )
        # Depends on the files alone, so that the same wheel gives the same commit anywhere.
        listed = "".join(f"{digest.hex()}  {path}\n" for path, digest in digests.items())
        summary = hashlib.sha256(listed.encode()).hexdigest()
        with job.store.exclusive():
            if job.landed():
                return False
            with _importing(job, self.detail(job), None, summary) as tree:
                for path, digest in digests.items():
                    content = _checked(spec, root / path, path, digest)
                    tree.add(path, Mode.FILE, len(content), (content,))
                    job.progress.advance(len(content))
        return True


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


def _recorded(
    spec: InstalledSource, installed: importlib.metadata.Distribution
) -> dict[str, bytes]:
    """Return the SHA-256 that RECORD has of the Python files under the packages, by path.

    Read as text: `Distribution.files` passes over what is not on the disk.
    """
    record = installed.read_text("RECORD")
    if record is None:
        raise IntegrityError(
            f"{spec.distribution}: installed without a RECORD, so its files cannot be checked",
            hint="install it from a wheel with pip",
        )
    digests: dict[str, bytes] = {}
    for row in csv.reader(record.splitlines()):
        path, written = (*row, "", "")[:2]
        if not _is_python(path, spec.packages):
            continue
        # `sha256=`, then base64 without padding.
        name, _, encoded = written.partition("=")
        try:
            digest = base64.b64decode(encoded + "=" * (-len(encoded) % 4), b"-_", validate=True)
        except binascii.Error:
            digest = b""
        if name != "sha256" or len(digest) != hashlib.sha256().digest_size:
            raise IntegrityError(
                f"{spec.distribution}: RECORD has no sha256 for {path}",
                hint=f"reinstall {spec.distribution} from its wheel",
            )
        digests[path] = digest
    if not digests:
        raise SourceError(
            f"{spec.distribution}: RECORD lists no Python files under {', '.join(spec.packages)}",
            hint="an editable install has none; install a wheel, or add another source",
        )
    return dict(sorted(digests.items()))


def _checked(spec: InstalledSource, file: Path, path: str, digest: bytes) -> bytes:
    """Return the content of a file that is what RECORD says."""
    hint = f"reinstall it: python -m pip install --force-reinstall --no-deps {spec.distribution}"
    try:
        content = file.read_bytes()
    except OSError as error:
        raise IntegrityError(f"{spec.distribution}: {path}: {error.strerror}", hint=hint) from error
    got = hashlib.sha256(content).digest()
    if got != digest:
        raise IntegrityError(
            f"{spec.distribution}: {path} was changed after it was installed:"
            f" expected sha256 {digest.hex()}, got {got.hex()}",
            hint=hint,
        )
    return content
