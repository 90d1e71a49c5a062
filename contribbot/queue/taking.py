"""Taking the commits of a work tree as patch files."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from contribbot.errors import UsageError
from contribbot.model.patch import PatchFile
from contribbot.queue.tree import Commit, Tree
from contribbot.store.formatpatch import format_commits
from contribbot.store.patchtext import check_form
from contribbot.store.repository import Store

#: What git writes around the sides of a conflict in such a tree, one after the other, as
#: lines that a patch adds. Any of them by itself is a line like others.
_MARKS: Final = (b"+<<<<<<< ", b"+||||||| ", b"+=======", b"+>>>>>>> ")
_SHOWN: Final = 5


@dataclass(frozen=True)
class Taken:
    """The finished commits of a tree.

    Attributes:
        commits: The commits, oldest first; the store holds them.
        files: A patch file for each.
        left_out: Paths that are in no commit because git does not follow them.
        marked: Commits that add the marks of a conflict which the patch did not have before.
    """

    commits: tuple[Commit, ...]
    files: tuple[PatchFile, ...]
    left_out: tuple[str, ...]
    marked: tuple[Commit, ...]


def take(tree: Tree, store: Store, before: Sequence[PatchFile]) -> Taken:
    """Read the commits between the base and what is checked out.

    Call it inside `store.exclusive()`.
    """
    where, carried = tree.path, tree.state.kind == "replay"
    if waiting := tree.unfinished():
        end = "`git bisect reset`" if waiting == "bisect" else f"`git {waiting} --continue`"
        drop = "" if waiting == "bisect" else f", or drop it with `git {waiting} --abort`"
        if carried and waiting == "cherry-pick":
            drop = ", or, where nothing is left of the commit, with `git cherry-pick --skip`"
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
            hint="carry it again: contribbot rebase --to TAG --resolve; a patch of which nothing "
            "is wanted there is taken out of `order` in queue.toml, after rebase --abort"
            if carried
            else "`git reflog` shows where they were; a patch that is no longer wanted is taken "
            "out of `order` in queue.toml",
        )
    tree.lend(store, commits[-1].id)
    files = format_commits(store, tree.state.base, commits[-1].id)
    own = {one for file in before for one in _marks(file.content)}
    for file in files:
        check_form(file.name, file.content)
    pairs = zip(files, commits, strict=True)
    marked = tuple(commit for file, commit in pairs if _marks(file.content) - own)
    return Taken(tuple(commits), files, pending.untracked, marked)


def _marks(content: bytes) -> set[tuple[bytes, ...]]:
    """Return the marks of each whole conflict that a patch file adds to a file."""
    found: set[tuple[bytes, ...]] = set()
    seen: tuple[bytes, ...] = ()
    for row in content.split(b"\n"):
        if row.startswith(b"diff --git "):
            seen = ()
        elif row.startswith(_MARKS[len(seen)]):
            seen = (*seen, row)
        if len(seen) == len(_MARKS):
            found.add(seen)
            seen = ()
    return found


def _some(paths: tuple[str, ...]) -> str:
    """Name the first paths of many."""
    more = f" and {len(paths) - _SHOWN} more" if len(paths) > _SHOWN else ""
    return ", ".join(paths[:_SHOWN]) + more
