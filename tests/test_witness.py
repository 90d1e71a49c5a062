"""The stage `witness` where a patch is checked on more than one target.

This machine has one, so what ran on the second is what another check ran on the first.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest

from contribbot.files import stores_folder
from contribbot.git.repository import open_store
from contribbot.git.source import Silent
from contribbot.hardware.machine import this_machine
from contribbot.model.evidence import Outcome, judge
from contribbot.queue.load import load_queue
from contribbot.verify.job import Finding, Job, Slots
from contribbot.verify.stages.witness import WitnessStage
from tests.conftest import dig
from tests.toy import AREA

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pydantic import JsonValue

    from contribbot.model.evidence import StageResult
    from tests.conftest import Program
    from tests.toy import Toy


#: The change, with a helper: the head of its definition runs when the file is imported.
WITH_HELPER = AREA.replace("return width + height", "return _area(width, height)").replace(
    "def triangle", "def _area(width, height):\n    return width * height\n\n\ndef triangle"
)


class Witnessed:
    """A patch whose checks have run here: `red` reaches the change, `same` its file alone.

    Args:
        job: The verification, with the trees that were made for real.
        ran: The outcomes of its checks.
    """

    def __init__(self, job: Job, ran: dict[str, StageResult]) -> None:
        self.job = job
        self.ran = ran

    def ran_on(self, check: str, target: str, **details: JsonValue) -> StageResult:
        """Return what a check came to, as if it had run on some target."""
        result = self.ran[f"reproduce {check}"]
        return result.model_copy(
            update={"target": target, "details": {**result.details, **details}}
        )

    def findings(self, **results: list[StageResult]) -> dict[str, Finding]:
        """Return what the stage finds on each target after the results of other stages."""
        self.job.results = results
        return {unit.target: unit.work() for unit in WitnessStage().units(self.job)}


@pytest.fixture
def witnessed(toy: Toy, program: Program, outcome_cache: None) -> Iterator[Witnessed]:
    del outcome_cache
    toy.put_patch(patch=toy.format_patch({"src/toy/area.py": WITH_HELPER}))
    toy.put_queue(["area"])
    ran = program("verify", "area", "--json").stages()
    applied = ran["apply"].details
    with ThreadPoolExecutor(1) as pool:
        job = Job(
            load_queue(toy.queue).patch("area"), (), store=open_store(stores_folder(), "toy"),
            machine=this_machine(), children=pool, slots=Slots(), threads=1,
            scratch=toy.root / "scratch", logs=toy.root / "logs", progress=Silent(),
        )  # fmt: skip
        job.trees.base, job.trees.patched = (
            str(applied["base_tree"]), str(applied["patched_tree"]),
        )  # fmt: skip
        yield Witnessed(job, ran)


@pytest.mark.parametrize("stage", ["reproduce", "numerics"])
def test_each_target_is_told_for_itself(witnessed: Witnessed, stage: str) -> None:
    here, there = witnessed.ran_on("red", "cpu"), witnessed.ran_on("same", "cuda")
    assert dig(here.details, "witness") == {"src/toy/area.py": [10, 14]}
    assert dig(there.details, "witness") == {}, "it merely imports the file"

    found = witnessed.findings(**{"reproduce": [here], stage: [here, there]})

    assert (found["cpu"].outcome, found["cpu"].reason) == (
        Outcome.PASSED,
        "2 of 2 added statements ran (100%)",
    )
    assert (found["cuda"].outcome, found["cuda"].reason) == (
        Outcome.SKIPPED,
        "0 of 2 added statements ran (0%): no check here reaches the change in a test",
    )
    assert (found["cuda"].details["added"], found["cuda"].details["executed"]) == (2, 0)


def test_a_check_that_did_not_pass_has_seen_nothing(witnessed: Witnessed) -> None:
    refuted = witnessed.ran_on("red", "cpu").model_copy(update={"outcome": Outcome.FAILED})

    found = witnessed.findings(reproduce=[refuted, witnessed.ran_on("same", "cpu")])

    assert {target: one.outcome for target, one in found.items()} == {"cpu": Outcome.SKIPPED}


@pytest.mark.parametrize(
    ("details", "verdict"),
    [
        ({}, "proved"),
        ({"witness": {}}, "incomplete"),
        ({"witness": {}, "kernels": {"stated": ["k"], "never_ran": []}}, "proved"),
        ({"witness": {}, "kernels": {"stated": ["k"], "never_ran": ["k"]}}, "incomplete"),
    ],
)
def test_red_to_green_proves_by_what_the_patch_adds(
    witnessed: Witnessed, details: dict[str, JsonValue], verdict: str
) -> None:
    results = [witnessed.ran_on("red", "cpu", **details), witnessed.ran_on("same", "cpu")]
    assert judge(results, {"cpu"}) == verdict
