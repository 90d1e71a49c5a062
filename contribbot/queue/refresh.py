"""`contribbot refresh`: write a work tree's commits as patch files; merge dependent patches."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from typing import Final, Literal

from pydantic import TypeAdapter, ValidationError

from contribbot.errors import MachineError, QueueError, UsageError
from contribbot.git.merge import RebaseResult
from contribbot.git.patch_format import changes, keep_unchanged
from contribbot.git.pins import Progress
from contribbot.git.repository import Store
from contribbot.model.base import Model, TreePath
from contribbot.model.patch import Patch, PatchFile, digest_of
from contribbot.queue import history, worktree
from contribbot.queue.load import Queue, load_queue
from contribbot.queue.stack import PatchStack, carry, fetch_pin
from contribbot.queue.toml_edit import set_patch
from contribbot.queue.transaction import Transaction, transaction
from contribbot.queue.worktree import Drift, WorkTree, find_tree, tree_lock

_TREE_PATH: Final = TypeAdapter[str](TreePath)
_SHOW: Final = (
    "show --date=raw --encoding=UTF-8 --format=%an%n%ae%n%ad%n%B -p --binary --no-color"
    " --no-ext-diff --no-renames"
)


class BrokenPatch(Model):
    """A dependent patch that a refresh would break, and the hunk that would not fit."""

    patch: str
    why: str


class Objection(Model):
    """A reason that stops a refresh; `subject`: the commit or patch that is the reason."""

    code: Drift | Literal["marks", "conflict"]
    subject: str = ""


class Refreshed(Model):
    """The JSON document of `refresh`; if `refused` has an objection, nothing was written."""

    patch: str
    changed: bool
    version: int | None = None
    patch_files: tuple[str, ...] = ()
    #: The paths that were added to and removed from `files` in patch.toml.
    files_added: tuple[str, ...] = ()
    files_removed: tuple[str, ...] = ()
    broken: tuple[BrokenPatch, ...] = ()
    refused: tuple[Objection, ...] = ()
    #: Untracked paths in the work tree.
    left_out: tuple[str, ...] = ()
    #: Paths with uncommitted changes, which were added to the last commit.
    amended: tuple[str, ...] = ()
    #: Set by `undo` only: the version that was restored, and the patch's open work tree.
    restored: int | None = None
    open_tree: str = ""
    #: Dependent patches whose files were merged onto the new state.
    carried: tuple[str, ...] = ()
    #: The work tree with the conflict of a dependent patch, or empty.
    resolve: str = ""


def refresh(queue: Queue, name: str, *, force: bool = False, progress: Progress) -> Refreshed:
    """Write the commits of a patch's work tree into the queue, and merge dependent patches."""
    queue.require(name)
    tree = find_tree(queue, name)
    if tree is not None and tree.state.lower:
        # A refresh of the patch `lower` opened this tree for a conflict: repeat that refresh.
        return refresh(queue, tree.state.lower, force=force, progress=progress)
    with tree_lock(queue, name):
        # Another process may have changed the patch before this process got the lock.
        queue = load_queue(queue.folder)
        tree = find_tree(queue, name)
        if tree is None or name not in queue.specs:
            raise worktree.not_open_error(queue, name)
        if tree.state.replayed:
            raise worktree.replay_error(tree)
        # This also restores a pin that is missing because the cache was emptied.
        fetched = fetch_pin(queue, queue.pin_of(name), progress=progress)
        stack = PatchStack(queue, fetched)
        files, refused, amended = _judge(stack, tree)
        left_out = tuple(map(worktree.printable, tree.pending().untracked))
        # Noted before the queue is written: after a kill in between, the tree shows no drift.
        tree.remember(digest_of(files))
        done = write_patches(stack, name, files, refused=refused, force=force)
        if not done.refused:
            tree.mark_saved()
        return done.model_copy(update={"left_out": left_out, "amended": amended})


def _judge(
    stack: PatchStack, tree: WorkTree
) -> tuple[tuple[PatchFile, ...], list[Objection], tuple[str, ...]]:
    """Return a work tree's commits as patch files, the objections, and the amended paths."""
    queue, store, name = stack.queue, stack.fetched.store, tree.state.key
    with store.exclusive():
        # This also writes the tree's base into the store again, if the cache was emptied.
        before = stack.apply(name)
        amended = tuple(map(worktree.printable, tree.commit_all()))
        saved = worktree.read_commits(tree, store, queue)
        # A commit that is unchanged but for its id keeps its old patch file.
        new = [commit.commit for commit in saved.commits]
        for at, (was, now) in enumerate(zip(before.commits, new, strict=False)):
            new[at] = was if was == now or _facts(store, was) == _facts(store, now) else now
        files = keep_unchanged(queue.patch(name).files, before.commits, saved.files, new)
        after = stack.with_files({name: files}).apply(name)
        if after.why:
            raise QueueError(
                f"{tree.path}: its commits do not fit the queue as it is now: {after.why}",
                hint="save them (`git format-patch refs/contribbot/base`), remove the tree, "
                "open it anew, and `git am -3` them there",
            )
        drift = worktree.drift_of(tree.state, queue, before)
        if not drift and store.tree_of(after.commit) != store.tree_of(saved.commits[-1].commit):
            raise MachineError(
                f"{tree.path}: as patch files, its commits would give another tree",
                hint="this is a fault of contribbot; please report it, with the patch",
            )
    refused = [Objection(code=drift)] if drift else []
    refused += [Objection(code="marks", subject=str(commit)) for commit in saved.marked]
    return files, refused, amended


def _facts(store: Store, commit: str) -> bytes:
    """Return a commit's author, date, message and diff: if equal, the commit is unchanged."""
    return re.sub(rb"(?m)^index .*\n", b"", store.git(*_SHOW.split(), commit).stdout)


def declared_paths(
    name: str, store: Store, base: str, tip: str, before: Sequence[str] = ()
) -> tuple[str, ...]:
    """Return the paths that differ between two commits, in the order for `files` in patch.toml."""
    paths = {change.path for change in changes(store, base, tip)}
    if not paths:
        raise UsageError(
            f"{name}: its commits take back what they do: nothing is changed",
            hint=f"to take the patch out of the queue: contribbot queue retire {name} --why WHY",
        )
    for path in sorted(paths):
        try:
            _TREE_PATH.validate_python(path)
        except ValidationError as error:
            raise QueueError(
                f"{name}: the path {path!a} cannot stand in `files` of patch.toml",
                hint="name the file so that it can be printed, without a backslash",
            ) from error
    known = [path for path in before if path in paths]
    return (*known, *sorted(paths.difference(known)))


def write_patches(
    stack: PatchStack,
    key: str,
    files: tuple[PatchFile, ...],
    *,
    why: str = "refresh",
    refused: Sequence[Objection] = (),
    force: bool = False,
    resolve: bool = True,
) -> Refreshed:
    """Write files of the patch `key`, if they are new, and merge the patches that depend on it."""
    queue, store = stack.queue, stack.fetched.store
    own = tuple(file.name for file in files)
    if files == queue.patch(key).files:
        return Refreshed(patch=key, changed=False, patch_files=own)
    above = _carry_above(stack, key, files)
    carried = {name: moved.files for name, moved in above.items() if moved.files}
    conflicts = {name: moved for name, moved in above.items() if not moved.files}
    new = {key: files, **carried}
    after = stack.with_files(new)
    with store.exclusive():
        series = {name: after.apply(name) for name in new}
    paths = {
        name: declared_paths(name, store, ends.base, ends.commit, queue.specs[name].files)
        for name, ends in series.items()
    }
    stated = queue.patch(key).paths
    done = Refreshed(
        patch=key,
        changed=False,
        patch_files=own,
        files_added=tuple(
            path for path in paths[key] if queue.specs[key].files and path not in stated
        ),
        files_removed=tuple(path for path in stated if path not in paths[key]),
        broken=tuple(
            BrokenPatch(
                patch=name, why=moved.conflicts[0].headline if moved.conflicts else moved.why
            )
            for name, moved in conflicts.items()
        ),
        carried=tuple(carried),
        refused=(*refused, *(Objection(code="conflict", subject=other) for other in conflicts)),
    )
    if done.refused and not force:
        if resolve and not refused:
            place = _open_conflict(stack, key, conflicts)
            return done.model_copy(update={"resolve": place})
        return done
    version = None
    with transaction(queue.folder, f"{why} {key}") as change:
        now = load_queue(queue.folder)
        for name in new:
            known = queue.patch(name)
            if now.patch(name).digest != known.digest or now.specs[name] != known.spec:
                raise MachineError(
                    f"{known.folder}: changed by somebody else just now; nothing was written",
                    hint="run it again",
                )
            reason = why if name == key else f"{why} of {key}"
            number = write_patch(change, after, known, paths[name], why=reason)
            version = number if name == key else version
    for other in carried:
        if _resolving(queue, other, key):
            worktree.close_replay(queue, other)
    return done.model_copy(update={"changed": True, "version": version, "refused": ()})


def write_patch(
    change: Transaction,
    after: PatchStack,
    patch: Patch,
    paths: Sequence[str],
    *,
    why: str,
    gone: Collection[str] = (),  # dependencies that leave the queue
) -> int | None:
    """Write a patch's files from the stack `after`; record both versions, return the new number."""
    queue, files, folder = after.queue, after.files_of(patch.name), f"patches/{patch.name}"
    change.replace_files(folder, patch.files, files)
    if patch.spec.files and set(paths) != set(patch.spec.files):
        change.edit(f"{folder}/patch.toml", lambda text: set_patch(text, files=paths))
    if patch.files:
        history.record_present(change, queue, patch, why=f"before {why}")
    below = queue.below(patch.name)
    then = {low: digest_of(after.files_of(low)) for low in below if low not in gone}
    return history.record(change, patch.name, files, after.fetched.pin, why=why, below=then)


def _resolving(queue: Queue, name: str, lower: str) -> bool:
    """Return whether a work tree holds a patch's conflict with a refresh of the patch `lower`."""
    tree = find_tree(queue, name)
    return tree is not None and tree.state.lower == lower


def _carry_above(
    stack: PatchStack, key: str, files: tuple[PatchFile, ...]
) -> dict[str, RebaseResult]:
    """Merge each dependent patch that applies to the old files and not to the new files."""
    queue, fetched = stack.queue, stack.fetched
    above: dict[str, RebaseResult] = {}
    new = {key: files}
    for other in queue.specs:
        if key not in queue.below(other):
            continue
        with fetched.store.exclusive():
            if stack.apply(other).why or not stack.with_files(new).apply(other).why:
                continue
        mine = worktree.resolved_files(queue, other) if _resolving(queue, other, key) else ()
        names = queue.with_dependencies([other])
        # A resolution may be of an older state of the patch `key`: then git merges anew.
        for files_of_other in dict.fromkeys((mine, ())):
            resolved = {**new, other: files_of_other}
            above[other] = carry(queue, names, fetched, fetched, resolved=resolved)[other]
            if moved := above[other].files:
                new[other] = moved
                break
    return above


def _open_conflict(stack: PatchStack, lower: str, conflicts: Mapping[str, RebaseResult]) -> str:
    """Open a work tree with the first conflict, for a person to resolve."""
    for name, moved in conflicts.items():
        if _resolving(stack.queue, name, lower):
            # This tree is about an older state of the patch `lower`.
            worktree.close_replay(stack.queue, name)
        if moved.conflicts:
            with stack.fetched.store.exclusive():
                commits = stack.apply(name).commits
            place, _ = worktree.open_replay(
                stack.queue, name, base=moved.base, commits=commits, lower=lower
            )
            return worktree.printable(place)
    return ""
