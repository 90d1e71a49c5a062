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
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final
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
    import requests
    from pypi_simple import DistributionPackage

log: Final = logging.getLogger(__name__)

#: Later sections win (pip's user guide, "Precedence / Override order").
_SECTIONS: Final = ("global", "download", ":env:")
_LINE: Final = re.compile(r"(?P<name>[^=]+)=(?P<value>(?P<quote>['\"]).*(?P=quote))")
_ALIASES: Final = {"default-timeout": "timeout", "pypi-url": "index-url"}
#: Variables that decide which files pip reads.
_PLACES: Final = ("HOME", "XDG_CONFIG_HOME", "XDG_CONFIG_DIRS")
_Words = Annotated[
    tuple[str, ...], BeforeValidator(lambda text: text.split() if isinstance(text, str) else text)
]


class PipConfig(BaseModel):
    """What pip is configured to use. May hold credentials: never print it."""

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


def read_pip_config() -> PipConfig:
    """Ask pip how it is configured."""
    sections: dict[str, dict[str, str]] = {}
    for name, value in _listed():
        section, _, key = name.partition(".")
        sections.setdefault(section, {})[_ALIASES.get(key, key)] = value.strip()
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
    """Return what `pip config list` says, each name once."""
    values: dict[str, str] = {}
    ambiguous: set[str] = set()
    for line in _pip("list").splitlines():
        if (match := _LINE.fullmatch(line)) is None:
            continue  # notices, for example
        name, value = match["name"], str(ast.literal_eval(match["value"]))
        if values.setdefault(name, value) != value:
            ambiguous.add(name)
    # Since pip 25 a name that stands in several files is listed for each of them, in
    # the order of the files' paths; which one counts, only `get` says.
    return list((values | {name: _pip("get", name) for name in ambiguous}).items())


def _pip(*args: str) -> str:
    """Run `pip config` and return what it writes; its complaints may quote a password."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if name.startswith("PIP_") or name in _PLACES
    }
    try:
        done = process.run(
            [sys.executable, "-m", "pip", "config", *args], env=process.clean_environment(kept)
        )
    except (CommandError, CommandTimeoutError):
        raise SourceError(
            "pip is not installed, or cannot read its configuration, and only it knows the index",
            hint=f"see what `{sys.executable} -m pip config debug` says; else -m ensurepip",
        ) from None
    return done.stdout.decode("utf-8", "replace")


ATTEMPTS: Final = 4
#: Seconds before the second attempt; doubled for each further one.
PAUSE = 0.5
_REFUSED: Final = frozenset({401, 403, 407})


@contextlib.contextmanager
def _network(what: str) -> Iterator[None]:
    import requests  # noqa: PLC0415  0.1 s that only downloads pay

    try:
        yield
    except (requests.RequestException, ValueError) as error:
        cause = error.args[0] if error.args else error
        told = str(getattr(cause, "reason", cause))
        if errno := re.search(r"\[Errno -?\d+\] ([^'\"()]+)", told):  # urllib3 wraps what failed
            told = errno[1] + (" (the proxy)" if "proxy" in told else "")
        # The original may quote a URL with a password in its traceback.
        raise SourceError(
            f"{what}: cannot be reached: {one_line(told)}",
            hint="check the network, and the index and proxy in `pip config list`",
        ) from None


class Connection:
    """A session with pip's certificates, proxy, time limit and passwords."""

    def __init__(self, session: requests.Session, config: PipConfig) -> None:
        self._session = session
        self._config = config
        self._passwords: dict[str, tuple[str, str]] = {}
        for url in (config.index_url, *config.extra_index_url, *config.find_links):
            parts = urlsplit(url)
            if parts.username is not None:
                pair = (unquote(parts.username), unquote(parts.password or ""))
                self._passwords.setdefault(_hosts(url)[0], pair)

    def get(self, url: str, *, accept: str, stream: bool = False) -> requests.Response:
        """Ask for a URL."""
        return self._session.get(
            # As stored: some servers announce a .tar.gz as a compressed .tar.
            url, headers={"Accept": accept, **({"Accept-Encoding": "identity"} if stream else {})},
            auth=self._passwords.get(_hosts(url)[0]), timeout=self._config.timeout, stream=stream,
            verify=False if self.is_trusted(url) else self._config.cert or True,
        )  # fmt: skip

    def is_trusted(self, url: str) -> bool:
        """Say whether a host's certificate is not checked."""
        return not set(_hosts(url)).isdisjoint(self._config.trusted_host)


def _hosts(url: str) -> tuple[str, str]:
    parts = urlsplit(url)
    return parts.netloc.rpartition("@")[2], parts.hostname or ""


@contextlib.contextmanager
def connect(config: PipConfig) -> Iterator[Connection]:
    """Open a session, which asks again when a passing fault stopped it."""
    import requests  # noqa: PLC0415  see _network
    import urllib3  # noqa: PLC0415  the same
    from requests.adapters import HTTPAdapter  # noqa: PLC0415  the same

    # Traces paths, with the signed links that indexes redirect to.
    redact_logs("urllib3.connectionpool")
    for file in filter(None, (config.cert, config.client_cert)):
        if not Path(file).exists():
            raise SourceError(
                f"pip's certificate {file} cannot be used: no such file",
                hint="correct `cert` or `client-cert` in pip's configuration",
            )
    if config.trusted_host:
        urllib3.disable_warnings(urllib3.exceptions.InsecureRequestWarning)
    retry = urllib3.Retry(
        ATTEMPTS - 1, backoff_factor=PAUSE, status_forcelist=range(500, 600), redirect=False,
        respect_retry_after_header=False,
    )  # fmt: skip
    with requests.Session() as session:
        for scheme in ("http://", "https://"):
            session.mount(scheme, HTTPAdapter(max_retries=retry))
        session.cert = config.client_cert or None
        if config.proxy:
            session.proxies = {"http": config.proxy, "https": config.proxy}
        yield Connection(session, config)


HINT: Final = "see which indexes `pip config list` names, and whether they have this release"
_NOWHERE: Final = "pip is configured with no-index and without find-links"
#: A name that is safe as the name of a file in the cache, of what `read_members` reads.
_FILE_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+!-]*(?:\.whl|\.tar\.gz|\.zip)")
_SHA256: Final = re.compile(r"[0-9a-f]{64}")


@dataclass
class File:
    """A file of a release, perhaps in several places."""

    filename: str
    #: The release, as the file's name writes it.
    version: str
    #: Where it was found first: for messages, and with credentials.
    place: str
    url: str = field(repr=False)
    size: int | None = None
    #: Whether a place says that the project withdrew it.
    yanked: bool = False
    #: The SHA-256 that places announce, each with the first that does.
    digests: dict[str, str] = field(default_factory=dict)

    @property
    def tags(self) -> str:
        """Python, ABI and platform tags; empty for a source archive."""
        if not self.filename.endswith(".whl"):
            return ""
        return "-".join(self.filename.removesuffix(".whl").rsplit("-", 3)[1:])

    @property
    def path(self) -> Path | None:
        """Where it lies on this machine, if it does."""
        return _local(self.url)

    @property
    def sha256(self) -> str:
        """The digest that is announced; empty where none is."""
        if len(self.digests) > 1:
            announced = ", ".join(f"{digest} at {place}" for digest, place in self.digests.items())
            raise IntegrityError(
                f"{self.filename}: places announce different sha256: {announced}",
                hint="find out which is the project's; pin it by hand, or leave out a place",
            )
        if not self.digests and self.path is not None:
            return _digest(self.path)
        return next(iter(self.digests), "")


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _local(link: str) -> Path | None:
    """Return the path that a place of pip's is, if it is on this machine."""
    if link.startswith("file:"):
        return Path(unquote(urlsplit(link).path))
    return None if "://" in link else Path(link).expanduser()


@dataclass(frozen=True)
class IndexListing:
    """The files of all places."""

    #: By name; each once, whatever number of places has it.
    files: tuple[File, ...]
    #: For each place what it has, or why it cannot be asked.
    places: str
    #: Whether a place could not be asked: what is not among the files may be there.
    partial: bool = False


def read_listing(
    distribution: str,
    config: PipConfig,
    connection: Connection,
    *,
    enough: Callable[[File], bool] = lambda _: False,
) -> IndexListing:
    """Ask the places, folders first, until a file is enough; name those that cannot be asked."""
    import pypi_simple  # noqa: PLC0415  see _network

    places = [(link, link) for link in config.find_links]
    if not config.no_index:
        index = config.index_url or pypi_simple.PYPI_SIMPLE_ENDPOINT
        project = canonicalize_name(distribution)
        places += [
            (url, f"{url.rstrip('/')}/{project}/") for url in (index, *config.extra_index_url)
        ]
    files: dict[str, File] = {}
    lines: list[str] = []
    failed: list[str] = []
    for place, page in places:
        path = _local(place)
        shown = redact(place) if "://" in place else str(path)
        try:
            packages = (
                _read_page(distribution, page, shown, connection)
                if path is None
                else _read_folder(distribution, path)
            )
        except SourceError as error:
            failed.append(error.message)
            lines.append(error.message)
            continue
        found = [file for file in (_file(distribution, item, shown) for item in packages) if file]
        for other in found:
            file = files.setdefault(other.filename, other)
            file.yanked |= other.yanked
            file.size = other.size if file.size is None else file.size
            file.digests = other.digests | file.digests
        lines.append(f"{shown} has {len(found) or 'no'} files")
        if suitable := next(filter(enough, found), None):
            return IndexListing((suitable,), shown)
    # Where there are no files, whoever asked says all of it.
    for message in failed if files else ():
        log.warning("%s; releases that only it has are not seen", message)
    ordered = tuple(files[name] for name in sorted(files))
    return IndexListing(ordered, "; ".join(lines) or _NOWHERE, partial=bool(failed))


def _read_page(
    distribution: str, url: str, place: str, connection: Connection
) -> list[DistributionPackage]:
    import pypi_simple  # noqa: PLC0415  see _network

    # As pip decides it.
    local = _hosts(url)[1] in {"localhost", "127.0.0.1", "::1"}
    if not (url.startswith("https:") or local or connection.is_trusted(url)):
        raise SourceError(f"{place} was not asked: it needs https, or to be a trusted-host of pip")
    with _network(place):
        response = connection.get(url, accept=pypi_simple.ACCEPT_ANY)
    if response.status_code in _REFUSED:
        raise SourceError(f"{place} refused access (HTTP {response.status_code})")
    if not response.ok:
        return []
    try:
        return pypi_simple.ProjectPage.from_response(response, distribution).packages
    except (ValueError, pypi_simple.UnsupportedRepoVersionError):
        raise SourceError(f"{place}: what it gives is no page of a package index") from None


def _read_folder(distribution: str, path: Path) -> list[DistributionPackage]:
    """Return the files of a folder, or a file that is named itself."""
    import pypi_simple  # noqa: PLC0415  see _network

    if not path.exists():
        raise SourceError(f"{path}: no such folder")
    packages = []
    for file in sorted(path.iterdir()) if path.is_dir() else [path]:
        link = pypi_simple.Link(text=file.name, url=file.absolute().as_uri(), attrs={})
        package = pypi_simple.DistributionPackage.from_link(link, distribution)
        package.size = file.stat().st_size
        packages.append(package)
    return packages


def _file(distribution: str, package: DistributionPackage, place: str) -> File | None:
    """Return a file if it can be a source of the distribution."""
    if not (_FILE_NAME.fullmatch(package.filename) and package.version and package.project):
        return None
    if canonicalize_name(package.project) != canonicalize_name(distribution):
        return None
    sha256 = package.digests.get("sha256", "").lower()
    digests = {sha256: place} if _SHA256.fullmatch(sha256) else {}
    return File(
        package.filename, package.version, place, package.url, package.size, package.is_yanked,
        digests,
    )  # fmt: skip


def _find(spec: ReleaseSource, config: PipConfig, connection: Connection) -> File:
    """Find the release's file in the first place that has it: its digest is pinned."""
    kind, tags = "source archive", ""
    if not isinstance(spec, SdistSource):
        kind, tags = f"wheel {spec.tags}", spec.tags

    def is_meant(file: File) -> bool:
        """A release has many wheels, and builds with local labels."""
        with contextlib.suppress(InvalidVersion):
            return file.tags == tags and Version(file.version) == Version(spec.version)
        return False

    listing = read_listing(
        spec.distribution, config, connection,
        enough=lambda file: is_meant(file) and file.sha256 in {"", spec.sha256},
    )  # fmt: skip
    release = f"{spec.distribution} {spec.version}"
    for file in filter(is_meant, listing.files):
        if not file.digests or spec.sha256 in file.digests:
            return file
        announced = "; ".join(f"{place} has {sha256}" for sha256, place in file.digests.items())
        raise IntegrityError(
            f"{release}: {kind} with another sha256: expected {spec.sha256}, {announced}",
            hint="find out why it differs before you change the pin",
        )
    raise SourceError(f"{release}: no {kind} of it found: {listing.places}", hint=HINT)


_PART: Final = ".part"
#: No release's source comes near; a server that does not stop must be stopped.
_MAX_BYTES: Final = 4 * 2**30
_CHUNK: Final = 2**16


def obtain(spec: ReleaseSource, *, progress: Progress) -> Path:
    """Return a release's file, its digest checked; one process downloads it, others wait."""
    folder = downloads_folder() / spec.sha256
    what = f"the download of {spec.distribution} {spec.version}"
    try:
        with lock(folder.with_name(f"{spec.sha256}.lock"), what):
            folder.mkdir(exist_ok=True)
            if kept := _kept(folder, spec.sha256):
                return kept
            config = read_pip_config()
            with connect(config) as connection:
                file = _find(spec, config, connection)
                return file.path or _download(file, spec.sha256, folder, connection, progress)
    except OSError as error:
        if error.errno in {errno.ENOSPC, errno.EDQUOT}:
            raise process.no_space(str(folder)) from error
        raise MachineError(
            f"{error.filename or folder}: {error.strerror or error}",
            hint="see that the cache folder (CONTRIBBOT_CACHE) can be written",
        ) from error


def _kept(folder: Path, sha256: str) -> Path | None:
    """Return the good archive of a folder; remove whatever else is there."""
    for path in folder.iterdir():
        if path.suffix != _PART and _digest(path) == sha256:
            return path
        path.unlink()
    return None


def _download(
    file: File, sha256: str, folder: Path, connection: Connection, progress: Progress
) -> Path:
    source = f"{file.filename} from {file.place}"
    part = folder / (file.filename + _PART)

    try:
        with (
            _network(source),
            connection.get(file.url, accept="*/*", stream=True) as response,
            part.open("wb") as target,
            contextlib.ExitStack() as ended,
        ):
            if not response.ok:
                raise SourceError(
                    f"{source}: HTTP {response.status_code}",
                    hint="the index lists an archive that it does not give out; try another index",
                )
            announced = response.headers.get("Content-Length", "")
            progress.start(f"downloading {file.filename}", int(announced) if announced else None)
            ended.callback(progress.done)
            for chunk in response.iter_content(_CHUNK):
                target.write(chunk)
                if target.tell() > _MAX_BYTES:
                    raise IntegrityError(f"{file.filename}: larger than {_MAX_BYTES} bytes")
                progress.advance(len(chunk))
        if (got := _digest(part)) != sha256:
            raise IntegrityError(
                f"{source}: wrong sha256: expected {sha256}, got {got}",
                hint="find out why it differs before you change the pin",
            )
        return part.replace(folder / file.filename)
    finally:
        part.unlink(missing_ok=True)
