"""Releases on the package indexes and in the folders that pip uses: list, pin, download."""

from __future__ import annotations

import ast
import contextlib
import difflib
import errno
import hashlib
import logging
import os
import re
import shutil
import sys
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, Self
from urllib.parse import unquote, urlsplit

from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version
from pydantic import BaseModel, BeforeValidator, ConfigDict, TypeAdapter, ValidationError

from contribbot import process
from contribbot.errors import (
    CommandError,
    CommandTimeoutError,
    IntegrityError,
    MachineError,
    SourceError,
    UsageError,
)
from contribbot.files import downloads_folder, lock
from contribbot.git.pins import (
    NEWEST,
    Progress,
    installed_version,
    one_line,
    redact,
    redact_logs,
)
from contribbot.model.base import Tag
from contribbot.model.patch import (
    GitSource,
    InstalledSource,
    Pin,
    ReleaseRecipe,
    ReleaseSource,
    SdistSource,
    SourceSpec,
    Upstream,
    WheelSource,
)

if TYPE_CHECKING:
    from pypi_simple import DistributionPackage, PyPISimple

log: Final = logging.getLogger(__name__)

#: Later sections win (pip's user guide, "Precedence / Override order").
_SECTIONS: Final = ("global", "download", ":env:")
_LINE: Final = re.compile(r"(?P<name>[^=]+)=(?P<value>(?P<quote>['\"]).*(?P=quote))")
#: Environment variables that decide which configuration files pip reads.
_PIP_FOLDERS: Final = ("HOME", "XDG_CONFIG_HOME", "XDG_CONFIG_DIRS")
_Words = Annotated[
    tuple[str, ...], BeforeValidator(lambda text: text.split() if isinstance(text, str) else text)
]


class PipConfig(BaseModel):
    """Pip's indexes, folders and network settings; never printed, as URLs may hold passwords."""

    model_config = ConfigDict(
        frozen=True, populate_by_name=True, alias_generator=lambda name: name.replace("_", "-")
    )

    index_url: str = "https://pypi.org/simple/"
    extra_index_url: _Words = ()
    #: Folders and archives in which pip looks as well.
    find_links: _Words = ()
    no_index: bool = False
    #: Servers (`host` or `host:port`) whose certificates are not checked.
    trusted_host: _Words = ()
    #: A file or folder of certificates to trust, and a file with a client's certificate and key.
    cert: str = ""
    client_cert: str = ""
    proxy: str = ""
    timeout: float = 15.0

    def __repr_args__(self) -> Iterator[tuple[str | None, object]]:
        """Yield nothing, so that `repr` shows no setting."""
        yield from ()


def read_pip_config() -> PipConfig:
    """Return the settings that `pip config list` prints; raise SourceError for an invalid value."""
    sections: dict[str, dict[str, str]] = {}
    for name, value in _pip_settings():
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


def _pip_settings() -> list[tuple[str, str]]:
    """Return the names and values that `pip config list` prints; no error quotes pip's output."""
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


_HINT: Final = "see which indexes `pip config list` names, and whether they have this release"
#: File names that are safe in the cache, of archives that can be imported.
_FILE_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+!-]*(?:\.whl|\.tar\.gz|\.zip)")


@dataclass(frozen=True)
class File:
    """A file of a release, in one of the package indexes or folders that pip uses."""

    filename: str
    version: str  # as the file's name writes it
    place: str  # the index or folder, without credentials
    sha256: str  # as the index announces it, or empty
    yanked: bool  # the project withdrew it
    package: DistributionPackage = field(repr=False, compare=False)
    index: str = field(repr=False, compare=False)  # may hold credentials; empty for a folder

    @property
    def tags(self) -> str:
        """A wheel's Python, ABI and platform tags; empty for a source archive."""
        if not self.filename.endswith(".whl"):
            return ""
        return "-".join(self.filename.removesuffix(".whl").rsplit("-", 3)[1:])


@dataclass(frozen=True)
class PackagePlace:
    """A package index or folder, with a distribution's files in the place, or the read error."""

    name: str  # without credentials
    files: tuple[File, ...] = ()
    fault: str = ""


def _describe(places: list[PackagePlace]) -> str:
    """Return a line with each place's number of files, or with the error that reading gave."""
    counts = ((place, len(place.files) or "no") for place in places)
    listed = (place.fault or f"{place.name} has {count} files" for place, count in counts)
    return "; ".join(listed) or "pip is configured with no-index and without find-links"


def _read_places(distribution: str, config: PipConfig) -> Iterator[PackagePlace]:
    """Yield pip's `find-links` folders, then its indexes; log a warning for an unreadable place."""
    indexes = (config.index_url, *config.extra_index_url)
    wanted = canonicalize_name(distribution)
    for place in (*config.find_links, *(() if config.no_index else indexes)):
        folder = _local(place)
        name = redact(place) if folder is None else str(folder)
        try:
            if folder is None:
                packages = _read_index(distribution, place, config)
            else:
                packages = _read_folder(distribution, folder)
        except SourceError as error:
            log.warning("%s; releases that only it has are not seen", error.message)
            yield PackagePlace(name, fault=error.message)
            continue
        files = tuple(
            File(
                filename=package.filename,
                version=package.version,
                place=name,
                sha256=package.digests.get("sha256", "").lower(),
                yanked=package.is_yanked,
                package=package,
                index=place if folder is None else "",
            )
            for package in packages
            if _FILE_NAME.fullmatch(package.filename)
            and package.version
            and canonicalize_name(package.project or "") == wanted
        )
        yield PackagePlace(name, files)


def _local(link: str) -> Path | None:
    """Return the local path that a link of pip's settings names; None: the link is a remote URL."""
    if link.startswith("file:"):
        return Path(unquote(urlsplit(link).path))
    return None if "://" in link else Path(link).expanduser()


def _read_folder(distribution: str, path: Path) -> list[DistributionPackage]:
    """Return a distribution's archives in a folder, with SHA-256; SourceError: no such folder."""
    import pypi_simple  # noqa: PLC0415  0.1 s that only downloads pay

    if not path.is_dir():
        raise SourceError(f"{path}: no such folder")
    packages = []
    for file in sorted(path.iterdir()):
        link = pypi_simple.Link(text=file.name, url=file.absolute().as_uri(), attrs={})
        package = pypi_simple.DistributionPackage.from_link(link, distribution)
        if canonicalize_name(package.project or "") == canonicalize_name(distribution):
            package.digests = {"sha256": _digest(file)}
            packages.append(package)
    return packages


def _read_index(distribution: str, index: str, config: PipConfig) -> list[DistributionPackage]:
    """Return a distribution's files on an index; empty: the index has no such distribution."""
    import pypi_simple  # noqa: PLC0415  see _read_folder

    if index in config.find_links:
        raise SourceError(f"{redact(index)}: a page of find-links is not read: name an index")
    try:
        with _client(index, config) as client, _network(redact(index)):
            packages = client.get_project_page(distribution, timeout=config.timeout).packages
    except pypi_simple.NoSuchProjectError:
        return []
    except (ValueError, pypi_simple.UnsupportedRepoVersionError):
        raise SourceError(f"{redact(index)}: its answer is no page of an index") from None
    for package in packages:  # the password is for the index's own host alone
        package.url = package.url.replace(f"://{_host(index)}/", f"://{urlsplit(index).netloc}/", 1)
    return packages


def _host(url: str) -> str:
    return urlsplit(url).netloc.rpartition("@")[2]


def _client(index: str, config: PipConfig) -> PyPISimple:
    """Return a client with pip's certificates and proxy; raise SourceError for untrusted http."""
    import pypi_simple  # noqa: PLC0415  see _read_folder
    import requests.adapters  # noqa: PLC0415  see _read_folder
    from urllib3 import Retry  # noqa: PLC0415  see _read_folder

    # urllib3 logs paths, and a signed link to which an index redirects holds a secret.
    redact_logs("urllib3.connectionpool")
    url = urlsplit(index)
    trusted = not {_host(index), url.hostname}.isdisjoint(config.trusted_host)
    # pip's rule: without https, only this machine and trusted hosts are asked.
    if not (trusted or url.scheme == "https" or url.hostname in {"localhost", "127.0.0.1", "::1"}):
        raise SourceError(
            f"{redact(index)} was not asked: it needs https, or to be a trusted-host of pip"
        )
    session = requests.Session()
    session.verify = False if trusted else config.cert or True
    session.cert = config.client_cert or None
    retries = Retry(
        total=3,
        connect=0,
        status_forcelist=(502, 503, 504),
        backoff_factor=0.2,
        raise_on_status=False,
    )
    for scheme in ("http://", "https://"):
        session.mount(scheme, requests.adapters.HTTPAdapter(max_retries=retries))
    if config.proxy:
        session.proxies = {"http": config.proxy, "https": config.proxy}
    return pypi_simple.PyPISimple(index, session=session)


@contextlib.contextmanager
def _network(source: str) -> Iterator[None]:
    """Turn network errors into SourceError without credentials; let a full disk's error pass."""
    try:
        yield
    except OSError as error:  # the exceptions of requests are subclasses
        if error.errno in {errno.ENOSPC, errno.EDQUOT}:
            raise
        cause = error.args[0] if error.args else error
        # `from None`: the original error may quote a URL with a password.
        raise SourceError(
            f"{source}: {one_line(str(getattr(cause, 'reason', cause)))}",
            hint="check the network, and the index, proxy and certificates in `pip config list`",
        ) from None


def _find(spec: ReleaseSource, config: PipConfig) -> File:
    """Return the pinned file from the first place that states the pinned digest, or no digest."""
    kind, tags = "source archive", ""
    if isinstance(spec, WheelSource):
        kind, tags = f"wheel {spec.tags}", spec.tags
    places: list[PackagePlace] = []
    others: list[str] = []
    for place in _read_places(spec.distribution, config):
        places.append(place)
        for file in place.files:
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
    raise SourceError(f"{release}: no {kind} of it found: {_describe(places)}", hint=_HINT)


def _is_version(text: str, version: str) -> bool:
    with contextlib.suppress(InvalidVersion):
        return Version(text) == Version(version)
    return False


def obtain(spec: ReleaseSource, *, progress: Progress) -> Path:
    """Return the path of a release's pinned file; download it, unless the cache has it."""
    folder = downloads_folder() / spec.sha256
    release = f"{spec.distribution} {spec.version}"
    try:
        with lock(folder.with_name(f"{spec.sha256}.lock"), f"the download of {release}"):
            folder.mkdir(exist_ok=True)
            for path in folder.iterdir():
                if _digest(path) == spec.sha256:
                    return _checked(path, spec)
                path.unlink()  # a killed download left this file
            config = read_pip_config()
            file = _find(spec, config)
            path = folder / file.filename
            _download(file, path, config, progress)
            if (digest := _digest(path)) == spec.sha256:
                return path
            path.unlink()
            raise IntegrityError(
                f"{file.filename} from {file.place}: wrong sha256: "
                f"expected {spec.sha256}, got {digest}",
                hint="find out why it differs before you change the pin",
            )
    except OSError as error:
        if error.errno in {errno.ENOSPC, errno.EDQUOT}:
            raise process.no_space(str(folder)) from error
        raise MachineError(
            f"{error.filename or folder}: {error.strerror or error}",
            hint="see that the cache folder (CONTRIBBOT_CACHE) can be written",
        ) from error


def _checked(path: Path, spec: ReleaseSource) -> Path:
    """Return a cached file's path; raise IntegrityError if the file's name has another version."""
    name = path.name.removesuffix(".zip").removesuffix(".tar.gz")
    wheel = isinstance(spec, WheelSource)
    if not _is_version(name.split("-")[1] if wheel else name.rpartition("-")[2], spec.version):
        raise IntegrityError(
            f"{path.name} has the sha256 of {spec.distribution} {spec.version}",
            hint="correct the pin's tag and version, or its sha256",
        )
    return path


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _download(file: File, path: Path, config: PipConfig, progress: Progress) -> None:
    if there := _local(file.package.url):
        shutil.copyfile(there, path)
        return
    with _client(file.index, config) as client, _network(f"{file.filename} from {file.place}"):
        client.download_package(
            file.package,
            path,
            verify=False,  # `obtain` compares the digest with the pin's
            timeout=config.timeout,
            progress=lambda total: _Tracker(progress, file.filename, total),
            # The bytes as stored: some servers announce a .tar.gz as a compressed .tar.
            headers={"Accept-Encoding": "identity"},
        )


class _Tracker:
    """The progress of a download, with the methods that pypi-simple calls."""

    def __init__(self, progress: Progress, name: str, total: int | None) -> None:
        self._progress = progress
        progress.start(f"downloading {name}", total)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.done()

    def update(self, increment: int) -> None:
        """Advance the progress display by a number of downloaded bytes."""
        self._progress.advance(increment)


_PURE: Final = "py3-none-any"
_TAG: Final = TypeAdapter[str](Tag)


@dataclass(frozen=True)
class Release:
    """A release of an upstream: its version, tag and files on package indexes."""

    order: Version
    tag: str
    #: The release's files on package indexes, in the order of the file names.
    files: tuple[File, ...]

    @property
    def final(self) -> bool:
        """Whether the release is no pre-release, and has a file that is not withdrawn."""
        return not self.order.is_prerelease and not all(file.yanked for file in self.files)


def releases(pin: Pin, upstream: Upstream, *, also: Collection[str] = ()) -> list[Release]:
    """Return an upstream's final releases and the releases of the tags `also`, the oldest first."""
    recipe, known, places = _known(upstream)
    if not known:
        raise SourceError(
            f"{pin.upstream}: no release of {recipe.distribution} found: {_describe(places)}",
            hint=_HINT,
        )
    return [release for release in known if release.tag in also or release.final]


def resolve(pin: Pin, upstream: Upstream, tag: str) -> Pin:
    """Return a pin of the same upstream at a tag; at the pin's own tag, the pin itself."""
    return pin if tag == pin.tag else resolve_file(pin, upstream, tag)[0]


def resolve_file(pin: Pin, upstream: Upstream, tag: str) -> tuple[Pin, File | None]:
    """Return a pin at a tag, and the source archive, or else a wheel; own tag: the pin and None."""
    recipe, known, places = _known(upstream)
    final = [release for release in known if release.final]
    # A release that is asked for by name may be withdrawn.
    named = [release for release in known if release.tag in {tag, recipe.tag_of(tag)}]
    for release in final[-1:] if tag == NEWEST else named:
        if release.tag == pin.tag:
            return pin, None
        file = _chosen(upstream, recipe, release)
        sources: list[SourceSpec] = [
            *_installed(pin, str(release.order)),
            _source(recipe, file),
            *(spec for spec in pin.sources if isinstance(spec, GitSource)),
        ]
        return Pin(upstream=pin.upstream, tag=release.tag, sources=tuple(sources)), file
    missing = f"{upstream.name} {tag}: no such release of {recipe.distribution}"
    if not known:
        raise SourceError(f"{missing}: {_describe(places)}", hint=_HINT)
    tags = [release.tag for release in known]
    near = difflib.get_close_matches(tag, tags, n=2) or tags[-1:]
    raise UsageError(
        missing,
        hint=f"name {' or '.join(near)}; or, for a tag without a release, add a pin with a git"
        " source to queue.toml",
    )


def _known(upstream: Upstream) -> tuple[ReleaseRecipe, list[Release], list[PackagePlace]]:
    """Return the upstream's release recipe, its releases (oldest first), and all places of pip."""
    recipe = upstream.release
    if recipe is None:
        raise SourceError(
            f"{upstream.name}: upstreams/{upstream.name}.toml does not say where its releases are",
            hint='add a table [release] with distribution = "…", its name on the package index'
            " (docs/upstreams.md), or add the other pin to queue.toml yourself",
        )
    places = list(_read_places(recipe.distribution, read_pip_config()))
    # Where several places have a file, the first place counts.
    files = {file.filename: file for place in reversed(places) for file in place.files}
    by_version: dict[Version, list[File]] = {}
    for _, file in sorted(files.items()):
        # A version with a local label (`+cpu`) is a build of a release, not a release.
        if "+" not in file.version:
            by_version.setdefault(Version(file.version), []).append(file)
    known = []
    for order, group in sorted(by_version.items()):
        # A wheel's name has the normalized version; a source archive's is nearer to the tag.
        first = next((file for file in group if not file.tags), group[0])
        # A version that cannot be a tag of git, such as one with an epoch, is left out.
        with contextlib.suppress(ValidationError):
            tag = _TAG.validate_python(recipe.tag_of(first.version))
            known.append(Release(order, tag, tuple(group)))
    return recipe, known, places


def _chosen(upstream: Upstream, recipe: ReleaseRecipe, release: Release) -> File:
    files = [file for file in release.files if not file.yanked] or list(release.files)
    sdists = [file for file in files if not file.tags]
    if sdists:
        # `.tar.gz` comes before `.zip`, which keeps fewer of a file's modes.
        return min(sdists, key=lambda file: (file.filename.endswith(".zip"), file.filename))
    if not recipe.packages:
        raise SourceError(
            f"{upstream.name} {release.tag}: there are only wheels, and"
            f" upstreams/{upstream.name}.toml does not say what the repository has of them",
            hint="add packages = […] to its table [release]: the wheel's top-level folders",
        )

    def preference(file: File) -> tuple[bool, bool, str]:
        # A wheel for Windows may hold other line ends than the repository (torch 2.15.0 does).
        windows = file.tags.rpartition("-")[2].startswith("win")
        return file.tags != _PURE, windows, file.filename

    return min(files, key=preference)


def _source(recipe: ReleaseRecipe, file: File) -> ReleaseSource:
    sha256, name = file.sha256, recipe.distribution
    facts = {"distribution": name, "version": file.version, "sha256": sha256, "root": recipe.root}
    if not sha256:
        raise SourceError(
            f"{file.filename}: {file.place} does not announce its sha256",
            hint="download it, and add the pin with its sha256 to queue.toml yourself",
        )
    if not file.tags:
        return SdistSource.model_validate({"kind": "sdist", **facts})
    root = recipe.root if recipe.wheel_root is None else recipe.wheel_root
    wheel = {"kind": "wheel", "tags": file.tags, "packages": recipe.packages, "root": root}
    return WheelSource.model_validate({**facts, **wheel})


def _installed(pin: Pin, version: str) -> Iterator[InstalledSource]:
    """Yield the pin's `installed` sources at `version`, if this Python has `version` installed."""
    for spec in pin.sources:
        if isinstance(spec, InstalledSource):
            there = installed_version(spec.distribution) or ""
            if version in {there, there.partition("+")[0]}:
                yield spec.model_copy(update={"version": version})
