"""Check runs and statuses of commits."""

from __future__ import annotations

from pydantic import JsonValue

from tests.github import render, render_social
from tests.github.state import CheckRun, CommitStatus, Repository
from tests.github.wire import Answer, GitHubFault, Request, UnmodelledError, page, route

_COMMIT = "/repos/{owner}/{repo}/commits/{ref:path}"
_BAD = frozenset({"error", "failure"})


def _commit(request: Request, where: Repository) -> str:
    """Return the commit that the path names."""
    sha = where.git.resolve(request.parameters["ref"])
    if sha is None:
        # Said in words alone by the description, which has no 422 here.
        raise GitHubFault(404, "Not Found")
    return sha


@route("GET", f"{_COMMIT}/check-runs", query=("check_name", "status", "filter"), paged=True)
def list_check_runs(request: Request) -> Answer:
    """List the check runs of a commit; by default the newest of each name and app."""
    where = request.repository()
    sha = _commit(request, where)
    name, status = request.query.get("check_name"), request.query.get("status")
    chosen = request.query.get("filter", "latest")
    if chosen not in {"latest", "all"}:
        raise UnmodelledError(f"filter={chosen}")
    runs = [one for one in where.check_runs if one.head_sha == sha]
    if chosen == "latest":
        runs = list({(one.app, one.name): one for one in runs}.values())
    runs = [one for one in runs if name in {None, one.name} and status in {None, one.status}]

    def show(one: CheckRun) -> JsonValue:
        return render_social.check_run(request.state, where, one)

    answer = page(request, runs[::-1], show)
    answer.json = {"total_count": len(runs), "check_runs": answer.json}
    return answer


def _statuses(where: Repository, sha: str) -> list[CommitStatus]:
    """Return the statuses of a commit, newest first."""
    return [one for one in where.statuses if one.sha == sha][::-1]


@route("GET", f"{_COMMIT}/status", paged=True)
def combined_status(request: Request) -> Answer:
    """Give the newest status of each context, and what they come to."""
    where, state = request.repository(), request.state
    sha = _commit(request, where)
    newest: dict[str, CommitStatus] = {}
    for one in _statuses(where, sha):
        newest.setdefault(one.context, one)
    moods = {one.state for one in newest.values()}
    mood = "failure" if moods & _BAD else "success" if moods == {"success"} else "pending"
    found = list(newest.values())
    answer = page(request, found, lambda one: render_social.status(state, where, one))
    url = f"{request.base}/repos/{where.full_name}/commits/{sha}"
    answer.json = {
        "state": mood,
        "statuses": answer.json,
        "sha": sha,
        "total_count": len(newest),
        "repository": _minimal(request, where),
        "commit_url": url,
        "url": f"{url}/status",
    }
    return answer


def _minimal(request: Request, where: Repository) -> JsonValue:
    """Write the repository without what a combined status leaves out."""
    whole = render.repository(request.state, where, None)
    names = ("id", "node_id", "name", "full_name", "owner", "private", "html_url", "description",
             "fork", "url")  # fmt: skip
    return {key: value for key, value in whole.items() if key in names or key.endswith("_url")}
