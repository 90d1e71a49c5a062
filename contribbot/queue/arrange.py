"""Reorder, rename, fold, split, undo and restore patches, and compare versions of a patch."""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from typing import Final

from contribbot.errors import QueueError, UsageError
from contribbot.files import stores_folder
from contribbot.git.patch_format import commit_changes, format_commits, keep_unchanged, read_mail
from contribbot.git.pins import Progress, Silent
from contribbot.git.repository import (
    NewCommit,
    Store,
    open_store,
    read_commit,
    write_commits,
)
from contribbot.model.base import Model
from contribbot.model.patch import Patch, PatchFile, PatchSpec, Pin
from contribbot.queue import history
from contribbot.queue.load import Queue, complete_order, load_queue
from contribbot.queue.new import Wish, add, check_new_name, settle
from contribbot.queue.refresh import (
    Refreshed,
    declared_paths,
    write_patch,
    write_patches,
)
from contribbot.queue.stack import PatchStack, fetch_pin
from contribbot.queue.toml_edit import remove_from_order, set_order, set_patch
from contribbot.queue.transaction import OperationLog, Transaction, hold_queue, transaction
from contribbot.queue.worktree import find_tree


class Arranged(Model):
    """The JSON document of `queue reorder`, `mv`, `fold` and `split`."""

    patch: str
    done: str
    order: tuple[str, ...]


def reorder(queue: Queue, name: str, *, other: str | None, before: bool) -> Arranged:
    """Put a patch before or after the patch `other` in the queue's order; None: put it last."""
    if other == name:
        where = "before" if before else "after"
        raise UsageError(f"{name} cannot stand {where} itself", hint="name another patch")
    with transaction(queue.folder, f"reorder {name}") as change:
        queue = _fresh(queue, name, *([other] if other else []))
        order = [patch for patch in queue.specs if patch != name]
        at = order.index(other) + (not before) if other in order else len(order)
        order.insert(at, name)
        specs = {patch: queue.specs[patch] for patch in order}
        after = _write_order(change, queue, specs, order)
    return Arranged(patch=name, done=f"{name}: number {at + 1} in the order", order=after)


def rename(queue: Queue, name: str, new: str) -> Arranged:
    """Rename a patch with its history; evidence and attestation of the old name are deleted."""
    with transaction(queue.folder, f"mv {name} to {new}") as change:
        queue = _fresh(queue, name)
        check_new_name(queue, new)
        if tree := find_tree(queue, name):
            hint = f"save and remove it: contribbot refresh {name}; contribbot edit --abort {name}"
            raise UsageError(f"{name} is open in {tree.path}", hint=hint)
        proved = (queue.evidence / name).is_dir()
        for old in ("patches", "history", "evidence"):
            for path in sorted((queue.folder / old / name).rglob("*")):
                if path.is_file():
                    inside = path.relative_to(queue.folder / old / name).as_posix()
                    if old != "evidence":
                        change.write(f"{old}/{new}/{inside}", path.read_bytes())
                    change.delete(f"{old}/{name}/{inside}")
        change.delete(f"attestations/{name}.json")
        specs = {
            new if other == name else other: _without(spec, name, (new,))
            for other, spec in queue.specs.items()
        }
        order = _write_order(change, queue, specs, [new] if name in queue.spec.order else [])
    again = "; prove it again" if proved else ""
    return Arranged(patch=new, done=f"{name} is {new} now{again}", order=order)


def fold(queue: Queue, name: str, into: str, *, progress: Progress) -> Arranged:
    """Add the commits of patch `name` to patch `into`, and take `name` out of the queue."""
    operation = f"fold {name} into {into}"
    with transaction(queue.folder, operation) as change:
        queue = _fresh(queue, name, into)
        patch, target = queue.patch(name), queue.patch(into)
        lacking = {*queue.below(name)}.difference({into, *queue.below(into)})
        if name == into or patch.pin != target.pin or lacking or name in queue.below(into):
            why, hint = "they do not stand on the same", "see `depends_on` in their patch.toml"
            if lacking:
                why = f"{into} does not depend on {', '.join(sorted(lacking))}"
            if name == into:
                why, hint = "both names are one patch", "name two"
            raise UsageError(f"{name} cannot be folded into {into}: {why}", hint=hint)
        stack = PatchStack(queue, fetch_pin(queue, patch.pin, progress=progress))
        store = stack.fetched.store
        with store.exclusive():
            lower = stack.apply(into)
            _require(into, lower.why)
            upper = stack.on(lower.commit, name)
            _require(name, upper.why)
            commits = (*lower.commits, *upper.commits)
            fresh = format_commits(store, lower.base, upper.commit)
            files = keep_unchanged((*target.files, *patch.files), commits, fresh, commits)
            paths = declared_paths(into, store, lower.base, upper.commit, target.spec.files)
            specs = {
                other: _without(spec, name, (into,) if other != into else ())
                for other, spec in queue.specs.items()
                if other != name
            }
            _check_above(stack, specs, {into: files})
        after = stack.with_files({into: files})
        write_patch(change, after, target, paths, why=f"fold of {name}")
        take_out(change, queue, patch, f"folded into {into}")
        order = _write_order(change, queue, specs)
    proof = f"what it states to be proved is in history/{name}/retired"
    return Arranged(patch=into, done=f"{name} is folded into {into}; {proof}", order=order)


def split(
    queue: Queue, name: str, new: str, *, paths: Sequence[str], start: int, progress: Progress
) -> Arranged:
    """Move a patch's changes to some paths, or its commits from `start` on, into a new patch."""
    if bool(paths) == bool(start):
        raise UsageError(
            f"{name}: either paths or --from N say what goes into {new}",
            hint=f"see its files and commits: contribbot show {name}",
        )
    operation = f"split {new} from {name}"
    with transaction(queue.folder, operation) as change:
        queue = _fresh(queue, name)
        patch = queue.patch(name)
        wish = Wish(new, patch.spec.title, patch.pin.title, (name,))
        draft = settle(queue, wish)
        stack = PatchStack(queue, fetch_pin(queue, patch.pin, progress=progress))
        store = stack.fetched.store
        with store.exclusive():
            applied = stack.apply(name)
            _require(name, applied.why)
            base = applied.base
            middle, tip = _parted(store, base, applied.commits, paths, start)
            if middle in {base, tip}:
                raise UsageError(f"{name}: nothing would be in one of the two", hint="see `show`")
            parts = {
                name: format_commits(store, base, middle),
                new: format_commits(store, middle, tip),
            }
            touched = declared_paths(name, store, base, middle, patch.spec.files)
            specs: dict[str, PatchSpec] = {}
            for other, spec in queue.specs.items():
                specs[other] = _without(spec, name, (new,))
                if other == name:
                    specs[new] = spec.model_copy(update={"depends_on": (name,)})
            _check_above(stack, specs, parts)
            subject = read_mail(parts[new][0]).subject
        # A split by paths leaves part of each commit behind, so its subject does not fit.
        draft = replace(draft, title=f"{patch.spec.title}: {new}" if paths else subject)
        write_patch(change, stack.with_files(parts), patch, touched, why=f"split of {new}")
        add(change, draft, patches=parts[new])
        history.record(change, new, parts[new], patch.pin, why=f"split from {name}")
        order = _write_order(change, queue, specs, [new] if name in queue.spec.order else [])
    return Arranged(patch=new, done=f"{new} is split from {name}, above it", order=order)


def _parted(
    store: Store, base: str, commits: Sequence[str], paths: Sequence[str], start: int
) -> tuple[str, str]:
    """Write the commits of a split, first the lower part; return the last commits of both parts."""
    changed = commit_changes(store, commits)
    known = {change.path for change in changed}
    for path in paths:
        if not any(PurePosixPath(other).is_relative_to(path) for other in known):
            raise UsageError(f"{path}: not changed by it", hint="see `files` in patch.toml")
    runs: list[list[NewCommit]] = [[], []]
    with store.open() as repo:
        for number, commit in enumerate(commits, start=1):
            entries: list[dict[str, tuple[str, str]]] = [{}, {}]
            for change in (each for each in changed if each.commit == commit):
                inside = map(PurePosixPath(change.path).is_relative_to, paths)
                goes = any(inside) if paths else number >= start
                entries[goes][change.path] = (change.mode, change.blob)
            for run, part in zip(runs, entries, strict=True):
                if part:
                    whole = read_commit(repo, commit)
                    run.append(replace(whole, parent="", tree="", entries=part))
    both = [*runs[0], *runs[1]]
    written = write_commits(
        store,
        [
            replace(commit, parent="" if number else base, after=number - 1)
            for number, commit in enumerate(both)
        ],
        dates="raw-permissive",
    )
    ids = [base, *(commit for commit, _ in written)]
    return ids[len(runs[0])], ids[-1]


class Reversal(Model):
    """The JSON document of `undo` without a patch's name: the operation and the changed files."""

    operation: str
    files: tuple[str, ...]


def undo(folder: Path) -> Reversal:
    """Undo the last operation on the queue; a second undo takes back the first."""
    with hold_queue(folder):
        load_queue(folder)  # Fail before any change if the queue cannot be read.
        operation, files = OperationLog.require(folder).inverse()
        with transaction(folder, f"undo: {operation}") as change:
            for path, content in files.items():
                change.write(path, content)
    return Reversal(operation=operation, files=tuple(sorted(files)))


def restore(
    queue: Queue, name: str, number: int, *, force: bool = False, progress: Progress
) -> Refreshed:
    """Write the files of a patch's recorded version back into the queue."""
    queue = _fresh(queue, name)
    patch = queue.patch(name)
    files = history.version(queue.folder, name, number).files()
    stack = PatchStack(queue, fetch_pin(queue, patch.pin, progress=progress))
    with stack.fetched.store.exclusive():
        _require(f"v{number} of {name}", stack.with_files({name: files}).apply(name).why)
    why = f"restore of v{number}"
    done = write_patches(stack, name, files, why=why, force=force, resolve=False)
    if not (done.changed or done.refused):
        return done
    tree = find_tree(queue, name)
    open_tree = str(tree.path) if tree else ""
    return done.model_copy(update={"restored": number, "open_tree": open_tree})


def take_out(change: Transaction, queue: Queue, patch: Patch, why: str) -> None:
    """Take a patch out of the queue, except unknown files; the history keeps copies."""
    folder, aside = f"patches/{patch.name}", f"history/{patch.name}/retired"
    history.record_present(change, queue, patch, why="as it was in the end")
    change.write(f"{aside}/patch.toml", (patch.folder / "patch.toml").read_bytes())
    change.delete(f"{folder}/patch.toml")
    change.replace_files(folder, patch.files, ())
    change.replace_files(f"{folder}/checks", patch.support, ())
    change.replace_files(aside, (), patch.files)
    change.replace_files(f"{aside}/checks", (), patch.support)
    # `contribbot new` writes .gitkeep, so that git keeps the folder.
    change.delete(f"{folder}/checks/.gitkeep")
    change.edit("patches/queue.toml", lambda text: remove_from_order(text, patch.name))
    event = history.RetiredEvent(time=history.now(), summary=f"retired: {why}", why=why)
    history.note(change, patch.name, event)


def _fresh(queue: Queue, *names: str) -> Queue:
    """Load the queue again; raise UsageError for a name that is not in the queue."""
    queue = load_queue(queue.folder)
    queue.require(*names)
    return queue


def _require(what: str, why: str) -> None:
    if why:
        raise QueueError(f"{what} does not apply: {why}", hint="see both sides: contribbot verify")


def _without(spec: PatchSpec, name: str, instead: Sequence[str]) -> PatchSpec:
    """Return a patch's spec where other dependencies replace the dependency `name`."""
    below = [new for low in spec.depends_on for new in (instead if low == name else (low,))]
    return spec.model_copy(update={"depends_on": tuple(dict.fromkeys(below))})


def _check_above(
    stack: PatchStack,
    specs: Mapping[str, PatchSpec],
    files: Mapping[str, tuple[PatchFile, ...]],
) -> None:
    """Raise QueueError if a patch that is new, or that applied before, does not apply now."""
    queue = stack.queue
    arranged = replace(queue, specs=dict(specs))
    after = PatchStack(arranged, stack.fetched, files)
    for name in specs:
        known = name not in queue.specs or queue.pin_of(name) == stack.fetched.pin
        if known and (name not in queue.specs or not stack.apply(name).why):
            _require(f"then {name}", after.apply(name).why)


def _write_order(
    change: Transaction, queue: Queue, specs: Mapping[str, PatchSpec], listed: Sequence[str] = ()
) -> tuple[str, ...]:
    """Write changed dependencies and queue.toml's order; return the order of all patches.

    The order in queue.toml has the patches that it had, and the patches `listed`.
    """
    named = [name for name in specs if name in {*queue.spec.order, *listed}]
    order = complete_order(named, specs)
    for name, spec in specs.items():
        for low in spec.depends_on:
            if order.index(low) > order.index(name):
                raise UsageError(
                    f"{name} would stand before {low}, on which it depends",
                    hint=f"the order is {', '.join(queue.specs)}",
                )
        known = queue.specs.get(name)
        if known is None or known.depends_on != spec.depends_on:
            stated = functools.partial(set_patch, depends_on=spec.depends_on)
            change.edit(f"patches/{name}/patch.toml", stated)
    change.edit("patches/queue.toml", lambda text: set_order(text, named))
    return tuple(order)


#: Per cent of a commit that may change before git treats it as another commit. Git's default,
#: 60, is for long branches; the commits of one patch belong together.
_CREATION_FACTOR: Final = 95
_RANGE: Final = re.compile(r"v?(?P<old>[1-9][0-9]{0,8})(?:\.\.(?:v?(?P<new>[1-9][0-9]{0,8}))?)?")


class VersionDiff(Model):
    """The JSON document of `queue diff`; `old` and `new`: such as `v1`, or `files` (present)."""

    patch: str
    old: str
    new: str
    #: Whether both versions have the same files on the same pin.
    same: bool
    range_diff: str


@dataclass(frozen=True)
class _DiffSide:
    title: str
    base: Pin
    below: tuple[tuple[PatchFile, ...], ...]
    files: tuple[PatchFile, ...]


def read_range(text: str | None) -> tuple[int | None, int | None]:
    """Return the version numbers in `v1..v2` or `v1`; None: the text does not name the version."""
    if text is None:
        return None, None
    ends = _RANGE.fullmatch(text)
    if ends is None:
        raise UsageError(
            f"{text}: not versions of a patch", hint="write v1..v2, or v1 to compare with now"
        )
    return int(ends["old"]), int(ends["new"]) if ends["new"] else None


def range_diff(
    queue: Queue, name: str, old: int | None = None, new: int | None = None
) -> VersionDiff:
    """Return git's range-diff of two versions of a patch; `new` None: the present files."""
    known = history.versions(queue.folder, name)
    if old is None and not known:
        raise UsageError(
            f"{name}: no version is recorded yet",
            hint="the first change by contribbot records what was there before, as v1",
        )
    left = _recorded(queue, known[-1] if old is None else history.version(queue.folder, name, old))
    if new is not None:
        right = _recorded(queue, history.version(queue.folder, name, new))
    elif name in queue.specs:
        patch = queue.patch(name)
        below = tuple(lower.files for lower in history.below_of(queue, name))
        right = _DiffSide("files", patch.pin, below, patch.files)
    else:
        raise UsageError(
            f"{name}: not in the queue any more, and without files to compare with",
            hint=f"name two versions: v1..v{known[-1].event.version}",
        )
    ranges = [_commits(queue, side) for side in (left, right)]
    store = open_store(stores_folder(), left.base.upstream)
    factor = f"--creation-factor={_CREATION_FACTOR}"
    output = store.git("range-diff", "--no-color", factor, *ranges).stdout
    return VersionDiff(
        patch=name,
        old=left.title,
        new=right.title,
        same=(left.files, left.base) == (right.files, right.base),
        range_diff=output.decode("utf-8", "replace"),
    )


def _recorded(queue: Queue, recorded: history.Version) -> _DiffSide:
    event, title = recorded.event, f"v{recorded.event.version}"
    whose = f"{recorded.patch} {title}"
    below = tuple(_lower(queue, whose, *lower) for lower in event.below.items())
    return _DiffSide(title, event.base, below, recorded.files())


def _lower(queue: Queue, whose: str, name: str, digest: str) -> tuple[PatchFile, ...]:
    """Return the patch files with a digest: a dependency's, which may have a new name."""
    # After a rename, the dependency's journal is in the folder of the new name.
    for journal in sorted(queue.folder.glob("history/*/journal.jsonl")):
        for recorded in history.versions(queue.folder, journal.parent.name):
            if recorded.event.digest == digest:
                return recorded.files()
    for patch in map(queue.patch, queue.specs):
        if patch.digest == digest:
            return patch.files
    raise QueueError(
        f"{whose} stood on {name} (sha256 {digest[:12]}), which is recorded nowhere",
        hint=f"restore that state of {name} from the queue's own git",
    )


def _commits(queue: Queue, side: _DiffSide) -> str:
    """Write a version's commits into the store; return their range for git."""
    if side.base.upstream not in queue.upstreams:
        raise UsageError(
            f"the queue has no pin of {side.base.upstream} any more",
            hint=f"pin the release again: contribbot pin add {side.base.upstream} {side.base.tag}",
        )
    fetched = fetch_pin(queue, side.base, progress=Silent())
    tips = [fetched.commit]
    with fetched.store.exclusive():
        stack = PatchStack(queue, fetched)
        for files in (*side.below, side.files):
            series = stack.series(tips[-1], files)
            if series.conflicts:
                raise QueueError(
                    f"{side.title} does not apply: {series.conflicts[0].headline}",
                    hint="compare with a version that does",
                )
            tips.append(series.commit)
    return f"{tips[-2]}..{tips[-1]}"
