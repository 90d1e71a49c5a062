"""`contribbot runners collect`: what a run left, judged, and what becomes of each cell."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from pydantic import JsonValue

from contribbot.errors import ExitCode
from contribbot.model.evidence import Outcome, Statement
from contribbot.runners.documents import CellState, Collected
from contribbot.verify.evidence import State, read_records, statement_of, target_states
from tests.github.handle import GitHub
from tests.github.state_actions import Storage
from tests.runners.conftest import CHECKS, HOSTED, MI300, Ranged
from tests.runners.homing import (
    COMPILED,
    FAILED,
    RAN,
    Home,
    Json,
    make_home,
    sealed,
    states,
    why,
)
from tests.toy import git

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
    assert [each.state for each in records] == [State.FRESH, State.FRESH]
    told = {each.target: each.evidence for each in target_states(queue, "area")}
    assert told == {"gfx942": "fresh", "compile:gfx942": "fresh"}
    # A warm second night: no job at all.
    assert home.ranged.plan().jobs == ()


def test_a_job_with_a_gpu_does_not_answer_what_it_was_not_asked(home: Home) -> None:
    """Its record says that it compiled, too: with an image that is not the one for that."""
    home.end(COMPILED, "failure")
    home.send(RAN)
    assert states(home.collected())["gpu area gfx942"] is CellState.PROVED
    assert [cell.kind for cell in home.ranged.plan().cells] == ["compile"]


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
    home.run.jobs = [each for each in home.run.jobs if each.name != RAN]


@pytest.mark.parametrize(
    ("act", "state", "said"),
    [
        (lambda home: home.end(RAN, "failure"), CellState.FAILED, "ended with failure"),
        (lambda home: home.end(RAN, "cancelled"), CellState.CANCELLED, "was cancelled"),
        # GitHub says of a job that ran into its limit that it was cancelled.
        (lambda home: home.end(RAN, "cancelled", 7200), CellState.TIMED_OUT, "after 120 minutes"),
        (lambda home: home.end(RAN, "timed_out"), CellState.TIMED_OUT, "after 120 minutes"),
        (lambda home: home.end(RAN, "success"), CellState.MISSING, "with success and sent nothing"),
        (lambda home: home.end(RAN, "skipped", 0), CellState.MISSING, "was skipped"),
        (never_began, CellState.MISSING, "nothing tells of its job, which sent nothing"),
        (lambda home: done(home, faults=[{"stage": "reproduce", "target": "gfx942",
                                          "fault": FAULT}]),
         CellState.FAULT, "gpu-hung: no answer for 60 s"),
        (lambda home: done(home, error="no such pin; fetch it"), CellState.FAILED,
         "no such pin; fetch it"),
        (lambda home: seen(home, Outcome.FAILED, 1), CellState.REFUTED,
         "reproduce: on-gpu: made up"),
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
    assert {each.merged for each in found.records} == {"new"}
    assert not found.complete


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
        fresh = {each.kind: each.state for each in found.cells if each.fresh}
        assert fresh == {"compile": CellState.PROVED, "gpu": CellState.REFUTED}
        assert {each.state for each in found.cells if each.patch == "wide"} == {CellState.OPEN}
        assert not found.complete
        # What the plan says of a record counts for nothing where there is none.
        kept.unlink()
        assert {each.state for each in home.collected().cells} == {CellState.OPEN}


def test_nothing_is_written_through_a_link(home: Home, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    home.send(RAN)
    (home.ranged.folder / "evidence").mkdir()
    (home.ranged.folder / "evidence" / "area").symlink_to(elsewhere)
    found = home.collected()
    assert [each.why for each in found.records] == ["evidence/area is a link"]
    assert list(elsewhere.iterdir()) == []
    assert not found.complete


def older(home: Home, before: dict[str, bytes]) -> dict[str, bytes]:
    """Return what was sent once, as if it were of the run that is on now."""
    (path,) = set(before) - {"job.json"}
    return {"job.json": home.done(RAN), path: home.again(json.loads(before[path]), RAN)}


@pytest.mark.parametrize(
    ("by_hand", "alter", "outcome", "merged", "said"),
    [
        (False, False, None, "kept", "as new or newer"),
        (False, False, Outcome.UNAVAILABLE, "kept",
         "the one that is there saw more: reproduce/on-gpu/gfx942"),
        # What fails now is news.
        (False, False, Outcome.FAILED, "replaced", " said incomplete"),
        # Whoever sends a record can name any machine in it; only that something fails is news.
        (True, False, Outcome.PASSED, "kept", "was made by hand, by no run"),
        (True, False, Outcome.FAILED, "replaced", ", which no run made, said"),
        (False, True, Outcome.PASSED, "replaced", "tampered"),
    ],
)  # fmt: skip
def test_which_record_stays(
    home: Home, outcome: Outcome | None, merged: str, said: str, *, by_hand: bool, alter: bool
) -> None:
    before = home.files(RAN)
    if by_hand:
        home.ranged.record("area")
    else:
        home.send(RAN)
        home.collect()
    (path,) = home.evidence()
    if alter:
        path.write_text(path.read_text().replace("made up", "altered"))
    content = path.read_bytes()
    home.begin(everything=True)
    files = home.files(RAN, outcomes={"reproduce": outcome}) if outcome else older(home, before)
    home.send(RAN, files)
    (record,) = home.collected().records
    assert record.merged == merged
    assert said in record.why
    assert (path.read_bytes() == content) is (merged == "kept")


def test_killed_between_the_record_and_the_history(home: Home) -> None:
    home.send(RAN)
    home.collect()
    journal = home.ranged.folder / "history" / "area" / "journal.jsonl"
    journal.unlink()
    assert [each.merged for each in home.collected().records] == ["unchanged"]
    home.collect()
    assert len(journal.read_text().splitlines()) == 1


def test_the_queue_has_moved_on(home: Home) -> None:
    for job in (COMPILED, RAN):
        home.send(job)
    git(home.ranged.folder, "commit", "-q", "--allow-empty", "-m", "More")
    home.ranged.toy.put("patches/area/checks/test_same.py", "def test_two():\n    pass\n")
    found = home.collected()
    assert any("what came is judged by what is here" in note for note in found.notes)
    assert set(states(found).values()) == {CellState.REFUSED}
    assert why(found) == "stale: the checks have changed since"
    assert home.evidence() == []


RUNNER = """
[[runners]]
name = "rocjitsu"
target = "rocjitsu:gfx942"
labels = ["ubuntu-24.04"]
under = ["mirage", "--"]
"""


@pytest.mark.parametrize(
    ("outcome", "state"),
    [
        (Outcome.PASSED, CellState.SIMULATED), (Outcome.FAILED, CellState.REFUTED),
        (Outcome.UNAVAILABLE, CellState.OPEN), (None, CellState.INCOMPLETE),
    ],
)  # fmt: skip
def test_what_a_program_simulates_is_its_own(
    ranged: Ranged, github: GitHub, outcome: Outcome | None, state: CellState
) -> None:
    image = MI300.partition("[[runners.rocm]]")[2]
    ranged.put(f"{MI300}{RUNNER}[[runners.rocm]]{image}flags = []\n{HOSTED}")
    job, target = "rocjitsu-gfx942-rocm7.1-1", "rocjitsu:gfx942"
    with Storage().running() as storage:
        home = make_home(ranged, github, storage)
        home.begin()
        path, document = home.record(job, target="")
        told = Statement.model_validate_json(json.dumps(document)).predicate.contribbot
        (check,) = (row for row in told.stages if row.stage == "reproduce")
        if outcome is not None:
            ran = {"stage": "simulate", "target": target, "outcome": outcome}
            stages = (*told.stages, check.model_copy(update=ran))
            told = told.model_copy(update={"stages": stages})
        document = json.loads(statement_of(told).model_dump_json(by_alias=True))
        home.send(job, {"job.json": home.done(job), path: sealed(document)})
        found = home.collected()
    assert states(found)[f"gpu area {target}"] is state
    # The GPU's own cell is not answered by it.
    assert states(found)["gpu area gfx942"] is not CellState.PROVED
