"""Downloading a release's file once, and never trusting what lies in the cache."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import logging
import os
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Final

from packaging.utils import (
    InvalidSdistFilename,
    InvalidWheelFilename,
    canonicalize_name,
    parse_sdist_filename,
    parse_wheel_filename,
)
from packaging.version import Version

from contribbot import process
from contribbot.errors import IntegrityError, MachineError, SourceError
from contribbot.locks import lock
from contribbot.model.pin import ReleaseSource
from contribbot.sources.base import Progress
from contribbot.sources.connection import Connection, connect
from contribbot.sources.index import Candidate, find_archive
from contribbot.sources.pip_config import read_pip_config
from contribbot.sources.retry import persist
from contribbot.workspace import downloads_folder

log: Final = logging.getLogger(__name__)

#: The end of a file's name while it is written.
_PART: Final = ".part"
#: Where a file lies until its digest is known.
_UNKNOWN: Final = "unknown"
#: No release's source comes near; a server that does not stop must be stopped.
_MAX_BYTES: Final = 4 * 2**30
_OK: Final = 200


def obtain(spec: ReleaseSource, *, progress: Progress) -> Path:
    """Return a release's archive or wheel, downloaded if need be, its digest checked.

    Several processes may ask at once: one downloads, the others wait.
    """
    downloads = downloads_folder()
    folder = downloads / spec.sha256
    release = f"{spec.distribution} {spec.version}"
    with _disk(folder), lock(downloads / f"{spec.sha256}.lock", f"the download of {release}"):
        folder.mkdir(exist_ok=True)
        cached = _cached(folder, spec.sha256)
        if cached is not None:
            return _of_release(spec, cached)
        config = read_pip_config()
        with connect(config) as connection:
            candidate = find_archive(spec, config, connection)
            part = folder / (candidate.filename + _PART)
            try:
                persist(
                    f"{candidate.filename} from {candidate.place}",
                    lambda: _download(candidate, part, spec.sha256, connection, progress),
                )
                final = folder / candidate.filename
                part.replace(final)
            finally:
                part.unlink(missing_ok=True)
        _sync_folder(folder)
        return final


def _of_release(spec: ReleaseSource, path: Path) -> Path:
    """Return a file of the cache, which goes by digests, if it is of the pin's release."""
    try:
        if path.suffix == ".whl":
            name, version, *_ = parse_wheel_filename(path.name)
        else:
            name, version = parse_sdist_filename(path.name)
    except (InvalidSdistFilename, InvalidWheelFilename) as error:
        raise IntegrityError(f"{path.name}: {error}") from error
    if name != canonicalize_name(spec.distribution) or version != Version(spec.version):
        raise IntegrityError(
            f"{path.name} has the digest that the pin names, and is not"
            f" {spec.distribution} {spec.version}",
            hint="correct `version` or `sha256` in queue.toml",
        )
    return path


def digest_of(candidate: Candidate, connection: Connection, *, progress: Progress) -> str:
    """Return the SHA-256 of a file for which nobody announces one, by downloading it.

    It is kept under that digest, so that `obtain` need not download it again.
    """
    downloads = downloads_folder()
    folder = downloads / _UNKNOWN
    with _disk(folder), lock(folder.with_suffix(".lock"), "a download without a digest"):
        folder.mkdir(exist_ok=True)
        part = folder / (candidate.filename + _PART)
        for left in folder.iterdir():
            left.unlink()  # of a download that was killed: this one holds the lock
        try:
            sha256 = persist(
                f"{candidate.filename} from {candidate.place}",
                lambda: _fetch(candidate, part, connection, progress),
            )
            with lock(downloads / f"{sha256}.lock", f"the download of {candidate.filename}"):
                final = downloads / sha256 / candidate.filename
                final.parent.mkdir(exist_ok=True)
                part.replace(final)
                _sync_folder(final.parent)
        finally:
            part.unlink(missing_ok=True)
        return sha256


def _cached(folder: Path, sha256: str) -> Path | None:
    """Return the good archive of a folder; remove whatever else is there."""
    good: Path | None = None
    for path in sorted(folder.iterdir()):
        if path.name.endswith(_PART):
            path.unlink()  # of a download that was killed: this one holds the lock
            continue
        with path.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
        if digest == sha256:
            good = path
        else:
            log.warning("%s in the cache is damaged; it is downloaded again", path.name)
            path.unlink()
    return good


def _download(
    candidate: Candidate, part: Path, sha256: str, connection: Connection, progress: Progress
) -> None:
    """Download to a file and check the digest on the way."""
    got = _fetch(candidate, part, connection, progress)
    if got != sha256:
        raise IntegrityError(
            f"{candidate.filename} from {candidate.place}: wrong sha256:"
            f" expected {sha256}, got {got}",
            hint="find out why it differs before you change the pin",
        )


def _fetch(candidate: Candidate, part: Path, connection: Connection, progress: Progress) -> str:
    """Download to a file; return the SHA-256 of what came."""
    # As stored: some servers announce a .tar.gz as a compressed .tar.
    headers = {"Accept-Encoding": "identity"}
    with connection.http.stream("GET", candidate.url, headers=headers) as response:
        if response.status_code != _OK:
            raise SourceError(
                f"{candidate.filename} from {candidate.place}: HTTP {response.status_code}",
                hint="the index lists an archive that it does not give out; try another index",
            )
        announced = response.headers.get("Content-Length", "")
        progress.start(f"downloading {candidate.filename}", int(announced) if announced else None)
        try:
            with part.open("wb") as file:
                return _store(response.iter_raw(), file, candidate.filename, progress)
        finally:
            progress.done()


def _store(chunks: Iterator[bytes], file: IO[bytes], name: str, progress: Progress) -> str:
    """Write to a file, down to the disk; return the SHA-256."""
    digest = hashlib.sha256()
    size = 0
    for chunk in chunks:
        size += len(chunk)
        if size > _MAX_BYTES:
            raise IntegrityError(f"{name}: larger than {_MAX_BYTES} bytes")
        digest.update(chunk)
        file.write(chunk)
        progress.advance(len(chunk))
    file.flush()
    os.fsync(file.fileno())
    return digest.hexdigest()


def _sync_folder(folder: Path) -> None:
    """Make a rename survive a power cut."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


@contextlib.contextmanager
def _disk(path: Path) -> Iterator[None]:
    """Turn what a disk says into errors that name the place."""
    try:
        yield
    except OSError as error:
        if error.errno in {errno.ENOSPC, errno.EDQUOT}:
            raise process.no_space(str(path)) from error
        raise MachineError(
            f"{error.filename or path}: {error.strerror or error}",
            hint="see that the cache folder (CONTRIBBOT_CACHE) can be written",
        ) from error
