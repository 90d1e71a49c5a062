"""A client of GitHub: PyGithub's objects and further requests; each error is a `GitHubError`."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final, TypeVar, cast
from urllib.parse import quote

from github.AuthenticatedUser import AuthenticatedUser
from github.GithubObject import CompletableGithubObject
from github.GitRef import GitRef
from github.Issue import Issue, IssueSearchResult
from github.PullRequest import PullRequest
from github.Repository import Repository
from github.Workflow import Workflow
from github.WorkflowRun import WorkflowRun

from contribbot.errors import (
    GitHubError,
    NotFoundError,
    RefusedError,
    TokenError,
    UncertainError,
)
from contribbot.github.auth import Server, Token, find_server, find_token
from contribbot.github.requester import Requester, Waits, shaped
from contribbot.markdown import line_of

#: The most bytes of a pull request's commits to fetch as mails.
_MAILS: Final = 64 * 1024 * 1024
#: Errors of GraphQL after which the caller writes by REST, or looks what happened.
_REFUSED: Final = (NotFoundError, RefusedError, TokenError, UncertainError)
K = TypeVar("K", bound=CompletableGithubObject)


def name_of(repository: Repository | None) -> str | None:
    """Return `owner/name` of a repository; None for a deleted repository."""
    return None if repository is None else repository.full_name


def whole(objects: Iterable[K]) -> tuple[K, ...]:
    """Return the objects of a list, marked complete, so that PyGithub fetches none again."""
    items = tuple(objects)
    for item in items:
        item._set_complete()  # noqa: SLF001  PyGithub has no public way
    return items


@dataclass(frozen=True)
class Search:
    """The answer to a search: the count, whether GitHub stopped early, and the first hits."""

    total: int
    incomplete: bool
    items: tuple[IssueSearchResult, ...]


class GitHub:
    """GitHub as one account sees it; handles need no request, `complete()` fetches the fields."""

    def __init__(self, requester: Requester) -> None:
        self.requester = requester
        self._me = self._handle(AuthenticatedUser, "/user")

    @property
    def server(self) -> Server:
        """The GitHub server that this client asks."""
        return self.requester.server

    @property
    def me(self) -> str:
        """The login of the account; GitHub is asked once."""
        return self._me.login

    def repository(self, name: str) -> Repository:
        """Return a handle of a repository; its `full_name` is the asked name until `complete()`."""
        return self._handle(Repository, slug(name), full_name=name)

    def pull(self, repository: str, number: int) -> PullRequest:
        """Return a handle of a pull request."""
        place = slug(repository)
        issue = f"{place}/issues/{number:d}"
        return self._handle(PullRequest, f"{place}/pulls/{number:d}", issue_url=issue)

    def issue(self, repository: str, number: int) -> Issue:
        """Return a handle of an issue, or of the issue side of a pull request."""
        return self._handle(Issue, f"{slug(repository)}/issues/{number:d}")

    def ref(self, repository: str, branch: str) -> GitRef:
        """Return a handle of a branch."""
        return self._handle(GitRef, f"{slug(repository)}/git/refs/heads/{quote(branch)}")

    def workflow(self, repository: str, file: str) -> Workflow:
        """Return a handle of a workflow, named by a file in `.github/workflows/`."""
        return self._handle(Workflow, f"{slug(repository)}/actions/workflows/{quote(file)}")

    def run(self, repository: str, run_id: int) -> WorkflowRun:
        """Return a handle of a run of a workflow."""
        url = f"{slug(repository)}/actions/runs/{run_id:d}"
        parts = {f"{part}_url": f"{url}/{part}" for part in ("jobs", "artifacts")}
        return self._handle(WorkflowRun, url, **parts)

    def _handle(self, kind: type[K], url: str, **attributes: str) -> K:
        return kind(self.requester, {}, {"url": url, **attributes}, completed=False)

    def pulls_from(self, repository: str, owner: str, branch: str) -> tuple[PullRequest, ...]:
        """Return the pull requests from somebody's branch, in any state, newest first."""
        pulls = []
        pages = self.repository(repository).get_pulls(state="all", head=f"{owner}:{branch}")
        for pull in whole(pages):
            # If `head` matches nothing, GitHub lists all pull requests; a fork may be deleted.
            login = (name_of(pull.head.repo) or owner).partition("/")[0]
            if pull.head.ref == branch and login.lower() == owner.lower():
                pulls.append(pull)
        return tuple(sorted(pulls, key=lambda pull: pull.number, reverse=True))

    def mails(self, repository: str, number: int) -> bytes:
        """Return the commits of a pull request in the format of `git format-patch`."""
        path, accept = f"{slug(repository)}/pulls/{number:d}", "application/vnd.github.v3.patch"
        return self.requester.fetch(path, _MAILS, accept)

    def search(self, query: str, limit: int = 30) -> Search:
        """Return the issues and pull requests that a search finds, best matches first."""
        parameters = {"q": query, "per_page": limit}
        headers, told = self.requester.requestJsonAndCheck("GET", "/search/issues", parameters)
        found = cast("dict[str, Any]", told)
        partial = headers.get("x-github-sso", "").startswith("partial-results")
        rows = [
            IssueSearchResult(self.requester, {}, row, completed=True) for row in found["items"]
        ]
        return Search(found["total_count"], found["incomplete_results"] or partial, tuple(rows))

    def move_ref(self, repository_id: str, branch: str, *, old: str, new: str) -> None:
        """Force a branch from `old` to `new`; report nothing: `head_of` shows whether it moved."""
        ref = f"refs/heads/{branch}"
        update = {"name": ref, "beforeOid": old, "afterOid": new, "force": True}
        variables = {"repositoryId": repository_id, "refUpdates": [update]}
        with contextlib.suppress(*_REFUSED):
            self.requester.graphql_named_mutation("updateRefs", variables, "clientMutationId")

    def mark_ready(self, pull: PullRequest) -> PullRequest:
        """Mark a draft ready for review; return the pull request, still a draft if refused."""
        with contextlib.suppress(*_REFUSED, KeyError, TypeError):
            pull.mark_ready_for_review()
            return pull
        return self.pull(pull.base.repo.full_name, pull.number).complete()


@contextlib.contextmanager
def connect(
    server: Server | None = None, token: Token | None = None, waits: Waits | None = None
) -> Iterator[GitHub]:
    """Yield a client of GitHub, and close it; to connect needs no request."""
    server, waits = server or find_server(), waits or Waits()
    requester = Requester(server, token or find_token(server), waits)
    try:
        with shaped():
            yield GitHub(requester)
    finally:
        requester.close()


def slug(repository: str) -> str:
    """Return the path of a repository in the REST API; refuse a name that is not owner/name."""
    owner, slash, name = repository.partition("/")
    if not slash or not owner or not name or "/" in name or {owner, name} & {".", ".."}:
        raise GitHubError(f"not a repository, owner/name: {line_of(repository, 100)}")
    return f"/repos/{quote(owner, safe='')}/{quote(name, safe='')}"
