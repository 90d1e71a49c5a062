"""Finding a release's source archive or wheel on the package indexes and in the folders of pip."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from contribbot.errors import IntegrityError, SourceError
from contribbot.model.pin import ReleaseSource, SdistSource
from contribbot.sources.connection import Connection
from contribbot.sources.pip_config import PipConfig
from contribbot.sources.redact import redact
from contribbot.sources.retry import persist

if TYPE_CHECKING:
    from unearth import Package, PackageFinder
    from unearth.finder import Source as Location

log: Final = logging.getLogger(__name__)

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
