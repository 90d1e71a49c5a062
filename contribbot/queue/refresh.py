"""`contribbot refresh`: the commits of a work tree become the patch's files again.

A commit that is not changed keeps its file byte for byte. Patches above that would no longer apply
are carried along by a three-way merge; where that conflicts, a work tree with the conflict is
opened, and the same refresh goes on when it is resolved.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from pydantic import TypeAdapter, ValidationError

from contribbot.errors import MachineError, QueueError, UsageError
from contribbot.files import run_folder
from contribbot.git.merge import Moved
from contribbot.git.patch_format import changes, keep_unchanged
from contribbot.git.repository import Store
from contribbot.git.source import Progress, Silent
from contribbot.model.base import Model, TreePath
from contribbot.model.patch import Patch, PatchFile, digest_of
from contribbot.queue import history, worktree
from contribbot.queue.load import Queue, load_queue, no_such_patch
from contribbot.queue.stack import PatchStack, carry, land, own_pin, with_dependencies
from contribbot.queue.toml_edit import set_patch
from contribbot.queue.transaction import transaction
from contribbot.queue.worktree import TakenCommits, WorkTree, find_tree, held

_TREE_PATH: Final = TypeAdapter[str](TreePath)
#: Between the message and the diff of a patch file: what is for readers of the mail alone.
_NOTES: Final = re.compile(rb"\n---\n(?P<notes>(?:(?!diff --git )[^\n]*\n)*)(?=diff --git )")
_DIFFSTAT: Final = re.compile(rb" [^\n]+ \|[^\n]*| \d+ files? changed[^\n]*| \w+ mode \d+ [^\n]*")


class BrokenPatch(Model):
    """A patch above that applied and would not any more: which hunk of which file."""

    patch: str
    why: str


class Refreshed(Model):
    """What `refresh --json` prints; `refused` says why nothing was written, a line each."""

    patch: str
    changed: bool
    version: int | None = None
    patch_files: tuple[str, ...] = ()
    #: What became of `files` of its patch.toml.
    files_added: tuple[str, ...] = ()
    files_removed: tuple[str, ...] = ()
    broken: tuple[BrokenPatch, ...] = ()
    refused: tuple[str, ...] = ()
    #: Paths in the tree that git does not follow.
    left_out: tuple[str, ...] = ()
    #: Patches above whose files were merged onto the new state.
    carried: tuple[str, ...] = ()
    #: The tree with the conflict of a patch above, or empty.
    resolve: str = ""


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
    tree = find_tree(queue, name)
    if tree is not None and tree.state.lower:
        # It holds the conflict that the refresh of a patch below came upon.
        return refresh(queue, tree.state.lower, force=force, why=why, progress=progress)
    with held(queue, name), run_folder() as scratch:
        # Whoever held the tree before may have changed the patch.
        queue = load_queue(queue.folder)
        tree = find_tree(queue, name)
        if tree is None:
            raise worktree.not_open(queue, name)
        if tree.state.kind == "replay":
            raise worktree.being_carried(tree)
        patch = queue.patch(name)
        # Also brings back the objects below the tree where the cache was emptied.
        landed = land(queue, own_pin(queue, name), progress=progress or Silent())
        stack = PatchStack(queue, landed, scratch)
        taken, files, paths, wrong = _judge(stack, tree, patch)
        commits = tuple(new.commit for new in taken.commits)
        result = Refreshed(
            patch=name,
            changed=False,
            patch_files=tuple(file.name for file in files),
            left_out=tuple(map(worktree.printable, taken.untracked)),
        )
        if files == patch.files:
            _remember(tree, patch.digest, commits)
            return result
        above = _carry_above(stack, patch, files, scratch)
        refused = [
            *wrong,
            *(f"{other} depends on it, and conflicts with it now" for other in above.conflicts),
        ]
        result = result.model_copy(
            update={
                "files_added": tuple(path for path in paths if path not in patch.spec.files),
                "files_removed": tuple(path for path in patch.spec.files if path not in paths),
                "broken": tuple(_broken(moved) for moved in above.conflicts.values()),
                "carried": tuple(above.files),
            }
        )
        if refused and not force:
            resolve = "" if wrong else _open_conflict(stack, name, above.conflicts)
            return result.model_copy(update={"refused": tuple(refused), "resolve": resolve})
        # Before the queue's files: killed in between, the tree knows what the queue has.
        _remember(tree, digest_of(files), commits)
        version = _write(stack, patch, {name: files, **above.files}, why=why)
        for other in above.resolved:
            worktree.close_replay(queue, other)
        return result.model_copy(update={"changed": True, "version": version})


def _remember(tree: WorkTree, digest: str, commits: tuple[str, ...]) -> None:
    """Remember which commits of the tree stand for the patch as it is in the queue."""
    if tree.state.known.get(digest) != commits:
        known = {**tree.state.known, digest: commits}
        tree.save(tree.state.model_copy(update={"known": known}))


def _judge(
    stack: PatchStack, tree: WorkTree, patch: Patch
) -> tuple[TakenCommits, tuple[PatchFile, ...], tuple[str, ...], list[str]]:
    """Return the patch's new files, the paths that they change, and what speaks against them."""
    store = stack.landed.store
    with store.exclusive():
        # First what the tree stands on: the store holds it again where the cache was emptied.
        before = stack.apply(patch.name)
        tree.commit_all()
        taken = worktree.take(tree, store, patch.files)
        old = tree.state.known.get(patch.digest, before.commits)
        files = _keep(store, patch, old, taken)
        after = stack.with_files({patch.name: files})
        applied = after.apply(patch.name)
        moved_on = worktree.moved_on(tree.state, before, patch.digest)
        if applied.why:
            raise QueueError(
                f"{tree.path}: its commits do not fit the queue as it is now: {applied.why}",
                hint="save them (`git format-patch refs/contribbot/base`), remove the tree, open "
                "it anew, and `git am -3` them there",
            )
        if not moved_on and store.tree_of(applied.tip) != store.tree_of(taken.commits[-1].commit):
            raise MachineError(
                f"{tree.path}: as patch files, its commits would give another tree",
                hint="this is a fault of contribbot; please report it, with the patch",
            )
        paths = _touched(after, patch)
    refused = [moved_on] if moved_on and files != patch.files else []
    refused += [
        f"the commit {commit} adds the marks of a conflict, as git leaves them (<<<<<<<)"
        for commit in taken.marked
    ]
    return taken, files, paths, refused


def _keep(
    store: Store, patch: Patch, old: Sequence[str], taken: TakenCommits
) -> tuple[PatchFile, ...]:
    """Keep the bytes of each file whose commit is as it was, and the notes of the others.

    That a commit below it got another message or date gives it another id, and leaves
    it as it was all the same.
    """
    new = [commit.commit for commit in taken.commits]
    for at, (before, after) in enumerate(zip(old, new, strict=False)):
        if _facts(store, before) == _facts(store, after):
            new[at] = before
    noted = [
        _with_notes(file, patch.files[at].content) if at < len(patch.files) else file
        for at, file in enumerate(taken.files)
    ]
    return keep_unchanged(patch.files, old, noted, new)


def _with_notes(file: PatchFile, before: bytes) -> PatchFile:
    """Give a patch file the notes below `---` that it had; a commit cannot hold them."""
    old, new = _NOTES.search(before), _NOTES.search(file.content)
    rows = old["notes"].split(b"\n") if old else []
    notes = b"\n".join(row for row in rows if not _DIFFSTAT.fullmatch(row)).strip(b"\n")
    if new is None or not notes:
        return file
    at = new.start("notes")
    return PatchFile(file.name, file.content[:at] + b"\n" + notes + b"\n" + file.content[at:])


def _facts(store: Store, commit: str) -> bytes:
    """Return what a patch file says of a commit: author, message, and the trees around it."""
    show = ("show", "-s", "--date=raw", "--encoding=UTF-8", "--format=%T%n%an%n%ae%n%ad%n%B")
    return store.tree_of(f"{commit}^").encode() + store.git(*show, commit).stdout


def _touched(stack: PatchStack, patch: Patch) -> tuple[str, ...]:
    """Return the paths that the patch changes: in the order of its patch.toml, new ones last."""
    applied = stack.apply(patch.name)
    changed = changes(stack.landed.store, applied.base, applied.tip)
    return declared_paths(patch.name, {change.path for change in changed}, patch.spec.files)


def declared_paths(name: str, paths: set[str], before: Sequence[str] = ()) -> tuple[str, ...]:
    """Return paths as `files` of a patch.toml names them; refuse what it cannot hold."""
    if not paths:
        raise UsageError(
            f"{name}: its commits take back what they do: nothing is changed",
            hint="a patch that is no longer wanted is taken out of `order` in queue.toml",
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


@dataclass
class _Above:
    """What becomes of the patches above: new files, by a merge or by a person; or a conflict."""

    files: dict[str, tuple[PatchFile, ...]] = field(default_factory=dict)
    resolved: list[str] = field(default_factory=list)
    conflicts: dict[str, Moved] = field(default_factory=dict)


def _broken(moved: Moved) -> BrokenPatch:
    why = moved.conflicts[0].headline if moved.conflicts else moved.why
    return BrokenPatch(patch=moved.name, why=why)


def _carry_above(
    stack: PatchStack, patch: Patch, files: tuple[PatchFile, ...], scratch: Path
) -> _Above:
    """Carry along the patches that apply on top of the old state and not of the new one."""
    queue, landed, above = stack.queue, stack.landed, _Above()
    new = {patch.name: files}
    for other in [name for name in queue.specs if patch.name in queue.below(name)]:
        with landed.store.exclusive():
            if stack.apply(other).why or not stack.with_files(new).apply(other).why:
                continue
        tree = find_tree(queue, other)
        mine: tuple[PatchFile, ...] = ()
        if tree is not None and tree.state.lower == patch.name:
            mine = worktree.taken(queue, other)
        with landed.store.exclusive():
            fits = mine and not stack.with_files({**new, other: mine}).apply(other).why
        if fits:
            above.resolved.append(other)
            new[other] = above.files[other] = mine
            continue
        names = with_dependencies(queue, [other])
        moved = carry(queue, names, landed, landed, scratch=scratch, resolved=new)[-1]
        if moved.files:
            new[other] = above.files[other] = moved.files
        else:
            above.conflicts[other] = moved
    return above


def _open_conflict(stack: PatchStack, lower: str, conflicts: Mapping[str, Moved]) -> str:
    """Open a work tree with the first conflict, for a person to resolve."""
    for name, moved in conflicts.items():
        tree = find_tree(stack.queue, name)
        if tree is not None and tree.state.lower == lower:
            # It was resolved for another state of the patch below.
            worktree.close_replay(stack.queue, name)
        if moved.conflicts:
            with stack.landed.store.exclusive():
                commits = stack.apply(name).commits
            opened = worktree.open_replay(
                stack.queue, name, base=moved.base, commits=commits, lower=lower
            )
            return worktree.printable(opened.path)
    return ""


def _write(
    stack: PatchStack, patch: Patch, new: Mapping[str, tuple[PatchFile, ...]], *, why: str
) -> int | None:
    """Write new files and what patch.toml says of them, and record the versions."""
    queue, version = stack.queue, None
    after = stack.with_files(new)
    before = {name: queue.patch(name) if name != patch.name else patch for name in new}
    with stack.landed.store.exclusive():
        paths = {name: _touched(after, known) for name, known in before.items()}
    with transaction(queue.folder) as change:
        now = load_queue(queue.folder)
        for name, known in before.items():
            if now.patch(name).digest != known.digest or now.specs[name] != known.spec:
                raise MachineError(
                    f"{known.folder}: changed by somebody else just now; nothing was written",
                    hint="run it again",
                )
            change.replace_files(f"patches/{name}", known.files, new[name])
            if set(paths[name]) != set(known.spec.files):
                stated = (known.folder / "patch.toml").read_bytes()
                change.write(f"patches/{name}/patch.toml", set_patch(stated, files=paths[name]))
            reason = why if name == patch.name else f"{why} of {patch.name}"
            was = history.digests(history.below_of(queue, name))
            then = {low: digest_of(after.files_of(low)) for low in was}
            if known.files:
                history.record(
                    change, name, known.files, known.pin, why=f"before {reason}", below=was
                )
            number = history.record(change, name, new[name], known.pin, why=reason, below=then)
            version = number if name == patch.name else version
    return version
