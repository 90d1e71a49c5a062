"""The releases of an upstream that only its git repository tells."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Final

from packaging.version import InvalidVersion, Version

from contribbot.errors import SourceError
from contribbot.model.pin import GitSource, Pin, Upstream
from contribbot.sources.base import default_remote
from contribbot.sources.redact import redact
from contribbot.sources.remote import REMOTE, remote_git

_TIMEOUT: Final = 120.0
_TAG: Final = re.compile(r"[0-9a-f]+\trefs/tags/(?P<tag>[A-Za-z0-9][A-Za-z0-9._+-]*)")


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
    return [named["tag"] for row in said.splitlines() if (named := _TAG.fullmatch(row))]


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
            f"{pin.upstream} {tag}: no such release in {redact(_shown(upstream, source))}",
            hint=f"the newest are {', '.join(known[-5:])}" if known else "it has no release tags",
        )
    return Pin(upstream=pin.upstream, tag=wanted, sources=(source,))


def _shown(upstream: Upstream, source: GitSource) -> str:
    return source.remote or default_remote(upstream)
