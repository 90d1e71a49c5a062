"""Where a pull request stands: one GraphQL query, or REST where GraphQL is refused."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator, Mapping, Sequence
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
from contribbot.github.fields import login_of, whole

if TYPE_CHECKING:
    from github.PullRequest import PullRequest

    from contribbot.github.client import GitHub

T = TypeVar("T")
log: Final = logging.getLogger("contribbot.github")

#: Pages of 100 jobs, threads, comments and reviews that are read; commits that name a pull request,
#: by REST.
_PAGES: Final = 20
_COMMITS: Final = 30
#: GitHub's words for the maintainers of a repository.
_MAINTAINERS: Final = frozenset({"OWNER", "MEMBER", "COLLABORATOR"})
_ACTIONS: Final = "github-actions"
QUERY: Final = """
query(
  $owner: String!, $name: String!, $number: Int!, $head: String!, $compared: Boolean!,
  $jobs: String, $threads: String, $comments: String, $reviews: String
) {
  repository(owner: $owner, name: $name) {
    isArchived
    defaultBranchRef { name }
    pullRequest(number: $number) {
      url title state isDraft baseRefName headRefOid
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
            ... on StatusContext { context state isRequired(pullRequestNumber: $number) }
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
          ... on ClosedEvent { closer { ... on Commit { oid message } } }
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
    """A part of GraphQL's answer; a part with fields of other types fails to validate."""

    model_config = ConfigDict(
        strict=True, frozen=True, alias_generator=to_camel, validate_by_name=True
    )


def _at(first: str, *path: str | int, default: object = ...) -> Any:
    """Return a model field read at a path of the answer; the default stands in for null."""
    return Field(default, validation_alias=AliasPath(first, *path))


#: A word of GitHub's, in lower case; null, before it has one.
Word = Annotated[str, BeforeValidator(lambda word: word or "pending"), AfterValidator(str.lower)]
Moment = Annotated[datetime, Field(strict=False)]


def _of_commit(key: str) -> AliasChoices:
    """Return the two places where an event may have a field of its commit."""
    return AliasChoices(AliasPath("commit", key), AliasPath("closer", key))


class HeadJob(_Part):
    """A job of CI; `word`: GitHub's word for its end, or `pending` and `expected` before."""

    name: str = Field(validation_alias=AliasChoices("name", "context"))
    word: Word = Field(validation_alias=AliasChoices("conclusion", "state"))
    required: bool = Field(default=False, validation_alias="isRequired")
    started_at: str | None = None
    workflow: str = _at("checkSuite", "workflowRun", "workflow", "name", default="")
    event: str = _at("checkSuite", "workflowRun", "event", default="")


class Note(_Part):
    """A comment on a pull request or on a line of its diff, or a review with its verdict."""

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
    """A thread of comments on a line."""

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
    sha: str = Field("", validation_alias=_of_commit("oid"))
    message: str = Field("", validation_alias=_of_commit("message"))
    reason: str | None = None


class _Stated(_Part):
    """The plain fields of a pull request's state."""

    state: Word = _at("pullRequest", "state")
    url: str = _at("pullRequest", "url")
    title: str = _at("pullRequest", "title")
    draft: bool = _at("pullRequest", "isDraft")
    author: str = _at("pullRequest", "author", "login", default="")
    base: str = _at("pullRequest", "baseRefName")
    head: str = _at("pullRequest", "headRefOid")
    #: Commits of the base that the branch lacks, where that was asked for.
    behind: int | None = _at("pullRequest", "baseRef", "compare", "behindBy", default=None)
    #: GitHub's MergeStateStatus, such as `clean` or `blocked`.
    merge_state: Word = _at("pullRequest", "mergeStateStatus")
    queued: bool = _at("pullRequest", "isInMergeQueue", default=False)
    merge_commit: str = _at("pullRequest", "mergeCommit", "oid", default="")
    archived: bool = _at("isArchived")
    default_branch: str = _at("defaultBranchRef", "name")


class PullState(_Stated):
    """The state of a pull request on GitHub; `state` is open, closed or merged."""

    number: int
    mergeable: bool | None
    decision: Literal["approved", "changes requested", "none"] = "none"
    reviewers: tuple[str, ...] = ()
    #: Why a merge queue removed the pull request.
    removed: str = ""
    jobs: tuple[HeadJob, ...] = ()
    comments: tuple[Note, ...] = ()
    reviews: tuple[Note, ...] = ()
    threads: tuple[ReviewThread, ...] = ()
    #: The commits that name it, since it was merged or in all; the oldest first.
    commits: tuple[TimelineEvent, ...] = ()
    #: The parts that REST was not asked for, and why GraphQL did not answer; or empty.
    unread: str = ""


class _Suite(_Part):
    conclusion: Word
    app: str = _at("app", "name", default="")
    slug: str = _at("app", "slug", default="")
    runs: int = _at("checkRuns", "totalCount", default=0)


class _Opinion(_Part):
    state: str
    login: str = _at("author", "login", default="")


class _Page(_Part, Generic[T]):
    """A page of a list, and the cursor of the next page."""

    nodes: list[T] = Field(default_factory=list)
    more: bool = _at("pageInfo", "hasNextPage", default=False)
    last: str | None = _at("pageInfo", "endCursor", default=None)


class _PullAnswer(_Stated):
    mergeable: str = _at("pullRequest", "mergeable")
    decision: str | None = _at("pullRequest", "reviewDecision")
    opinions: list[_Opinion] = _at("pullRequest", "latestOpinionatedReviews", "nodes", default=())
    suites: list[_Suite] = _at(
        "pullRequest", "commits", "nodes", 0, "commit", "checkSuites", "nodes", default=()
    )
    events: list[TimelineEvent] = _at("pullRequest", "timelineItems", "nodes")
    jobs: _Page[HeadJob] = _at("pullRequest", "statusCheckRollup", "contexts", default=_Page())
    threads: _Page[ReviewThread] = _at("pullRequest", "reviewThreads")
    comments: _Page[Note] = _at("pullRequest", "comments")
    reviews: _Page[Note] = _at("pullRequest", "reviews")


def read_pull_state(github: GitHub, repository: str, number: int, *, branch: str = "") -> PullState:
    """Read a pull request's state, with the lag of `branch` (`owner:name`) behind its base."""
    try:
        return _by_graphql(github, repository, number, branch)
    except RateLimitError:
        raise
    except (GitHubError, ValidationError) as error:
        log.debug("no answer by GraphQL: %s", type(error).__name__)
        why = error if isinstance(error, GitHubError) else None
    return _by_rest(github, repository, number, why)


def _by_graphql(github: GitHub, repository: str, number: int, branch: str) -> PullState:
    owner, _, name = repository.partition("/")
    variables: dict[str, JsonValue] = {
        "owner": owner,
        "name": name,
        "number": number,
        "head": branch,
        "compared": bool(branch),
    }
    jobs: list[HeadJob] = []
    threads: list[ReviewThread] = []
    comments: list[Note] = []
    reviews: list[Note] = []
    for _ in range(_PAGES):
        document = github.requester.graphql_query(QUERY, variables)[1]["data"]
        answer = _PullAnswer.model_validate(
            document.get("repository") if isinstance(document, dict) else None
        )
        jobs += answer.jobs.nodes
        threads += answer.threads.nodes
        comments += answer.comments.nodes
        reviews += answer.reviews.nodes
        # Behind the last page of a list there is nothing, while the others go on.
        pages = {key: getattr(answer, key) for key in ("jobs", "threads", "comments", "reviews")}
        variables |= {key: page.last for key, page in pages.items() if page.last}
        if not any(page.more for page in pages.values()):
            break
    jobs.sort(key=lambda job: job.started_at or "")
    # Of the attempts of a job, the last counts.
    last = {(job.name, job.workflow, job.event): job for job in jobs}
    opinions = {each.login: each.state for each in answer.opinions}
    decision, reviewers = _decision(opinions, answer.decision)
    merged = [at for at, event in enumerate(answer.events) if event.typename == "MergedEvent"]
    later = answer.events[merged[-1] if merged else 0 :]
    queue = [event for event in answer.events if event.typename.endswith("MergeQueueEvent")]
    removed = bool(queue) and queue[-1].typename.startswith("Removed")
    return PullState(
        **answer.model_dump(include=set(_Stated.model_fields)),
        number=number,
        mergeable={"MERGEABLE": True, "CONFLICTING": False}.get(answer.mergeable),
        decision=decision,
        reviewers=reviewers,
        removed=(queue[-1].reason or "it gave no reason") if removed else "",
        jobs=(*last.values(), *_suite_jobs(answer.suites)),
        comments=tuple(comments),
        reviews=tuple(reviews),
        threads=tuple(thread for thread in threads if thread.comments),
        commits=tuple(event for event in later if event.sha),
    )


def _suite_jobs(suites: Sequence[_Suite]) -> Iterator[HeadJob]:
    """Yield as jobs the suites without jobs: held back by GitHub Actions, or unable to start."""
    for suite in suites:
        word = suite.conclusion
        # Suites of other apps may stay queued for ever.
        actions = suite.slug == _ACTIONS
        quiet = word in {"success", "neutral", "skipped"} or (word == "pending" and not actions)
        if suite.app and not suite.runs and not quiet:
            held = actions and word == "action_required"
            yield HeadJob(name=f"{suite.app} (suite)", word="awaiting_approval" if held else word)


def _decision(
    opinions: Mapping[str, str], stated: str | None
) -> tuple[Literal["approved", "changes requested", "none"], tuple[str, ...]]:
    """Return the decision of the maintainers and their logins; `stated`: GitHub's own decision."""
    approved = tuple(name for name, word in opinions.items() if word == "APPROVED")
    against = tuple(name for name, word in opinions.items() if word == "CHANGES_REQUESTED")
    if stated == "CHANGES_REQUESTED" or (against and stated != "APPROVED"):
        return "changes requested", against
    if stated == "APPROVED" or (approved and stated is None):
        return "approved", approved
    return "none", ()


def _by_rest(github: GitHub, repository: str, number: int, why: GitHubError | None) -> PullState:
    """Read by REST the state alone, and the commits that name the pull request."""
    pull = github.pull(repository, number).complete()
    merged = pull.merged_at is not None
    left_out = "jobs, reviews, threads and comments"
    return PullState(
        number=number,
        url=pull.html_url,
        title=pull.title,
        state="merged" if merged else "open" if pull.state == "open" else "closed",
        draft=pull.draft,
        author=login_of(pull.user) or "",
        base=pull.base.ref,
        default_branch=pull.base.repo.default_branch,
        archived=pull.base.repo.archived,
        head=pull.head.sha,
        mergeable=pull.mergeable,
        merge_state=pull.mergeable_state or "unknown",
        merge_commit=(pull.merge_commit_sha or "") if merged else "",
        commits=() if pull.state == "open" else tuple(_naming(github, repository, pull)),
        unread=f"{left_out}: {why.message if why else 'the answer of GraphQL has another shape'}",
    )


def _naming(github: GitHub, repository: str, pull: PullRequest) -> Iterator[TimelineEvent]:
    """Yield the newest commits that mention a pull request after its merge, oldest first."""
    events = whole(github.issue(repository, pull.number).get_events())
    merged = [at for at, event in enumerate(events) if event.event == "merged"]
    later = events[merged[-1] + 1 if merged else 0 :]
    named = [*dict.fromkeys(event.commit_id for event in later if event.commit_id)]
    for sha in named[-_COMMITS:]:
        with contextlib.suppress(NotFoundError):  # of a fork that is gone
            message = github.repository(repository).get_git_commit(sha).message
            yield TimelineEvent(typename="ReferencedEvent", sha=sha, message=message)
