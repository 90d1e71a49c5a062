"""The commands of contributions, from the text of a pull request to its end."""

from __future__ import annotations

import contextlib
import functools
import itertools
import os
import shlex
import shutil
import sys
import termios
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from contribbot import process
from contribbot.cli import show_contribute as view
from contribbot.cli.command import (
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
    print_change,
    print_json,
    print_lines,
    print_notes,
    print_report,
    rehearsed,
)
from contribbot.cli.refusal import echo
from contribbot.cli.render import clean
from contribbot.contribute import attest as attesting
from contribbot.contribute.body import live_reader, make_body, make_comment
from contribbot.contribute.follow import follow as look
from contribbot.contribute.gate import judge, read_option, set_different
from contribbot.contribute.model import Gate, Question, RowState
from contribbot.contribute.open_pr import Opened, OpenOptions, open_all
from contribbot.contribute.preview import preview_all
from contribbot.contribute.reproducer import make_reproducer, write_reproducer
from contribbot.contribute.retire import retire as take_out
from contribbot.contribute.reviews import publication_of, read_reviews
from contribbot.errors import ContribbotError, ExitCode, GitHubError, UsageError
from contribbot.queue.load import Queue, select

if TYPE_CHECKING:
    from contribbot.github.client import GitHub

# GitHub's client and the stages load with the command that needs them, not with --help.
OfflineOption = Annotated[bool, flag("--offline", "Do not ask GitHub.")]
WaitOption = Annotated[
    int, typer.Option(min=0, metavar="MINUTES", help="How long to wait for GitHub in all.")
]


@command
def body(
    context: typer.Context,
    patch: PatchArgument,
    template: Annotated[
        str, option("VERSION", "Another version of the upstream's template.", "--template")
    ] = "",
    comment: Annotated[
        bool, flag("--comment", "Instead, a comment for somebody else's pull request.")
    ] = False,
    offline: OfflineOption = False,
    as_json: JsonOption = False,
) -> int:
    """Write the text of the pull request, in the upstream's sections, from fresh evidence."""
    queue, name = open_patch(context, patch)
    if comment:
        if template:
            raise UsageError("--comment has no --template", hint="leave one of the two out")
        said = make_comment(queue, name)
        if as_json:
            print_json(said)
        else:
            echo(said.text.removesuffix("\n"))
        return 0
    if pull := queue.specs[name].pull:
        hint = f"say there what was run: contribbot body {name} --comment"
        raise UsageError(f"{name}: it is {pull}, somebody else's", hint=hint)
    read_live = None if offline else live_reader(queue.local / "github")
    text = make_body(queue, name, version=template, read_live=read_live)
    if as_json:
        print_json(text)
    else:
        echo(text.text.removesuffix("\n"))
    print_notes(view.note_lines(text))
    return 0


@command
def reproducer(
    context: typer.Context,
    patch: PatchArgument,
    folder: Annotated[
        Path | None, argument("DIR", "A new folder.", default="PATCH-reproducer")
    ] = None,
    check: Annotated[
        str, option("NAME", "The check.", "--check", default="the first that fits")
    ] = "",
    as_json: JsonOption = False,
) -> None:
    """Write a script and a report that show the fault to an upstream, without contribbot."""
    queue, name = open_patch(context, patch)
    made = make_reproducer(queue, name, check=check)
    written = write_reproducer(made, folder or Path(f"{name}-reproducer"))
    files = tuple(map(str, written))
    document = view.ReproducerView(patch=name, check=made.check, test=made.test, files=files)
    print_report(document, view.reproducer_lines(made, written), as_json=as_json)


@command
def gate(
    context: typer.Context,
    patch: PatchArgument,
    different: Annotated[
        list[str] | None,
        option("REF=WHY", "Write down why a pull request (owner/name#123) is another change."),
    ] = None,
    offline: OfflineOption = False,
    wait: WaitOption = 15,
    as_json: JsonOption = False,
) -> int:
    """Check a patch against the upstream's rules, and look for duplicates."""
    reasons = dict(map(read_option, different or ()))
    queue, name = open_patch(context, patch)
    if reasons:
        set_different(queue, name, reasons)
        queue, name = open_patch(context, patch)
    rows = _judged(queue, name, offline=offline, wait=wait)
    print_report(rows, view.gate_lines(rows), as_json=as_json)
    return _exit_code(rows)


@contextlib.contextmanager
def _github(
    queue: Queue, *, offline: bool = False, wait: int = 15
) -> Iterator[GitHub | GitHubError | None]:
    """Give GitHub, or why it cannot be asked: most likely there is no token."""
    with contextlib.ExitStack() as stack:
        github: GitHub | GitHubError | None = None
        if not offline:
            from contribbot.github.client import connect

            try:
                github = stack.enter_context(connect(queue.local / "github", minutes=wait))
            except GitHubError as error:
                github = error
        yield github


def _judged(queue: Queue, name: str, *, offline: bool = False, wait: int = 15) -> Gate:
    """Judge a patch: the local rules are worth showing without GitHub, too."""
    with _github(queue, offline=offline, wait=wait) as github:
        return judge(queue, name, github)


def _exit_code(gate: Gate) -> int:
    """Return 1 where a rule is broken, 3 where GitHub had no answer, else 0."""
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
        bool, flag("--show", "Say whether it is attested, or what changed since.")
    ] = False,
    as_json: JsonOption = False,
) -> int:
    """Show a person the diff, the text and the gate, and write down that they stand for it."""
    if as_json and not show:
        raise UsageError("--json is for programs, and a person attests", hint="give --show, too")
    if not show:
        _refuse_programs()
    queue, name = open_patch(context, patch)
    if not show:
        return _attest(queue, name)
    attestation = attesting.read(queue, name)
    void = ""
    try:
        attesting.require(queue, make_body(queue, name))
    except ContribbotError as error:
        void = f"{error.message}; {error.hint}"
    document = view.AttestedView(patch=name, void=void, attestation=attestation)
    print_report(document, view.attested_lines(document), as_json=as_json)
    return ExitCode.NO if void else ExitCode.OK


def _refuse_programs() -> None:
    """Refuse whoever does not sit at a terminal."""
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise UsageError(
            "attest: standard input and output are no terminal, and nobody can read here",
            hint="a person must run it, in a terminal of their own; there is no option instead",
        )


def _attest(queue: Queue, name: str) -> int:

    person = attesting.person_of(queue)
    asked = itertools.count(1)
    queue = attesting.introduce(
        queue, name, person, lambda question: _ask(view.question_line(next(asked), 2, question))
    )
    gate = _judged(queue, name)
    if gate.blocking:
        print_lines(view.gate_lines(gate))
        rows = ", ".join(f"{row.rule} ({row.state})" for row in gate.blocking)
        print_notes([f"{name}: nothing to attest yet; first: {rows}"])
        return _exit_code(gate) or ExitCode.NO
    shown = attesting.prepare(queue, name, gate)
    _page([*view.shown_lines(shown)])
    numbers = {question: number for number, question in enumerate(shown.questions, start=1)}

    def ask(question: Question) -> str | None:
        return _ask(view.question_line(numbers[question], len(numbers), question))

    path = attesting.conclude(queue, shown, attesting.ask_all(shown.questions, ask), person)
    print_lines([f"{name}: attested by {person.name} <{person.email}>: {path}"])
    return ExitCode.OK


def _page(lines: Sequence[str]) -> None:
    """Show lines through the person's pager where they are many, else plainly."""
    text = "\n".join((*lines, "")).encode("utf-8", "backslashreplace")
    try:
        pager = shlex.split(os.environ.get("PAGER", ""))
    except ValueError:
        pager = []
    if pager and len(lines) >= shutil.get_terminal_size().lines:
        own = {key: os.environ[key] for key in _PAGERS_OWN if key in os.environ}
        if process.foreground(pager, env=process.clean_environment(own), stdin=text):
            return
        print_notes([f"{pager[0]} did not end well; all of it once more:"])
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
        list[str],
        argument("PATCH", "Names of patches, or their folders.", complete=patch_names),
    ],
    ready: Annotated[
        bool, flag("--ready", "For review, and no draft; marks a draft ready.")
    ] = False,
    handoff: Annotated[
        bool,
        flag(
            "--handoff",
            "Only push the branch, and print the page on which you open the pull request.",
        ),
    ] = False,
    up_to_date: Annotated[
        bool,
        flag("--up-to-date", "Carry it onto the upstream's newest commit, changed or not."),
    ] = False,
    dry_run: Annotated[
        bool,
        flag("--dry-run", "Show what would be sent, and what is missing for it; send nothing."),
    ] = False,
    wait: WaitOption = 15,
    as_json: JsonOption = False,
) -> int:
    """Open the pull request of an attested patch, or bring it up to date."""
    from contribbot.github.client import connect
    from contribbot.github.dry_run import planned

    if ready and handoff:
        raise UsageError(
            "--handoff leaves the pull request to you, and --ready says how to open it",
            hint="give one of them; the page asks whether it is a draft",
        )
    queue = open_queue(context, *patches)
    names = select(queue, patches)
    options = OpenOptions(ready=ready, handoff=handoff, up_to_date=up_to_date, dry_run=dry_run)
    if dry_run and (previews := preview_all(queue, names, options)):
        document = view.OpeningView(dry_run=True, previews=previews)
        print_report(document, view.preview_lines(previews), as_json=as_json)
        return 0
    done: list[Opened] = []
    cache = None if dry_run else queue.local / "github"
    with connect(cache, dry_run=dry_run, minutes=wait) as github, live_lines() as lines:
        try:
            for opened in open_all(queue, names, github, options, progress=lines.download()):
                done.append(opened)
                if not as_json:
                    print_lines(view.opened_lines(opened, dry=dry_run))
                rows = judge(queue, opened.patch, None).of(RowState.PERSON)
                print_notes([f"{opened.patch}: for you: {row.rule}: {row.seen}" for row in rows])
        finally:
            requests = view.requests_of(planned(github.requester))
            if as_json and (done or sys.exc_info()[0] is None):
                opening = view.OpeningView(dry_run=dry_run, patches=tuple(done), requests=requests)
                print_json(opening)
            elif dry_run and not as_json:
                print_lines(view.request_lines(requests))
    return 0


@command
def follow(
    context: typer.Context,
    patch: Annotated[
        str | None,
        argument("PATCH", "Show its review threads, too.", default="all", complete=patch_names),
    ] = None,
    everything: Annotated[
        bool, flag("--all", "Resolved threads and earlier comments too.")
    ] = False,
    wait: WaitOption = 15,
    as_json: JsonOption = False,
) -> int:
    """Show the state of every pull request: CI by target, reviews, what is next for whom.

    With a patch: what was said about it, thread by thread with the code, and how to answer.
    """
    from contribbot.github.client import connect

    if patch is not None:
        queue, name = open_past(context, patch)
        known = publication_of(queue, name)
        with connect(queue.local / "github", minutes=wait) as github:
            reviews = read_reviews(github, name, known, everything=everything)
        print_report(reviews, view.reviews_lines(reviews), as_json=as_json)
        return 0
    if everything:
        raise UsageError("--all is for one patch", hint="contribbot follow NAME --all")
    queue = open_queue(context)
    to_github = functools.partial(connect, queue.local / "github", minutes=wait)
    following = look(queue, to_github)
    print_report(following.report, view.follow_lines(following.report), as_json=as_json)
    # Only what was shown is not new any more.
    following.remember(queue)
    if following.unwritten is not None:
        raise following.unwritten
    return following.exit_code


@command
def retire(
    context: typer.Context,
    patch: PatchArgument,
    why: Annotated[str, option("REASON", "Your reason, where none can be checked.", "--why")] = "",
    dry_run: DryRunOption = False,
    as_json: JsonOption = False,
) -> None:
    """Take a patch out of the queue when its upstream has it; its history is kept."""
    from contribbot.github.client import connect
    from contribbot.lifecycle.status import of_newest
    from contribbot.verify.pipeline import Options

    queue, name = open_past(context, patch)
    to_github = functools.partial(connect, queue.local / "github")
    with live_lines() as lines, rehearsed(dry_run) as planned:
        status = of_newest(Options(jobs=len(os.sched_getaffinity(0))), lines)
        done = take_out(queue, name, to_github, status, why=why)
    rows = [f"{done.patch}: retired: {done.why}", *(f"  {note}" for note in done.notes)]
    print_change(done, map(clean, rows), planned, as_json=as_json)
