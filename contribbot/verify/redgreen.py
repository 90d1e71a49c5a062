"""Judging a check by its two runs: red for the stated reason on the base, green on the patch."""

from __future__ import annotations

import re
from collections.abc import Sequence

from contribbot.model.check import Check
from contribbot.model.outcome import HOST_TARGETS, Outcome
from contribbot.verify.childrun import CheckRun, Failure
from contribbot.verify.runnerfault import lacked


def judge_check(check: Check, base: CheckRun, patched: CheckRun) -> tuple[Outcome, str]:
    """Return the outcome of a check and one line that says why.

    Args:
        check: What was expected.
        base: The run on the base tree.
        patched: The run on the patched tree.
    """
    for side, run in (("base", base), ("patched tree", patched)):
        if run.trouble:
            outcome = Outcome.UNAVAILABLE if lacked(run) else Outcome.FAILED
            return outcome, f"on the {side}: {run.trouble}"
    if fault := _machine_fault(check, base, patched):
        return fault
    wrong = _wrong_on_base(check, base) or _wrong_on_patched(base, patched)
    if wrong:
        return Outcome.FAILED, wrong
    count = len(patched.ran)
    skipped = f", {len(patched.skipped)} skipped" if patched.skipped else ""
    tests = f"{count} test{'s' if count != 1 else ''}{skipped}"
    if check.expect == "fail-to-pass":
        return Outcome.PASSED, f"{tests}: fail on the base as stated, pass on the patched tree"
    return Outcome.PASSED, f"{tests}: pass on the base and on the patched tree"


def _machine_fault(check: Check, base: CheckRun, patched: CheckRun) -> tuple[Outcome, str] | None:
    """Return the outcome when this machine gave up, which says nothing of the patch.

    Memory that lacks on the patched tree alone is the patch's doing, and so is a device
    that is missed where none was asked for.
    """
    for side, run in (("base", base), ("patched tree", patched)):
        for failure in run.failed:
            if not failure.fault:
                continue
            run.transient = True
            if run.cleared and _own(check, failure, base, patched):
                continue
            what = "ran out of memory" if failure.fault == "memory" else "lost its device"
            said = f"on the {side}, this machine {what}: {_name(failure)}"
            if run is patched and (failure.fault == "memory" or check.target in HOST_TARGETS):
                return Outcome.FAILED, f"{said}; the base did not"
            return Outcome.UNAVAILABLE, said
    return None


def _own(check: Check, failure: Failure, base: CheckRun, patched: CheckRun) -> bool:
    """Say whether a failure is the check's own, since a known-good kernel ran well after it.

    How much memory there was before the check cannot be known for sure: it counts as what
    the patch mends only where that is what it states, and the patched tree had enough.
    """
    if failure.fault != "memory":
        return True
    stated = check.expect == "fail-to-pass" and re.search(check.reason, failure.message)
    return failure in base.failed and bool(stated) and not patched.starved


def _wrong_on_base(check: Check, base: CheckRun) -> str:
    if check.expect == "pass-to-pass":
        return f"fails on the base: {_name(base.failed[0])}" if base.failed else ""
    if base.passed:
        more = f" (and {len(base.passed) - 1} more)" if len(base.passed) > 1 else ""
        return f"passes on the base, so it shows nothing: {base.passed[0]}{more}"
    return unlike_stated(check, base.failed)


def unlike_stated(check: Check, failed: Sequence[Failure], where: str = "base") -> str:
    """Say which failure is another than a fail-to-pass check states, or nothing.

    Args:
        check: The check.
        failed: The failures of a run.
        where: How to call the tree that it ran on.
    """
    for failure in failed:
        if failure.broken:
            return f"the {where} is broken there, not wrong: {_name(failure)}"
        if not re.search(check.reason, failure.message):
            return f"fails on the {where} for another reason than stated: {_name(failure)}"
    return ""


def _wrong_on_patched(base: CheckRun, patched: CheckRun) -> str:
    if patched.failed:
        more = f" (and {len(patched.failed) - 1} more)" if len(patched.failed) > 1 else ""
        return f"fails on the patched tree: {_name(patched.failed[0])}{more}"
    differing = sorted(base.ran ^ patched.ran)
    if differing:
        side = "base" if differing[0] in base.ran else "patched tree"
        return f"runs on the {side} only: {differing[0]}"
    return ""


def _name(failure: Failure) -> str:
    return f"{failure.test}: {failure.first}"
