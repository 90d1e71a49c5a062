"""The commands that look at the queue's patches and change them."""

from __future__ import annotations

import functools
import sys
from pathlib import Path
from typing import Annotated

import typer

from contribbot.cli import show_queue as view
from contribbot.cli.command import (
    PATCHES,
    DryRunOption,
    JsonOption,
    PatchArgument,
    argument,
    command,
    flag,
    live_lines,
    open_past,
    open_patch,
    open_queue,
    option,
    patch_names,
    pin_tags,
    print_change,
    print_json,
    print_notes,
    print_report,
    queue_folder,
    rehearsed,
)
from contribbot.cli.render import Block, clean
from contribbot.errors import UsageError
from contribbot.files import write_named
from contribbot.queue import arrange, history, worktree
from contribbot.queue import export as exports
from contribbot.queue.import_ import Imported, import_sources, pull_in, pull_of
from contribbot.queue.load import Queue, patch_name, select
from contribbot.queue.new import Wish, create
from contribbot.queue.operations import OperationList, OperationLog
from contribbot.queue.range_diff import range_diff, read_range
from contribbot.queue.refresh import refresh as take_back

NameArgument = Annotated[str, argument("NAME", "The new patch's name: a-z, 0-9, . _ -")]
AfterOption = Annotated[
    str | None,
    option("PATCH", "The patch that it follows.", default="the last", complete=patch_names),
]


@command
def new(
    context: typer.Context,
    name: NameArgument,
    source: Annotated[
        list[str] | None,
        argument(
            "SOURCE",
            "REPO A..B, REPO BRANCH (its commits above the pin), OWNER/REPO#N (a pull request), "
            "mboxes, format-patch files, folders of them, or - for standard input.",
            default="none: an empty patch",
        ),
    ] = None,
    title: Annotated[
        str,
        option(
            "TEXT",
            "The title of its pull request.",
            default="the first commit's subject",
        ),
    ] = "",
    pin: Annotated[
        str | None,
        option(
            "PIN", "Its pin: the upstream or the tag.", default="the only pin", complete=pin_tags
        ),
    ] = None,
    depends_on: Annotated[
        list[str] | None,
        option("PATCH", "A patch below it; may be repeated.", "--depends-on", complete=patch_names),
    ] = None,
    after: AfterOption = None,
    from_finding: Annotated[
        str,
        option(
            "DIR#N",
            "A finding of `emulate --report DIR`: its check launches the kernel again.",
            "--from-finding",
        ),
    ] = "",
    pull: Annotated[
        str, option("OWNER/REPO#N", "Somebody else's pull request, of which the files are.")
    ] = "",
    dry_run: DryRunOption = False,
    as_json: JsonOption = False,
) -> int:
    """Add a patch: its folder, a patch.toml to fill in, its place in the order.

    Of commits, mails or files it also begins a check, and takes the problem from the message.
    They must apply to the pin, or nothing is written.
    """
    if from_finding and source:
        raise UsageError("--from-finding begins a patch without commits", hint="omit the SOURCE")
    if pull and not source:
        pull_of((), pull)
    wish = Wish(name, title, pin, tuple(depends_on or ()), after)
    document: view.NewPatch | Imported
    rows: list[Block]
    with live_lines() as lines, rehearsed(dry_run) as planned:
        queue = open_queue(context)
        if from_finding:
            from contribbot.sweep.new_patch import create_from  # noqa: PLC0415  start-up time

            draft = create_from(queue, wish, from_finding)
        elif not source:
            draft = create(queue, wish)
        if not source:
            document, rows = view.NewPatch.of(draft), [*view.new_lines(draft)]
        else:
            stdin = _read_stdin
            if online := pull_in(source):
                stdin = functools.partial(_read_pull, *online)
            done = import_sources(
                queue,
                wish,
                source,
                stdin=stdin,
                pull=pull_of(source, pull),
                progress=lines.download(),
            )
            if done.conflicts:
                print_report(done, view.import_lines(done), as_json=as_json)
                return 1
            document, rows = done, view.import_lines(done)
    print_change(document, rows, planned, as_json=as_json)
    return 0


@command
def export(
    context: typer.Context,
    patches: Annotated[
        list[str] | None,
        argument("PATCH", PATCHES, default="all, if they share a pin", complete=patch_names),
    ] = None,
    output: Annotated[
        Path | None, option("FILE", "The mbox.", "--output", "-o", default="standard output")
    ] = None,
    alone: Annotated[bool, flag("--alone", "Leave out the patches that they depend on.")] = False,
    as_json: JsonOption = False,
) -> int:
    """Write patches as one mbox, for git am."""
    if as_json and output is None:
        raise UsageError(
            "--json takes standard output, where the export would go",
            hint="name its file: --output FILE",
        )
    queue = open_queue(context, *(patches or ()))
    names = select(queue, patches or (), everything=not patches)
    with live_lines() as lines:
        done = exports.export(queue, names, alone=alone, progress=lines.download())
    if done.conflicts:
        print_notes(view.conflict_text([conflict.side for conflict in done.conflicts]))
    else:
        content = exports.mbox(done.files)
        if output is None:
            sys.stdout.buffer.write(content)
            sys.stdout.buffer.flush()
        else:
            write_named(output, content)
        print_notes(view.export_lines(done))
    if as_json:
        print_json(view.ExportView.of(done, output))
    return 1 if done.conflicts else 0


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
        print_report(tree, view.edit_lines(tree), as_json=as_json)
        return 1 if tree.state == "changed" else 0
    key = worktree.whole_pin(queue, name)[0] if whole else name
    tree = worktree.abort(queue, key, force=force)
    if tree.state == "kept":
        print_notes(view.edit_lines(tree))
        if sys.stdin.isatty() and not as_json and _confirmed():
            tree = worktree.abort(queue, key, force=True)
        else:
            print_notes(["nothing was removed; --force removes it all the same"])
    if as_json:
        print_json(tree)
    elif tree.state == "removed":
        print_report(tree, view.edit_lines(tree), as_json=False)
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
    print_report(done, view.refresh_lines(done), as_json=as_json)
    _note_unlogged(queue)
    return 1 if done.refused else 0


def _note_unlogged(queue: Queue) -> None:
    """Say once that the operations of a queue outside git are not logged."""
    marker = queue.local / "not-in-git"
    if not marker.exists() and OperationLog.find(queue.folder) is None:
        marker.touch()
        print_notes(["operations and versions are not logged: the queue is in no git repository"])


def _print_arranged(queue: Queue, done: arrange.Arranged, *, as_json: bool) -> None:
    print_report(done, [done.done, f"order: {', '.join(done.order)}"], as_json=as_json)
    _note_unlogged(queue)


@command
def reorder(
    context: typer.Context,
    patch: PatchArgument,
    before: Annotated[
        str | None, option("PATCH", "The patch that follows it.", complete=patch_names)
    ] = None,
    after: AfterOption = None,
    as_json: JsonOption = False,
) -> None:
    """Move a patch to another place in the queue's order."""
    if before and after:
        raise UsageError("--before and --after do not go together", hint="leave one out")
    other = before or after
    queue, name = open_patch(context, patch)
    done = arrange.reorder(queue, name, other=other, before=bool(before))
    _print_arranged(queue, done, as_json=as_json)


@command
def mv(
    context: typer.Context,
    patch: PatchArgument,
    name: NameArgument,
    as_json: JsonOption = False,
) -> None:
    """Rename a patch. Its history moves with it; its records keep the old name there."""
    queue, old = open_patch(context, patch)
    done = arrange.rename(queue, old, name)
    _print_arranged(queue, done, as_json=as_json)


@command
def fold(
    context: typer.Context,
    patch: PatchArgument,
    into: Annotated[
        str, argument("PATCH", "The patch that gets its commits.", complete=patch_names)
    ],
    as_json: JsonOption = False,
) -> None:
    """Add the commits of a patch to those of another; it then leaves the queue."""
    with live_lines() as lines:
        queue, lower = open_patch(context, patch)
        done = arrange.fold(queue, lower, patch_name(queue, into), progress=lines.download())
    _print_arranged(queue, done, as_json=as_json)


@command
def split(
    context: typer.Context,
    patch: PatchArgument,
    name: NameArgument,
    paths: Annotated[
        list[str] | None, argument("PATH", "Files and folders of the upstream that go.")
    ] = None,
    start: Annotated[
        int | None, typer.Option("--from", metavar="N", min=2, help="The first commit that goes.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Move what a patch does to some files, or its last commits, into a new patch above it."""
    queue, lower = open_patch(context, patch)
    with live_lines() as lines:
        done = arrange.split(
            queue, lower, name, paths=paths or (), start=start or 0, progress=lines.download()
        )
    _print_arranged(queue, done, as_json=as_json)


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
        print_report(reversal, view.reversal_lines(reversal), as_json=as_json)
        return 0
    number = read_range(version)[0] if version else None
    with live_lines() as lines:
        queue, name = open_patch(context, patch)
        done = arrange.restore(queue, name, number, force=force, progress=lines.download())
    rows = view.refresh_lines(done)
    if done.refused:
        rows = [f"{patch}: {view.objection_words(name, each)}" for each in done.refused]
        rows += [f"  {broken.patch}: {clean(broken.why)}" for broken in done.broken]
        rows.append(f"{patch}: nothing was written; --force leaves them behind")
    print_report(done, rows, as_json=as_json)
    return 1 if done.refused else 0


@command
def log(
    context: typer.Context,
    patch: Annotated[
        str | None,
        argument(
            "PATCH",
            "Name of a patch, or its folder.",
            default="the operations of all",
            complete=patch_names,
        ),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Show the operations on the queue, newest first; of a patch also proofs and pull requests."""
    if patch is None:
        found = OperationLog.require(queue_folder(context)).operations()
        print_report(
            OperationList(operations=tuple(found)), view.operation_lines(found), as_json=as_json
        )
        return
    queue, name = open_past(context, patch)
    operations = OperationLog.find(queue.folder)
    past = view.PatchHistory(
        patch=name,
        events=tuple(history.read(queue.folder, name)),
        operations=tuple(operations.operations(name)) if operations else (),
    )
    print_report(past, view.log_lines(past), as_json=as_json)


@command
def diff(
    context: typer.Context,
    patch: PatchArgument,
    between: Annotated[
        str | None,
        argument(
            "[v1[..v2]]",
            "Versions, as `queue log` lists them. One: against the files as they are now. "
            "None: the last one.",
        ),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Compare versions of a patch commit by commit, whatever release each stands on."""
    queue, name = open_past(context, patch)
    done = range_diff(queue, name, *read_range(between))
    print_report(done, view.diff_lines(done), as_json=as_json)


def _read_pull(repository: str, number: int) -> bytes:
    """Return the commits of a pull request, as mails; nothing is said there."""
    from contribbot.github.client import connect  # noqa: PLC0415  only this asks GitHub

    with connect() as github:
        return github.diff(repository, number, commits=True)


def _read_stdin() -> bytes:
    if sys.stdin.isatty():
        raise UsageError(
            "-: standard input is a terminal",
            hint="name an mbox, a folder of patches, or a clone and a range",
        )
    return sys.stdin.buffer.read()
