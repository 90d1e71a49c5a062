"""GitHub: PyGithub's objects, and the few questions that they do not ask.

Every method, and every attribute or method of the objects that sends a request, may raise a
`GitHubError` (see `errors`). An `UncertainError` comes of what makes another one each time that it
is sent (a fork, a pull request, a comment, a dispatch): look for it before it is sent again.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, TypeVar
from urllib.parse import quote

from github.AuthenticatedUser import AuthenticatedUser
from github.Commit import Commit
from github.GithubObject import CompletableGithubObject
from github.GitRef import GitRef
from github.Issue import Issue
from github.PullRequest import PullRequest
from github.Repository import Repository
from github.Workflow import Workflow
from github.WorkflowRun import WorkflowRun
from pydantic import JsonValue

from contribbot.errors import GitHubError, UncertainError
from contribbot.github.auth import Server, Token, find_server, find_token
from contribbot.github.fields import name_of, whole
from contribbot.github.refusals import REFUSED, clean_line
from contribbot.github.requester import Requester, odd_answer, shaped
from contribbot.github.shapes import (
    BranchShape,
    CheckRunShape,
    CheckRunsShape,
    CheckSuiteShape,
    CheckSuitesShape,
    CommitsShape,
    IssueShape,
    RulesShape,
    SearchShape,
    StatusesShape,
    StatusShape,
)
from contribbot.github.waits import Waits

K = TypeVar("K", bound=CompletableGithubObject)

_DIFF: Final = "application/vnd.github.v3.diff"
_PATCH: Final = "application/vnd.github.v3.patch"
#: Pages of 100 review threads.
_THREAD_PAGES: Final = 20
#: Pages of 100 commits: more than any upstream lands in half a day.
_COMMIT_PAGES: Final = 3
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


@dataclass(frozen=True)
class ReviewThread:
    """What only GraphQL says of a thread of review comments; `first` is the comment's number."""

    resolved: bool
    outdated: bool
    first: int | None


@dataclass(frozen=True)
class Search:
    """What a search found: how many there are, whether GitHub looked everywhere, the first."""

    total: int
    incomplete: bool
    items: tuple[IssueShape, ...]


class GitHub:
    """GitHub, as one account. What returns a handle sends nothing: `complete()` reads it."""

    def __init__(self, requester: Requester) -> None:
        self.requester = requester
        self._me = self._handle(AuthenticatedUser, "/user")

    @property
    def server(self) -> Server:
        """The server."""
        return self.requester.server

    @property
    def me(self) -> str:
        """The login of the account; asked for once."""
        return self._me.login

    def repository(self, name: str) -> Repository:
        """Return a handle; `full_name` is what it was asked for, until it is completed."""
        return self._handle(Repository, slug(name), full_name=name)

    def pull(self, repository: str, number: int) -> PullRequest:
        """Return a handle."""
        place = slug(repository)
        issue = f"{place}/issues/{number:d}"
        return self._handle(PullRequest, f"{place}/pulls/{number:d}", issue_url=issue)

    def issue(self, repository: str, number: int) -> Issue:
        """Return a handle of an issue or pull request."""
        return self._handle(Issue, f"{slug(repository)}/issues/{number:d}")

    def read_issue(self, repository: str, number: int) -> IssueShape:
        """Return an issue or pull request, as issues are described."""
        ((issue, _),) = self.requester.read(IssueShape, f"{slug(repository)}/issues/{number:d}")
        return issue

    def ref(self, repository: str, branch: str) -> GitRef:
        """Return a handle of a branch."""
        return self._handle(GitRef, f"{slug(repository)}/git/refs/heads/{quote(branch)}")

    def commit(self, repository: str, sha: str) -> Commit:
        """Return a handle."""
        return self._handle(Commit, f"{slug(repository)}/commits/{quote(sha, safe='')}")

    def workflow(self, repository: str, file: str) -> Workflow:
        """Return a handle of a file in `.github/workflows/`."""
        return self._handle(Workflow, f"{slug(repository)}/actions/workflows/{quote(file)}")

    def run(self, repository: str, run_id: int) -> WorkflowRun:
        """Return a handle."""
        url = f"{slug(repository)}/actions/runs/{run_id:d}"
        parts = {f"{part}_url": f"{url}/{part}" for part in ("jobs", "artifacts", "cancel")}
        return self._handle(WorkflowRun, url, **parts)

    def _handle(self, kind: type[K], url: str, **attributes: str) -> K:
        return kind(self.requester, {}, {"url": url, **attributes}, completed=False)

    def pulls_from(self, repository: str, owner: str, branch: str) -> tuple[PullRequest, ...]:
        """Return the pull requests from somebody's branch, in any state, newest first."""
        pulls = []
        pages = self.repository(repository).get_pulls(state="all", head=f"{owner}:{branch}")
        for pull in whole(pages):
            # Without a match for `head`, GitHub lists all; of a fork that is gone, perhaps.
            login = (name_of(pull.head.repo) or owner).partition("/")[0]
            if pull.head.ref == branch and login.lower() == owner.lower():
                pulls.append(pull)
        return tuple(sorted(pulls, key=lambda pull: pull.number, reverse=True))

    def recent_pulls(
        self, repository: str, *, state: str, pages: int, since: datetime | None = None
    ) -> tuple[PullRequest, ...]:
        """Return pull requests, the last changed first, down to a time or so many pages of 100."""
        pulls = self.repository(repository).get_pulls(state, sort="updated", direction="desc")
        oldest = since or datetime.min.replace(tzinfo=UTC)
        recent = itertools.takewhile(lambda pull: (pull.updated_at or oldest) >= oldest, pulls)
        return whole(itertools.islice(recent, 100 * pages))

    def diff(self, repository: str, number: int, *, commits: bool = False) -> bytes:
        """Return the diff of a pull request, or its commits as `git format-patch` writes them."""
        url = f"{slug(repository)}/pulls/{number:d}"
        return self.requester.send("GET", url, _PATCH if commits else _DIFF).body

    def check_runs(self, repository: str, sha: str) -> list[CheckRunShape]:
        """Return the check runs of a commit, each as it ran last."""
        path = f"{self.commit(repository, sha).url}/check-runs"
        pages = self.requester.read(CheckRunsShape, path, filter="latest", per_page=100)
        return [run for page, _ in pages for run in page.check_runs]

    def check_suites(self, repository: str, sha: str) -> list[CheckSuiteShape]:
        """Return the check suites of a commit: what each app was asked to run."""
        path = f"{self.commit(repository, sha).url}/check-suites"
        pages = self.requester.read(CheckSuitesShape, path, per_page=100)
        return [suite for page, _ in pages for suite in page.check_suites]

    def statuses(self, repository: str, sha: str) -> list[StatusShape]:
        """Return the statuses of a commit, of each context the latest."""
        path = f"{self.commit(repository, sha).url}/status"
        pages = self.requester.read(StatusesShape, path, per_page=100)
        return [status for page, _ in pages for status in page.statuses]

    def required_checks(self, repository: str, branch: str) -> frozenset[str]:
        """Return the checks that a branch's protection and the rules for it require."""
        place, name = slug(repository), quote(branch)
        ((protected, _),) = self.requester.read(BranchShape, f"{place}/branches/{name}")
        rules = self.requester.read(RulesShape, f"{place}/rules/branches/{name}", per_page=100)
        named = [rule.parameters for page, _ in rules for rule in page.root if rule.parameters]
        by_rule = {check.context for rule in named for check in rule.required_status_checks}
        classic = protected.protection and protected.protection.required_status_checks
        return frozenset(by_rule.union(classic.contexts if classic else ()))

    def commits(
        self, repository: str, branch: str, span: tuple[datetime, datetime]
    ) -> Iterator[tuple[str, str]]:
        """Yield the commits of a branch in a time, newest first, each with its message."""
        since, until = (f"{moment.astimezone(UTC):%Y-%m-%dT%H:%M:%SZ}" for moment in span)
        pages = self.requester.read(
            CommitsShape, f"{slug(repository)}/commits", sha=branch, since=since, until=until,
            per_page=100,
        )  # fmt: skip
        for page, _ in itertools.islice(pages, _COMMIT_PAGES):
            yield from ((commit.sha, commit.commit.message) for commit in page.root)

    def search(self, query: str, limit: int = 30) -> Search:
        """Return issues and pull requests that a search finds, best first."""
        pages = self.requester.read(SearchShape, "/search/issues", q=query, per_page=limit)
        found, partial = next(pages)
        return Search(found.total_count, found.incomplete_results or partial, tuple(found.items))

    def review_threads(self, repository: str, number: int) -> tuple[ReviewThread, ...] | None:
        """Return which threads are resolved or outdated, or None where GraphQL is refused."""
        owner, _, name = repository.partition("/")
        threads: list[ReviewThread] = []
        variables: dict[str, JsonValue] = {"owner": owner, "name": name, "number": number}
        for _ in range(_THREAD_PAGES):
            page: object = self.requester.graphql(THREADS, variables)
            for key in ("repository", "pullRequest", "reviewThreads"):
                page = page.get(key) if isinstance(page, dict) else None
            if not isinstance(page, dict):
                return None
            try:
                for node in page["nodes"]:
                    # Its numbers have 64 bits, and come as text.
                    first = next((it["fullDatabaseId"] for it in node["comments"]["nodes"]), None)
                    threads.append(ReviewThread(
                        bool(node["isResolved"]), bool(node["isOutdated"]),
                        int(first) if first is not None else None,
                    ))  # fmt: skip
                if not page["pageInfo"]["hasNextPage"]:
                    break
                variables["after"] = page["pageInfo"]["endCursor"]
            except (KeyError, TypeError, ValueError):
                raise odd_answer("POST /graphql", "reviewThreads") from None
        return tuple(threads)

    def move_ref(self, repository_id: str, branch: str, *, old: str, new: str) -> None:
        """Move a branch, forced, if it still has the commit that it is thought to have.

        Whether it moved is not said: GitHub may refuse it (only GraphQL can ask for it), or
        the branch has another commit by now. Look with `head_of`.
        """
        ref = f"refs/heads/{branch}"
        update = {"name": ref, "beforeOid": old, "afterOid": new, "force": True}
        variables = {"repositoryId": repository_id, "refUpdates": [update]}
        with contextlib.suppress(*REFUSED, UncertainError):
            self.requester.graphql_named_mutation("updateRefs", variables, "clientMutationId")

    def mark_ready(self, pull: PullRequest) -> PullRequest:
        """Mark a draft ready for review; return it as it is then, as GraphQL may be refused."""
        with contextlib.suppress(*REFUSED, UncertainError, KeyError, TypeError):
            pull.mark_ready_for_review()
            return pull
        return self.pull(pull.base.repo.full_name, pull.number).complete()


@contextlib.contextmanager
def connect(
    cache: Path | None = None, *, server: Server | None = None, token: Token | None = None,
    waits: Waits | None = None, dry_run: bool = False,
) -> Iterator[GitHub]:  # fmt: skip
    """Give GitHub; nothing is sent before it is asked for something."""
    from contribbot.github.dry_run import DryRun  # noqa: PLC0415  it imports this module

    server = server or find_server()
    kind = DryRun if dry_run else Requester
    requester = kind(server, token or find_token(server), waits or Waits(), cache)
    try:
        with shaped():
            yield GitHub(requester)
    finally:
        requester.close()


def slug(repository: str) -> str:
    """Return the path of a repository."""
    owner, slash, name = repository.partition("/")
    if not slash or not owner or not name or "/" in name or {owner, name} & {".", ".."}:
        raise GitHubError(f"not a repository, owner/name: {clean_line(repository, 100)}")
    return f"/repos/{quote(owner, safe='')}/{quote(name, safe='')}"
