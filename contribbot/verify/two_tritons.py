"""What Triton makes of patches under two releases of it, beside each other; nothing is recorded.

Each release runs in a Python of its own, which finds it before the installed one: so do all that
it starts to compile and to emulate.
"""

from __future__ import annotations

import importlib.metadata
import os
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from pydantic import Field, JsonValue, ValidationError

from contribbot import process
from contribbot.errors import ContribbotError, ExitCode, MachineError, UsageError
from contribbot.git.source import Silent
from contribbot.hardware.compare import COLUMNS, ListingRow, merged, pair_kernels, rows_in
from contribbot.hardware.listing import KernelListing
from contribbot.hardware.triton_release import installed_release
from contribbot.model.base import Loose, Many, Model
from contribbot.model.checks import EMULATED, Check, EmulatedCheck
from contribbot.model.evidence import Outcome
from contribbot.model.patch import PatchSpec
from contribbot.queue.load import Queue, load_queue
from contribbot.verify.check import run_one
from contribbot.verify.job import Job
from contribbot.verify.one_tree import prepared
from contribbot.verify.run import terminated_as_interrupted
from contribbot.verify.runner_fault import UnavailableError
from contribbot.verify.stages.base import Stage, Unit, unavailable
from contribbot.verify.stages.compile import CompileStage
from contribbot.verify.stages.emulate import EmulateStage, emulated_runner
from contribbot.verify.trees import RunLayout
from contribbot.verify.verdict import RunSide

if TYPE_CHECKING:
    from contribbot.sweep.findings import Sweep

_CHILD: Final = "from contribbot.verify.two_tritons import main; main()"
_PACKAGES: Final = ("triton", "torch", "tinygrad")


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


class TritonRun(Model):
    """What patches came to under one Triton; or why nothing can be said."""

    versions: dict[str, str] = Field(default_factory=dict)
    entries: Many[EntryRun] = ()
    error: tuple[str, str, int] | None = None  # message, hint, exit code


class EntryPair(Model):
    """An entry under two releases of Triton, the first and the second."""

    patch: str
    stage: str
    entry: str
    target: str
    outcomes: tuple[Loose[Outcome], Loose[Outcome]]
    reasons: tuple[str, str]
    kernels: Many[JsonValue]  # title, how many, and the numbers in `columns` of either
    other_bits: dict[str, tuple[str, ...]]  # by test: the kernels that left other bits
    same_bits: int  # tests whose kernels left the same
    uncompared: int  # tests of which one release alone left a digest

    @property
    def rows(self) -> list[ListingRow]:
        """The kernels, the worst change first."""
        return rows_in({"table": {"columns": [*COLUMNS], "rows": [*self.kernels]}})


class TritonComparison(Model):
    """What `verify --with --json` prints."""

    versions: dict[str, tuple[str, str]]
    columns: Many[str] = COLUMNS
    entries: Many[EntryPair]
    left_out: Many[str]  # patches of which Triton compiles nothing


def compiled_entries(spec: PatchSpec) -> set[tuple[str, str]]:
    """Return the entries, as stage and name, whose code Triton makes."""
    own = {entry.name for entry in spec.compile if entry.kind == "triton"}
    emulated = {entry.name for entry in spec.emulated if not entry.compile or entry.compile in own}
    return {("compile", name) for name in own} | {("emulate", name) for name in emulated}


def compare_releases(
    queue: Queue,
    names: Sequence[str],
    releases: tuple[str, str],
    *,
    started: Callable[[str], None],
) -> TritonComparison:
    """Bring two releases, and run what Triton compiles of patches under each."""
    made = [name for name in names if compiled_entries(queue.specs[name])]
    if not made:
        raise UsageError(
            f"{', '.join(names)}: Triton compiles nothing of it, so there is nothing to compare",
            hint='state a [[compile]] with kind = "triton", or an [[emulated]] without `compile`',
        )
    folders = []
    for release in releases:
        started(f"bring triton {release}")
        folders.append(installed_release(release))
    runs = []
    for release, folder in zip(releases, folders, strict=True):
        started(f"triton {release}")
        runs.append(_run_under(folder, queue, made))
    before, now = runs
    return TritonComparison(
        versions={name: (before.versions[name], now.versions[name]) for name in before.versions},
        entries=tuple(_pairs(before, now)),
        left_out=tuple(name for name in names if name not in made),
    )


def _run_under(folder: Path, queue: Queue, names: Sequence[str]) -> TritonRun:
    """Have a child run patches; what it says meanwhile is on standard error."""
    with tempfile.TemporaryDirectory(prefix="contribbot-") as place:
        answer = Path(place) / "answer.json"
        path = [str(folder), process.own_path()]
        environment = {
            **process.user_environment(),
            "PYTHONPATH": os.pathsep.join(filter(None, path)),
            "PYTHONDONTWRITEBYTECODE": "1",
        }
        argv = [sys.executable, "-P", "-c", _CHILD, str(answer), str(queue.folder), *names]
        status = process.attached(argv, env=environment, stdout=2)
        if status == ExitCode.INTERRUPTED or process.shell_status(status) == ExitCode.INTERRUPTED:
            raise KeyboardInterrupt
        try:
            run = TritonRun.model_validate_json(answer.read_bytes())
        except (OSError, ValidationError):
            how = f"exit status {process.shell_status(status)}"
            raise MachineError(
                f"triton {folder.name}: what ran under it ended with {how}", hint="see above"
            ) from None
    if run.error:
        message, hint, code = run.error
        error = ContribbotError(message, hint=hint)
        error.exit_code = ExitCode(code)
        raise error
    return run


def _tell(text: str) -> None:
    sys.stderr.write(f"{text}\n")
    sys.stderr.flush()


def main() -> None:
    """Run patches under the Triton that this Python finds: `ANSWER QUEUE NAME…`."""
    answer, folder, *names = sys.argv[1:]
    run, code = TritonRun(), ExitCode.OK
    try:
        with terminated_as_interrupted():
            queue = load_queue(Path(folder))
            entries = [entry for name in names for entry in _entries(queue, name)]
        versions = {name: importlib.metadata.version(name) for name in _PACKAGES if _is_here(name)}
        run = TritonRun(versions=versions, entries=tuple(entries))
    except ContribbotError as error:
        run = TritonRun(error=(error.message, error.hint, int(error.exit_code)))
    except KeyboardInterrupt:
        code = ExitCode.INTERRUPTED
    Path(answer).write_text(run.model_dump_json(), encoding="utf-8")
    sys.exit(code)


def _is_here(package: str) -> bool:
    try:
        importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return False
    return True


def _entries(queue: Queue, name: str) -> Iterator[EntryRun]:
    """Run what Triton compiles of a patch, as `verify` does."""
    spec = queue.specs[name]
    wanted = compiled_entries(spec)
    stages: tuple[Stage, ...] = (CompileStage(), EmulateStage())
    checks = {(check.name, f"{EMULATED}{check.emulated}"): check
              for entry in spec.emulated for check in entry.checks}  # fmt: skip
    with prepared(queue, name, (), progress=Silent()) as job:
        for stage in stages:
            for unit in stage.units(job):
                if (stage.name, unit.label) in wanted:
                    run = _entry(job, stage, unit, checks.get((unit.label, unit.target)))
                    _tell(f"  {name}: {run.stage} {run.entry} {run.target}: {run.outcome}")
                    yield run


def _entry(job: Job, stage: Stage, unit: Unit, check: EmulatedCheck | None) -> EntryRun:
    run = EntryRun(
        patch=job.patch.name, stage=stage.name, entry=unit.label, target=unit.target,
        outcome=Outcome.UNAVAILABLE, reason=unit.missing,
    )  # fmt: skip
    if unit.missing:
        return run
    try:
        finding = unit.work()
    except UnavailableError as error:
        finding = unavailable(error)
    kernels = tuple(
        KernelListing(symbol=row.title, title=row.title, numbers=row.patched, mnemonics={})
        for row in rows_in(finding.details) if row.patched
    )  # fmt: skip
    tests: tuple[dict[str, JsonValue], ...] = ()
    if check and not check.compile and finding.outcome is not Outcome.UNAVAILABLE:
        # Beside the runs that judge it, whose launches nobody watches.
        kernels, tests = _observed(job, check)
    done = {"outcome": finding.outcome, "reason": finding.reason}
    return run.model_copy(update={**done, "kernels": kernels, "tests": tests})


def _observed(
    job: Job, check: EmulatedCheck
) -> tuple[tuple[KernelListing, ...], tuple[dict[str, JsonValue], ...]]:
    """Run a check on the patched tree, and see what it launches and what that leaves."""
    runner = emulated_runner(job, check, [job.trees.patched])

    def layout(job: Job, what: Check, tree: str, *, copy: bool = False) -> RunLayout:
        place = runner.layout(job, what, tree, copy=copy)
        return replace(place, env={**place.env, "CONTRIBBOT_OBSERVED": "1"})

    run = run_one(job, check, replace(runner, layout=layout), RunSide.PATCHED)
    return tuple(run.code), tuple(run.left)


def _pairs(before: TritonRun, now: TritonRun) -> Iterator[EntryPair]:
    from contribbot.sweep.comparison import compare  # noqa: PLC0415  numpy takes a while

    for old, new in zip(before.entries, now.entries, strict=True):
        found = compare(_sweep(old), _sweep(new))
        rows = merged(pair_kernels(old.kernels, new.kernels))
        yield EntryPair(
            patch=new.patch, stage=new.stage, entry=new.entry, target=new.target,
            outcomes=(old.outcome, new.outcome), reasons=(old.reason, new.reason),
            kernels=tuple(row.to_json() for row in rows),
            other_bits={each.test: each.kernels for each in found.bits},
            same_bits=found.alike, uncompared=found.uncompared,
        )  # fmt: skip


def _sweep(run: EntryRun) -> Sweep:
    """Return an entry's tests as those of a sweep."""
    from contribbot.sweep.findings import Sweep, SweepRow  # noqa: PLC0415  the same

    tests = tuple(map(SweepRow.model_validate, run.tests))
    return Sweep(program=(), versions={}, targets=(), findings=(), code=(), tests=tests)


def exit_code(found: TritonComparison) -> ExitCode:
    """Return 1 where an entry that held under the first does not under the second.

    And 3 where one could not be run under either of them.
    """
    outcomes = [pair.outcomes for pair in found.entries]
    if any(old is Outcome.PASSED and new is Outcome.FAILED for old, new in outcomes):
        return ExitCode.NO
    return (
        ExitCode.MACHINE if any(Outcome.UNAVAILABLE in pair for pair in outcomes) else ExitCode.OK
    )
