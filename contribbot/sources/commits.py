"""The commits between two points of an upstream's history."""

from __future__ import annotations

import re
import tempfile
from pathlib import Path
from typing import Final

from pydantic import TypeAdapter, ValidationError

from contribbot.errors import SourceError, UsageError
from contribbot.model.base import Tag
from contribbot.model.pin import GitSource, Upstream
from contribbot.sources.base import default_remote
from contribbot.sources.redact import redact
from contribbot.sources.remote import REMOTE, remote_git

_ID: Final = re.compile(r"[0-9a-f]{40}")
_TAG: Final = TypeAdapter[str](Tag)
_TAGS: Final = "refs/tags/"
#: How the two ends are called here.
_START: Final = "refs/points/start"
_END: Final = "refs/points/end"
_HINT: Final = "name a tag, or a commit by its 40 digits"
#: Commits alone, no trees and no files; of a large repository that takes minutes all the same.
_TIMEOUT: Final = 1800.0


def commits_between(upstream: Upstream, source: GitSource, start: str, end: str) -> list[str]:
    """Return the commits of the main line from one point to another, its ends too."""
    remote = source.remote or default_remote(upstream)

    def git(*args: str) -> str:
        return remote_git(folder, remote, redact(remote), *args, timeout=_TIMEOUT)

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        git("init", "--quiet", "--bare")
        refs = [_ref(point) for point in (start, end)]
        tags = [ref for ref in refs if ref.startswith(_TAGS)]
        known = git("ls-remote", REMOTE, *tags).split() if tags else []
        for tag in tags:
            if tag not in known:
                raise SourceError(f"{redact(remote)}: no tag {tag.removeprefix(_TAGS)}", hint=_HINT)
        wanted = [f"{ref}:{point}" for ref, point in zip(refs, (_START, _END), strict=True)]
        git("fetch", "--quiet", "--filter=tree:0", "--no-tags", REMOTE, *wanted)
        first = git("rev-parse", f"{_START}^{{commit}}").strip()
        later = git("rev-list", "--first-parent", "--reverse", f"{_START}..{_END}").split()
        if not later:
            raise out_of_order(start, end)
        if git("rev-list", "--max-count=1", f"{_END}..{_START}").strip():
            try:
                base = git("merge-base", _START, _END).strip()
            except SourceError:  # they have nothing in common
                base = ""
            raise _parted(start, end, base)
    return [first, *later]


def _ref(point: str) -> str:
    """Return what to fetch for an end that a user named."""
    if _ID.fullmatch(point):
        return point
    try:
        return _TAGS + _TAG.validate_python(point)
    except ValidationError as error:
        raise UsageError(f"{point}: neither a tag nor a commit", hint=_HINT) from error


def out_of_order(start: str, end: str) -> UsageError:
    """Return the error for ends of which the second does not come after the first."""
    if start == end:
        return UsageError(f"--from and --to are both {start}", hint="name two ends")
    return UsageError(f"{end} does not come after {start}", hint="exchange --from and --to")


def _parted(start: str, end: str, base: str) -> UsageError:
    """Return the error for ends on two branches, as releases with branches of their own are."""
    return UsageError(
        f"{end} does not come after {start}: they are on two branches of the history",
        hint=f"look from where they part: --from {base}" if base else "name two ends of one",
    )
