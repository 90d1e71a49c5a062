"""The witness for GPUs: whether the kernels that a check is about ran at all.

A check of a kernel can be green because something else did the work: another backend, a
fallback, an operator that never reached the patched source. A check that states `kernels`
is profiled (`kernelwatch`), and each of these must be found among the names of what ran on
the patched tree.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from pydantic import JsonValue

from contribbot.model.check import Check
from contribbot.model.outcome import Outcome, StageResult
from contribbot.verify.childrun import CheckRun
from contribbot.verify.job import Finding, Job, Unit

#: Names that a record holds for each side: those that were asked for, then the most frequent.
_MOST: Final = 40
#: Characters of a name in a reason.
_SHORT: Final = 120


def kernel_details(check: Check, base: CheckRun, patched: CheckRun) -> dict[str, JsonValue]:
    """Return what the record keeps of the kernels of a check; nothing where none are stated."""
    if not check.kernels:
        return {}
    ran = patched.kernels
    never: list[JsonValue] = [
        one for one in check.kernels if not any(re.search(one, name) for name in ran.seen)
    ]
    return {
        "kernels": {
            "stated": [*check.kernels],
            "never_ran": never,
            "base": {**_kept(check, base.kernels.seen)},
            "patched": {**_kept(check, ran.seen)},
            "names": len(ran.seen),
            "blind": ran.blind,
        }
    }


def _kept(check: Check, seen: Mapping[str, int]) -> dict[str, int]:
    def rank(item: tuple[str, int]) -> tuple[bool, int, str]:
        name, count = item
        return not any(re.search(one, name) for one in check.kernels), -count, name

    return dict(sorted(seen.items(), key=rank)[:_MOST])


def kernel_units(job: Job) -> list[Unit]:
    """Return a unit for each check that passed and states kernels."""
    return [
        _unit(result, seen)
        for stage in ("reproduce", "numerics")
        for result in job.results.get(stage, ())
        if result.outcome is Outcome.PASSED
        and isinstance(seen := result.details.get("kernels"), dict)
    ]


def _unit(result: StageResult, seen: dict[str, JsonValue]) -> Unit:
    return Unit(
        result.target,
        {"kernels": seen},
        lambda: judge_kernels(seen),
        label=f"kernels of {result.stage}/{result.details['check']}",
    )


def judge_kernels(seen: Mapping[str, JsonValue]) -> Finding:
    """Say what it means that these kernels ran."""
    details: dict[str, JsonValue] = {"kernels": {**seen}}
    ran = seen["patched"]
    names = list(ran) if isinstance(ran, dict) else []
    never = seen["never_ran"]
    if isinstance(never, list) and never:
        if seen["blind"]:
            what = f"no kernel {never[0]!r}" if names else "no kernel"
            said = f"torch's profiler sees {what} here: {seen['blind']}"
            return Finding(Outcome.UNAVAILABLE, said, details, lasting=False)
        others = f"{seen['names']} others did, such as {names[0][:_SHORT]}" if names else "none did"
        reason = f"the patched kernel never ran: no name holds {never[0]!r}; {others}"
        return Finding(Outcome.FAILED, reason, details)
    return Finding(Outcome.PASSED, f"ran as stated: {names[0][:_SHORT]}", details)
