"""`contribbot runners dispatch` and `collect`: a run is watched, and its records are checked."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from contribbot.errors import ExitCode
from contribbot.github.auth import find_server
from contribbot.model.evidence import Outcome
from contribbot.queue.history import journal_file
from contribbot.runners.actions import PACKED, gh_denial, repository_of
from contribbot.runners.collect import CellState
from contribbot.verify.evidence import State, read_records
from tests.conftest import Ran
from tests.github.faults import CONFLICT, Fault
from tests.github.handle import GitHub
from tests.github.state import Json
from tests.github.state_actions import Run, add_job, end_job
from tests.runners.conftest import (
    CHECKS,
    COMPILED,
    FAILED,
    HOSTED,
    MI300,
    RAN,
    Home,
    Ranged,
    details,
    make_home,
    packed,
    sealed,
    states,
    why,
)
from tests.toy import git

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
        with self.home.github.lock:
            step(self.runs()[-1])

    def runs(self) -> list[Run]:
        return list(self.home.repository.runs.values())

    def __call__(self, *args: str) -> Ran:
        return self.home.command("dispatch", *args)

    def work(self, run: Run) -> None:
        job = add_job(self.home.github, run, RAN)
        run.status = job.status = "in_progress"
        job.runner = "node-1"

    def end(self, run: Run, conclusion: str = "success") -> None:
        for job in run.jobs:
            end_job(self.home.github, job, conclusion)
        run.status, run.conclusion = "completed", conclusion

    def interrupt(self, _: Run) -> None:
        raise KeyboardInterrupt


@pytest.fixture
def desk(ranged: Ranged, github: GitHub, monkeypatch: pytest.MonkeyPatch) -> Desk:
    """A queue on the local GitHub, with a workflow that can be dispatched."""
    ranged.toy.put(".github/workflows/verify.yml", WORKFLOW)
    made = Desk(make_home(ranged, github))
    monkeypatch.setattr("contribbot.runners.actions.sleep", made.sleep)
    return made


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
    desk.home.repository.silent = True
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
    home.github.faults.arm(fault, path="/dispatches$")
    told = home.command("dispatch")
    assert (told.code, said in told.err) == (code, True), told.err


def test_all_came_and_passed(home: Home) -> None:
    for job in (COMPILED, RAN):
        home.send(job)
    said = home.collect()
    assert (said.code, said.err) == (ExitCode.OK, "")
    rows = said.out.splitlines()
    assert rows[0].startswith("area  compile:gfx942  7.1  proved  compile:gfx942 on x86_64-cpu-")
    assert rows[1].startswith(
        "area  gfx942          7.1  proved  reproduce:gfx942 on x86_64-gfx942"
    )
    assert "the run attested no records" in rows
    assert rows[-1] == f"run {home.run.id}: 2 proved: all that was planned passed"
    queue = home.ranged.load()
    records = read_records(queue, queue.evidence)
    assert [each.state for each in records] == [State.FRESH, State.FRESH]
    # A warm second night: no job at all.
    assert home.ranged.plan().jobs == ()
    assert {each.merged for each in home.collected().records} == {"unchanged"}


@pytest.mark.parametrize(
    ("outcome", "end", "state", "said"),
    [
        (None, "cancelled", CellState.MISSING, "ended with cancelled and left no record"),
        (None, "", CellState.RUNNING, "its job is queued"),
        (Outcome.PASSED, "", CellState.PROVED, "reproduce:gfx942"),
        (Outcome.FAILED, "failure", CellState.REFUTED, "reproduce: on-gpu: made up"),
        (Outcome.UNAVAILABLE, "failure", CellState.INCOMPLETE, "made up"),
    ],
)
def test_the_state_of_a_cell(
    home: Home, outcome: Outcome | None, end: str, state: CellState, said: str
) -> None:
    home.send(COMPILED)
    if outcome:
        home.send(RAN, home.files(RAN, outcomes={"reproduce": outcome}), end)
    elif end:
        home.end(RAN, end)
    if not end:
        # The job waits, perhaps for a rerun.
        add_job(home.github, home.run, RAN)
    found = home.collected()
    assert states(found) == {"compile area gfx942": CellState.PROVED, "gpu area gfx942": state}
    assert said in why(found)
    assert not found.complete


def test_a_runners_fault_is_no_patchs(home: Home) -> None:
    home.send(COMPILED)
    lacking = {"reproduce": Outcome.UNAVAILABLE}
    home.send(RAN, home.files(RAN, hung=True, outcomes=lacking), "failure")
    said = home.collect()
    assert said.code == ExitCode.MACHINE
    assert "runner fault" in said.out
    assert said.out.splitlines()[-1].endswith("runners failed, and no patch did")


@pytest.mark.parametrize(
    ("machine", "change", "said"),
    [
        ({}, lambda document: details(document).update(run=None), f"is not of job {RAN} of run"),
        ({}, lambda document: details(document).update(container=None), "is not the plan's: none"),
        ({}, lambda document: document.update(subject=[]), "tampered: "),
        ({"rocm": "6.4.0"}, None, "it was made with ROCm 6.4.0, and the plan has 7.1"),
    ],
)
def test_a_record_of_something_else_is_refused(
    home: Home, machine: dict[str, str], change: Callable[[Json], None] | None, said: str
) -> None:
    path, document = home.record(RAN, **machine)
    if change:
        change(document)
    home.send(RAN, {path: sealed(document), "../up.json": b"{}"})
    found = home.collected()
    assert states(found)["gpu area gfx942"] is CellState.REFUSED
    assert said in why(found)
    assert any("'../up.json' is no record" in note for note in found.notes)
    assert home.evidence() == []


def test_a_record_of_another_gpu_proves_nothing(home: Home) -> None:
    home.send(RAN, home.files(RAN, target="gfx90a"))
    assert states(home.collected())["gpu area gfx942"] is CellState.INCOMPLETE


def test_gh_decides_where_the_run_attested(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    answers: list[str | None] = ["no attestations found", None, ""]

    def ask(path: Path, commit: str, **_: object) -> str | None:
        assert (path.is_file(), commit) == (True, home.run.head_sha)
        return answers.pop(0)

    monkeypatch.setattr("contribbot.runners.collect.gh_denial", ask)
    home.send(RAN)
    home.add_job("attest", "success")
    found = home.collected()
    assert why(found) == "gh attestation verify: no attestations found"
    assert home.evidence() == []
    found = home.collected()
    assert "attestations not verified: gh is not installed" in found.notes
    assert states(home.collected())["gpu area gfx942"] is CellState.PROVED


def test_gh_is_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gh = tmp_path / "gh"
    gh.write_text('#!/bin/sh\necho "$@" > "$0.args"\ncat "$0.error" >&2 && exit 1\n')
    gh.chmod(0o755)
    monkeypatch.setattr("contribbot.runners.actions.shutil.which", lambda _: str(gh))
    record, server = tmp_path / "record.json", find_server({})
    (tmp_path / "gh.error").write_text("Error:\nno attestations found\n")
    denial = gh_denial(record, "1" * 40, repository="example/queue", server=server)
    assert denial == "no attestations found"
    assert (
        "--signer-workflow example/queue/.github/workflows/verify.yml"
        in (tmp_path / "gh.args").read_text()
    )


def test_each_cell_has_a_state(ranged: Ranged, github: GitHub) -> None:
    """A job was killed between patches; a cell has no runner; a record answers others."""
    ranged.patch("second")
    ranged.patch("third")
    ranged.patch("wide", CHECKS.replace("gfx942", "gfx950"))
    kept = ranged.record("third", outcomes=FAILED)
    home = make_home(ranged, github)
    home.begin()
    home.send(COMPILED)
    files = home.files(RAN)
    del files[next(name for name in files if name.startswith("second/"))]
    home.send(RAN, files, "cancelled")
    found = home.collected()
    assert states(found) == {
        **{f"compile {name} gfx942": CellState.PROVED for name in ("area", "second", "third")},
        "gpu area gfx942": CellState.PROVED, "gpu second gfx942": CellState.MISSING,
        "gpu third gfx942": CellState.REFUTED,
        "compile wide gfx950": CellState.OPEN, "gpu wide gfx950": CellState.OPEN,
    }  # fmt: skip
    assert not found.complete
    # The plan's word counts for nothing without the record.
    kept.unlink()
    assert states(home.collected())["compile third gfx942"] is CellState.INCOMPLETE


def test_which_record_stays(home: Home) -> None:
    home.send(RAN)
    home.collect()
    (path,) = home.evidence()
    content = path.read_bytes()
    for outcome, merged, said in (
        (Outcome.UNAVAILABLE, "kept", "the record here saw more: reproduce"),
        (Outcome.FAILED, "replaced", "refuted on"),
    ):
        home.begin(everything=True)
        home.send(RAN, home.files(RAN, outcomes={"reproduce": outcome}))
        (record,) = home.collected().records
        assert record.merged == merged, record.why
        assert said in record.why
        assert (path.read_bytes() == content) is (merged == "kept")
    # A journal that cannot be read ends nothing but the merging of its own records.
    home.begin(everything=True)
    home.send(RAN)
    journal = journal_file(home.ranged.folder, "area")
    journal.write_bytes(b"no\n" + journal.read_bytes())
    (record,) = home.collected().records
    assert (record.merged, "area" in record.why) == ("refused", True), record.why


def test_the_queue_has_moved_on(home: Home) -> None:
    for job in (COMPILED, RAN):
        home.send(job)
    git(home.ranged.folder, "commit", "-q", "--allow-empty", "-m", "More")
    home.ranged.toy.put("patches/area/checks/test_same.py", "def test_two():\n    pass\n")
    found = home.collected()
    assert any("records are judged by the queue here" in note for note in found.notes)
    assert set(states(found).values()) == {CellState.REFUSED}
    assert why(found) == "stale: the checks have changed since"
    assert home.evidence() == []


def test_a_run_that_cannot_be_collected(home: Home) -> None:
    (plan,) = home.run.artifacts
    home.ranged.put(MI300 + HOSTED + "\n# More.\n")
    said = home.collect()
    assert said.code == ExitCode.USAGE
    assert "its plan: it was made with another runners.toml; see how" in said.err
    home.run.artifacts = []
    assert "its plan: no such artifact" in home.collect().err
    home.run.artifacts = [plan]
    plan.stored = packed({"plan.json": b"[]"})
    assert "its plan: 1 validation error for Plan" in home.collect().err
    encrypted = packed({"plan.json": b"[]"}).replace(b"\x14\x03\x14\0\0", b"\x14\x03\x14\0\1")
    for stored, why_not in (
        (b"PK\x05\x06 no", "not a sound zip"),
        (encrypted, "not a sound zip: File "),
        (bytes(PACKED + 2**20), "65 MiB; at most 64"),
    ):
        plan.stored = stored
        assert f"its plan: {why_not}" in home.collect().err
    plan.expired = True
    assert "its plan: it has expired" in home.collect().err
    assert "run 7 of example/queue: no such run" in home.command("collect", "7").err
    home.run.path = ".github/workflows/rebase.yml"
    assert "is one of '.github/workflows/rebase.yml'" in home.collect().err


@pytest.mark.parametrize(
    "remote",
    [
        "https://github.com/example/queue.git", "ssh://git@github.com:22/example/queue",
        "git@github.com:example/queue.git",
    ],
)  # fmt: skip
def test_the_repository_of_a_queue(tmp_path: Path, remote: str) -> None:
    git(tmp_path, "init", "-q")
    git(tmp_path, "remote", "add", "origin", remote)
    assert repository_of(tmp_path, find_server({}), {}) == "example/queue"
