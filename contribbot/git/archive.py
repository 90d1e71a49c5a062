"""Trees from releases: source archives, wheels and what is installed, believing none of them."""

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
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import IO, Final

from contribbot.errors import IntegrityError, SourceError
from contribbot.git.package_index import obtain
from contribbot.git.repository import Mode, TreeFile, import_tree
from contribbot.git.source import SourceRequest
from contribbot.model.pin import InstalledSource, ReleaseSource, SdistSource, WheelSource

#: The largest member (GitHub takes none of 100 MiB), the most members and the largest sum that
#: a source tree can reasonably have: several times what PyTorch with all its submodules has.
MAX_MEMBER: Final = 128 * 2**20
MAX_MEMBERS: Final = 300_000
MAX_TOTAL: Final = 4 * 2**30
#: Linux's limit: what is longer cannot be written when the tree is exported.
_MAX_PATH: Final = 4000
_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f]")
#: Names that some file system takes for git's own folder.
_GIT_FOLDERS: Final = frozenset({".git", "git~1"})
ZIP_METHODS: Final = frozenset({zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED})
_PIECE: Final = 2**20
_READ: Final = 2**17


#: What an archive says of a member, in the terms of a .tar, and its content.
_Entry = tuple[tarfile.TarInfo, Callable[[], bytes]]


def read_members(
    archive: Path,
    *,
    advance: Callable[[int], None],
    kept: Callable[[str], bool],
    topless: bool = False,
) -> Iterator[TreeFile]:
    """Yield the files of an archive whose paths are kept, in its order; all are checked."""
    guard = _Guard(archive.name, topless=topless)
    try:
        with archive.open("rb") as file:
            is_zip = file.read(2) == b"PK"
            file.seek(0)
            done = 0
            for info, read in _read_zip(file, guard) if is_zip else _read_tar(file):
                path = guard.check(info)
                if not info.isdir() and kept(path):
                    yield _member(guard, info, path, read)
                advance(file.tell() - done)
                done = file.tell()
            advance(archive.stat().st_size - done)
    except (tarfile.TarError, gzip.BadGzipFile, zipfile.BadZipFile, zlib.error, EOFError) as error:
        raise IntegrityError(
            f"{archive.name}: damaged or cut short: {error}", hint="download it again"
        ) from error


def _member(guard: _Guard, info: tarfile.TarInfo, path: str, read: Callable[[], bytes]) -> TreeFile:
    if info.issym():
        return TreeFile(path, Mode.SYMLINK, os.fsencode(info.linkname))
    if info.size > MAX_MEMBER:
        raise guard.refuse(info.name, f"{info.size} bytes; at most {MAX_MEMBER} are accepted")
    content = read()
    if len(content) != info.size:
        raise EOFError(f"{info.name!a} is cut short")
    return TreeFile(path, Mode.EXECUTABLE if info.mode & stat.S_IXUSR else Mode.FILE, content)


class _Stream(io.BufferedReader):
    """The content of a gzip file; tarfile cannot be made to read a header of any size."""

    def read(self, size: int | None = -1, /) -> bytes:
        """Return the next bytes."""
        if size is None or not 0 <= size <= _PIECE:
            raise IntegrityError(f"a header of {size} bytes, which is not sane")
        return super().read(size)

    def content(self, offset: int, size: int) -> bytes:
        """Return the content of a member; quicker than a file of its own for each."""
        self.seek(offset)
        return super().read(size)


def _read_tar(file: IO[bytes]) -> Iterator[_Entry]:
    packed = gzip.GzipFile(fileobj=file)
    with _Stream(packed, _READ) as stream, tarfile.open(fileobj=stream, mode="r:") as tar:
        while (info := tar.next()) is not None:
            yield info, functools.partial(stream.content, info.offset_data, info.size)
        # tarfile takes a damaged header for the end; the real end is a block of zeros.
        stream.seek(tar.offset)
        if stream.read(tarfile.BLOCKSIZE) != bytes(tarfile.BLOCKSIZE):
            raise tarfile.ReadError("no end marker")
        # The end of the gzip file holds its check sum.
        while stream.read(_PIECE):
            if stream.tell() > MAX_TOTAL:
                raise tarfile.ReadError(f"unpacks to more than {MAX_TOTAL} bytes")


def _read_zip(file: IO[bytes], guard: _Guard) -> Iterator[_Entry]:
    types = {0: tarfile.REGTYPE, stat.S_IFREG: tarfile.REGTYPE, stat.S_IFLNK: tarfile.SYMTYPE}
    with zipfile.ZipFile(file) as bundle:
        for entry in bundle.infolist():
            info = tarfile.TarInfo(entry.filename)
            info.size, info.mode = entry.file_size, entry.external_attr >> 16
            info.type = types.get(stat.S_IFMT(info.mode), tarfile.FIFOTYPE)
            if entry.is_dir():
                info.type = tarfile.DIRTYPE
            elif entry.flag_bits & 1 or entry.compress_type not in ZIP_METHODS:
                raise guard.refuse(entry.filename, "encrypted, or packed in an unusual way")
            elif info.issym():
                with bundle.open(entry) as target:
                    info.linkname = os.fsdecode(target.read(_MAX_PATH))
            yield info, functools.partial(bundle.read, entry)


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

    def check(self, info: tarfile.TarInfo) -> str:
        """Return a member's path below the top folder; refuse what cannot be in a tree."""
        name, target = info.name, info.linkname if info.issym() else "."
        parts = [part for part in name[:_MAX_PATH].split("/") if part not in {"", "."}]
        self._top = "" if self._topless else self._top or "".join(parts[:1])
        path = "/".join(parts[1:] if self._top else parts)
        folders = {path[: slash.start()] for slash in re.finditer("/", path)}
        reached = posixpath.normpath(posixpath.join(posixpath.dirname(path), target))
        self._count += 1
        self._total += info.size if info.isreg() else 0
        faults = {
            f"more than {MAX_MEMBERS} members": self._count > MAX_MEMBERS,
            "control character in the name": _CONTROL.search(name) is not None,
            "absolute path": name.startswith("/"),
            "path too long": len(name) > _MAX_PATH,
            "leads out of the archive's folder": ".." in parts,
            f"outside the archive's top folder {self._top}": self._top not in {"", *parts[:1]},
            "is git's own folder": any(p.lower().rstrip(". ") in _GIT_FOLDERS for p in parts),
            "neither a file, nor a folder, nor a symbolic link": info.issparse()
            or not (info.isdir() or info.issym() or info.isreg()),
            "a file in place of the top folder": not path and not info.isdir(),
            "is there twice": path in self._files or (not info.isdir() and path in self._folders),
            "its folder is a file as well": not self._files.isdisjoint(folders),
            "less than nothing": info.size < 0,
            f"the archive unpacks to more than {MAX_TOTAL} bytes": self._total > MAX_TOTAL,
            "link without a usable target": not target or _CONTROL.search(target) is not None,
            f"link out of the archive's folder, to {target!a}": target.startswith("/")
            or reached.startswith("../") or reached == "..",
            "link into git's own folder": not _GIT_FOLDERS.isdisjoint(reached.lower().split("/")),
        }  # fmt: skip
        for why in (why for why, is_so in faults.items() if is_so):
            raise self.refuse(name, why)
        self._folders |= folders
        if not info.isdir():
            self._files.add(path)
        return path


def release_detail(job: SourceRequest) -> str:
    """Return the release and its digest, of a wheel also the folders."""
    spec = _release(job)
    what = "source archive"
    if isinstance(spec, WheelSource):
        what = f"wheel {spec.tags}, Python files of {', '.join(spec.packages)}"
    return f"{spec.distribution} {spec.version} {what}, sha256 {spec.sha256}"


def bring_release(job: SourceRequest) -> bool:
    """Find, download, check and import a source archive or wheel; build nothing."""
    archive = obtain(_release(job), progress=job.progress)
    with job.store.exclusive():
        if job.stored():
            return False
        import_archive(job, archive)
    return True


def _release(job: SourceRequest) -> ReleaseSource:
    if not isinstance(job.spec, SdistSource | WheelSource):
        raise TypeError(f"{job.spec.kind} is no file of a release")
    return job.spec


def import_archive(job: SourceRequest, archive: Path) -> None:
    """Stream an archive into the store; call it inside `store.exclusive()`."""
    spec = _release(job)
    packages = spec.packages if isinstance(spec, WheelSource) else None
    members = read_members(
        archive,
        advance=job.progress.advance,
        kept=lambda path: (
            packages is None or _is_python(path, packages) or _METADATA.fullmatch(path) is not None
        ),
        topless=packages is not None,
    )
    what = "files" if packages is None else f"Python files under {', '.join(packages)}"
    upstreams = _upstream_files(archive.name, members, spec)
    size = archive.stat().st_size
    error = IntegrityError(f"{archive.name}: holds no {what}", hint="correct the pin's source")
    _import(job, archive.name, size, spec.sha256, _some(upstreams, error), root=spec.root)


def _some(files: Iterable[TreeFile], error: IntegrityError) -> Iterator[TreeFile]:
    """Pass files on; raise an error where there are none."""
    empty = True
    for file in files:
        empty = False
        yield file
    if empty:
        raise error


def _import(
    job: SourceRequest, label: str, total: int | None, digest: str,
    files: Iterable[TreeFile], *, root: str = "",
) -> None:  # fmt: skip
    """Write the tree of a pin, and show how far it is."""
    job.progress.start(f"importing {label}", total)
    try:
        import_tree(job.store, files, ref=job.ref, message=job.message(digest), root=root)
    finally:
        job.progress.done()


#: Where a source archive and a wheel say which release they are of.
_METADATA: Final = re.compile(r"PKG-INFO|[^/]+\.dist-info/METADATA")
#: What setuptools writes into the archive beside the repository's files.
_GENERATED: Final = re.compile(r"(?:src/)?[^/]+\.egg-info/.*", re.DOTALL)
#: The setup.cfg that setuptools makes when the repository has none. Where the
#: repository has one, setuptools adds these lines to it and it is kept as it is.
_SETUP_CFG: Final = re.compile(rb"\s*\[egg_info\]\s*(?:tag_\w+ *=[^\n]*\s*)*")
_SETUP_CFG_MAX: Final = 500
_SUFFIX: Final = ".py"


def _upstream_files(
    archive: str, members: Iterator[TreeFile], spec: ReleaseSource
) -> Iterator[TreeFile]:
    """Yield the members that the repository has too; refuse metadata of another release."""
    # A pin's version decides which file is asked for, and is quoted (PyPA, "Core metadata").
    for member in members:
        if _METADATA.fullmatch(member.path):
            if other := _other_release(member.content, spec):
                raise IntegrityError(
                    f"{archive}: says that it is {other}, and the pin names"
                    f" {spec.distribution} {spec.version}",
                    hint="correct the pin's tag and version, or its sha256",
                )
        elif not _is_generated(member):
            yield member


def _is_generated(member: TreeFile) -> bool:
    if member.path == "setup.cfg" and len(member.content) <= _SETUP_CFG_MAX:
        return _SETUP_CFG.fullmatch(member.content) is not None
    return _GENERATED.fullmatch(member.path) is not None


def _other_release(metadata: bytes, spec: ReleaseSource) -> str | None:
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


def _is_python(path: str, packages: tuple[str, ...]) -> bool:
    """Say whether a path is a Python file under one of the folders, without detours."""
    inside = path.startswith(tuple(f"{package}/" for package in packages))
    return inside and path.endswith(_SUFFIX) and {"", ".", ".."}.isdisjoint(path.split("/"))


def installed_detail(job: SourceRequest) -> str:
    """Return the distribution, its release and its folders."""
    spec = job.spec_as(InstalledSource)
    return (
        f"installed {spec.distribution} {spec.version}, Python files of {', '.join(spec.packages)}"
    )


def bring_installed(job: SourceRequest) -> bool:
    """Import what is installed beside this Python."""
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
    members = (_checked(spec, root, path, digest) for path, digest in digests.items())
    with job.store.exclusive():
        if job.stored():
            return False
        _import(job, installed_detail(job), None, summary, members)
    return True


def is_installed(spec: InstalledSource) -> bool:
    """Say whether the release is installed beside this Python, as a source would ask."""
    try:
        _distribution(spec)
    except SourceError:
        return False
    return True


def _distribution(spec: InstalledSource) -> importlib.metadata.Distribution:
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
    """Return by path the SHA-256 in RECORD, as text: `Distribution.files` leaves lost files out."""
    record = installed.read_text("RECORD")
    if record is None:
        raise IntegrityError(
            f"{spec.distribution}: installed without a RECORD, so its files cannot be checked",
            hint="install it from a wheel with pip",
        )
    digests: dict[str, bytes] = {}
    for row in csv.reader(record.splitlines()):
        path, written = (*row, "", "")[:2]
        if _is_python(path, spec.packages):
            # `sha256=`, then base64 without padding.
            kind, _, encoded = written.partition("=")
            with contextlib.suppress(binascii.Error):
                digests[path] = base64.urlsafe_b64decode(encoded + "==")
            if kind != "sha256" or len(digests.get(path, b"")) != hashlib.sha256().digest_size:
                raise IntegrityError(
                    f"{spec.distribution}: RECORD has no sha256 for {path}",
                    hint=f"reinstall {spec.distribution} from its wheel",
                )
    if not digests:
        raise SourceError(
            f"{spec.distribution}: RECORD lists no Python files under {', '.join(spec.packages)}",
            hint="an editable install has none; install a wheel, or add another source",
        )
    return dict(sorted(digests.items()))


def _checked(spec: InstalledSource, root: Path, path: str, digest: bytes) -> TreeFile:
    hint = f"reinstall it: python -m pip install --force-reinstall --no-deps {spec.distribution}"
    try:
        content = (root / path).read_bytes()
    except OSError as error:
        raise IntegrityError(f"{spec.distribution}: {path}: {error.strerror}", hint=hint) from error
    got = hashlib.sha256(content).digest()
    if got != digest:
        raise IntegrityError(
            f"{spec.distribution}: {path} was changed after it was installed:"
            f" expected sha256 {digest.hex()}, got {got.hex()}",
            hint=hint,
        )
    return TreeFile(path, Mode.FILE, content)
