"""The queue and its patches, for people and for programs."""

from __future__ import annotations

import operator
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from contribbot.cli.render import Block, Code, Table, clean, count, side_blocks
from contribbot.model.base import Model
from contribbot.model.history import Event
from contribbot.model.lifecycle import ConflictSide
from contribbot.queue.arrange import Reversal
from contribbot.queue.export import Export
from contribbot.queue.import_ import Imported
from contribbot.queue.new import Draft
from contribbot.queue.operations import Operation
from contribbot.queue.range_diff import VersionDiff
from contribbot.queue.refresh import Objection, Refreshed
from contribbot.queue.worktree import Drift, EditedTree, LossKind

_DRIFTS: Final = {
    Drift.BASE: "what {} stands on (its pin, or a patch below it) has changed since",
    Drift.FILES: "the files of {} were changed since, by something else than refresh",
}
_LOSSES: Final = {
    LossKind.UNFINISHED: "an unfinished git {}",
    LossKind.UNCOMMITTED: "{} (not committed)",
    LossKind.UNTRACKED: "{} (not in git)",
    LossKind.COMMIT: "commit {}",
    LossKind.UNREADABLE: "what git cannot tell: {}",
}


def objection_words(name: str, objection: Objection) -> str:
    """Return a reason against a refresh of a patch in words."""
    if objection.code == "marks":
        return (
            f"the commit {objection.subject} adds the marks of a conflict, as git leaves them "
            "(<<<<<<<)"
        )
    if objection.code == "conflict":
        return f"{objection.subject} depends on it, and conflicts with it now"
    return _DRIFTS[objection.code].format(name)


def edit_lines(tree: EditedTree) -> list[str]:
    """Return where a patch is open and what to do next, or what would be lost, as lines."""
    name, path = tree.patch, clean(tree.path or "")
    if tree.state == "removed":
        return [f"{name}: the work tree is removed"]
    if tree.state == "kept":
        lost = (f"  {clean(_LOSSES[loss.kind].format(loss.subject))}" for loss in tree.lost)
        return [f"{name}: {path} holds what refresh has not taken:", *lost]
    fresh = tree.state == "opened"
    lines = [f"{name} is open in {path}" if fresh else f"{name} is open already, in {path}"]
    lines += [f"  {entry.commit[:12]}  {clean(entry.subject)}" for entry in tree.commits]
    if tree.drift:
        return [
            *lines,
            f"{_DRIFTS[tree.drift].format(name)}.",
            Code(f"  contribbot refresh --force {name}   # take what is there all the same"),
            Code(f"  contribbot edit --abort {name}      # remove the tree, to open it anew"),
        ]
    base, drop = (tree.base_commit or "")[:12], f"contribbot edit --abort {name}"
    return [
        *lines,
        f"Change files there, or commits with plain git (git rebase -i {base}).",
        Code(f"  cd {shlex.quote(path)}"),
        f"  {'contribbot refresh':<{len(drop)}}   # take it back, as often as you like",
        f"  {drop}   # remove the tree when you are done",
    ]


def refresh_lines(done: Refreshed) -> list[str]:
    """Return what came of a refresh, as lines."""
    name = done.patch
    lines = [
        f"{name}: {clean(path)} is in no commit; to take it: git add, git commit"
        for path in done.left_out
    ]
    if done.amended:
        paths = clean(", ".join(done.amended))
        lines.append(f"{name}: uncommitted changes in {paths} went into the last commit")
    if done.refused:
        lines += [f"{name}: {clean(objection_words(name, each))}" for each in done.refused]
        lines += [f"  {broken.patch}: {clean(broken.why)}" for broken in done.broken]
        lines.append(f"{name}: nothing was written; `refresh --force {name}` takes it anyway")
        if done.resolve:
            lines.append(
                f"Resolve the conflict in {clean(done.resolve)} (git add, git cherry-pick "
                f"--continue), then: contribbot refresh {name}"
            )
        return lines
    if not done.changed:
        return [*lines, f"{name}: nothing has changed"]
    version = f" as v{done.version}" if done.version else ""
    stated = "`files` of patch.toml"
    did = f"v{done.restored} is back" if done.restored else "taken"
    proof = f"Prove it with `contribbot verify {'--all' if name.startswith('+') else name}`."
    if done.open_tree:
        lines.append(
            f"{name}: the tree at {clean(done.open_tree)} is as it was: the next refresh takes "
            f"that; `contribbot edit --abort {name}` drops it"
        )
    return [
        *lines,
        f"{name}: {did}{version}, {count(len(done.patch_files), 'commit')}",
        *(f"  {clean(file)}" for file in done.patch_files),
        *(f"{name}: added to {stated}: {clean(path)}" for path in done.files_added),
        *(f"{name}: taken out of {stated}: {clean(path)}" for path in done.files_removed),
        *(f"{other}: carried along, merged onto it" for other in done.carried),
        *(f"{broken.patch}: no longer applies: {clean(broken.why)}" for broken in done.broken),
        f"`contribbot status {name}` shows whether it is still proved." if done.restored else proof,
    ]


def conflict_text(conflicts: Sequence[ConflictSide]) -> list[Block]:
    """Return each conflict in one line, with the three sides of its hunk below it."""
    return [row for side in conflicts for row in side_blocks(side, base="the pin")]


def import_lines(done: Imported) -> list[Block]:
    """Return what an import did, as lines."""
    if done.conflicts:
        return [*conflict_text(done.conflicts), f"{done.patch}: not imported, nothing was written"]
    lines = [f"{done.patch}: {count(len(done.patch_files), 'commit')} on {done.pin}"]
    lines += [f"  {clean(name)}" for name in done.patch_files]
    if done.adjustments:
        lines.append(f"  not exactly: {clean('; '.join(done.adjustments))}")
    if done.rewritten:
        lines.append(
            f"  written anew, as git writes them: {len(done.rewritten)} of {len(done.patch_files)}"
        )
    if done.same_as:
        lines.append(f"  the same change as {', '.join(done.same_as)}")
    check = f"patches/{done.patch}/checks/test_red.py"
    lines.append(f"  write the check {check}, and run it: contribbot check {done.patch}")
    return [*lines, *_next(done.patch)]


class ExportView(Model):
    """What `queue export --json` prints."""

    pin: str
    patches: tuple[str, ...]
    base: str
    commits: tuple[str, ...]
    conflicts: tuple[ConflictSide, ...]
    output: str

    @classmethod
    def of(cls, done: Export, output: Path | None) -> ExportView:
        """View an export."""
        return cls(
            pin=done.pin,
            patches=done.patches,
            base=done.base,
            commits=done.commits,
            conflicts=tuple(conflict.side for conflict in done.conflicts),
            output=str(output or "") if not done.conflicts else "",
        )


def export_lines(done: Export) -> list[str]:
    """Return what an export holds, as lines."""
    lines = [f"{', '.join(done.patches)}: {count(len(done.commits), 'commit')} for {done.pin}"]
    if done.added:
        lines.append(f"  with {', '.join(done.added)}, which it depends on (--alone: without)")
    if any(b"\nSubject: [PATCH] [" in file.content for file in done.files):
        lines.append("  git am --keep-non-patch keeps the brackets of the subjects")
    return lines


class NewPatch(Model):
    """What `new --json` prints of an empty patch."""

    patch: str
    upstream: str
    pin: str
    title: str
    depends_on: tuple[str, ...]
    planned: tuple[str, ...] = ()

    @classmethod
    def of(cls, draft: Draft) -> NewPatch:
        """View a patch that was begun."""
        return cls(
            patch=draft.name,
            upstream=draft.pin.upstream,
            pin=draft.pin.tag,
            title=draft.title,
            depends_on=draft.depends_on,
        )


def new_lines(draft: Draft) -> list[str]:
    """Return what `new` did, as lines."""
    return [
        f"{draft.name}: begun on {draft.pin.title}",
        f"  make its commits: contribbot edit {draft.name}",
        *_next(draft.name),
    ]


def _next(name: str) -> list[str]:
    return [
        f"  say what it is for, and state what proves it: patches/{name}/patch.toml",
        f"  prove it: contribbot verify {name}",
    ]


class PatchHistory(Model):
    """What `queue log --json` prints."""

    patch: str
    events: tuple[Event, ...]
    operations: tuple[Operation, ...] = ()


def log_lines(past: PatchHistory) -> list[Block]:
    """Return a line an event or operation, oldest first: time, kind, summary."""
    rows = [(event.time, event.event, event.summary) for event in past.events]
    rows += [(each.time, "operation", each.summary) for each in reversed(past.operations)]
    rows.sort(key=operator.itemgetter(0))
    table = [(f"{when:%Y-%m-%d %H:%M}", kind, summary) for when, kind, summary in rows]
    return [Table(table) if rows else f"{past.patch}: nothing is recorded yet"]


def operation_lines(operations: Sequence[Operation]) -> list[Block]:
    """Return a line an operation, newest first: time, commit, summary, patches."""
    rows = [
        (f"{done.time:%Y-%m-%d %H:%M}", done.commit[:8], done.summary, ", ".join(done.patches))
        for done in operations
    ]
    return [Table(rows) if rows else "no operation is logged yet"]


def reversal_lines(done: Reversal) -> list[Block]:
    """Return the operation that was taken back, and the edits that went with the operation."""
    lines = [f"taken back: {clean(done.operation)} ({count(len(done.files), 'file')})"]
    if done.edited:
        names = clean(", ".join(done.edited))
        lines.append(f"changed by hand since, and in the log as they were: {names}")
    return [*lines, "`contribbot undo` again brings it back; `contribbot queue log` lists all"]


def diff_lines(done: VersionDiff) -> list[str]:
    """Return a comparison as lines for a terminal."""
    if done.same:
        return [f"{done.patch}: {done.old} and {done.new} are the same"]
    rows = done.range_diff.splitlines()
    return [
        f"{done.patch}: {done.old} against {done.new}",
        *map(Code, rows),
    ]
