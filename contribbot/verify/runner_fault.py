"""Decide whether a failure is the machine's fault or the patch's, by a known-good kernel.

A message of a driver only raises a suspicion: the kernel, run as a process of its own, decides.
"""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import sys
import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, NoReturn

from contribbot import process
from contribbot.machine import absent_gpu
from contribbot.model.evidence import ON_HARDWARE, Machine, StageResult
from contribbot.model.failure import RunFailure, sign_in
from contribbot.model.record import PreflightRecord, RunnerFault

if TYPE_CHECKING:
    import torch

_QUOTED: Final = 300


class UnavailableError(Exception):
    """This machine could not do a piece of work, so the patch has no result."""

    preflight: PreflightRecord | None = None

    def __init__(self, why: str, fault: RunnerFault | None = None) -> None:
        super().__init__(why)
        self.fault = fault


class RunnerFaultError(UnavailableError):
    """The pre-flight, a test of the accelerator, found the runner at fault."""

    def __init__(self, fault: RunnerFault, preflight: PreflightRecord) -> None:
        super().__init__(f"runner fault ({fault.kind}): {fault.said}", fault)
        self.preflight = preflight


def signed(texts: Iterable[str]) -> RunnerFault | None:
    """Return the fault of the machine that a known message in logs reports; else None."""
    sign = sign_in(texts)
    return runner_fault(*sign) if sign else None


def runner_fault(kind: RunFailure, said: str) -> RunnerFault:
    """Return a fault of the machine, with the first line of a program's output as evidence."""
    line = next((row.strip() for row in said.splitlines() if row.strip()), "nothing was said")
    return RunnerFault(kind=kind, said=line if len(line) <= _QUOTED else f"{line[:_QUOTED]}…")


def absence(stage: str, target: str) -> RunnerFault | None:
    """Return the fault of a runner that lacks its planned GPU; None: no such fault."""
    why = absent_gpu(target) if stage in ON_HARDWARE else ""
    return runner_fault(RunFailure.NOT_VISIBLE, why) if why else None


def at_fault(results: Iterable[StageResult]) -> bool:
    """Return whether an outcome has a runner fault."""
    return any(result.runner_fault is not None for result in results)


#: The limit in seconds for a pre-flight, mostly for torch's first import from a cold disk.
TIMEOUT: Final = 180.0
#: The facts that the self-test prints.
_REPORTED: Final = frozenset(
    ("torch", "runtime", "device", "arch", "devices", "memory_free", "memory_total")
)
#: With less than this share of the free memory from before, another program has taken memory.
_MEMORY_SHARE: Final = 0.5


@dataclass(frozen=True)
class Preflight:
    """The result of a pre-flight: a run of the known-good kernel on a target."""

    fault: RunnerFault | None
    record: PreflightRecord


def run_preflight(
    target: str,
    machine: Machine,
    folder: Path,
    *,
    device: str = "cuda",
    timeout: float = TIMEOUT,
) -> Preflight:
    """Run the known-good kernel on a target, and return the result."""
    drivers = (
        gpu.driver
        for gpu in machine.gpus
        if target == ("cuda" if gpu.vendor == "nvidia" else gpu.target)
    )
    driver = next(drivers, "")
    if importlib.util.find_spec("torch") is None:
        absent = "torch is not installed"
        return Preflight(None, PreflightRecord(target=target, driver=driver, not_run=absent))
    here = {"HOME": str(folder), "TMPDIR": str(folder), "PYTHONPATH": process.own_path()}
    done = process.supervise(
        [sys.executable, "-B", "-m", "contribbot.verify.runner_fault", device, target],
        cwd=folder,
        env=process.clean_environment(here),
        timeout=timeout,
    )
    output = done.output.decode("utf-8", "replace")
    lines: dict[str, str | float] = {}
    for row in output.splitlines():
        with contextlib.suppress(ValueError, TypeError):  # a line may be a library's warning
            lines |= json.loads(row)
    wrong = _wrong(done, lines, output, timeout)
    seen = {name: lines[name] for name in lines.keys() & _REPORTED}
    seen |= {"target": target, "driver": driver, "seconds": round(done.seconds, 1)}
    return Preflight(wrong, PreflightRecord.model_validate({**seen, "passed": wrong is None}))


def _wrong(
    done: process.Supervised, lines: Mapping[str, str | float], output: str, timeout: float
) -> RunnerFault | None:
    """Return the fault of the runner that the self-test shows; None: the self-test passed."""
    # The values in a later line of the report have replaced earlier values.
    step, said, fault = lines.get("step", "start"), str(lines.get("said", "")), lines.get("fault")
    if done.timed_out:
        if step in {"start", "import"}:
            return runner_fault(RunFailure.PREFLIGHT, f"torch was not imported after {timeout:g} s")
        hung = f"a known-good kernel hung: no end after {timeout:g} s ({step})"
        return runner_fault(RunFailure.HUNG, hung)
    if done.returncode == 0 and step == "end":
        return None
    sign = signed([output])
    if fault == RunFailure.NOT_VISIBLE:
        # A driver that does not fit says more than that torch sees no GPU.
        driver = sign if sign and sign.kind == RunFailure.DRIVER else None
        return driver or runner_fault(RunFailure.NOT_VISIBLE, said)
    if sign is not None or fault is not None:
        return sign or runner_fault(RunFailure.PREFLIGHT, said)
    how = process.signal_name(-done.returncode) if done.returncode < 0 else f"{done.returncode}"
    last = next((row for row in reversed(output.splitlines()) if row.strip()), "it said nothing")
    return runner_fault(
        RunFailure.PREFLIGHT, f"a known-good kernel ended with {how} ({step}): {last}"
    )


class Preflights:
    """The tests of accelerators: one before a target's first check, one after each suspicion."""

    def __init__(self, device: str = "cuda", timeout: float = TIMEOUT) -> None:
        self._device = device
        self._timeout = timeout
        self._lock = threading.Lock()
        self._first: dict[str, Preflight] = {}
        self._last: dict[str, Preflight] = {}

    def before(self, target: str, machine: Machine, folder: Callable[[], Path]) -> PreflightRecord:
        """Test a target at its first use; return the record, or raise RunnerFaultError."""
        with self._lock:
            if target not in self._last:
                self._last[target] = self._first[target] = self._run(target, machine, folder)
            last = self._last[target]
        if last.fault is not None:
            raise RunnerFaultError(last.fault, last.record)
        return last.record

    def after(
        self, suspect: RunnerFault, target: str, machine: Machine, folder: Callable[[], Path]
    ) -> None:
        """Raise RunnerFaultError if a target is unusable after a suspected fault of the runner."""
        # If the known-good kernel passes, the check is to blame, and the method returns.
        with self._lock:
            now = self._run(target, machine, folder)
            if missing := now.record.not_run:
                said = f"{suspect.said}; no known-good kernel could be run: {missing}"
                raise RunnerFaultError(RunnerFault(kind=suspect.kind, said=said), now.record)
            before = self._first.setdefault(target, now)
            wrong = now.fault
            if wrong is None and suspect.kind == RunFailure.NO_MEMORY:
                wrong = _memory_loss(before, now)
            if wrong is None:
                return
            kind = wrong.kind if suspect.kind == RunFailure.PREFLIGHT else suspect.kind
            said = f"{suspect.said}; then a known-good kernel: {wrong.said}"
            blamed = RunnerFault(kind=kind, said=said)
            self._last[target] = Preflight(blamed, now.record.model_copy(update={"passed": False}))
        raise RunnerFaultError(blamed, self._last[target].record)

    def _run(self, target: str, machine: Machine, folder: Callable[[], Path]) -> Preflight:
        return run_preflight(target, machine, folder(), device=self._device, timeout=self._timeout)


def _memory_loss(before: Preflight, now: Preflight) -> RunnerFault | None:
    """Return the fault that another program took memory between two pre-flights; None: no fault."""
    free, freed = now.record.memory_free, before.record.memory_free
    if not freed or free >= _MEMORY_SHARE * freed:
        return None
    gib = 2**30
    said = f"{free / gib:.1f} GiB are free with nothing running, {freed / gib:.1f} before"
    return runner_fault(RunFailure.NO_MEMORY, said)


# The program below is the known-good kernel, which `run_preflight` starts as a process of its own.

#: The number of integers that are written to the device and read back: 32 MiB.
_NUMBERS = 8 * 2**20
#: The number of rows and columns of the matrices. Their integers are smaller than 16, so that sums
#: (at most 512 * 225) are exact in any order of summation, and in TF32.
_SIDE = 512
_ENTRIES = 16
_VISIBLE = ("ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES")


def _say(**facts: object) -> None:
    """Write some facts as one line of the report."""
    print(json.dumps(facts), flush=True)  # noqa: T201  contribbot reads the lines


def _fail(kind: RunFailure, said: str) -> NoReturn:
    """Report a fault, and end the process."""
    _say(fault=kind, said=said)
    sys.exit(1)


def _chosen(target: str) -> tuple[torch.device, dict[str, object]]:
    """Return torch's first GPU and its description; end the process if the GPU is no `target`."""
    import torch  # noqa: PLC0415  the import takes seconds, and is reported first

    this = f"torch {torch.__version__}"
    if torch.version.cuda is None and torch.version.hip is None:
        _fail(RunFailure.NOT_VISIBLE, f"{this} is a build for processors alone")
    if not torch.cuda.is_available():
        # torch.cuda.init raises the driver's reason, which is_available hides.
        try:
            torch.cuda.init()  # type: ignore[no-untyped-call]  # torch has no type for it
        except (RuntimeError, AssertionError) as error:
            sys.stderr.write(f"{error}\n")
        values = ((name, os.environ.get(name, "0").strip()) for name in _VISIBLE)
        hidden = (
            f": {name} is {value or 'empty'}" for name, value in values if value in {"", "-1"}
        )
        _fail(RunFailure.NOT_VISIBLE, f"{this} sees no GPU{next(hidden, '')}")
    properties = torch.cuda.get_device_properties(0)
    arch = str(getattr(properties, "gcnArchName", "")).partition(":")[0]
    if torch.version.hip is None:
        arch = f"sm_{properties.major}{properties.minor}"
    if target not in {"cuda", arch}:
        name = f"{'CUDA' if torch.version.hip is None else 'HIP'}_VISIBLE_DEVICES"
        said = f"{this} sees {arch} first, not {target}: {name} can name another"
        _fail(RunFailure.NOT_VISIBLE, said)
    devices = torch.cuda.device_count()
    return torch.device("cuda", 0), {"device": properties.name, "arch": arch, "devices": devices}


def _work(device: torch.device) -> None:
    """Copy memory, add and multiply on the device, and compare with the processor's results."""
    import torch  # noqa: PLC0415  as in _chosen

    _say(step="memory")
    numbers = torch.arange(_NUMBERS, dtype=torch.int32)
    copied = numbers.to(device)
    if not torch.equal(copied.clone().cpu(), numbers):
        _fail(RunFailure.PREFLIGHT, "memory that was written to the device reads back otherwise")
    _say(step="add")
    if not torch.equal((copied + copied).cpu(), numbers + numbers):
        _fail(RunFailure.PREFLIGHT, "a sum on the device is not the processor's")
    _say(step="multiply")
    generator = torch.Generator().manual_seed(1)
    left, right = (
        torch.randint(_ENTRIES, (_SIDE, _SIDE), generator=generator).float() for _ in range(2)
    )
    if not torch.equal((left.to(device) @ right.to(device)).cpu(), left @ right):
        _fail(RunFailure.PREFLIGHT, "a product of matrices on the device is not the processor's")


def self_test(kind: str, target: str) -> None:
    """Run the steps of the self-test, and report each step before it begins."""
    _say(step="import")
    import torch  # noqa: PLC0415  after the report of the step

    runtime = f"HIP {torch.version.hip}" if torch.version.hip else f"CUDA {torch.version.cuda}"
    _say(step="look", torch=torch.__version__, runtime=runtime if kind == "cuda" else "")
    device, facts = torch.device("cpu"), dict[str, object](device="cpu", arch="")
    if kind == "cuda":
        device, facts = _chosen(target)
    _say(**facts)
    _work(device)
    if kind == "cuda":
        free, total = torch.cuda.mem_get_info(device)
        _say(memory_free=free, memory_total=total)
    _say(step="end")


if __name__ == "__main__":
    self_test(*sys.argv[1:])
