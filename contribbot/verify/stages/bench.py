"""Stage `bench`: the speed of base and patched tree, measured in turns, against a claim."""

from __future__ import annotations

import hashlib
import re
import time
from pathlib import Path
from typing import Final

from pydantic import JsonValue

from contribbot import process
from contribbot.bench import DEVICE_VARIABLE
from contribbot.bench.session import (
    FLOOD,
    arguments,
    case_details,
    ceiling_details,
    conclude,
    measure,
)
from contribbot.bench.session import (
    BenchSide as Side,
)
from contribbot.bench.verdict import Claim
from contribbot.files import write_atomically
from contribbot.model.checks import Bench
from contribbot.model.evidence import HOST_TARGETS, Outcome, StageResult
from contribbot.verify.check import missing_here, place_inputs
from contribbot.verify.job import Finding, Job, Unit
from contribbot.verify.overlay import OverlayError
from contribbot.verify.placement import overlay_details, overlay_note, place, unplaceable
from contribbot.verify.pytest_run import Scrub, child_environment, lay_out
from contribbot.verify.runner_fault import RunnerFaultError, suspicion_of_bench

#: What a record keeps of an output; the whole is in the log file.
_TAIL: Final = 2000
_THREADS: Final = re.compile(r"[1-9][0-9]{0,3}")
#: What makes times repeatable; an entry's `env` may say otherwise.
STEADY: Final = {
    # Some OpenMP runtimes keep idle threads spinning for 200 ms, into the other side's turn.
    "KMP_BLOCKTIME": "1",
    # glibc gives large blocks back to the kernel and takes them again, or keeps them,
    # depending on sizes and order: equal work was seen to differ five times by page faults
    # alone. Here it keeps what it has (mallopt(3)).
    "MALLOC_MMAP_MAX_": "0",
    "MALLOC_TRIM_THRESHOLD_": str(2**40),
}


class BenchStage:
    """Measures each bench file in two children, with nothing else of this run at work."""

    name = "bench"
    after = ("apply",)

    def units(self, job: Job) -> list[Unit]:
        """One unit an entry."""
        return [self._unit(job, entry) for entry in job.patch.spec.bench]

    def settle(self, job: Job, results: list[StageResult]) -> None:
        """Nothing later depends on it."""

    def _unit(self, job: Job, entry: Bench) -> Unit:
        inputs: dict[str, JsonValue] = {
            **place_inputs(job, entry),
            "bench": entry.model_dump_json(),
            "checks": job.patch.checks_digest,
            # However many checks run side by side: a bench has the machine for itself.
            "threads": _threads(job, entry),
        }
        return Unit(
            target=entry.target,
            inputs=inputs,
            work=lambda: _run(job, entry),
            label=entry.name,
            missing=missing_here(job, entry) or unplaceable(job, entry),
        )


def _run(job: Job, entry: Bench) -> Finding:
    try:
        return _measured(job, entry)
    except RunnerFaultError as error:
        return Finding(Outcome.UNAVAILABLE, str(error), error.details, lasting=False)


def _measured(job: Job, entry: Bench) -> Finding:
    """Measure and judge."""
    claim = Claim(entry.at_least, entry.memory_at_most, entry.rounds)
    blamed: dict[str, JsonValue] = {}
    if entry.target not in HOST_TARGETS:
        flight = (entry.target, job.machine, job.fresh_folder)
        blamed["preflight"] = job.preflights.before(*flight)
    try:
        # What has to be built first is built before the machine falls quiet.
        base, patched = (_Spot(job, entry, tree) for tree in (job.trees.base, job.trees.patched))
    except OverlayError as error:
        return Finding(Outcome.UNAVAILABLE, str(error), lasting=False)
    sides = base.side("base"), patched.side("patched tree")
    with job.quiet():
        started = time.monotonic()
        cores = job.machine.cores
        result = measure(entry.file, entry.cases, claim, sides, timeout=entry.timeout, cores=cores)
        seconds = time.monotonic() - started
        outcome, reason, lasting = conclude(result, claim)
        if blamed:
            said = (base.said(), patched.said())
            suspect = suspicion_of_bench(outcome, reason, lasting=lasting, outputs=said)
            if suspect is not None:
                job.preflights.after(suspect, *flight)
                # A GPU that is well may be too small; anything else is the bench's own.
                if outcome is Outcome.UNAVAILABLE and suspect.kind == "out-of-memory":
                    blamed["runner_fault"] = suspect.model_dump()
    meddled = job.altered(job.trees.base) or job.altered(job.trees.patched)
    if meddled:
        outcome, reason, lasting = Outcome.FAILED, f"wrote into the tree: {meddled}", False
        blamed.pop("runner_fault", None)
    over = overlay_details(job)
    note = overlay_note(str(over.get("over", "")), job.patch.pin)
    details: dict[str, JsonValue] = {
        "file": entry.file,
        "at_least": entry.at_least,
        "memory_at_most": entry.memory_at_most,
        "threads": _threads(job, entry),
        "accelerator": {**process.accelerator_environment()},
        "too_noisy": result.too_noisy,
        **blamed,
        **over,
        "ceilings": ceiling_details(result.ceilings),
        "cases": [
            _scrubbed(case_details(one, result.ceilings), base, patched) for one in result.cases
        ],
        "base": base.kept(job.logs),
        "patched": patched.kept(job.logs),
    }
    reason = base.scrub(patched.scrub(reason))
    return Finding(
        outcome, f"{reason} ({note})" if note else reason, details, lasting=lasting, seconds=seconds
    )


def _threads(job: Job, entry: Bench) -> int:
    """Return the threads that numerical libraries use: all, unless the entry says less."""
    stated = entry.env.get("OMP_NUM_THREADS", "")
    return int(stated) if _THREADS.fullmatch(stated) else job.machine.cores


class _Spot:
    """The folder and the place of one side."""

    def __init__(self, job: Job, entry: Bench, tree: str) -> None:
        where = place(job, entry, tree)
        folder = job.fresh_folder()
        self._checks = lay_out(folder, job.patch.support)
        self._log = folder / "log"
        self._file = entry.file
        self._env = child_environment(
            where,
            {**STEADY, **entry.env},
            threads=_threads(job, entry),
            folder=folder,
            more={DEVICE_VARIABLE: "cpu" if entry.target in HOST_TARGETS else "cuda"},
        )
        self.scrub = Scrub(where.tree, folder, *where.python)

    def side(self, name: str) -> Side:
        """Return what the child of this side is started with."""
        return Side(name, self._checks, self._env, self._log)

    def said(self) -> str:
        """Return what this side has written, without this machine's folders."""
        written = b""
        if self._log.is_file():
            with self._log.open("rb") as file:
                written = file.read(FLOOD)
        return self.scrub(written.decode("utf-8", "replace"))

    def kept(self, logs: Path) -> dict[str, JsonValue]:
        """Keep the output under its digest, and return what the record says of this side."""
        text = self.said()
        content = text.encode()
        digest = hashlib.sha256(content).hexdigest()
        write_atomically(logs / f"{digest}.log", content)
        return {
            "command": self.scrub(process.describe(["python", *arguments(self._file)])),
            "log_sha256": digest,
            "log_tail": text[-_TAIL:],
        }


def _scrubbed(details: dict[str, JsonValue], *spots: _Spot) -> dict[str, JsonValue]:
    """Take this machine's folders out of what an exception said."""
    text = str(details["text"])
    for spot in spots:
        text = spot.scrub(text)
    return {**details, "text": text}
