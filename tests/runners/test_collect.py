"""`contribbot collect`: what a run left, judged, and what becomes of each cell."""

from __future__ import annotations

import functools
from collections.abc import Callable

import pytest
from pydantic import JsonValue

from contribbot.errors import ExitCode
from contribbot.github.waits import Waits
from contribbot.lifecycle.status import target_states
from contribbot.model.evidence import Outcome
from contribbot.runners.artifacts import NO_PROGRAM
from contribbot.runners.model import CellState, Collected
from contribbot.verify.evidence import State, read_records
from tests.github.handle import GitHub
from tests.github.state_actions import Storage
from tests.runners.conftest import CHECKS, HOSTED, MI300, Ranged
from tests.runners.homing import COMPILED, FAILED, RAN, Home, Json, make_home, states, why

FAULT: Json = {"kind": "gpu-hung", "said": "no answer for 60 s"}


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
    assert rows[-1] == f"run {home.run.id}: 2 proved: all that was planned came and passed"

    queue = home.ranged.load()
    records = read_records(queue, queue.evidence)
    assert [one.state for one in records] == [State.FRESH, State.FRESH]
    told = {one.target: one.evidence for one in target_states(queue, "area")}
    assert told == {"gfx942": "fresh", "compile:gfx942": "fresh"}
    # A warm second night: no job at all.
    assert home.ranged.plan().jobs == ()


def test_a_job_with_a_gpu_does_not_answer_what_it_was_not_asked(home: Home) -> None:
    """Its record says that it compiled, too: with an image that is not the one for that."""
    home.end(COMPILED, "failure")
    home.send(RAN)
    assert states(home.collected())["gpu area gfx942"] is CellState.PROVED
    assert [cell.kind for cell in home.ranged.plan().cells] == ["compile"]


def test_the_token_does_not_go_to_the_storage(home: Home) -> None:
    home.send(COMPILED)
    home.collect()
    assert len(home.storage.seen) == 2
    for _, headers in home.storage.seen:
        assert "authorization" not in headers


def test_a_storage_that_fails_is_asked_again(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    quick = functools.partial(Waits, sleep=lambda _: None)
    monkeypatch.setattr("contribbot.github.client.Waits", quick)
    home.send(COMPILED)
    home.storage.faults = 1
    assert states(home.collected())["compile area gfx942"] is CellState.PROVED


def done(home: Home, **told: JsonValue) -> None:
    """Let the job end that says so of its patch, and left no record."""
    patch: Json = {"patch": "area", "exit_code": 3, **told}
    home.send(RAN, {"job.json": home.done(RAN, 3, {"patches": [patch]})}, "failure")


def seen(home: Home, outcome: Outcome, code: int = 0) -> None:
    """Let the job end whose check came out so."""
    files = home.files(RAN, outcomes={"reproduce": outcome})
    end = "failure" if code else "success"
    home.send(RAN, {**files, "job.json": home.done(RAN, code)}, end)


def never_began(home: Home) -> None:
    home.run.jobs = [one for one in home.run.jobs if one.name != RAN]


@pytest.mark.parametrize(
    ("act", "state", "said"),
    [
        (lambda home: home.end(RAN, "failure"), CellState.FAILED, "ended with failure"),
        (lambda home: home.end(RAN, "cancelled"), CellState.CANCELLED, "was cancelled"),
        # GitHub says of a job that ran into its limit that it was cancelled.
        (lambda home: home.end(RAN, "cancelled", 7200), CellState.TIMED_OUT, "after 120 minutes"),
        (lambda home: home.end(RAN, "timed_out"), CellState.TIMED_OUT, "after 120 minutes"),
        (lambda home: home.end(RAN, "success"), CellState.MISSING, "what it sent is not there"),
        (lambda home: home.end(RAN, "skipped", 0), CellState.MISSING, "was skipped"),
        (never_began, CellState.MISSING, "the run has no such job"),
        (lambda home: done(home, faults=[{"stage": "reproduce", "target": "gfx942",
                                          "fault": FAULT}]),
         CellState.FAULT, "gpu-hung: no answer for 60 s"),
        (lambda home: done(home, error="no such pin; fetch it"), CellState.FAILED,
         "no such pin; fetch it"),
        (lambda home: seen(home, Outcome.FAILED, 1), CellState.REFUTED,
         "reproduce: on-gpu: fails on the patched tree: it: made up"),
        (lambda home: seen(home, Outcome.UNAVAILABLE), CellState.OPEN, "made up"),
    ],
)  # fmt: skip
def test_what_a_job_left_and_what_becomes_of_its_cell(
    home: Home, act: Callable[[Home], None], state: CellState, said: str
) -> None:
    home.send(COMPILED)
    act(home)
    found = home.collected()
    assert states(found) == {"compile area gfx942": CellState.PROVED, "gpu area gfx942": state}
    assert said in why(found)
    assert {one.merged for one in found.records} == {"new"}
    assert not found.complete


def test_one_artifact_is_one(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    # Without gh: whether it is installed here must not decide what is printed.
    monkeypatch.setattr(
        "contribbot.runners.artifacts.attested", lambda *_, **__: (NO_PROGRAM, False)
    )
    assert f"{NO_PROGRAM} (1 artifact)" in home.collect().out.splitlines()


def test_a_run_that_is_not_over(home: Home) -> None:
    home.send(COMPILED)
    said = home.command("collect", str(home.run.id), "--json")
    found = Collected.model_validate_json(said.out)
    assert states(found)["gpu area gfx942"] is CellState.RUNNING
    assert "the run is not over: collect it again when it is" in found.notes
    assert said.code == ExitCode.NO


def test_collected_by_a_job_of_the_run_itself(home: Home) -> None:
    for job in (COMPILED, RAN):
        home.send(job)
    home.add_job("attest", "skipped")
    home.add_job("collect", "success")
    home.run.jobs[-1].status, home.run.jobs[-1].conclusion = "in_progress", None
    home.run.status = "in_progress"
    assert home.command("collect", str(home.run.id)).code == ExitCode.OK


def test_a_runner_at_fault_refutes_nothing(home: Home) -> None:
    home.send(COMPILED)
    home.send(RAN, home.at_fault(RAN), "failure")
    found = home.collected()
    assert states(found)["gpu area gfx942"] is CellState.FAULT
    assert why(found).startswith("gpu-hung: no answer for 60 s; no second try: ")
    # The cell is asked for again.
    assert [cell.kind for cell in home.ranged.plan().cells] == ["gpu"]


def test_a_job_that_was_killed_between_patches(ranged: Ranged, github: GitHub) -> None:
    ranged.patch("second")
    ranged.put(MI300.replace("count = 2", "count = 1") + HOSTED)
    with Storage().running() as storage:
        home = make_home(ranged, github, storage)
        home.begin()
        files = home.files(RAN)
        del files[next(name for name in files if "/second/" in name)]
        first: Json = {"patch": "area", "exit_code": 0}
        files["job.json"] = home.done(RAN, 3, {"patches": [first]})
        home.send(RAN, files, "cancelled")
        found = states(home.collected())
        assert found["gpu area gfx942"] is CellState.PROVED
        assert found["gpu second gfx942"] is CellState.CANCELLED


@pytest.mark.parametrize("outcome", [Outcome.PASSED, Outcome.FAILED, Outcome.SKIPPED])
def test_a_machine_that_names_no_rocm_says_nothing_of_one(home: Home, outcome: Outcome) -> None:
    home.send(COMPILED, home.files(COMPILED, rocm="", outcomes={"compile": outcome}))
    found = home.collected()
    assert states(found)["compile area gfx942"] is CellState.OPEN
    assert why(found, "compile") == "its machine names no ROCm, and 7.1 was asked"


def test_what_has_no_runner_and_what_is_fresh(ranged: Ranged, github: GitHub) -> None:
    ranged.patch("wide", CHECKS.replace("gfx942", "gfx950"))
    kept = ranged.record("area", outcomes=FAILED)
    with Storage().running() as storage:
        home = make_home(ranged, github, storage)
        home.begin()
        assert home.plan.jobs == ()
        found = home.collected()
        fresh = {one.kind: one.state for one in found.cells if one.fresh}
        assert fresh == {"compile": CellState.PROVED, "gpu": CellState.REFUTED}
        assert {one.state for one in found.cells if one.patch == "wide"} == {CellState.OPEN}
        assert not found.complete
        # What the plan says of a record counts for nothing where there is none.
        kept.unlink()
        assert {one.state for one in home.collected().cells} == {CellState.OPEN}
