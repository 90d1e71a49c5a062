"""The releases of an upstream, and a pin at another one.

Which file of a release a pin names does not depend on the machine: what the places
list decides, and neither the platform nor the Python that contribbot runs on.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from packaging.version import InvalidVersion, Version
from pydantic import TypeAdapter, ValidationError

from contribbot.errors import SourceError
from contribbot.git.archive import is_installed
from contribbot.git.package_index import (
    HINT,
    File,
    Listing,
    connect,
    digest_of,
    read_listing,
    read_pip_config,
)
from contribbot.git.remote import REMOTE, remote_git
from contribbot.git.source import Progress, Silent, default_remote, redact
from contribbot.model.base import Tag
from contribbot.model.pin import (
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

#: In place of a tag: the newest release that is neither a pre-release nor withdrawn.
NEWEST: Final = "newest"
_PURE: Final = "py3-none-any"
_TAG: Final = TypeAdapter[str](Tag)


@dataclass(frozen=True)
class Release:
    """A release of an upstream."""

    #: As its files write it.
    version: str
    #: Its tag in the upstream's repository.
    tag: str
    #: Whether a source archive is published.
    has_sdist: bool
    #: The tags of its wheels, in the order of their names.
    wheels: tuple[str, ...]
    #: Whether the project withdrew all of its files.
    yanked: bool = False


@dataclass(frozen=True)
class _Offer:
    """A release with what orders it and what can be downloaded."""

    order: Version
    release: Release
    files: tuple[File, ...]


def releases(
    pin: Pin,
    upstream: Upstream,
    *,
    prereleases: bool = False,
    yanked: bool = False,
    also: Collection[str] = (),
) -> list[Release]:
    """Return the upstream's releases that package indexes have, the oldest first.

    From the places that downloads come from; each index is asked once.
    """
    recipe = _recipe(upstream)
    config = read_pip_config()
    with connect(config) as connection:
        listing = read_listing(recipe.distribution, config, connection)
    offers = _offers(recipe, listing)
    if not offers:
        raise SourceError(
            f"{pin.upstream}: no release of {recipe.distribution} found: {listing.places}",
            hint=HINT,
        )
    return [
        offer.release
        for offer in offers
        if offer.release.tag in also
        or ((prereleases or not offer.order.is_prerelease) and (yanked or not offer.release.yanked))
    ]


def resolve(pin: Pin, upstream: Upstream, tag: str, *, progress: Progress | None = None) -> Pin:
    """Return a pin of the same upstream at another tag.

    Its sources are those of the release: what is installed, where the pin has such a
    source and that very release is installed; then the source archive, or else one wheel
    (for any platform, or else the smallest where every one's size is known, or else the
    first by name); then the pin's git repositories. Nothing is downloaded, unless no place
    announces the file's digest.
    """
    if tag == pin.tag:
        return pin
    recipe = _recipe(upstream)
    config = read_pip_config()
    with connect(config) as connection:
        listing = read_listing(recipe.distribution, config, connection)
        offers = _offers(recipe, listing)
        offer = _newest(offers) if tag == NEWEST else _at(offers, tag)
        if offer is not None:
            if offer.release.tag == pin.tag:
                return pin
            chosen = _chosen(upstream, recipe, offer)
            sha256 = chosen.sha256 or digest_of(
                chosen.candidate, connection, progress=progress or Silent()
            )
            return _pin(pin, offer.release.tag, str(offer.order), _source(recipe, chosen, sha256))
    raise SourceError(
        f"{upstream.name} {tag}: no such release of {recipe.distribution}: {listing.places}",
        hint=_advice(recipe, offers, tag),
    )


def _recipe(upstream: Upstream) -> ReleaseRecipe:
    if upstream.release is None:
        raise SourceError(
            f"{upstream.name}: upstreams/{upstream.name}.toml does not say where its releases are",
            hint='add a table [release] with distribution = "…", its name on the package index'
            " (docs/queue.md), or add the other pin to queue.toml yourself",
        )
    return upstream.release


def _offers(recipe: ReleaseRecipe, listing: Listing) -> list[_Offer]:
    """Return the releases of a listing, in PEP 440's order."""
    by_version: dict[Version, list[File]] = {}
    for file in listing.files:
        by_version.setdefault(Version(file.version), []).append(file)
    offers = []
    for order, files in sorted(by_version.items()):
        sdists = [file for file in files if not file.tags]
        # A wheel's name has the normal form; what a source archive writes is nearer to a tag.
        version = (sdists or files)[0].version
        tag = recipe.tag_of(version)
        try:
            _TAG.validate_python(tag)
        except ValidationError:
            continue  # an epoch, for example: git has no such tag
        wheels = tuple(file.tags for file in files if file.tags)
        withdrawn = all(file.yanked for file in files)
        release = Release(version, tag, bool(sdists), wheels, withdrawn)
        offers.append(_Offer(order, release, tuple(files)))
    return offers


def _newest(offers: Sequence[_Offer]) -> _Offer | None:
    """Return the newest final release that is not withdrawn."""
    final = (one for one in offers if not (one.order.is_prerelease or one.release.yanked))
    return max(final, key=lambda one: one.order, default=None)


def _at(offers: Sequence[_Offer], tag: str) -> _Offer | None:
    """Return the release of a tag, yanked or not: it was asked for by name."""
    return next((offer for offer in offers if offer.release.tag == tag), None)


def _chosen(upstream: Upstream, recipe: ReleaseRecipe, offer: _Offer) -> File:
    """Return the file of a release that a pin names."""
    files = [file for file in offer.files if not file.yanked] or list(offer.files)
    # `.tar.gz` comes before `.zip`, which keeps fewer of a file's modes.
    sdists = sorted(
        (file for file in files if not file.tags),
        key=lambda file: (file.candidate.filename.endswith(".zip"), file.candidate.filename),
    )
    if sdists:
        return sdists[0]
    if not recipe.packages:
        raise SourceError(
            f"{upstream.name} {offer.release.tag}: there are only wheels, and"
            f" upstreams/{upstream.name}.toml does not say what the repository has of them",
            hint="add packages = […] to its table [release]: the wheel's top-level folders",
        )
    sized = all(file.size is not None for file in files)
    return min(
        files,
        key=lambda file: (
            file.tags != _PURE,
            file.size if sized and file.size is not None else 0,
            file.candidate.filename,
        ),
    )


def _source(recipe: ReleaseRecipe, file: File, sha256: str) -> ReleaseSource:
    """Return the source that names a file."""
    if not file.tags:
        return SdistSource(
            kind="sdist",
            distribution=recipe.distribution,
            version=file.version,
            sha256=sha256,
            root=recipe.root,
        )
    return WheelSource(
        kind="wheel",
        distribution=recipe.distribution,
        version=file.version,
        sha256=sha256,
        tags=file.tags,
        packages=recipe.packages,
        root=recipe.root if recipe.wheel_root is None else recipe.wheel_root,
    )


def _pin(pin: Pin, tag: str, version: str, source: ReleaseSource) -> Pin:
    """Return a pin at another release, with the same kinds of sources beside its file."""
    sources: list[SourceSpec] = [*_installed(pin, version), source]
    sources += [spec for spec in pin.sources if isinstance(spec, GitSource)]
    return Pin(upstream=pin.upstream, tag=tag, sources=tuple(sources))


def _installed(pin: Pin, version: str) -> Iterator[InstalledSource]:
    """Yield the pin's installed distributions, where they are of this release."""
    for spec in pin.sources:
        if isinstance(spec, InstalledSource):
            there = spec.model_copy(update={"version": version})
            if is_installed(there):
                yield there


def _advice(recipe: ReleaseRecipe, offers: Sequence[_Offer], tag: str) -> str:
    """Return the next step of somebody whose tag no release has."""
    if not offers:
        return HINT
    if tag == NEWEST:
        return f"name one by its tag; the last is {offers[-1].release.tag}"
    try:
        meant = Version(recipe.version_of(tag) or tag)
    except InvalidVersion:
        return f"tags look like {recipe.tag}; the last is {offers[-1].release.tag}"
    same = [offer.release.tag for offer in offers if offer.order == meant]
    if same:
        return f"write {same[0]}"
    near = [offer.release.tag for offer in offers if offer.order < meant][-1:]
    near += [offer.release.tag for offer in offers if offer.order > meant][:1]
    return (
        f"name {' or '.join(near)}, the nearest; or, for a tag without a release, add a pin"
        " with a git source to queue.toml"
    )


_TIMEOUT: Final = 120.0
_TAG_LINE: Final = re.compile(r"[0-9a-f]+\trefs/tags/(?P<tag>[A-Za-z0-9][A-Za-z0-9._+-]*)")


def release_tags(upstream: Upstream, source: GitSource, *, also: Collection[str] = ()) -> list[str]:
    """Return the tags of a repository that name final releases, the oldest release first."""
    return _in_order(_tags(upstream, source), also=also)


def _tags(upstream: Upstream, source: GitSource) -> list[str]:
    """Return the tags of a repository that a pin can name."""
    remote = source.remote or default_remote(upstream)
    with tempfile.TemporaryDirectory() as name:
        shown, folder = redact(remote), Path(name)
        remote_git(folder, remote, shown, "init", "--quiet", "--bare", timeout=_TIMEOUT)
        said = remote_git(
            folder, remote, shown, "ls-remote", "--tags", "--refs", REMOTE, timeout=_TIMEOUT
        )
    return [named["tag"] for row in said.splitlines() if (named := _TAG_LINE.fullmatch(row))]


def _in_order(tags: Sequence[str], *, also: Collection[str] = ()) -> list[str]:
    """Return those of some tags that name final releases, the oldest release first."""
    found: list[tuple[Version, str]] = []
    for tag in tags:
        try:
            version = Version(tag)
        except InvalidVersion:
            continue
        if tag in also or not version.is_prerelease:
            found.append((version, tag))
    return [tag for _, tag in sorted(found)]


def pin_from_git(pin: Pin, upstream: Upstream, source: GitSource, tag: str) -> Pin:
    """Return a pin at another tag whose only source is a git repository."""
    every = _tags(upstream, source)
    known = _in_order(every)
    wanted = known[-1] if tag == "newest" and known else tag
    if wanted not in every:
        raise SourceError(
            f"{pin.upstream} {tag}: no such release in"
            f" {redact(source.remote or default_remote(upstream))}",
            hint=f"the newest are {', '.join(known[-5:])}" if known else "it has no release tags",
        )
    return Pin(upstream=pin.upstream, tag=wanted, sources=(source,))
