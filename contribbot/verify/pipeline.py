"""Run the stages over patches, write the records, and choose the exit code of `verify`.

The stages of a patch run in their order, and patches run in parallel.
"""

from __future__ import annotations

import contextlib
import functools
import os
import signal
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from types import FrameType
from typing import Final, Protocol, TypeVar

from pydantic import JsonValue, ValidationError

from contribbot import process
from contribbot.compile import cache as build_cache
from contribbot.errors import ExitCode, UsageError
from contribbot.files import (
    DiskCache,
    log_path,
    run_folder,
    stores_folder,
    tool_digest,
    used,
    write_atomically,
)
from contribbot.git.pins import Progress
from contribbot.git.repository import open_store
from contribbot.machine import (
    Packages,
    actions_run,
    job_container,
    this_machine,
)
from contribbot.model.checks import DEFAULT_TARGETS
from contribbot.model.evidence import (
    ON_HARDWARE,
    RESULT,
    SEEN,
    Machine,
    Outcome,
    PatchFault,
    PatchReport,
    StageResult,
    Verdict,
    need_of,
)
from contribbot.model.patch import Patch
from contribbot.model.record import StatedDetails
from contribbot.queue import history
from contribbot.queue.load import Queue, did_you_mean
from contribbot.verify.evidence import (
    State,
    judge_record,
    record_path,
    state_evidence,
    write_evidence,
)
from contribbot.verify.job import Job, Slots, tree_cache
from contribbot.verify.runner_fault import Preflights, UnavailableError, absence, at_fault
from contribbot.verify.stages import Finding, Stage, Unit, unavailable
from contribbot.verify.stages.bench import BenchStage
from contribbot.verify.stages.build import BuildStage
from contribbot.verify.stages.compile import CompileStage
from contribbot.verify.stages.emulate import EmulateStage
from contribbot.verify.stages.hipify import HipifyStage
from contribbot.verify.stages.numerics import NumericsStage
from contribbot.verify.stages.reproduce import ReproduceStage
from contribbot.verify.stages.style import StyleStage
from contribbot.verify.stages.trees import ApplyStage, SourceStage
from contribbot.verify.verdict import is_at_fault, judge, open_targets, unavailable_here, unmet
from contribbot.verify.warm import WarmProcesses

#: The stages in their order; the stages of a row run in parallel.
STAGES: Final[tuple[tuple[Stage, ...], ...]] = (
    (SourceStage(),),
    (ApplyStage(),),
    (StyleStage(),),
    (HipifyStage(),),
    (CompileStage(),),
    (BuildStage(),),
    (ReproduceStage(), NumericsStage(), EmulateStage()),
    (BenchStage(),),
)

#: The prefixes of a target in `--require`; emulated targets have the prefix `emulated`.
_PREFIXES: Final = {"", "build", "compile", *ON_HARDWARE}
#: The largest number of characters of a reason; the log has the whole text.
_LONGEST: Final = 1000
#: The number of parallel units, which mostly wait for git and for other programs.
_UNITS: Final = 16


@dataclass(frozen=True)
class CachedOutcome:
    """An outcome from the cache, with the installed packages on which the outcome depends."""

    result: StageResult
    packages: Packages


@dataclass(frozen=True)
class OutcomeCache:
    """A cache of outcomes on disk, one file each."""

    folder: Path
    machine: Machine
    logs: Path

    @property
    def kept(self) -> tuple[DiskCache, ...]:
        """The folders from which a run removes unused outcomes and logs."""
        return DiskCache(self.folder), DiskCache(self.logs)

    def key(self, stage: str, target: str, inputs: Mapping[str, JsonValue]) -> str:
        """Return the cache's key for the outcome of a stage, a target and inputs."""
        everything: JsonValue = {
            "stage": stage,
            "target": target,
            "inputs": {**inputs},
            "tool": tool_digest(),
            "machine": self.machine.fingerprint,
        }
        return build_cache.json_digest(everything)

    def get(self, key: str) -> CachedOutcome | None:
        """Return the outcome of a key; None: no outcome, or a damaged file."""
        path = self.folder / f"{key}.json"
        try:
            packages, _, result = path.read_bytes().partition(b"\n")
            remembered = CachedOutcome(
                RESULT.validate_json(result), Packages.model_validate_json(packages)
            )
        except (OSError, ValidationError):
            return None
        stored = remembered.result
        used(path)
        # The logs of a remembered failure must not be removed before the outcome.
        for digest in filter(None, stored.details.logs if stored.details else ()):
            used(log_path(self.logs, digest))
        return replace(remembered, result=stored.model_copy(update={"cached": True}))

    def put(self, key: str, remembered: CachedOutcome) -> None:
        """Write an outcome into the cache."""
        result = remembered.result.model_copy(update={"cached": False})
        text = f"{remembered.packages.model_dump_json()}\n{result.model_dump_json()}"
        write_atomically(self.folder / f"{key}.json", text.encode())


class Watcher(Protocol):
    """The receiver of a run's events, called from several threads."""

    def started(self, patch: str, stage: str, target: str, label: str) -> None:
        """Note that a unit's work has started."""

    def step(self, patch: str, target: str, label: str, runs: str) -> None:
        """Note which runs of a check begin."""

    def ended(self, patch: str, result: StageResult) -> None:
        """Note the outcome of a unit."""

    def finished(self, patch: str) -> None:
        """Note that a patch has passed through all stages."""

    def download(self) -> Progress:
        """Return the progress display of downloads."""


@dataclass(frozen=True)
class Options:
    """The options of a verification."""

    #: The number of parallel checks, by default the number of cores.
    jobs: int = field(default_factory=lambda: len(os.sched_getaffinity(0)))
    force: bool = False  # whether to repeat work whose outcome is cached


@dataclass
class Run:
    """The state that all patches of one command share: machine, threads, cached outcomes."""

    queue: Queue
    options: Options
    watcher: Watcher
    cache: OutcomeCache
    machine: Machine
    scratch: Path
    children: ThreadPoolExecutor  # threads that wait for other programs
    units: ThreadPoolExecutor  # threads for the work of stages
    patches: ThreadPoolExecutor  # a thread for each patch
    warm: WarmProcesses
    slots: Slots = field(default_factory=Slots)
    preflights: Preflights = field(default_factory=Preflights)

    def job(self, patch: Patch, below: tuple[Patch, ...], folder: str) -> Job:
        """Return the job of a patch, with a folder for the job."""
        job = Job(
            patch,
            below,
            store=open_store(stores_folder(), patch.upstream.name),
            machine=self.machine,
            children=self.children,
            slots=self.slots,
            threads=max(1, self.machine.cores // self.options.jobs),
            scratch=self.scratch / folder,
            logs=self.queue.local / "logs",
            progress=self.watcher.download(),
            warm=self.warm,
            step=functools.partial(self.watcher.step, patch.name),
            force=self.options.force,
            preflights=self.preflights,
        )
        job.scratch.mkdir()
        return job

    def outcome(
        self, job: Job, kind: type[StageResult], unit: Unit, *, show_cached: bool = True
    ) -> StageResult:
        """Return the outcome of a unit, from the cache or by doing the unit's work."""
        result = self._outcome(job, kind, unit)
        if show_cached or not result.cached:
            self.watcher.ended(job.patch.name, result)
        return result

    def _outcome(self, job: Job, kind: type[StageResult], unit: Unit) -> StageResult:
        stage = kind.stage_name()
        if unit.missing:
            known = unit.target in self.machine.targets
            fault = None if known else absence(stage, unit.target)
            finding = Finding(Outcome.UNAVAILABLE, unit.missing, runner_fault=fault)
            return _result(kind, unit, finding, 0.0)
        key = None if unit.inputs is None else self.cache.key(stage, unit.target, unit.inputs)
        if remembered := self._remembered(unit, key):
            return remembered.result
        self.watcher.started(job.patch.name, stage, unit.target, unit.label)
        started = time.monotonic()
        product = None
        try:
            if made := unit.product():
                product = self.cache.key(stage, unit.target, made)
            if key is not None and (remembered := self._remembered(unit, product)):
                self.cache.put(key, remembered)
                return remembered.result
            finding = unit.work()
        except UnavailableError as error:
            finding = unavailable(error)
        elapsed = time.monotonic() - started if finding.seconds is None else finding.seconds
        result = _result(kind, unit, finding, elapsed)
        for each in filter(None, (key, product)) if finding.lasting else ():
            self.cache.put(each, CachedOutcome(result, finding.packages))
        return result

    def _remembered(self, unit: Unit, key: str | None) -> CachedOutcome | None:
        if key is None or self.options.force:
            return None
        remembered = self.cache.get(key)
        if remembered is None or not unit.usable(remembered.result):
            return None
        return remembered if remembered.packages.current else None


@contextlib.contextmanager
def open_run(queue: Queue, *, patches: int, options: Options, watcher: Watcher) -> Iterator[Run]:
    """Yield the state that the verifications of patches share; an error ends all work."""
    machine = this_machine()
    cache = OutcomeCache(queue.local / "outcomes", machine, logs=queue.local / "logs")
    caches = (build_cache.compile_cache(), build_cache.product_cache(), build_cache.kernel_cache())
    with (
        run_folder(*caches, tree_cache(), *cache.kept) as scratch,
        contextlib.closing(WarmProcesses(scratch / "warm")) as warm,
        ThreadPoolExecutor(max_workers=options.jobs, thread_name_prefix="child") as children,
        ThreadPoolExecutor(max_workers=_UNITS, thread_name_prefix="unit") as units,
        ThreadPoolExecutor(max_workers=max(1, patches), thread_name_prefix="patch") as walks,
    ):
        try:
            state = (queue, options, watcher, cache, machine, scratch)
            yield Run(*state, children, units, walks, warm)
        except BaseException:
            # An interrupt, or an error in one patch, ends all work at once.
            process.stop()
            for pool in (walks, units, children):
                pool.shutdown(wait=True, cancel_futures=True)
            process.resume()
            raise


Result = TypeVar("Result")


def results_of(futures: Sequence[Future[Result]]) -> list[Result]:
    """Wait for all futures and return their results; the first error ends the waiting."""
    done, _ = wait(futures, return_when=FIRST_EXCEPTION)
    for future in done:
        future.result()
    return [future.result() for future in futures]


def refuse_unknown(queue: Queue, names: Sequence[str], required: Sequence[str]) -> None:
    """Raise UsageError for a required target that no entry and no default has."""
    stated = {target for name in names for _, _, target in queue.specs[name].units}
    known = sorted({*stated, "cpu", "cuda", *DEFAULT_TARGETS})
    for need in required:
        stage, target = need_of(need)
        if target not in known or stage not in _PREFIXES:
            like = did_you_mean(target if stage in _PREFIXES else need, known)
            raise UsageError(
                f"--require {need}: no entry of {', '.join(names)} is for it{like}",
                hint=f"they are for {', '.join(sorted(stated)) or 'no target yet'}",
            )


def verify(
    queue: Queue, names: Sequence[str], *, options: Options, folder: Path, watcher: Watcher
) -> tuple[list[PatchReport], dict[str, Path]]:
    """Verify patches, and write records and journals; return reports, and record paths by patch."""
    # Errors about the CI run or the container must come before hours of work, not after.
    actions_run(), job_container()
    with terminated_as_interrupted():
        # All files are read first: an invalid file is reported before any work.
        patches = [queue.patch(name) for name in names]
        stacks = [tuple(map(queue.patch, queue.below(name))) for name in names]
        with open_run(queue, patches=len(names), options=options, watcher=watcher) as run:
            jobs = [run.job(*each, each[0].name) for each in zip(patches, stacks, strict=True)]
            reports = results_of([run.patches.submit(_walk, run, job) for job in jobs])
        paths = [
            (job.patch.name, _record(queue, job, report, folder))
            for job, report in zip(jobs, reports, strict=True)
        ]
    return reports, {name: path for name, path in paths if path is not None}


def _record(queue: Queue, job: Job, report: PatchReport, folder: Path) -> Path | None:
    """Note a verdict in the journal; write the record, unless the older stays; return the path."""
    statement = state_evidence(report, job.patch, job.below)
    if statement is None:
        return None
    remembered = all(row.cached for row in report.stages if row.outcome in SEEN)
    event = history.verified_event(
        report,
        this_machine(),
        digest=job.patch.digest,
        checks=job.patch.checks_digest,
        time=history.now(),
    )
    history.note_verified(queue.folder, report.patch, event, ran=not remembered)
    path = record_path(folder, report.patch, this_machine())
    known = judge_record(queue, path) if path.is_file() else None
    if known and known.statement and known.details:
        tree, details = known.statement.subject[1].digest.gitTree, known.details
        blameless = at_fault(report.stages)
        same = (details.base_commit, tree) == (report.base_commit, report.patched_tree)
        same = same and (details.verdict is report.verdict or blameless)
        # A record has the time of its work: neither repeated outcomes nor a runner at fault
        # replace a fresh record of the same trees.
        if known.state is State.FRESH and (remembered or blameless) and same:
            return path
        # An incomplete report keeps a stale proof.
        proved = known.state is State.STALE and details.verdict is Verdict.PROVED
        if report.verdict is Verdict.INCOMPLETE and proved:
            return None
    return write_evidence(folder, statement)


def _walk(run: Run, job: Job) -> PatchReport:
    """Take one patch through the stages, and return the report on the patch."""
    for together in STAGES:
        # All stages of a row begin before the first wait: a stage's last check leaves cores idle.
        begun = [(stage, _begin(run, job, stage)) for stage in together]
        for stage, futures in begun:
            results = [future.result() for future in futures]
            job.results[stage.name] = results
            if all(result.outcome is Outcome.PASSED for result in results):
                stage.settle(job, results)
    run.watcher.finished(job.patch.name)
    everything = [result for results in job.results.values() for result in results]
    return PatchReport(
        patch=job.patch.name,
        upstream=job.patch.upstream.name,
        pin=job.patch.pin.tag,
        base_commit=job.trees.base_commit or job.trees.pin_commit or None,
        patched_tree=job.trees.patched or None,
        verdict=judge(everything, job.machine.targets),
        stages=tuple(everything),
        open=tuple(open_targets(everything)),
    )


def _begin(run: Run, job: Job, stage: Stage) -> list[Future[StageResult]]:
    obstacle = obstacle_of(stage, job.results)
    if not obstacle:
        units = stage.units(job)
        # The longest unit starts first, so that no core waits for a long unit at the end.
        order = sorted(range(len(units)), key=lambda at: -units[at].limit)
        begun = {at: run.units.submit(run.outcome, job, stage.result, units[at]) for at in order}
        return [begun[at] for at in range(len(units))]
    skipped = stage.result(
        stage=stage.name, target="any", outcome=Outcome.SKIPPED, reason=obstacle, seconds=0
    )
    run.watcher.ended(job.patch.name, skipped)
    done: Future[StageResult] = Future()
    done.set_result(skipped)
    return [done]


def _result(kind: type[StageResult], unit: Unit, finding: Finding, seconds: float) -> StageResult:
    known = finding.outcome is not Outcome.UNAVAILABLE
    details = finding.details
    passed = finding.outcome is Outcome.PASSED
    if isinstance(details, StatedDetails) and details.expect == "fail-to-pass" and passed:
        details = details.model_copy(update={"proof": finding.proof})
    reason = f"{unit.label}: {finding.reason}" if unit.label else finding.reason
    return kind(
        stage=kind.stage_name(),
        target=unit.target,
        label=unit.label,
        outcome=finding.outcome,
        reason=reason if len(reason) <= _LONGEST else f"{reason[:_LONGEST]}…",
        seconds=round(seconds, 3),
        cached=finding.cached,
        seen=datetime.now(UTC).replace(microsecond=0) if known else None,
        runner_fault=finding.runner_fault,
        preflight=finding.preflight,
        patch_fault=finding.patch_fault,
        details=details,
    )


def obstacle_of(stage: Stage, results: Mapping[str, Sequence[StageResult]]) -> str:
    """Return how an earlier stage keeps a stage from running; empty: the stage can run."""
    for name in stage.after:
        outcomes = {result.outcome for result in results[name]}
        for bad in (Outcome.FAILED, Outcome.SKIPPED):
            if bad in outcomes:
                return f"{name} {'failed' if bad is Outcome.FAILED else 'was skipped'}"
        if outcomes == {Outcome.UNAVAILABLE}:
            return f"{name} is unavailable"
    return ""


@contextlib.contextmanager
def terminated_as_interrupted() -> Iterator[None]:
    """End a block as on Ctrl-C if CI cancels the job (SIGTERM) or the terminal closes (SIGHUP)."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def interrupt(_number: int, _frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    ends = (signal.SIGTERM, signal.SIGHUP)
    before = [signal.signal(number, interrupt) for number in ends]
    try:
        yield
    finally:
        for number, handler in zip(ends, before, strict=True):
            signal.signal(number, handler)


def exit_code(reports: Sequence[PatchReport], required: Sequence[str]) -> ExitCode:
    """Return the exit code of `verify` from the reports and the required targets."""
    stages = [stage for report in reports for stage in report.stages]
    if any(stage.patch_fault is PatchFault.INVALID for stage in stages):
        return ExitCode.USAGE
    # A patch is unfinished if no entry failed, and if no entry could have proved the patch.
    if any(stage.patch_fault is PatchFault.UNFINISHED for stage in stages):
        return ExitCode.NO
    targets = this_machine().targets
    if any(report.verdict is Verdict.REFUTED or _denied(report, required) for report in reports):
        return ExitCode.NO
    incomplete = any(report.verdict is Verdict.INCOMPLETE for report in reports)
    could_not = at_fault(stages) or any(unavailable_here(stage, targets) for stage in stages)
    return ExitCode.MACHINE if could_not or (incomplete and not required) else ExitCode.OK


def _denied(report: PatchReport, required: Sequence[str]) -> bool:
    """Return whether a required target is unproved for another reason than a runner fault."""
    if any(row.stage == "source" and row.outcome is Outcome.UNAVAILABLE for row in report.stages):
        return False  # no stage has looked at the patch
    return not all(is_at_fault(report.stages, need) for need in unmet(report, required))
