"""What Triton makes of patches under two releases of it, beside each other; nothing is recorded."""

from __future__ import annotations

import functools
import importlib
import os
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

from pydantic import Field, JsonValue, ValidationError

from contribbot import process
from contribbot.errors import ContribbotError, ExitCode, MachineError, UsageError
from contribbot.git.source import Silent
from contribbot.hardware.compare import ListingRow, merged, pair_kernels, rows_in
from contribbot.hardware.listing import KernelListing
from contribbot.hardware.machine import versions
from contribbot.hardware.triton import installed_release
from contribbot.model.base import Loose, Many, Model
from contribbot.model.checks import EMULATED, EmulatedCheck
from contribbot.model.evidence import Outcome
from contribbot.model.patch import PatchSpec
from contribbot.queue.load import Queue, load_queue
from contribbot.verify.check import run_one
from contribbot.verify.job import Job
from contribbot.verify.one_tree import prepared
from contribbot.verify.run import terminated_as_interrupted
from contribbot.verify.runner_fault import UnavailableError
from contribbot.verify.stages.base import Finding, Unit, unavailable
from contribbot.verify.stages.compile import CompileStage
from contribbot.verify.stages.emulate import EmulateStage, emulated_runner
from contribbot.verify.verdict import RunSide

_CHILD: Final = "from contribbot.verify.two_tritons import main; main()"


class EntryRun(Model):
    """What an entry of a patch came to for one target, under one Triton."""

    patch: str
    stage: str
    entry: str
    target: str
    outcome: Loose[Outcome]
    reason: str
    kernels: Many[KernelListing] = ()  # of the patched tree
    tests: Many[dict[str, JsonValue]] = ()  # rows of a sweep: what each test's kernels left
    unsteady: Many[str] = ()  # tests that left other bits in a second run: they are not compared


class TritonRun(Model):
    """What patches came to under one Triton; or what went wrong: message, hint, exit code."""

    versions: dict[str, str] = Field(default_factory=dict)
    entries: Many[EntryRun] = ()
    error: tuple[str, str, int] | None = Field(default=None, strict=False)


class EntryPair(Model):
    """An entry under two releases of Triton."""

    before: EntryRun
    now: EntryRun
    other_bits: dict[str, Many[str]]  # by test: the kernels that left other bits
    same_bits: int  # tests whose kernels left the same

    @property
    def rows(self) -> list[ListingRow]:
        """The kernels, the worst change first."""
        return merged(pair_kernels(self.before.kernels, self.now.kernels))


class TritonComparison(Model):
    """What `verify --with --json` prints."""

    versions: dict[str, tuple[str, str]]
    entries: Many[EntryPair]
    left_out: Many[str]  # patches of which Triton compiles nothing

    @property
    def exit_code(self) -> ExitCode:
        """1: an entry held under the first release alone; 3: one could not be run under either."""
        pairs = [(pair.before.outcome, pair.now.outcome) for pair in self.entries]
        if (Outcome.PASSED, Outcome.FAILED) in pairs:
            return ExitCode.NO
        return (
            ExitCode.MACHINE if any(Outcome.UNAVAILABLE in pair for pair in pairs) else ExitCode.OK
        )


def compiled_entries(spec: PatchSpec) -> set[tuple[str, str]]:
    """Return the entries, as stage and name, whose code Triton makes."""
    own = {entry.name for entry in spec.compile if entry.kind == "triton"}
    emulated = {entry.name for entry in spec.emulated if not entry.compile or entry.compile in own}
    return {("compile", name) for name in own} | {("emulate", name) for name in emulated}


def compare_releases(
    queue: Queue, names: Sequence[str], releases: tuple[str, str], started: Callable[[str], None]
) -> TritonComparison:
    """Bring two releases, and run what Triton compiles of patches under each."""
    from contribbot.sweep.findings import (  # noqa: PLC0415  numpy takes a while
        Sweep,
        SweepRow,
        compare,
    )

    made = [name for name in names if compiled_entries(queue.specs[name])]
    if not made:
        raise UsageError(
            f"{', '.join(names)}: Triton compiles nothing of it, so there is nothing to compare",
            hint='state a [[compile]] with kind = "triton", or an [[emulated]] without `compile`',
        )

    def under(release: str) -> TritonRun:
        started(f"triton {release}")
        return _run_under(release, queue, made)

    def sweep(run: EntryRun) -> Sweep:
        tests = tuple(map(SweepRow.model_validate, run.tests))
        return Sweep(program=(), versions={}, targets=(), findings=(), code=(), tests=tests)

    # Both are brought before either is used: one that there is not is said at once.
    started(f"bring triton {' and '.join(releases)}")
    for release in releases:
        installed_release(release)
    before, now = map(under, releases)
    pairs = []
    for old, new in zip(before.entries, now.entries, strict=True):
        found = compare(sweep(old), sweep(new))
        other = {each.test: each.kernels for each in found.bits}
        pairs.append(EntryPair(before=old, now=new, other_bits=other, same_bits=found.alike))
    return TritonComparison(
        versions={name: (before.versions[name], now.versions[name]) for name in now.versions},
        entries=tuple(pairs), left_out=tuple(name for name in names if name not in made),
    )  # fmt: skip


def _run_under(release: str, queue: Queue, names: Sequence[str]) -> TritonRun:
    """Have a child run patches; what it says meanwhile is on standard error."""
    with tempfile.TemporaryDirectory(prefix="contribbot-") as place:
        answer, path = Path(place) / "answer", [str(installed_release(release)), process.own_path()]
        environment = {
            **process.user_environment(), "PYTHONPATH": os.pathsep.join(filter(None, path)),
            "PYTHONDONTWRITEBYTECODE": "1",
        }  # fmt: skip
        argv = [sys.executable, "-P", "-c", _CHILD, str(answer), str(queue.folder), *names]
        status = process.shell_status(process.attached(argv, env=environment, stdout=2))
        if status == ExitCode.INTERRUPTED:
            raise KeyboardInterrupt
        try:
            run = TritonRun.model_validate_json(answer.read_bytes())
        except (OSError, ValidationError):
            how = f"what ran under it ended with status {status}"
            raise MachineError(f"triton {release}: {how}", hint="see what it says above") from None
    if run.error:
        error = ContribbotError(run.error[0], hint=run.error[1])
        error.exit_code = ExitCode(run.error[2])
        raise error
    return run


def main() -> None:
    """Run patches under the Triton that this Python finds: `ANSWER QUEUE NAME…`."""
    answer, folder, *names = sys.argv[1:]
    try:
        with terminated_as_interrupted():
            queue = load_queue(Path(folder))
            entries = tuple(entry for name in names for entry in _entries(queue, name))
        run = TritonRun(versions=versions(("triton", "torch", "tinygrad")), entries=entries)
    except ContribbotError as error:
        run = TritonRun(error=(error.message, error.hint, int(error.exit_code)))
    except KeyboardInterrupt:
        sys.exit(ExitCode.INTERRUPTED)
    Path(answer).write_text(run.model_dump_json(), encoding="utf-8")


def _entries(queue: Queue, name: str) -> Iterator[EntryRun]:
    """Run what Triton compiles of a patch, as `verify` does."""
    spec = queue.specs[name]
    emulated = (check for entry in spec.emulated for check in entry.checks)
    checks = {(check.name, f"{EMULATED}{check.emulated}"): check for check in emulated}
    with prepared(queue, name, (), progress=Silent()) as job:
        for stage in (CompileStage(), EmulateStage()):
            for unit in stage.units(job):
                if (stage.name, unit.label) in compiled_entries(spec):
                    run = _entry(job, stage.name, unit, checks.get((unit.label, unit.target)))
                    said = f"  {name}: {run.stage} {run.entry} {run.target}: {run.outcome}\n"
                    sys.stderr.write(said)
                    yield run


@functools.cache
def _undriven() -> str:
    """Say why kernels that a tree launches are not emulated under this Triton, or nothing."""
    try:
        importlib.import_module("contribbot.emulate.driver")
    except MachineError as error:
        return f"it may compile, and is not emulated: {error.message}; {error.hint}"
    return ""


def _entry(job: Job, stage: str, unit: Unit, check: EmulatedCheck | None) -> EntryRun:
    own = check is not None and stage == "emulate" and not check.compile
    missing = unit.missing or (_undriven() if own else "")
    try:
        finding = Finding(Outcome.UNAVAILABLE, missing) if missing else unit.work()
    except UnavailableError as error:
        finding = unavailable(error)
    run = EntryRun(
        patch=job.patch.name, stage=stage, entry=unit.label, target=unit.target,
        outcome=finding.outcome, reason=finding.reason,
        kernels=tuple(
            KernelListing(symbol=row.title, title=row.title, numbers=row.patched, mnemonics={})
            for row in rows_in(finding.details) if row.patched
        ),
    )  # fmt: skip
    if check is None or not own or missing:
        return run

    # Beside the runs that judge it, whose launches nobody watches.
    runner = emulated_runner(job, check, [job.trees.patched])
    watched = replace(runner, env={**runner.env, "CONTRIBBOT_OBSERVED": "1"})
    seen, again = (run_one(job, check, watched, RunSide.PATCHED) for _ in range(2))
    return run.model_copy(update={"kernels": tuple(seen.code), **steady(seen.left, again.left)})


def steady(
    seen: Sequence[dict[str, JsonValue]], again: Sequence[dict[str, JsonValue]]
) -> dict[str, tuple[JsonValue, ...]]:
    """Return the tests that left the same bits twice, and the names of the others."""
    same = tuple(row for row in seen if row in again)
    return {"tests": same, "unsteady": tuple(row["test"] for row in seen if row not in same)}
