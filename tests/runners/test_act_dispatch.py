"""One way through the command line: dispatch starts a run, act runs it here, collect judges it.

This machine has no GPU: what is asked for comes back as a runner's fault, or open.
"""

from __future__ import annotations

import zipfile
from typing import TYPE_CHECKING

import pytest

from contribbot.errors import ExitCode
from contribbot.runners.model import CellState, Collected, Plan
from tests.github.state_actions import Storage, actions_of, add_job, end_job, upload
from tests.runners.conftest import Ranged
from tests.runners.homing import REPOSITORY, Home
from tests.runners.test_act import act as act  # noqa: PLC0414  pytest finds it by this name
from tests.runners.test_act import installed as installed  # noqa: PLC0414  as above
from tests.runners.test_act import pinned as pinned  # noqa: PLC0414  as above

if TYPE_CHECKING:
    from tests.github.handle import GitHub
    from tests.github.state_actions import Run
    from tests.runners.acting import Act
    from tests.toy import Toy

JOBS = ("gfx942-rocm7.1-1", "gfx1100-rocm7.1-1")


def work(act: Act, home: Home, run: Run) -> None:
    """Let act do what was asked for, and put what its jobs left onto the local GitHub."""
    ran = act("workflow_dispatch", "verify.yml", "--job", "gpu",
              *(f"--input={name}={given}" for name, given in run.inputs.items() if given),
              GITHUB_RUN_ID=str(run.id))  # fmt: skip
    assert {one.stem for one in act.artifacts.iterdir()} == {
        f"contribbot-{name}" for name in ("plan", *JOBS)
    }, ran.said
    with zipfile.ZipFile(act.artifacts / "contribbot-plan.zip") as archive:
        plan = Plan.model_validate_json(archive.read("plan.json"))
    labels = {job.id: job.labels for job in plan.jobs}
    state = home.github.state
    with state.lock:
        for name in ("plan", *JOBS):
            job = add_job(state, run, name)
            job.labels = labels.get(name, job.labels)
            content = (act.artifacts / f"contribbot-{name}.zip").read_bytes()
            upload(state, run, f"contribbot-{name}", content)
            end_job(state, job, "success" if name == "plan" else "failure")
        run.status, run.conclusion = "completed", "failure"


@pytest.mark.slow
def test_dispatch_verify_collect(
    act: Act, installed: Toy, github: GitHub, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Storage().running() as storage:
        user = github.add_user("ada")
        repository = github.add_repository(REPOSITORY, act.queue, members={"ada": "write"})
        actions_of(repository).storage = storage
        home = Home(Ranged(installed), github, storage, repository, user)

        def sleep(_: float) -> None:
            (run,) = actions_of(repository).runs.values()
            if run.status != "completed":
                work(act, home, run)

        monkeypatch.setattr("contribbot.runners.dispatch.sleep", sleep)
        sent = home.command("dispatch", "area")
        (run,) = actions_of(repository).runs.values()
        # The selection reached the plan: of the other patch nothing was compiled.
        assert sent.out.splitlines() == [
            f"run {run.id}: https://github.com/{REPOSITORY}/actions/runs/{run.id}",
            "plan: success on runner-1",
            f"{JOBS[0]}: failure on runner-1: gpu/area/gfx942/rocm7.1",
            f"{JOBS[1]}: failure on runner-1: gpu/area/gfx1100/rocm7.1",
            "cells, as their jobs are: 2 failure",
            f"run {run.id} is over: failure",
            f"what each cell shows: contribbot collect {run.id}",
        ]
        assert (sent.code, sent.err) == (ExitCode.NO, "")

        got = home.command("collect", str(run.id), "--json")
        found = Collected.model_validate_json(got.out)
        assert (got.code, found.run, found.commit) == (ExitCode.MACHINE, run.id, run.head_sha)
        assert {one.target: one.state for one in found.cells} == {
            "gfx942": CellState.FAULT, "gfx1100": CellState.FAULT, "gfx90a": CellState.OPEN,
        }  # fmt: skip
        assert not any(one.refused for one in found.artifacts)
