"""Whether an upstream has a change: its default branch reaches the commit, and kept it.

That a commit's page opens shows nothing: a fork shares its objects with its upstream. GitHub
calls a pull request merged that went to any branch; and what a bot lands is closed, not merged.
"""

from __future__ import annotations

import enum
import itertools
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from contribbot.contribute.reviews import line_of
from contribbot.errors import NotFoundError
from contribbot.github.fields import whole

if TYPE_CHECKING:
    from github.IssueEvent import IssueEvent
    from github.PullRequest import PullRequest

    from contribbot.github.client import GitHub


#: Commits that name a pull request and are read, the newest ones.
_MOST: Final = 30
_SHORT: Final = 12
#: Characters of a commit's message that are read.
_LONGEST: Final = 100_000
_REVERTS: Final = re.compile(r"\bThis reverts commit ([0-9a-f]{7,40})\b")
_RESOLVED: Final = re.compile(
    r"^[ \t]*Pull Request resolved:[ \t]*https?://[^/\s]+/(\S+?/\S+?/pull/\d+)[ \t]*$",
    re.IGNORECASE | re.MULTILINE,
)


class Fate(enum.StrEnum):
    """What became of a pull request that has ended."""

    #: GitHub merged it, and the default branch has it.
    MERGED = "merged"
    #: A bot put it there, and closed it.
    LANDED = "landed"
    #: The default branch had it, and took it back.
    REVERTED = "reverted"
    #: The default branch does not have it.
    CLOSED = "closed"


@dataclass(frozen=True)
class Landing:
    """What became of a pull request."""

    fate: Fate
    #: The commit by which the default branch has, or had, it; or empty.
    commit: str = ""
    #: The commit that took it back, or empty.
    revert: str = ""
    #: What else is to be said, or empty.
    why: str = ""
    #: Whether GitHub had every commit that was asked about. One that it lacks may be of a fork
    #: that is gone, or so new that it is not everywhere yet.
    sure: bool = True

    @property
    def words(self) -> str:
        """It in a line."""
        if self.fate is Fate.REVERTED:
            return f"merged as {self.commit[:_SHORT]}, then reverted by {self.revert[:_SHORT]}"
        if self.fate is Fate.LANDED:
            return f"landed by a bot as {self.commit[:_SHORT]}"
        if self.fate is Fate.MERGED:
            return f"merged as {self.commit[:_SHORT]}"
        return self.why or "closed without being merged"


def landing(
    github: GitHub,
    repository: str,
    pull: PullRequest,
    branch: str,
    events: Sequence[IssueEvent] | None = None,
) -> Landing:
    """Find out what became of a pull request."""
    happened = events_of(github, repository, pull.number) if events is None else events
    judge = _Judge(github, repository, pull, branch)
    found = judge.merged()
    after = [number for number, one in enumerate(happened) if one.event == "merged"]
    later = happened[after[-1] :] if found.commit and after else happened
    # The newest first: what was pushed while it was open names it too, and is not asked about.
    named = dict.fromkeys(one.commit_id for one in reversed(later) if one.commit_id)
    read: list[tuple[str, str]] = []
    for commit in itertools.islice((one for one in named if one != found.commit), _MOST):
        message = judge.message(commit)
        if judge.lands(commit, message):
            found = Landing(Fate.LANDED, commit)
            break
        read.append((commit, message))
    for commit, message in reversed(read):
        found = judge.taken_back(found, commit, message)
    return replace(found, sure=judge.sure)


def events_of(github: GitHub, repository: str, number: int) -> tuple[IssueEvent, ...]:
    """Return what happened to a pull request, oldest first."""
    return whole(github.issue(repository, number).get_events())


class _Judge:
    """Judges the commits that name a pull request."""

    def __init__(self, github: GitHub, repository: str, pull: PullRequest, branch: str) -> None:
        self._place = github.repository(repository)
        self._repository = repository
        self._pull = pull
        self._branch = branch
        self.sure = True

    def reaches(self, commit: str) -> bool:
        """Return whether the default branch has a commit."""
        try:
            found = self._place.compare(self._branch, commit, comparison_commits_per_page=1)
        except NotFoundError:
            self.sure = False
            return False
        # The meaning of "merged": the branch lacks nothing of it.
        return found.status in {"identical", "behind"}

    def merged(self) -> Landing:
        """Judge what GitHub itself says of it."""
        pull, branch = self._pull, line_of(self._branch)
        if not pull.merged:
            return Landing(Fate.CLOSED)
        commit = pull.merge_commit_sha or ""
        if commit and self.reaches(commit):
            return Landing(Fate.MERGED, commit)
        into = line_of(pull.base.ref)
        where = f"merged into {into}" if into != branch else "merged"
        which = f"as {commit[:_SHORT]}" if commit else "by a commit that it does not name"
        why = f"GitHub calls it {where} {which}, and {branch} does not have it"
        return Landing(Fate.CLOSED, why=why)

    def message(self, commit: str) -> str:
        """Return what a commit says; nothing where GitHub lacks it."""
        try:
            return self._place.get_git_commit(commit).message[:_LONGEST]
        except NotFoundError:
            self.sure = False
            return ""

    def lands(self, commit: str, message: str) -> bool:
        """Return whether a commit is a bot's that put the pull request on the branch."""
        # A revert by a bot may quote what it takes back, with all of its lines.
        says = _resolves(message, self._repository, self._pull.number)
        return says and not _REVERTS.search(message) and self.reaches(commit)

    def _fate(self, landed: Landing) -> Fate:
        """Return how it came to the branch."""
        by_github = landed.commit == self._pull.merge_commit_sha and self._pull.merged
        return Fate.MERGED if by_github else Fate.LANDED

    def taken_back(self, was: Landing, commit: str, message: str) -> Landing:
        """Judge whether a commit reverts the landing, or that revert."""
        taken = _REVERTS.findall(message)
        again = bool(was.revert) and any(was.revert.startswith(one) for one in taken)
        back = bool(was.commit) and (
            any(was.commit.startswith(one) for one in taken)
            or _takes_back(message, self._repository, self._pull.number)
        )
        if not (again or back) or not self.reaches(commit):
            return was
        if again:
            return replace(was, fate=self._fate(was), revert="")
        return replace(was, fate=Fate.REVERTED, revert=commit)


def _resolves(message: str, repository: str, number: int) -> bool:
    """Return whether a commit says, as PyTorch's bot does, that it lands a pull request.

    The bot's own line is the last: the text above it is that of whoever opened the pull request.
    """
    said = _RESOLVED.findall(message)
    return bool(said) and said[-1].lower() == f"{repository}/pull/{number}".lower()


def _takes_back(message: str, repository: str, number: int) -> bool:
    """Return whether a commit says, as GitHub's button makes it, that it reverts one."""
    pattern = rf"(?im)^\s*Reverts {re.escape(repository)}#{number}\s*$"
    return re.search(pattern, message) is not None
