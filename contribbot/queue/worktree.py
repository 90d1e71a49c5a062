"""`contribbot edit`: a disposable work tree that holds a patch as commits.

The tree is a git repository of its own. `git log` shows the patch's commits on top, those
of the patches that it depends on below them, the pin at the bottom; `refs/contribbot/base`
names the last commit that is not the patch's own. It is changed there with plain git, and
taken back by `contribbot refresh`, as often as one likes: the tree stays open until
`contribbot edit --abort` removes it. That asks only where something would be lost, so
after a refresh it just tidies up.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from pathlib import Path

from contribbot.errors import CommandError, QueueError, UsageError
from contribbot.queue.load import Queue, load_queue
from contribbot.queue.replay import Replay, close_replay, open_replay, taken
from contribbot.queue.standing import Standing, ground_of
from contribbot.queue.tree import Commit, State, Tree
from contribbot.queue.treemake import (
    being_carried,
    discard,
    find_tree,
    held,
    make_tree,
    not_open,
)
from contribbot.sources import Progress, Silent
from contribbot.workspace import run_folder

__all__ = [
    "Opened", "Replay", "abort", "close_replay", "find_tree", "losses", "moved_on",
    "open_replay", "open_tree", "taken",
]  # fmt: skip


@dataclass(frozen=True)
class Opened:
    """An open work tree.

    Attributes:
        path: Its folder.
        base: The commit below the patch's own.
        commits: The commits on top of it, oldest first.
        fresh: Whether it was opened just now.
        stale: What has changed in the queue since it was opened, in one line; or nothing.
    """

    path: Path
    base: str
    commits: tuple[Commit, ...]
    fresh: bool
    stale: str = ""


def open_tree(
    queue: Queue, name: str, *, at: Path | None = None, progress: Progress | None = None
) -> Opened:
    """Open the work tree of a patch, or find it open."""
    with held(queue, name) as place, run_folder() as scratch:
        # Whoever held the tree before may have changed the patch.
        queue = load_queue(queue.folder)
        patch = queue.patch(name)
        ground = ground_of(queue, name, scratch=scratch, progress=progress or Silent())
        with ground.store.exclusive():
            standing = ground.stand(name)
        tree = find_tree(queue, name)
        if tree is not None:
            if tree.state.kind == "replay":
                raise being_carried(tree)
            if at is not None and at.resolve() != tree.path:
                raise UsageError(
                    f"{name} is open in {tree.path} already",
                    hint=f"work there, or remove it: contribbot edit --abort {name}",
                )
            return _found(tree, standing, patch.digest)
        if standing.why:
            raise QueueError(
                f"{name} cannot be opened: {standing.why}",
                hint=f"`contribbot verify {name}` shows the three sides",
            )
        state = State(
            patch=name,
            kind="edit",
            base=standing.base,
            opened=patch.digest,
            known={patch.digest: standing.commits},
        )
        where = place if at is None else at.absolute()
        tree = make_tree(place, where, ground.store, tip=standing.tip, state=state)
        return Opened(tree.path, standing.base, tuple(tree.own()), fresh=True)


def _found(tree: Tree, standing: Standing, digest: str) -> Opened:
    """Describe a tree that is open already."""
    try:
        commits = tuple(tree.own())
    except UsageError:
        commits = ()  # refresh says what is wrong with it
    stale = moved_on(tree.state, standing, digest)
    return Opened(tree.path, tree.state.base, commits, fresh=False, stale=stale)


def moved_on(state: State, standing: Standing, digest: str) -> str:
    """Say what changed in the queue since a tree was opened or taken, or nothing."""
    if standing.base != state.base:
        return f"what {state.patch} stands on (its pin, or a patch below it) has changed since"
    if digest not in state.known:
        return f"the files of {state.patch} were changed since, by something else than refresh"
    return ""


def abort(queue: Queue, name: str, *, force: bool = False) -> tuple[str, ...]:
    """Remove the work tree of a patch, unless something would be lost."""
    with held(queue, name) as place:
        if not place.exists():
            raise not_open(queue, name)
        if not force or place.is_symlink():
            # Where it is elsewhere, something else may be there by now.
            tree = Tree.read(place.resolve())
            if not force and (lost := _told(queue, tree)):
                return lost
        discard(place)
        return ()


def _told(queue: Queue, tree: Tree) -> tuple[str, ...]:
    try:
        return losses(queue, tree)
    except CommandError as error:
        # The cache was emptied, and with it what the tree stands on; or somebody took it apart.
        return (f"what git cannot tell: {error.message}",)


def losses(queue: Queue, tree: Tree) -> tuple[str, ...]:
    """Return what of a tree is nowhere else, a line each."""
    found = []
    if waiting := tree.unfinished():
        found.append(f"an unfinished git {waiting}")
    pending = tree.pending()
    for what, paths in (("not committed", pending.changed), ("not in git", pending.untracked)):
        found += [f"{path} ({what})" for path in paths]
    state = tree.state
    kept = [state.base, *state.replayed]
    digests = {state.opened}
    if state.patch in queue.specs:
        with contextlib.suppress(QueueError):
            digests.add(queue.patch(state.patch).digest)
    for digest in digests:
        kept += state.known.get(digest, ())[-1:]
    # Also what is on other branches, or stashed.
    commits = tree.commits("HEAD", "--all", "--not", *kept)
    return (*found, *(f"commit {commit}" for commit in commits))
