"""Carrying commits to another base in a work tree, where a person resolves what conflicts.

`git cherry-pick` carries them, with `rerere` on: how a conflict was resolved is kept in
the user's cache folder, and the same conflict is resolved by itself the next time, in
whichever tree it comes up.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from contribbot.errors import CommandError, MachineError, QueueError, UsageError
from contribbot.model.patch import PatchFile
from contribbot.queue.load import Queue
from contribbot.queue.taking import take
from contribbot.queue.tree import State, Tree
from contribbot.queue.treemake import discard, find_tree, held, make_tree
from contribbot.store.repository import open_store
from contribbot.workspace import stores_folder

_REMEMBERED: Final = re.compile(
    r"^(?:Staged|Resolved) '(.+)' using previous resolution\.$", re.MULTILINE
)
#: Who carries them. The authors stay; nobody is asked for a message.
_AS_CONTRIBBOT: Final = {
    "GIT_COMMITTER_NAME": "contribbot",
    "GIT_COMMITTER_EMAIL": "contribbot@localhost",
    "GIT_EDITOR": "true",
}


@dataclass(frozen=True)
class Replay:
    """How far the commits of a patch are carried to another base.

    Attributes:
        path: The work tree.
        conflicted: Paths with a conflict that waits for a person.
        done: Whether all commits are on the new base, and `taken` can have them.
        skipped: Commits of which nothing was left, since the base has it.
        remembered: Paths whose conflict was resolved as it was once before.
    """

    path: Path
    conflicted: tuple[str, ...]
    done: bool
    skipped: tuple[str, ...] = ()
    remembered: tuple[str, ...] = ()


def open_replay(
    queue: Queue, name: str, *, base: str, commits: Sequence[str], at: Path | None = None
) -> Replay:
    """Carry commits to another base in a work tree, as far as they go without a conflict.

    Called again, it goes on: what a person has resolved and staged is committed, and the
    next commits are carried.
    """
    with held(queue, name) as place:
        tree = find_tree(queue, name)
        if tree is None:
            patch = queue.patch(name)
            state = State(
                patch=name, kind="replay", base=base, opened=patch.digest, replayed=tuple(commits)
            )
            store = open_store(stores_folder(), patch.upstream.name)
            where = place if at is None else at.absolute()
            tree = make_tree(place, where, store, tip=base, state=state)
        elif tree.state.kind != "replay":
            raise UsageError(
                f"{name} is open in {tree.path}",
                hint=f"take it back (contribbot refresh {name}) and remove it "
                f"(contribbot edit --abort {name}) first",
            )
        elif (tree.state.base, tree.state.replayed) != (base, tuple(commits)):
            raise UsageError(
                f"{tree.path}: {name} is being carried to {tree.state.base[:12]} there",
                hint=f"finish that, or remove it: contribbot edit --abort {name}",
            )
        return _carry(tree)


def _carry(tree: Tree) -> Replay:
    """Carry commits until a person is needed, or all are there."""
    said = ""
    if not tree.unfinished() and not _carried(tree):
        said = _pick(tree, *tree.state.replayed)
    seen = ""
    while tree.unfinished():
        pending = tree.pending()
        if pending.unmerged or pending.unstaged:
            return _replay(tree, pending.unmerged or pending.unstaged, said)
        picked = tree.resolve("CHERRY_PICK_HEAD")
        at = f"{tree.head()} {picked}"
        if at == seen:
            raise MachineError(
                f"{tree.path}: git cherry-pick does not go on: {said.strip().splitlines()[-1]}",
                hint="go on there by hand, with `git cherry-pick --continue`",
            )
        seen = at
        if pending.changed or not picked:
            said += _pick(tree, "--continue")
        else:
            # Nothing is left of it: the base has all of it.
            skipped = (*tree.state.skipped, picked)
            tree.save(tree.state.model_copy(update={"skipped": skipped}))
            said += _pick(tree, "--skip")
    return _replay(tree, (), said)


def _carried(tree: Tree) -> bool:
    """Say whether the commits were carried, so that nothing is to be started."""
    return bool(tree.own()) or len(tree.state.skipped) == len(tree.state.replayed)


def _pick(tree: Tree, *args: str) -> str:
    """Run `git cherry-pick`, and return what it said."""
    done = tree.git("cherry-pick", *args, env=_AS_CONTRIBBOT, accept=(0, 1, 128))
    said = (done.stderr + done.stdout).decode("utf-8", "replace")
    if done.returncode and not tree.unfinished():
        last = [row for row in said.splitlines() if row.strip()][-1:]
        raise MachineError(f"{tree.path}: git cherry-pick: {''.join(last) or 'it said nothing'}")
    return said


def _replay(tree: Tree, conflicted: tuple[str, ...], said: str) -> Replay:
    skipped = tree.commits("--no-walk=unsorted", *tree.state.skipped) if tree.state.skipped else []
    return Replay(
        path=tree.path,
        conflicted=conflicted,
        done=not conflicted,
        skipped=tuple(str(one) for one in skipped),
        remembered=tuple(dict.fromkeys(_REMEMBERED.findall(said))),
    )


def taken(queue: Queue, name: str) -> tuple[PatchFile, ...]:
    """Return the finished commits of a replay as patch files; the store holds them then."""
    with held(queue, name):
        tree = find_tree(queue, name)
        if tree is None or tree.state.kind != "replay":
            raise UsageError(
                f"{name} is not being carried to another base", hint="see `contribbot rebase`"
            )
        patch = queue.patch(name)
        store = open_store(stores_folder(), patch.upstream.name)
        with store.exclusive():
            done = take(tree, store, patch.files)
        if done.marked:
            raise QueueError(
                f"{tree.path}: the commit {done.marked[0]} adds the marks of a conflict (<<<<<<<)",
                hint="resolve it, and amend the commit",
            )
        # The tree goes when it is taken.
        left = [*done.left_out, *(["what is stashed"] if tree.resolve("refs/stash") else [])]
        if left:
            raise UsageError(
                f"{tree.path}: in no commit: {', '.join(left)}",
                hint="commit what belongs to the patch, and remove the rest or move it elsewhere",
            )
        return done.files


def close_replay(queue: Queue, name: str) -> bool:
    """Remove the tree of a replay with all that is in it; one that is edited stays.

    How a conflict was resolved is remembered, where all of it is staged.
    """
    with held(queue, name) as place:
        tree = find_tree(queue, name)
        if tree is None or tree.state.kind != "replay":
            return False
        # Not where the cache was emptied, and with it what the tree stands on.
        with contextlib.suppress(CommandError):
            if tree.unfinished() and not tree.pending().unmerged:
                tree.git("rerere")
        discard(place)
        return True
