"""Finding a release's source archive or wheel on the package indexes and in the folders of pip."""

from __future__ import annotations

import contextlib
import logging
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from contribbot.errors import IntegrityError, SourceError
from contribbot.model.pin import ReleaseSource, SdistSource
from contribbot.sources.pip_config import PipConfig
from contribbot.sources.redact import redact, redact_logs
from contribbot.sources.retry import persist

if TYPE_CHECKING:
    import ssl

    import httpx2
    from unearth import Package
    from unearth.fetchers.sync import PyPIClient
    from unearth.finder import Source as Location

log: Final = logging.getLogger(__name__)

_FILE_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+!-]*")
_SERVER_ERROR: Final = 500
_REFUSED: Final = frozenset({401, 403, 407})
#: Loggers that write URLs as they are, passwords included.
_TALKATIVE: Final = ("unearth.auth", "unearth.collector", "unearth.evaluator", "httpx2")
_HINT: Final = "see which indexes `pip config list` names, and whether they have this release"


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


class _Watch:
    """Sees every answer of a server, also those that unearth passes over."""

    def __init__(self) -> None:
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
    """Open a client that uses pip's certificates, proxy, time limit and passwords.

    Args:
        config: How pip is configured.

    Raises:
        SourceError: A certificate cannot be read.
    """
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


def find_archive(spec: ReleaseSource, config: PipConfig, connection: Connection) -> Candidate:
    """Find the release's file in the first place that has it.

    Folders come before indexes. Since the archive's digest is pinned, it does
    not matter which place gives it.

    Args:
        spec: The release.
        config: How pip is configured.
        connection: An open `connect`.

    Raises:
        SourceError: No place has it, or none can be reached.
        IntegrityError: The places that have it announce another digest.
    """
    reasons: list[str] = []
    announced: list[str] = []
    for location in _locations(config):
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
            elif _FILE_NAME.fullmatch(name):
                return Candidate(package.link.normalized, name, place)
    release = f"{spec.distribution} {spec.version}"
    if announced:
        raise IntegrityError(
            f"{release}: {_wanted(spec)} with another sha256: expected {spec.sha256},"
            f" {'; '.join(announced)}",
            hint="find out why it differs before you change the pin",
        )
    where = "; ".join(reasons) or "pip is configured with no-index and without find-links"
    raise SourceError(f"{release}: no {_wanted(spec)} found: {where}", hint=_HINT)


def _wanted(spec: ReleaseSource) -> str:
    """Return what is looked for, for messages."""
    return "source archive" if isinstance(spec, SdistSource) else f"wheel {spec.tags}"


def _is_meant(spec: ReleaseSource, filename: str) -> bool:
    """Say whether a file of the release is the one: a release has many wheels."""
    return isinstance(spec, SdistSource) or filename.endswith(f"-{spec.tags}.whl")


def _locations(config: PipConfig) -> list[Location]:
    """Return where to look, in order."""
    from unearth import PackageFinder  # noqa: PLC0415  see connect

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


def _matches(spec: ReleaseSource, location: Location, connection: Connection) -> list[Package]:
    """Return the files of the release that could be meant, in one place; none is an error too.

    Raises:
        SourceError: There are none, or the place cannot be read.
    """
    from unearth import PackageFinder  # noqa: PLC0415  see connect

    place = redact(location["url"])
    remote = "://" in place and not place.startswith("file:")
    if "://" not in place and not Path(place).exists():
        raise SourceError(f"{place}: no such folder")
    source = isinstance(spec, SdistSource)
    finder = PackageFinder(
        session=connection.http,  # type: ignore[arg-type]  # its own client fails its own protocol
        no_binary=[":all:"] if source else (),
        only_binary=() if source else [":all:"],
        ignore_compatibility=True,
    )
    finder.sources = [location]
    requirement = f"{spec.distribution}=={spec.version}"
    connection.watch.reset()
    found = persist(
        place,
        lambda: list(finder.find_matches(requirement, allow_yanked=True, allow_prereleases=True)),
    )
    # `==1.0` matches 1.0+local too, which is another release.
    local = "+" in spec.version
    exact = [
        package
        for package in found
        if ("+" in (package.version or "")) == local and _is_meant(spec, package.link.filename)
    ]
    if exact:
        return exact
    if connection.watch.refused:
        raise SourceError(f"{place} refused access (HTTP {connection.watch.refused})")
    if remote and not connection.watch.answers:
        raise SourceError(f"{place} was not asked: not https, and no trusted-host of pip")
    raise SourceError(f"{place} has none")
