"""The exceptions of contribbot, each with the exit code that the README promises."""

from __future__ import annotations

import enum
import importlib.metadata
import re
import threading
from collections.abc import Sequence
from typing import Final


class ExitCode(enum.IntEnum):
    """The exit status of a command, as the README promises."""

    OK = 0
    NO = 1
    USAGE = 2
    MACHINE = 3
    INTERRUPTED = 130


class ContribbotError(Exception):
    """An error with advice for the user; the base class of contribbot's errors."""

    exit_code: ExitCode = ExitCode.MACHINE

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


def install(extra: str) -> str:
    """Return the command that installs an extra of contribbot, which is on no package index."""
    try:
        rocm = "rocm" in importlib.metadata.version("torch")
    except importlib.metadata.PackageNotFoundError:
        rocm = False
    # A torch for ROCm is left as it is.
    lock = "" if rocm else "--constraint constraints.txt "
    return f"python -m pip install {lock}'.[{extra}]'  # in contribbot's checkout"


class UsageError(ContribbotError):
    """The request cannot be carried out as it was made."""

    exit_code = ExitCode.USAGE


class QueueError(ContribbotError):
    """The queue, a work tree or a file to import is in a state that the command cannot use."""

    exit_code = ExitCode.USAGE


class NotProvedError(ContribbotError):
    """A text about a patch needs a figure for which there is no fresh evidence."""

    exit_code = ExitCode.NO


class UnwrittenError(NotProvedError):
    """A text about a proved patch lacks sentences that a person must write."""


class AttestationError(ContribbotError):
    """No attestation covers the present text of what is to be posted."""

    exit_code = ExitCode.NO


class OpeningError(ContribbotError):
    """An obstacle to a pull request, on which a person must decide."""

    exit_code = ExitCode.NO


class MachineError(ContribbotError):
    """A failure of this machine or of the network."""

    #: In a check, this error shows nothing of the tree: the machine lacks what the check needs.
    contribbot_broken: bool | str = True

    exit_code = ExitCode.MACHINE


class CommandError(MachineError):
    """A program ended with an exit status that its caller did not expect."""

    def __init__(self, message: str, *, returncode: int, stderr: str) -> None:
        super().__init__(message)
        self.returncode, self.stderr = returncode, stderr


class CommandTimeoutError(MachineError):
    """A program did not end within its time limit."""


class SourceError(MachineError):
    """A source could not provide a pinned tree."""


class IntegrityError(SourceError):
    """A source provided content that differs from the pin's, or hostile content."""


class NoSpaceError(MachineError):
    """A disk is full."""


class GitHubError(MachineError):
    """GitHub could not be asked, refused, or gave no usable answer."""


class TokenError(GitHubError):
    """A GitHub token is missing, or the token lacks a permission."""


class RateLimitError(GitHubError):
    """GitHub asks for a longer pause than contribbot waits."""


class NotFoundError(GitHubError):
    """GitHub has no such object, or shows the object only to other tokens."""


class RefusedError(GitHubError):
    """GitHub understood a request, and refused the request."""

    def __init__(self, message: str, *, status: int, hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.status = status


class UncertainError(GitHubError):
    """The outcome of a write is unknown: look for the result before a second request."""


#: Messages of pydantic and Typer as patterns, each with contribbot's words.
_WORDS: Final = (
    (r"Value error, |, unable to parse.*", ""),
    (r"Input should be greater than or equal to", "must be at least"),
    (r"Input should be less than or equal to", "must be at most"),
    (r"Input should be (?:a|an) (?:valid )?integer", "must be a whole number"),
    (r"Input should be a valid string", "must be a text in quotes"),
    (r"Input should be a valid (?:list|tuple)", "must be a list"),
    (r"Input should be a valid (?:dictionary|dict).*", "must be a table of keys"),
    (r"Input should be (?:a valid boolean|True or False).*", "must be true or false"),
    (r"Input should", "must"),
    (r"Field required", "this key is missing"),
    (r"Input tag (.*) found using .* does not match any of the expected tags", r"\1 is none of"),
    (r"(?:String|List|Tuple) should have at (\w+) (\d+ \w+)\b.*", r"must have at \1 \2"),
)


def plain_words(message: str) -> str:
    """Return a library's message about a wrong value, in contribbot's words."""
    for pattern, words in _WORDS:
        message = re.sub(pattern, words, message)
    return message


def first_of(lines: Sequence[str]) -> str:
    """Return the first three lines in one line, with the number of further lines."""
    shown, rest = lines[:3], lines[3:]
    return "; ".join(shown) + (f" (and {len(rest)} more)" if rest else "")


#: Set when this process is told to end.
STOPPING: Final = threading.Event()


def check_stopping() -> None:
    """Raise an error if this process was told to end; long loops call this function."""
    if STOPPING.is_set():
        raise MachineError("interrupted")
