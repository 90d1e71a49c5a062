"""What exit codes and records say of a runner, of its faults, and of the run it was part of."""

from __future__ import annotations

import json
import os
import re

import pytest
from pydantic import ValidationError

from contribbot.errors import MachineError
from contribbot.machine import actions_run, job_container
from contribbot.model.evidence import RESULT
from tests.conftest import Program
from tests.toy import Toy, one_check


def with_gpu_check(toy: Toy, target: str) -> None:
    toy.put_area(checks=one_check(reason="5 == 6", more=f'requires = ["{target}"]'))


def break_gpu(toy: Toy, program: Program) -> None:
    """Have the driver list a GPU that torch cannot use."""
    listing = toy.put("bin/nvidia-smi", "#!/bin/sh\necho '9.0, 1.0, A GPU that no one can use'\n")
    listing.chmod(0o755)
    path = f"{listing.parent}:{os.environ['PATH']}"
    program.env |= {"PATH": path, "CUDA_VISIBLE_DEVICES": ""}


@pytest.mark.slow
def test_a_faulty_runner_fails_as_a_machine(toy: Toy, program: Program) -> None:
    with_gpu_check(toy, "cuda")
    break_gpu(toy, program)
    ran = program("verify", "area", "--require", "cuda", "--json")
    assert ran.code == 3
    outcome = ran.stages()["reproduce red"]
    assert outcome.reason.startswith("red: runner fault (gpu-not-visible): torch ")
    assert "\n" not in outcome.reason
    assert ran.report().verdict == "incomplete"
    assert not outcome.cached

    said = program("verify", "area").out
    assert re.search(
        r"incomplete: nothing could be proved here: runner fault \(gpu-not-visible\): torch .*"
        r"; could not run: reproduce red; not run: cuda",
        " ".join(said.split()),
    )

    # It takes nothing away from a record that stands, and the record says what it is.
    (record,) = (toy.queue / "evidence/area").iterdir()
    before = record.read_bytes()
    assert program("verify", "area", "--force").code == 3
    assert record.read_bytes() == before
    told = program("evidence", "check", "--json").out
    assert '"fresh"' in told

    # One that counts what is the runner's contradicts itself.
    document = json.loads(before)
    stages = document["predicate"]["contribbot"]["stages"]
    next(row for row in stages if row.get("runner_fault"))["outcome"] = "passed"
    record.write_text(json.dumps(document))
    assert '"tampered"' in program("evidence", "check", "--json").out


def test_a_planned_job_that_does_not_find_its_gpu_says_so(toy: Toy, program: Program) -> None:
    with_gpu_check(toy, "gfx999")
    asked = ("verify", "area", "--require", "gfx999", "--json")
    # A machine without some GPU is an ordinary machine.
    assert program(*asked).code == 1
    ran = program(*asked, CONTRIBBOT_JOB="gfx999-rocm7.1-1")
    assert ran.code == 3
    told = ran.stages()["reproduce red"].runner_fault
    assert told is not None
    assert told.kind == "gpu-not-visible"
    # Another job's GPU is not this one's.
    assert program(*asked, CONTRIBBOT_JOB="gfx942-rocm7.1-1").code == 1


def test_what_makes_no_sense_as_a_fault_is_refused() -> None:
    good = {"kind": "hip-error", "said": "x"}
    odds: tuple[object, ...] = ([], {**good, "kind": "no such"}, {"kind": "hip-error"})
    document = {"stage": "bench", "target": "gfx942", "outcome": "unavailable", "reason": "",
                "seconds": 0}  # fmt: skip
    assert RESULT.validate_python({**document, "runner_fault": good}).runner_fault
    for odd in odds:
        with pytest.raises(ValidationError, match="runner_fault"):
            RESULT.validate_python({**document, "runner_fault": odd})


RUN = {
    "GITHUB_RUN_ID": "42", "GITHUB_RUN_ATTEMPT": "2", "GITHUB_JOB": "gpu",
    "GITHUB_REPOSITORY": "example/queue", "GITHUB_SHA": "a" * 40,
}  # fmt: skip
IMAGE = f"docker.io/rocm/dev@sha256:{'b' * 64}"


@pytest.mark.usefixtures("outcome_cache")
def test_the_record_names_the_run_and_the_container(area: Toy, program: Program) -> None:
    program.env |= {
        **RUN, "CONTRIBBOT_JOB": "cpu-1", "CONTRIBBOT_IMAGE": IMAGE,
        "CONTRIBBOT_CONTAINER_FLAGS": "--device /dev/kfd --group-add 'video'",
    }  # fmt: skip
    assert program("verify", "area").code == 0
    (record,) = (area.queue / "evidence/area").iterdir()
    told = json.loads(record.read_bytes())["predicate"]["contribbot"]
    assert told["run"] == {
        "run_id": 42, "attempt": 2, "job": "cpu-1", "repository": "example/queue",
        "commit": "a" * 40,
    }  # fmt: skip
    assert told["container"] == {
        "image": IMAGE, "flags": ["--device", "/dev/kfd", "--group-add", "video"],
    }  # fmt: skip
    assert program("evidence", "check").code == 0
    rows = program("evidence", "show", "area").out.splitlines()
    start = next(number for number, row in enumerate(rows) if row.startswith("  run "))
    assert rows[start : start + 4] == [
        "  run      job cpu-1 of example/queue run 42, attempt 2, as given to the job",
        "           https://github.com/example/queue/actions/runs/42",
        f"  in       {IMAGE}, as given to the job",
        "           with --device /dev/kfd --group-add video",
    ]
    # Pages of another GitHub are elsewhere.
    shown = program("evidence", "show", "area", GITHUB_API_URL="https://git.example/api/v3").out
    assert "           https://git.example/example/queue/actions/runs/42\n" in shown

    ran = program("verify", "area", "--force", GITHUB_SHA="main")
    assert ran.code == 3
    assert "GITHUB_SHA" in ran.err
    assert json.loads(record.read_bytes())["predicate"]["contribbot"]["run"]["run_id"] == 42


def test_run_and_container_are_read_from_the_variables() -> None:
    assert actions_run({}) is None
    assert job_container({}) is None
    told = actions_run(RUN)
    assert told is not None
    assert (told.run_id, told.job) == (42, "gpu")
    for name, bad in (
        ("GITHUB_RUN_ID", "x1"), ("GITHUB_RUN_ATTEMPT", ""), ("GITHUB_JOB", "a b"),
        ("GITHUB_REPOSITORY", "queue"), ("GITHUB_SHA", "main"),
    ):  # fmt: skip
        with pytest.raises(MachineError):
            actions_run({**RUN, name: bad})
    for bad in ("rocm/dev:latest", f"{IMAGE}0", f"-v@sha256:{'b' * 64}"):
        with pytest.raises(MachineError, match="CONTRIBBOT_IMAGE"):
            job_container({"CONTRIBBOT_IMAGE": bad})
    for bad in ("--device '/dev/kfd", "--name a\x07b"):
        with pytest.raises(MachineError, match="CONTRIBBOT_CONTAINER_FLAGS"):
            job_container({"CONTRIBBOT_IMAGE": IMAGE, "CONTRIBBOT_CONTAINER_FLAGS": bad})
