"""GitHub Actions: dispatches, runs, jobs, artifacts."""

from __future__ import annotations

import re
from typing import Final

from ruamel.yaml import YAML

from tests.github import render
from tests.github.models import Json
from tests.github.state import Repository
from tests.github.state_actions import Artifact, Run, RunJob, actions_of, add_run
from tests.github.wire import REPO, Answer, GitHubFault, Request, answer, not_found, page, route

_WORKFLOW: Final = f"{REPO}/actions/workflows/{{workflow_id}}"
_RUN: Final = f"{REPO}/actions/runs/{{run_id}}"
_INPUT: Final = re.compile(r"\$\{\{ *inputs\.(\w+) *\}\}")


def _run(request: Request) -> tuple[Repository, Run]:
    where = request.repository("read" if request.method == "GET" else "write")
    found = actions_of(where).runs.get(int(request.parameters["run_id"]))
    if found is None:
        raise not_found()
    return where, found


@route("POST", f"{_WORKFLOW}/dispatches", scopes=("repo",), permission="actions")
def dispatch(request: Request) -> Answer:
    """Start a run of a workflow, if its file on that branch says that this can be done."""
    where = request.repository("write")
    body = request.json("ref", "inputs", "return_run_details")
    ref, name = str(body["ref"]), request.parameters["workflow_id"]
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
    inputs, declared = body.get("inputs") or {}, (trigger or {}).get("inputs", {})
    assert isinstance(inputs, dict)
    if unknown := sorted(set(inputs) - set(declared)):
        raise GitHubFault(422, f"Unexpected inputs provided: {unknown}")
    given = {key: str(inputs.get(key, known.get("default", ""))) for key, known in declared.items()}
    title = _INPUT.sub(lambda match: given.get(match[1], ""), document.get("run-name", ""))
    run = add_run(request.state, where, name, ref, event="workflow_dispatch",
                  actor=request.who, title=title or document["name"])  # fmt: skip
    run.inputs = given
    if actions_of(where).delay or not body.get("return_run_details"):
        return Answer(204)
    return answer("WorkflowDispatchResponse", {
        "workflow_run_id": run.id, "run_url": f"{_api(request, where)}/runs/{run.id}",
        "html_url": _page(run),
    })  # fmt: skip


@route("GET", f"{_WORKFLOW}/runs", query=("branch", "event", "status"), paged=True)
def list_runs(request: Request) -> Answer:
    """List the runs of a workflow, newest first."""
    where, query = request.repository(), request.query
    own, name = actions_of(where), request.parameters["workflow_id"]
    if name not in own.workflows:
        raise not_found()
    found = []
    for run in reversed(own.runs.values()):
        if run.hidden:
            run.hidden -= 1
        elif (
            query.get("branch", run.head_branch) == run.head_branch
            and query.get("event", run.event) == run.event
            and query.get("status", run.status) in {run.status, run.conclusion}
            and run.workflow_id == own.workflows[name]
        ):
            found.append(run)
    return page(request, found, "WorkflowRun", lambda run: _show_run(request, run),
                {"workflow_runs": []})  # fmt: skip


@route("GET", _RUN)
def get_run(request: Request) -> Answer:
    return answer("WorkflowRun", _show_run(request, _run(request)[1]))


@route("POST", f"{_RUN}/cancel", scopes=("repo",), permission="actions")
def cancel_run(request: Request) -> Answer:
    """End a run, unless it has ended."""
    _, run = _run(request)
    if run.status == "completed":
        raise GitHubFault(409, "Cannot cancel a workflow run that is completed.")
    run.updated_at = request.state.clock.now()
    run.status, run.conclusion = "completed", "cancelled"
    for job in run.jobs:
        if job.status != "completed":
            job.status, job.conclusion = "completed", "cancelled"
            job.completed_at = run.updated_at
    return Answer(202, {})


@route("GET", f"{_RUN}/jobs", query=("filter",), paged=True)
def list_jobs(request: Request) -> Answer:
    """List the jobs of a run: of its last attempt, or of all."""
    where, run = _run(request)
    # Seen on GitHub: `latest` may leave out what the last attempt did not run again.
    found = [job for job in run.jobs
             if request.query.get("filter") == "all" or job.attempt == run.attempt]  # fmt: skip
    return page(request, found, "Job", lambda job: _show_job(request, where, run, job),
                {"jobs": []})  # fmt: skip


@route("GET", f"{_RUN}/artifacts", query=("name",), paged=True)
def list_artifacts(request: Request) -> Answer:
    """List the artifacts of a run, newest first."""
    where, run = _run(request)
    found = [it for it in run.artifacts[::-1] if request.query.get("name") in {None, it.name}]
    return page(request, found, "Artifact", lambda it: _show_artifact(request, where, run, it),
                {"artifacts": []})  # fmt: skip


@route("GET", f"{REPO}/actions/artifacts/{{artifact_id}}/zip")
def download(request: Request) -> Answer:
    """Say where an artifact can be fetched, for a minute."""
    own, number = actions_of(request.repository()), int(request.parameters["artifact_id"])
    found = [it for run in own.runs.values() for it in run.artifacts if it.id == number]
    if not found or request.who is None:
        raise not_found()
    if found[0].expired:
        raise GitHubFault(410, "Artifact has expired")
    assert own.storage is not None
    return Answer(302, headers={"Location": own.storage.address(found[0])}, raw=b"")


def _api(request: Request, where: Repository) -> str:
    return f"{render.api(request.state, where)}/actions"


def _page(run: Run) -> str:
    return f"{render.WEB}/{run.repository.full_name}/actions/runs/{run.id}"


def _show_run(request: Request, run: Run) -> Json:
    here = f"{_api(request, run.repository)}/runs/{run.id}"
    return {
        "id": run.id, "name": "contribbot verify", "head_branch": run.head_branch,
        "head_sha": run.head_sha, "path": run.path, "run_number": run.number,
        "run_attempt": run.attempt, "event": run.event, "status": run.status,
        "conclusion": run.conclusion, "workflow_id": run.workflow_id, "url": here,
        "created_at": run.created_at, "updated_at": run.updated_at, "html_url": _page(run),
        "actor": render.user(run.actor), "run_started_at": run.created_at,
        "jobs_url": f"{here}/jobs", "artifacts_url": f"{here}/artifacts",
        "cancel_url": f"{here}/cancel",
        "repository": render.minimal(request.state, run.repository),
        # A fork that is gone is null, though the description does not say so.
        "head_repository": render.minimal(request.state, run.head_repository or run.repository),
        "display_title": run.title,
    }  # fmt: skip


def _show_job(request: Request, where: Repository, run: Run, job: RunJob) -> Json:
    return {
        "id": job.id, "run_id": run.id, "run_attempt": job.attempt, "head_sha": run.head_sha,
        "url": f"{_api(request, where)}/jobs/{job.id}",
        "html_url": f"{_page(run)}/job/{job.id}", "status": job.status,
        "conclusion": job.conclusion, "created_at": job.created_at, "started_at": job.started_at,
        "completed_at": job.completed_at, "name": job.name, "labels": [*job.labels],
        "steps": [{"name": name, "status": status, "conclusion": conclusion, "number": number}
                  for number, (name, status, conclusion) in enumerate(job.steps, start=1)],
        "runner_id": 1 if job.runner else None, "runner_name": job.runner,
    }  # fmt: skip


def _show_artifact(request: Request, where: Repository, run: Run, thing: Artifact) -> Json:
    url = f"{_api(request, where)}/artifacts/{thing.id}"
    return {
        "id": thing.id, "name": thing.name, "size_in_bytes": thing.size, "url": url,
        "archive_download_url": f"{url}/zip", "expired": thing.expired, "digest": thing.digest,
        "created_at": thing.created_at, "updated_at": thing.created_at,
        "expires_at": thing.created_at,
        "workflow_run": {"id": thing.run_id, "head_branch": run.head_branch,
                         "head_sha": run.head_sha},
    }  # fmt: skip
