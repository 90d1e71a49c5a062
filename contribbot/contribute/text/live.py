"""The upstream's template as it is now: one conditional request, and no patience."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from contribbot.contribute.text.body import ReadLive
from contribbot.github.git_data import read_file
from contribbot.github.waits import Waits

#: A text is worth having without the comparison: nobody is to wait for that.
_AT_ONCE: Final = Waits(attempts=1, longest=0.0)


def live_reader(cache: Path) -> ReadLive:
    """Return what reads a file of an upstream's default branch.

    It raises `GitHubError` where GitHub cannot be asked, for want of a token too.
    """

    def read(repository: str, path: str) -> str | None:
        from contribbot.github.client import connect  # noqa: PLC0415  start-up time

        with connect(cache, waits=_AT_ONCE) as github:
            content = read_file(github, repository, path, "")
        return None if content is None else content.decode("utf-8", "replace")

    return read
