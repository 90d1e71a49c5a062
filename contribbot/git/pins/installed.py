"""The tree of an installed distribution: its Python files, checked against its RECORD."""

from __future__ import annotations

import base64
import binascii
import contextlib
import csv
import hashlib
import importlib.metadata
from pathlib import Path

from contribbot.errors import IntegrityError, SourceError
from contribbot.git.pins.archive import is_python, write_tree
from contribbot.git.pins.source import SourceRequest
from contribbot.git.repository import Mode, TreeFile
from contribbot.model.pin import InstalledSource


def installed_detail(job: SourceRequest) -> str:
    """Return in a line the distribution, its release and its folders."""
    spec = job.spec_as(InstalledSource)
    return (
        f"installed {spec.distribution} {spec.version}, Python files of {', '.join(spec.packages)}"
    )


def bring_installed(job: SourceRequest) -> bool:
    """Import the tree of a distribution that this Python has installed."""
    spec = job.spec_as(InstalledSource)
    installed = _distribution(spec)
    root = Path(str(installed.locate_file("")))
    digests = _recorded(spec, installed)
    # Python files that RECORD does not know would be imported at run time and not be in
    # the tree: what then runs is not what the pin names.
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
    # Depends on the files alone, so that the same wheel gives the same commit anywhere.
    listed = "".join(f"{digest.hex()}  {path}\n" for path, digest in digests.items())
    summary = hashlib.sha256(listed.encode()).hexdigest()
    members = (_checked(spec, root, path, digest) for path, digest in digests.items())
    with job.store.exclusive():
        if job.stored():
            return False
        write_tree(job, installed_detail(job), None, summary, members)
    return True


def is_installed(spec: InstalledSource) -> bool:
    """Tell whether this Python has the release installed."""
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
    """Return by path the SHA-256 of each Python file in RECORD, also of lost files."""
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
