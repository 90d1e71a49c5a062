"""Checks and numerics, run on a tree without the patch."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

from contribbot.model.behaviour import Says
from contribbot.model.check import Check
from contribbot.model.proofs import Numerics
from contribbot.verify.checkunit import Way, missing_here, run_one
from contribbot.verify.childrun import CheckRun
from contribbot.verify.overlay import OverlayError
from contribbot.verify.places import overlay_note, unplaceable
from contribbot.verify.runnerfault import RunnerFaultError, lacked
from contribbot.verify.stages.numerics import not_shown, way_of
from contribbot.verify.unpatched.bare import Bare, Seen, lost
from contribbot.verify.unpatched.kernels import built
from contribbot.verify.verdict import sentence, unlike_stated


def ask_check(number: int, bare: Bare) -> Seen:
    """Run a check on the tree."""
    return _ask(bare, bare.job.patch.spec.checks[number], Way())


def ask_numerics(number: int, bare: Bare) -> Seen:
    """Run a numerics entry on the tree."""
    entry: Numerics = bare.job.patch.spec.numerics[number]

    def amiss(run: CheckRun) -> str:
        judgement = not_shown(entry, run.cells)
        return sentence(judgement) if judgement else ""

    return _ask(bare, entry, way_of(entry), amiss)


def _ask(
    bare: Bare, check: Check, way: Way, amiss: Callable[[CheckRun], str] = lambda _run: ""
) -> Seen:
    """Run a check on the tree."""
    job = bare.job
    if missing := _unready(bare, check):
        return missing
    try:
        return _judge(check, run_one(job, check, way, bare.tree), amiss)
    except OverlayError as error:
        return Seen(Says.CANNOT, str(error))
    except RunnerFaultError as error:
        return Seen(Says.CANNOT, str(error), transient=True)


def _unready(bare: Bare, check: Check) -> Seen | None:
    """Say what keeps a check from being run, or build what it loads."""
    job = bare.job
    if missing := missing_here(job, check):
        return Seen(Says.CANNOT, missing)
    if job.patch.upstream.overlay and (note := overlay_note(job)):
        # What runs is the installed package, which is another release.
        return Seen(Says.CANNOT, f"it would run {note}: install that release")
    if absent := lost(bare, tuple(check.env.values())):
        return absent
    if check.build:
        build = next(one for one in job.patch.spec.build if one.name == check.build)
        made = lost(bare, build.sources) or built(bare, build, check.target)
        if made.says is not Says.PASSES:
            why = f"its build {build.name} is not there: {made.reason}"
            says = Says.CANNOT if made.says is Says.CANNOT else Says.OTHER
            return replace(made, says=says, reason=why)
    unplaced = unplaceable(job, check)
    return Seen(Says.CANNOT, unplaced) if unplaced else None


def _judge(check: Check, run: CheckRun, amiss: Callable[[CheckRun], str]) -> Seen:
    """Judge one run of a fail-to-pass check on a tree without the patch."""
    seen = partial(Seen, log=run.log)
    if run.trouble:
        says = Says.CANNOT if lacked(run) else Says.OTHER
        return seen(says, run.told, transient=run.transient)
    fault = next((one for one in run.failed if one.fault), None)
    if fault is not None:
        what = "ran out of memory" if fault.fault == "memory" else "lost its device"
        return seen(Says.CANNOT, f"this machine {what}: {fault.test}", transient=True)
    count = len(run.ran)
    tests = f"{count} test{'s' if count > 1 else ''}"
    if run.failed:
        unlike = unlike_stated(check, run.failed, "release")
        said = f"{run.failed[0].test}: {run.failed[0].first}"
        share = f"{len(run.failed)} of {tests} fail as stated: {said}"
        return seen(Says.OTHER, sentence(unlike)) if unlike else seen(Says.FAILS, share)
    wrong = amiss(run)
    return seen(Says.OTHER, wrong) if wrong else seen(Says.PASSES, f"{tests} pass")
