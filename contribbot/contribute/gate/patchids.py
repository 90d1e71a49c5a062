"""Patch ids: what tells that two diffs are the same change, wherever they lie in a file."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from contribbot import process
from contribbot.errors import CommandError, CommandTimeoutError
from contribbot.git.repository import git_environment
from contribbot.model.patch import PatchFile


@dataclass(frozen=True)
class PatchIds:
    """What the changes of a patch are known by.

    Attributes:
        whole: Of all its commits taken together; empty where that is not known.
        commits: Of each commit.
    """

    whole: str
    commits: frozenset[str]


def patch_id(diff: bytes) -> str:
    """Return the patch id of a diff; empty where it has none."""
    start = 0 if diff.startswith(b"diff --git ") else diff.find(b"\ndiff --git ") + 1
    if not diff[start:].startswith(b"diff --git "):
        return ""
    try:
        said = process.run(
            ["git", "patch-id", "--stable"], env=git_environment(), stdin=diff[start:], timeout=30.0
        ).stdout
    except (CommandError, CommandTimeoutError):
        return ""
    return said.split(b" ")[0].decode("ascii", "replace").strip()


def patch_ids(series: bytes) -> tuple[str, ...]:
    """Return the patch ids of commits that stand one after the other, as in an mbox."""
    try:
        said = process.run(
            ["git", "patch-id", "--stable"], env=git_environment(), stdin=series, timeout=30.0
        ).stdout
    except (CommandError, CommandTimeoutError):
        return ()
    return tuple(row.split(" ")[0] for row in said.decode("ascii", "replace").splitlines())


def ids_of(files: Iterable[PatchFile], whole: bytes | None) -> PatchIds:
    """Return the patch ids of patch files."""
    each = [patch_id(file.content) for file in files]
    together = patch_id(whole) if whole is not None else each[0] if len(each) == 1 else ""
    return PatchIds(together, frozenset(one for one in each if one))
