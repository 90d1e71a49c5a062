"""The error for a pull request that GitHub's or the upstream's state does not let through."""

from __future__ import annotations

from contribbot.errors import ContribbotError, ExitCode


class OpeningError(ContribbotError):
    """Something stands in the way of a pull request, and a person decides what to do about it."""

    exit_code = ExitCode.NO
