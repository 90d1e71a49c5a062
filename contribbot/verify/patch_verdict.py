"""The verdict on a patch from the outcomes of its stages, and the words for the verdict."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Final

from contribbot.model.checks import EMULATED
from contribbot.model.evidence import (
    ON_HARDWARE,
    RAN,
    SEEN,
    Outcome,
    PatchFault,
    PatchReport,
    StageResult,
    Verdict,
    need_of,
)
from contribbot.model.record import BenchDetails, CheckDetails
from contribbot.queue.history import Refutation
from contribbot.verify.runner_fault import at_fault
from contribbot.verify.verdict import Cause

#: The largest number of characters of a reason in a verdict.
_SHORT: Final = 160


def too_noisy(result: StageResult) -> bool:
    """Return whether a bench was measured, but the times were too noisy for an answer."""
    noisy = isinstance(result.details, BenchDetails) and result.details.too_noisy
    return noisy and result.outcome is Outcome.UNAVAILABLE


def unavailable_here(result: StageResult, targets: Collection[str]) -> bool:
    """Return whether a target is on this machine, but its entry could not run."""
    lacking = result.outcome is Outcome.UNAVAILABLE and result.target in targets
    return lacking and not too_noisy(result)


def went_red_to_green(result: StageResult) -> bool:
    """Return whether an outcome is the pass of a fail-to-pass entry."""
    red = result.stated is not None and result.stated.expect == "fail-to-pass"
    return red and result.outcome is Outcome.PASSED


def proves(result: StageResult) -> bool:
    """Return whether an outcome proves a patch alone: red to green by the change, or faster."""
    if isinstance(result.details, BenchDetails):
        return result.details.proof and result.outcome is Outcome.PASSED
    return went_red_to_green(result) and result.stated is not None and result.stated.proof


def judge(results: Sequence[StageResult], targets: Collection[str]) -> Verdict:
    """Return the verdict on a patch from its results, on a machine with these targets."""
    if any(result.outcome is Outcome.FAILED for result in results):
        return Verdict.REFUTED
    unavailable = any(unavailable_here(result, targets) for result in results)
    causes = [row.details.cause for row in results if isinstance(row.details, CheckDetails)]
    if not unavailable and Cause.REPRODUCED in causes:
        return Verdict.REPRODUCED
    if not unavailable and causes and {*causes} == {Cause.NOT_REPRODUCED}:
        return Verdict.NOT_REPRODUCED
    red_to_green = any(proves(result) for result in results)
    return Verdict.PROVED if red_to_green and not unavailable else Verdict.INCOMPLETE


def open_targets(results: Sequence[StageResult]) -> list[str]:
    """Return the targets without an answer: `cuda`, `compile:gfx950`, `bench:cpu` if too noisy."""
    seen = dict.fromkeys(
        result.target
        if result.stage in RAN and not too_noisy(result)
        else f"{result.stage}:{result.target}"
        for result in results
        # `any` is no target: the stage is unavailable for another reason than hardware.
        if result.outcome is Outcome.UNAVAILABLE and result.target != "any"
    )
    return list(seen)


def results_for(stages: Iterable[StageResult], need: str) -> list[StageResult]:
    """Return the results that decide on a target named in `--require`."""
    stage, target = need_of(need)
    among = {stage} if stage else RAN
    return [row for row in stages if row.target == target and row.stage in among]


def is_at_fault(stages: Iterable[StageResult], need: str) -> bool:
    """Return whether a result on a target named in `--require` has a runner fault."""
    stage, target = need_of(need)
    return at_fault(row for row in stages if row.target == target and stage in {"", row.stage})


def unmet(report: PatchReport, required: Sequence[str]) -> list[str]:
    """Return which of the required targets a report does not prove."""
    missing = []
    for need in required:
        results = results_for(report.stages, need)
        shown = need_of(need)[0] or any(map(proves, results))
        if {result.outcome for result in results} != {Outcome.PASSED} or not shown:
            missing.append(need)
    return missing


def verdict_line(report: PatchReport) -> str:
    """Return a line on a patch: the verdict, the targets of the proof, and the open targets."""
    return f"{report.patch}: {report.verdict}{verdict_rest(report)}"


def verdict_rest(report: PatchReport, *, where: str = "here") -> str:
    """Return the part of `verdict_line` after the verdict; `where`: words for the machine."""
    shown = _where(report)
    if report.verdict is Verdict.PROVED:
        red = any(proves(result) and went_red_to_green(result) for result in report.stages)
        how = "fails without the patch, passes with it" if red else "the same results in less time"
        said = f" {shown}: {how}"
    elif report.verdict.settled:
        rows = [row for row in report.stages if isinstance(row.details, CheckDetails)]
        some = [row for row in rows if went_red_to_green(row)] or rows
        said = " on " + ", ".join(dict.fromkeys(row.target.replace(":", " ") for row in some))
    elif report.verdict is Verdict.REFUTED:
        failed = unit_names(result for result in report.stages if result.outcome is Outcome.FAILED)
        said = f": {', '.join(failed)} failed"
    elif shown:
        said = f": proved {shown}, but not everything could run {where}"
    elif any(map(went_red_to_green, report.stages)):
        said = ": what passes with the patch was not shown to hang on what it adds"
    elif any(row.outcome is Outcome.PASSED and row.stage in RAN for row in report.stages):
        said = f": what ran {where} passed and does not prove the patch alone{_obstacle(report)}"
    else:
        said = f": nothing could be proved {where}{_obstacle(report)}"
    noisy = dict.fromkeys(
        f"{result.stage}:{result.target}" for result in report.stages if too_noisy(result)
    )
    here = dict.fromkeys(
        f"{result.stage} {result.label}".rstrip()
        for result in report.stages
        if result.outcome is Outcome.UNAVAILABLE and not too_noisy(result)
    )
    # A target with one check that ran and another that could not is open, but was run.
    half = report.verdict is Verdict.INCOMPLETE
    ran = {each.target for each in report.stages if half and each.stage in RAN
           and each.outcome in SEEN}  # fmt: skip
    not_run = [
        f"{name} (runner fault)" if is_at_fault(report.stages, name) else name
        for name in report.open if name not in {*noisy, *ran}
    ]  # fmt: skip
    for title, names in (
        ("could not run", [*here] if half else []),
        ("too noisy to tell", [*noisy]),
        ("not run", not_run),
    ):
        said += f"; {title}: {', '.join(names)}" if names else ""
    return said


def refuted_words(refutations: Sequence[Refutation]) -> str:
    """Return the targets or stages that refute a patch, in words; empty: no refutation."""
    if not refutations:
        return ""
    on = dict.fromkeys(each.target for each in refutations if each.target != "any")
    by = dict.fromkeys(each.stage for each in refutations)
    return f"refuted on {', '.join(on)}" if on else f"refuted by {', '.join(by)}"


def refutation_line(refutation: Refutation) -> str:
    """Return a line with the failed unit, the machine and the day."""
    unit = " ".join(filter(None, (refutation.stage, refutation.entry))) or "a check"
    where = "" if refutation.target == "any" else f" on {refutation.target}"
    return f"{unit} failed{where} ({refutation.machine}, {refutation.time:%Y-%m-%d})"


def _obstacle(report: PatchReport) -> str:
    """Return the first reason for which a unit could not run; empty: all units ran."""
    reasons = dict.fromkeys(
        result.sentence
        for result in report.stages
        if result.patch_fault is PatchFault.UNFINISHED
        or (result.outcome is Outcome.UNAVAILABLE and not too_noisy(result))
    )
    first = next(iter(reasons), "")
    first = first if len(first) <= _SHORT else f"{first[:_SHORT]}…"
    more = f" (and {len(reasons) - 1} more)" if len(reasons) > 1 else ""
    return f": {first}{more}" if first else ""


def unit_names(results: Iterable[StageResult]) -> list[str]:
    """Return the distinct stages with targets, such as `compile on gfx942`."""
    return [*dict.fromkeys(
        result.stage + ("" if result.target == "any" else f" on {result.target}")
        for result in results
    )]  # fmt: skip


def _where(report: PatchReport) -> str:
    """Return the targets of a proof in words, grouped by how the proof was made."""
    shown = [result for result in report.stages if proves(result)]
    ran = dict.fromkeys(
        result.target for result in shown if result.stage in ON_HARDWARE - {"bench"}
    )
    faster = dict.fromkeys(result.target for result in shown if result.stage == "bench")
    made = dict.fromkeys(result.target for result in shown if result.stage == "compile")
    emulated = dict.fromkeys(
        result.target.removeprefix(EMULATED) for result in shown if result.stage == "emulate"
    )
    others = dict.fromkeys(
        result.stage for result in shown if result.stage not in {*RAN, "compile"}
    )
    parts = {
        "on": ran, "faster on": faster, "by compiling for": made, "by emulating": emulated,
        "by": others,
    }  # fmt: skip
    return " and ".join(f"{how} {', '.join(names)}" for how, names in parts.items() if names)
