"""A release's files: found on the package indexes and in the folders of pip, and downloaded."""

from __future__ import annotations

import ast
import contextlib
import errno
import hashlib
import logging
import os
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, Self
from urllib.parse import unquote, urlsplit

from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version
from pydantic import BaseModel, BeforeValidator, ConfigDict, ValidationError

from contribbot import process
from contribbot.errors import (
    CommandError,
    CommandTimeoutError,
    IntegrityError,
    MachineError,
    SourceError,
)
from contribbot.files import downloads_folder, lock
from contribbot.git.source import Progress, one_line, redact, redact_logs
from contribbot.model.pin import ReleaseSource, SdistSource

if TYPE_CHECKING:
    from pypi_simple import DistributionPackage, PyPISimple

log: Final = logging.getLogger(__name__)

#: Later sections win (pip's user guide, "Precedence / Override order").
_SECTIONS: Final = ("global", "download", ":env:")
_LINE: Final = re.compile(r"(?P<name>[^=]+)=(?P<value>(?P<quote>['\"]).*(?P=quote))")
#: Variables that decide which files pip reads.
_PIP_FOLDERS: Final = ("HOME", "XDG_CONFIG_HOME", "XDG_CONFIG_DIRS")
_Words = Annotated[
    tuple[str, ...], BeforeValidator(lambda text: text.split() if isinstance(text, str) else text)
]


class PipConfig(BaseModel):
    """The index, folders and network settings of pip. May hold credentials: never print it."""

    model_config = ConfigDict(
        frozen=True, populate_by_name=True, alias_generator=lambda name: name.replace("_", "-")
    )

    #: Empty for pip's default.
    index_url: str = ""
    extra_index_url: _Words = ()
    #: Folders, archives or pages with links.
    find_links: _Words = ()
    no_index: bool = False
    #: `host` or `host:port` whose certificate is not checked.
    trusted_host: _Words = ()
    #: A file or folder of certificates to trust, and a file with a client's certificate and key.
    cert: str = ""
    client_cert: str = ""
    proxy: str = ""
    timeout: float = 15.0

    def __repr_args__(self) -> Iterator[tuple[str | None, object]]:
        """Show nothing."""
        yield from ()

    def places(self, distribution: str) -> Iterator[tuple[str, str]]:
        """Yield each folder and index, folders first, with its page of a distribution."""
        import pypi_simple  # noqa: PLC0415  0.1 s that only downloads pay

        yield from ((link, link) for link in self.find_links)
        if not self.no_index:
            for url in (self.index_url or pypi_simple.PYPI_SIMPLE_ENDPOINT, *self.extra_index_url):
                yield url, f"{url.rstrip('/')}/{canonicalize_name(distribution)}/"


def read_pip_config() -> PipConfig:
    """Ask pip how it is configured."""
    sections: dict[str, dict[str, str]] = {}
    for name, value in _listed():
        section, _, key = name.partition(".")
        sections.setdefault(section, {})[key] = value.strip()
    merged: dict[str, str] = {}
    for section in _SECTIONS:
        merged |= {key: value for key, value in sections.get(section, {}).items() if value}
    try:
        return PipConfig.model_validate(merged)
    except ValidationError as error:
        fault = error.errors()[0]
        raise SourceError(
            f"pip's configuration: {fault['loc'][0]}: {fault['msg']}",
            hint="correct it with `pip config set`",
        ) from None


def _listed() -> list[tuple[str, str]]:
    """Return the names and values of `pip config list`, whose complaints may quote a password."""
    variables = {
        name: value
        for name, value in os.environ.items()
        if name.startswith("PIP_") or name in _PIP_FOLDERS
    }
    command = [sys.executable, "-m", "pip", "config", "list"]
    try:
        output = process.run(command, env=process.clean_environment(variables)).stdout
    except (CommandError, CommandTimeoutError):
        raise SourceError(
            "pip is not installed, or cannot read its configuration, and only it knows the index",
            hint=f"see what `{sys.executable} -m pip config debug` says; else -m ensurepip",
        ) from None
    lines = map(_LINE.fullmatch, output.decode("utf-8", "replace").splitlines())
    return [(line["name"], str(ast.literal_eval(line["value"]))) for line in lines if line]


HINT: Final = "see which indexes `pip config list` names, and whether they have this release"
#: A name that is safe as the name of a file in the cache, of the kinds that can be imported.
_FILE_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+!-]*(?:\.whl|\.tar\.gz|\.zip)")


@dataclass(frozen=True)
class File:
    """A file of a release at one place of pip's."""

    filename: str
    #: The release, as the file's name writes it.
    version: str
    #: The index or folder, without credentials.
    place: str
    #: The digest that the place announces; empty where none is.
    sha256: str
    size: int | None
    #: Whether the place says that the project withdrew it.
    yanked: bool
    package: DistributionPackage = field(repr=False, compare=False)
    #: Empty for a folder; may hold credentials.
    index: str = field(repr=False, compare=False)

    @property
    def tags(self) -> str:
        """Python, ABI and platform tags; empty for a source archive."""
        if not self.filename.endswith(".whl"):
            return ""
        return "-".join(self.filename.removesuffix(".whl").rsplit("-", 3)[1:])


@dataclass(frozen=True)
class IndexListing:
    """The files of all places, each name once."""

    files: tuple[File, ...]
    #: For each place how many files it has, or why it cannot be asked.
    places: str


def read_listing(distribution: str, config: PipConfig) -> IndexListing:
    """Ask all places; a file counts at the first place that has it."""
    files: dict[str, File] = {}
    lines: list[str] = []
    for place_files in _read_places(distribution, config, lines):
        files = {file.filename: file for file in place_files} | files
    return IndexListing(tuple(files[name] for name in sorted(files)), "; ".join(lines))


def _read_places(
    distribution: str, config: PipConfig, lines: list[str]
) -> Iterator[tuple[File, ...]]:
    """Yield the files of each place, and add a line for each; warn of a place that fails."""
    for place, page in config.places(distribution):
        folder = _local(place)
        shown = redact(place) if folder is None else str(folder)
        try:
            if folder is None:
                packages = _read_page(distribution, place, page, config)
            else:
                packages = _read_folder(distribution, folder)
        except SourceError as error:
            log.warning("%s; releases that only it has are not seen", error.message)
            lines.append(error.message)
            continue
        index = place if folder is None else ""
        files = tuple(
            File(
                package.filename, package.version or "", shown,
                package.digests.get("sha256", "").lower(), package.size, package.is_yanked,
                package, index,
            )
            for package in packages
            if _FILE_NAME.fullmatch(package.filename) and package.version and package.project
            and canonicalize_name(package.project) == canonicalize_name(distribution)
        )  # fmt: skip
        lines.append(f"{shown} has {len(files) or 'no'} files")
        yield files
    if not lines:
        lines.append("pip is configured with no-index and without find-links")


def _local(link: str) -> Path | None:
    """Return the path that a place of pip's is, if it is on this machine."""
    if link.startswith("file:"):
        return Path(unquote(urlsplit(link).path))
    return None if "://" in link else Path(link).expanduser()


def _read_folder(distribution: str, path: Path) -> list[DistributionPackage]:
    """Return the files of a folder, or a file that is named itself."""
    import pypi_simple  # noqa: PLC0415  see PipConfig.places

    if not path.exists():
        raise SourceError(f"{path}: no such folder")
    packages = []
    for file in sorted(path.iterdir()) if path.is_dir() else [path]:
        link = pypi_simple.Link(text=file.name, url=file.absolute().as_uri(), attrs={})
        package = pypi_simple.DistributionPackage.from_link(link, distribution)
        if package.project and canonicalize_name(package.project) == canonicalize_name(
            distribution
        ):
            package.size = file.stat().st_size
            package.digests = {"sha256": _digest(file)}
        packages.append(package)
    return packages


def _read_page(
    distribution: str, place: str, page: str, config: PipConfig
) -> list[DistributionPackage]:
    """Return the files of an index's page, or of a page with links; none where it has no page."""
    import pypi_simple  # noqa: PLC0415  see PipConfig.places

    with _client(place, config) as client, _network(redact(place)):
        response = client.s.get(
            page, headers={"Accept": pypi_simple.ACCEPT_ANY}, timeout=config.timeout
        )
        if response.status_code == 404:  # noqa: PLR2004  HTTP's number for "not found"
            return []
        response.raise_for_status()
        try:
            packages = pypi_simple.ProjectPage.from_response(response, distribution).packages
        except (ValueError, pypi_simple.UnsupportedRepoVersionError):
            raise SourceError(f"{redact(place)}: its answer is no page of an index") from None
    for package in packages:  # the password is for the index's own host alone
        package.url = package.url.replace(f"://{_host(place)}/", f"://{urlsplit(place).netloc}/", 1)
    return packages


def _host(url: str) -> str:
    return urlsplit(url).netloc.rpartition("@")[2]


def _client(place: str, config: PipConfig) -> PyPISimple:
    """Return a client with pip's certificates and proxy for one place."""
    import requests  # noqa: PLC0415  see PipConfig.places
    from pypi_simple import PyPISimple  # noqa: PLC0415  the same
    from requests.adapters import HTTPAdapter  # noqa: PLC0415  the same

    # Traces paths, with the signed links that indexes redirect to.
    redact_logs("urllib3.connectionpool")
    url = urlsplit(place)
    trusted = not {_host(place), url.hostname}.isdisjoint(config.trusted_host)
    # As pip decides it.
    if not (trusted or url.scheme == "https" or url.hostname in {"localhost", "127.0.0.1", "::1"}):
        raise SourceError(
            f"{redact(place)} was not asked: it needs https, or to be a trusted-host of pip"
        )
    session = requests.Session()
    for scheme in ("http://", "https://"):
        session.mount(scheme, HTTPAdapter(max_retries=3))
    session.verify = False if trusted else config.cert or True
    session.cert = config.client_cert or None
    if config.proxy:
        session.proxies = {"http": config.proxy, "https": config.proxy}
    return PyPISimple(place, session=session)


@contextlib.contextmanager
def _network(source: str) -> Iterator[None]:
    """Turn faults of the network into an error without credentials; a full disk stays."""
    try:
        yield
    except OSError as error:  # requests' own are among them
        if error.errno in {errno.ENOSPC, errno.EDQUOT}:
            raise
        cause = error.args[0] if error.args else error
        # The original may quote a URL with a password in its traceback.
        raise SourceError(
            f"{source}: {one_line(str(getattr(cause, 'reason', cause)))}",
            hint="check the network, and the index, proxy and certificates in `pip config list`",
        ) from None


def _find(spec: ReleaseSource, config: PipConfig) -> File:
    """Find the release's file in the first place that has it: its digest is pinned."""
    kind, tags = "source archive", ""
    if not isinstance(spec, SdistSource):
        kind, tags = f"wheel {spec.tags}", spec.tags
    lines: list[str] = []
    others: list[str] = []
    for files in _read_places(spec.distribution, config, lines):
        for file in files:
            if file.tags == tags and _is_version(file.version, spec.version):
                if file.sha256 in {"", spec.sha256}:
                    return file
                others.append(f"{file.place} has {file.sha256}")
    release = f"{spec.distribution} {spec.version}"
    if others:
        raise IntegrityError(
            f"{release}: {kind} with another sha256: expected {spec.sha256}, {'; '.join(others)}",
            hint="find out why it differs before you change the pin",
        )
    raise SourceError(f"{release}: no {kind} of it found: {'; '.join(lines)}", hint=HINT)


def _is_version(text: str, version: str) -> bool:
    with contextlib.suppress(InvalidVersion):
        return Version(text) == Version(version)
    return False


def obtain(spec: ReleaseSource, *, progress: Progress) -> Path:
    """Return a release's file, its digest checked; one process downloads it, others wait."""
    folder = downloads_folder() / spec.sha256
    try:
        with lock(
            folder.with_name(f"{spec.sha256}.lock"),
            f"the download of {spec.distribution} {spec.version}",
        ):
            folder.mkdir(exist_ok=True)
            for path in folder.iterdir():
                if _digest(path) == spec.sha256:
                    return path
                path.unlink()  # of a download that was killed
            config = read_pip_config()
            file = _find(spec, config)
            return _local(file.package.url) or _download(file, spec, folder, config, progress)
    except OSError as error:
        if error.errno in {errno.ENOSPC, errno.EDQUOT}:
            raise process.no_space(str(folder)) from error
        raise MachineError(
            f"{error.filename or folder}: {error.strerror or error}",
            hint="see that the cache folder (CONTRIBBOT_CACHE) can be written",
        ) from error


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _download(
    file: File, spec: ReleaseSource, folder: Path, config: PipConfig, progress: Progress
) -> Path:
    from pypi_simple import DigestMismatchError  # noqa: PLC0415  see PipConfig.places

    source = f"{file.filename} from {file.place}"
    path = folder / file.filename
    file.package.digests = {"sha256": spec.sha256}
    try:
        with _client(file.index, config) as client, _network(source):
            client.download_package(
                file.package, path, timeout=config.timeout,
                progress=lambda total: _Download(progress, file.filename, total),
                # As stored: some servers announce a .tar.gz as a compressed .tar.
                headers={"Accept-Encoding": "identity"},
            )  # fmt: skip
    except DigestMismatchError as error:
        raise IntegrityError(
            f"{source}: wrong sha256: expected {spec.sha256}, got {error.actual_digest}",
            hint="find out why it differs before you change the pin",
        ) from None
    return path


class _Download:
    """Shows a download as pypi-simple counts it."""

    def __init__(self, progress: Progress, name: str, total: int | None) -> None:
        self._progress = progress
        progress.start(f"downloading {name}", total)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.done()

    def update(self, increment: int) -> None:
        """Go on by some bytes."""
        self._progress.advance(increment)
