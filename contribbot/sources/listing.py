"""What package indexes list of a project: every file of every release."""

from __future__ import annotations

import contextlib
import logging
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from pydantic import BaseModel, ValidationError

from contribbot.errors import IntegrityError, SourceError
from contribbot.sources.connection import Connection
from contribbot.sources.index import FILE_NAME, Candidate, files_of, locations
from contribbot.sources.pip_config import PipConfig
from contribbot.sources.redact import redact

if TYPE_CHECKING:
    from unearth import Package

log: Final = logging.getLogger(__name__)

_SHA256: Final = re.compile(r"[0-9a-f]{64}")
#: What `read_members` reads.
_ARCHIVES: Final = (".tar.gz", ".zip")


@dataclass
class File:
    """A file of a release, perhaps in several places.

    Attributes:
        candidate: Where it was found first.
        version: The release, as the file's name writes it; without a local label.
        tags: Python, ABI and platform tags; empty for a source archive.
        size: In bytes, or None where no place says it.
        yanked: Whether a place says that the project withdrew it.
        digests: The SHA-256 that places announce, each with the first that does.
    """

    candidate: Candidate
    version: str
    tags: str
    size: int | None = None
    yanked: bool = False
    digests: dict[str, str] = field(default_factory=dict)

    @property
    def sha256(self) -> str:
        """The digest that is announced; empty where none is."""
        if len(self.digests) > 1:
            told = ", ".join(f"{digest} at {place}" for digest, place in self.digests.items())
            raise IntegrityError(
                f"{self.candidate.filename}: places announce different sha256: {told}",
                hint="find out which is the project's; pin it by hand, or leave out a place",
            )
        return next(iter(self.digests), "")


@dataclass(frozen=True)
class Listing:
    """What all places list.

    Attributes:
        files: By name; each once, whatever number of places has it.
        said: For each place one line on what it has, or why it cannot be asked.
    """

    files: tuple[File, ...]
    said: tuple[str, ...]

    @property
    def places(self) -> str:
        """All that was said, on one line."""
        return "; ".join(self.said) or "pip is configured with no-index and without find-links"


def read_listing(distribution: str, config: PipConfig, connection: Connection) -> Listing:
    """Ask every place that pip is configured for; an index with one request.

    A place that cannot be asked is passed over with a warning.
    """
    files: dict[str, File] = {}
    said: list[str] = []
    failed: list[str] = []
    for location in locations(config):
        place = redact(location["url"])
        with _sizes(connection) as sizes:
            try:
                packages = files_of(distribution, location, connection)
            except SourceError as error:
                said.append(error.message)
                failed.append(error.message)
                continue
        usable = [package for package in packages if _is_usable(package)]
        for package in usable:
            _add(files, package, place, sizes)
        said.append(f"{place} has {len(usable) or 'no'} files")
    if files:
        # Where there are none, whoever asked says all of it.
        for message in failed:
            log.warning("%s; releases that only it has are not seen", message)
    return Listing(tuple(files[name] for name in sorted(files)), tuple(said))


def _is_usable(package: Package) -> bool:
    """Say whether a file can be a source; a local label names a build of a release, no release."""
    name = package.link.filename
    if not FILE_NAME.fullmatch(name) or package.version is None or "+" in package.version:
        return False
    return package.link.is_wheel or name.endswith(_ARCHIVES)


def _add(files: dict[str, File], package: Package, place: str, sizes: dict[str, int]) -> None:
    """Add what a place says of a file."""
    link = package.link
    name = link.filename
    if name not in files:
        tags = "-".join(name.removesuffix(".whl").rsplit("-", 3)[1:]) if link.is_wheel else ""
        candidate = Candidate(link.normalized, name, place)
        files[name] = File(candidate, package.version or "", tags)
    file = files[name]
    file.yanked |= link.is_yanked
    digest = (link.hash_option or {}).get("sha256", [""])[0].lower()
    if _SHA256.fullmatch(digest):
        file.digests.setdefault(digest, place)
    if file.size is None:
        file.size = sizes.get(name)
        if link.is_file:
            with contextlib.suppress(OSError):
                file.size = link.file_path.stat().st_size


class _PageFile(BaseModel):
    """A file on a page; its size is there since version 1.1 of the interface."""

    filename: str
    size: int | None = None


class _Page(BaseModel):
    """A page of an index, in JSON (PyPA specification "Simple repository API")."""

    files: list[_PageFile]


@contextlib.contextmanager
def _sizes(connection: Connection) -> Iterator[dict[str, int]]:
    """Give the files' sizes in bytes, as far as the pages that are read meanwhile say them.

    unearth reads the same pages and leaves the sizes out.
    """
    found: dict[str, int] = {}

    def read(page: bytes) -> None:
        # A page that is wrong is unearth's to refuse.
        with contextlib.suppress(ValidationError):
            files = _Page.model_validate_json(page).files
            found.update({file.filename: file.size for file in files if file.size is not None})

    connection.watch.pages = read
    try:
        yield found
    finally:
        connection.watch.pages = None
