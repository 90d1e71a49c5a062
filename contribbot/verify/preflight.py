"""The pre-flight: is this machine fit to judge anything on a GPU?

Before the first unit on a GPU target, and again after each fault that could be the runner's,
a kernel that is known to be good runs in a process of its own, under a watchdog. Where it
does not come through, nothing is tried on that target any more, and every outcome there is
put down to the runner. Nothing of this runs, and torch is not imported, where no unit needs
a GPU.
"""

from __future__ import annotations

import importlib.util
import json
import sys
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from pydantic import JsonValue

from contribbot import process
from contribbot.hardware.visible import only
from contribbot.model.evidence import RunnerFault
from contribbot.model.machine import Machine
from contribbot.verify.runnerfault import RunnerFaultError, fault, sign_in

#: Seconds for all of it. torch's first import from a cold disk is most of what it may take.
TIMEOUT: Final = 180.0
#: Free memory after a fault, as a part of what was free before the proof, below which
#: somebody else has taken it.
_TAKEN: Final = 0.5


@dataclass(frozen=True)
class Preflight:
    """What the known-good kernel came to.

    Attributes:
        fault: What is wrong with the runner; None: nothing.
        details: What the record keeps.
        shown: The variables under which its GPU is the one that is visible; empty: it is
            the only one, or nobody knows.
    """

    fault: RunnerFault | None
    details: dict[str, JsonValue] = field(default_factory=dict)
    shown: Mapping[str, str] = field(default_factory=dict)

    @property
    def free(self) -> int:
        """Bytes of memory that were free on the device at the end; 0: not told."""
        told = self.details.get("memory_free")
        return told if isinstance(told, int) else 0


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
    details: dict[str, JsonValue] = {"target": target, "driver": _driver(target, machine)}
    if importlib.util.find_spec("torch") is None:
        return Preflight(None, {**details, "not_run": "torch is not installed"})
    here = {"HOME": str(folder), "TMPDIR": str(folder), "PYTHONPATH": process.own_path()}
    env = process.clean_environment({**here, **(shown or {})})
    done = process.supervise(
        [sys.executable, "-B", "-m", "contribbot.verify.knowngood", device, target],
        cwd=folder,
        env=env,
        timeout=timeout,
    )
    output = done.output.decode("utf-8", "replace")
    told = _told(output)
    step = told.pop("step", "start")
    index, devices = told.pop("index", None), told.get("devices")
    wrong = _wrong(done, told, step=str(step), output=output, timeout=timeout)
    details |= {"passed": wrong is None, "seconds": round(done.seconds, 1), **told}
    if shown is not None:
        return Preflight(wrong, {**details, "visible": {**shown}} if shown else details, shown)
    if wrong is not None or not isinstance(index, int) or not isinstance(devices, int):
        return Preflight(wrong, details)
    hip = str(told["runtime"]).startswith("HIP")
    alone = only(index, devices, hip=hip, environment=env)
    if devices > 1:
        # What is to run there will see this GPU alone: so that has to do.
        return fly(target, machine, folder, device=device, timeout=timeout, shown=alone)
    return Preflight(None, details, alone)


def _driver(target: str, machine: Machine) -> str:
    found = (
        gpu.driver
        for gpu in machine.gpus
        if target == ("cuda" if gpu.vendor == "nvidia" else gpu.target)
    )
    return next(found, "")


def _told(output: str) -> dict[str, JsonValue]:
    """Unite what the child's lines say; the last word on each thing counts."""
    told: dict[str, JsonValue] = {}
    for row in output.splitlines():
        try:
            line = json.loads(row)
        except ValueError:
            continue  # a library's warning
        if isinstance(line, dict):
            told |= line
    return told


def _wrong(
    done: process.Supervised,
    told: dict[str, JsonValue],
    *,
    step: str,
    output: str,
    timeout: float,
) -> RunnerFault | None:
    """Say what is wrong with the runner, or None."""
    kind, said = told.pop("fault", None), str(told.pop("said", ""))
    if done.returncode == 0 and step == "end" and not done.timed_out:
        return None
    if done.timed_out:
        if step in {"start", "import"}:
            return fault("preflight-failed", f"torch was not imported after {timeout:g} s")
        held = ", and it has not ended: the kernel holds it" if done.stuck else ""
        said = f"a known-good kernel hung: no end after {timeout:g} s ({step}){held}"
        return fault("gpu-hung", said)
    sign = sign_in([output])
    if kind == "gpu-not-visible":
        # That the driver does not fit is more telling than that torch sees nothing.
        return sign if sign and sign.kind == "driver-mismatch" else fault("gpu-not-visible", said)
    if sign is not None or kind is not None:
        return sign or fault("preflight-failed", said)
    how = process.signal_name(-done.returncode) if done.returncode < 0 else f"{done.returncode}"
    last = next((row for row in reversed(output.splitlines()) if row.strip()), "it said nothing")
    return fault("preflight-failed", f"a known-good kernel ended with {how} ({step}): {last}")


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
        """See whether a target can still be used after what could be the runner's fault.

        Where the known-good kernel passes, the fault is that of what ran, and this returns.
        Where there is no torch to run it with, nobody knows whose fault it is.
        """
        with self._lock:
            now = self._fly(target, machine, folder)
            if missing := now.details.get("not_run"):
                said = f"{suspect.said}; no known-good kernel could be run: {missing}"
                raise RunnerFaultError(RunnerFault(kind=suspect.kind, said=said), now.details)
            before = self._first.setdefault(target, now)
            wrong = now.fault
            if wrong is None and suspect.kind == "out-of-memory":
                wrong = _taken(before, now)
            if wrong is None:
                return
            kind = wrong.kind if suspect.kind == "preflight-failed" else suspect.kind
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
    return fault("out-of-memory", said)
