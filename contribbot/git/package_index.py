"""Finding a release's source archive or wheel on the package indexes and in the folders of pip."""

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

from packaging.utils import (
    InvalidSdistFilename,
    InvalidWheelFilename,
    canonicalize_name,
    parse_sdist_filename,
    parse_wheel_filename,
)
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

ATTEMPTS: Final = 4
#: Seconds before the second attempt; doubled for each further one.
PAUSE = 0.5
_NETWORK: Final = "check the network, and the index and proxy in `pip config list`"

T = TypeVar("T")


def persist(what: str, action: Callable[[], T]) -> T:
    """Do something over the network, again when a passing fault stopped it."""
    import requests  # noqa: PLC0415  0.1 s that only downloads pay
    import tenacity  # noqa: PLC0415  the same
    import urllib3  # noqa: PLC0415  the same

    def announce(state: tenacity.RetryCallState) -> None:
        process.check_stopping()
        error = state.outcome.exception() if state.outcome else None
        log.warning("%s: %s; trying again", what, _explain(error)[0])

    retrying = tenacity.Retrying(
        retry=tenacity.retry_if_exception(lambda error: _explain(error)[1]),
        stop=tenacity.stop_after_attempt(ATTEMPTS),
        wait=tenacity.wait_exponential(multiplier=PAUSE),
        before_sleep=announce,
        reraise=True,
    )
    try:
        return retrying(action)
    except (requests.RequestException, urllib3.exceptions.HTTPError, ValueError) as error:
        # The original may quote a URL with a password in its traceback.
        raise SourceError(f"{what}: {_explain(error)[0]}", hint=_NETWORK) from None


def _explain(error: BaseException | None) -> tuple[str, bool]:
    """Return what went wrong, and whether it may be gone next time."""
    import requests  # noqa: PLC0415  see persist
    import urllib3  # noqa: PLC0415  see persist

    cause = error.args[0] if isinstance(error, requests.RequestException) and error.args else error
    cause = getattr(cause, "reason", cause)
    words = one_line(str(cause)) or type(error).__name__
    broken = (requests.ConnectionError, requests.exceptions.ChunkedEncodingError,
              urllib3.exceptions.ProtocolError)  # fmt: skip
    if isinstance(error, requests.Timeout | urllib3.exceptions.TimeoutError):
        return "no answer in time", True
    if isinstance(error, requests.exceptions.SSLError):
        return f"cannot be reached: {words}", False
    if isinstance(error, broken):
        if "IncompleteRead" in words:
            return f"cut short: {words}", True
        unreached = isinstance(cause, urllib3.exceptions.NewConnectionError)
        return f"{'cannot be reached' if unreached else 'the connection broke'}: {words}", True
    return words, isinstance(error, requests.HTTPError)


#: Later sections win (pip's user guide, "Precedence / Override order").
_SECTIONS: Final = ("global", "download", ":env:")
_LINE: Final = re.compile(r"(?P<name>[^=]+)=(?P<value>(?P<quote>['\"]).*(?P=quote))")
#: Other names of the same options.
_ALIASES: Final = {"default-timeout": "timeout", "pypi-url": "index-url"}
_YES: Final = frozenset({"1", "true", "yes", "on", "y", "t"})
#: Variables that decide which files pip reads.
_PLACES: Final = ("HOME", "XDG_CONFIG_HOME", "XDG_CONFIG_DIRS")


@dataclass(frozen=True)
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

    def __repr__(self) -> str:
        """Return a text without any of it: URLs may carry passwords."""
        return "PipConfig(…)"


def read_pip_config() -> PipConfig:
    """Ask pip how it is configured."""
    sections: dict[str, dict[str, str]] = {}
    for name, value in _listed():
        section, _, key = name.partition(".")
        sections.setdefault(section, {})[_ALIASES.get(key, key)] = value
    merged: dict[str, str] = {}
    for section in _SECTIONS:
        merged |= {key: value for key, value in sections.get(section, {}).items() if value.strip()}
    timeout = merged.get("timeout", "15")
    try:
        seconds = float(timeout)
    except ValueError as error:
        raise SourceError(
            f"pip's configuration: timeout is {timeout!r}, no number of seconds",
            hint="correct it with `pip config set global.timeout 15`",
        ) from error
    return PipConfig(
        index_url=merged.get("index-url", "").strip(),
        extra_index_urls=tuple(merged.get("extra-index-url", "").split()),
        find_links=tuple(merged.get("find-links", "").split()),
        no_index=merged.get("no-index", "").strip().lower() in _YES,
        trusted_hosts=tuple(merged.get("trusted-host", "").split()),
        cert=merged.get("cert", "").strip(),
        client_cert=merged.get("client-cert", "").strip(),
        proxy=merged.get("proxy", "").strip(),
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
    for name in ambiguous:
        values[name] = _pip("get", name).strip()
    return list(values.items())


def _pip(*args: str) -> str:
    """Run `pip config` and return what it writes."""
    env = process.clean_environment(
        {
            name: value
            for name, value in os.environ.items()
            if name.startswith("PIP_") or name in _PLACES
        }
    )
    try:
        done = process.run([sys.executable, "-m", "pip", "config", *args], env=env, timeout=60.0)
    except CommandError as error:
        if "No module named pip" in error.stderr:
            raise SourceError(
                f"pip is not installed for {sys.executable}, and only it knows the package index",
                hint=f"{sys.executable} -m ensurepip",
            ) from None
        # Its own words may quote a URL of the configuration, with a password.
        raise SourceError(
            "pip cannot read its configuration", hint="see what `pip config debug` says"
        ) from None
    except CommandTimeoutError:
        raise SourceError(
            "pip does not say how it is configured", hint="see what `pip config debug` says"
        ) from None
    return done.stdout.decode("utf-8", "replace")


_SERVER_ERROR: Final = 500
_FAILED: Final = 400
_REFUSED: Final = frozenset({401, 403, 407})


class Connection:
    """A session with pip's certificates, proxy, time limit and passwords."""

    def __init__(self, session: requests.Session, config: PipConfig) -> None:
        self._session = session
        self._config = config
        self._passwords: dict[str, tuple[str, str]] = {}
        for url in (config.index_url, *config.extra_index_urls, *config.find_links):
            parts = urlsplit(url)
            if parts.username is not None:
                host = parts.netloc.rpartition("@")[2]
                pair = (unquote(parts.username), unquote(parts.password or ""))
                self._passwords.setdefault(host, pair)

    def get(self, url: str, *, accept: str, stream: bool = False) -> requests.Response:
        """Ask for a URL; a fault of the server is an exception, which is tried again."""
        import requests  # noqa: PLC0415  see persist

        host = urlsplit(url).netloc.rpartition("@")[2]
        trusted = host in self._config.trusted_hosts or _name(url) in self._config.trusted_hosts
        response = self._session.get(
            # As stored: some servers announce a .tar.gz as a compressed .tar.
            url, headers={"Accept": accept, **({"Accept-Encoding": "identity"} if stream else {})},
            auth=self._passwords.get(host), timeout=self._config.timeout, stream=stream,
            verify=False if trusted else self._config.cert or True,
        )  # fmt: skip
        if response.status_code >= _SERVER_ERROR:
            response.close()
            raise requests.HTTPError(f"server error {response.status_code}")
        return response

    def trusts(self, url: str) -> bool:
        """Say whether a place may be asked, as pip decides it."""
        from ipaddress import ip_address  # noqa: PLC0415  see persist

        parts = urlsplit(url)
        host = parts.netloc.rpartition("@")[2]
        if parts.scheme == "https" or {host, _name(url)} & set(self._config.trusted_hosts):
            return True
        try:
            return _name(url) == "localhost" or ip_address(_name(url)).is_loopback
        except ValueError:
            return False


def _name(url: str) -> str:
    """Return the name of a URL's host."""
    return urlsplit(url).hostname or ""


@contextlib.contextmanager
def connect(config: PipConfig) -> Iterator[Connection]:
    """Open a session."""
    import requests  # noqa: PLC0415  see persist
    import urllib3  # noqa: PLC0415  see persist

    # Traces paths, with the signed links that indexes redirect to.
    redact_logs("urllib3.connectionpool")
    _check_certificates(config)
    if config.trusted_hosts:
        urllib3.disable_warnings(urllib3.exceptions.InsecureRequestWarning)
    with requests.Session() as session:
        if config.client_cert:
            session.cert = config.client_cert
        if config.proxy:
            session.proxies = {"http": config.proxy, "https": config.proxy}
        yield Connection(session, config)


def _check_certificates(config: PipConfig) -> None:
    """Refuse certificates that cannot be used, whichever place is asked first."""
    import ssl  # noqa: PLC0415  see persist

    name = config.cert
    try:
        context = ssl.create_default_context()
        if config.cert:
            folder = Path(config.cert).is_dir()
            context.load_verify_locations(**{"capath" if folder else "cafile": config.cert})
        name = config.client_cert
        if config.client_cert:
            context.load_cert_chain(config.client_cert)
    except OSError as error:  # ssl.SSLError is one
        raise SourceError(
            f"pip's certificate {name} cannot be used: {error.strerror or error}",
            hint="correct `cert` or `client-cert` in pip's configuration",
        ) from error


#: A name that is safe as the name of a file in the cache.
FILE_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+!-]*")
HINT: Final = "see which indexes `pip config list` names, and whether they have this release"
_SHA256: Final = re.compile(r"[0-9a-f]{64}")
#: What `read_members` reads.
_ARCHIVES: Final = (".tar.gz", ".zip")


@dataclass(frozen=True)
class Candidate:
    """A file that can be downloaded."""

    #: Where; may hold credentials, never print it.
    url: str = field(repr=False)
    #: Its name, safe as the name of a file.
    filename: str
    #: The release, as the file's name writes it.
    version: str
    #: Where it was found, for messages; no credentials.
    place: str
    #: What the place announces; empty and None where it does not.
    sha256: str = ""
    size: int | None = None
    #: Whether the place says that the project withdrew it.
    yanked: bool = False

    @property
    def tags(self) -> str:
        """Python, ABI and platform tags; empty for a source archive."""
        if not self.filename.endswith(".whl"):
            return ""
        return "-".join(self.filename.removesuffix(".whl").rsplit("-", 3)[1:])


def find_archive(spec: ReleaseSource, config: PipConfig, connection: Connection) -> Candidate:
    """Find the release's file in the first place that has it.

    Folders come before indexes. Since the archive's digest is pinned, it does
    not matter which place gives it.
    """
    reasons: list[str] = []
    announced: list[str] = []
    for url, is_index in places(config):
        place = redact(url)
        try:
            files = [
                file
                for file in files_of(spec.distribution, url, connection, is_index=is_index)
                if _is_meant(spec, file)
            ]
        except SourceError as error:
            log.info("%s", error.message)
            reasons.append(error.message)
            continue
        for file in files:
            if file.sha256 in {"", spec.sha256}:
                return file
            announced.append(f"{place} has {file.sha256}")
        if not files:
            reasons.append(f"{place} has none")
    release = f"{spec.distribution} {spec.version}"
    wanted = "source archive" if isinstance(spec, SdistSource) else f"wheel {spec.tags}"
    if announced:
        raise IntegrityError(
            f"{release}: {wanted} with another sha256: expected {spec.sha256},"
            f" {'; '.join(announced)}",
            hint="find out why it differs before you change the pin",
        )
    where = "; ".join(reasons) or "pip is configured with no-index and without find-links"
    raise SourceError(f"{release}: no {wanted} found: {where}", hint=HINT)


def _is_meant(spec: ReleaseSource, file: Candidate) -> bool:
    """Say whether a file is the one: a release has many wheels, and builds with local labels."""
    try:
        same = Version(file.version) == Version(spec.version)
    except InvalidVersion:
        return False
    return same and file.tags == ("" if isinstance(spec, SdistSource) else spec.tags)


def places(config: PipConfig) -> list[tuple[str, bool]]:
    """Return where pip looks for packages, and whether each is an index: folders first."""
    import pypi_simple  # noqa: PLC0415  see persist

    found = [
        (link if "://" in link else str(Path(link).expanduser()), False)
        for link in config.find_links
    ]
    if not config.no_index:
        default = config.index_url or pypi_simple.PYPI_SIMPLE_ENDPOINT
        found += [(url, True) for url in (default, *config.extra_index_urls)]
    return found


def files_of(
    distribution: str, url: str, connection: Connection, *, is_index: bool
) -> list[Candidate]:
    """Return the archives and wheels of every release that one place has, yanked ones too."""
    import pypi_simple  # noqa: PLC0415  see persist

    place = redact(url)
    if "://" not in url or url.startswith("file:"):
        folder = Path(unquote(urlsplit(url).path)) if url.startswith("file:") else Path(url)
        return _local_files(distribution, folder, place)
    if not connection.trusts(url):
        raise SourceError(f"{place} was not asked: not https, and no trusted-host of pip")
    page_url = f"{url.rstrip('/')}/{canonicalize_name(distribution)}/" if is_index else url

    def ask() -> list[DistributionPackage]:
        response = connection.get(page_url, accept=pypi_simple.ACCEPT_ANY)
        if response.status_code in _REFUSED:
            raise SourceError(f"{place} refused access (HTTP {response.status_code})")
        if response.status_code >= _FAILED:
            return []
        try:
            return pypi_simple.ProjectPage.from_response(response, distribution).packages
        except (ValueError, pypi_simple.UnsupportedRepoVersionError):
            raise ValueError("what it gives is no page of a package index") from None

    found = [_candidate(distribution, package, place) for package in persist(place, ask)]
    return [file for file in found if file is not None]


def _local_files(distribution: str, folder: Path, place: str) -> list[Candidate]:
    """Return the files of a folder, or of a file that is named itself."""
    import pypi_simple  # noqa: PLC0415  see persist

    if not folder.exists():
        raise SourceError(f"{place}: no such folder")
    found: list[Candidate] = []
    for path in sorted(folder.iterdir()) if folder.is_dir() else [folder]:
        link = pypi_simple.Link(text=path.name, url=path.as_uri(), attrs={})
        package = pypi_simple.DistributionPackage.from_link(link, distribution)
        package.size = path.stat().st_size
        if (file := _candidate(distribution, package, place)) is not None:
            found.append(file)
    return found


def _candidate(distribution: str, package: DistributionPackage, place: str) -> Candidate | None:
    """Return a file if it can be a source of the distribution."""
    name = package.filename
    if not FILE_NAME.fullmatch(name) or not name.endswith((".whl", *_ARCHIVES)):
        return None
    if not package.version or not package.project:
        return None
    if canonicalize_name(package.project) != canonicalize_name(distribution):
        return None
    sha256 = package.digests.get("sha256", "").lower()
    return Candidate(
        package.url, name, package.version, place, sha256 if _SHA256.fullmatch(sha256) else "",
        package.size, package.is_yanked,
    )  # fmt: skip


@dataclass
class File:
    """A file of a release, perhaps in several places."""

    #: Where it was found first.
    candidate: Candidate
    size: int | None = None
    yanked: bool = False
    #: The SHA-256 that places announce, each with the first that does.
    digests: dict[str, str] = field(default_factory=dict)

    @property
    def version(self) -> str:
        """The release, as the file's name writes it; without a local label."""
        return self.candidate.version

    @property
    def tags(self) -> str:
        """Python, ABI and platform tags; empty for a source archive."""
        return self.candidate.tags

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
    """The files of all places."""

    #: By name; each once, whatever number of places has it.
    files: tuple[File, ...]
    #: For each place one line on what it has, or why it cannot be asked.
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
    for url, is_index in places(config):
        place = redact(url)
        try:
            found = files_of(distribution, url, connection, is_index=is_index)
        except SourceError as error:
            said.append(error.message)
            failed.append(error.message)
            continue
        # A local label names a build of a release, no release.
        usable = [one for one in found if "+" not in one.version]
        for one in usable:
            file = files.setdefault(one.filename, File(one))
            file.yanked |= one.yanked
            file.size = one.size if file.size is None else file.size
            if one.sha256:
                file.digests.setdefault(one.sha256, place)
        said.append(f"{place} has {len(usable) or 'no'} files")
    if files:
        # Where there are none, whoever asked says all of it.
        for message in failed:
            log.warning("%s; releases that only it has are not seen", message)
    return Listing(tuple(files[name] for name in sorted(files)), tuple(said))


#: The end of a file's name while it is written.
_PART: Final = ".part"
#: Where a file lies until its digest is known.
_UNKNOWN: Final = "unknown"
#: No release's source comes near; a server that does not stop must be stopped.
_MAX_BYTES: Final = 4 * 2**30
_OK: Final = 200
_CHUNK: Final = 2**16


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
                got = _fetch(candidate, part, connection, progress)
                if got != spec.sha256:
                    raise IntegrityError(
                        f"{candidate.filename} from {candidate.place}: wrong sha256:"
                        f" expected {spec.sha256}, got {got}",
                        hint="find out why it differs before you change the pin",
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
            sha256 = _fetch(candidate, part, connection, progress)
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


def _fetch(candidate: Candidate, part: Path, connection: Connection, progress: Progress) -> str:
    """Download to a file, down to the disk; return the SHA-256 of what came."""
    source = f"{candidate.filename} from {candidate.place}"

    def download() -> str:
        digest = hashlib.sha256()
        with contextlib.ExitStack() as stack:
            if candidate.url.startswith("file:"):
                path = Path(unquote(urlsplit(candidate.url).path))
                content = stack.enter_context(path.open("rb"))
                total: int | None = path.stat().st_size
                chunks = iter(lambda: content.read(_CHUNK), b"")
            else:
                response = connection.get(candidate.url, accept="*/*", stream=True)
                stack.enter_context(response)
                if response.status_code != _OK:
                    raise SourceError(
                        f"{source}: HTTP {response.status_code}",
                        hint="the index lists an archive that it does not give out;"
                        " try another index",
                    )
                announced = response.headers.get("Content-Length", "")
                total = int(announced) if announced else None
                chunks = response.raw.stream(_CHUNK, decode_content=False)
            progress.start(f"downloading {candidate.filename}", total)
            stack.callback(progress.done)
            file = stack.enter_context(part.open("wb"))
            for chunk in chunks:
                digest.update(chunk)
                if file.write(chunk) and file.tell() > _MAX_BYTES:
                    raise IntegrityError(f"{candidate.filename}: larger than {_MAX_BYTES} bytes")
                progress.advance(len(chunk))
            file.flush()
            os.fsync(file.fileno())
        return digest.hexdigest()

    return persist(source, download)


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
