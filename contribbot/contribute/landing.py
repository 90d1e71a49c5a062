"""Whether an upstream has a change: its default branch reaches the commit, and kept it."""

from __future__ import annotations

import enum
import itertools
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import TYPE_CHECKING, Final

from contribbot.errors import GitHubError, NotFoundError
from contribbot.github.fields import whole
from contribbot.markdown import line_of

if TYPE_CHECKING:
    from github.IssueEvent import IssueEvent
    from github.PullRequest import PullRequest

    from contribbot.github.client import GitHub

#: Commits that name a pull request and are read, the newest ones; characters of each message.
_MOST: Final = 30
_LONGEST: Final = 100_000
_SHORT: Final = 12
#: Commits of the default branch that are read: more than anybody lands in half a day.
_LISTED: Final = 300
#: PyTorch's label for what is on the default branch, however it came there.
_LANDED: Final = "Merged"
#: How long before and after the closing a commit that lands it is looked for.
_BEFORE: Final = timedelta(hours=12)
_AFTER: Final = timedelta(hours=1)
_REVERTS: Final = re.compile(r"\bThis reverts commit ([0-9a-f]{7,40})\b")
_RESOLVED: Final = re.compile(
    r"^[ \t]*Pull Request resolved:[ \t]*https?://[^/\s]+/(\S+?/\S+?/pull/\d+)[ \t]*$",
    re.IGNORECASE | re.MULTILINE,
)


class LandingFate(enum.StrEnum):
    """What became of a pull request that has ended, seen from the default branch."""

    MERGED = "merged"
    #: A bot, or a person by hand, put it there and closed it.
    LANDED = "landed"
    #: The branch had it, and took it back.
    REVERTED = "reverted"
    CLOSED = "closed"


@dataclass(frozen=True)
class Landing:
    """What became of a pull request: the commit that brought it, and the one that took it back."""

    fate: LandingFate
    commit: str = ""
    revert: str = ""
    why: str = ""

    @property
    def upstream(self) -> bool:
        """Whether the default branch has it."""
        return self.fate in {LandingFate.MERGED, LandingFate.LANDED}

    @property
    def words(self) -> str:
        """It in a line."""
        commit, revert = self.commit[:_SHORT], self.revert[:_SHORT]
        return {
            LandingFate.MERGED: f"merged as {commit}",
            LandingFate.LANDED: f"landed as {commit}",
            LandingFate.REVERTED: f"merged as {commit}, then reverted by {revert}",
            LandingFate.CLOSED: self.why or "closed without being merged",
        }[self.fate]


def events_of(github: GitHub, repository: str, number: int) -> tuple[IssueEvent, ...]:
    """Return what happened to a pull request, oldest first."""
    return whole(github.issue(repository, number).get_events())


def ending_of(github: GitHub, repository: str, number: int) -> tuple[PullRequest, Landing | None]:
    """Return a pull request, and what became of it; None: it is open."""
    pull = github.pull(repository, number).complete()
    if pull.state == "open":
        return pull, None
    branch = github.repository(repository).complete().default_branch
    events = events_of(github, repository, number)
    return pull, judge_landing(github, repository, pull, branch, events)


def judge_landing(
    github: GitHub, repository: str, pull: PullRequest, branch: str, events: Sequence[IssueEvent]
) -> Landing:
    """Say what became of a pull request, by the commits that name it."""
    upstream = github.repository(repository)

    def reaches(commit: str) -> bool:
        """Return whether the default branch has a commit."""
        try:
            comparison = upstream.compare(branch, commit, comparison_commits_per_page=1)
        except NotFoundError:
            # Of a fork that is gone, or so new that it is not everywhere yet.
            return False
        # The meaning of "merged": the branch lacks nothing of it.
        return comparison.status in {"identical", "behind"}

    def message_of(commit: str) -> str:
        try:
            return upstream.get_git_commit(commit).message[:_LONGEST]
        except NotFoundError:
            return ""

    landing = _by_github(pull, branch, events, reaches)
    merges = [number for number, event in enumerate(events) if event.event == "merged"]
    later = events[merges[-1] :] if landing.commit and merges else events
    # The newest first: what was pushed while it was open names it too, and is not asked about.
    named = dict.fromkeys(event.commit_id for event in reversed(later) if event.commit_id)
    newer: list[tuple[str, str]] = []
    for commit in itertools.islice((sha for sha in named if sha != landing.commit), _MOST):
        message = message_of(commit)
        if _lands(message, repository, pull.number) and reaches(commit):
            landing = Landing(LandingFate.LANDED, commit)
            break
        newer.append((commit, message))
    if not landing.commit:
        landing = _on_branch(github, repository, pull, branch, landing)
    for commit, message in reversed(newer):
        if _takes_back(message, landing.commit, repository, pull.number) and reaches(commit):
            landing = replace(landing, fate=LandingFate.REVERTED, revert=commit)
    return landing


def _by_github(
    pull: PullRequest, branch: str, events: Sequence[IssueEvent], reaches: Callable[[str], bool]
) -> Landing:
    """Judge what GitHub itself says of a pull request."""
    if pull.merged_at is None:
        return Landing(LandingFate.CLOSED)
    # Its merge commit need not be told of; what happened tells of it, too.
    happened = [event.commit_id for event in reversed(events) if event.event == "merged"]
    commits = [commit for commit in (pull.merge_commit_sha, *happened) if commit]
    for commit in dict.fromkeys(commits):
        if reaches(commit):
            return Landing(LandingFate.MERGED, commit)
    into, main = line_of(pull.base.ref), line_of(branch)
    where = f"merged into {into}" if into != main else "merged"
    which = f"as {commits[0][:_SHORT]}" if commits else "by a commit that it does not name"
    why = f"GitHub calls it {where} {which}, and {main} does not have it"
    return Landing(LandingFate.CLOSED, why=why)


def _on_branch(
    github: GitHub, repository: str, pull: PullRequest, branch: str, landing: Landing
) -> Landing:
    """Look for a pull request on the branch itself, around the time when it was closed."""
    # People land by hand, and merge queues by other commits; nothing need name those.
    merged, number = pull.merged_at is not None, pull.number
    closed = pull.closed_at or pull.created_at
    upstream = github.repository(repository)
    listed = upstream.get_commits(branch, since=closed - _BEFORE, until=closed + _AFTER)
    for commit in whole(itertools.islice(listed, _LISTED)):
        message = commit.commit.message[:_LONGEST]
        # What GitHub's buttons make of it.
        title, merge = message.partition("\n")[0].rstrip(), f"Merge pull request #{number} from "
        squashed = title.endswith(f"(#{number})") or title.startswith(merge)
        if squashed or _lands(message, repository, number):
            return Landing(LandingFate.MERGED if merged else LandingFate.LANDED, commit.sha)
    # On another branch it may be as merged as it can be.
    calls = merged and pull.base.ref == branch
    if calls or any(label.name == _LANDED for label in pull.labels):
        said = "calls it merged" if calls else f"has the label {_LANDED} on it"
        seen = f"the commits of {line_of(branch)} around {closed:%Y-%m-%d %H:%M} UTC"
        why = f"{repository}#{number}: GitHub {said}, and none of {seen} names it"
        out = "contribbot queue retire NAME --why REASON"
        hint = f"it may show up in some minutes: run it again; or look on its page, then {out}"
        raise GitHubError(why, hint=hint)
    return landing


def _lands(message: str, repository: str, number: int) -> bool:
    """Return whether a commit says, as PyTorch's bot does, that it lands a pull request."""
    # The bot's own line is the last; a revert may quote what it takes back, with all of its lines.
    resolved = _RESOLVED.findall(message)
    last = resolved[-1].lower() if resolved else ""
    return last == f"{repository}/pull/{number}".lower() and not _REVERTS.search(message)


def _takes_back(message: str, commit: str, repository: str, number: int) -> bool:
    """Return whether a commit says that it reverts a landing, in git's words or GitHub's."""
    button = rf"(?im)^\s*Reverts {re.escape(repository)}#{number}\s*$"
    return bool(commit) and (
        any(commit.startswith(sha) for sha in _REVERTS.findall(message))
        or re.search(button, message) is not None
    )
