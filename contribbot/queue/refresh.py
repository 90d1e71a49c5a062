"""`contribbot refresh`: the commits of a work tree become the patch's files again.

Taken is what is between the base and `HEAD`. A commit that is as it was keeps its file's
bytes, whichever program wrote them. What must be put right in the tree first (changes that
are not committed, a rebase that is not finished, a merge, …) is an error; what somebody
may want all the same is refused, with the reason, unless it is forced.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from pydantic import TypeAdapter, ValidationError

from contribbot.errors import MachineError, QueueError, UsageError
from contribbot.files import run_folder
from contribbot.git.patch_format import changes, keep_unchanged
from contribbot.git.repository import Store
from contribbot.git.source import Progress, Silent
from contribbot.model.base import TreePath
from contribbot.model.patch import Patch, PatchFile, digest_of
from contribbot.queue import history
from contribbot.queue.load import Queue, load_queue, no_such_patch
from contribbot.queue.stack import Ground, Standing, ground_of
from contribbot.queue.toml_edit import set_patch
from contribbot.queue.transaction import transaction
from contribbot.queue.worktree import (
    Taken,
    Tree,
    being_carried,
    find_tree,
    held,
    moved_on,
    not_open,
    take,
)

log: Final = logging.getLogger(__name__)
_TREE_PATH: Final[TypeAdapter[str]] = TypeAdapter(TreePath)


@dataclass(frozen=True)
class Broken:
    """A patch that applied on top of this one, and would not any more.

    Attributes:
        patch: The patch.
        why: Which hunk of which file, in one line.
    """

    patch: str
    why: str


@dataclass(frozen=True)
class Refreshed:
    """What came of a refresh.

    Attributes:
        changed: Whether the patch is another now.
        version: The number of the version that was recorded; None: none was.
        files: The patch files as they are now, or would be.
        added: Paths that were added to `files` of its patch.toml.
        removed: Paths that were taken out of it.
        broken: Patches that depend on it and no longer apply.
        refused: Why nothing was written, one line each; empty unless a person must decide.
        left_out: Paths in the tree that are in no commit, since git does not follow them.
    """

    changed: bool
    version: int | None = None
    files: tuple[str, ...] = ()
    added: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    broken: tuple[Broken, ...] = ()
    refused: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()


def refresh(
    queue: Queue,
    name: str,
    *,
    force: bool = False,
    why: str = "refresh",
    progress: Progress | None = None,
) -> Refreshed:
    """Take the commits of a patch's work tree back into the queue."""
    if name not in queue.specs:
        raise no_such_patch(name, queue.specs)
    with held(queue, name), run_folder() as scratch:
        # Whoever held the tree before may have changed the patch.
        queue = load_queue(queue.folder)
        tree = find_tree(queue, name)
        if tree is None:
            raise not_open(queue, name)
        if tree.state.kind == "replay":
            raise being_carried(tree)
        patch = queue.patch(name)
        # Also brings back the objects below the tree where the cache was emptied.
        ground = ground_of(queue, name, scratch=scratch, progress=progress or Silent())
        with ground.store.exclusive():
            new = _judge(ground, tree, patch)
        commits = tuple(one.id for one in new.taken.commits)
        if new.files == patch.files:
            _know(tree, patch.digest, commits)
            return Refreshed(changed=False, files=_names(new.files), left_out=new.taken.left_out)
        refused = new.refused if not force else ()
        outcome = Refreshed(
            changed=not refused,
            files=_names(new.files),
            added=tuple(path for path in new.paths if path not in patch.spec.files),
            removed=tuple(path for path in patch.spec.files if path not in new.paths),
            broken=new.broken,
            refused=refused,
            left_out=new.taken.left_out,
        )
        if refused:
            return outcome
        # Before the queue's files: killed in between, the tree knows what the queue has.
        _know(tree, digest_of(new.files), commits)
        version = _write(queue, patch, new, why=why)
        return Refreshed(**{**vars(outcome), "version": version})


@dataclass(frozen=True)
class _New:
    """What the patch would be."""

    taken: Taken
    files: tuple[PatchFile, ...]
    paths: tuple[str, ...]
    broken: tuple[Broken, ...]
    refused: tuple[str, ...]


def _judge(ground: Ground, tree: Tree, patch: Patch) -> _New:
    """Work out what the patch would be, and what speaks against it."""
    # First what the tree stands on: the store holds it again where the cache was emptied.
    before = ground.stand(patch.name)
    taken = take(tree, ground.store, patch.files)
    old = tree.state.known.get(patch.digest, before.commits)
    files = _kept(ground.store, patch, old, taken)
    after = ground.with_files(patch.name, files)
    standing = after.stand(patch.name)
    stale = moved_on(tree.state, before, patch.digest)
    if standing.why:
        raise QueueError(
            f"{tree.path}: its commits do not fit the queue as it is now: {standing.why}",
            hint="save them (`git format-patch refs/contribbot/base`), remove the tree, open it "
            "anew, and `git am -3` them there",
        )
    if not stale and ground.store.tree_of(standing.tip) != ground.store.tree_of(
        taken.commits[-1].id
    ):
        raise MachineError(
            f"{tree.path}: as patch files, its commits would give another tree",
            hint="this is a fault of contribbot; please report it, with the patch",
        )
    broken = _broken(ground, after, patch.name)
    refused = [f"{one.patch} depends on it, and would not apply any more" for one in broken]
    refused += [
        f"the commit {one} adds the marks of a conflict, as git leaves them (<<<<<<<)"
        for one in taken.marked
    ]
    if stale and files != patch.files:
        refused.insert(0, stale)
    paths = _touched(ground.store, patch, standing)
    return _New(taken, files, paths, broken, tuple(refused))


def _kept(store: Store, patch: Patch, old: Sequence[str], taken: Taken) -> tuple[PatchFile, ...]:
    """Keep the bytes of each file whose commit is as it was.

    That a commit below it got another message or date gives it another id, and leaves
    it as it was all the same.
    """
    new = [one.id for one in taken.commits]
    same = [
        before if before == after or _facts(store, before) == _facts(store, after) else after
        for before, after in zip(old, new, strict=False)
    ]
    return keep_unchanged(patch.files, old, taken.files, [*same, *new[len(same) :]])


def _facts(store: Store, commit: str) -> bytes:
    """Return what a patch file says of a commit: author, message, and the trees around it."""
    said = store.git(
        "show", "-s", "--date=raw", "--encoding=UTF-8", "--format=%T%n%an%n%ae%n%ad%n%B", commit
    ).stdout
    return store.tree_of(f"{commit}^").encode() + said


def _touched(store: Store, patch: Patch, standing: Standing) -> tuple[str, ...]:
    """Return the paths that the patch changes: in the order of its patch.toml, new ones last."""
    there = {one.path for one in changes(store, standing.base, standing.tip)}
    if not there:
        raise UsageError(
            f"{patch.name}: its commits take back what they do: nothing is changed",
            hint="a patch that is no longer wanted is taken out of `order` in queue.toml",
        )
    for path in sorted(there):
        try:
            _TREE_PATH.validate_python(path)
        except ValidationError as error:
            raise QueueError(
                f"{patch.name}: the path {path!a} cannot stand in `files` of patch.toml",
                hint="name the file so that it can be printed, without a backslash",
            ) from error
    known = [path for path in patch.spec.files if path in there]
    return (*known, *sorted(there - set(known)))


def _broken(before: Ground, after: Ground, name: str) -> tuple[Broken, ...]:
    """Return the patches above this one that apply before the change and not after it."""
    queue = before.queue
    found = []
    for other in queue.specs:
        if name not in queue.below(other):
            continue
        why = after.stand(other).why
        if why and not before.stand(other).why:
            found.append(Broken(other, why))
    return tuple(found)


def _write(queue: Queue, patch: Patch, new: _New, *, why: str) -> int | None:
    """Write the new files and what patch.toml says of them, and record the version."""
    folder = f"patches/{patch.name}"
    with transaction(queue.folder) as changing:
        there = load_queue(queue.folder).patch(patch.name)
        if there.digest != patch.digest or there.spec != patch.spec:
            raise MachineError(
                f"{patch.folder}: changed by somebody else just now; nothing was written",
                hint="run it again",
            )
        names = {file.name for file in new.files}
        for file in patch.files:
            if file.name not in names:
                changing.delete(f"{folder}/{file.name}")
        for file in new.files:
            changing.write(f"{folder}/{file.name}", file.content)
        if set(new.paths) != set(patch.spec.files):
            stated = (patch.folder / "patch.toml").read_bytes()
            changing.write(f"{folder}/patch.toml", set_patch(stated, files=new.paths))
        below = history.digests(history.below_of(queue, patch.name))
        for files, what in ((patch.files, f"before {why}"), (new.files, why)):
            number = history.record(changing, patch.name, files, patch.pin, why=what, below=below)
        return number


def _know(tree: Tree, digest: str, commits: tuple[str, ...]) -> None:
    """Remember which commits of the tree stand for the patch as it is in the queue."""
    if tree.state.known.get(digest) != commits:
        known = {**tree.state.known, digest: commits}
        tree.save(tree.state.model_copy(update={"known": known}))


def _names(files: Sequence[PatchFile]) -> tuple[str, ...]:
    return tuple(file.name for file in files)
