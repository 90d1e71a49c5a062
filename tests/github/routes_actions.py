"""GitHub Actions: dispatches, runs, jobs, artifacts."""

from __future__ import annotations

import re
from typing import Final, cast

from ruamel.yaml import YAML

from tests.github import render
from tests.github.state import WEB, Json
from tests.github.state_actions import Run, add_run
from tests.github.wire import REPO, Answer, GitHubFault, Request, Route, not_found

_WORKFLOW: Final = f"{REPO}/actions/workflows/{{workflow_id}}"
_RUN: Final = f"{REPO}/actions/runs/{{run_id}}"
_INPUT: Final = re.compile(r"\$\{\{ *inputs\.(\w+) *\}\}")


def _run(request: Request) -> Run:
    where = request.repository("read" if request.method == "GET" else "write")
    run = where.runs.get(int(request.parameters["run_id"]))
    if run is None:
        raise not_found()
    return run


@Route("POST", f"{_WORKFLOW}/dispatches", status=200, permission="actions")
def dispatch(request: Request) -> Answer | Json:
    """Start a run of a workflow that has the trigger `workflow_dispatch`."""
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
    inputs, declared = cast("Json", body.get("inputs") or {}), (trigger or {}).get("inputs", {})
    if unknown := sorted(set(inputs) - set(declared)):
        raise GitHubFault(422, f"Unexpected inputs provided: {unknown}")
    given = {key: str(inputs.get(key, known.get("default", ""))) for key, known in declared.items()}
    title = _INPUT.sub(lambda match: given.get(match[1], ""), document.get("run-name", ""))
    run = add_run(request.state, where, name, ref, event="workflow_dispatch",
                  actor=request.who, title=title or document["name"])  # fmt: skip
    run.inputs = given
    if where.silent or not body.get("return_run_details"):
        return Answer(204)
    return {"workflow_run_id": run.id, "run_url": f"{where.api}/actions/runs/{run.id}",
            "html_url": _page(run)}  # fmt: skip


Route("GET", _RUN)(lambda it: _show_run(_run(it)))


@Route(
    "GET",
    f"{_RUN}/jobs",
    inside="jobs",
    query=("filter",),
)
def list_jobs(request: Request) -> list[Json]:
    """List the jobs of a run: of its last attempt, or of all."""
    run = _run(request)
    # GitHub's `latest` may leave out jobs that the last attempt did not run again.
    jobs = (job for job in run.jobs
            if request.query.get("filter") == "all" or job.attempt == run.attempt)  # fmt: skip
    return [
        render.shown(
            job, run_id=run.id, run_attempt=job.attempt, head_sha=run.head_sha,
            url=f"{run.repository.api}/actions/jobs/{job.id}", labels=[*job.labels],
            html_url=f"{_page(run)}/job/{job.id}", runner_id=1 if job.runner else None,
            runner_name=job.runner, steps=[],
        ) for job in jobs
    ]  # fmt: skip


@Route(
    "GET",
    f"{_RUN}/artifacts",
    inside="artifacts",
    query=("name",),
)
def list_artifacts(request: Request) -> list[Json]:
    run = _run(request)
    url = f"{run.repository.api}/actions/artifacts"
    origin: Json = {"id": run.id, "head_branch": run.head_branch, "head_sha": run.head_sha}
    return [
        render.shown(
            it, size_in_bytes=len(it.stored), url=f"{url}/{it.id}", workflow_run=origin,
            archive_download_url=f"{url}/{it.id}/zip",
        ) for it in run.artifacts[::-1] if request.query.get("name") in {None, it.name}
    ]  # fmt: skip


@Route("GET", f"{REPO}/actions/artifacts/{{artifact_id}}/zip")
def download(request: Request) -> Answer:
    """Redirect to the storage, which is another host."""
    assert request.user is not None
    storage = request.state.base.replace("127.0.0.1", "localhost")
    where = f"{storage}/storage/{request.repository().full_name}"
    return Answer(
        302, headers={"Location": f"{where}/{request.parameters['artifact_id']}"}, raw=b""
    )


@Route("GET", "/storage/{owner}/{repo}/{artifact_id}")
def fetch(request: Request) -> Answer:
    """Send an artifact, which GitHub keeps on a host that must not see the token."""
    assert "authorization" not in request.headers
    artifacts = (it for run in request.repository().runs.values() for it in run.artifacts)
    number = int(request.parameters["artifact_id"])
    return Answer(raw=next(it.stored for it in artifacts if it.id == number))


def _page(run: Run) -> str:
    return f"{WEB}/{run.repository.full_name}/actions/runs/{run.id}"


def _show_run(run: Run) -> Json:
    here = f"{run.repository.api}/actions/runs/{run.id}"
    # For a deleted fork GitHub gives null, against its own description.
    head = render.minimal(run.head_repository or run.repository)
    return render.shown(
        run, name="contribbot verify",
        run_attempt=run.attempt, url=here, html_url=_page(run), run_started_at=run.created_at,
        repository=render.minimal(run.repository), head_repository=head,
        display_title=run.title,
        **{f"{part}_url": f"{here}/{part}" for part in ("jobs", "artifacts")},
    )  # fmt: skip
