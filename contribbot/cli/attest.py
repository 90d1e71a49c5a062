"""`contribbot attest`."""

from __future__ import annotations

import os
import shlex
import shutil
import sys
import termios
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from contribbot.cli.shell import PatchArgument, command, open_queue
from contribbot.errors import ExitCode, UsageError

if TYPE_CHECKING:
    from contribbot.model.rules import Question
    from contribbot.queue.load import Queue

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
    """Refuse whoever does not sit at a terminal.

    Raises:
        UsageError: Nobody does.
    """
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise UsageError(
            "attest: standard input and output are no terminal, and nobody can read here",
            hint="a person must run it, in a terminal of their own; there is no option instead",
        )


def _show(queue: Queue, name: str) -> int:
    from contribbot.contribute.attest import changes  # noqa: PLC0415  start-up time
    from contribbot.contribute.attested import read  # noqa: PLC0415  start-up time
    from contribbot.report.attest import attested_lines  # noqa: PLC0415  start-up time

    found = read(queue, name)
    changed = changes(queue, name, found)
    for line in attested_lines(name, found, changed):
        typer.echo(line)
    return ExitCode.NO if changed else ExitCode.OK


def _attest(queue: Queue, name: str) -> int:
    from contribbot.cli.gate import exit_code, judged  # noqa: PLC0415  start-up time
    from contribbot.contribute import asking  # noqa: PLC0415  start-up time
    from contribbot.report.attest import question_line, shown_lines  # noqa: PLC0415  start-up time
    from contribbot.report.gate import gate_lines  # noqa: PLC0415  start-up time

    person = asking.person_of(queue)
    gate = judged(queue, name)
    if gate.blocking:
        for line in gate_lines(gate):
            typer.echo(line)
        typer.echo(f"{name}: the gate does not let it through; nothing to attest yet", err=True)
        return exit_code(gate) or ExitCode.NO
    shown = asking.prepare(queue, name, gate)
    _page(shown_lines(shown))
    total = len(shown.questions)

    def ask(question: Question) -> str | None:
        return _ask(question_line(shown.questions.index(question) + 1, total, question))

    answers = asking.ask_all(shown.questions, ask)
    path = asking.conclude(queue, shown, answers, person)
    typer.echo(f"{name}: attested by {person.name} <{person.email}>: {path}")
    return ExitCode.OK


def _page(lines: Sequence[str]) -> None:
    """Show lines through the person's pager where they are many, else plainly."""
    from contribbot import process  # noqa: PLC0415  start-up time
    from contribbot.process.foreground import foreground  # noqa: PLC0415  start-up time

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
