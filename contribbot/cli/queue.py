"""The commands of `contribbot queue`, except `list` and `retire`."""

from __future__ import annotations

import operator
from pathlib import Path
from typing import Annotated

import typer

from contribbot.cli import command as cli
from contribbot.cli.refusal import current_settings, echo
from contribbot.cli.render import Block, Code, Table, conflict_blocks, count
from contribbot.errors import UsageError
from contribbot.files import write_named
from contribbot.model.base import Model
from contribbot.queue import arrange, exchange, history
from contribbot.queue.arrange import range_diff, read_range
from contribbot.queue.exchange import Export
from contribbot.queue.history import Event
from contribbot.queue.transaction import Operation, OperationList, OperationLog


@cli.command("queue export rmsnorm --output rmsnorm.mbox")
def export(
    patches: cli.PatchesArgument = None,
    output: Annotated[
        Path | None, cli.option("FILE", "The mbox.", "--output", "-o", default="standard output")
    ] = None,
) -> cli.Reply | int:
    """Write patches as one mbox, for git am."""
    as_json = current_settings().as_json
    if as_json and output is None:
        why = "--json takes standard output, where the export would go"
        raise UsageError(why, hint="name its file: --output FILE")
    queue, names = cli.open_patches(patches)
    with cli.live_lines() as lines:
        done = exchange.export(queue, names, progress=lines.download())
    if done.conflicts:
        return cli.Reply(done, (), 1, conflict_blocks(done.conflicts))
    if output is None:
        echo(exchange.mbox(done.files).removesuffix(b"\n"))
        return cli.Reply(done, (), notes=export_lines(done))
    write_named(output, exchange.mbox(done.files))
    document = done.model_copy(update={"output": str(output)})
    return cli.Reply(document, (), notes=export_lines(done))


def export_lines(done: Export) -> list[Block]:
    """Return lines on the patches and commits of an export."""
    lines = [f"{', '.join(done.patches)}: {count(len(done.commits), 'commit')} for {done.pin}"]
    if done.added:
        lines.append(f"  with {', '.join(done.added)}, on which they depend")
    if any(b"\r\n" in file.content for file in done.files):
        lines.append("  it has CRLF line ends: git am --keep-cr keeps them")
    return [*lines]


def _arranged(done: arrange.Arranged) -> cli.Reply:
    return cli.Reply(done, [done.done, f"order: {', '.join(done.order)}"])


@cli.command("queue reorder rmsnorm --before hipify-path")
def reorder(
    patch: cli.PatchArgument,
    before: Annotated[
        str | None, cli.option("PATCH", "The patch that follows it.", complete=cli.patch_names)
    ] = None,
    after: Annotated[
        str | None,
        cli.option(
            "PATCH", "The patch that it follows.", default="the last", complete=cli.patch_names
        ),
    ] = None,
) -> cli.Reply:
    """Move a patch to another place in the queue's order."""
    if before and after:
        raise UsageError("--before and --after do not go together", hint="leave one out")
    queue, name = cli.open_patch(patch)
    done = arrange.reorder(queue, name, other=before or after, before=bool(before))
    return _arranged(done)


@cli.command("queue mv rmsnorm aiter-layout")
def mv(patch: cli.PatchArgument, name: cli.NameArgument) -> cli.Reply:
    """Rename a patch. Its history moves with it; its records keep the old name there."""
    queue, old = cli.open_patch(patch)
    return _arranged(arrange.rename(queue, old, name))


@cli.command("queue fold fixup rmsnorm")
def fold(
    patch: cli.PatchArgument,
    into: Annotated[
        str, cli.argument("PATCH", "The patch that gets its commits.", complete=cli.patch_names)
    ],
) -> cli.Reply:
    """Add one patch's commits to another patch, and take the first patch out of the queue."""
    queue, name = cli.open_patch(patch)
    with cli.live_lines() as lines:
        done = arrange.fold(queue, name, into, progress=lines.download())
    return _arranged(done)


@cli.command("queue split rmsnorm rmsnorm-tests test/registered")
def split(
    patch: cli.PatchArgument,
    name: cli.NameArgument,
    paths: Annotated[
        list[str] | None, cli.argument("PATH", "Files and folders of the upstream that go.")
    ] = None,
    start: Annotated[
        int | None, typer.Option("--from", metavar="N", min=2, help="The first commit that goes.")
    ] = None,
) -> cli.Reply:
    """Move what a patch does to some files, or its last commits, into a new patch above it."""
    queue, lower = cli.open_patch(patch)
    with cli.live_lines() as lines:
        done = arrange.split(
            queue, lower, name, paths=paths or (), start=start or 0, progress=lines.download()
        )
    return _arranged(done)


@cli.command("queue log rmsnorm")
def log(patch: cli.MaybePatchArgument = None) -> cli.Reply:
    """Show the operations on the queue, newest first; of a patch also proofs and pull requests."""
    if patch is None:
        found = OperationList(
            operations=tuple(OperationLog.require(cli.queue_folder()).operations())
        )
        rows = [
            (_minute(done), done.commit[:8], done.summary, ", ".join(done.patches))
            for done in found.operations
        ]
        return cli.Reply(found, [Table(rows) if rows else "no operation is logged yet"])
    queue, name = cli.open_past(patch)
    operations = OperationLog.find(queue.folder)
    past = PatchHistory(
        patch=name,
        events=tuple(history.read(queue.folder, name)),
        operations=tuple(operations.operations(name)) if operations else (),
    )
    events: list[tuple[str, str, str]] = [
        (_minute(event), event.event, event.summary) for event in past.events
    ]
    events += [(_minute(done), "operation", done.summary) for done in reversed(past.operations)]
    events.sort(key=operator.itemgetter(0))
    return cli.Reply(past, [Table(events) if events else f"{name}: nothing is recorded yet"])


def _minute(entry: Event | Operation) -> str:
    return f"{entry.time:%Y-%m-%d %H:%M}"


class PatchHistory(Model):
    """The document of `queue log PATCH --json`."""

    patch: str
    events: tuple[Event, ...]
    operations: tuple[Operation, ...] = ()


_VERSIONS = (
    "Versions, as `queue log` lists them. One: against the files as they are now. "
    "None: the last one."
)


@cli.command("queue diff rmsnorm v1..v2")
def diff(
    patch: cli.PatchArgument,
    between: Annotated[str | None, cli.argument("[v1[..v2]]", _VERSIONS)] = None,
) -> cli.Reply:
    """Compare versions of a patch commit by commit, whatever release each stands on."""
    queue, name = cli.open_past(patch)
    done = range_diff(queue, name, *read_range(between))
    if done.same:
        return cli.Reply(done, [f"{done.patch}: {done.old} and {done.new} are the same"])
    head = f"{done.patch}: {done.old} against {done.new}"
    return cli.Reply(done, [head, *map(Code, done.range_diff.splitlines())])
