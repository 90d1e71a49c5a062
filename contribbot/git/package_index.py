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
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, TYPE_CHECKING, Final, TypeVar

from packaging.utils import (
    InvalidSdistFilename,
    InvalidWheelFilename,
    canonicalize_name,
    parse_sdist_filename,
    parse_wheel_filename,
)
from packaging.version import Version
from pydantic import BaseModel, Field, ValidationError

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
    import ssl

    import httpx2
    from unearth import Package, PackageFinder
    from unearth.fetchers.sync import PyPIClient
    from unearth.finder import Source as Location


log: Final = logging.getLogger(__name__)

ATTEMPTS: Final = 4
#: Seconds before the second attempt; doubled for each further one.
PAUSE = 0.5
_HINT: Final = "check the network, and the index and proxy in `pip config list`"

T = TypeVar("T")


def persist(what: str, action: Callable[[], T]) -> T:
    """Do something over the network, again when a passing fault stopped it."""
    import httpx2  # noqa: PLC0415  comes with unearth; 0.1 s that only downloads pay
    import tenacity  # noqa: PLC0415  the same

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
    except (httpx2.HTTPError, httpx2.InvalidURL, ValueError) as error:
        # The original may quote a URL with a password in its traceback.
        raise SourceError(f"{what}: {_explain(error)[0]}", hint=_HINT) from None


def _explain(error: BaseException | None) -> tuple[str, bool]:
    """Return what went wrong, and whether it may be gone next time."""
    import httpx2  # noqa: PLC0415  see persist

    words = one_line(str(error)) or type(error).__name__
    match error:
        case httpx2.HTTPStatusError():
            return words, True
        case httpx2.TimeoutException():
            return "no answer in time", True
        case httpx2.ConnectError():
            return f"cannot be reached: {words}", "CERTIFICATE_VERIFY_FAILED" not in words
        case httpx2.RemoteProtocolError() if "complete message body" in words:
            return f"cut short: {words}", True
        case httpx2.TransportError() if not isinstance(error, httpx2.UnsupportedProtocol):
            return f"the connection broke: {words}", True
    return words, False


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
    """What pip is configured to use. May hold credentials: never print it.

    Attributes:
        index_url: The index; empty for pip's default.
        extra_index_urls: More indexes.
        find_links: Folders, archives or pages with links.
        no_index: Whether indexes are out of bounds.
        trusted_hosts: `host` or `host:port` whose certificate is not checked.
        cert: A file of certificates to trust, or empty.
        client_cert: A file with a client's certificate and key, or empty.
        proxy: The proxy's URL, or empty.
        timeout: Seconds to wait for an answer.
    """

    index_url: str = ""
    extra_index_urls: tuple[str, ...] = ()
    find_links: tuple[str, ...] = ()
    no_index: bool = False
    trusted_hosts: tuple[str, ...] = ()
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


#: What an index calls its pages in JSON (PyPA specification "Simple repository API").
_JSON: Final = "application/vnd.pypi.simple.v1+json"
_SERVER_ERROR: Final = 500
_REFUSED: Final = frozenset({401, 403, 407})
#: Loggers that write URLs as they are, passwords included.
_TALKATIVE: Final = ("unearth.auth", "unearth.collector", "unearth.evaluator", "httpx2")


class _PageFile(BaseModel):
    """What unearth reads of a file on a page."""

    url: str | None = None
    hashes: dict[str, str] | None = None
    requires_python: str | None = Field(default=None, alias="requires-python")
    upload_time: str | None = Field(default=None, alias="upload-time")


class _Page(BaseModel):
    files: list[_PageFile] = []


def _require_page(page: bytes) -> None:
    """Refuse a page in JSON that is none: unearth takes its shape for granted."""
    try:
        _Page.model_validate_json(page)
    except ValidationError:
        raise ValueError("what it gives is no page of a package index") from None


class _Watch:
    """Sees every answer of a server, also those that unearth passes over.

    Attributes:
        answers: How many there were.
        refused: The status of one that refused access, or 0.
        pages: Who reads pages of the JSON interface too, where somebody does.
    """

    def __init__(self) -> None:
        self.pages: Callable[[bytes], None] | None = None
        self.answers = 0
        self.refused = 0

    def reset(self) -> None:
        """Forget what was seen."""
        self.answers = self.refused = 0

    def __call__(self, response: httpx2.Response) -> None:
        """Note an answer; make a fault of the server an exception, which is tried again."""
        self.answers += 1
        if response.status_code in _REFUSED:
            self.refused = response.status_code
        if response.status_code >= _SERVER_ERROR:
            import httpx2  # noqa: PLC0415  comes with unearth

            raise httpx2.HTTPStatusError(
                f"server error {response.status_code}", request=response.request, response=response
            )
        told = response.headers.get("Content-Type", "").lower()
        if response.is_success and told.startswith(_JSON):
            page = response.read()
            _require_page(page)
            if self.pages:
                self.pages(page)


@dataclass(frozen=True)
class Connection:
    """An open HTTP client.

    Attributes:
        http: The client.
        watch: What sees its answers.
    """

    http: PyPIClient
    watch: _Watch


@contextlib.contextmanager
def connect(config: PipConfig) -> Iterator[Connection]:
    """Open a client that uses pip's certificates, proxy, time limit and passwords."""
    from unearth.auth import MultiDomainBasicAuth  # noqa: PLC0415  0.3 s; only for downloads
    from unearth.fetchers.sync import PyPIClient  # noqa: PLC0415  the same

    redact_logs(*_TALKATIVE)
    if not log.isEnabledFor(logging.DEBUG):
        # It warns of each folder of an index that lacks a package, which is no news.
        logging.getLogger("unearth").setLevel(logging.ERROR)
    # Traces headers, with the signed links that indexes redirect to.
    logging.getLogger("httpcore2").setLevel(logging.INFO)
    urls = [config.index_url, *config.extra_index_urls, *config.find_links]
    watch = _Watch()
    with PyPIClient(
        trusted_hosts=config.trusted_hosts,
        verify=_certificates(config),
        timeout=config.timeout,
        # Object stores and mirrors are reached through redirects.
        follow_redirects=True,
        proxy=config.proxy or None,
        event_hooks={"response": [watch]},
        auth=MultiDomainBasicAuth(prompting=False, index_urls=[url for url in urls if url]),
    ) as http:
        yield Connection(http, watch)


def _certificates(config: PipConfig) -> ssl.SSLContext | bool:
    """Return the certificates to trust and to show; True for the usual ones."""
    if not config.cert and not config.client_cert:
        return True
    import ssl  # noqa: PLC0415  only where certificates are configured

    name = config.cert or config.client_cert
    try:
        context = ssl.create_default_context(
            cafile=config.cert if config.cert and not Path(config.cert).is_dir() else None,
            capath=config.cert if config.cert and Path(config.cert).is_dir() else None,
        )
        if config.client_cert:
            name = config.client_cert
            context.load_cert_chain(config.client_cert)
    except OSError as error:  # ssl.SSLError is one
        raise SourceError(
            f"pip's certificate {name} cannot be used: {error.strerror or error}",
            hint="correct `cert` or `client-cert` in pip's configuration",
        ) from error
    return context


#: A name that is safe as the name of a file in the cache.
FILE_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+!-]*")
HINT: Final = "see which indexes `pip config list` names, and whether they have this release"


@dataclass(frozen=True)
class Candidate:
    """A file that can be downloaded.

    Attributes:
        url: Where; may hold credentials, never print it.
        filename: Its name, safe as the name of a file.
        place: Where it was found, for messages; no credentials.
    """

    url: str
    filename: str
    place: str

    def __repr__(self) -> str:
        """Return a text without the URL."""
        return f"Candidate({self.filename} at {self.place})"


def find_archive(spec: ReleaseSource, config: PipConfig, connection: Connection) -> Candidate:
    """Find the release's file in the first place that has it.

    Folders come before indexes. Since the archive's digest is pinned, it does
    not matter which place gives it.
    """
    reasons: list[str] = []
    announced: list[str] = []
    for location in locations(config):
        place = redact(location["url"])
        try:
            packages = _matches(spec, location, connection)
        except SourceError as error:
            log.info("%s", error.message)
            reasons.append(error.message)
            continue
        for package in packages:
            digest = (package.link.hash_option or {}).get("sha256", [spec.sha256])[0]
            name = package.link.filename
            if digest.lower() != spec.sha256:
                announced.append(f"{place} has {digest}")
            elif FILE_NAME.fullmatch(name):
                return Candidate(package.link.normalized, name, place)
    release = f"{spec.distribution} {spec.version}"
    if announced:
        raise IntegrityError(
            f"{release}: {_wanted(spec)} with another sha256: expected {spec.sha256},"
            f" {'; '.join(announced)}",
            hint="find out why it differs before you change the pin",
        )
    where = "; ".join(reasons) or "pip is configured with no-index and without find-links"
    raise SourceError(f"{release}: no {_wanted(spec)} found: {where}", hint=HINT)


def _wanted(spec: ReleaseSource) -> str:
    """Return what is looked for, for messages."""
    return "source archive" if isinstance(spec, SdistSource) else f"wheel {spec.tags}"


def _is_meant(spec: ReleaseSource, filename: str) -> bool:
    """Say whether a file of the release is the one: a release has many wheels."""
    return isinstance(spec, SdistSource) or filename.endswith(f"-{spec.tags}.whl")


def locations(config: PipConfig) -> list[Location]:
    """Return where pip looks for packages: folders first, then indexes, in order."""
    from unearth import PackageFinder  # noqa: PLC0415  see connection.connect

    # Without a source of its own the finder knows the default index.
    default = PackageFinder().sources[0]["url"]
    found: list[Location] = []
    for link in config.find_links:
        path = Path(link).expanduser()
        found.append({"url": link if "://" in link else str(path), "type": "find_links"})
    if not config.no_index:
        indexes = (config.index_url or default, *config.extra_index_urls)
        found.extend({"url": url, "type": "index"} for url in indexes)
    return found


def files_of(distribution: str, location: Location, connection: Connection) -> list[Package]:
    """Return the files of every release that one place has, yanked ones too."""
    return _ask(
        location,
        connection,
        lambda finder: list(finder.find_all_packages(distribution, allow_yanked=True)),
    )


def _ask(
    location: Location,
    connection: Connection,
    question: Callable[[PackageFinder], list[Package]],
    *,
    no_binary: Iterable[str] = (),
    only_binary: Iterable[str] = (),
) -> list[Package]:
    """Ask one place; an empty answer is believed only where there was one."""
    from unearth import PackageFinder  # noqa: PLC0415  see connection.connect

    place = redact(location["url"])
    if "://" not in place and not Path(place).exists():
        raise SourceError(f"{place}: no such folder")
    finder = PackageFinder(
        session=connection.http,  # type: ignore[arg-type]  # its own client fails its own protocol
        no_binary=no_binary,
        only_binary=only_binary,
        ignore_compatibility=True,
    )
    finder.sources = [location]
    connection.watch.reset()
    found = persist(place, lambda: question(finder))
    if not found and connection.watch.refused:
        raise SourceError(f"{place} refused access (HTTP {connection.watch.refused})")
    remote = "://" in place and not place.startswith("file:")
    if not found and remote and not connection.watch.answers:
        raise SourceError(f"{place} was not asked: not https, and no trusted-host of pip")
    return found


def _matches(spec: ReleaseSource, location: Location, connection: Connection) -> list[Package]:
    """Return the files of the release that could be meant, in one place; none is an error too."""
    source = isinstance(spec, SdistSource)
    requirement = f"{spec.distribution}=={spec.version}"
    found = _ask(
        location,
        connection,
        lambda finder: list(
            finder.find_matches(requirement, allow_yanked=True, allow_prereleases=True)
        ),
        no_binary=[":all:"] if source else (),
        only_binary=() if source else [":all:"],
    )
    # `==1.0` matches 1.0+local too, which is another release.
    local = "+" in spec.version
    exact = [
        package
        for package in found
        if ("+" in (package.version or "")) == local and _is_meant(spec, package.link.filename)
    ]
    if not exact:
        raise SourceError(f"{redact(location['url'])} has none")
    return exact


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


class _ListingPageFile(BaseModel):
    """A file on a page; its size is there since version 1.1 of the interface."""

    filename: str
    size: int | None = None


class _ListingPage(BaseModel):
    """A page of an index, in JSON (PyPA specification "Simple repository API")."""

    files: list[_ListingPageFile]


@contextlib.contextmanager
def _sizes(connection: Connection) -> Iterator[dict[str, int]]:
    """Give the files' sizes in bytes, as far as the pages that are read meanwhile say them.

    unearth reads the same pages and leaves the sizes out.
    """
    found: dict[str, int] = {}

    def read(page: bytes) -> None:
        # A page that is wrong is unearth's to refuse.
        with contextlib.suppress(ValidationError):
            files = _ListingPage.model_validate_json(page).files
            found.update({file.filename: file.size for file in files if file.size is not None})

    connection.watch.pages = read
    try:
        yield found
    finally:
        connection.watch.pages = None


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
