"""From the plan to the grid: act runs the workflow here, collect judges what its jobs sent.

This machine can do only CPU and compile: what needs a GPU comes back as a runner's fault, and
what no runner has comes back open.
"""

from __future__ import annotations

import zipfile
from typing import TYPE_CHECKING

import pytest

from contribbot.runners.model import CellState, Collected, Plan
from tests.github.state_actions import Storage, actions_of, add_job, add_run, end_job, upload
from tests.hiptoy import seen_once
from tests.runners.conftest import Ranged
from tests.runners.homing import REPOSITORY, Home
from tests.runners.test_act import act as act  # noqa: PLC0414  pytest finds it by this name
from tests.runners.test_act import installed as installed  # noqa: PLC0414  as above
from tests.runners.test_act import pinned as pinned  # noqa: PLC0414  as above

if TYPE_CHECKING:
    from tests.github.handle import GitHub
    from tests.runners.acting import Act
    from tests.toy import Toy

#: `test_act_dispatch.py` stays in the default run.
pytestmark = pytest.mark.slow
GPU, OTHER, COMPILE = "gfx942-rocm7.1-1", "gfx1100-rocm7.1-1", "compile-rocm7.1-1"


def brought(act: Act, toy: Toy, github: GitHub, storage: Storage) -> Home:
    """Put what act left onto the local GitHub, as a run with the number that act gave it."""
    user = github.add_user("ada")
    repository = github.add_repository(REPOSITORY, act.queue, members={"ada": "write"})
    actions_of(repository).storage = storage
    home = Home(Ranged(toy), github, storage, repository, user)
    state = github.state
    home.run = add_run(state, repository, "verify.yml", "main", event="workflow_dispatch",
                       actor=user)  # fmt: skip
    runs = actions_of(repository).runs
    del runs[home.run.id]
    home.run.id = 1
    runs[1] = home.run
    with zipfile.ZipFile(act.artifacts / "contribbot-plan.zip") as archive:
        home.plan = Plan.model_validate_json(archive.read("plan.json"))
    labels = {job.id: job.labels for job in home.plan.jobs}
    for name in ("plan", *labels):
        job = add_job(state, home.run, name)
        job.labels = labels.get(name, job.labels)
        upload(state, home.run, f"contribbot-{name}",
               (act.artifacts / f"contribbot-{name}.zip").read_bytes())  # fmt: skip
        end_job(state, job, "failure" if name in {GPU, OTHER} else "success")
    return home


def grid(found: Collected) -> dict[str, CellState]:
    """Return what became of each cell that a job had."""
    return {f"{one.kind} {one.patch} {one.target}": one.state for one in found.cells if one.job}


def test_plan_matrix_verify_collect(
    act: Act, installed: Toy, github: GitHub, tmp_path_factory: pytest.TempPathFactory
) -> None:
    seen_once(tmp_path_factory)
    act("workflow_dispatch", "verify.yml", "--job", "gpu")
    with Storage().running() as storage:
        home = brought(act, installed, github, storage)
        right = home.collected()
        fault = CellState.FAULT
        assert grid(right) == {
            # It compiled, on a machine that has no ROCm to name.
            "compile scale gfx942": CellState.OPEN,
            "gpu area gfx942": fault,
            "gpu area gfx1100": fault,
        }
        assert [one.why for one in right.cells if not one.job] == ["no runner has gfx90a"]
        assert {one.merged for one in right.records} <= {"new", "replaced", "kept"}
        assert not any(one.refused for one in right.artifacts)

        plan, compiled, ran, other = home.run.artifacts

        def now(state: CellState) -> None:
            found = home.collected()
            assert grid(found) == {**grid(right), "gpu area gfx942": state}
            assert not found.complete

        home.run.artifacts = [plan, compiled, other]
        now(CellState.FAILED)
        home.end(GPU, "cancelled")
        now(CellState.CANCELLED)
        home.end(GPU, "failure")
        sound, ran.stored = ran.stored, ran.stored[:-9] + b"X" + ran.stored[-8:]
        home.run.artifacts = [plan, compiled, ran, other]
        now(CellState.REFUSED)
        ran.stored = sound
        home.run.artifacts = [plan, compiled, ran, other, ran]
        now(CellState.REFUSED)
        home.run.artifacts = [plan, compiled, ran, other]
        foreign = upload(github.state, home.run, "contribbot-gfx90a-rocm7.1-1", ran.stored)
        now(fault)
        assert {one.name for one in home.collected().artifacts if one.refused} == {foreign.name}
