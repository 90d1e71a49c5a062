"""The one exception tree of contribbot.

```
ContribbotError            what went wrong, what to do next, which exit code
├── UsageError             2  the request does not make sense (no such patch, bad option)
├── QueueError             2  a file of the queue is invalid
├── NotProvedError         1  what is to be said has no fresh evidence
├── OpeningError           1  a pull request must not be opened as things are: a person decides
├── AttestationError       1  nobody stands for what is to be posted, or for something else
└── MachineError           3  this machine or the network could not do it
    ├── CommandError       3  a program ended badly
    ├── CommandTimeoutError 3 a program did not end in time
    ├── SourceError        3  a source could not provide a pinned tree
    │   └── IntegrityError 3  what it provided is not what the pin says, or is hostile
    ├── NoSpaceError       3  the disk is full
    └── GitHubError        3  GitHub gave no usable answer
        ├── TokenError     3  no token, or one that may not do this
        ├── RateLimitError 3  GitHub asks for a longer pause than contribbot waits
        ├── NotFoundError  3  it is not there, or the token may not see it
        ├── RefusedError   3  GitHub understood, and said no
        ├── MovedError     3  what was to be written to has another name now
        └── UncertainError 3  the answer to a write was lost: nobody knows if it happened
```

A check or a gate that says no is an outcome, not an exception: the commands
return 1 for it.
"""

from __future__ import annotations

import enum


class ExitCode(enum.IntEnum):
    """What a command of contribbot says to the shell (a contract, see README)."""

    OK = 0
    NO = 1
    USAGE = 2
    MACHINE = 3
    INTERRUPTED = 130


class ContribbotError(Exception):
    """Something that a user can act on."""

    exit_code: ExitCode = ExitCode.MACHINE

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


class UsageError(ContribbotError):
    """The request does not make sense."""

    exit_code = ExitCode.USAGE


class QueueError(ContribbotError):
    """A file of the queue is invalid."""

    exit_code = ExitCode.USAGE


class NotProvedError(ContribbotError):
    """What is to be said of a patch has no fresh evidence."""

    exit_code = ExitCode.NO


class AttestationError(ContribbotError):
    """Nobody stands for what is to be posted, or what they stand for has changed."""

    exit_code = ExitCode.NO


class OpeningError(ContribbotError):
    """Something stands in the way of a pull request, and a person decides what to do about it."""

    exit_code = ExitCode.NO


class MachineError(ContribbotError):
    """This machine or the network could not do what was asked."""

    exit_code = ExitCode.MACHINE


class CommandError(MachineError):
    """A program ended with a status that its caller did not expect."""

    def __init__(self, message: str, *, returncode: int, stderr: str, hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.returncode = returncode
        self.stderr = stderr


class CommandTimeoutError(MachineError):
    """A program did not end in the time that it was given."""


class SourceError(MachineError):
    """A source could not provide a pinned tree."""


class IntegrityError(SourceError):
    """A source provided something that the pin does not name, or that is hostile."""


class NoSpaceError(MachineError):
    """A disk is full."""


class GitHubError(MachineError):
    """GitHub gave no usable answer."""


class TokenError(GitHubError):
    """There is no token, or it may not do what was asked."""


class RateLimitError(GitHubError):
    """GitHub asks for a longer pause than contribbot waits."""


class NotFoundError(GitHubError):
    """It is not there, or the token may not see it."""


class RefusedError(GitHubError):
    """GitHub understood what was asked, and said no."""

    def __init__(self, message: str, *, status: int, hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.status = status


class MovedError(GitHubError):
    """What was to be written to has another name now. Nothing was written."""


class UncertainError(GitHubError):
    """The answer to a write was lost: nobody knows whether it happened.

    Whoever catches it looks for the result before the write is sent again.
    """
