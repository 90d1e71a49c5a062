"""Find whether an upstream's default branch has a change, and has not reverted the change."""

from __future__ import annotations

import enum
import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from contribbot.errors import GitHubError, NotFoundError
from contribbot.github.pull_state import PullState, read_pull_state
from contribbot.markdown import line_of

if TYPE_CHECKING:
    from contribbot.github.client import GitHub

#: The most characters to read of a commit's message; the most reverts of reverts to follow.
_LONGEST: Final = 100_000
_REVERTS_OF_REVERTS: Final = 4
_SHORT: Final = 12
_LATER: Final = (
    "it may show up in some minutes: run it again; or look on its page, then"
    " contribbot queue retire NAME --why REASON"
)
_REVERTS: Final = re.compile(r"\bThis reverts commit ([0-9a-f]{7,40})\b")
_RESOLVED: Final = re.compile(
    r"^[ \t]*Pull Request resolved:[ \t]*https?://[^/\s]+/(\S+?/\S+?/pull/\d+)[ \t]*$",
    re.IGNORECASE | re.MULTILINE,
)


class LandingFate(enum.StrEnum):
    """The possible ends of a pull request, judged by the default branch."""

    MERGED = "merged"
    #: A bot or a person put the change on the default branch, and closed the pull request.
    LANDED = "landed"
    #: The default branch had the change, until a commit reverted the change.
    REVERTED = "reverted"
    CLOSED = "closed"


@dataclass(frozen=True)
class Landing:
    """The end of a pull request: the commit that landed, and the commit that reverted it."""

    fate: LandingFate
    commit: str = ""
    revert: str = ""
    #: The branch that the change was merged into, if the default branch lacks the change.
    elsewhere: str = ""

    @property
    def upstream(self) -> bool:
        """Whether the default branch has the change."""
        return self.fate in {LandingFate.MERGED, LandingFate.LANDED} and not self.elsewhere

    @property
    def words(self) -> str:
        """How the pull request ended, in words."""
        commit, revert = self.commit[:_SHORT], self.revert[:_SHORT]
        into = f"into {self.elsewhere} " if self.elsewhere else ""
        return {
            LandingFate.MERGED: f"merged {into}as {commit}",
            LandingFate.LANDED: f"landed as {commit}",
            LandingFate.REVERTED: f"merged as {commit}, then reverted by {revert}",
            LandingFate.CLOSED: "closed without being merged",
        }[self.fate]


def ending_of(github: GitHub, repository: str, number: int) -> tuple[PullState, Landing | None]:
    """Return a pull request's state and its end; None: the pull request is open."""
    pull = read_pull_state(github, repository, number)
    return pull, None if pull.state == "open" else judge_landing(github, repository, pull)


def judge_landing(
    github: GitHub, repository: str, pull: PullState, depth: int = _REVERTS_OF_REVERTS
) -> Landing:
    """Return the end of a pull request, judged by its merge and by commits that name it."""
    upstream = github.repository(repository)

    def reaches(commit: str) -> bool:
        """Return whether the default branch has a commit."""
        try:
            base = pull.default_branch
            comparison = upstream.compare(base, commit, comparison_commits_per_page=1)
        except NotFoundError as error:
            # The commit may be too new for GitHub, or from a deleted fork: this is not "closed".
            why = f"whether {line_of(pull.default_branch)} has {commit[:_SHORT]} is not known"
            why = f"{repository}#{pull.number}: {why}: {error.message}"
            raise GitHubError(why, hint=_LATER) from None
        # "identical" and "behind" mean that the default branch has all of the commit.
        return comparison.status in {"identical", "behind"}

    landing, later = Landing(LandingFate.CLOSED), list(pull.commits)
    if pull.state == "merged":
        landing = _merged(repository, pull, reached=reaches(pull.merge_commit))
    # The newest first: commits pushed while the pull request was open may name it, too.
    for number, commit in reversed([*enumerate(later)]):
        if _lands(commit.message, repository, pull.number) and reaches(commit.sha):
            landing = Landing(LandingFate.LANDED, commit.sha)
            later = later[number + 1 :]
            break
    for commit in later:
        message = commit.message[:_LONGEST]
        if landing.revert and _names(message, landing.revert) and reaches(commit.sha):
            landing = Landing(LandingFate.LANDED, commit.sha)
        elif _takes_back(message, landing.commit, repository, pull.number) and reaches(commit.sha):
            landing = replace(landing, fate=LandingFate.REVERTED, revert=commit.sha)
            landing = _reverted_revert(github, repository, landing, message, depth)
    return landing


def _reverted_revert(
    github: GitHub, repository: str, landing: Landing, message: str, depth: int
) -> Landing:
    """Return the landing of a reverted change: landed again where the revert was reverted."""
    # GitHub's button reverts with a second pull request, whose own end tells of a revert of it.
    own = re.search(r"\(#(\d+)\)$", message.partition("\n")[0].rstrip())
    if own is None or not depth:
        return landing
    try:
        revert = read_pull_state(github, repository, int(own[1]))
    except NotFoundError:  # an issue, perhaps
        return landing
    if revert.state != "merged":
        return landing
    back = judge_landing(github, repository, revert, depth - 1)
    if not back.revert:
        return landing
    return replace(back, fate=LandingFate.LANDED, commit=back.revert, revert="")


def _merged(repository: str, pull: PullState, *, reached: bool) -> Landing:
    """Return the landing of a merged pull request; `reached`: the default branch has the merge."""
    merged = Landing(LandingFate.MERGED, pull.merge_commit)
    if reached:
        return merged
    if pull.base != pull.default_branch:
        return replace(merged, elsewhere=line_of(pull.base))
    which = pull.merge_commit[:_SHORT] or "a commit that it does not name"
    why = f"GitHub calls it merged as {which}, and {line_of(pull.default_branch)} does not have it"
    raise GitHubError(f"{repository}#{pull.number}: {why}", hint=_LATER)


def _lands(message: str, repository: str, number: int) -> bool:
    """Tell whether a message says that its commit lands a pull request, as bots write."""
    message = message[:_LONGEST]
    title = message.partition("\n")[0].rstrip()
    # The bot's line comes last; a revert may quote all lines of the commit that it reverts.
    resolved = _RESOLVED.findall(message)
    last = resolved[-1].lower() if resolved else ""
    named = title.endswith(f"(#{number})") or last == f"{repository}/pull/{number}".lower()
    return named and not _REVERTS.search(message)


def _names(message: str, commit: str) -> bool:
    """Tell whether a message says, in git's words, that its commit reverts another."""
    return any(commit.startswith(sha) for sha in _REVERTS.findall(message))


def _takes_back(message: str, commit: str, repository: str, number: int) -> bool:
    """Tell whether a message says, in git's or GitHub's words, that it reverts a landing."""
    button = rf"(?im)^\s*Reverts {re.escape(repository)}#{number}\s*$"
    return bool(commit) and (_names(message, commit) or re.search(button, message) is not None)
