"""`contribbot runners workflows run`: what a job does on its runner, and what it leaves."""

from __future__ import annotations

import json
import signal
import time
from pathlib import Path

import pytest
from pydantic import JsonValue

from contribbot.model.evidence import Verdict
from contribbot.runners.documents import JobDone
from tests.conftest import Program, Ran
from tests.smalldisk import small_disk
from tests.toy import Toy

JOB = {
    "CONTRIBBOT_JOB": "gfx942-rocm7.1-1",
    "GITHUB_RUN_ID": "77",
    "GITHUB_RUN_ATTEMPT": "2",
    "GITHUB_REPOSITORY": "example/queue",
    "GITHUB_SHA": "1" * 40,
}
SLOW = "import time\n\n\ndef test_slow():\n    time.sleep(120)\n"


def asks(*patches: str, require: str = "reproduce:cpu") -> dict[str, str]:
    """Return the variables of a job that is asked to prove patches."""
    return {**JOB, "CONTRIBBOT_ASKS": json.dumps(
        [{"patch": patch, "require": [require]} for patch in patches]
    )}  # fmt: skip


def run(program: Program, env: dict[str, str]) -> Ran:
    program.env = env
    return program("runners", "workflows", "run")


def left(toy: Toy) -> JobDone:
    """Return what the job said of itself."""
    return JobDone.model_validate_json((toy.queue / "answer/job.json").read_bytes())


def test_a_job_leaves_records_and_says_how_it_ended(area: Toy, program: Program) -> None:
    ran = run(program, asks("area"))

    assert ran.code == 0, ran.out + ran.err
    done = left(area)
    assert (done.exit_code, done.patches[0].exit_code, done.patches[0].error) == (0, 0, "")
    assert done.run is not None
    assert (done.run.run_id, done.run.attempt, done.run.job) == (77, 2, JOB["CONTRIBBOT_JOB"])
    (record,) = (area.queue / "answer/records/area").iterdir()
    said: JsonValue = json.loads(record.read_text())["predicate"]["contribbot"]
    assert isinstance(said, dict)
    assert (said["verdict"], said["run"]) == (Verdict.PROVED, done.run.model_dump())
    # The queue's own records are not a runner's to write.
    assert not (area.queue / "evidence").exists()


@pytest.mark.slow
def test_one_patch_in_the_way_does_not_stop_the_next(
    toy: Toy, program: Program, tmp_path: Path
) -> None:
    toy.put_patch("area")
    toy.put_patch("broken", patch=toy.format_patch({"src/toy/area.py": "GONE = 1\n"}))
    toy.put_patch("torn")
    toy.put_queue(["broken", "torn", "area"])
    (toy.queue / "patches/torn/checks/test_red.py").unlink()
    summary = tmp_path / "summary.md"

    ran = run(program, {**asks("broken", "torn", "area"), "GITHUB_STEP_SUMMARY": str(summary)})

    done = left(toy)
    assert (ran.code, done.exit_code) == (1, 1)
    ends = [(each.patch, each.exit_code) for each in done.patches]
    assert ends == [("broken", 1), ("torn", 2), ("area", 0)]
    assert "test_red.py" in done.patches[1].error
    assert "test_red.py" in ran.out
    assert len(list((toy.queue / "answer/records").iterdir())) == 2
    assert "| reproduce | cpu | passed |" in summary.read_text()


def test_a_source_that_cannot_be_had_is_the_machines_failure(area: Toy, program: Program) -> None:
    area.upstream.rename(area.root / "away")

    ran = run(program, asks("area"))

    (done,) = left(area).patches
    assert (ran.code, done.exit_code) == (3, 3), ran.out
    assert done.error
    assert done.error in " ".join(ran.out.split())


@pytest.mark.parametrize(
    ("place", "left_over"), [("cache", 0), ("cache", 96), ("work", 0), ("output", 8)]
)
def test_a_full_disk_is_the_runners_fault(
    area: Toy, program: Program, place: str, left_over: int
) -> None:
    spots = {"cache": "small", "work": ".contribbot", "output": "answer"}
    with small_disk(area.queue / spots[place], "size=1m") as folder:
        (folder / "fill").write_bytes(bytes((1024 - left_over) * 1024))
        small = {"CONTRIBBOT_CACHE": str(folder)} if place == "cache" else {}
        ran = run(program, asks("area") | small)
        done = left(area)
    assert ran.code == done.exit_code == 3, ran.out + ran.err
    said = " ".join((ran.out + ran.err).split())
    assert "the disk is full: " in said
    assert "<class" not in said
    (each,) = done.patches
    assert {(at.stage, at.target, at.fault.kind) for at in each.faults} == {
        ("reproduce", "cpu", "disk-full")
    }


@pytest.mark.usefixtures("unsandboxed")
@pytest.mark.slow
def test_a_job_that_is_cancelled_leaves_what_it_has_and_nothing_that_runs(
    toy: Toy, program: Program
) -> None:
    mark = toy.root / "pid"
    slow = (
        "import os, subprocess, sys, time\n\n\ndef test_slow():\n"
        "    away = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'],\n"
        "        start_new_session=True)\n"
        f"    open({str(mark)!r}, 'a').write(f'{{os.getpid()}} {{away.pid}}\\n')\n"
        "    time.sleep(600)\n"
    )
    toy.put_patch("area")
    toy.put_patch("slow", check_files={"test_red.py": slow, "test_same.py": slow})
    toy.put_queue(["area", "slow"])
    program.env = asks("area", "slow")
    job = program.start("runners", "workflows", "run")
    end = time.monotonic() + 120
    while not mark.exists() or not mark.read_text().endswith("\n"):
        assert time.monotonic() < end
        assert job.poll() is None
        time.sleep(0.05)
    job.send_signal(signal.SIGTERM)
    started = time.monotonic()
    job.communicate(timeout=60)
    assert time.monotonic() - started < 7.5
    assert job.returncode == 130
    done = left(toy)
    assert done.exit_code == 3
    assert [(each.patch, each.exit_code) for each in done.patches] == [("area", 0)]
    for pid in mark.read_text().split():
        assert not Path(f"/proc/{pid}/exe").exists(), pid


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"CONTRIBBOT_ASKS": ""}, "CONTRIBBOT_ASKS is not set"),
        ({"CONTRIBBOT_JOB": ""}, "CONTRIBBOT_JOB is not set"),
        ({"CONTRIBBOT_ASKS": "[]"}, "CONTRIBBOT_ASKS"),
        ({"CONTRIBBOT_ASKS": "{"}, "CONTRIBBOT_ASKS"),
        ({"CONTRIBBOT_ASKS": '[{"patch": "area", "require": ["--all"]}]'}, "require"),
        (asks("elsewhere"), "elsewhere"),
        ({"CONTRIBBOT_ASKS": '{"area": []}'}, "CONTRIBBOT_ASKS: Input should be"),
        ({"CONTRIBBOT_JOB": "../../up"}, "CONTRIBBOT_JOB"),
        ({"CONTRIBBOT_JOB": "../../up", "GITHUB_RUN_ID": ""}, "CONTRIBBOT_JOB: "),
    ],
)
def test_what_is_no_job_is_refused(
    area: Toy, program: Program, change: dict[str, str], says: str
) -> None:
    ran = run(program, {**asks("area"), **change})

    assert ran.code in {2, 3}, ran.out + ran.err
    assert says in ran.err
    assert ran.err.count("\n") == 1
    assert not (area.queue / "answer").exists()
