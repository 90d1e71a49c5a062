"""Stage `reproduce`: the checks of the patch, on the base and on the patched tree."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

from contribbot.model.checks import Check
from contribbot.model.evidence import Outcome
from contribbot.verify.check import Way, check_unit, reason_of
from contribbot.verify.job import Job
from contribbot.verify.placement import overlay_note
from contribbot.verify.pytest_run import CheckRun
from contribbot.verify.stages.base import (
    Facts,
    Finding,
    RecordedResult,
    Stage,
    Unit,
    as_table,
    stated_facts,
)
from contribbot.verify.verdict import Judgement, confirmed, judge_check, side_to_repeat

_UNPROVED: Final = "nothing is stated that could prove it: write a check and state it in patch.toml"


class ReproduceStage(Stage):
    """Runs each check in a child pytest, once per tree."""

    name = "reproduce"

    def units(self, job: Job) -> list[Unit]:
        """One unit a check; where nothing could prove the patch, one that says so."""
        if job.patch.spec.unproved:
            missing = Finding(Outcome.SKIPPED, _UNPROVED, {"unfinished": True}, lasting=False)
            return [Unit("any", None, lambda: missing)]
        return [check_unit(job, check, Way()) for check in job.patch.spec.checks]

    def restate(self, kept: RecordedResult) -> Finding:
        """Judge the runs again."""
        return restate_check(kept, kept.entry(kept.patch.spec.checks), judge_check)


def restate_check(
    kept: RecordedResult,
    check: Check,
    judge: Callable[[Check, CheckRun, CheckRun], Judgement],
    *,
    note: str = "",
) -> Finding:
    """Judge the runs of a check again, and refuse what they cannot have shown."""
    runs = [
        CheckRun.recorded(kept.facts[side], check.timeout)
        for side in ("base", "patched", "again")
        if side in kept.facts
    ]
    base, patched, *again = runs
    judgement = judge(check, base, patched)
    side = side_to_repeat(judgement)
    if bool(side) is not bool(again):
        raise ValueError("the run that decides was not done twice")
    if again:
        judgement = confirmed(check, judgement, base if side == "base" else patched, again[0])
    if judgement.outcome is Outcome.PASSED and check.build:
        built = (result for result in kept.of_stages("build") if result.target == check.target)
        if not any(result.label == check.build for result in built):
            raise ValueError("what it loads was not built")
    executed, witness = (as_table(kept.facts[name]) for name in ("executed", "witness"))
    for path, lines in witness.items():
        if not executed.get(path) or not lines or kept.patch.upstream.is_test(path):
            raise ValueError(f"{path}: no line of it ran")
    facts: Facts = {**stated_facts(check), "file": check.file, "cause": str(judgement.cause)}
    if check.kernels:
        facts["kernels"] = _kernels(check, as_table(kept.facts["kernels"]))
    laid, over = bool(kept.facts.get("laid_over_base")), note or overlay_of(kept)
    reason = reason_of(judgement, runs, laid=laid, over=over)
    return Finding(judgement.outcome, reason, facts, seconds=sum(run.seconds for run in runs))


def overlay_of(kept: RecordedResult) -> str:
    """Say which release other than the pin's a record was made over, or nothing."""
    return overlay_note(str(kept.facts.get("over", "")), kept.patch.pin)


def _kernels(check: Check, kernels: Facts) -> Facts:
    names = as_table(kernels["patched"])
    never = [stated for stated in check.kernels if not any(re.search(stated, n) for n in names)]
    return {**kernels, "stated": [*check.kernels], "never_ran": [*never]}
