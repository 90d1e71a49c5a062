"""List an upstream's releases, and make a pin of another release, the same on any machine."""

from __future__ import annotations

import contextlib
import difflib
import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from packaging.version import InvalidVersion, Version
from pydantic import TypeAdapter, ValidationError

from contribbot.errors import SourceError, UsageError
from contribbot.git.pins.archive import is_installed
from contribbot.git.pins.index import (
    HINT,
    File,
    PackagePlace,
    describe,
    read_pip_config,
    read_places,
)
from contribbot.git.pins.remote import Remote, elsewhere
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

#: Instead of a tag: the newest release that is neither a pre-release nor withdrawn.
_NEWEST: Final = "newest"
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
    def yanked(self) -> bool:
        """Whether the project has withdrawn all files of the release."""
        return all(file.yanked for file in self.files)


def releases(pin: Pin, upstream: Upstream, *, also: Collection[str] = ()) -> list[Release]:
    """Return an upstream's final releases on package indexes, the oldest first."""
    recipe, known, places = _known(upstream)
    if not known:
        raise SourceError(
            f"{pin.upstream}: no release of {recipe.distribution} found: {describe(places)}",
            hint=HINT,
        )
    return [
        release
        for release in known
        if release.tag in also or not (release.order.is_prerelease or release.yanked)
    ]


def resolve(pin: Pin, upstream: Upstream, tag: str) -> Pin:
    """Return a pin like this pin, at another tag of the same upstream."""
    return pin if tag == pin.tag else resolve_file(pin, upstream, tag)[0]


def resolve_file(pin: Pin, upstream: Upstream, tag: str) -> tuple[Pin, File | None]:
    """Return a pin at another tag, and its source archive, or else its best wheel."""
    recipe, known, places = _known(upstream)
    final = [item for item in known if not (item.order.is_prerelease or item.yanked)]
    # A release that is asked for by name may be withdrawn.
    named = [release for release in known if release.tag in {tag, recipe.tag_of(tag)}]
    for release in final[-1:] if tag == _NEWEST else named:
        if release.tag == pin.tag:
            return pin, None
        file = _chosen(upstream, recipe, release)
        sources: list[SourceSpec] = [
            *_installed(pin, str(release.order)),
            _source(recipe, file),
            *(spec for spec in pin.sources if isinstance(spec, GitSource)),
        ]
        return Pin(upstream=pin.upstream, tag=release.tag, sources=tuple(sources)), file
    advice, name = _advice(known, tag), recipe.distribution
    missing = f"no such release of {name}"
    if known:
        raise UsageError(f"{upstream.name} {tag}: {missing}", hint=advice)
    raise SourceError(f"{upstream.name} {tag}: {missing}: {describe(places)}", hint=advice)


def _known(upstream: Upstream) -> tuple[ReleaseRecipe, list[Release], list[PackagePlace]]:
    """Return the upstream's recipe, the known releases, oldest first, and the places read."""
    recipe = upstream.release
    if recipe is None:
        raise SourceError(
            f"{upstream.name}: upstreams/{upstream.name}.toml does not say where its releases are",
            hint='add a table [release] with distribution = "…", its name on the package index'
            " (docs/upstreams.md), or add the other pin to queue.toml yourself",
        )
    places = list(read_places(recipe.distribution, read_pip_config()))
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
    sizes = {file.filename: file.size for file in files if file.size is not None}
    if len(sizes) < len(files):
        # Another machine may know other sizes: choose without sizes, the same anywhere.
        sizes = {}

    def preference(file: File) -> tuple[bool, bool, int, str]:
        # A wheel for Windows may hold other line ends than the repository (torch 2.15.0 does).
        windows = file.tags.rpartition("-")[2].startswith("win")
        return file.tags != _PURE, windows, sizes.get(file.filename, 0), file.filename

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
    """Yield the pin's sources of kind `installed`, if this Python has the version installed."""
    for spec in pin.sources:
        if isinstance(spec, InstalledSource):
            of_release = spec.model_copy(update={"version": version})
            if is_installed(of_release):
                yield of_release


def _advice(known: Sequence[Release], tag: str) -> str:
    """Return a hint for a person who named a tag without a release."""
    if not known:
        return HINT
    tags = [release.tag for release in known]
    near = difflib.get_close_matches(tag, tags, n=2) or tags[-1:]
    return (
        f"name {' or '.join(near)}; or, for a tag without a release, add a pin with a git source"
        " to queue.toml"
    )


_TAG_REF: Final = re.compile(r"refs/tags/(?P<tag>[A-Za-z0-9][A-Za-z0-9._+-]*)")


def release_tags(upstream: Upstream, source: GitSource, *, also: Collection[str] = ()) -> list[str]:
    """Return a repository's tags of final releases, the oldest release first."""
    with elsewhere(upstream, source) as remote:
        return _final(_tags(remote), also)


def _tags(remote: Remote) -> list[str]:
    """Return a repository's tags whose names a pin can have."""
    return [
        match["tag"] for ref in remote.refs("refs/tags/*") if (match := _TAG_REF.fullmatch(ref))
    ]


def _final(tags: Sequence[str], also: Collection[str] = ()) -> list[str]:
    """Return, of some tags, those of final releases, the oldest release first."""
    versions: dict[str, Version] = {}
    for tag in tags:
        with contextlib.suppress(InvalidVersion):
            versions[tag] = Version(tag)
    final = {tag for tag, version in versions.items() if tag in also or not version.is_prerelease}
    return sorted(final, key=lambda tag: (versions[tag], tag))


def pin_from_git(pin: Pin, upstream: Upstream, source: GitSource, tag: str) -> Pin:
    """Return a pin at another tag whose only source is a git repository."""
    with elsewhere(upstream, source) as remote:
        tags = _tags(remote)
    known = _final(tags)
    wanted = known[-1] if tag == _NEWEST and known else tag
    if wanted not in tags:
        raise UsageError(
            f"{pin.upstream} {tag}: no such release in {remote.shown}",
            hint=f"the newest are {', '.join(known[-5:])}" if known else "it has no release tags",
        )
    return Pin(upstream=pin.upstream, tag=wanted, sources=(source,))
