"""The commands that look at the queue's patches and change them."""

from __future__ import annotations

import functools
import operator
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

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
from contribbot.cli.edit import note_unlogged
from contribbot.cli.render import Block, Code, Table, clean, count, side_blocks
from contribbot.errors import UsageError
from contribbot.files import write_named
from contribbot.model.base import Model
from contribbot.model.history import Event
from contribbot.model.lifecycle import ConflictSide
from contribbot.queue import arrange, history
from contribbot.queue import export as exports
from contribbot.queue.export import Export
from contribbot.queue.import_ import Imported, import_sources, pull_in, pull_of
from contribbot.queue.load import Queue, patch_name, select
from contribbot.queue.new import Draft, Wish, create, settle
from contribbot.queue.operations import Operation, OperationList, OperationLog
from contribbot.queue.range_diff import VersionDiff, range_diff, read_range

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
    issue: Annotated[
        str,
        option(
            "N", "The issue that it fixes; shows the pull requests that it links, closed ones, too."
        ),
    ] = "",
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
    wish = Wish(name, title, pin, tuple(depends_on or ()), after, issue)
    document: NewPatch | Imported
    rows: list[Block]
    with live_lines() as lines, rehearsed(dry_run) as planned:
        queue = open_queue(context)
        linked = _read_linked(queue, wish) if issue else []
        if from_finding:
            from contribbot.sweep.new_patch import create_from  # noqa: PLC0415  start-up time

            draft = create_from(queue, wish, from_finding)
        elif not source:
            draft = create(queue, wish)
        if not source:
            document, rows = NewPatch.of(draft), [*new_lines(draft)]
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
                print_report(done, import_lines(done), as_json=as_json)
                return 1
            document, rows = done, import_lines(done)
    print_change(document, [*rows, *linked], planned, as_json=as_json)
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
        print_notes(conflict_text([conflict.side for conflict in done.conflicts]))
    else:
        content = exports.mbox(done.files)
        if output is None:
            sys.stdout.buffer.write(content)
            sys.stdout.buffer.flush()
        else:
            write_named(output, content)
        print_notes(export_lines(done))
    if as_json:
        print_json(ExportView.of(done, output))
    return 1 if done.conflicts else 0


def _print_arranged(queue: Queue, done: arrange.Arranged, *, as_json: bool) -> None:
    print_report(done, [done.done, f"order: {', '.join(done.order)}"], as_json=as_json)
    note_unlogged(queue)


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
            OperationList(operations=tuple(found)), operation_lines(found), as_json=as_json
        )
        return
    queue, name = open_past(context, patch)
    operations = OperationLog.find(queue.folder)
    past = PatchHistory(
        patch=name,
        events=tuple(history.read(queue.folder, name)),
        operations=tuple(operations.operations(name)) if operations else (),
    )
    print_report(past, log_lines(past), as_json=as_json)


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
    print_report(done, diff_lines(done), as_json=as_json)


def _read_pull(repository: str, number: int) -> bytes:
    """Return the commits of a pull request, as mails; nothing is said there."""
    from contribbot.github.client import connect  # noqa: PLC0415  only this asks GitHub

    with connect() as github:
        return github.diff(repository, number, commits=True)


def _read_linked(queue: Queue, wish: Wish) -> list[str]:
    """Return the pull requests that an issue links, as lines, with a maintainer's last words."""
    from contribbot.cli.contribute import candidate_lines  # noqa: PLC0415  only this asks GitHub
    from contribbot.contribute.duplicates import (  # noqa: PLC0415  as above
        candidate_of,
        linked_pulls,
        with_end,
    )
    from contribbot.github.client import connect  # noqa: PLC0415  as above

    draft = settle(queue, wish)
    with connect() as github:
        found = linked_pulls(github, draft.issue, queue.upstreams[draft.pin.upstream].repository)
        pulls = [with_end(github, candidate_of(item, draft.issue)) for item in found.values()]
    if not pulls:
        return [f"  no pull request is linked from {draft.issue}"]
    rows = [f"{draft.issue} links:", *(row for pull in pulls for row in candidate_lines(pull))]
    way = f'contribbot gate {draft.name} --different OWNER/REPO#N="WHY"'
    return [*rows, f"say why this one is different: {way}"]


def _read_stdin() -> bytes:
    if sys.stdin.isatty():
        raise UsageError(
            "-: standard input is a terminal",
            hint="name an mbox, a folder of patches, or a clone and a range",
        )
    return sys.stdin.buffer.read()


def conflict_text(conflicts: Sequence[ConflictSide]) -> list[Block]:
    """Return each conflict in one line, with the three sides of its hunk below it."""
    return [row for side in conflicts for row in side_blocks(side, base="the pin")]


def import_lines(done: Imported) -> list[Block]:
    """Return what an import did, as lines."""
    same = [f"  identical to {name}, whose change it makes" for name in done.same_as]
    if done.conflicts:
        last = f"{done.patch}: not imported, nothing was written"
        return [*conflict_text(done.conflicts), *same, last]
    lines = [f"{done.patch}: {count(len(done.patch_files), 'commit')} on {done.pin}"]
    lines += [f"  {clean(name)}" for name in done.patch_files]
    if done.adjustments:
        lines.append(f"  not exactly: {clean('; '.join(done.adjustments))}")
    if done.rewritten:
        lines.append(
            f"  written anew, as git writes them: {len(done.rewritten)} of {len(done.patch_files)}"
        )
    if done.merged:
        lines.append(f"  merged with what the pin has: {clean(', '.join(done.merged))}")
    lines += same
    check = f"patches/{done.patch}/checks/test_red.py"
    lines.append(f"  write the check {check}, and run it: contribbot check {done.patch}")
    return [*lines, *_next(done.patch)]


class ExportView(Model):
    """The document of `queue export --json`."""

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
    """The document of `new --json` for an empty patch."""

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
    """The document of `queue log --json`."""

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


def diff_lines(done: VersionDiff) -> list[str]:
    """Return a comparison as lines for a terminal."""
    if done.same:
        return [f"{done.patch}: {done.old} and {done.new} are the same"]
    rows = done.range_diff.splitlines()
    return [
        f"{done.patch}: {done.old} against {done.new}",
        *map(Code, rows),
    ]
