"""Stage `bench`: measure the speed of base and patched tree in turns, and judge the claim."""

from __future__ import annotations

import re
import time
from collections.abc import Iterable
from functools import partial
from typing import Final

from contribbot import process
from contribbot.bench import DEVICE_VARIABLE
from contribbot.bench.session import BenchSide, arguments, measure
from contribbot.bench.verdict import BenchResult, Claim, case_record, conclude
from contribbot.machine import installed_digest
from contribbot.model.checks import Bench
from contribbot.model.evidence import HOST_TARGETS, BenchStageResult, Outcome
from contribbot.model.failure import RunFailure
from contribbot.model.patch import digest_of
from contribbot.model.record import BenchDetails, OutputLog, RunnerFault
from contribbot.verify.job import Job
from contribbot.verify.pytest_run import TAIL, Scrub, child_environment, lay_out
from contribbot.verify.runner_fault import runner_fault, signed
from contribbot.verify.stages import Finding, Inputs, Stage, Unit
from contribbot.verify.stages.reproduce import missing_for, overlay_note, place, place_inputs

#: The largest number of bytes that are read of a side's output.
_OUTPUT: Final = 16 * 2**20
_THREADS: Final = re.compile(r"[1-9][0-9]{0,3}")
#: Variables that make times repeatable, unless an entry's `env` overrides a variable.
STEADY: Final = {
    # Some OpenMP runtimes let idle threads spin for 200 ms, into the other tree's turn.
    "KMP_BLOCKTIME": "1",
    # By default glibc may give large blocks back to the kernel and take new blocks, depending on
    # sizes and order: equal work was seen to differ five times by page faults alone. With these
    # variables glibc keeps its blocks (mallopt(3)).
    "MALLOC_MMAP_MAX_": "0",
    "MALLOC_TRIM_THRESHOLD_": str(2**40),
    # By default torch.compile leaves processes that run in parallel with the measured process.
    "TORCHINDUCTOR_COMPILE_THREADS": "1",
}


class BenchStage(Stage):
    """Measures each bench file in two processes, while this command does nothing else."""

    result = BenchStageResult

    def units(self, job: Job) -> list[Unit]:
        """Return one unit for each `[[bench]]`."""
        return [_unit(job, entry) for entry in job.patch.spec.bench]


def _unit(job: Job, entry: Bench) -> Unit:
    inputs: Inputs = {
        **place_inputs(job, entry),
        "installed": installed_digest(),
        "bench": entry.model_dump_json(),
        "checks": digest_of(job.patch.files_for(entry)),
        # A bench has the whole machine, whatever the number of parallel checks.
        "threads": _threads(job, entry),
    }
    work = partial(_run, job, entry)
    return Unit(entry.target, inputs, work, entry.name, missing_for(job, entry))


def _threads(job: Job, entry: Bench) -> int:
    """Return the number of threads of numerical libraries: the entry's, or else all cores."""
    stated = entry.env.get("OMP_NUM_THREADS", "")
    return int(stated) if _THREADS.fullmatch(stated) else job.machine.cores


def _run(job: Job, entry: Bench) -> Finding:
    """Test the accelerator if needed, measure both trees, and return the finding."""
    preflight = fault = None
    if entry.target not in HOST_TARGETS:
        preflight = job.preflights.before(entry.target, job.machine, job.fresh_folder)
    # Builds are looked up before the measurement, in which nothing else may run.
    names = ("base", "patched tree")
    base, patched = (
        _TreeRun(job, entry, *side) for side in zip(job.trees.sides, names, strict=True)
    )
    claim = Claim(entry.at_least, entry.memory_at_most, entry.rounds)
    with job.slots.quiet():
        started = time.monotonic()
        sides, cores = (base.side, patched.side), job.machine.cores
        result = measure(entry.file, entry.cases, claim, sides, timeout=entry.timeout, cores=cores)
        seconds = time.monotonic() - started
        outcome, reason, lasting = conclude(result, claim)
        if preflight is not None:
            outputs = (base.output(), patched.output())
            suspect = suspicion(result, outcome, reason, lasting=lasting, outputs=outputs)
            if suspect is not None:
                job.preflights.after(suspect, entry.target, job.machine, job.fresh_folder)
                # A sound GPU may have too little memory; other failures come from the bench.
                if outcome is Outcome.UNAVAILABLE and suspect.kind is RunFailure.NO_MEMORY:
                    fault = suspect
    if meddled := job.altered(job.trees.base) or job.altered(job.trees.patched):
        outcome, reason, lasting = Outcome.FAILED, f"wrote into the tree: {meddled}", False
        fault = None
    note = overlay_note(job.overlay.release, job.patch.pin)
    details = BenchDetails(
        file=entry.file,
        at_least=entry.at_least,
        memory_at_most=entry.memory_at_most,
        threads=_threads(job, entry),
        accelerator={**process.accelerator_environment()},
        too_noisy=result.too_noisy,
        proof=outcome is Outcome.PASSED and claim.at_least > 1 and result.results == "alike",
        over=job.overlay.release,
        merged=job.overlay.merged,
        cases=tuple(
            record.model_copy(update={"text": patched.scrub(base.scrub(record.text))})
            for record in map(case_record, result.cases)
        ),
        base=base.record(),
        patched=patched.record(),
    )
    reason = base.scrub(patched.scrub(reason))
    return Finding(
        outcome,
        f"{reason} ({note})" if note else reason,
        details,
        lasting=lasting,
        seconds=seconds,
        runner_fault=fault,
        preflight=preflight,
    )


def suspicion(
    result: BenchResult, outcome: Outcome, reason: str, *, lasting: bool, outputs: Iterable[str]
) -> RunnerFault | None:
    """Return the suspected runner fault of a bench on a GPU; None: no suspicion."""
    if outcome is Outcome.UNAVAILABLE:
        return signed(result.words)
    if outcome is not Outcome.FAILED or lasting:
        return None
    kind = RunFailure.HUNG if result.hung else RunFailure.PREFLIGHT
    return signed([*result.words, *outputs]) or runner_fault(kind, reason)


class _TreeRun:
    """The process, the folder and the output of a bench on one tree."""

    def __init__(self, job: Job, entry: Bench, tree: str, name: str) -> None:
        where, folder = place(job, entry, tree), job.fresh_folder()
        self._job, self._file = job, entry.file
        env = child_environment(
            where,
            {**STEADY, **entry.env},
            threads=_threads(job, entry),
            folder=folder,
            more={DEVICE_VARIABLE: "cpu" if entry.target in HOST_TARGETS else "cuda"},
        )
        self.scrub = Scrub(where.tree, folder, *where.python)
        checks = lay_out(folder, job.patch.files_for(entry))
        self.side = BenchSide(name, checks, env, folder / "log")

    def output(self) -> str:
        """Return the output on this tree, without this machine's folders."""
        if not self.side.log.is_file():
            return ""
        with self.side.log.open("rb") as file:
            return self.scrub(file.read(_OUTPUT).decode("utf-8", "replace"))

    def record(self) -> OutputLog:
        """Write the output to the log folder, and return the record of the output."""
        text = self.output()
        return OutputLog(
            command=self.scrub(process.describe(["python", *arguments(self._file)])),
            log_sha256=self._job.keep_log(text),
            log_tail=text[-TAIL:],
        )
