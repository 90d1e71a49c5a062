"""Read a pull request's state by one GraphQL query; judge whether the default branch has it."""

from __future__ import annotations

import json
import logging
import re
from dataclasses import dataclass, replace
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any, Final, Generic, Literal, TypeVar

from pydantic import (
    AfterValidator,
    AliasChoices,
    AliasPath,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    JsonValue,
    ValidationError,
)
from pydantic.alias_generators import to_camel

from contribbot.errors import GitHubError, NotFoundError, RateLimitError
from contribbot.markdown import line_of

if TYPE_CHECKING:
    from contribbot.github.client import GitHub

T = TypeVar("T")
log: Final = logging.getLogger("contribbot.github")

#: The most pages to read, of 100 jobs, threads, comments and reviews each.
_PAGES: Final = 20
#: GitHub's words for an author who is a maintainer of the repository.
_MAINTAINERS: Final = frozenset({"OWNER", "MEMBER", "COLLABORATOR"})
QUERY: Final = """
query(
  $owner: String!, $name: String!, $number: Int!, $head: String!, $compared: Boolean!,
  $jobs: String, $threads: String, $comments: String, $reviews: String
) {
  repository(owner: $owner, name: $name) {
    isArchived
    defaultBranchRef { name }
    pullRequest(number: $number) {
      number url title state isDraft baseRefName headRefOid
      mergeable mergeStateStatus isInMergeQueue reviewDecision
      author { login }
      mergeCommit { oid }
      baseRef @include(if: $compared) { compare(headRef: $head) { behindBy } }
      latestOpinionatedReviews(first: 100, writersOnly: true) { nodes { state author { login } } }
      statusCheckRollup {
        contexts(first: 100, after: $jobs) {
          pageInfo { hasNextPage endCursor }
          nodes {
            ... on CheckRun {
              name conclusion startedAt isRequired(pullRequestNumber: $number)
              checkSuite { workflowRun { event workflow { name } } }
            }
            ... on StatusContext { name: context state isRequired(pullRequestNumber: $number) }
          }
        }
      }
      commits(last: 1) {
        nodes {
          commit {
            checkSuites(first: 100) {
              nodes { conclusion app { name slug } checkRuns { totalCount } }
            }
          }
        }
      }
      comments(first: 100, after: $comments) {
        pageInfo { hasNextPage endCursor }
        nodes { ...said url fullDatabaseId }
      }
      reviews(first: 100, after: $reviews) {
        pageInfo { hasNextPage endCursor }
        nodes { ...said url fullDatabaseId state }
      }
      reviewThreads(first: 100, after: $threads) {
        pageInfo { hasNextPage endCursor }
        nodes {
          isResolved path line originalLine
          comments(first: 100) { nodes { ...said url fullDatabaseId } }
        }
      }
      timelineItems(last: 100, itemTypes: [
        REFERENCED_EVENT, CLOSED_EVENT, MERGED_EVENT, ADDED_TO_MERGE_QUEUE_EVENT,
        REMOVED_FROM_MERGE_QUEUE_EVENT
      ]) {
        nodes {
          __typename
          ... on ReferencedEvent { commit { oid message } }
          ... on ClosedEvent { commit: closer { ... on Commit { oid message } } }
          ... on RemovedFromMergeQueueEvent { reason }
        }
      }
    }
  }
}
fragment said on Comment {
  author { login }
  authorAssociation body createdAt updatedAt
}
"""


class _Part(BaseModel):
    """A part of GraphQL's answer; fields of unexpected types fail to validate."""

    model_config = ConfigDict(strict=True, frozen=True, alias_generator=to_camel)


def _at(first: str, *path: str | int, default: object = ...) -> Any:
    """Return a pydantic field that is read at a path of GraphQL's answer, with a default."""
    return Field(default, validation_alias=AliasPath(first, *path))


#: A word of GitHub's, in lower case; `pending` instead of null.
Word = Annotated[str, BeforeValidator(lambda word: word or "pending"), AfterValidator(str.lower)]
Moment = Annotated[datetime, Field(strict=False)]


class HeadJob(_Part):
    """A CI job; `word`: GitHub's word for the result, `pending` or `expected` without a result."""

    name: str
    word: Word = Field(validation_alias=AliasChoices("conclusion", "state"))
    required: bool = Field(default=False, validation_alias="isRequired")
    started_at: str | None = None
    workflow: str = _at("checkSuite", "workflowRun", "workflow", "name", default="")
    event: str = _at("checkSuite", "workflowRun", "event", default="")


class Note(_Part):
    """A comment on a pull request or on a line of the diff, or a review with a verdict."""

    id: str = Field(validation_alias="fullDatabaseId")
    author: str = _at("author", "login", default="")
    author_association: str
    body: str
    url: str
    created_at: Moment
    updated_at: Moment
    verdict: str = Field("", validation_alias="state")

    @property
    def maintainer(self) -> bool:
        """Whether the author is a maintainer of the repository."""
        return self.author_association in _MAINTAINERS


class ReviewThread(_Part):
    """A thread of comments on a line of the diff."""

    is_resolved: bool
    path: str
    line: int | None
    original_line: int | None
    comments: tuple[Note, ...] = Field(
        (), validation_alias=AliasPath("comments", "nodes"), strict=False
    )


class TimelineEvent(_Part):
    """An event of a pull request, with the commit that mentioned, closed or merged it."""

    typename: str = Field(alias="__typename")
    sha: str = _at("commit", "oid", default="")
    message: str = _at("commit", "message", default="")
    reason: str | None = None


class _Suite(_Part):
    """A suite of CI jobs by an app; suites of other apps than Actions may stay queued for ever."""

    conclusion: Word
    app: str = _at("app", "name", default="")
    slug: str = _at("app", "slug", default="")
    runs: int = _at("checkRuns", "totalCount", default=0)

    @property
    def job(self) -> HeadJob | None:
        """The suite as a job, if without jobs and waiting for approval or unable to start."""
        word, actions = self.conclusion, self.slug == "github-actions"
        quiet = word in {"success", "neutral", "skipped"} or (word == "pending" and not actions)
        if quiet or self.runs or not self.app:
            return None
        held = actions and word == "action_required"
        state = "awaiting_approval" if held else word
        return HeadJob.model_validate({"name": f"{self.app} (suite)", "state": state})


class _Opinion(_Part):
    state: str
    login: str = _at("author", "login", default="")


class _Page(_Part, Generic[T]):
    """A page of a list, and the cursor of the next page."""

    nodes: list[T] = Field(default_factory=list)
    more: bool = _at("pageInfo", "hasNextPage", default=False)
    last: str | None = _at("pageInfo", "endCursor", default=None)


class _Pages(_Part):
    """The lists of a pull request that may have more pages, by the variables of the query."""

    jobs: _Page[HeadJob] = _at("statusCheckRollup", "contexts", default=_Page())
    threads: _Page[ReviewThread] = _at("reviewThreads", default=_Page())
    comments: _Page[Note] = _Page()
    reviews: _Page[Note] = _Page()


class PullState(_Part):
    """The state of a pull request on GitHub; `state` is open, closed or merged."""

    number: int
    state: Word
    url: str
    title: str
    draft: bool = _at("isDraft")
    author: str = _at("author", "login", default="")
    base: str = _at("baseRefName")
    head: str = _at("headRefOid")
    #: The number of the base's commits that the branch lacks; None: not asked for.
    behind: int | None = _at("baseRef", "compare", "behindBy", default=None)
    #: Whether the branch merges: `mergeable`, `conflicting`, or `unknown` for now.
    mergeable: Word
    #: GitHub's MergeStateStatus, such as `clean` or `blocked`.
    merge_state: Word = _at("mergeStateStatus")
    queued: bool = _at("isInMergeQueue", default=False)
    merge_commit: str = _at("mergeCommit", "oid", default="")
    archived: bool = _at("isArchived")
    default_branch: str = _at("defaultBranchRef", "name")
    #: GitHub's decision, which exists only with a rule for reviews; the maintainers' opinions.
    ruling: str | None = _at("reviewDecision", default=None)
    opinions: list[_Opinion] = _at("latestOpinionatedReviews", "nodes", default=())
    suites: list[_Suite] = _at("commits", "nodes", 0, "commit", "checkSuites", "nodes", default=())
    events: list[TimelineEvent] = _at("timelineItems", "nodes", default=())
    pages: _Pages
    #: GitHub's words on the parts of the answer that it left out; empty: nothing is left out.
    unread: str = ""

    @property
    def decision(self) -> Literal["approved", "changes requested", "none"]:
        """The maintainers' decision: GitHub's ruling, or the newest opinions without a ruling."""
        words = {opinion.state for opinion in self.opinions}
        against = "CHANGES_REQUESTED"
        if self.ruling == against or (against in words and self.ruling != "APPROVED"):
            return "changes requested"
        approved = self.ruling == "APPROVED" or ("APPROVED" in words and self.ruling is None)
        return "approved" if approved else "none"

    @property
    def reviewers(self) -> tuple[str, ...]:
        """The logins of the maintainers whose opinion is the decision."""
        word = self.decision.replace(" ", "_").upper()
        return tuple(opinion.login for opinion in self.opinions if opinion.state.startswith(word))

    @property
    def removed(self) -> str:
        """The reason for which a merge queue removed the pull request; empty if not removed."""
        queue = [event for event in self.events if event.typename.endswith("MergeQueueEvent")]
        removed = bool(queue) and queue[-1].typename.startswith("Removed")
        return (queue[-1].reason or "it gave no reason") if removed else ""

    @property
    def commits(self) -> tuple[TimelineEvent, ...]:
        """The commits that name the pull request, after its merge if merged; oldest first."""
        merged = [at for at, event in enumerate(self.events) if event.typename == "MergedEvent"]
        return tuple(event for event in self.events[merged[-1] if merged else 0 :] if event.sha)

    @property
    def threads(self) -> list[ReviewThread]:
        """The threads of comments on lines of the diff."""
        return [thread for thread in self.pages.threads.nodes if thread.comments]

    @property
    def jobs(self) -> list[HeadJob]:
        """The last attempt of each CI job, and the suites that wait or could not start."""
        jobs = sorted(self.pages.jobs.nodes, key=lambda job: job.started_at or "")
        last = {(job.name, job.workflow, job.event): job for job in jobs}
        return [*last.values(), *filter(None, (suite.job for suite in self.suites))]


def read_pull_state(github: GitHub, repository: str, number: int, *, branch: str = "") -> PullState:
    """Return a pull request's state; with `branch` (`owner:name`), how far behind its base."""
    owner, _, name = repository.partition("/")
    asked: dict[str, JsonValue] = {"owner": owner, "name": name, "number": number}
    asked |= {"head": branch, "compared": bool(branch)}
    try:
        state = last = _answer(github, asked)
        for _ in range(_PAGES - 1):
            if not any(page.more for _, page in last.pages):
                break
            # A list that has ended gives empty pages, while other lists go on.
            asked |= {key: page.last for key, page in last.pages if page.last}
            last = _answer(github, asked)
            for (_, every), (_, page) in zip(state.pages, last.pages, strict=True):
                every.nodes.extend(page.nodes)
    except (RateLimitError, NotFoundError):
        raise
    except GitHubError as error:
        return _by_rest(github, repository, number, error)
    return state


def _by_rest(github: GitHub, repository: str, number: int, why: GitHubError) -> PullState:
    """Return an open pull request's state by REST, without jobs, reviews, threads and comments."""
    pull = github.pull(f"{repository}#{number}").complete()
    if pull.state != "open":
        raise why  # only GraphQL tells whether a bot has landed it, or a commit reverted it
    return PullState.model_validate(
        {
            "number": number,
            "state": pull.state,
            "url": pull.html_url,
            "title": pull.title,
            "isDraft": pull.draft,
            "author": {"login": getattr(pull.user, "login", "")},
            "baseRefName": pull.base.ref,
            "headRefOid": pull.head.sha,
            "mergeable": {True: "mergeable", False: "conflicting"}.get(pull.mergeable, "unknown"),
            "mergeStateStatus": pull.mergeable_state or "unknown",
            "isArchived": pull.base.repo.archived,
            "defaultBranchRef": {"name": pull.base.repo.default_branch},
            "pages": {},
            "unread": f"jobs, reviews, threads and comments: {why.message}",
        }
    )


def _answer(github: GitHub, variables: dict[str, JsonValue]) -> PullState:
    """Return the first or next pages of a pull request's state."""
    from contribbot.github.client import odd_answer, words_of  # noqa: PLC0415  start-up time

    answer = github.requester.graphql_query(QUERY, variables)[1]
    data, errors = answer["data"], answer.get("errors")
    repository = data.get("repository") if isinstance(data, dict) else None
    pull = repository.get("pullRequest") if isinstance(repository, dict) else None
    if pull is None and '"NOT_FOUND"' in json.dumps(errors):
        place = f"{variables['owner']}/{variables['name']}#{variables['number']}"
        hint = "check the name; what is private or gone looks the same"
        raise NotFoundError(f"there is no pull request {place}", hint=hint)
    if not isinstance(repository, dict) or not isinstance(pull, dict):
        raise odd_answer("POST /graphql", "pullRequest")
    unread = words_of(json.dumps(answer)) if errors else ""
    try:
        return PullState.model_validate({**repository, **pull, "pages": pull, "unread": unread})
    except ValidationError as error:
        where = ".".join(str(part) for part in error.errors()[0]["loc"])
        raise odd_answer("POST /graphql", where) from None


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
#: The possible ends of a pull request. `landed`: a bot or a person put the change on the default
#: branch, and closed the pull request; `reverted`: a later commit took the change back.
LandingFate = Literal["merged", "landed", "reverted", "closed"]


@dataclass(frozen=True)
class Landing:
    """The end of a pull request: the landed commit, and the commit that reverted the change."""

    fate: LandingFate
    commit: str = ""
    revert: str = ""
    #: The branch that the change was merged into, if the default branch lacks the change.
    elsewhere: str = ""

    @property
    def upstream(self) -> bool:
        """Whether the default branch has the change."""
        return self.fate in {"merged", "landed"} and not self.elsewhere

    @property
    def words(self) -> str:
        """How the pull request ended, in words."""
        if self.fate == "closed":
            return "closed without being merged"
        into = f" into {self.elsewhere}" if self.elsewhere else ""
        back = f", then reverted by {self.revert[:_SHORT]}" if self.revert else ""
        fate = "landed" if self.fate == "landed" else "merged"
        return f"{fate}{into} as {self.commit[:_SHORT]}{back}"


def ending_of(github: GitHub, reference: str) -> tuple[PullState, Landing | None]:
    """Return the state and the end of `owner/name#number`; None: the pull request is open."""
    repository, _, number = reference.partition("#")
    pull = read_pull_state(github, repository, int(number))
    return pull, None if pull.state == "open" else judge_landing(github, repository, pull)


def judge_landing(
    github: GitHub, repository: str, pull: PullState, depth: int = _REVERTS_OF_REVERTS
) -> Landing:
    """Return the end of a pull request, judged by its merge and by commits that name it."""
    name, main = f"{repository}#{pull.number}", line_of(pull.default_branch)

    def reaches(commit: str) -> bool:
        """Return whether the default branch has a commit."""
        try:
            comparison = github.compare(repository, pull.default_branch, commit)
        except NotFoundError as error:
            # The commit may be too new for GitHub, or from a deleted fork: this is not "closed".
            why = f"{name}: whether {main} has {commit[:_SHORT]} is not known: {error.message}"
            raise GitHubError(why, hint=_LATER) from None
        return comparison.status in {"identical", "behind"}

    landing, later = Landing("closed"), list(pull.commits)
    if pull.state == "merged":
        landing = Landing("merged", pull.merge_commit)
        if not reaches(pull.merge_commit):
            if pull.base == pull.default_branch:
                why = f"GitHub calls it merged as {pull.merge_commit[:_SHORT]}, and {main}"
                raise GitHubError(f"{name}: {why} does not have it", hint=_LATER)
            landing = replace(landing, elsewhere=line_of(pull.base))
    # The newest first: commits pushed while the pull request was open may name it, too.
    landers = [at for at, it in enumerate(later) if _lands(it.message, repository, pull.number)]
    if (last := next((at for at in reversed(landers) if reaches(later[at].sha)), None)) is not None:
        landing, later = Landing("landed", later[last].sha), later[last + 1 :]
    for commit in later:
        message = commit.message[:_LONGEST]
        if _reverts(message, landing.revert) and reaches(commit.sha):
            landing = Landing("landed", commit.sha)
        elif _reverts(message, landing.commit, name) and reaches(commit.sha):
            landing = replace(landing, fate="reverted", revert=commit.sha)
            landing = _reverted_revert(github, repository, landing, message, depth)
    return landing


def _reverted_revert(
    github: GitHub, repository: str, landing: Landing, message: str, depth: int
) -> Landing:
    """Return the landing of a reverted change, landed again if the revert was reverted."""
    # GitHub's button reverts with a second pull request, whose own end tells of a revert of it.
    own = re.search(r"\(#(\d+)\)$", message.partition("\n")[0].rstrip())
    if own is None or not depth:
        return landing
    try:
        revert = read_pull_state(github, repository, int(own[1]))
    except NotFoundError:  # an issue, perhaps
        return landing
    back = judge_landing(github, repository, revert, depth - 1) if revert.merge_commit else None
    if back is None or not back.revert:
        return landing
    return replace(back, fate="landed", commit=back.revert, revert="")


def _lands(message: str, repository: str, number: int) -> bool:
    """Return whether a commit's message says that the commit lands a pull request."""
    message = message[:_LONGEST]
    title = message.partition("\n")[0].rstrip()
    # The bot's line comes last; a revert may quote all lines of the commit that it reverts.
    resolved = _RESOLVED.findall(message)
    last = resolved[-1].lower() if resolved else ""
    named = title.endswith(f"(#{number})") or last == f"{repository}/pull/{number}".lower()
    return named and not _REVERTS.search(message)


def _reverts(message: str, commit: str, pull: str = "") -> bool:
    """Return whether a message says that it reverts a commit (git's words) or a pull (GitHub's)."""
    named = any(commit.startswith(sha) for sha in _REVERTS.findall(message))
    button = pull and re.search(rf"(?im)^\s*Reverts {re.escape(pull)}\s*$", message)
    return bool(commit) and (named or bool(button))
