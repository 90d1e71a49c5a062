"""Print an error in one line, with --json also as a JSON document, and return the exit code."""

from __future__ import annotations

import errno
import json
import os
import re
import sys
import traceback
from dataclasses import dataclass
from pathlib import Path

import typer
from typer._click.globals import get_current_context

from contribbot.errors import (
    ContribbotError,
    ExitCode,
    MachineError,
    NoSpaceError,
    UsageError,
    plain_words,
)
from contribbot.former import OPTIONS


@dataclass
class Settings:
    """The values of the options that all commands share."""

    queue: Path | None = None
    debug: bool = False
    as_json: bool = False
    #: Whether this command has printed its one JSON document.
    printed: bool = False


def current_settings() -> Settings:
    """Return the values of the shared options, given before or after the command's name."""
    root = get_current_context().find_root()
    root.obj = root.obj or Settings()
    settings: Settings = root.obj
    return settings


def echo(text: str | bytes, *, stderr: bool = False) -> None:
    """Print a line; after a broken pipe, print nothing more."""
    try:
        typer.echo(text, err=stderr)
    except BrokenPipeError:
        with Path(os.devnull).open("wb") as nowhere:
            os.dup2(nowhere.fileno(), 2 if stderr else 1)


def explain(error: BaseException, *, debug: bool, as_json: bool = False) -> int:
    """Print an error in one line, with `as_json` also as JSON; return the exit code."""
    if debug:
        traceback.print_exception(error, file=sys.stderr)
    if isinstance(error, KeyboardInterrupt):
        message, hint, code = "interrupted", "", ExitCode.INTERRUPTED
        line = message
    else:
        from contribbot.cli.render import clean  # noqa: PLC0415  only where something went wrong

        known = error if isinstance(error, ContribbotError) else _from_other(error)
        message, hint, code = clean(known.message), clean(known.hint), known.exit_code
        line = f"contribbot: {message}{f'; {hint}' if hint else ''}"
    echo(line, stderr=True)
    if as_json:
        document = {"message": message, "hint": hint, "exit_code": int(code)}
        echo(json.dumps({"error": document}, indent=2, ensure_ascii=False).encode())
    return code


def explain_usage(message: str, name: str, elsewhere: str = "") -> int:
    """Print an error of the command line's parser as contribbot's error; return the exit code."""
    text = re.sub(r"\. (Did you mean .*\?)$", r" (\1)", message).removesuffix(".")
    text = re.sub(r"Possible options: (--[\w-]+)[^)]*", r"did you mean \1?", text)
    text = text[:1].lower() + plain_words(text[1:].replace("(Did", "(did"))
    wrong = text.removeprefix("no such option: ").partition(" ")[0]
    if advice := OPTIONS.get(f"{name} {wrong}", ""):
        text = f"{wrong} is gone"
    elif text == "missing argument 'RELEASE'":
        advice = "give name and version apart: contribbot pin add sglang 0.5.10.post1, or newest"
    elif elsewhere:
        text, advice = text.partition(" (")[0].partition(";")[0], elsewhere
    error = UsageError(text, hint=advice or f"see `contribbot {f'{name} ' if name else ''}-h`")
    return explain(error, debug=False, as_json="--json" in sys.argv)


def _from_other(error: BaseException) -> ContribbotError:
    """Return a ContribbotError for an OSError or an unexpected exception."""
    if not isinstance(error, OSError):
        return MachineError(
            f"internal error: {type(error).__name__}: {error}",
            hint="this is a fault of contribbot; run it again with --debug and report what it says",
        )
    place = f"{error.filename}: " if error.filename else ""
    message = f"{place}{error.strerror or error}"
    if error.errno == errno.ENOSPC:
        return NoSpaceError(message, hint="free some space there")
    return MachineError(message, hint="check that the folder is yours and can be written")
