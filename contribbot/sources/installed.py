"""The Python files of an installed distribution, each checked against its RECORD.

PyTorch publishes no source archive; its wheel holds the `.py` files under the
repository's own paths. RECORD is the list of a wheel's files with their digests
(PyPA specification "Recording installed projects").
"""

from __future__ import annotations

import base64
import binascii
import csv
import hashlib
import importlib.metadata
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from contribbot.errors import IntegrityError, SourceError
from contribbot.model.pin import InstalledSource
from contribbot.sources.base import Job
from contribbot.store.fastimport import Mode, import_tree

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
            job.progress.start(f"importing {self.detail(job)}", total)
            try:
                message = job.message(summary.hexdigest())
                with import_tree(job.store, ref=job.ref, message=message) as tree:
                    for file in files:
                        content = _checked(spec, root, file)
                        tree.add(file.path, Mode.FILE, len(content), (content,))
                        job.progress.advance(len(content))
            finally:
                job.progress.done()
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
