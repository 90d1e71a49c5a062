"""`contribbot refresh`: the commits of a work tree become the patch's files again.

What is between the base and `HEAD` is taken, with what is not committed. A commit that is as it was
keeps its file's bytes, whichever program wrote them. Patches above that would no longer apply
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
from contribbot.queue.stack import AppliedPatch, Stack, carry, land, own_pin, with_dependencies
from contribbot.queue.toml_edit import set_patch
from contribbot.queue.transaction import transaction
from contribbot.queue.worktree import Taken, Tree, find_tree, held

_TREE_PATH: Final[TypeAdapter[str]] = TypeAdapter(TreePath)
#: Between the message and the diff of a patch file: what is for readers of the mail alone.
_NOTES: Final = re.compile(rb"\n---\n(?P<notes>(?:(?!diff --git )[^\n]*\n)*)(?=diff --git )")
_DIFFSTAT: Final = re.compile(rb" [^\n]+ \|[^\n]*| \d+ files? changed[^\n]*| \w+ mode \d+ [^\n]*")


class Broken(Model):
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
    broken: tuple[Broken, ...] = ()
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
        stack = Stack(queue, landed, scratch)
        new = _judge(stack, tree, patch)
        commits = tuple(one.id for one in new.taken.commits)
        if new.files == patch.files:
            _know(tree, patch.digest, commits)
            return Refreshed(
                patch=name, changed=False, patch_files=_names(new.files), left_out=new.left_out
            )
        above = _carry_above(stack, patch, new.files, scratch)
        refused = () if force else (*new.refused, *above.refused)
        outcome = Refreshed(
            patch=name,
            changed=not refused,
            patch_files=_names(new.files),
            files_added=tuple(path for path in new.paths if path not in patch.spec.files),
            files_removed=tuple(path for path in patch.spec.files if path not in new.paths),
            broken=above.broken,
            carried=tuple(above.files),
            refused=refused,
            left_out=new.left_out,
        )
        if refused:
            resolve = "" if new.refused else _open_conflict(queue, name, stack, above)
            return outcome.model_copy(update={"resolve": resolve})
        # Before the queue's files: killed in between, the tree knows what the queue has.
        _know(tree, digest_of(new.files), commits)
        version = _write(stack, patch, new, above.files, why=why)
        for other in above.resolved:
            worktree.close_replay(queue, other)
        return outcome.model_copy(update={"version": version})


@dataclass(frozen=True)
class _New:
    """What the patch would be, and what speaks against it."""

    taken: Taken
    files: tuple[PatchFile, ...]
    paths: tuple[str, ...]
    refused: tuple[str, ...]

    @property
    def left_out(self) -> tuple[str, ...]:
        return tuple(worktree.printable(path) for path in self.taken.left_out)


def _judge(stack: Stack, tree: Tree, patch: Patch) -> _New:
    """Work out what the patch would be."""
    store = stack.landed.store
    with store.exclusive():
        # First what the tree stands on: the store holds it again where the cache was emptied.
        before = stack.apply(patch.name)
        tree.commit_all()
        taken = worktree.take(tree, store, patch.files)
        old = tree.state.known.get(patch.digest, before.commits)
        files = _kept(store, patch, old, taken)
        after = stack.with_files({patch.name: files}).apply(patch.name)
        stale = worktree.moved_on(tree.state, before, patch.digest)
        if after.why:
            raise QueueError(
                f"{tree.path}: its commits do not fit the queue as it is now: {after.why}",
                hint="save them (`git format-patch refs/contribbot/base`), remove the tree, open "
                "it anew, and `git am -3` them there",
            )
        if not stale and store.tree_of(after.tip) != store.tree_of(taken.commits[-1].id):
            raise MachineError(
                f"{tree.path}: as patch files, its commits would give another tree",
                hint="this is a fault of contribbot; please report it, with the patch",
            )
        paths = _touched(store, patch, after)
    refused = [stale] if stale and files != patch.files else []
    refused += [
        f"the commit {one} adds the marks of a conflict, as git leaves them (<<<<<<<)"
        for one in taken.marked
    ]
    return _New(taken, files, paths, tuple(refused))


def _kept(store: Store, patch: Patch, old: Sequence[str], taken: Taken) -> tuple[PatchFile, ...]:
    """Keep the bytes of each file whose commit is as it was, and the notes of the others.

    That a commit below it got another message or date gives it another id, and leaves
    it as it was all the same.
    """
    new = [one.id for one in taken.commits]
    same = [
        before if before == after or _facts(store, before) == _facts(store, after) else after
        for before, after in zip(old, new, strict=False)
    ]
    noted = [
        _with_notes(file, patch.files[at].content) if at < len(patch.files) else file
        for at, file in enumerate(taken.files)
    ]
    return keep_unchanged(patch.files, old, noted, [*same, *new[len(same) :]])


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
    said = store.git(
        "show", "-s", "--date=raw", "--encoding=UTF-8", "--format=%T%n%an%n%ae%n%ad%n%B", commit
    ).stdout
    return store.tree_of(f"{commit}^").encode() + said


def _touched(store: Store, patch: Patch, applied: AppliedPatch) -> tuple[str, ...]:
    """Return the paths that the patch changes: in the order of its patch.toml, new ones last."""
    paths = {one.path for one in changes(store, applied.base, applied.tip)}
    if not paths:
        raise UsageError(
            f"{patch.name}: its commits take back what they do: nothing is changed",
            hint="a patch that is no longer wanted is taken out of `order` in queue.toml",
        )
    for path in sorted(paths):
        try:
            _TREE_PATH.validate_python(path)
        except ValidationError as error:
            raise QueueError(
                f"{patch.name}: the path {path!a} cannot stand in `files` of patch.toml",
                hint="name the file so that it can be printed, without a backslash",
            ) from error
    known = [path for path in patch.spec.files if path in paths]
    return (*known, *sorted(paths - set(known)))


@dataclass
class _Above:
    """What becomes of the patches above: new files, by a merge or by a person; or a conflict."""

    files: dict[str, tuple[PatchFile, ...]] = field(default_factory=dict)
    resolved: list[str] = field(default_factory=list)
    conflicts: dict[str, Moved] = field(default_factory=dict)

    @property
    def broken(self) -> tuple[Broken, ...]:
        return tuple(
            Broken(patch=name, why=moved.conflicts[0].headline if moved.conflicts else moved.why)
            for name, moved in self.conflicts.items()
        )

    @property
    def refused(self) -> tuple[str, ...]:
        return tuple(f"{name} depends on it, and conflicts with it now" for name in self.conflicts)


def _carry_above(stack: Stack, patch: Patch, files: tuple[PatchFile, ...], scratch: Path) -> _Above:
    """Carry along the patches that apply on top of the old state and not of the new one."""
    queue, landed, above = stack.queue, stack.landed, _Above()
    new = {patch.name: files}
    for other in [one for one in queue.specs if patch.name in queue.below(one)]:
        with landed.store.exclusive():
            if stack.apply(other).why or not stack.with_files(new).apply(other).why:
                continue
        mine = _resolution(queue, other, patch.name)
        with landed.store.exclusive():
            fits = mine and not stack.with_files({**new, other: mine}).apply(other).why
        if fits:
            above.resolved.append(other)
            new[other] = mine
            continue
        names = with_dependencies(queue, [other])
        moved = carry(queue, names, landed, landed, scratch=scratch, resolved=new)[-1]
        if moved.files:
            new[other] = moved.files
        else:
            above.conflicts[other] = moved
    above.files = {name: one for name, one in new.items() if name != patch.name}
    return above


def _resolution(queue: Queue, name: str, lower: str) -> tuple[PatchFile, ...]:
    """Return what a person made of the conflict of a patch with one below; none: nothing yet."""
    tree = find_tree(queue, name)
    if tree is None or tree.state.lower != lower:
        return ()
    return worktree.taken(queue, name)


def _open_conflict(queue: Queue, lower: str, stack: Stack, above: _Above) -> str:
    """Open a work tree with the first conflict, for a person to resolve."""
    for name, moved in above.conflicts.items():
        tree = find_tree(queue, name)
        if tree is not None and tree.state.lower == lower:
            # It was resolved for another state of the patch below.
            worktree.close_replay(queue, name)
        if moved.conflicts:
            with stack.landed.store.exclusive():
                commits = stack.apply(name).commits
            opened = worktree.open_replay(
                queue, name, base=moved.base, commits=commits, lower=lower
            )
            return worktree.printable(opened.path)
    return ""


def _write(
    stack: Stack, patch: Patch, new: _New, above: Mapping[str, tuple[PatchFile, ...]], *, why: str
) -> int | None:
    """Write the new files and what patch.toml says of them, and record the versions."""
    queue, version = stack.queue, None
    applied = stack.with_files({patch.name: new.files, **above})
    paths = {patch.name: new.paths}
    with stack.landed.store.exclusive():
        for name in above:
            paths[name] = _touched(stack.landed.store, queue.patch(name), applied.apply(name))
    with transaction(queue.folder) as changing:
        now = load_queue(queue.folder)
        for name, touched in paths.items():
            known = queue.patch(name) if name != patch.name else patch
            if now.patch(name).digest != known.digest or now.specs[name] != known.spec:
                raise MachineError(
                    f"{known.folder}: changed by somebody else just now; nothing was written",
                    hint="run it again",
                )
            files, folder = applied.files_of(name), f"patches/{name}"
            for file in known.files:
                if file.name not in _names(files):
                    changing.delete(f"{folder}/{file.name}")
            for file in files:
                changing.write(f"{folder}/{file.name}", file.content)
            if set(touched) != set(known.spec.files):
                stated = (known.folder / "patch.toml").read_bytes()
                changing.write(f"{folder}/patch.toml", set_patch(stated, files=touched))
            reason = why if name == patch.name else f"{why} of {patch.name}"
            was = history.digests(history.below_of(queue, name))
            then = {low: digest_of(applied.files_of(low)) for low in was}
            if known.files:
                history.record(
                    changing, name, known.files, known.pin, why=f"before {reason}", below=was
                )
            number = history.record(changing, name, files, known.pin, why=reason, below=then)
            version = number if name == patch.name else version
    return version


def _know(tree: Tree, digest: str, commits: tuple[str, ...]) -> None:
    """Remember which commits of the tree stand for the patch as it is in the queue."""
    if tree.state.known.get(digest) != commits:
        known = {**tree.state.known, digest: commits}
        tree.save(tree.state.model_copy(update={"known": known}))


def _names(files: Sequence[PatchFile]) -> tuple[str, ...]:
    return tuple(file.name for file in files)
