"""The commits between two points of an upstream's history."""

from __future__ import annotations

import re
import tempfile
from pathlib import Path
from typing import Final

from contribbot.errors import SourceError
from contribbot.model.pin import GitSource, Upstream
from contribbot.sources.base import default_remote
from contribbot.sources.redact import redact
from contribbot.sources.remote import REMOTE, remote_git

_ID: Final = re.compile(r"[0-9a-f]{40}")
#: Commits alone, no trees and no files; of a large repository that takes minutes all the same.
_TIMEOUT: Final = 1800.0


def commits_between(upstream: Upstream, source: GitSource, start: str, end: str) -> list[str]:
    """Return the commits of the main line from one point to another, its ends too.

    Args:
        upstream: The upstream.
        source: Its repository.
        start: A tag or commit.
        end: A later one.

    Returns:
        Commit ids, oldest first; empty where `start` does not come before `end`.

    Raises:
        SourceError: The repository cannot be reached, or knows no such tag or commit.
    """
    remote = source.remote or default_remote(upstream)

    def git(*args: str) -> str:
        return remote_git(folder, remote, redact(remote), *args, timeout=_TIMEOUT)

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        git("init", "--quiet", "--bare")
        wanted = [
            f"{point if _ID.fullmatch(point) else f'refs/tags/{point}'}:refs/points/{place}"
            for place, point in (("start", start), ("end", end))
        ]
        git("fetch", "--quiet", "--filter=tree:0", "--no-tags", REMOTE, *wanted)
        first = git("rev-parse", "refs/points/start^{commit}").strip()
        try:
            git("merge-base", "--is-ancestor", "refs/points/start", "refs/points/end")
        except SourceError:
            return []
        later = git(
            "rev-list", "--first-parent", "--reverse", "refs/points/start..refs/points/end"
        ).split()
    return [first, *later]
