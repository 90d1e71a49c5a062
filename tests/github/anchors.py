"""Where a review comment stands: its hunk when it was made, its line now. Read from git's diff."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Final, Literal

from tests.github.gitdata import BareRepository
from tests.github.githistory import changes, merge_base
from tests.github.state import Pull, ReviewComment

Side = Literal["LEFT", "RIGHT"]
_HUNK: Final = re.compile(r"@@ -(\d+)(?:,(\d+))? \+(\d+)(?:,(\d+))? @@")


@dataclass(frozen=True)
class Anchor:
    """A line of a pull request's diff.

    Attributes:
        hunk: The hunk from its header down to the line, as GitHub shows it above a comment.
        position: How many lines it is below the file's first hunk header.
    """

    hunk: str
    position: int


def find_anchor(pull: Pull, commit: str, path: str, line: int, side: Side) -> Anchor | None:
    """Find a line in the diff between a commit of a pull request and where it left its base.

    Args:
        pull: The pull request.
        commit: The commit whose diff it is.
        path: The file.
        line: The number of the line, in the new file for RIGHT, in the old one for LEFT.
        side: Which file.

    Returns:
        The place, or None where the diff does not show that line.
    """
    patch = _patch(pull.base.git.path, pull.base_sha, commit, path)
    if patch is None:
        return None
    old = new = 0
    header: list[str] = []
    for position, text in enumerate(patch.split("\n")):
        if match := _HUNK.match(text):
            old, new, header = int(match[1]), int(match[3]), [text]
            continue
        header.append(text)
        on_left, on_right = text[:1] != "+", text[:1] != "-"
        if (side == "RIGHT" and on_right and new == line) or (
            side == "LEFT" and on_left and old == line
        ):
            return Anchor("\n".join(header), position)
        old += on_left and text[:1] != "\\"
        new += on_right and text[:1] != "\\"
    return None


@lru_cache(maxsize=256)
def _patch(repository: Path, base: str, head: str, path: str) -> str | None:
    """Return the hunks of one file; commits never change, so neither does this."""
    git = BareRepository(repository)
    part = merge_base(git, base, head) or base
    return next((one.patch for one in changes(git, part, head) if one.path == path), None)


def current_line(pull: Pull, comment: ReviewComment) -> int | None:
    """Return the line that a comment is about in the newest commit; None: it is outdated."""
    if comment.original_line is None:
        return None
    git = pull.base.git
    then, now = comment.original_commit_id, pull.head_sha
    if comment.side == "LEFT":
        then, now = (merge_base(git, pull.base_sha, one) or pull.base_sha for one in (then, now))
    line = _follow(git.path, then, now, comment.path, comment.original_line)
    if line is None or find_anchor(pull, pull.head_sha, comment.path, line, comment.side) is None:
        return None
    return line


@lru_cache(maxsize=256)
def _follow(repository: Path, then: str, now: str, path: str, line: int) -> int | None:
    """Follow a line from one commit to another; None where it was changed or the file went."""
    if then == now:
        return line
    git = BareRepository(repository)
    if git.run("cat-file", "-e", f"{now}:{path}").returncode:
        return None
    text = git.git("diff", "--no-color", "--no-ext-diff", "-U0", then, now, "--", path).decode(
        errors="replace"
    )
    moved = 0
    for match in re.finditer(rf"(?m)^{_HUNK.pattern}", text):
        start, gone = int(match[1]), int(match[2] or "1")
        added = int(match[4] or "1")
        # A hunk that only adds stands behind the line that it names.
        if line < start or (gone == 0 and line == start):
            break
        if start <= line < start + gone:
            return None
        moved += added - gone
    return line + moved
