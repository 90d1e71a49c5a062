"""The commands of contributions, from the text of a pull request to its end."""

from __future__ import annotations

import contextlib
import functools
import os
import shlex
import shutil
import sys
import termios
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

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
)
from contribbot.errors import ExitCode, GitHubError, UsageError

if TYPE_CHECKING:
    from contribbot.contribute.model import Gate, Question
    from contribbot.github.client import GitHub
    from contribbot.queue.load import Queue


def print_lines(lines: Iterable[str]) -> None:
    """Write lines to standard output."""
    for line in lines:
        typer.echo(line)


@command
def body(
    context: typer.Context,
    patch: PatchArgument,
    template: Annotated[
        str,
        typer.Option(
            "--template", metavar="VERSION", help="Another version of the upstream's template."
        ),
    ] = "",
    output: Annotated[
        Path | None,
        typer.Option(
            "--output", "-o", metavar="FILE", help="The file.", show_default="standard output"
        ),
    ] = None,
    offline: Annotated[
        bool, typer.Option("--offline", help="Do not ask GitHub for the template as it is now.")
    ] = False,
    as_json: JsonOption = False,
) -> int:
    """Write the text of the pull request, in the upstream's sections, from fresh evidence."""
    from contribbot.cli.show_contribute import note_lines  # noqa: PLC0415  start-up time
    from contribbot.contribute.attest import searched  # noqa: PLC0415  start-up time
    from contribbot.contribute.body import live_reader, make_body  # noqa: PLC0415  start-up time
    from contribbot.files import write_atomically  # noqa: PLC0415  start-up time

    queue, name = _patch_of(context, patch)
    read_live = None if offline else live_reader(queue.local / "github")
    look = searched(queue, name)
    text = make_body(queue, name, version=template, read_live=read_live, searched=look)
    if output is not None:
        write_atomically(output, text.text.encode())
    if as_json:
        print_json(text)
    elif output is None:
        typer.echo(text.text, nl=False)
    print_notes(note_lines(text))
    return 0


@command
def reproducer(
    context: typer.Context,
    patch: PatchArgument,
    check: Annotated[
        str,
        typer.Option(
            "--check", metavar="NAME", help="The check.", show_default="the first that fits"
        ),
    ] = "",
    output: Annotated[
        Path | None,
        typer.Option(
            "--output", "-o", metavar="DIR", help="A new folder.", show_default="NAME-reproducer"
        ),
    ] = None,
) -> int:
    """Write a script and a report that show the fault to an upstream, without contribbot."""
    from contribbot.cli.show_contribute import reproducer_lines  # noqa: PLC0415  start-up time
    from contribbot.contribute.reproducer import make_reproducer, write_reproducer  # noqa: PLC0415  start-up time

    queue, name = _patch_of(context, patch)
    made = make_reproducer(queue, name, check=check)
    written = write_reproducer(made, output or Path(f"{name}-reproducer"))
    print_lines(reproducer_lines(made, written))
    return 0


@command
def gate(
    context: typer.Context,
    patch: PatchArgument,
    different: Annotated[
        list[str] | None,
        typer.Option(
            metavar="REF=WHY",
            help="Write down why a pull request (owner/name#123) is another change.",
        ),
    ] = None,
    offline: Annotated[bool, typer.Option("--offline", help="Do not ask GitHub.")] = False,
    as_json: JsonOption = False,
) -> int:
    """Hold a patch against the upstream's rules, and look for duplicates."""
    from contribbot.cli.show_contribute import gate_lines  # noqa: PLC0415  start-up time
    from contribbot.contribute.gate import read_option, set_different  # noqa: PLC0415  start-up time

    reasons = dict(map(read_option, different or ()))
    queue, name = _patch_of(context, patch)
    if reasons:
        with _github(queue, offline=offline) as github:
            unchecked = set_different(queue, name, reasons, github)
        if unchecked:
            not_checked = f"written, but not checked against the candidates: {unchecked}"
            typer.echo(f"{name}: {not_checked}", err=True)
        queue, name = _patch_of(context, patch)
    rows = _judged(queue, name, offline=offline)
    print_report(rows, gate_lines(rows), as_json=as_json)
    return _exit_code(rows)


def _patch_of(context: typer.Context, patch: str) -> tuple[Queue, str]:
    """Return the queue and the name of a patch that a user means."""
    from contribbot.queue.load import select  # noqa: PLC0415  start-up time

    queue = open_queue(context, patch)
    return queue, select(queue, [patch])[0]


@contextlib.contextmanager
def _github(queue: Queue, *, offline: bool = False) -> Iterator[GitHub | GitHubError | None]:
    """Give GitHub, or why it cannot be asked: most likely there is no token."""
    with contextlib.ExitStack() as stack:
        github: GitHub | GitHubError | None = None
        if not offline:
            from contribbot.github.client import connect  # noqa: PLC0415  start-up time

            try:
                github = stack.enter_context(connect(queue.local / "github"))
            except GitHubError as error:
                github = error
        yield github


def _judged(queue: Queue, name: str, *, offline: bool = False) -> Gate:
    """Judge a patch: the local rules are worth showing without GitHub, too."""
    from contribbot.contribute.gate import judge  # noqa: PLC0415  start-up time

    with _github(queue, offline=offline) as github:
        return judge(queue, name, github)


def _exit_code(gate: Gate) -> int:
    """Return 1 where a rule is broken, 3 where GitHub had no answer, else 0."""
    from contribbot.contribute.model import RowState  # noqa: PLC0415  start-up time

    if gate.of(RowState.FAILED):
        return ExitCode.NO
    return ExitCode.MACHINE if gate.of(RowState.UNKNOWN) else ExitCode.OK


#: What a pager may know of the terminal and of its user's wishes.
_PAGERS_OWN = ("TERM", "HOME", "LESS", "LESSCHARSET", "MORE", "COLUMNS", "LINES")


@command
def attest(
    context: typer.Context,
    patch: PatchArgument,
    show: Annotated[
        bool, typer.Option("--show", help="Say whether it is attested, or what changed since.")
    ] = False,
) -> int:
    """Show a person the diff, the text and the gate, and write down that they stand for it."""
    from contribbot.cli.show_contribute import attested_lines  # noqa: PLC0415  start-up time
    from contribbot.contribute.attest import changes, read  # noqa: PLC0415  start-up time

    if not show:
        _refuse_programs()
    queue, name = _patch_of(context, patch)
    if not show:
        return _attest(queue, name)
    attestation = read(queue, name)
    changed = changes(queue, name, attestation)
    print_lines(attested_lines(name, attestation, changed))
    return ExitCode.NO if changed else ExitCode.OK


def _refuse_programs() -> None:
    """Refuse whoever does not sit at a terminal."""
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise UsageError(
            "attest: standard input and output are no terminal, and nobody can read here",
            hint="a person must run it, in a terminal of their own; there is no option instead",
        )


def _attest(queue: Queue, name: str) -> int:
    from contribbot.cli.show_contribute import gate_lines, question_line, shown_lines  # noqa: PLC0415  start-up time
    from contribbot.contribute.attest import ask_all, conclude, person_of, prepare  # noqa: PLC0415  start-up time

    person = person_of(queue)
    gate = _judged(queue, name)
    if gate.blocking:
        print_lines(gate_lines(gate))
        typer.echo(f"{name}: the gate does not let it through; nothing to attest yet", err=True)
        return _exit_code(gate) or ExitCode.NO
    shown = prepare(queue, name, gate)
    _page([*shown_lines(shown)])
    numbers = {question: number for number, question in enumerate(shown.questions, start=1)}

    def ask(question: Question) -> str | None:
        return _ask(question_line(numbers[question], len(numbers), question))

    path = conclude(queue, shown, ask_all(shown.questions, ask), person)
    typer.echo(f"{name}: attested by {person.name} <{person.email}>: {path}")
    return ExitCode.OK


def _page(lines: Sequence[str]) -> None:
    """Show lines through the person's pager where they are many, else plainly."""
    from contribbot import process  # noqa: PLC0415  start-up time
    from contribbot.process import foreground  # noqa: PLC0415  start-up time

    text = "\n".join((*lines, "")).encode("utf-8", "backslashreplace")
    try:
        pager = shlex.split(os.environ.get("PAGER", ""))
    except ValueError:
        pager = []
    if pager and len(lines) >= shutil.get_terminal_size().lines:
        own = {key: os.environ[key] for key in _PAGERS_OWN if key in os.environ}
        if foreground(pager, env=process.clean_environment(own), stdin=text):
            return
        typer.echo(f"{pager[0]} did not end well; all of it once more:", err=True)
    typer.echo(text, nl=False)


def _ask(prompt: str) -> str | None:
    """Ask; what was typed before the question was there is no answer to it."""
    termios.tcflush(sys.stdin, termios.TCIFLUSH)
    typer.echo(prompt, nl=False)
    sys.stdout.flush()
    typed = sys.stdin.readline()
    if not typed.endswith("\n"):
        typer.echo("")
        return None
    return typed


@command
def open_pr(
    context: typer.Context,
    patches: Annotated[
        list[str], typer.Argument(metavar="PATCH...", help="Names of patches, or their folders.")
    ],
    ready: Annotated[
        bool, typer.Option("--ready", help="For review, and no draft; marks a draft ready.")
    ] = False,
    handoff: Annotated[
        bool,
        typer.Option(
            "--handoff",
            help="Only push the branch, and print the page on which you open the pull request.",
        ),
    ] = False,
    up_to_date: Annotated[
        bool,
        typer.Option(
            "--up-to-date", help="Carry it onto the upstream's newest commit, changed or not."
        ),
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show what would be sent, and write nothing.")
    ] = False,
    as_json: JsonOption = False,
) -> int:
    """Open the pull request of an attested patch, or bring it up to date."""
    from contribbot.cli.show_contribute import OpeningView, opened_lines, request_lines, requests_of  # noqa: PLC0415  start-up time
    from contribbot.contribute.open_pr import Opened, OpenOptions, open_all  # noqa: PLC0415  start-up time
    from contribbot.github.client import connect  # noqa: PLC0415  start-up time
    from contribbot.github.dry_run import planned  # noqa: PLC0415  start-up time
    from contribbot.queue.load import select  # noqa: PLC0415  start-up time

    if ready and handoff:
        raise UsageError(
            "--handoff leaves the pull request to you, and --ready says how to open it",
            hint="give one of them; the page asks whether it is a draft",
        )
    queue = open_queue(context, *patches)
    names = select(queue, patches)
    options = OpenOptions(ready=ready, handoff=handoff, up_to_date=up_to_date, dry_run=dry_run)
    done: list[Opened] = []
    cache = None if dry_run else queue.local / "github"
    with connect(cache, dry_run=dry_run) as github, live_lines(stderr=True) as lines:
        try:
            for opened in open_all(queue, names, github, options, progress=lines.download()):
                done.append(opened)
                if not as_json:
                    typer.echo("\n".join(opened_lines(opened, dry=dry_run)))
        finally:
            # What was done before an error is said all the same.
            requests = requests_of(planned(github.requester))
            if as_json:
                print_json(OpeningView(dry_run=dry_run, patches=tuple(done), requests=requests))
            elif dry_run:
                typer.echo("\n".join(request_lines(requests)))
    return 0


@command
def follow(context: typer.Context, as_json: JsonOption = False) -> int:
    """Show where every pull request stands: CI by target, reviews, what is next for whom."""
    from contribbot.cli.show_contribute import follow_lines  # noqa: PLC0415  start-up time
    from contribbot.contribute.follow import follow as look  # noqa: PLC0415  start-up time
    from contribbot.github.client import connect  # noqa: PLC0415  start-up time

    queue = open_queue(context)
    following = look(queue, functools.partial(connect, queue.local / "github"))
    print_report(following.report, follow_lines(following.report), as_json=as_json)
    # Only what was shown is not new any more.
    following.remember(queue)
    if following.unwritten is not None:
        raise following.unwritten
    return following.exit_code


@command
def reviews(
    context: typer.Context,
    patch: PatchArgument,
    everything: Annotated[
        bool, typer.Option("--all", help="Resolved threads and earlier comments too.")
    ] = False,
    as_json: JsonOption = False,
) -> int:
    """Show the open review threads of a pull request, with the code, and what else was said."""
    from contribbot.cli.show_contribute import reviews_lines  # noqa: PLC0415  start-up time
    from contribbot.contribute.reviews import contribution_of, read_reviews  # noqa: PLC0415  start-up time
    from contribbot.github.client import connect  # noqa: PLC0415  start-up time
    from contribbot.queue.history import past_name  # noqa: PLC0415  start-up time

    queue = open_queue(context, patch)
    name = past_name(queue, patch)
    known = contribution_of(queue, name)
    with connect(queue.local / "github") as github:
        report = read_reviews(github, name, known, everything=everything)
    print_report(report, reviews_lines(report), as_json=as_json)
    return 0


@command
def reply(
    context: typer.Context,
    patch: PatchArgument,
    thread: Annotated[str, typer.Argument(help="The thread, as contribbot reviews names it.")],
    text_file: Annotated[
        Path,
        typer.Option("--text-file", metavar="FILE", help="Your answer; - is standard input."),
    ],
) -> int:
    """Answer in a review thread, as you, with your own text."""
    from contribbot.contribute.reviews import contribution_of, read_text  # noqa: PLC0415  start-up time
    from contribbot.contribute.reviews import reply as answer  # noqa: PLC0415  start-up time
    from contribbot.github.client import connect  # noqa: PLC0415  start-up time
    from contribbot.queue.history import past_name  # noqa: PLC0415  start-up time

    queue = open_queue(context, patch)
    name = past_name(queue, patch)
    # Before a token is asked for.
    contribution_of(queue, name)
    text = read_text(text_file)
    with connect(queue.local / "github") as github:
        done = answer(queue, github, name, thread, text)
    typer.echo(f"{name}: {'answered' if done.posted else 'was answered so already'}: {done.url}")
    return 0


@command
def retire(
    context: typer.Context,
    patch: PatchArgument,
    why: Annotated[
        str,
        typer.Option("--why", metavar="REASON", help="Your reason, where none can be checked."),
    ] = "",
) -> int:
    """Take a patch out of the queue when its upstream has it; its history is kept."""
    from contribbot.cli.text import clean  # noqa: PLC0415  start-up time
    from contribbot.contribute.retire import of_newest  # noqa: PLC0415  start-up time
    from contribbot.contribute.retire import retire as take_out  # noqa: PLC0415  start-up time
    from contribbot.github.client import connect  # noqa: PLC0415  start-up time
    from contribbot.queue.history import past_name  # noqa: PLC0415  start-up time
    from contribbot.verify.pipeline import Options  # noqa: PLC0415  start-up time

    queue = open_queue(context, patch)
    to_github = functools.partial(connect, queue.local / "github")
    with live_lines(stderr=True) as lines:
        status = of_newest(Options(jobs=len(os.sched_getaffinity(0))), lines)
        done = take_out(queue, past_name(queue, patch), to_github, status, why=why)
    print_lines([clean(f"{done.patch}: retired: {done.why}")])
    print_lines(clean(f"  {note}") for note in done.notes)
    return 0
