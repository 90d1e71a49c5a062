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
from typing import TYPE_CHECKING, Final, TypeVar
from urllib.parse import unquote, urlsplit

from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

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
#: Other names of the same options.
_ALIASES: Final = {"default-timeout": "timeout", "pypi-url": "index-url"}
_YES: Final = frozenset({"1", "true", "yes", "on", "y", "t"})
#: Variables that decide which files pip reads.
_PLACES: Final = ("HOME", "XDG_CONFIG_HOME", "XDG_CONFIG_DIRS")


@dataclass(frozen=True, repr=False)
class PipConfig:
    """What pip is configured to use. May hold credentials: never print it."""

    #: Empty for pip's default.
    index_url: str = ""
    extra_index_urls: tuple[str, ...] = ()
    #: Folders, archives or pages with links.
    find_links: tuple[str, ...] = ()
    no_index: bool = False
    #: `host` or `host:port` whose certificate is not checked.
    trusted_hosts: tuple[str, ...] = ()
    #: A file or folder of certificates to trust, and a file with a client's certificate and key.
    cert: str = ""
    client_cert: str = ""
    proxy: str = ""
    timeout: float = 15.0


def read_pip_config() -> PipConfig:
    """Ask pip how it is configured."""
    sections: dict[str, dict[str, str]] = {}
    for name, value in _listed():
        section, _, key = name.partition(".")
        sections.setdefault(section, {})[_ALIASES.get(key, key)] = value.strip()
    merged: dict[str, str] = {}
    for section in _SECTIONS:
        merged |= {key: value for key, value in sections.get(section, {}).items() if value}
    timeout = merged.get("timeout", "15")
    try:
        seconds = float(timeout)
    except ValueError as error:
        raise SourceError(
            f"pip's configuration: timeout is {timeout!r}, no number of seconds",
            hint="correct it with `pip config set global.timeout 15`",
        ) from error
    return PipConfig(
        index_url=merged.get("index-url", ""),
        extra_index_urls=tuple(merged.get("extra-index-url", "").split()),
        find_links=tuple(merged.get("find-links", "").split()),
        no_index=merged.get("no-index", "").lower() in _YES,
        trusted_hosts=tuple(merged.get("trusted-host", "").split()),
        cert=merged.get("cert", ""),
        client_cert=merged.get("client-cert", ""),
        proxy=merged.get("proxy", ""),
        timeout=seconds,
    )


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
    except (CommandError, CommandTimeoutError) as error:
        if isinstance(error, CommandError) and "No module named pip" in error.stderr:
            raise SourceError(
                f"pip is not installed for {sys.executable}, and only it knows the package index",
                hint=f"{sys.executable} -m ensurepip",
            ) from None
        raise SourceError(
            "pip cannot read its configuration", hint="see what `pip config debug` says"
        ) from None
    return done.stdout.decode("utf-8", "replace")


ATTEMPTS: Final = 4
#: Seconds before the second attempt; doubled for each further one.
PAUSE = 0.5
_NETWORK: Final = "check the network, and the index and proxy in `pip config list`"
_OK: Final = 200
_FAILED: Final = 400
_SERVER_ERROR: Final = 500
_REFUSED: Final = frozenset({401, 403, 407})

T = TypeVar("T")


def _persist(what: str, action: Callable[[], T]) -> T:
    """Do something over the network, again when a passing fault stopped it."""
    import requests  # noqa: PLC0415  0.1 s that only downloads pay
    import tenacity  # noqa: PLC0415  the same

    def announce(state: tenacity.RetryCallState) -> None:
        process.check_stopping()
        error = state.outcome.exception() if state.outcome else None
        log.warning("%s: %s; trying again", what, _fault(error))

    retrying = tenacity.Retrying(
        retry=tenacity.retry_if_exception_type(requests.RequestException)
        & tenacity.retry_if_not_exception_type(requests.exceptions.SSLError),
        stop=tenacity.stop_after_attempt(ATTEMPTS),
        wait=tenacity.wait_exponential(multiplier=PAUSE),
        before_sleep=announce,
        reraise=True,
    )
    try:
        return retrying(action)
    except (requests.RequestException, ValueError) as error:
        # The original may quote a URL with a password in its traceback.
        raise SourceError(f"{what}: {_fault(error)}", hint=_NETWORK) from None


def _fault(error: BaseException | None) -> str:
    """Say what went wrong, in one line."""
    import requests  # noqa: PLC0415  see _persist

    cause = error.args[0] if isinstance(error, requests.RequestException) and error.args else error
    cause = getattr(cause, "reason", cause)
    words = one_line(str(cause)) or type(error).__name__
    if isinstance(error, requests.Timeout):
        return "no answer in time"
    if "IncompleteRead" in words:
        return f"cut short: {words}"
    return f"cannot be reached: {words}" if isinstance(error, requests.ConnectionError) else words


class Connection:
    """A session with pip's certificates, proxy, time limit and passwords."""

    def __init__(self, session: requests.Session, config: PipConfig) -> None:
        self._session = session
        self._config = config
        self._passwords: dict[str, tuple[str, str]] = {}
        for url in (config.index_url, *config.extra_index_urls, *config.find_links):
            parts = urlsplit(url)
            if parts.username is not None:
                pair = (unquote(parts.username), unquote(parts.password or ""))
                self._passwords.setdefault(_hosts(url)[0], pair)

    def get(self, url: str, *, accept: str, stream: bool = False) -> requests.Response:
        """Ask for a URL; a fault of the server is an exception, which is tried again."""
        import requests  # noqa: PLC0415  see _persist

        response = self._session.get(
            # As stored: some servers announce a .tar.gz as a compressed .tar.
            url, headers={"Accept": accept, **({"Accept-Encoding": "identity"} if stream else {})},
            auth=self._passwords.get(_hosts(url)[0]), timeout=self._config.timeout, stream=stream,
            verify=False if self._is_trusted(url) else self._config.cert or True,
        )  # fmt: skip
        if response.status_code >= _SERVER_ERROR:
            response.close()
            raise requests.HTTPError(f"server error {response.status_code}")
        return response

    def may_ask(self, url: str) -> bool:
        """Say whether a place may be asked, as pip decides it."""
        from ipaddress import ip_address  # noqa: PLC0415  see _persist

        name = _hosts(url)[1]
        if url.startswith("https:") or name == "localhost" or self._is_trusted(url):
            return True
        try:
            return ip_address(name).is_loopback
        except ValueError:
            return False

    def _is_trusted(self, url: str) -> bool:
        return not set(_hosts(url)).isdisjoint(self._config.trusted_hosts)


def _hosts(url: str) -> tuple[str, str]:
    """Return the host of a URL, with its port and without."""
    parts = urlsplit(url)
    return parts.netloc.rpartition("@")[2], parts.hostname or ""


@contextlib.contextmanager
def connect(config: PipConfig) -> Iterator[Connection]:
    """Open a session."""
    import requests  # noqa: PLC0415  see _persist
    import urllib3  # noqa: PLC0415  the same

    # Traces paths, with the signed links that indexes redirect to.
    redact_logs("urllib3.connectionpool")
    for file in filter(None, (config.cert, config.client_cert)):
        if not Path(file).exists():
            raise SourceError(
                f"pip's certificate {file} cannot be used: no such file",
                hint="correct `cert` or `client-cert` in pip's configuration",
            )
    if config.trusted_hosts:
        urllib3.disable_warnings(urllib3.exceptions.InsecureRequestWarning)
    with requests.Session() as session:
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

    #: Where it was found first; may hold credentials, never print it.
    url: str = field(repr=False)
    #: The same for messages, without credentials.
    place: str
    #: Its name, safe as the name of a file.
    filename: str
    #: The release, as the file's name writes it.
    version: str
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
    def sha256(self) -> str:
        """The digest that is announced; empty where none is."""
        if len(self.digests) > 1:
            announced = ", ".join(f"{digest} at {place}" for digest, place in self.digests.items())
            raise IntegrityError(
                f"{self.filename}: places announce different sha256: {announced}",
                hint="find out which is the project's; pin it by hand, or leave out a place",
            )
        return next(iter(self.digests), "")


@dataclass(frozen=True)
class IndexListing:
    """The files of all places."""

    #: By name; each once, whatever number of places has it.
    files: tuple[File, ...]
    #: For each place what it has, or why it cannot be asked.
    places: str


def _ask_places(
    distribution: str, config: PipConfig, connection: Connection
) -> Iterator[tuple[str, list[File] | SourceError]]:
    """Yield what each place has of all releases, or why it cannot be asked: folders first."""
    import pypi_simple  # noqa: PLC0415  see _persist

    places = [(link, link) for link in config.find_links]
    if not config.no_index:
        index = config.index_url or pypi_simple.PYPI_SIMPLE_ENDPOINT
        project = canonicalize_name(distribution)
        places += [
            (url, f"{url.rstrip('/')}/{project}/") for url in (index, *config.extra_index_urls)
        ]
    for place, page in places:
        shown = redact(place) if "://" in place else str(Path(place).expanduser())
        try:
            if "://" in place and not place.startswith("file:"):
                packages = _read_page(distribution, page, shown, connection)
            else:
                packages = _read_folder(distribution, place, shown)
        except SourceError as error:
            yield shown, error
        else:
            files = [_file(distribution, package, shown) for package in packages]
            yield shown, [file for file in files if file is not None]


def _read_page(
    distribution: str, url: str, place: str, connection: Connection
) -> list[DistributionPackage]:
    import pypi_simple  # noqa: PLC0415  see _persist

    if not connection.may_ask(url):
        raise SourceError(f"{place} was not asked: not https, and no trusted-host of pip")

    def ask() -> list[DistributionPackage]:
        response = connection.get(url, accept=pypi_simple.ACCEPT_ANY)
        if response.status_code in _REFUSED:
            raise SourceError(f"{place} refused access (HTTP {response.status_code})")
        if response.status_code >= _FAILED:
            return []
        try:
            return pypi_simple.ProjectPage.from_response(response, distribution).packages
        except (ValueError, pypi_simple.UnsupportedRepoVersionError):
            raise SourceError(f"{place}: what it gives is no page of a package index") from None

    return _persist(place, ask)


def _read_folder(distribution: str, link: str, place: str) -> list[DistributionPackage]:
    """Return the files of a folder, or a file that is named itself."""
    import pypi_simple  # noqa: PLC0415  see _persist

    path = Path(unquote(urlsplit(link).path) if link.startswith("file:") else link).expanduser()
    if not path.exists():
        raise SourceError(f"{place}: no such folder")
    packages = []
    for file in sorted(path.iterdir()) if path.is_dir() else [path]:
        link_to = pypi_simple.Link(text=file.name, url=file.absolute().as_uri(), attrs={})
        package = pypi_simple.DistributionPackage.from_link(link_to, distribution)
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
        package.url, place, package.filename, package.version, package.size, package.is_yanked,
        digests,
    )  # fmt: skip


def read_listing(distribution: str, config: PipConfig, connection: Connection) -> IndexListing:
    """Ask every place; one that cannot be asked is passed over with a warning."""
    files: dict[str, File] = {}
    lines: list[str] = []
    failed: list[str] = []
    for place, answer in _ask_places(distribution, config, connection):
        if isinstance(answer, SourceError):
            lines.append(answer.message)
            failed.append(answer.message)
            continue
        # A local label names a build of a release, no release.
        usable = [file for file in answer if "+" not in file.version]
        for other in usable:
            file = files.setdefault(other.filename, other)
            file.yanked |= other.yanked
            file.size = other.size if file.size is None else file.size
            file.digests = other.digests | file.digests
        lines.append(f"{place} has {len(usable) or 'no'} files")
    # Where there are no files, whoever asked says all of it.
    for message in failed if files else ():
        log.warning("%s; releases that only it has are not seen", message)
    return IndexListing(tuple(files[name] for name in sorted(files)), "; ".join(lines) or _NOWHERE)


def _find(spec: ReleaseSource, config: PipConfig, connection: Connection) -> File:
    """Find the release's file in the first place that has it: its digest is pinned."""
    reasons: list[str] = []
    announced: list[str] = []
    for place, answer in _ask_places(spec.distribution, config, connection):
        if isinstance(answer, SourceError):
            log.info("%s", answer.message)
            reasons.append(answer.message)
            continue
        files = [file for file in answer if _is_meant(spec, file)]
        for file in files:
            if file.sha256 in {"", spec.sha256}:
                return file
            announced.append(f"{place} has {file.sha256}")
        if not files:
            reasons.append(f"{place} has none")
    release = f"{spec.distribution} {spec.version}"
    kind = "source archive" if isinstance(spec, SdistSource) else f"wheel {spec.tags}"
    if announced:
        raise IntegrityError(
            f"{release}: {kind} with another sha256: expected {spec.sha256},"
            f" {'; '.join(announced)}",
            hint="find out why it differs before you change the pin",
        )
    raise SourceError(f"{release}: no {kind} found: {'; '.join(reasons) or _NOWHERE}", hint=HINT)


def _is_meant(spec: ReleaseSource, file: File) -> bool:
    """Say whether a file is the one: a release has many wheels, and builds with local labels."""
    try:
        same = Version(file.version) == Version(spec.version)
    except InvalidVersion:
        return False
    return same and file.tags == ("" if isinstance(spec, SdistSource) else spec.tags)


#: The end of a file's name while it is written.
_PART: Final = ".part"
#: No release's source comes near; a server that does not stop must be stopped.
_MAX_BYTES: Final = 4 * 2**30
_CHUNK: Final = 2**16


def obtain(spec: ReleaseSource, *, progress: Progress) -> Path:
    """Return a release's archive or wheel, downloaded if need be, its digest checked.

    Several processes may ask at once: one downloads, the others wait.
    """
    with _download_folder(spec.sha256, f"{spec.distribution} {spec.version}") as folder:
        if cached := _cached(folder, spec.sha256):
            return cached
        config = read_pip_config()
        with connect(config) as connection:
            file = _find(spec, config, connection)
            with _downloaded(file, folder, connection, progress) as (part, sha256):
                if sha256 != spec.sha256:
                    raise IntegrityError(
                        f"{file.filename} from {file.place}: wrong sha256:"
                        f" expected {spec.sha256}, got {sha256}",
                        hint="find out why it differs before you change the pin",
                    )
                return part.replace(folder / file.filename)


def digest_of(file: File, connection: Connection, *, progress: Progress) -> str:
    """Return the SHA-256 of a file for which nobody announces one, by downloading it.

    It is kept under that digest, so that `obtain` need not download it again.
    """
    with _download_folder("unknown", file.filename) as folder:
        for left in folder.iterdir():
            left.unlink()  # of a download that was killed: this one holds the lock
        with (
            _downloaded(file, folder, connection, progress) as (part, sha256),
            _download_folder(sha256, file.filename) as final,
        ):
            part.replace(final / file.filename)
        return sha256


@contextlib.contextmanager
def _download_folder(name: str, what: str) -> Iterator[Path]:
    """Hold the folder of a download; errors of the disk name the place."""
    folder = downloads_folder() / name
    try:
        with lock(folder.with_name(f"{name}.lock"), f"the download of {what}"):
            folder.mkdir(exist_ok=True)
            yield folder
    except OSError as error:
        if error.errno in {errno.ENOSPC, errno.EDQUOT}:
            raise process.no_space(str(folder)) from error
        raise MachineError(
            f"{error.filename or folder}: {error.strerror or error}",
            hint="see that the cache folder (CONTRIBBOT_CACHE) can be written",
        ) from error


def _cached(folder: Path, sha256: str) -> Path | None:
    """Return the good archive of a folder; remove whatever else is there."""
    good: Path | None = None
    for path in sorted(folder.iterdir()):
        with path.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
        if digest == sha256 and path.suffix != _PART:
            good = path
            continue
        if path.suffix != _PART:  # else of a download that was killed
            log.warning("%s in the cache is damaged; it is downloaded again", path.name)
        path.unlink()
    return good


@contextlib.contextmanager
def _downloaded(
    file: File, folder: Path, connection: Connection, progress: Progress
) -> Iterator[tuple[Path, str]]:
    """Give a downloaded file, which is removed unless it is moved, and its SHA-256."""
    source = f"{file.filename} from {file.place}"
    part = folder / (file.filename + _PART)

    def download() -> str:
        digest = hashlib.sha256()
        with contextlib.ExitStack() as stack:
            if file.url.startswith("file:"):
                path = Path(unquote(urlsplit(file.url).path))
                content = stack.enter_context(path.open("rb"))
                total: int | None = path.stat().st_size
                chunks: Iterator[bytes] = iter(lambda: content.read(_CHUNK), b"")
            else:
                response = connection.get(file.url, accept="*/*", stream=True)
                stack.enter_context(response)
                if response.status_code != _OK:
                    raise SourceError(
                        f"{source}: HTTP {response.status_code}",
                        hint="the index lists an archive that it does not give out;"
                        " try another index",
                    )
                announced = response.headers.get("Content-Length", "")
                total = int(announced) if announced else None
                chunks = response.iter_content(_CHUNK)
            progress.start(f"downloading {file.filename}", total)
            stack.callback(progress.done)
            target = stack.enter_context(part.open("wb"))
            for chunk in chunks:
                digest.update(chunk)
                target.write(chunk)
                if target.tell() > _MAX_BYTES:
                    raise IntegrityError(f"{file.filename}: larger than {_MAX_BYTES} bytes")
                progress.advance(len(chunk))
        return digest.hexdigest()

    try:
        yield part, _persist(source, download)
    finally:
        part.unlink(missing_ok=True)
