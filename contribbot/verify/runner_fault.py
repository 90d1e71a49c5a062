"""Telling a runner's fault from a patch's: words alone decide nothing, a known-good kernel does."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import sys
import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from pydantic import JsonValue, ValidationError

from contribbot import process
from contribbot.machine.machine import absent_gpu, one_gpu
from contribbot.model.evidence import ON_HARDWARE, Machine, Outcome, RunnerFault, StageResult
from contribbot.model.failure import RunFailure, sign_in

_QUOTED: Final = 300


class UnavailableError(Exception):
    """This machine could not do a piece of work, which says nothing of the patch; says why."""

    def __init__(self, why: str, fault: RunnerFault | None = None) -> None:
        super().__init__(why)
        self.details: dict[str, JsonValue] = {"runner_fault": fault.model_dump()} if fault else {}


class RunnerFaultError(UnavailableError):
    """The runner is at fault, as its pre-flight says."""

    def __init__(self, fault: RunnerFault, preflight: dict[str, JsonValue]) -> None:
        super().__init__(f"runner fault ({fault.kind}): {fault.said}", fault)
        self.details["preflight"] = preflight


def signed(texts: Iterable[str]) -> RunnerFault | None:
    """Return what the words of some texts point to."""
    sign = sign_in(texts)
    return runner_fault(*sign) if sign else None


def runner_fault(kind: RunFailure, said: str) -> RunnerFault:
    """Return a fault with what was seen in one line."""
    line = next((row.strip() for row in said.splitlines() if row.strip()), "nothing was said")
    return RunnerFault(kind=kind, said=line if len(line) <= _QUOTED else f"{line[:_QUOTED]}…")


def suspicion_of_bench(
    outcome: Outcome, reason: str, *, lasting: bool, outputs: Iterable[str]
) -> RunnerFault | None:
    """Return what in a bench on a GPU could be the runner's doing."""
    if outcome is Outcome.UNAVAILABLE:
        return signed([reason])
    if outcome is not Outcome.FAILED or lasting:
        return None
    kind = RunFailure.HUNG if "hung" in reason else RunFailure.PREFLIGHT
    return signed([reason, *outputs]) or runner_fault(kind, reason)


def details_of_absence(stage: str, target: str) -> dict[str, JsonValue]:
    """Return what the record keeps of a GPU that a planned job does not find; or nothing."""
    why = absent_gpu(target) if stage in ON_HARDWARE else ""
    return {"runner_fault": runner_fault(RunFailure.NOT_VISIBLE, why).model_dump()} if why else {}


def fault_of(result: StageResult) -> RunnerFault | None:
    """Return the runner's fault that an outcome is put down to."""
    with contextlib.suppress(ValidationError):
        return RunnerFault.model_validate(result.details.get("runner_fault"))
    return None


def at_fault(results: Iterable[StageResult]) -> bool:
    """Say whether any of some outcomes is put down to the runner."""
    return any(map(fault_of, results))


#: Seconds for all of it. torch's first import from a cold disk is most of what it may take.
TIMEOUT: Final = 180.0
#: Free memory after a fault, as a part of what was free before the proof, below which
#: somebody else has taken it.
_TAKEN: Final = 0.5


@dataclass(frozen=True)
class Preflight:
    """What the known-good kernel came to."""

    fault: RunnerFault | None  # what is wrong with the runner
    details: dict[str, JsonValue] = field(default_factory=dict)  # what the record keeps
    #: The variables under which its GPU is the one that is visible; empty: it is the only one, or
    #: it is unknown.
    shown: Mapping[str, str] = field(default_factory=dict)

    @property
    def free(self) -> int:
        """Bytes of memory that were free on the device at the end; 0: unknown."""
        free = self.details.get("memory_free")
        return free if isinstance(free, int) else 0


def fly(
    target: str,
    machine: Machine,
    folder: Path,
    *,
    device: str = "cuda",
    timeout: float = TIMEOUT,
    shown: Mapping[str, str] | None = None,
) -> Preflight:
    """Run the known-good kernel on a target."""
    drivers = (
        gpu.driver
        for gpu in machine.gpus
        if target == ("cuda" if gpu.vendor == "nvidia" else gpu.target)
    )
    details: dict[str, JsonValue] = {"target": target, "driver": next(drivers, "")}
    if importlib.util.find_spec("torch") is None:
        return Preflight(None, {**details, "not_run": "torch is not installed"})
    here = {"HOME": str(folder), "TMPDIR": str(folder), "PYTHONPATH": process.own_path()}
    env = process.clean_environment({**here, **(shown or {})})
    done = process.supervise(
        [sys.executable, "-B", "-m", "contribbot.verify.gpu_selftest", device, target],
        cwd=folder, env=env, timeout=timeout,
    )  # fmt: skip
    output = done.output.decode("utf-8", "replace")
    # The last word on each thing counts.
    report: dict[str, JsonValue] = {}
    for row in output.splitlines():
        with contextlib.suppress(ValueError, TypeError):  # a library's warning
            report |= json.loads(row)
    index, devices = report.pop("index", None), report.get("devices")
    wrong = _wrong(done, report, output, timeout)
    for name in ("step", "fault", "said"):
        report.pop(name, None)
    details |= {"passed": wrong is None, "seconds": round(done.seconds, 1), **report}
    if shown is not None:
        return Preflight(wrong, {**details, "visible": {**shown}} if shown else details, shown)
    if wrong is not None or not isinstance(index, int) or not isinstance(devices, int):
        return Preflight(wrong, details)
    hip = str(report["runtime"]).startswith("HIP")
    alone = one_gpu(index, devices, hip=hip, environment=env)
    if devices > 1:
        # What is to run there will see this GPU alone: so that has to do.
        return fly(target, machine, folder, device=device, timeout=timeout, shown=alone)
    return Preflight(None, details, alone)


def _wrong(
    done: process.Supervised, report: Mapping[str, JsonValue], output: str, timeout: float
) -> RunnerFault | None:
    """Return what is wrong with the runner."""
    kind, said, step = report.get("fault"), str(report.get("said", "")), report.get("step", "start")
    if done.timed_out:
        if step in {"start", "import"}:
            return runner_fault(RunFailure.PREFLIGHT, f"torch was not imported after {timeout:g} s")
        held = ", and it has not ended: the kernel holds it" if done.stuck else ""
        hung = f"a known-good kernel hung: no end after {timeout:g} s ({step}){held}"
        return runner_fault(RunFailure.HUNG, hung)
    if done.returncode == 0 and step == "end":
        return None
    sign = signed([output])
    if kind == RunFailure.NOT_VISIBLE:
        # That the driver does not fit is more telling than that torch sees nothing.
        return (
            sign
            if sign and sign.kind == RunFailure.DRIVER
            else runner_fault(RunFailure.NOT_VISIBLE, said)
        )
    if sign is not None or kind is not None:
        return sign or runner_fault(RunFailure.PREFLIGHT, said)
    how = process.signal_name(-done.returncode) if done.returncode < 0 else f"{done.returncode}"
    last = next((row for row in reversed(output.splitlines()) if row.strip()), "it said nothing")
    return runner_fault(
        RunFailure.PREFLIGHT, f"a known-good kernel ended with {how} ({step}): {last}"
    )


class Preflights:
    """The pre-flights of a run, one a target until something goes wrong."""

    def __init__(self, device: str = "cuda", timeout: float = TIMEOUT) -> None:
        self._device = device
        self._timeout = timeout
        self._lock = threading.Lock()
        self._first: dict[str, Preflight] = {}
        self._last: dict[str, Preflight] = {}

    def before(
        self, target: str, machine: Machine, folder: Callable[[], Path]
    ) -> dict[str, JsonValue]:
        """See that a target can be used; return what the record keeps."""
        with self._lock:
            if target not in self._last:
                self._last[target] = self._first[target] = self._fly(target, machine, folder)
            last = self._last[target]
        if last.fault is not None:
            raise RunnerFaultError(last.fault, last.details)
        return last.details

    def after(
        self, suspect: RunnerFault, target: str, machine: Machine, folder: Callable[[], Path]
    ) -> None:
        """See whether a target can still be used after what could be the runner's fault."""
        # Where the known-good kernel passes, the fault is that of what ran, and this returns.
        with self._lock:
            now = self._fly(target, machine, folder)
            if missing := now.details.get("not_run"):
                said = f"{suspect.said}; no known-good kernel could be run: {missing}"
                raise RunnerFaultError(RunnerFault(kind=suspect.kind, said=said), now.details)
            before = self._first.setdefault(target, now)
            wrong = now.fault
            if wrong is None and suspect.kind == RunFailure.NO_MEMORY:
                wrong = _taken(before, now)
            if wrong is None:
                return
            kind = wrong.kind if suspect.kind == RunFailure.PREFLIGHT else suspect.kind
            said = f"{suspect.said}; then a known-good kernel: {wrong.said}"
            blamed = RunnerFault(kind=kind, said=said)
            self._last[target] = Preflight(blamed, {**now.details, "passed": False})
        raise RunnerFaultError(blamed, self._last[target].details)

    def shown(self, target: str) -> Mapping[str, str]:
        """Return the variables under which the GPU of a target is the one that is visible."""
        first = self._first.get(target)
        return first.shown if first is not None else {}

    def _fly(self, target: str, machine: Machine, folder: Callable[[], Path]) -> Preflight:
        # The same GPU each time: another one that is well says nothing of the first.
        shown = self.shown(target) or None
        return fly(
            target, machine, folder(), device=self._device, timeout=self._timeout, shown=shown
        )


def _taken(before: Preflight, now: Preflight) -> RunnerFault | None:
    """Say that somebody else has taken the memory that was free before the proof, or None."""
    if not before.free or now.free >= _TAKEN * before.free:
        return None
    gib = 2**30
    said = f"{now.free / gib:.1f} GiB are free with nothing running, {before.free / gib:.1f} before"
    return runner_fault(RunFailure.NO_MEMORY, said)
