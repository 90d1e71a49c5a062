"""The commands that look at the queue's patches and change them."""

from __future__ import annotations

import enum
import shutil
import sys
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from contribbot.cli.command import (
    JsonOption,
    PatchArgument,
    command,
    live_lines,
    open_queue,
    print_json,
    print_notes,
    print_report,
    settings_of,
)
from contribbot.cli.show_queue import (
    PatchHistory,
    PatchList,
    PatchView,
    conflict_text,
    diff_lines,
    edit_lines,
    export_lines,
    import_lines,
    new_lines,
    refresh_lines,
)
from contribbot.cli.text import clean
from contribbot.errors import UsageError
from contribbot.queue import arrange, history, worktree
from contribbot.queue.export import export_bytes, write_export
from contribbot.queue.import_ import Given, import_sources
from contribbot.queue.load import load_queue, patch_name, select
from contribbot.queue.new import Wish, create
from contribbot.queue.range_diff import range_diff, read_range
from contribbot.queue.refresh import refresh as take_back


@command
def list_patches(context: typer.Context, as_json: JsonOption = False) -> int:
    """List the patches of the queue, in its order."""
    listed = PatchList.of(open_queue(context))
    print_report(listed, listed.lines(), as_json=as_json)
    return 0


@command
def show(context: typer.Context, patch: PatchArgument, as_json: JsonOption = False) -> int:
    """Show what a patch is for, what it touches and what proves it."""
    queue = open_queue(context, patch)
    view = PatchView.of(queue.patch(select(queue, [patch])[0]))
    width = max(20, min(100, shutil.get_terminal_size().columns))
    print_report(view, view.lines(width=width), as_json=as_json)
    return 0


NameArgument = Annotated[str, typer.Argument(help="The new patch's name: a-z, 0-9, . _ -")]
UpstreamOption = Annotated[
    str | None,
    typer.Option(metavar="NAME", help="Its upstream.", show_default="that of the only pin"),
]
PinOption = Annotated[
    str | None,
    typer.Option(metavar="TAG", help="The tag of its pin.", show_default="the only pin"),
]
DependsOption = Annotated[
    list[str] | None,
    typer.Option("--depends-on", metavar="NAME", help="A patch below it; may be repeated."),
]
AfterOption = Annotated[
    str | None,
    typer.Option(metavar="NAME", help="The patch that it follows.", show_default="the last"),
]

AuthorOption = Annotated[
    str, typer.Option(metavar="'NAME <ADDRESS>'", help="Who wrote patches that do not say it.")
]


@command
def new(
    context: typer.Context,
    name: NameArgument,
    title: Annotated[
        str,
        typer.Option(
            help="The title of its pull request.", show_default="the first commit's subject"
        ),
    ] = "",
    upstream: UpstreamOption = None,
    pin: PinOption = None,
    depends_on: DependsOption = None,
    after: AfterOption = None,
    from_commit: Annotated[
        str | None,
        typer.Option(metavar="SHA", help="Begin with this commit of --clone; A..B: with several."),
    ] = None,
    from_branch: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Begin with this branch's commits above the pin."),
    ] = None,
    clone: Annotated[
        Path | None, typer.Option(metavar="PATH", help="The clone that these are in.")
    ] = None,
    from_file: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Begin with a mail, mbox or patch file.")
    ] = None,
    author: AuthorOption = "",
) -> int:
    """Begin a patch: its folder, a patch.toml to fill in, its place in the order.

    From commits it begins a check, too, and takes the problem from the message.
    """
    wish = Wish(name, title, upstream, pin, tuple(depends_on or ()), after)
    starts = [start for start in (from_commit, from_branch, from_file) if start]
    if len(starts) > 1 or bool(clone) is not bool(from_commit or from_branch):
        raise UsageError(
            "begin with one of --from-commit, --from-branch (both with --clone) and --from-file",
            hint="contribbot new NAME --from-commit SHA --clone PATH",
        )
    if not starts and not title:
        raise UsageError(
            "a patch without commits needs a title",
            hint="give --title, or --from-commit, --from-branch, --from-file",
        )
    if not starts:
        for line in new_lines(create(open_queue(context), wish)):
            typer.echo(line)
        return 0
    commits = (
        from_commit if not from_commit or ".." in from_commit else f"{from_commit}~..{from_commit}"
    )
    with live_lines(stderr=True) as lines:
        done = import_sources(
            open_queue(context),
            replace(wish, begin=True),
            [str(clone), commits or from_branch or ""] if clone else [str(from_file)],
            stdin=_read_stdin,
            given=Given(author, title),
            progress=lines.download(),
        )
    print_report(done, import_lines(done, begun=True), as_json=False)
    return 1 if done.conflicts else 0


class Form(enum.StrEnum):
    """What can be written."""

    MBOX = "mbox"
    QUILT = "quilt"
    DIFF = "diff"


@command
def export(
    context: typer.Context,
    patches: Annotated[
        list[str] | None,
        typer.Argument(help="Names of patches of one pin.", show_default="all"),
    ] = None,
    form: Annotated[
        Form,
        typer.Option(
            "--format", help="mbox: for git am; quilt: a folder with a series; diff: one diff."
        ),
    ] = Form.MBOX,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output", "-o", metavar="PATH", help="The file, or quilt's folder.",
            show_default="standard output",
        ),
    ] = None,
    alone: Annotated[
        bool, typer.Option("--alone", help="Leave out the patches that they depend on.")
    ] = False,
) -> int:  # fmt: skip
    """Write patches for other programs: git am, stg import, quilt, git apply."""
    queue = open_queue(context, *(patches or ()))
    names = select(queue, patches or (), everything=not patches)
    with live_lines(stderr=True) as lines:
        done, files = export_bytes(queue, names, form.value, alone=alone, progress=lines.download())
    if done.conflicts:
        print_notes(conflict_text([conflict.side for conflict in done.conflicts]))
        return 1
    write_export(files, output, stdout=sys.stdout.buffer)
    print_notes(export_lines(done, form.value))
    return 0


@command
def edit(
    context: typer.Context,
    patch: PatchArgument,
    at: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR", help="Where the work tree goes.",
            show_default=".contribbot/edit/NAME of the queue",
        ),
    ] = None,
    whole: Annotated[
        bool, typer.Option("--all", help="All patches of its pin, on one branch.")
    ] = False,
    abort: Annotated[bool, typer.Option("--abort", help="Remove the work tree.")] = False,
    force: Annotated[
        bool,
        typer.Option("--force", help="With --abort: also what refresh has not taken."),
    ] = False,
    as_json: JsonOption = False,
) -> int:  # fmt: skip
    """Open a patch as commits in a git work tree of its own; `refresh` takes them back."""
    queue = open_queue(context, patch)
    name = patch_name(queue, patch)
    if abort and at is not None:
        raise UsageError("--abort and --at do not go together", hint="leave --at out")
    if force and not abort:
        raise UsageError("--force is for --abort", hint="leave it out")
    if not abort:
        with live_lines(stderr=True) as lines:
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
            typer.echo("nothing was removed; --force removes it all the same", err=True)
    if as_json:
        print_json(tree)
    elif tree.state == "removed":
        print_report(tree, edit_lines(tree), as_json=False)
    return 1 if tree.state == "kept" else 0


def _confirmed() -> bool:
    """Ask; the end of the input is a no."""
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
        typer.Argument(
            help="Name of a patch, or its folder.",
            show_default="the one whose work tree this folder is in",
        ),
    ] = None,
    force: Annotated[
        bool,
        typer.Option(
            "--force",
            help="Also when patches on top no longer apply, the queue has moved on, or "
            "marks of a conflict are in it.",
        ),
    ] = False,
    as_json: JsonOption = False,
) -> int:
    """Take a patch's work tree back into the queue, committed or not, as a new version."""
    tree = worktree.enclosing_tree(Path.cwd())
    if tree is None and patch is None:
        raise UsageError("no patch named, and this is no work tree of one", hint="name the patch")
    # A tree may be anywhere (`edit --at`); it says where its queue was when it was made.
    home = Path(tree.state.queue) if tree is not None and tree.state.queue else None
    known = home is not None and (home / "patches" / "queue.toml").is_file()
    if home is not None and known and settings_of(context).queue is None:
        queue = load_queue(home)
    else:
        queue = open_queue(context, *([patch] if patch else []))
    name = patch_name(queue, patch) if patch else tree.state.key if tree else ""
    with live_lines(stderr=True) as lines:
        done = take_back(queue, name, force=force, progress=lines.download())
    print_report(done, refresh_lines(done), as_json=as_json)
    return 1 if done.refused else 0


def _print_arranged(done: arrange.Arranged, *, as_json: bool) -> int:
    print_report(done, [done.done, f"order: {', '.join(done.order)}"], as_json=as_json)
    return 0


@command
def reorder(
    context: typer.Context,
    patch: PatchArgument,
    before: Annotated[
        str | None, typer.Option(metavar="NAME", help="The patch that follows it.")
    ] = None,
    after: AfterOption = None,
    as_json: JsonOption = False,
) -> int:
    """Put a patch elsewhere in the queue's order."""
    if before and after:
        raise UsageError("--before and --after do not go together", hint="leave one out")
    other = before or after
    done = arrange.reorder(open_queue(context), patch, other=other, before=bool(before))
    return _print_arranged(done, as_json=as_json)


@command
def mv(
    context: typer.Context, patch: PatchArgument, name: NameArgument, as_json: JsonOption = False
) -> int:
    """Give a patch another name. Its history goes along; its records keep the old name there."""
    return _print_arranged(arrange.rename(open_queue(context), patch, name), as_json=as_json)


@command
def fold(
    context: typer.Context,
    patch: PatchArgument,
    into: Annotated[str, typer.Argument(help="The patch that gets its commits.")],
    as_json: JsonOption = False,
) -> int:
    """Put the commits of a patch behind those of another; it then leaves the queue."""
    with live_lines(stderr=True) as lines:
        done = arrange.fold(open_queue(context), patch, into, progress=lines.download())
    return _print_arranged(done, as_json=as_json)


@command
def split(
    context: typer.Context,
    patch: PatchArgument,
    name: NameArgument,
    paths: Annotated[
        list[str] | None, typer.Argument(help="Files and folders of the upstream that go.")
    ] = None,
    start: Annotated[
        int | None, typer.Option("--from", metavar="N", min=2, help="The first commit that goes.")
    ] = None,
    as_json: JsonOption = False,
) -> int:
    """Take what a patch does to some files, or its last commits, into a new patch above it."""
    queue = open_queue(context)
    with live_lines(stderr=True) as lines:
        done = arrange.split(
            queue, patch, name, paths=paths or (), start=start or 0, progress=lines.download()
        )
    return _print_arranged(done, as_json=as_json)


ForceOption = Annotated[
    bool, typer.Option("--force", help="Also when patches on top no longer apply.")
]


@command
def restore(
    context: typer.Context,
    patch: PatchArgument,
    version: Annotated[str, typer.Argument(help="A version, as `log` lists them: v2.")],
    force: ForceOption = False,
    as_json: JsonOption = False,
) -> int:
    """Give a patch the files of a version, as a new version."""
    number = read_range(version)[0]
    return _restored(context, patch, number, force=force, as_json=as_json)


@command
def undo(
    context: typer.Context,
    patch: PatchArgument,
    force: ForceOption = False,
    as_json: JsonOption = False,
) -> int:
    """Give a patch the files that it had before its last change; again: those after it."""
    return _restored(context, patch, None, force=force, as_json=as_json)


def _restored(
    context: typer.Context, patch: str, number: int | None, *, force: bool, as_json: bool
) -> int:
    with live_lines(stderr=True) as lines:
        done = arrange.restore(
            open_queue(context), patch, number, force=force, progress=lines.download()
        )
    told = refresh_lines(done)
    if done.refused:
        told = [f"{patch}: {why}" for why in done.refused]
        told += [f"  {broken.patch}: {clean(broken.why)}" for broken in done.broken]
        told.append(f"{patch}: nothing was written; --force leaves them behind")
    print_report(done, told, as_json=as_json)
    return 1 if done.refused else 0


@command
def log(context: typer.Context, patch: PatchArgument, as_json: JsonOption = False) -> int:
    """Show what happened to a patch: versions, verifications, its pull request."""
    queue = open_queue(context, patch)
    name = history.past_name(queue, patch)
    past = PatchHistory(patch=name, events=tuple(history.read(queue.folder, name)))
    print_report(past, past.lines(), as_json=as_json)
    return 0


@command
def diff(
    context: typer.Context,
    patch: PatchArgument,
    between: Annotated[
        str | None,
        typer.Argument(
            metavar="[v1[..v2]]",
            help="Versions, as `log` lists them. One: against the files as they are now. "
            "None: the last one.",
        ),
    ] = None,
    as_json: JsonOption = False,
) -> int:
    """Compare versions of a patch commit by commit, whatever release each stands on."""
    queue = open_queue(context, patch)
    done = range_diff(queue, history.past_name(queue, patch), *read_range(between))
    print_report(done, diff_lines(done), as_json=as_json)
    return 0


@command
def import_(
    context: typer.Context,
    name: NameArgument,
    source: Annotated[
        list[str] | None,
        typer.Argument(
            help="REPO A..B, REPO BRANCH (its commits above the pin), mboxes, format-patch files, "
            "folders of them, a quilt or StGit series, or - for standard input.",
        ),
    ] = None,
    upstream: UpstreamOption = None,
    pin: PinOption = None,
    title: Annotated[
        str,
        typer.Option(
            help="The title of its pull request; also the subject of a diff that has none.",
            show_default="the first commit's subject",
        ),
    ] = "",
    author: AuthorOption = "",
    depends_on: DependsOption = None,
    after: AfterOption = None,
    as_json: JsonOption = False,
) -> int:
    """Take a patch from elsewhere; it must apply to its pin, or nothing is written."""
    with live_lines(stderr=True) as lines:
        done = import_sources(
            open_queue(context),
            Wish(name, title, upstream, pin, tuple(depends_on or ()), after),
            source or (),
            stdin=_read_stdin,
            given=Given(author, title),
            progress=lines.download(),
        )
    print_report(done, import_lines(done), as_json=as_json)
    return 1 if done.conflicts else 0


def _read_stdin() -> bytes:
    if sys.stdin.isatty():
        raise UsageError(
            "nothing to import named, and standard input is a terminal",
            hint="name an mbox, a folder of patches, or a clone and a range",
        )
    return sys.stdin.buffer.read()
