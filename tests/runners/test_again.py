"""Second tries: what a runner failed is tried once more, and judged by what both tries left."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from contribbot.errors import ExitCode
from contribbot.runners.documents import CellState, load_fleet
from contribbot.runners.plan import second_try
from tests.github.handle import GitHub
from tests.github.state_actions import Storage, add_job, upload
from tests.runners.conftest import HOSTED, MI300, Ranged
from tests.runners.homing import COMPILED, FAILED, RAN, Home, make_home, packed, states, why

AGAIN = f"{RAN}-again"
CELL = "gpu area gfx942"
#: What GitHub says of the steps of a job whose runner went away.
LOST = (("Set up job", "completed", "success"), ("Prove", "in_progress", None),
        ("Send what was seen", "queued", None))  # fmt: skip

#: And where its container did not start: the step that runs always has none to run in, and fails.
NO_CONTAINER = (("Set up job", "completed", "success"),
                ("Initialize containers", "completed", "failure"),
                ("Read the queue", "completed", "skipped"), ("Prove", "completed", "skipped"),
                ("Send what was seen", "completed", "failure"),
                ("Stop containers", "completed", "success"),
                ("Complete job", "completed", "success"))  # fmt: skip


def failed_once(home: Home, runner: str = "mi300-a") -> None:
    """Let all be as it was when the GPU of the first try hung."""
    home.send(COMPILED)
    home.ghost(RAN).runner = runner
    home.send(RAN, home.at_fault(RAN), "failure")


def start_again(home: Home) -> None:
    """Let somebody start the jobs that failed again."""
    home.run.attempt = 2
    home.github.state.clock.now()
    add_job(home.github.state, home.run, RAN).labels = home.job(RAN).labels


def test_what_the_second_runner_proves_is_proved(home: Home, tmp_path: Path) -> None:
    failed_once(home)
    outputs = tmp_path / "outputs"
    again = home.try_again(GITHUB_OUTPUT=str(outputs))
    assert [each.why for each in again.cells] == ["gpu-hung: no answer for 60 s"]
    (row,) = json.loads(outputs.read_text().removeprefix("again="))
    assert (row["id"], row["artifact"]) == (AGAIN, f"contribbot-{AGAIN}")
    assert row["asks"] == [{"patch": "area", "require": ["reproduce:gfx942"]}]
    # It looks, and keeps nothing.
    assert home.evidence() == []
    assert not (home.ranged.folder / "history").exists()

    home.ghost(AGAIN).runner = "mi300-b"
    home.send(AGAIN)
    found = home.collected()
    assert states(found)[CELL] is CellState.PROVED
    assert why(found).endswith(
        "; second try on mi300-b; the first on mi300-a was a runner fault: "
        "gpu-hung: no answer for 60 s"
    )
    assert found.complete
    assert {each.job for each in found.cells} == {COMPILED, AGAIN}
    assert home.ranged.plan().jobs == ()


def test_two_faults_are_a_fault_and_there_is_no_third_try(home: Home, tmp_path: Path) -> None:
    failed_once(home)
    home.try_again()
    home.ghost(AGAIN).runner = "mi300-a"
    home.send(AGAIN, home.at_fault(AGAIN, "it hung anew"), "failure")
    outputs = tmp_path / "outputs"
    said = home.command("collect", str(home.run.id), GITHUB_OUTPUT=str(outputs))
    assert (said.code, outputs.read_text()) == (ExitCode.MACHINE, "runners_failed=true\n")
    assert said.out.splitlines()[-1] == (
        f"run {home.run.id}: 1 proved, 1 runner fault: "
        "runners failed, and no patch did; what they had is not known"
    )
    found = home.collected()
    assert why(found) == (
        "gpu-hung: it hung anew; second try on mi300-a; the first on mi300-a was a runner fault: "
        "gpu-hung: no answer for 60 s"
    )
    assert (states(found)[CELL], found.runners_failed) == (CellState.FAULT, True)
    waiting = len(home.run.jobs)
    assert [each.id for each in home.try_again().jobs] == [AGAIN]
    assert len(home.run.jobs) == waiting + 1


def test_a_second_try_refutes_as_any_other(home: Home, tmp_path: Path) -> None:
    failed_once(home)
    home.try_again()
    files = {**home.files(AGAIN, outcomes=FAILED), "job.json": home.done(AGAIN, 1)}
    home.send(AGAIN, files, "failure")
    found = home.collected()
    assert states(found)[CELL] is CellState.REFUTED
    assert why(found).startswith("reproduce: on-gpu: made up; second try on runner-1; ")
    outputs = tmp_path / "outputs"
    said = home.command("collect", str(home.run.id), GITHUB_OUTPUT=str(outputs))
    assert (said.code, outputs.read_text()) == (ExitCode.NO, "runners_failed=false\n")


@pytest.mark.parametrize(
    ("conclusion", "state", "said"),
    [
        ("failure", CellState.FAILED, "its job ended with failure and sent nothing; second"),
        (
            "success",
            CellState.MISSING,
            "its job ended with success and sent nothing; second try on ",
        ),
        ("skipped", CellState.FAULT, "no answer for 60 s; no second try: its job was skipped"),
    ],
)
def test_a_second_try_that_sent_nothing(
    home: Home, conclusion: str, state: CellState, said: str
) -> None:
    failed_once(home)
    home.try_again()
    home.end(AGAIN, conclusion)
    found = home.collected()
    assert states(found)[CELL] is state
    assert said in why(found)


@pytest.mark.parametrize("steps", [LOST, NO_CONTAINER])
def test_a_job_that_its_runner_lost_is_tried_again(
    home: Home, steps: tuple[tuple[str, str, str | None], ...]
) -> None:
    home.send(COMPILED)
    home.ghost(RAN).steps = steps
    home.end(RAN, "failure")
    (cell,) = home.try_again().cells
    assert cell.why in {
        "its runner went away: step 'Prove' never ended",
        "its runner could not start the container",
    }
    home.send(AGAIN)
    found = home.collected()
    assert (states(found)[CELL], found.complete) == (CellState.PROVED, True)


@pytest.mark.parametrize(
    ("conclusion", "steps", "seconds"),
    [
        ("failure", (("Prove", "completed", "failure"), ("Send", "completed", "failure")), 60),
        ("failure", (("Prove", "completed", "failure"), ("Send", "in_progress", None)), 60),
        ("failure", (), 60),
        ("cancelled", LOST, 60),
        ("failure", LOST, 7200),
        ("timed_out", LOST, 60),
        ("success", LOST, 60),
        ("skipped", (), 0),
    ],
)
def test_what_no_runner_failed_is_not_tried_again(
    home: Home, conclusion: str, steps: tuple[tuple[str, str, str | None], ...], seconds: int
) -> None:
    home.send(COMPILED)
    home.ghost(RAN).steps = steps
    home.end(RAN, conclusion, seconds)
    again = home.try_again()
    assert (again.cells, again.jobs) == ((), ())
    said = home.command("collect", str(home.run.id), "--again")
    assert (said.code, said.out) == (ExitCode.OK, "nothing to try again\n")


def test_only_the_cells_that_need_it(ranged: Ranged, github: GitHub) -> None:
    ranged.patch("second")
    ranged.put(MI300.replace("count = 2", "count = 1") + HOSTED)
    with Storage().running() as storage:
        home = make_home(ranged, github, storage)
        home.begin()
        compiled = [job.id for job in home.plan.of_kind("compile")]
        for name in compiled:
            home.send(name)
        path, _ = home.record(RAN, "second")
        files = {**home.files(RAN), path: home.at_fault(RAN)[path]}
        home.send(RAN, {**files, "job.json": home.done(RAN, 3)}, "failure")
        (job,) = home.try_again().jobs
        assert job.patches == ("second",)
        home.send(AGAIN)
        found = home.collected()
        assert set(states(found).values()) == {CellState.PROVED}
        assert {each.job for each in found.cells} == {*compiled, RAN, AGAIN}


def test_a_second_try_that_nothing_asked_for_is_refused(home: Home) -> None:
    failed_once(home)
    home.try_again()
    home.send(AGAIN)
    # As if a machine had put a better artifact into the place of the first.
    home.run.artifacts = [each for each in home.run.artifacts if each.name != f"contribbot-{RAN}"]
    upload(home.github.state, home.run, f"contribbot-{RAN}", packed(home.files(RAN)))
    home.ghost(RAN).conclusion = "success"
    found = home.collected()
    assert not found.complete
    assert not found.runners_failed
    refused = {each.name: each.refused for each in found.artifacts if each.refused}
    assert refused == {f"contribbot-{AGAIN}": "no job of the plan sends it"}
    assert f"job '{AGAIN}' ran, and the plan has none of this name" in found.notes


def test_the_second_try_of_an_earlier_attempt_is_none_of_this_one(home: Home) -> None:
    failed_once(home)
    home.try_again()
    home.send(AGAIN)
    start_again(home)
    home.send(RAN, home.at_fault(RAN), "failure")
    found = home.collected()
    assert states(found)[CELL] is CellState.FAULT
    assert why(found).endswith("; no second try: nothing tells of its job, which sent nothing")
    assert found.notes.count(f"left alone, as it is of an earlier attempt: contribbot-{AGAIN}") == 1
    # The second try of this attempt counts.
    home.try_again()
    home.send(AGAIN)
    found = home.collected()
    assert (states(found)[CELL], found.complete) == (CellState.PROVED, True), found


@pytest.mark.parametrize(
    ("conclusion", "state", "said"),
    [
        ("cancelled", CellState.CANCELLED, "its job was cancelled"),
        ("", CellState.RUNNING, "its job is queued"),
    ],
)
def test_a_job_that_ran_again_and_left_nothing(
    home: Home, conclusion: str, state: CellState, said: str
) -> None:
    """What its first attempt had seen is not what became of the run."""
    for job in (COMPILED, RAN):
        home.send(job)
    home.run.attempt = 2
    # One job was started again, as GitHub says; the other is as its first attempt left it.
    home.github.state.clock.now()
    add_job(home.github.state, home.run, RAN).labels = home.job(RAN).labels
    if conclusion:
        home.end(RAN, conclusion)
    found = home.collected()
    assert states(found) == {"compile area gfx942": CellState.PROVED, CELL: state}
    assert why(found) == said
    assert f"left alone, as it is of an earlier attempt: contribbot-{RAN}" in found.notes
    assert not found.complete
    assert [each.job for each in found.records] == [COMPILED]
    # What its second attempt leaves counts.
    home.send(RAN)
    assert home.collected().complete


#: A set with the same GPU and another image.
OTHER = MI300.replace("mi300", "other").replace('"gfx942"]', '"gfx942b"]')
OTHER = OTHER.replace("/run@", "/other@") + "\n"


def elsewhere(ranged: Ranged, github: GitHub, storage: Storage) -> Home:
    """Return a run whose first try hung, where another set has the same GPU."""
    ranged.put(MI300 + OTHER.replace("count = 2", "cost = 2") + HOSTED)
    home = make_home(ranged, github, storage)
    home.begin()
    home.send(COMPILED)
    home.send("gfx942-mi300-rocm7.1-1", home.at_fault("gfx942-mi300-rocm7.1-1"), "failure")
    home.try_again()
    return home


def test_another_set_has_the_second_try(ranged: Ranged, github: GitHub) -> None:
    with Storage().running() as storage:
        home = elsewhere(ranged, github, storage)
        (job,) = home.tries
        assert (job.runners, job.labels) == ("other", ("self-hosted", "gfx942b"))
        assert "/other@" in job.image
        home.send(job.id)
        assert home.collected().complete

        # Another image, or other runners, than those that it must have had.
        name = f"contribbot-{job.id}"
        right = next(each for each in home.run.artifacts if each.name == name)
        home.run.artifacts.remove(right)
        home.tries = (job.model_copy(update={"image": home.plan.jobs[-1].image}),)
        upload(github.state, home.run, name, packed(home.files(job.id)))
        found = home.collected()
        assert states(found)[CELL] is CellState.REFUSED
        assert "its container is not the plan's" in why(found)

        home.run.artifacts[-1] = right
        home.ghost(job.id).labels = home.plan.jobs[-1].labels
        found = home.collected()
        assert states(found)[CELL] is CellState.REFUSED
        assert why(found).startswith("it ran on self-hosted, gfx942, and the plan has it on self-")


@pytest.mark.parametrize(
    ("changed", "on", "where"),
    [
        ("cost = 1", (), "other"),
        ("cost = 1", ("mi300", "hosted"), "mi300"),
        ("cost = 1\nminutes_limit = 5", (), "mi300"),
        ('cost = 1\ntarget = "gfx90a"', (), "mi300"),
    ],
)
def test_where_a_second_try_goes(
    ranged: Ranged, changed: str, on: tuple[str, ...], where: str
) -> None:
    # One that costs more, and stands before the others in the file.
    far = (
        OTHER.replace("other", "far").replace("gfx942b", "gfx942c").replace("count = 2", "cost = 9")
    )
    other = OTHER.replace("count = 2", changed)
    if "gfx90a" in changed:
        other, far = other.replace('target = "gfx942"\n', "", 1), ""
    if "minutes_limit" in changed:
        far = ""
    ranged.put(MI300.replace("count = 2", "cost = 0.5") + far + other + HOSTED)
    plan = ranged.plan(on=on)
    job = plan.of_kind("gpu")[0]
    assert job.runners == "mi300"
    found = second_try(plan, job, [job.cells[0].key], load_fleet(ranged.folder).runners)
    assert found is not None
    assert (found.runners, found.cells, found.id) == (where, job.cells, f"{job.id}-again")
