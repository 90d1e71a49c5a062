"""Read a pull request's state: by one GraphQL query, or by REST if GraphQL gives no answer."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator, Sequence
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
from contribbot.github.objects import login_of, whole

if TYPE_CHECKING:
    from github.PullRequest import PullRequest

    from contribbot.github.client import GitHub

T = TypeVar("T")
log: Final = logging.getLogger("contribbot.github")

#: The most pages to read, of 100 jobs, threads, comments and reviews each; the most commits to
#: read by REST that name a pull request.
_PAGES: Final = 20
_COMMITS: Final = 30
#: GitHub's words for an author who is a maintainer of the repository.
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
    """A part of GraphQL's answer; fields of unexpected types fail to validate."""

    model_config = ConfigDict(
        strict=True, frozen=True, alias_generator=to_camel, validate_by_name=True
    )


def _at(first: str, *path: str | int, default: object = ...) -> Any:
    """Return a model field, read at a path of the answer; a missing value gives the default."""
    return Field(default, validation_alias=AliasPath(first, *path))


#: A word of GitHub's, in lower case; `pending` instead of null.
Word = Annotated[str, BeforeValidator(lambda word: word or "pending"), AfterValidator(str.lower)]
Moment = Annotated[datetime, Field(strict=False)]


def _of_commit(key: str) -> AliasChoices:
    """Return the two JSON paths at which an event may have a field of its commit."""
    return AliasChoices(AliasPath("commit", key), AliasPath("closer", key))


class HeadJob(_Part):
    """A CI job; `word`: GitHub's word for the job's result, or `pending` or `expected` before."""

    name: str = Field(validation_alias=AliasChoices("name", "context"))
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
    sha: str = Field("", validation_alias=_of_commit("oid"))
    message: str = Field("", validation_alias=_of_commit("message"))
    reason: str | None = None


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


class PullState(_Part):
    """The state of a pull request on GitHub; `state` is open, closed or merged."""

    number: int = _at("pullRequest", "number")
    state: Word = _at("pullRequest", "state")
    url: str = _at("pullRequest", "url")
    title: str = _at("pullRequest", "title")
    draft: bool = _at("pullRequest", "isDraft")
    author: str = _at("pullRequest", "author", "login", default="")
    base: str = _at("pullRequest", "baseRefName")
    head: str = _at("pullRequest", "headRefOid")
    #: The number of the base's commits that the branch lacks; None: not asked for.
    behind: int | None = _at("pullRequest", "baseRef", "compare", "behindBy", default=None)
    #: Whether the branch merges: `mergeable`, `conflicting`, or `unknown` for now.
    mergeable: Word = _at("pullRequest", "mergeable")
    #: GitHub's MergeStateStatus, such as `clean` or `blocked`.
    merge_state: Word = _at("pullRequest", "mergeStateStatus")
    queued: bool = _at("pullRequest", "isInMergeQueue", default=False)
    merge_commit: str = _at("pullRequest", "mergeCommit", "oid", default="")
    archived: bool = _at("isArchived")
    default_branch: str = _at("defaultBranchRef", "name")
    #: GitHub's decision, which exists only with a rule for reviews; the maintainers' opinions.
    ruling: str | None = _at("pullRequest", "reviewDecision", default=None)
    opinions: list[_Opinion] = _at("pullRequest", "latestOpinionatedReviews", "nodes", default=())
    suites: list[_Suite] = _at(
        "pullRequest", "commits", "nodes", 0, "commit", "checkSuites", "nodes", default=()
    )
    events: list[TimelineEvent] = _at("pullRequest", "timelineItems", "nodes", default=())
    job_page: _Page[HeadJob] = _at("pullRequest", "statusCheckRollup", "contexts", default=_Page())
    thread_page: _Page[ReviewThread] = _at("pullRequest", "reviewThreads", default=_Page())
    comment_page: _Page[Note] = _at("pullRequest", "comments", default=_Page())
    review_page: _Page[Note] = _at("pullRequest", "reviews", default=_Page())
    #: The parts that REST leaves out, and why GraphQL did not answer; empty: nothing is left out.
    unread: str = ""

    @property
    def pages(self) -> dict[str, _Page[Any]]:
        """The lists that may have more pages, by the variables of the query."""
        return {
            "jobs": self.job_page,
            "threads": self.thread_page,
            "comments": self.comment_page,
            "reviews": self.review_page,
        }

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
        """Why a merge queue removed the pull request; empty: no merge queue did."""
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
        """The threads of comments on lines."""
        return [thread for thread in self.thread_page.nodes if thread.comments]

    @property
    def jobs(self) -> list[HeadJob]:
        """The last attempt of each CI job, then as jobs the suites that could not start."""
        jobs = sorted(self.job_page.nodes, key=lambda job: job.started_at or "")
        last = {(job.name, job.workflow, job.event): job for job in jobs}
        return [*last.values(), *_suite_jobs(self.suites)]


def _suite_jobs(suites: Sequence[_Suite]) -> Iterator[HeadJob]:
    """Yield as jobs the suites without jobs that wait for approval or could not start."""
    for suite in suites:
        word = suite.conclusion
        # Suites of other apps may stay queued for ever.
        actions = suite.slug == _ACTIONS
        quiet = word in {"success", "neutral", "skipped"} or (word == "pending" and not actions)
        if suite.app and not suite.runs and not quiet:
            held = actions and word == "action_required"
            yield HeadJob(name=f"{suite.app} (suite)", word="awaiting_approval" if held else word)


def read_pull_state(github: GitHub, repository: str, number: int, *, branch: str = "") -> PullState:
    """Read a pull request's state; `branch` (`owner:name`): also how far it is behind its base."""
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
    state = last = _answer(github, variables)
    for _ in range(_PAGES - 1):
        if not any(page.more for page in last.pages.values()):
            break
        # A list that has ended gives empty pages, while other lists go on.
        variables |= {key: page.last for key, page in last.pages.items() if page.last}
        last = _answer(github, variables)
        for key, page in last.pages.items():
            state.pages[key].nodes.extend(page.nodes)
    return state


def _answer(github: GitHub, variables: dict[str, JsonValue]) -> PullState:
    document = github.requester.graphql_query(QUERY, variables)[1]["data"]
    return PullState.model_validate(
        document.get("repository") if isinstance(document, dict) else None
    )


def _by_rest(github: GitHub, repository: str, number: int, why: GitHubError | None) -> PullState:
    """Read by REST only the state, and the commits that name an ended pull request."""
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
        mergeable={True: "mergeable", False: "conflicting"}.get(pull.mergeable, "unknown"),
        merge_state=pull.mergeable_state or "unknown",
        merge_commit=(pull.merge_commit_sha or "") if merged else "",
        events=[] if pull.state == "open" else [*_naming(github, repository, pull)],
        unread=f"{left_out}: {why.message if why else 'the answer of GraphQL has another shape'}",
    )


def _naming(github: GitHub, repository: str, pull: PullRequest) -> Iterator[TimelineEvent]:
    """Yield the newest commits that mention a pull request after its merge, oldest first."""
    events = whole(github.issue(repository, pull.number).get_events())
    merged = [at for at, event in enumerate(events) if event.event == "merged"]
    later = events[merged[-1] + 1 if merged else 0 :]
    named = [*dict.fromkeys(event.commit_id for event in later if event.commit_id)]
    for sha in named[-_COMMITS:]:
        with contextlib.suppress(NotFoundError):  # a commit of a deleted fork
            message = github.repository(repository).get_git_commit(sha).message
            yield TimelineEvent(typename="ReferencedEvent", sha=sha, message=message)
