"""Trees from releases: source archives, wheels and installed Python files, by their digests."""

from __future__ import annotations

import base64
import binascii
import contextlib
import csv
import functools
import gzip
import hashlib
import importlib.metadata
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


def read_members(
    archive: Path, *, advance: Callable[[int], None], kept: Callable[[str], bool], top: bool
) -> Iterator[TreeFile]:
    """Yield the files of an archive whose paths are kept; below its top folder where it has one."""
    try:
        with archive.open("rb") as file:
            done = 0
            for info, read in _read_zip(file) if zipfile.is_zipfile(archive) else _read_tar(file):
                tarfile.data_filter(info, str(archive.parent))
                name = posixpath.normpath(info.name)
                path = name.partition("/")[2] if top else name
                if kept(path) and info.issym():
                    yield TreeFile(path, Mode.SYMLINK, os.fsencode(info.linkname))
                elif kept(path) and not info.isdir():
                    mode = Mode.EXECUTABLE if info.mode & stat.S_IXUSR else Mode.FILE
                    yield TreeFile(path, mode, read())
                advance(file.tell() - done)
                done = file.tell()
            advance(archive.stat().st_size - done)
    except (tarfile.TarError, gzip.BadGzipFile, zipfile.BadZipFile, zlib.error, EOFError) as error:
        raise IntegrityError(
            f"{archive.name}: cannot be unpacked: {str(error)!a}",
            hint="see which archive the project publishes, and correct the pin's source",
        ) from error


#: A member in the terms of a .tar, and its content.
_Member = tuple[tarfile.TarInfo, Callable[[], bytes]]


def _read_tar(file: IO[bytes]) -> Iterator[_Member]:
    with tarfile.open(fileobj=file, mode="r:gz") as tar:
        for info in tar:
            yield info, functools.partial(_content, tar, info)


def _content(tar: tarfile.TarFile, info: tarfile.TarInfo) -> bytes:
    file = tar.extractfile(info)
    return b"" if file is None else file.read()


def _read_zip(file: IO[bytes]) -> Iterator[_Member]:
    with zipfile.ZipFile(file) as bundle:
        for entry in bundle.infolist():
            info = tarfile.TarInfo(entry.filename)
            info.mode = entry.external_attr >> 16
            if entry.is_dir():
                info.type = tarfile.DIRTYPE
            elif stat.S_ISLNK(info.mode):
                info.type, info.linkname = tarfile.SYMTYPE, os.fsdecode(bundle.read(entry))
            yield info, functools.partial(bundle.read, entry)


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
        top=packages is None,
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
