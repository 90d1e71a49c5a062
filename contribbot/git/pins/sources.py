"""Bring a pin's tree into the store: a release's archive or wheel, installed packages, or git."""

from __future__ import annotations

import base64
import binascii
import contextlib
import csv
import functools
import gzip
import hashlib
import importlib.metadata
import logging
import os
import posixpath
import re
import stat
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import IO, Final

from contribbot.errors import IntegrityError, SourceError
from contribbot.files import stores_folder
from contribbot.git.pins import (
    Progress,
    Provided,
    Silent,
    SourceRequest,
    one_line,
)
from contribbot.git.pins.index import obtain
from contribbot.git.pins.remote import bring_commit, commit_detail, refuse_moved, tagged_commit
from contribbot.git.repository import Mode, Store, TreeFile, import_tree
from contribbot.model.patch import (
    InstalledSource,
    Pin,
    ReleaseSource,
    SdistSource,
    Upstream,
    WheelSource,
)

log: Final = logging.getLogger(__name__)


def _refuse_unsafe(info: tarfile.TarInfo) -> None:
    """Raise TarError for a device or pipe, or for a path or link that leads outside the archive."""
    ends = [info.name, posixpath.join(posixpath.dirname(info.name), info.linkname)]
    if info.isdev() or any(posixpath.normpath(end).startswith(("/", "..")) for end in ends):
        raise tarfile.TarError(f"{info.name!r} is a special file, or leads outside the destination")


def read_members(
    archive: Path, *, advance: Callable[[int], None], wanted: Callable[[str], bool], top: bool
) -> Iterator[TreeFile]:
    """Yield an archive's wanted files; with `top`, each path is without the top folder."""
    try:
        with archive.open("rb") as file:
            done = 0
            for info, read in _read_zip(file) if zipfile.is_zipfile(archive) else _read_tar(file):
                _refuse_unsafe(info)
                name = posixpath.normpath(info.name)
                path = name.partition("/")[2] if top else name
                if wanted(path) and info.issym():
                    yield TreeFile(path, Mode.SYMLINK, os.fsencode(info.linkname))
                elif wanted(path) and not info.isdir():
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


#: An archive's member, described as tarfile does, and a function that reads its content.
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
    """Return a line with the release, the file's digest and, for a wheel, the package folders."""
    spec = _release(job)
    kind = "source archive"
    if isinstance(spec, WheelSource):
        kind = f"wheel {spec.tags}, Python files of {', '.join(spec.packages)}"
    return f"{spec.distribution} {spec.version} {kind}, sha256 {spec.sha256}"


def bring_release(job: SourceRequest) -> bool:
    """Download a source archive or wheel and import its tree; return whether the tree was new."""
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
    """Write an archive's files into the store as a tree; call inside `store.exclusive()`."""
    spec = _release(job)
    packages = spec.packages if isinstance(spec, WheelSource) else None
    members = read_members(
        archive,
        advance=job.progress.advance,
        wanted=lambda path: (
            packages is None or (is_python(path, packages) and path not in job.generated)
        ),
        top=packages is None,
    )
    kind = "files" if packages is None else f"Python files under {', '.join(packages)}"
    error = IntegrityError(f"{archive.name}: holds no {kind}", hint="correct the pin's source")
    files = _some((member for member in members if not _is_generated(member)), error)
    write_tree(job, archive.name, archive.stat().st_size, spec.sha256, files, root=spec.root)


def _some(files: Iterable[TreeFile], error: IntegrityError) -> Iterator[TreeFile]:
    """Yield the files; raise the error if there are no files."""
    empty = True
    for file in files:
        empty = False
        yield file
    if empty:
        raise error


def write_tree(
    job: SourceRequest,
    label: str,
    total: int | None,
    digest: str,
    files: Iterable[TreeFile],
    *,
    root: str = "",
) -> None:
    """Write a pin's files into the store as a tree, and show progress."""
    job.progress.start(f"importing {label}", total)
    try:
        import_tree(job.store, files, ref=job.ref, message=job.message(digest), root=root)
    finally:
        job.progress.done()


#: Files that setuptools adds to a source archive and the repository lacks.
_GENERATED: Final = re.compile(r"PKG-INFO|(?:src/)?[^/]+\.egg-info/.*", re.DOTALL)
#: The setup.cfg that setuptools writes if the repository has no such file. If the
#: repository has one, setuptools adds these lines to the file, and the import keeps the file.
_SETUP_CFG: Final = re.compile(rb"\s*\[egg_info\]\s*(?:tag_\w+ *=[^\n]*\s*)*")
_SETUP_CFG_MAX: Final = 500


def _is_generated(member: TreeFile) -> bool:
    if member.path == "setup.cfg" and len(member.content) <= _SETUP_CFG_MAX:
        return _SETUP_CFG.fullmatch(member.content) is not None
    return _GENERATED.fullmatch(member.path) is not None


def is_python(path: str, packages: tuple[str, ...]) -> bool:
    """Return whether a path is a Python file in a package folder; no: the path contains `..`."""
    inside = path.startswith(tuple(f"{package}/" for package in packages))
    return inside and path.endswith(".py") and {"", ".", ".."}.isdisjoint(path.split("/"))


def installed_detail(job: SourceRequest) -> str:
    """Return a line with an installed distribution, its version and its package folders."""
    spec = job.spec_as(InstalledSource)
    return (
        f"installed {spec.distribution} {spec.version}, Python files of {', '.join(spec.packages)}"
    )


def bring_installed(job: SourceRequest) -> bool:
    """Import the tree of an installed distribution; return whether the tree was new."""
    spec = job.spec_as(InstalledSource)
    installed = _distribution(spec)
    root = Path(str(installed.locate_file("")))
    digests = _recorded(spec, installed)
    # Python could import a file that RECORD does not list, and the tree would lack that
    # file: then the tree is not all that runs.
    for package in spec.packages:
        for file in (root / package).rglob("*.py"):
            path = file.relative_to(root).as_posix()
            if path not in digests:
                raise IntegrityError(
                    f"{spec.distribution}: {path} is not in its RECORD",
                    hint=f"remove the file, or reinstall {spec.distribution}",
                )
    for path in job.generated:
        digests.pop(path, None)
    # The digest depends on nothing but the files: a wheel gives the same commit anywhere.
    listed = "".join(f"{digest.hex()}  {path}\n" for path, digest in digests.items())
    summary = hashlib.sha256(listed.encode()).hexdigest()
    members = (_checked_file(spec, root, path, digest) for path, digest in digests.items())
    with job.store.exclusive():
        if job.stored():
            return False
        write_tree(job, installed_detail(job), None, summary, members)
    return True


def _distribution(spec: InstalledSource) -> importlib.metadata.Distribution:
    wanted = f"{spec.distribution}=={spec.version}"
    hint = f"python -m pip install {wanted}, or add another source to the pin"
    try:
        installed = importlib.metadata.distribution(spec.distribution)
    except importlib.metadata.PackageNotFoundError:
        raise SourceError(f"{spec.distribution} is not installed", hint=hint) from None
    # A local label such as `+cpu` or `+rocm6.4` names a build of the same release.
    if spec.version not in {installed.version, installed.version.partition("+")[0]}:
        raise SourceError(
            f"{spec.distribution} {installed.version} is installed, not {spec.version}", hint=hint
        )
    return installed


def _recorded(
    spec: InstalledSource, installed: importlib.metadata.Distribution
) -> dict[str, bytes]:
    """Return, by path, the SHA-256 of each Python file that RECORD lists, also of missing files."""
    record = installed.read_text("RECORD")
    if record is None:
        raise IntegrityError(
            f"{spec.distribution}: installed without a RECORD, so its files cannot be checked",
            hint="install it from a wheel with pip",
        )
    digests: dict[str, bytes] = {}
    for row in csv.reader(record.splitlines()):
        path, written = (*row, "", "")[:2]
        if is_python(path, spec.packages):
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


def _checked_file(spec: InstalledSource, root: Path, path: str, digest: bytes) -> TreeFile:
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


#: By kind of source: a function that returns a line on where the tree comes from, and a function
#: that writes the tree into the store, and last the ref, and returns whether the tree was new.
SOURCES: Final[
    Mapping[str, tuple[Callable[[SourceRequest], str], Callable[[SourceRequest], bool]]]
] = {
    "sdist": (release_detail, bring_release),
    "wheel": (release_detail, bring_release),
    "git": (commit_detail, bring_commit),
    "installed": (installed_detail, bring_installed),
}


def stored_tree(pin: Pin, upstream: Upstream, store: Store) -> Provided | None:
    """Return the pin's tree if the store has the tree, else None; fetch nothing."""
    stored = _find_stored(pin, upstream, store)
    return None if stored is None else stored[1]


def _find_stored(
    pin: Pin, upstream: Upstream, store: Store
) -> tuple[SourceRequest, Provided] | None:
    # git fails at a ref whose commit was lost; then the tree counts as missing.
    listed = store.git(
        "for-each-ref",
        "--format=%(refname) %(objectname) %(tree)",
        f"refs/pins/{pin.tag}/",
        accept=(0, 1, 128),
    )
    rows = listed.stdout.decode().splitlines() if listed.returncode == 0 else []
    ids = {ref: (commit, tree) for ref, commit, tree in (row.split(" ") for row in rows)}
    for spec in pin.sources:
        job = SourceRequest(pin, spec, upstream, store, Silent())
        if job.ref in ids:
            detail = SOURCES[spec.kind][0](job)
            return job, Provided(spec.kind, *ids[job.ref], detail, fresh=False)
    return None


def remote_commit(pin: Pin, upstream: Upstream) -> str | None:
    """Return the commit that a pin's tag names on the remote now, or else the known commit.

    The remote is asked only for a git source without a pinned commit: other sources cannot move.
    """
    spec = next((spec for spec in pin.sources if spec.kind == "git"), None)
    store = Store(stores_folder() / f"{upstream.name}.git")
    if spec is None or pin.commit or not store.path.is_dir():
        return pin.commit
    request = SourceRequest(pin, spec, upstream, store, Silent())
    stored = store.resolve(f"{request.ref}^{{commit}}")
    return tagged_commit(request) or stored


def provide(pin: Pin, upstream: Upstream, store: Store, *, progress: Progress) -> Provided:
    """Return the pin's tree from the store, or else from the first source that works."""
    stored = _find_stored(pin, upstream, store)
    if stored is not None:
        job, provided = stored
        if provided.kind == "git" and pin.commit is None:
            refuse_moved(job, provided.commit)
        return provided
    failures: list[str] = []
    hints: list[str] = []
    for spec in pin.sources:
        try:
            provided = _bring(SourceRequest(pin, spec, upstream, store, progress))
        except IntegrityError:
            raise
        except SourceError as error:
            failures.append(f"{spec.kind}: {one_line(error.message)}")
            hints.append(error.hint)
            log.info("%s: %s", pin.title, failures[-1])
            continue
        return replace(provided, failures=tuple(failures))
    raise SourceError(
        f"{pin.title}: no source can provide it: {'; '.join(failures)}",
        hint="; or ".join(dict.fromkeys(hint for hint in hints if hint)),
    )


def _bring(job: SourceRequest) -> Provided:
    detail, bring = SOURCES[job.spec.kind]
    fresh = bring(job)
    commit = job.store.resolve(f"{job.ref}^{{commit}}")
    if commit is None:
        raise SourceError(f"{job.pin.title}: {job.ref} is missing after the import")
    return Provided(job.spec.kind, commit, job.store.tree_of(commit), detail(job), fresh=fresh)
