"""Stage `emulate`: checks of kernels whose code for an AMD GPU a processor executes."""

from __future__ import annotations

import hashlib
import importlib.metadata
from collections.abc import Mapping
from functools import partial

from pydantic import JsonValue

from contribbot import process
from contribbot.hardware.hip import hip_toolchain
from contribbot.hardware.needs import missing_emulator
from contribbot.hardware.toolchain import Lacking, Toolchain
from contribbot.model.checks import EMULATED, Compile, Emulated
from contribbot.model.evidence import NOT_A_GPU, Outcome
from contribbot.verify.check import Way, place_inputs, reason_of, run_both
from contribbot.verify.job import Job
from contribbot.verify.pytest_run import RunLayout, Witnessed
from contribbot.verify.runner_fault import fault
from contribbot.verify.stages.base import (
    Facts,
    Finding,
    RecordedResult,
    Stage,
    Unit,
    as_list,
    as_table,
    stated_facts,
)
from contribbot.verify.stages.compile import (
    CodeSide,
    code_side,
    inputs_of,
    missing_for,
    toolchain_details,
)
from contribbot.verify.stages.reproduce import restate_check
from contribbot.verify.verdict import judge_check


class EmulateStage(Stage):
    """Runs each `[[emulated]]` for each of its targets, once per tree, with that tree's kernels."""

    name = "emulate"

    def units(self, job: Job) -> list[Unit]:
        """One unit an entry and target."""
        return [
            _unit(job, entry, target)
            for entry in job.patch.spec.emulated
            for target in entry.targets
        ]

    def restate(self, kept: RecordedResult) -> Finding:
        """Judge the runs again."""
        entry = kept.entry(kept.patch.spec.emulated)
        ran, coded = (as_table(kept.facts[name]) for name in ("executed", "coded"))
        for path, lines in ran.items():
            if not {*map(str, as_list(lines))} <= {*map(str, as_list(coded[path]))}:
                raise ValueError(f"{path}: lines ran of which there is no code")
        return restate_check(kept, entry.check, judge_check, note=NOT_A_GPU)


def code_of(job: Job, entry: Emulated) -> Compile:
    """Return the entry that makes the code."""
    return next(code for code in job.patch.spec.compile if code.name == entry.compile)


def _unit(job: Job, entry: Emulated, target: str) -> Unit:
    using, code = hip_toolchain(target), code_of(job, entry)
    missing = missing_emulator() or missing_for(job, code, using)
    inputs: dict[str, JsonValue] = {
        "emulated": entry.model_dump_json(),
        "checks": job.patch.checks_digest,
        "sandbox": process.no_sandbox(),
        "code": inputs_of(job, code, using),
        **place_inputs(job, entry.check),
    }
    work = partial(_emulate, job, entry, target, using)
    return Unit(f"{EMULATED}{target}", inputs, work, entry.name, missing)


def _emulate(job: Job, entry: Emulated, target: str, using: Toolchain | Lacking) -> Finding:
    code, trees = code_of(job, entry), job.trees
    futures = {
        tree: job.children.submit(code_side, job, code, target, using, tree) for tree in trees.sides
    }
    sides = {tree: future.result() for tree, future in futures.items()}
    for side in sides.values():
        if side.failure and (lack := side.failure.missing or side.failure.crashed):
            starved = side.failure.starved
            said: Facts = (
                {"runner_fault": fault("out-of-memory", lack).model_dump()} if starved else {}
            )
            return Finding(Outcome.UNAVAILABLE, f"compile {code.name}: {lack}", said, lasting=False)
    check = entry.check
    way = Way(layout=lambda job, _check, tree: layout(job, sides[tree], target, tree))
    _, judgement, runs = run_both(job, check, way)
    base, patched, *again = runs
    coded = {
        known.path: [*known.lines.values()]
        for known in witnessed(job, sides[trees.patched], trees.patched).values()
    }
    ran = {path: lines for path, lines in patched.executed.items() if lines}
    details: dict[str, JsonValue] = {
        **stated_facts(check),
        "file": check.file,
        "cause": judgement.cause,
        "compile": code.name,
        "emulator": importlib.metadata.version("tinygrad"),
        "code_sha256": [hashlib.sha256(side.content).hexdigest() for side in sides.values()],
        **toolchain_details(code, using),
        "threads": job.threads,
        "sandbox": process.no_sandbox() or "bubblewrap",
        "base": base.summary(check.reason),
        "patched": patched.summary(check.reason),
        **({"again": again[0].summary(check.reason)} if again else {}),
        "coded": {path: [*lines] for path, lines in coded.items()},
        "executed": {path: [*lines] for path, lines in ran.items()},
        "witness": {path: [*lines] for path, lines in ran.items()},
    }
    return Finding(
        judgement.outcome,
        reason_of(judgement, runs, laid=False, over=NOT_A_GPU),
        details,
        lasting=judgement.outcome is not Outcome.UNAVAILABLE
        and not any(run.transient for run in runs),
        seconds=sum(run.seconds for run in runs),
    )


def layout(job: Job, side: CodeSide, target: str, tree: str) -> RunLayout:
    """Put a side's code in place for a check, which sees nothing else of the tree."""
    from contribbot.emulate.kernels import Code  # noqa: PLC0415  numpy takes a while

    folder = job.fresh_folder()
    error = side.failure.error if side.failure else ""
    code = Code(target=target, shared=side.shared, error=error)
    (folder / "code.o").write_bytes(side.content)
    (folder / "code.json").write_text(code.model_dump_json(), encoding="utf-8")
    return RunLayout(
        tree=folder,
        python=(),
        witnessed=witnessed(job, side, tree),
        env={"CONTRIBBOT_EMULATED": str(folder)},
    )


def witnessed(job: Job, side: CodeSide, tree: str) -> Mapping[str, Witnessed]:
    """Return the lines that the patch adds of which there is code, by the line table's files."""
    from contribbot.emulate.code_object import load  # noqa: PLC0415  numpy takes a while

    if tree != job.trees.patched or not side.content:
        return {}
    places = {place for kernel in load(side.content).values() for place in kernel.lines.places}
    found = {}
    for path, lines in job.added_lines().items():
        if job.patch.upstream.is_test(path):
            continue
        name, file = side.compiled_file(path, job.exported(tree))
        if not any(place.startswith(f"{name}:") for place in places):
            continue
        known = Witnessed.of(path, lines, job.exported(tree) / path, file)
        coded = {there: line for there, line in known.lines.items() if f"{name}:{there}" in places}
        found[name] = Witnessed(path, coded)
    return found
