"""`contribbot edit`, `refresh` and `undo`."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import Annotated, Final

import typer

from contribbot.cli.command import (
    JsonOption,
    PatchArgument,
    argument,
    command,
    flag,
    live_lines,
    open_patch,
    open_queue,
    option,
    patch_names,
    print_json,
    print_notes,
    print_report,
    queue_folder,
)
from contribbot.cli.render import Block, Code, clean, count
from contribbot.errors import UsageError
from contribbot.queue import arrange, worktree
from contribbot.queue.load import Queue, patch_name
from contribbot.queue.operations import OperationLog
from contribbot.queue.range_diff import read_range
from contribbot.queue.refresh import Objection, Refreshed
from contribbot.queue.refresh import refresh as take_back
from contribbot.queue.worktree import Drift, EditedTree, LossKind


@command
def edit(
    context: typer.Context,
    patch: PatchArgument,
    at: Annotated[
        Path | None,
        option("DIR", "Where the work tree goes.", default=".contribbot/edit/PATCH of the queue"),
    ] = None,
    whole: Annotated[bool, flag("--all", "All patches of its pin, on one branch.")] = False,
    abort: Annotated[bool, flag("--abort", "Remove the work tree.")] = False,
    force: Annotated[
        bool, flag("--force", "With --abort: also what refresh has not taken.")
    ] = False,
    as_json: JsonOption = False,
) -> int:
    """Open a patch as commits in a git work tree of its own; `refresh` saves them in the patch."""
    queue = open_queue(context, patch)
    name = patch_name(queue, patch)
    if abort and at is not None:
        raise UsageError("--abort and --at do not go together", hint="leave --at out")
    if force and not abort:
        raise UsageError("--force is for --abort", hint="leave it out")
    if not abort:
        with live_lines() as lines:
            tree = worktree.open_tree(queue, name, whole=whole, at=at, progress=lines.download())
        print_report(tree, edit_lines(tree), as_json=as_json)
        return 1 if tree.state == "changed" else 0
    key = worktree.whole_pin(queue, name)[0] if whole else name
    tree = worktree.abort(queue, key, force=force)
    if tree.state == "kept":
        print_notes(edit_lines(tree))
        if sys.stdin.isatty() and not as_json and _confirmed():
            tree = worktree.abort(queue, key, force=True)
        else:
            print_notes(["nothing was removed; --force removes it all the same"])
    if as_json:
        print_json(tree)
    elif tree.state == "removed":
        print_report(tree, edit_lines(tree), as_json=False)
    return 1 if tree.state == "kept" else 0


def _confirmed() -> bool:
    """Ask; the end of the input means no."""
    try:
        return typer.confirm("Remove it all the same?", err=True)
    except typer.Abort:
        typer.echo("", err=True)
        return False


@command
def refresh(
    context: typer.Context,
    patch: Annotated[
        str | None,
        argument(
            "PATCH",
            "Name of a patch, or its folder.",
            default="the one whose work tree this folder is in",
            complete=patch_names,
        ),
    ] = None,
    force: Annotated[
        bool,
        flag(
            "--force",
            "Also when patches on top no longer apply, the queue has moved on, or "
            "marks of a conflict are in it.",
        ),
    ] = False,
    as_json: JsonOption = False,
) -> int:
    """Save a patch's work tree in the queue, committed or not, as a new version."""
    tree = worktree.enclosing_tree(Path.cwd())
    if tree is None and patch is None:
        raise UsageError(
            "no patch named, and this is not the work tree of one", hint="name the patch"
        )
    queue = open_queue(context, *([patch] if patch else []))
    name = patch_name(queue, patch) if patch else tree.state.key if tree else ""
    with live_lines() as lines:
        done = take_back(queue, name, force=force, progress=lines.download())
    print_report(done, refresh_lines(done), as_json=as_json)
    note_unlogged(queue)
    return 1 if done.refused else 0


def note_unlogged(queue: Queue) -> None:
    """Say once that the operations of a queue outside git are not logged."""
    marker = queue.local / "not-in-git"
    if not marker.exists() and OperationLog.find(queue.folder) is None:
        marker.touch()
        print_notes(["operations and versions are not logged: the queue is in no git repository"])


ForceOption = Annotated[bool, flag("--force", "Also when patches on top no longer apply.")]


@command
def undo(
    context: typer.Context,
    patch: Annotated[
        str | None,
        argument(
            "PATCH",
            "Name of a patch, or its folder.",
            default="the last operation of all",
            complete=patch_names,
        ),
    ] = None,
    version: Annotated[
        str | None,
        argument("VERSION", "A version, as `queue log` lists them: v2.", default="the last one"),
    ] = None,
    force: ForceOption = False,
    as_json: JsonOption = False,
) -> int:
    """Take back the last operation on the queue, whole; `undo` again brings the operation back.

    With a patch: give the patch the files from before its last change, or those of a version.
    """
    if patch is None:
        reversal = arrange.undo(queue_folder(context))
        print_report(reversal, reversal_lines(reversal), as_json=as_json)
        return 0
    number = read_range(version)[0] if version else None
    with live_lines() as lines:
        queue, name = open_patch(context, patch)
        done = arrange.restore(queue, name, number, force=force, progress=lines.download())
    rows = refresh_lines(done)
    if done.refused:
        rows = [f"{patch}: {objection_words(name, each)}" for each in done.refused]
        rows += [f"  {broken.patch}: {clean(broken.why)}" for broken in done.broken]
        rows.append(f"{patch}: nothing was written; --force leaves them behind")
    print_report(done, rows, as_json=as_json)
    return 1 if done.refused else 0


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


def reversal_lines(done: arrange.Reversal) -> list[Block]:
    """Return the operation that was taken back, and the edits that went with the operation."""
    lines = [f"taken back: {clean(done.operation)} ({count(len(done.files), 'file')})"]
    if done.edited:
        names = clean(", ".join(done.edited))
        lines.append(f"changed by hand since, and in the log as they were: {names}")
    return [*lines, "`contribbot undo` again brings it back; `contribbot queue log` lists all"]
