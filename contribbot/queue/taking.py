"""Taking the commits of a work tree as patch files."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from contribbot.errors import QueueError, UsageError
from contribbot.model.patch import PatchFile
from contribbot.queue.tree import Commit, Tree
from contribbot.store.formatpatch import format_commits
from contribbot.store.patchtext import check_form
from contribbot.store.repository import Store

#: What git writes around the sides of a conflict, as a line that a patch adds.
_MARKER: Final = re.compile(rb"^\+(?:<{7} |>{7} )", re.MULTILINE)
_SHOWN: Final = 5


@dataclass(frozen=True)
class Taken:
    """The finished commits of a tree.

    Attributes:
        commits: The commits, oldest first; the store holds them.
        files: A patch file for each.
        left_out: Paths that are in no commit because git does not follow them.
    """

    commits: tuple[Commit, ...]
    files: tuple[PatchFile, ...]
    left_out: tuple[str, ...]


def take(tree: Tree, store: Store) -> Taken:
    """Read the commits between the base and what is checked out.

    Call it inside `store.exclusive()`.

    Args:
        tree: The tree.
        store: The store that it stands on; gets the commits.

    Raises:
        UsageError: Something in the tree is not finished, or there is no commit.
        QueueError: A commit cannot be a patch file: a merge, an empty one, one that
            changes a submodule, one with the marks of a conflict in it.
    """
    where = tree.path
    if waiting := tree.unfinished():
        end = "`git bisect reset`" if waiting == "bisect" else f"`git {waiting} --continue`"
        drop = "" if waiting == "bisect" else f", or drop it with `git {waiting} --abort`"
        raise UsageError(
            f"{where}: a git {waiting} is not finished", hint=f"finish it with {end}{drop}"
        )
    pending = tree.pending()
    if pending.changed:
        raise UsageError(
            f"{where}: not committed: {_some(pending.changed)}",
            hint="`git commit -a --amend` puts it into the last commit, `git commit -a` into a "
            "new one, `git stash` aside",
        )
    commits = tree.own()
    if not commits:
        raise UsageError(
            f"{where}: no commit is left of the patch",
            hint="`git reflog` shows where they were; a patch that is no longer wanted is taken "
            "out of `order` in queue.toml",
        )
    tree.lend(store, commits[-1].id)
    files = format_commits(store, tree.state.base, commits[-1].id)
    for file, commit in zip(files, commits, strict=True):
        if _MARKER.search(file.content):
            raise QueueError(
                f"{where}: the commit {commit} adds the marks of a conflict (<<<<<<<)",
                hint="resolve it, and amend the commit",
            )
        check_form(file.name, file.content)
    return Taken(tuple(commits), files, pending.untracked)


def _some(paths: tuple[str, ...]) -> str:
    """Name the first paths of many."""
    more = f" and {len(paths) - _SHOWN} more" if len(paths) > _SHOWN else ""
    return ", ".join(paths[:_SHOWN]) + more
