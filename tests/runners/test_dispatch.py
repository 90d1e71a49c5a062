"""`contribbot runners dispatch`: a run is started, watched to its end, and resumed."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator

import pytest

from contribbot.errors import ExitCode
from tests.conftest import Ran
from tests.github.faults import CONFLICT, Fault, Faults
from tests.github.handle import GitHub
from tests.github.state_actions import Run, Storage, actions_of, add_job, end_job
from tests.runners.conftest import Ranged
from tests.runners.homing import RAN, Home, make_home

WORKFLOW = """\
name: contribbot verify
on:
  workflow_dispatch:
    inputs:
      patches: {type: string, default: ""}
      targets: {type: string, default: ""}
jobs: {}
"""


class Desk:
    """A user who dispatches; the next step happens while contribbot sleeps."""

    def __init__(self, home: Home) -> None:
        self.home = home
        self.steps: list[Callable[[Run], None]] = []

    def sleep(self, _: float) -> None:
        step = self.steps.pop(0)
        with self.home.github.state.lock:
            step(self.runs()[-1])

    def runs(self) -> list[Run]:
        return list(actions_of(self.home.repository).runs.values())

    def __call__(self, *args: str) -> Ran:
        return self.home.command("dispatch", *args)

    def work(self, run: Run) -> None:
        job = add_job(self.home.github.state, run, RAN)
        run.status = job.status = "in_progress"
        job.runner = "node-1"

    def end(self, run: Run, conclusion: str = "success") -> None:
        for job in run.jobs:
            end_job(self.home.github.state, job, conclusion)
        run.status, run.conclusion = "completed", conclusion

    def interrupt(self, _: Run) -> None:
        raise KeyboardInterrupt


@pytest.fixture
def desk(ranged: Ranged, github: GitHub, monkeypatch: pytest.MonkeyPatch) -> Iterator[Desk]:
    """A queue on the local GitHub, with a workflow that can be dispatched."""
    ranged.toy.put(".github/workflows/verify.yml", WORKFLOW)
    with Storage().running() as storage:
        made = Desk(make_home(ranged, github, storage))
        monkeypatch.setattr("contribbot.runners.actions.sleep", made.sleep)
        yield made


def test_a_run_from_its_start_to_its_end(desk: Desk) -> None:
    desk.steps = [desk.work, desk.end]
    said = desk("area", "--target", "gfx942")
    assert (said.code, said.err) == (ExitCode.OK, "")
    (run,) = desk.runs()
    assert run.inputs == {"patches": "area", "targets": "gfx942"}
    assert said.out.splitlines() == [
        f"run {run.id}: {desk.home.github.base}/example/queue/actions/runs/{run.id}",
        f"{RAN}: in progress on node-1",
        f"{RAN}: success on node-1",
        f"run {run.id} of commit {run.head_sha[:12]} is over: success",
        f"what each cell shows: contribbot runners collect {run.id}",
    ]


def test_one_json_document_and_nothing_else(desk: Desk) -> None:
    desk.steps = [desk.work, lambda run: desk.end(run, "failure")]
    said = desk("--json")
    assert said.code == ExitCode.NO
    (run,) = desk.runs()
    told = json.loads(said.out)
    assert (told["run"], told["commit"], told["conclusion"]) == (run.id, run.head_sha, "failure")
    assert told["jobs"] == [{"name": RAN, "state": "failure", "runner": "node-1"}]
    assert f"{RAN}: in progress on node-1" in said.err


def test_interrupted_it_goes_on_and_is_resumed(desk: Desk) -> None:
    desk.steps = [desk.work, desk.interrupt]
    said = desk()
    (run,) = desk.runs()
    assert said.code == ExitCode.INTERRUPTED
    assert said.err == f"the run goes on: contribbot runners dispatch --resume {run.id}\n"
    assert run.status == "in_progress"
    desk.steps = [desk.end]
    assert desk("--resume", str(run.id)).code == ExitCode.OK
    assert len(desk.runs()) == 1


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (("none",), "no such patch: none"),
        (("--target", "gfx1100"), "--on gfx1100: no set of"),
        (("--resume", "7", "area"), "--resume starts nothing"),
    ],
)
def test_what_makes_no_sense_starts_nothing(desk: Desk, args: tuple[str, ...], said: str) -> None:
    told = desk(*args)
    assert told.code == ExitCode.USAGE, told.err
    assert said in told.err
    assert desk.runs() == []


def test_a_server_that_does_not_tell_the_number(desk: Desk) -> None:
    actions_of(desk.home.repository).silent = True
    said = desk()
    assert said.code == ExitCode.MACHINE
    assert "--resume RUN" in said.err


@pytest.mark.parametrize(
    ("fault", "code", "said"),
    [
        (Fault("not there"), ExitCode.USAGE, "contribbot runners workflows install"),
        (CONFLICT, ExitCode.MACHINE, "Git Repository is empty"),
    ],
    ids=str,
)
def test_a_workflow_that_cannot_be_started(
    home: Home, fault: Fault, code: ExitCode, said: str
) -> None:
    faults = Faults()
    faults.arm(fault, path="/dispatches$")
    home.github.hooks.append(faults)
    told = home.command("dispatch")
    assert (told.code, said in told.err) == (code, True), told.err
