"""`contribbot body`."""

from __future__ import annotations

import functools
import os
import shlex
import shutil
import sys
import termios
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from contribbot.cli.options import (
    JsonOption,
    PatchArgument,
    command,
    open_queue,
    print_json,
    print_notes,
    print_report,
)
from contribbot.errors import ExitCode, UsageError

if TYPE_CHECKING:
    from contribbot.contribute.model import Gate, Question
    from contribbot.contribute.open_pr import Wanted
    from contribbot.queue.load import Queue


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
    from contribbot.contribute.body import (  # noqa: PLC0415  start-up time
        live_reader,
        make_body,
    )
    from contribbot.files import write_atomically  # noqa: PLC0415  start-up time
    from contribbot.queue.load import select  # noqa: PLC0415  start-up time

    queue = open_queue(context, patch)
    read_live = None if offline else live_reader(queue.local / "github")
    name = select(queue, [patch])[0]
    made = make_body(
        queue, name, version=template, read_live=read_live, searched=searched(queue, name)
    )
    if output is not None:
        write_atomically(output, made.text.encode())
    if as_json:
        print_json(made)
    elif output is None:
        typer.echo(made.text, nl=False)
    print_notes(note_lines(made))
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
    from contribbot.queue.load import select  # noqa: PLC0415  start-up time

    queue = open_queue(context, patch)
    name = select(queue, [patch])[0]
    made = make_reproducer(queue, name, check=check)
    for line in reproducer_lines(
        made, write_reproducer(made, output or Path(f"{name}-reproducer"))
    ):
        typer.echo(line)
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
    from contribbot.contribute.gate import read_option  # noqa: PLC0415  start-up time
    from contribbot.queue.load import select  # noqa: PLC0415  start-up time

    reasons = dict(read_option(one) for one in different or ())
    queue = open_queue(context, patch)
    name = select(queue, [patch])[0]
    if reasons:
        _answer(queue, name, reasons, offline=offline)
        queue = open_queue(context, patch)
    found = judged(queue, name, offline=offline)
    print_report(found, gate_lines(found), as_json=as_json)
    return exit_code(found)


def _answer(queue: Queue, name: str, reasons: dict[str, str], *, offline: bool) -> None:
    """Write reasons down, once GitHub was asked whether anybody asks for them."""
    from contribbot.contribute.gate import set_different  # noqa: PLC0415  start-up time
    from contribbot.errors import GitHubError  # noqa: PLC0415  start-up time
    from contribbot.github.client import connect  # noqa: PLC0415  start-up time

    if offline:
        unchecked = set_different(queue, name, reasons, None)
    else:
        try:
            with connect(queue.local / "github") as client:
                unchecked = set_different(queue, name, reasons, client)
        except GitHubError as error:
            unchecked = set_different(queue, name, reasons, None, broken=error)
    if unchecked:
        typer.echo(
            f"{name}: written, but not checked against the candidates: {unchecked}", err=True
        )


def judged(queue: Queue, name: str, *, offline: bool = False) -> Gate:
    """Judge a patch, asking GitHub unless that is not wanted."""
    from contribbot.contribute.gate import judge  # noqa: PLC0415  start-up time

    if offline:
        return judge(queue, name, None)
    from contribbot.errors import GitHubError  # noqa: PLC0415  start-up time
    from contribbot.github.client import connect  # noqa: PLC0415  start-up time

    try:
        with connect(queue.local / "github") as client:
            return judge(queue, name, client, server=client.server.api)
    except GitHubError as error:
        # No token, most likely: the local rules are worth showing all the same.
        return judge(queue, name, None, broken=error)


def exit_code(gate: Gate) -> int:
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
    from contribbot.queue.load import select  # noqa: PLC0415  start-up time

    if not show:
        _refuse_programs()
    queue = open_queue(context, patch)
    name = select(queue, [patch])[0]
    return _show(queue, name) if show else _attest(queue, name)


def _refuse_programs() -> None:
    """Refuse whoever does not sit at a terminal."""
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise UsageError(
            "attest: standard input and output are no terminal, and nobody can read here",
            hint="a person must run it, in a terminal of their own; there is no option instead",
        )


def _show(queue: Queue, name: str) -> int:
    from contribbot.cli.show_contribute import attested_lines  # noqa: PLC0415  start-up time
    from contribbot.contribute.attest import (  # noqa: PLC0415  start-up time
        changes,
        read,
    )

    found = read(queue, name)
    changed = changes(queue, name, found)
    for line in attested_lines(name, found, changed):
        typer.echo(line)
    return ExitCode.NO if changed else ExitCode.OK


def _attest(queue: Queue, name: str) -> int:
    from contribbot.cli.show_contribute import (  # noqa: PLC0415  start-up time
        gate_lines,
        question_line,
        shown_lines,
    )
    from contribbot.contribute import attest as attest_module  # noqa: PLC0415  start-up time

    person = attest_module.person_of(queue)
    gate = judged(queue, name)
    if gate.blocking:
        for line in gate_lines(gate):
            typer.echo(line)
        typer.echo(f"{name}: the gate does not let it through; nothing to attest yet", err=True)
        return exit_code(gate) or ExitCode.NO
    shown = attest_module.prepare(queue, name, gate)
    _page(shown_lines(shown))
    total = len(shown.questions)

    def ask(question: Question) -> str | None:
        return _ask(question_line(shown.questions.index(question) + 1, total, question))

    answers = attest_module.ask_all(shown.questions, ask)
    path = attest_module.conclude(queue, shown, answers, person)
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
    from contribbot.contribute.open_pr import Wanted  # noqa: PLC0415  start-up time
    from contribbot.queue.load import select  # noqa: PLC0415  start-up time

    if ready and handoff:
        raise UsageError(
            "--handoff leaves the pull request to you, and --ready says how to open it",
            hint="give one of them; the page asks whether it is a draft",
        )
    queue = open_queue(context, *patches)
    wanted = Wanted(ready=ready, handoff=handoff, up_to_date=up_to_date, dry_run=dry_run)
    _run(queue, select(queue, patches), wanted, as_json=as_json)
    return 0


def _run(queue: Queue, names: list[str], wanted: Wanted, *, as_json: bool) -> None:
    from contribbot.cli.live import Lines, console  # noqa: PLC0415  start-up time
    from contribbot.cli.show_contribute import (  # noqa: PLC0415  start-up time
        OpeningView,
        opened_lines,
        request_lines,
        requests_of,
    )
    from contribbot.contribute.open_pr import (  # noqa: PLC0415  start-up time
        Opened,
        open_all,
        tools_for,
    )
    from contribbot.github.client import connect  # noqa: PLC0415  start-up time
    from contribbot.github.dry_run import planned  # noqa: PLC0415  start-up time

    done: list[Opened] = []

    def told(opened: Opened) -> None:
        done.append(opened)
        if not as_json:
            typer.echo("\n".join(opened_lines(opened, dry=wanted.dry_run)))

    lines = Lines(console(stderr=True))
    cache = None if wanted.dry_run else queue.local / "github"
    with connect(cache, dry_run=wanted.dry_run) as github, lines.shown():
        tools = tools_for(queue, github, web=github.server.web, progress=lines.download())
        try:
            open_all(queue, names, tools, wanted, told=told)
        finally:
            # What was done before an error is said all the same.
            requests = requests_of(planned(github.requester))
            if as_json:
                print_json(
                    OpeningView(dry_run=wanted.dry_run, patches=tuple(done), requests=requests)
                )
            elif wanted.dry_run:
                typer.echo("\n".join(request_lines(requests)))


@command
def follow(context: typer.Context, as_json: JsonOption = False) -> int:
    """Show where every pull request stands: CI by target, reviews, what is next for whom."""
    from contribbot.cli.show_contribute import follow_lines  # noqa: PLC0415  start-up time
    from contribbot.contribute.follow import follow as look  # noqa: PLC0415  start-up time
    from contribbot.github.client import connect  # noqa: PLC0415  start-up time

    queue = open_queue(context)
    found = look(queue, functools.partial(connect, queue.local / "github"))
    print_report(found.report, follow_lines(found.report), as_json=as_json)
    # Only what was shown is not new any more.
    found.remember(queue)
    if found.unwritten is not None:
        raise found.unwritten
    return found.exit_code


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
    from contribbot.contribute.reviews import contribution_of  # noqa: PLC0415  start-up time
    from contribbot.contribute.reviews import reviews as read  # noqa: PLC0415  start-up time
    from contribbot.github.client import connect  # noqa: PLC0415  start-up time
    from contribbot.queue.history import past_name  # noqa: PLC0415  start-up time

    queue = open_queue(context, patch)
    name = past_name(queue, patch)
    known = contribution_of(queue, name)
    with connect(queue.local / "github") as github:
        report = read(
            github, name, known.reference.partition("#")[0], known.number, everything=everything
        )
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
    from contribbot.cli.live import Lines, console  # noqa: PLC0415  start-up time
    from contribbot.cli.output import clean  # noqa: PLC0415  start-up time
    from contribbot.contribute.retire import of_newest  # noqa: PLC0415  start-up time
    from contribbot.contribute.retire import retire as take_out  # noqa: PLC0415  start-up time
    from contribbot.github.client import connect  # noqa: PLC0415  start-up time
    from contribbot.queue.history import past_name  # noqa: PLC0415  start-up time
    from contribbot.verify.pipeline import Options  # noqa: PLC0415  start-up time

    queue = open_queue(context, patch)
    lines = Lines(console(stderr=True))
    with lines.shown():
        done = take_out(
            queue,
            past_name(queue, patch),
            functools.partial(connect, queue.local / "github"),
            of_newest(Options(jobs=len(os.sched_getaffinity(0))), lines),
            why=why,
        )
    typer.echo(clean(f"{done.patch}: retired: {done.why}"))
    for note in done.notes:
        typer.echo(clean(f"  {note}"))
    return 0
