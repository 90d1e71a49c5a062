"""`contribbot edit`, `refresh`, `undo`, and the commands of `queue`, but `list` and `retire`."""

from __future__ import annotations

import operator
import shlex
from pathlib import Path
from typing import Final

from contribbot.cli import command as cli
from contribbot.cli.refusal import current_settings, echo
from contribbot.cli.render import Block, Code, Table, conflict_blocks, count
from contribbot.errors import UsageError
from contribbot.files import write_named
from contribbot.model.base import Model
from contribbot.queue import arrange, exchange, history, worktree
from contribbot.queue.arrange import range_diff, read_range
from contribbot.queue.history import Event
from contribbot.queue.refresh import Refreshed
from contribbot.queue.refresh import refresh as save
from contribbot.queue.transaction import Operation, OperationList, OperationLog
from contribbot.queue.worktree import EditedTree, LossKind

_TIME: Final = "%Y-%m-%d %H:%M"
_UNSAVED: Final = "With --abort: also changes that refresh has not saved."
_ABOVE: Final = "Also when patches on top no longer apply."
_ANYWAY: Final = f"{_ABOVE[:-1]}, the queue has moved on, or marks of a conflict are in it."


@cli.command("edit rmsnorm --at ../rmsnorm")
def edit(
    patch: str = cli.PATCH,
    at: Path | None = cli.option(
        None, "DIR", "Where the work tree goes.", default=".contribbot/edit/PATCH of the queue"
    ),
    abort: bool = cli.flag("--abort", "Remove the work tree."),
    force: bool = cli.flag("--force", _UNSAVED),
) -> cli.Reply:
    """Open a patch as commits in a git work tree of its own; `refresh` saves them in the patch."""
    queue, name = cli.open_queue(), Path(patch).name
    if abort and at is not None:
        raise UsageError("--abort and --at do not go together", hint="leave --at out")
    if force and not abort:
        raise UsageError("--force is for --abort", hint="leave it out")
    if not abort:
        with cli.live_lines() as lines:
            tree = worktree.open_tree(queue, name, at=at, progress=lines.download())
        return cli.Reply(tree, edit_lines(tree), int(tree.state == "changed"))
    tree = worktree.abort(queue, name, force=force)
    if tree.state == "kept":
        return cli.Reply(tree, (), 1, edit_lines(tree))
    return cli.Reply(tree, edit_lines(tree))


@cli.command("refresh rmsnorm")
def refresh(
    patch: str | None = cli.MAYBE_PATCH,
    force: bool = cli.flag("--force", _ANYWAY),
) -> cli.Reply:
    """Save a patch's work tree in the queue, committed or not, as a new version.

    Without PATCH: the work tree around the current folder.
    """
    tree = worktree.enclosing_tree(Path.cwd())
    name = Path(patch).name if patch else tree.state.key if tree else ""
    if not name:
        why = "no patch named, and this is not the work tree of one"
        raise UsageError(why, hint="name the patch")
    queue = cli.open_queue()
    with cli.live_lines() as lines:
        done = save(queue, name, force=force, progress=lines.download())
    return cli.Reply(done, refresh_lines(done), int(bool(done.refused)))


@cli.command("undo rmsnorm v1")
def undo(
    patch: str | None = cli.MAYBE_PATCH,
    version: str | None = cli.argument(
        "VERSION", "With a patch: a version, as `queue log` lists them: v2.", None
    ),
    force: bool = cli.flag("--force", _ABOVE),
) -> cli.Reply:
    """Take back the last operation on the queue, whole; `undo` again brings the operation back.

    With a patch and a version: give the patch the files of that version.
    """
    if patch is None:
        reversal = arrange.undo(cli.queue_folder())
        files = count(len(reversal.files), "file")
        again = "`contribbot undo` again brings it back; `contribbot queue log` lists all"
        return cli.Reply(reversal, [f"taken back: {reversal.operation} ({files})", again])
    queue, name = cli.open_patch(patch)
    number, _ = read_range(version)
    if number is None:
        raise UsageError(
            f"{name}: name the version to bring back", hint=f"contribbot queue log {name}"
        )
    with cli.live_lines() as lines:
        done = arrange.restore(queue, name, number, force=force, progress=lines.download())
    last = "nothing was written; --force leaves them behind"
    rows = refusal_lines(done, last) if done.refused else refresh_lines(done)
    return cli.Reply(done, rows, int(bool(done.refused)))


_DRIFTS: Final[dict[str, str]] = {
    "base": "what {} stands on (its pin, or a patch below it) has changed since",
    "files": "the files of {} were changed since, by something else than refresh",
}
#: Why a refresh is refused, for its name and the subject of the objection.
_OBJECTIONS: Final[dict[str, str]] = {
    **_DRIFTS,
    "marks": "the commit {1} adds the marks of a conflict, as git leaves them (<<<<<<<)",
    "conflict": "{1} depends on it, and conflicts with it now",
}
_LOSSES: Final[dict[LossKind, str]] = {
    "unfinished": "an unfinished git {}",
    "uncommitted": "{} (not committed)",
    "untracked": "{} (not in git)",
    "commit": "commit {}",
}


def edit_lines(tree: EditedTree) -> list[Block]:
    """Return lines on a patch's work tree: path, commits and next commands, or unsaved changes."""
    name, path = tree.patch, tree.path or ""
    if tree.state == "removed":
        return [f"{name}: the work tree is removed"]
    if tree.state == "kept":
        lost = (f"  {_LOSSES[loss.kind].format(loss.subject)}" for loss in tree.lost)
        last = "nothing was removed; --force removes it all the same"
        return [f"{name}: {path} holds changes that refresh has not saved:", *lost, last]
    fresh = tree.state == "opened"
    lines = [f"{name} is open in {path}" if fresh else f"{name} is open already, in {path}"]
    lines += [f"  {entry.commit[:12]}  {entry.subject}" for entry in tree.commits]
    if tree.drift:
        return [
            *lines,
            f"{_DRIFTS[tree.drift].format(name)}.",
            Code(f"  contribbot refresh --force {name}   # save the tree all the same"),
            Code(f"  contribbot edit --abort {name}      # remove the tree, to open it anew"),
        ]
    base, drop = (tree.base_commit or "")[:12], f"contribbot edit --abort {name}"
    return [
        *lines,
        f"Change files there, or commits with plain git (git rebase -i {base})."
        if tree.commits
        else "Change files there, and commit the change (git commit -a).",
        Code(f"  cd {shlex.quote(path)}"),
        f"  {'contribbot refresh':<{len(drop)}}   # save it in the patch, as often as you like",
        f"  {drop}   # remove the tree when you are done",
    ]


def refusal_lines(done: Refreshed, last: str) -> list[Block]:
    """Return lines on why a refresh is refused, and on patches that the refresh would break."""
    name = done.patch
    return [
        *(f"{name}: {_OBJECTIONS[each.code].format(name, each.subject)}" for each in done.refused),
        *(f"  {broken.patch}: {broken.why}" for broken in done.broken),
        f"{name}: {last}",
    ]


def refresh_lines(done: Refreshed) -> list[Block]:
    """Return lines on the changes that `refresh` saved, refused to save, or left out."""
    name = done.patch
    left_out = "is in no commit; to save it: git add, git commit"
    lines: list[Block] = [f"{name}: {path} {left_out}" for path in done.left_out]
    if done.amended:
        paths = ", ".join(done.amended)
        lines.append(f"{name}: uncommitted changes in {paths} went into the last commit")
    if done.refused:
        last = f"nothing was written; `refresh --force {name}` saves it all the same"
        then = f"(git add, git cherry-pick --continue), then: contribbot refresh {name}"
        conflict = [f"Resolve the conflict in {done.resolve} {then}"] if done.resolve else []
        return [*lines, *refusal_lines(done, last), *conflict]
    if not done.changed:
        return [*lines, f"{name}: nothing has changed"]
    if done.open_tree:
        lines.append(
            f"{name}: the tree at {done.open_tree} is as it was: the next refresh saves that; "
            f"`contribbot edit --abort {name}` drops it"
        )
    version = f" as v{done.version}" if done.version else ""
    did, last = "saved", f"Prove it with `contribbot verify {name}`."
    if done.restored:
        did = f"v{done.restored} is back"
        last = f"`contribbot status {name}` shows whether it is still proved."
    return [
        *lines,
        f"{name}: {did}{version}, {count(len(done.patch_files), 'commit')}",
        *(f"  {file}" for file in done.patch_files),
        *(f"{name}: added to `files` of patch.toml: {path}" for path in done.files_added),
        *(f"{name}: taken out of `files` of patch.toml: {path}" for path in done.files_removed),
        *(f"{other}: carried along, merged onto it" for other in done.carried),
        *(f"{broken.patch}: no longer applies: {broken.why}" for broken in done.broken),
        last,
    ]


@cli.command("queue export rmsnorm --output rmsnorm.mbox")
def export(
    patches: list[str] | None = cli.PATCHES,
    output: Path | None = cli.option(
        None, "FILE", "The mbox.", "--output", "-o", default="standard output"
    ),
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
    notes = [f"{', '.join(done.patches)}: {count(len(done.commits), 'commit')} for {done.pin}"]
    notes += [f"  with {', '.join(done.added)}, on which they depend"] if done.added else []
    if any(b"\r\n" in file.content for file in done.files):
        notes.append("  it has CRLF line ends: git am --keep-cr keeps them")
    if output is None:
        echo(exchange.mbox(done.files).removesuffix(b"\n"))
        return cli.Reply(done, (), notes=notes)
    write_named(output, exchange.mbox(done.files))
    return cli.Reply(done.model_copy(update={"output": str(output)}), (), notes=notes)


def _arranged(done: arrange.Arranged) -> cli.Reply:
    return cli.Reply(done, [done.done, f"order: {', '.join(done.order)}"])


@cli.command("queue reorder rmsnorm --before hipify-path")
def reorder(
    patch: str = cli.PATCH,
    before: str | None = cli.option(None, "PATCH", "The patch that follows it."),
    after: str | None = cli.option(None, "PATCH", "The patch that it follows.", default="the last"),
) -> cli.Reply:
    """Move a patch to another place in the queue's order."""
    if before and after:
        raise UsageError("--before and --after do not go together", hint="leave one out")
    queue, name = cli.open_patch(patch)
    return _arranged(arrange.reorder(queue, name, other=before or after, before=bool(before)))


@cli.command("queue mv rmsnorm aiter-layout")
def mv(patch: str = cli.PATCH, name: str = cli.NAME) -> cli.Reply:
    """Rename a patch. Its history moves with it; its records keep the old name there."""
    queue, old = cli.open_patch(patch)
    return _arranged(arrange.rename(queue, old, name))


@cli.command("queue fold fixup rmsnorm")
def fold(
    patch: str = cli.PATCH,
    into: str = cli.argument("PATCH", "The patch that gets its commits."),
) -> cli.Reply:
    """Add one patch's commits to another patch, and take the first patch out of the queue."""
    queue, name = cli.open_patch(patch)
    with cli.live_lines() as lines:
        return _arranged(arrange.fold(queue, name, into, progress=lines.download()))


@cli.command("queue split rmsnorm rmsnorm-tests test/registered")
def split(
    patch: str = cli.PATCH,
    name: str = cli.NAME,
    paths: list[str] | None = cli.argument(
        "PATH", "Files and folders of the upstream that go.", None
    ),
    start: int | None = cli.option(None, "N", "The first commit that goes.", "--from", least=2),
) -> cli.Reply:
    """Move what a patch does to some files, or its last commits, into a new patch above it."""
    queue, lower = cli.open_patch(patch)
    with cli.live_lines() as lines:
        progress, paths = lines.download(), paths or []
        done = arrange.split(queue, lower, name, paths=paths, start=start or 0, progress=progress)
    return _arranged(done)


class PatchHistory(Model):
    """The document of `queue log PATCH --json`."""

    patch: str
    events: tuple[Event, ...]
    operations: tuple[Operation, ...] = ()


@cli.command("queue log rmsnorm")
def log(patch: str | None = cli.MAYBE_PATCH) -> cli.Reply:
    """Show all operations, newest first; of a patch also proofs and pull requests, newest last."""
    rows: list[tuple[str, ...]]
    if patch is None:
        operations = tuple(OperationLog.require(cli.queue_folder()).operations())
        rows = [
            (f"{done.time:{_TIME}}", done.commit[:8], done.summary, ", ".join(done.patches))
            for done in operations
        ]
        blocks = [Table(rows) if rows else "no operation is logged yet"]
        return cli.Reply(OperationList(operations=operations), blocks)
    queue, name = cli.open_past(patch)
    operation_log = OperationLog.find(queue.folder)
    past = PatchHistory(
        patch=name,
        events=tuple(history.read(queue.folder, name)),
        operations=tuple(operation_log.operations(name)) if operation_log else (),
    )
    rows = [(f"{event.time:{_TIME}}", event.event, event.summary) for event in past.events]
    rows += [
        (f"{done.time:{_TIME}}", "operation", done.summary) for done in reversed(past.operations)
    ]
    rows.sort(key=operator.itemgetter(0))
    return cli.Reply(past, [Table(rows) if rows else f"{name}: nothing is recorded yet"])


@cli.command("queue diff rmsnorm v1..v2")
def diff(
    patch: str = cli.PATCH,
    between: str | None = cli.argument(
        "[v1[..v2]]",
        "Versions, as `queue log` lists them. One: against the files as they are now. "
        "None: the last one.",
        None,
    ),
) -> cli.Reply:
    """Compare versions of a patch commit by commit, whatever release each stands on."""
    queue, name = cli.open_past(patch)
    done = range_diff(queue, name, *read_range(between))
    if done.same:
        return cli.Reply(done, [f"{done.patch}: {done.old} and {done.new} are the same"])
    head = f"{done.patch}: {done.old} against {done.new}"
    return cli.Reply(done, [head, *map(Code, done.range_diff.splitlines())])
