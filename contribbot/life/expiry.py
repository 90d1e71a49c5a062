"""Telling whether the conditions of `expires_when` have come."""

from __future__ import annotations

import importlib.metadata

from packaging.requirements import InvalidRequirement, Requirement
from packaging.version import InvalidVersion, Version

from contribbot.model.patch import Expiry
from contribbot.model.pin import Pin, ReleaseRecipe
from contribbot.model.status import Due


def due(
    expiry: Expiry, against: Pin, merged: frozenset[str], *, releases: ReleaseRecipe | None = None
) -> Due:
    """Tell whether a condition has come."""
    if expiry.release is not None:
        return _release(expiry.release, against.tag, releases)
    if expiry.dependency is not None:
        return _dependency(expiry.dependency)
    reference = str(expiry.pull_request)
    condition = f"{reference} is merged"
    if reference in merged:
        return Due(condition=condition, come=True, why="the patch's history says so")
    return Due(condition=condition, come=None, why="only GitHub can tell; see its page")


def _release(release: str, tag: str, releases: ReleaseRecipe | None) -> Due:
    condition = f"release {release}"
    if tag == release:
        return Due(condition=condition, come=True, why="this is it")
    try:
        there, wanted = (
            Version((releases and releases.version_of(one)) or one) for one in (tag, release)
        )
    except InvalidVersion:
        return Due(condition=condition, come=None, why=f"{tag} and {release} are not both versions")
    come = there >= wanted
    return Due(
        condition=condition, come=come, why=f"{tag} is {'at or after' if come else 'before'} it"
    )


def _dependency(text: str) -> Due:
    try:
        wanted = Requirement(text)
    except InvalidRequirement as error:
        return Due(condition=text, come=None, why=f"no requirement that can be read: {error}")
    try:
        version = importlib.metadata.version(wanted.name)
    except importlib.metadata.PackageNotFoundError:
        return Due(condition=text, come=None, why=f"{wanted.name} is not installed here")
    come = wanted.specifier.contains(version, prereleases=True)
    return Due(condition=text, come=come, why=f"{wanted.name} {version} is installed here")
