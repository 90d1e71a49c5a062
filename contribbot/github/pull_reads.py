"""Reading pull requests, what is said about them, and what CI says."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated, Final, Literal

from pydantic import AliasPath, Field, TypeAdapter

from contribbot.github.base import Part
from contribbot.github.caller import part, slug
from contribbot.model.discussion import (
    CheckRun,
    Comment,
    CommitStatus,
    Issue,
    IssueEvent,
    PullFile,
    Review,
    ReviewComment,
    ReviewThread,
    Search,
)
from contribbot.model.github import Fetched, PullRequest, Said

_DIFF: Final = "application/vnd.github.v3.diff"
_PATCH: Final = "application/vnd.github.v3.patch"
#: Results of one search.
_MOST: Final = 100
#: Pages of 100 review threads.
_THREAD_PAGES: Final = 20

_PULLS: Final = TypeAdapter(tuple[PullRequest, ...])
_FILES: Final = TypeAdapter(tuple[PullFile, ...])
_EVENTS: Final = TypeAdapter(tuple[IssueEvent, ...])
_COMMENTS: Final = TypeAdapter(tuple[Comment, ...])
_REVIEW_COMMENTS: Final = TypeAdapter(tuple[ReviewComment, ...])
_REVIEWS: Final = TypeAdapter(tuple[Review, ...])

THREADS: Final = """
query($owner: String!, $name: String!, $number: Int!, $after: String) {
  repository(owner: $owner, name: $name) {
    pullRequest(number: $number) {
      reviewThreads(first: 100, after: $after) {
        pageInfo { hasNextPage endCursor }
        nodes {
          id isResolved isOutdated
          comments(first: 1) { nodes { fullDatabaseId } }
        }
      }
    }
  }
}
"""


class _CheckRuns(Said):
    check_runs: tuple[CheckRun, ...]


class _Combined(Said):
    statuses: tuple[CommitStatus, ...]


class _PageInfo(Said):
    hasNextPage: bool  # noqa: N815  GraphQL's spelling
    endCursor: str | None = None  # noqa: N815  the same


class _Threads(Said):
    pageInfo: _PageInfo  # noqa: N815  the same
    nodes: tuple[ReviewThread, ...]


class _ThreadsAnswer(Said):
    """A part that GraphQL refuses is null, however deep."""

    threads: Annotated[
        _Threads | None,
        Field(validation_alias=AliasPath("data", "repository", "pullRequest", "reviewThreads")),
    ] = None


_THREADS_ANSWER: Final = TypeAdapter(_ThreadsAnswer)


class PullReads(Part):
    """The part of `Reader` that is about pull requests."""

    def pull(self, repository: str, number: int) -> Fetched[PullRequest]:
        """See `Reader.pull`."""
        answer = self._caller.get(f"{slug(repository)}/pulls/{number:d}", conditional=True)
        return Fetched(self._caller.read(answer, TypeAdapter(PullRequest)), not answer.unchanged)

    def pulls_from(
        self, repository: str, owner: str, branch: str
    ) -> Fetched[tuple[PullRequest, ...]]:
        """See `Reader.pulls_from`."""
        found = self._fetch_list(
            _PULLS, f"{slug(repository)}/pulls", {"head": f"{owner}:{branch}", "state": "all"}
        )
        # Without a match for `head`, GitHub lists all: what is not from there is left out.
        mine = tuple(
            sorted(
                (one for one in found.value if _is_from(one, owner, branch)),
                key=lambda one: one.number,
                reverse=True,
            )
        )
        return Fetched(mine, found.changed)

    def recent_pulls(
        self,
        repository: str,
        *,
        state: Literal["open", "closed", "all"] = "open",
        since: datetime | None = None,
        pages: int = 3,
    ) -> tuple[PullRequest, ...]:
        """See `Reader.recent_pulls`."""
        query = {"state": state, "sort": "updated", "direction": "desc"}
        found: list[PullRequest] = []
        if pages < 1:
            return ()
        path = f"{slug(repository)}/pulls"
        for number, page in enumerate(
            self._caller.pages(path, query, conditional=True, most=pages + 1), start=1
        ):
            here = self._caller.read(page, _PULLS)
            found += [one for one in here if since is None or one.updated_at >= since]
            if number >= pages or (
                since is not None and any(one.updated_at < since for one in here)
            ):
                break
        return tuple(found)

    def pull_files(self, repository: str, number: int) -> tuple[PullFile, ...]:
        """See `Reader.pull_files`."""
        return self._list(_FILES, f"{slug(repository)}/pulls/{number:d}/files")

    def pull_diff(self, repository: str, number: int) -> bytes:
        """See `Reader.pull_diff`."""
        path = f"{slug(repository)}/pulls/{number:d}"
        return self._caller.get(path, accept=_DIFF, conditional=True).body

    def pull_commits(self, repository: str, number: int) -> bytes:
        """See `Reader.pull_commits`."""
        path = f"{slug(repository)}/pulls/{number:d}"
        return self._caller.get(path, accept=_PATCH, conditional=True).body

    def issue(self, repository: str, number: int) -> Issue:
        """See `Reader.issue`."""
        return self._get(Issue, f"{slug(repository)}/issues/{number:d}")

    def issue_events(self, repository: str, number: int) -> tuple[IssueEvent, ...]:
        """See `Reader.issue_events`."""
        return self._list(_EVENTS, f"{slug(repository)}/issues/{number:d}/events")

    def comments(
        self, repository: str, number: int, since: datetime | None = None
    ) -> tuple[Comment, ...]:
        """See `Reader.comments`."""
        path = f"{slug(repository)}/issues/{number:d}/comments"
        return self._list(_COMMENTS, path, _since(since))

    def review_comments(
        self, repository: str, number: int, since: datetime | None = None
    ) -> tuple[ReviewComment, ...]:
        """See `Reader.review_comments`."""
        path = f"{slug(repository)}/pulls/{number:d}/comments"
        return self._list(_REVIEW_COMMENTS, path, _since(since))

    def reviews(self, repository: str, number: int) -> tuple[Review, ...]:
        """See `Reader.reviews`."""
        return self._list(_REVIEWS, f"{slug(repository)}/pulls/{number:d}/reviews")

    def review_threads(self, repository: str, number: int) -> tuple[ReviewThread, ...] | None:
        """See `Reader.review_threads`."""
        owner, _, name = repository.partition("/")
        found: list[ReviewThread] = []
        after: str | None = None
        for _ in range(_THREAD_PAGES):
            answer = self._graphql(
                THREADS, {"owner": owner, "name": name, "number": number, "after": after}
            )
            threads = self._caller.read(answer, _THREADS_ANSWER).threads if answer else None
            if threads is None:
                return None
            found += threads.nodes
            if not threads.pageInfo.hasNextPage:
                break
            after = threads.pageInfo.endCursor
        return tuple(found)

    def check_runs(self, repository: str, sha: str) -> Fetched[tuple[CheckRun, ...]]:
        """See `Reader.check_runs`."""
        path = f"{slug(repository)}/commits/{part(sha)}/check-runs"
        shape, query = TypeAdapter(_CheckRuns), {"filter": "latest"}
        return self._fetch_pages(shape, lambda page: page.check_runs, path, query)

    def statuses(self, repository: str, sha: str) -> Fetched[tuple[CommitStatus, ...]]:
        """See `Reader.statuses`."""
        path = f"{slug(repository)}/commits/{part(sha)}/status"
        return self._fetch_pages(TypeAdapter(_Combined), lambda page: page.statuses, path)

    def search_issues(self, query: str, limit: int = 30) -> Search:
        """See `Reader.search_issues`."""
        size = str(max(1, min(limit, _MOST)))
        answer = self._caller.get("/search/issues", {"q": query, "per_page": size})
        return self._caller.read(answer, TypeAdapter(Search))

    def count_open_pulls(self, repository: str, author: str) -> int:
        """See `Reader.count_open_pulls`."""
        query = f"repo:{repository} is:pr is:open author:{author}"
        return self.search_issues(query, 1).total_count


def _since(since: datetime | None) -> dict[str, str]:
    return {} if since is None else {"since": since.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")}


def _is_from(pull: PullRequest, owner: str, branch: str) -> bool:
    """Return whether a pull request is from somebody's branch; of a fork that is gone, perhaps."""
    if pull.head.ref != branch:
        return False
    repository = pull.head.repository
    return repository is None or repository.partition("/")[0].lower() == owner.lower()
