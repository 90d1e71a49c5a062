"""Stage `emulate`: checks of kernels whose code for an AMD GPU a processor executes."""

from __future__ import annotations

import importlib.metadata
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Final

from pydantic import JsonValue

from contribbot import process
from contribbot.hardware.hip import hip_toolchain
from contribbot.hardware.triton import triton_name
from contribbot.model.checks import EMULATED, Compile, EmulatedCheck
from contribbot.model.evidence import NOT_A_GPU, Outcome
from contribbot.model.patch import digest_of
from contribbot.verify.check import (
    TREES,
    Way,
    all_of,
    place_inputs,
    reason_of,
    run_both,
    run_details,
    witness_details,
)
from contribbot.verify.emulated import Codes, NoCodeError, code_of, emulated_way, missing_here
from contribbot.verify.job import Job, Memo
from contribbot.verify.pytest_run import CheckRun
from contribbot.verify.stages.base import (
    Facts,
    Finding,
    Stage,
    Unit,
    stated_facts,
)
from contribbot.verify.stages.compile import inputs_of, toolchain_details
from contribbot.verify.verdict import RunSide, Shows

_UNCHANGED: Final = (
    "the kernels are the base's, instruction by instruction, so that no result can differ: state it"
    " as pass-to-pass, and have a check of `[[checks]]` fail on what calls them"
)


class EmulateStage(Stage):
    """Runs each `[[emulated]]` for each of its targets, once per tree."""

    name = "emulate"

    def units(self, job: Job) -> list[Unit]:
        """One unit an entry and target."""
        return [_unit(job, check) for entry in job.patch.spec.emulated for check in entry.checks]


def _unit(job: Job, check: EmulatedCheck) -> Unit:
    code, using = code_of(job, check), hip_toolchain(check.emulated)
    target, missing = f"{EMULATED}{check.emulated}", missing_here(job, check)
    memo: Memo[Codes | NoCodeError] = Memo()
    make = partial(memo.get, "", partial(_make, job, check))
    run: Facts = {
        "check": check.model_dump_json(),
        "files": digest_of(job.patch.support),
        "sandbox": process.no_sandbox(),
        **place_inputs(job, check),
    }
    if code is None:
        # What is installed is among its inputs, Triton too.
        return Unit(target, run, partial(_on_device, job, check), check.name, missing)
    return Unit(
        target=target,
        inputs={**run, "code": inputs_of(job, code, using)},
        work=lambda: _with_codes(job, check, code, make()),
        label=check.name,
        missing=missing,
        product=lambda: _product(run, make()),
    )


def _make(job: Job, check: EmulatedCheck) -> Codes | NoCodeError:
    try:
        return Codes.of(job, check, job.trees.sides)
    except NoCodeError as error:
        return error


def _product(run: Facts, codes: Codes | NoCodeError) -> Facts | None:
    """Return what a run depends on: the code, and nothing else of the trees."""
    if isinstance(codes, NoCodeError):
        return None
    alone: Facts = {name: value for name, value in run.items() if name not in TREES}
    return {**alone, "code": [*codes.digests], "coded": _coded(codes)}


def _coded(codes: Codes) -> Facts:
    """Return the added lines that have code, by path."""
    return {added.path: [*added.lines.values()] for added in codes.added.values()}


def _with_codes(
    job: Job, check: EmulatedCheck, code: Compile, codes: Codes | NoCodeError
) -> Finding:
    """Run a check with the kernels that a `[[compile]]` makes."""
    if isinstance(codes, NoCodeError):
        said = {"runner_fault": codes.fault.model_dump()} if codes.fault else {}
        return Finding(Outcome.UNAVAILABLE, str(codes), {**said}, lasting=False)

    def seen(_base: CheckRun, patched: CheckRun) -> Facts:
        ran: Facts = {path: [*lines] for path, lines in patched.executed.items() if lines}
        return {
            "compile": code.name,
            "code_sha256": [*codes.digests],
            **toolchain_details(code, hip_toolchain(check.emulated), codes.results),
            "coded": _coded(codes),
            "executed": {**ran},
            "witness": {**ran},
        }

    return _emulate(job, check, codes.way, seen, codes)


def _on_device(job: Job, check: EmulatedCheck) -> Finding:
    """Run a check on the tree, whose kernels go to the emulated GPU."""

    def seen(base: CheckRun, patched: CheckRun) -> Facts:
        return {
            "triton": triton_name(),
            "laid_over_base": [*job.laid_over_base()],
            **witness_details(job, base, patched),
        }

    return _emulate(job, check, emulated_way(job, check, job.trees.sides), seen)


def _emulate(
    job: Job,
    check: EmulatedCheck,
    way: Way,
    seen: Callable[[CheckRun, CheckRun], Facts],
    codes: Codes | None = None,
) -> Finding:
    _, judgement, runs = run_both(job, check, way)
    if codes is not None and judgement.shows is Shows.NOTHING_UNDONE:
        if codes.unchanged:
            # What differs are names or lines, and what else the check looks at.
            return Finding(Outcome.UNAVAILABLE, _UNCHANGED, {"compile": check.compile})
        # It sees nothing of a tree but the code that it is given: the base's run undoes all.
        red = tuple(failure.test for failure in runs[RunSide.BASE][0].failed)
        judgement = replace(judgement, shows=None, returned=red)
    base, patched = runs[RunSide.BASE][0], runs[RunSide.PATCHED][0]
    facts = seen(base, patched)
    details: dict[str, JsonValue] = {
        **stated_facts(check),
        "file": check.file,
        "cause": judgement.cause,
        "emulator": f"tinygrad {importlib.metadata.version('tinygrad')}",
        "threads": job.threads,
        "sandbox": process.no_sandbox() or "bubblewrap",
        **run_details(check, judgement, runs),
        **facts,
        **way.details(base, patched),
    }
    known = judgement.outcome is not Outcome.UNAVAILABLE
    return Finding(
        judgement.outcome,
        reason_of(judgement, all_of(runs), laid=bool(facts.get("laid_over_base")), over=NOT_A_GPU),
        details,
        lasting=known and not any(run.transient for run in all_of(runs)),
        seconds=sum(run.seconds for run in all_of(runs)),
    )
