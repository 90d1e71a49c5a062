"""Where a pull request stands: one GraphQL query, or REST where GraphQL is refused."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, TypeVar

from pydantic import (
    AfterValidator,
    AliasChoices,
    AliasPath,
    BaseModel,
    ConfigDict,
    Field,
    JsonValue,
    ValidationError,
)
from pydantic.alias_generators import to_camel

from contribbot.errors import GitHubError, NotFoundError, RateLimitError
from contribbot.github.fields import login_of, whole
from contribbot.github.refusals import REFUSED

if TYPE_CHECKING:
    from github.PullRequest import PullRequest

    from contribbot.github.client import GitHub

T = TypeVar("T")
log: Final = logging.getLogger("contribbot.github")

#: Pages of 100 jobs and threads that are read; commits that name a pull request, by REST.
_PAGES: Final = 20
_COMMITS: Final = 30
#: Authors of reviews who may write to the repository, in REST's words.
_WRITERS: Final = frozenset({"OWNER", "MEMBER", "COLLABORATOR"})
_NO_OPINION: Final = frozenset({"COMMENTED", "PENDING"})
_ACTIONS: Final = "github-actions"
QUERY: Final = """
query($owner: String!, $name: String!, $number: Int!, $jobs: String, $threads: String) {
  repository(owner: $owner, name: $name) {
    isArchived
    defaultBranchRef { name }
    pullRequest(number: $number) {
      url title state isDraft updatedAt baseRefName baseRefOid headRefOid
      mergeable mergeStateStatus isInMergeQueue reviewDecision
      author { login }
      mergeCommit { oid }
      latestOpinionatedReviews(first: 100, writersOnly: true) { nodes { state author { login } } }
      statusCheckRollup {
        contexts(first: 100, after: $jobs) {
          pageInfo { hasNextPage endCursor }
          nodes {
            ... on CheckRun {
              name status conclusion startedAt isRequired(pullRequestNumber: $number)
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
              nodes { status conclusion app { name slug } checkRuns { totalCount } }
            }
          }
        }
      }
      reviewThreads(first: 100, after: $threads) {
        pageInfo { hasNextPage endCursor }
        nodes { isResolved isOutdated comments(first: 1) { nodes { fullDatabaseId } } }
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
"""


@dataclass(frozen=True)
class HeadJob:
    """A job of CI, with GitHub's word for its end; `pending`, or `expected` before its start."""

    name: str
    word: str
    required: bool = False


@dataclass(frozen=True)
class ReviewThread:
    """Whether a thread of review comments is resolved; `first` is its first comment's number."""

    resolved: bool
    outdated: bool
    first: int | None


@dataclass(frozen=True)
class NamingCommit:
    """A commit that names a pull request."""

    sha: str
    message: str


class _Part(BaseModel):
    """A part of GraphQL's answer; another shape of it is an error."""

    model_config = ConfigDict(
        strict=True, frozen=True, alias_generator=to_camel, validate_by_name=True
    )


def _at(first: str, *path: str | int, default: object = ...) -> Any:
    """Return the field at a path, which has its default where something above is null."""
    return Field(default, validation_alias=AliasPath(first, *path))


#: A word of GitHub's, in lower case.
Word = Annotated[str, AfterValidator(str.lower)]
_JOBS: Final = ("pullRequest", "statusCheckRollup", "contexts")


def _of_commit(key: str) -> AliasChoices:
    """Return where an event has a field of its commit."""
    return AliasChoices(AliasPath("commit", key), AliasPath("closer", key))


class _Stated(_Part):
    """The plain fields of a pull request's state."""

    state: Word = _at("pullRequest", "state")
    url: str = _at("pullRequest", "url")
    title: str = _at("pullRequest", "title")
    draft: bool = _at("pullRequest", "isDraft")
    updated: str = _at("pullRequest", "updatedAt")
    author: str = _at("pullRequest", "author", "login", default="")
    base: str = _at("pullRequest", "baseRefName")
    base_sha: str = _at("pullRequest", "baseRefOid")
    head: str = _at("pullRequest", "headRefOid")
    #: GitHub's MergeStateStatus, such as `clean` or `blocked`.
    merge_state: Word = _at("pullRequest", "mergeStateStatus")
    queued: bool = _at("pullRequest", "isInMergeQueue", default=False)
    merge_commit: str = _at("pullRequest", "mergeCommit", "oid", default="")
    archived: bool = _at("isArchived")
    default_branch: str = _at("defaultBranchRef", "name")


class PullState(_Stated):
    """Where a pull request stands; its `state` is open, closed or merged."""

    number: int
    mergeable: bool | None
    decision: Literal["approved", "changes requested", "none"]
    reviewers: tuple[str, ...] = ()
    #: Why a merge queue removed the pull request.
    removed: str = ""
    jobs: tuple[HeadJob, ...] = ()
    #: None: GitHub did not say.
    threads: tuple[ReviewThread, ...] | None = None
    #: The commits that name it, since it was merged or in all; the oldest first.
    commits: tuple[NamingCommit, ...] = ()
    #: Parts that GitHub refused to give, and why.
    unread: tuple[str, ...] = ()


class _Context(_Part):
    name: str = ""
    context: str = ""
    status: str = ""
    conclusion: str | None = None
    started_at: str | None = None
    state: str = ""
    is_required: bool
    workflow: str = _at("checkSuite", "workflowRun", "workflow", "name", default="")
    event: str = _at("checkSuite", "workflowRun", "event", default="")

    def job(self) -> HeadJob:
        """Return the job."""
        ended = self.conclusion if self.status == "COMPLETED" else None
        word = self.state or ended or "pending"
        return HeadJob(self.name or self.context, word.lower(), self.is_required)


class _Suite(_Part):
    conclusion: str | None
    app: str = _at("app", "name", default="")
    slug: str = _at("app", "slug", default="")
    runs: int = _at("checkRuns", "totalCount", default=0)


class _Thread(_Part):
    is_resolved: bool
    is_outdated: bool
    #: Numbers of 64 bits come as text.
    first: str | None = _at("comments", "nodes", 0, "fullDatabaseId", default=None)


class _Review(_Part):
    state: str
    login: str = _at("author", "login", default="")


class _Event(_Part):
    typename: str = Field(alias="__typename")
    sha: str = Field("", validation_alias=_of_commit("oid"))
    message: str = Field("", validation_alias=_of_commit("message"))
    reason: str | None = None


class _PullAnswer(_Stated):
    mergeable: str = _at("pullRequest", "mergeable")
    decision: str | None = _at("pullRequest", "reviewDecision")
    reviews: list[_Review] = _at("pullRequest", "latestOpinionatedReviews", "nodes", default=())
    contexts: list[_Context] = _at(*_JOBS, "nodes", default=())
    suites: list[_Suite] = _at(
        "pullRequest", "commits", "nodes", 0, "commit", "checkSuites", "nodes", default=()
    )
    threads: list[_Thread] = _at("pullRequest", "reviewThreads", "nodes")
    events: list[_Event] = _at("pullRequest", "timelineItems", "nodes")
    more_jobs: bool = _at(*_JOBS, "pageInfo", "hasNextPage", default=False)
    last_job: str | None = _at(*_JOBS, "pageInfo", "endCursor", default=None)
    more_threads: bool = _at("pullRequest", "reviewThreads", "pageInfo", "hasNextPage")
    last_thread: str | None = _at("pullRequest", "reviewThreads", "pageInfo", "endCursor")


def read_pull_state(github: GitHub, repository: str, number: int) -> PullState:
    """Read where a pull request stands."""
    try:
        return _by_graphql(github, repository, number)
    except RateLimitError:
        raise
    except (GitHubError, ValidationError) as error:
        log.debug("no answer by GraphQL: %s", type(error).__name__)
    return _by_rest(github, repository, number)


def _by_graphql(github: GitHub, repository: str, number: int) -> PullState:
    owner, _, name = repository.partition("/")
    variables: dict[str, JsonValue] = {"owner": owner, "name": name, "number": number}
    contexts: list[_Context] = []
    threads: list[_Thread] = []
    for _ in range(_PAGES):
        document = github.requester.graphql_query(QUERY, variables)[1]["data"]
        answer = _PullAnswer.model_validate(
            document.get("repository") if isinstance(document, dict) else None
        )
        contexts += answer.contexts
        threads += answer.threads
        if not answer.more_jobs and not answer.more_threads:
            break
        # Behind the last page of the one there is nothing, while the other goes on.
        variables["jobs"] = answer.last_job or variables.get("jobs")
        variables["threads"] = answer.last_thread or variables.get("threads")
    contexts.sort(key=lambda job: job.started_at or "")
    # Of the attempts of a job, the last counts.
    jobs = {(job.name, job.context, job.workflow, job.event): job.job() for job in contexts}
    opinions = {review.login: review.state for review in answer.reviews}
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
        jobs=(*jobs.values(), *_suite_jobs(answer.suites)),
        threads=tuple(
            ReviewThread(
                each.is_resolved, each.is_outdated, int(each.first) if each.first else None
            )
            for each in threads
        ),
        commits=tuple(NamingCommit(event.sha, event.message) for event in later if event.sha),
    )


def _suite_jobs(suites: Sequence[_Suite]) -> Iterator[HeadJob]:
    """Yield the suites without jobs that GitHub Actions holds back, and those that cannot start."""
    for suite in suites:
        word = (suite.conclusion or "pending").lower()
        # Suites of other apps may stay queued for ever.
        actions = suite.slug == _ACTIONS
        quiet = word in {"success", "neutral", "skipped"} or (word == "pending" and not actions)
        if suite.app and not suite.runs and not quiet:
            held = actions and word == "action_required"
            yield HeadJob(f"{suite.app} (suite)", "awaiting_approval" if held else word)


def _decision(
    opinions: Mapping[str, str], stated: str | None = None
) -> tuple[Literal["approved", "changes requested", "none"], tuple[str, ...]]:
    """Return what those who may write decided, and who; a branch without rules states nothing."""
    approved = tuple(name for name, word in opinions.items() if word == "APPROVED")
    against = tuple(name for name, word in opinions.items() if word == "CHANGES_REQUESTED")
    if stated == "CHANGES_REQUESTED" or (against and stated != "APPROVED"):
        return "changes requested", against
    if stated == "APPROVED" or (approved and stated is None):
        return "approved", approved
    return "none", ()


def _by_rest(github: GitHub, repository: str, number: int) -> PullState:
    """Read the same as far as REST tells it: no threads, no merge queue, no required jobs."""
    pull = github.pull(repository, number).complete()
    merged, commit = pull.merged_at is not None, github.commit(repository, pull.head.sha)
    unread: list[str] = []

    def runs() -> Iterator[HeadJob]:
        for run in whole(commit.get_check_runs(filter="latest")):
            yield HeadJob(run.name, run.conclusion or "pending")

    def statuses() -> Iterator[HeadJob]:
        yield from (HeadJob(status.context, status.state) for status in github.statuses(commit))

    def opinions() -> Iterator[tuple[str, str]]:
        for review in github.pull(repository, number).get_reviews():
            entitled = review.raw_data.get("author_association") in _WRITERS
            if entitled and review.state not in _NO_OPINION:
                yield login_of(review.user) or "", review.state

    def optional(name: str, read: Callable[[], Iterator[T]]) -> list[T]:
        try:
            return list(read())
        except REFUSED as error:
            unread.append(f"{name}: {error.message}")
            return []

    jobs = (*optional("jobs", runs), *optional("statuses of jobs", statuses))
    decision, reviewers = _decision(dict(optional("reviews", opinions)))
    return PullState(
        number=number,
        url=pull.html_url,
        title=pull.title,
        state="merged" if merged else "open" if pull.state == "open" else "closed",
        draft=pull.draft,
        updated=str(pull.raw_data["updated_at"]),
        author=login_of(pull.user) or "",
        base=pull.base.ref,
        base_sha=pull.base.sha,
        default_branch=pull.base.repo.default_branch,
        archived=pull.base.repo.archived,
        head=pull.head.sha,
        mergeable=pull.mergeable,
        merge_state=pull.mergeable_state or "unknown",
        decision=decision,
        reviewers=reviewers,
        jobs=jobs,
        merge_commit=(pull.merge_commit_sha or "") if merged else "",
        commits=() if pull.state == "open" else tuple(_naming(github, repository, pull)),
        unread=tuple(unread),
    )


def _naming(github: GitHub, repository: str, pull: PullRequest) -> Iterator[NamingCommit]:
    """Yield the newest commits that name a pull request, the oldest first."""
    events = whole(github.issue(repository, pull.number).get_events())
    merged = [at for at, event in enumerate(events) if event.event == "merged"]
    later = events[merged[-1] + 1 if merged else 0 :]
    named = [*dict.fromkeys(event.commit_id for event in later if event.commit_id)]
    for sha in named[-_COMMITS:]:
        with contextlib.suppress(NotFoundError):  # of a fork that is gone
            message = github.repository(repository).get_git_commit(sha).message
            yield NamingCommit(sha, message)
