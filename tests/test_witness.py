"""The stage `witness`: what ran is added up by target, and judged with the kernels that ran."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest
from pydantic import JsonValue

from contribbot.files import stores_folder
from contribbot.git.repository import open_store
from contribbot.git.source import Silent
from contribbot.hardware.machine import this_machine
from contribbot.model.evidence import Outcome, StageResult
from contribbot.queue.load import load_queue
from contribbot.verify.job import Job, Slots
from contribbot.verify.patch_verdict import judge
from contribbot.verify.stages.base import Unit
from contribbot.verify.stages.witness import WitnessStage
from tests.toy import Toy

PATH = "src/toy/area.py"


class Added(Job):
    """A job whose patch adds the statements of lines 10 and 14."""

    def witnesses(self) -> tuple[str, dict[str, list[range]]]:
        return self.trees.patched, {PATH: [range(10, 11), range(14, 15)]}


def ran_on(target: str, *lines: int, **details: JsonValue) -> StageResult:
    """Return what a fail-to-pass check came to that ran these lines."""
    witness: JsonValue = {PATH: [*lines]} if lines else {}
    every: dict[str, JsonValue] = {"check": "red", "expect": "fail-to-pass", "witness": witness}
    return StageResult(
        stage="reproduce", target=target, outcome=Outcome.PASSED, reason="", seconds=1,
        details={**every, **details},
    )  # fmt: skip


def units_of(toy: Toy, **results: list[StageResult]) -> list[Unit]:
    """Return the stage's work after the results of other stages."""
    toy.put_patch()
    toy.put_queue(["area"])
    with ThreadPoolExecutor(1) as pool:
        job = Added(
            load_queue(toy.queue).patch("area"), (), store=open_store(stores_folder(), "toy"),
            machine=this_machine(), children=pool, slots=Slots(), threads=1,
            scratch=toy.root / "scratch", logs=toy.root / "logs", progress=Silent(),
        )  # fmt: skip
    job.trees.base, job.trees.patched = "b" * 40, "a" * 40
    job.results = results
    return WitnessStage().units(job)


@pytest.mark.parametrize("stage", ["reproduce", "numerics"])
def test_each_target_is_told_for_itself(toy: Toy, stage: str) -> None:
    both = [ran_on("cpu", 10), ran_on("cpu", 14, 10), ran_on("cuda")]
    refuted = ran_on("gfx942", 10).model_copy(update={"outcome": Outcome.FAILED})

    units = units_of(toy, **{"reproduce": [], stage: [*both, refuted]})

    here, there = (unit.work() for unit in units)
    assert [unit.target for unit in units] == ["cpu", "cuda"]
    assert (here.outcome, here.reason) == (Outcome.PASSED, "2 of 2 added statements ran (100%)")
    assert (there.outcome, there.reason) == (
        Outcome.SKIPPED,
        "0 of 2 added statements ran (0%): no check here reaches the change in a test",
    )
    assert (there.details["added"], there.details["executed"]) == (2, 0)


def test_each_check_that_states_kernels_is_judged(toy: Toy) -> None:
    kernels: dict[str, JsonValue] = {
        "stated": ["quant"], "never_ran": ["quant"], "base": {}, "patched": {"gemm": 2},
        "names": 1, "blind": "",
    }  # fmt: skip
    units = units_of(toy, reproduce=[ran_on("cpu", 10), ran_on("cuda", kernels=kernels)])

    assert [(unit.target, unit.label) for unit in units] == [
        ("cpu", ""), ("cuda", ""), ("cuda", "kernels of reproduce/red"),
    ]  # fmt: skip
    finding = units[-1].work()
    assert (finding.outcome, finding.reason) == (
        Outcome.FAILED,
        "the patched kernel never ran: no name holds 'quant'; 1 others did, such as gemm",
    )


@pytest.mark.parametrize(
    ("lines", "details", "verdict"),
    [
        ([], {"returned": ["test_red.py::test_it"]}, "proved"),
        ([10], {"returned": []}, "incomplete"),
        ([10], {}, "incomplete"),
    ],
)
def test_red_to_green_proves_by_what_the_patch_adds(
    lines: list[int], details: dict[str, JsonValue], verdict: str
) -> None:
    assert judge([ran_on("cpu", *lines, **details)], {"cpu"}) == verdict
