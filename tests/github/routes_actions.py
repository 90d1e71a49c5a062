"""GitHub Actions: dispatches, runs, jobs, artifacts."""

from __future__ import annotations

import re

from pydantic import JsonValue
from ruamel.yaml import YAML

from tests.github import fields, render
from tests.github.state import Repository, node_id
from tests.github.state_actions import Artifact, Run, RunJob, actions_of, add_run
from tests.github.wire import (
    Answer,
    GitHubFault,
    Json,
    Request,
    UnmodelledError,
    not_found,
    page,
    route,
)

_ACTIONS = "/repos/{owner}/{repo}/actions"
_INPUT = re.compile(r"\$\{\{ *inputs\.(\w+) *\}\}")


def _run(request: Request, need: str = "read") -> tuple[Repository, Run]:
    where = request.repository("push" if need == "push" else "read")
    found = actions_of(where).runs.get(int(request.parameters["run_id"]))
    if found is None:
        raise not_found()
    return where, found


@route(
    "POST",
    f"{_ACTIONS}/workflows/{{workflow_id}}/dispatches",
    scopes=("repo",),
    permission="actions",
)
def dispatch(request: Request) -> Answer:
    """Start a run of a workflow, if its file on that branch says that this can be done."""
    where = request.repository("push")
    body = request.json("ref", "inputs", "return_run_details")
    ref, name = fields.text(body, "ref"), request.parameters["workflow_id"]
    sha = where.git.ref(f"refs/heads/{ref}")
    if sha is None:
        raise GitHubFault(422, f"No ref found for: {ref}")
    blob = where.git.parse(f"{sha}:.github/workflows/{name}")
    if blob is None:
        raise not_found()
    document = YAML(typ="safe").load(where.git.blob(blob).decode())
    trigger = document["on"].get("workflow_dispatch", False)
    if trigger is False:
        raise GitHubFault(422, "Workflow does not have 'workflow_dispatch' trigger")
    inputs = body.get("inputs") or {}
    if not isinstance(inputs, dict):
        raise UnmodelledError("inputs that are no object")
    declared = (trigger or {}).get("inputs", {})
    if unknown := sorted(set(inputs) - set(declared)):
        raise GitHubFault(422, f"Unexpected inputs provided: {unknown}")
    given = {key: str(inputs.get(key, one.get("default", ""))) for key, one in declared.items()}
    title = _INPUT.sub(lambda one: given.get(one[1], ""), document.get("run-name", ""))
    run = add_run(request.state, where, name, ref, event="workflow_dispatch",
                  actor=request.signed_in(), title=title or document["name"])  # fmt: skip
    run.inputs = given
    if actions_of(where).delay or not body.get("return_run_details"):
        return Answer(204)
    path = f"{where.full_name}/actions/runs/{run.id}"
    said: Json = {"workflow_run_id": run.id, "run_url": f"{request.base}/repos/{path}",
            "html_url": f"{render.WEB}/{path}"}  # fmt: skip
    return Answer(json=said)


@route(
    "GET", f"{_ACTIONS}/workflows/{{workflow_id}}/runs",
    query=("branch", "event", "status"), paged=True,
)  # fmt: skip
def list_runs(request: Request) -> Answer:
    """List the runs of a workflow, newest first."""
    where = request.repository()
    own, query = actions_of(where), request.query
    name = request.parameters["workflow_id"]
    if name not in own.workflows:
        raise not_found()
    found = []
    for run in reversed(own.runs.values()):
        if run.hidden:
            run.hidden -= 1
            continue
        fits = (
            query.get("branch", run.head_branch) == run.head_branch,
            query.get("event", run.event) == run.event,
            query.get("status", run.status) in {run.status, run.conclusion},
            run.workflow_id == own.workflows[name],
        )
        if all(fits):
            found.append(run)
    answer = page(request, found, lambda one: _show_run(request, one))
    answer.json = {"total_count": len(found), "workflow_runs": answer.json}
    return answer


@route("GET", f"{_ACTIONS}/runs/{{run_id}}")
def get_run(request: Request) -> Answer:
    """Give a run."""
    _, run = _run(request)
    return Answer(200, _show_run(request, run))


@route("POST", f"{_ACTIONS}/runs/{{run_id}}/cancel", scopes=("repo",), permission="actions")
def cancel_run(request: Request) -> Answer:
    """End a run, unless it has ended."""
    _, run = _run(request, "push")
    if run.status == "completed":
        raise GitHubFault(409, "Cannot cancel a workflow run that is completed.")
    run.status, run.conclusion, run.updated_at = "completed", "cancelled", request.state.clock.now()
    for job in run.jobs:
        if job.status != "completed":
            job.status, job.conclusion = "completed", "cancelled"
            job.completed_at = request.state.clock.now()
    return Answer(202, {})


@route("GET", f"{_ACTIONS}/runs/{{run_id}}/jobs", query=("filter",), paged=True)
def list_jobs(request: Request) -> Answer:
    """List the jobs of a run: of its last attempt, or of all."""
    where, run = _run(request)
    latest = request.query.get("filter", "latest") == "latest"
    # Seen on GitHub: `latest` may leave out what the last attempt did not run again.
    found = [one for one in run.jobs if not latest or one.attempt == run.attempt]
    answer = page(request, found, lambda one: _show_job(request, where, run, one))
    answer.json = {"total_count": len(found), "jobs": answer.json}
    return answer


@route("GET", f"{_ACTIONS}/runs/{{run_id}}/artifacts", query=("name",), paged=True)
def list_artifacts(request: Request) -> Answer:
    """List the artifacts of a run, newest first."""
    where, run = _run(request)
    name = request.query.get("name")
    found = [one for one in run.artifacts[::-1] if name in {None, one.name}]
    answer = page(request, found, lambda one: _show_artifact(request, where, run, one))
    answer.json = {"total_count": len(found), "artifacts": answer.json}
    return answer


@route("GET", f"{_ACTIONS}/artifacts/{{artifact_id}}/{{archive_format}}")
def download(request: Request) -> Answer:
    """Say where an artifact can be fetched, for a minute."""
    where = request.repository()
    request.signed_in()
    if request.parameters["archive_format"] != "zip":
        raise UnmodelledError("an artifact that is no zip")
    own, number = actions_of(where), int(request.parameters["artifact_id"])
    found = [one for run in own.runs.values() for one in run.artifacts if one.id == number]
    if not found:
        raise not_found()
    if found[0].expired:
        raise GitHubFault(410, "Artifact has expired")
    if own.storage is None:
        raise UnmodelledError("an artifact is fetched, and there is no storage")
    return Answer(302, headers={"Location": own.storage.address(found[0])}, raw=b"")


def _show_run(request: Request, run: Run) -> Json:
    url = f"{request.base}/repos/{run.repository.full_name}/actions"
    here = f"{url}/runs/{run.id}"
    actor = render.user(request.state, run.actor)
    head = run.head_repository
    return {
        "id": run.id, "name": "contribbot verify", "node_id": node_id("WorkflowRun", run.id),
        "head_branch": run.head_branch, "head_sha": run.head_sha, "path": run.path,
        "run_number": run.number, "run_attempt": run.attempt, "event": run.event,
        "status": run.status, "conclusion": run.conclusion, "workflow_id": run.workflow_id,
        "url": here, "pull_requests": [], "created_at": run.created_at,
        "html_url": f"{render.WEB}/{run.repository.full_name}/actions/runs/{run.id}",
        "updated_at": run.updated_at, "actor": actor, "triggering_actor": actor,
        "run_started_at": run.created_at, "jobs_url": f"{here}/jobs", "logs_url": f"{here}/logs",
        "check_suite_url": f"{request.base}/repos/{run.repository.full_name}/check-suites/1",
        "artifacts_url": f"{here}/artifacts", "cancel_url": f"{here}/cancel",
        "rerun_url": f"{here}/rerun", "previous_attempt_url": None,
        "workflow_url": f"{url}/workflows/{run.workflow_id}", "head_commit": None,
        "repository": _minimal(request, run.repository),
        # A fork that is gone is null, though the description does not say so.
        "head_repository": _minimal(request, head or run.repository),
        "display_title": run.title,
    }  # fmt: skip


def _show_job(request: Request, where: Repository, run: Run, job: RunJob) -> Json:
    url = f"{request.base}/repos/{where.full_name}/actions"
    return {
        "id": job.id, "run_id": run.id, "run_url": f"{url}/runs/{run.id}",
        "run_attempt": job.attempt, "node_id": node_id("CheckRun", job.id),
        "head_sha": run.head_sha, "url": f"{url}/jobs/{job.id}",
        "html_url": f"{render.WEB}/{where.full_name}/actions/runs/{run.id}/job/{job.id}",
        "status": job.status, "conclusion": job.conclusion, "created_at": job.created_at,
        "started_at": job.started_at, "completed_at": job.completed_at, "name": job.name,
        "steps": [{"name": name, "status": status, "conclusion": conclusion, "number": number}
                  for number, (name, status, conclusion) in enumerate(job.steps, start=1)],
        "check_run_url": f"{request.base}/repos/{where.full_name}/check-runs/{job.id}",
        "labels": list(job.labels), "runner_id": 1 if job.runner else None,
        "runner_name": job.runner, "runner_group_id": None, "runner_group_name": None,
        "workflow_name": "contribbot verify", "head_branch": run.head_branch,
    }  # fmt: skip


def _show_artifact(request: Request, where: Repository, run: Run, one: Artifact) -> Json:
    url = f"{request.base}/repos/{where.full_name}/actions/artifacts/{one.id}"
    return {
        "id": one.id, "node_id": node_id("Artifact", one.id), "name": one.name,
        "size_in_bytes": one.size, "url": url, "archive_download_url": f"{url}/zip",
        "expired": one.expired, "created_at": one.created_at, "updated_at": one.created_at,
        "expires_at": one.created_at, "digest": one.digest,
        "workflow_run": {
            "id": one.run_id, "repository_id": where.id, "head_repository_id": where.id,
            "head_branch": run.head_branch, "head_sha": run.head_sha,
        },
    }  # fmt: skip


def _minimal(request: Request, where: Repository) -> JsonValue:
    """Write a repository as it stands inside a run."""
    whole = render.repository(request.state, where, None)
    names = ("id", "node_id", "name", "full_name", "owner", "private", "html_url", "description",
             "fork", "url")  # fmt: skip
    return {key: value for key, value in whole.items()
            if key in names or key.endswith("_url")}  # fmt: skip
