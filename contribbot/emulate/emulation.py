"""Emulate an AMD GPU in place of this machine's GPU: for a `with` block, and for a program."""

from __future__ import annotations

import atexit
import contextlib
import importlib
import importlib.util
import json
import os
import shlex
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Final

from contribbot.emulate.decode import FACTS, check_target
from contribbot.emulate.errors import EmulatorError, NoResultError, RequestError
from contribbot.emulate.gpu import HIP, EmulatedGpu, active_gpu
from contribbot.emulate.outcomes import (
    FOLDER,
    LaunchRecord,
    ReportModel,
    Sequenced,
    TestRow,
    Text,
    write_event,
)
from contribbot.emulator_host import INSTALL, AfterImport, ToolError, run_attached, run_hidden

#: The text of a `sitecustomize.py` on Python's path, which each process runs before the program.
_CUSTOMIZE: Final = """\
import os, sys
try:
    from contribbot.emulate.emulation import start
except ImportError as error:
    with open({folder!r} + "/events", "a") as events:
        events.write({missing!r} % str(error).replace('"', "'").replace(chr(92), "/") + chr(10))
    os._exit(3)
start({target!r}, {folder!r})
"""
_MISSING: Final = '{"kind": "error", "error": "its Python lacks the extra emulate (%s)"}'
#: The answers of ROCm's programs to test suites that ask these programs for the GPU.
_ROCM_PROGRAMS: Final = {
    "rocminfo": "Agent 1\n  Name: {target}\n  Device Type: GPU\n  Compute Unit: {units}\n"
    "  Wavefront Size: {lanes}\n",
    "rocm-smi": "GPU[0]: {target}, emulated\n",
    "hipconfig": f"{HIP}\n",
}
_PLUGIN: Final = "contribbot.emulate.pytest"
_NEEDED: Final = ("torch", "triton", "tinygrad", "elftools", "msgpack")
_INTERRUPTED: Final = 130
_NOT_HERE: Final = 3


@contextlib.contextmanager
def device(target: str) -> Iterator[EmulatedGpu]:
    """Make an emulated AMD GPU the device `cuda` of torch and Triton, for a `with` block.

    Tensors that the block makes on `cuda` are on the emulated GPU. For Triton kernels that are
    launched on these tensors, Triton's AMD back end compiles code objects for the target, which
    the emulator executes. torch.compile runs its function uncompiled.

    Args:
        target: The target, such as `gfx942`.

    Yields:
        The GPU, with the record of its launches.

    Raises:
        RequestError: The target has no model, or another GPU is emulated already.
        NoResultError: torch or Triton is not installed, or has an unknown version.
    """
    check_target(target)
    _refuse_second()
    try:
        # torch comes first: under `contribbot emulate` its import emulates a GPU.
        importlib.import_module("torch")
    except ImportError as error:
        raise NoResultError(f"torch cannot be imported here: {error}", hint=INSTALL) from error
    _refuse_second()
    from contribbot.emulate.torch_device import installed  # noqa: PLC0415  imports torch

    gpu = EmulatedGpu(target)
    with installed(gpu), gpu.in_place():
        yield gpu


def _refuse_second() -> None:
    if (gpu := active_gpu()) is not None:
        raise RequestError(f"{gpu.target} is emulated already: one GPU at a time")


class TargetRun(ReportModel):
    """The outcome of a program on one target."""

    target: str
    exit_code: int = 0
    seconds: float = 0.0
    launches: int = 0  # the number of processes that launched a kernel
    error: str = ""  # why the program could not run on the target
    tests: Sequenced[TestRow] = ()

    @property
    def interrupted(self) -> bool:
        """Whether Ctrl-C or SIGTERM ended the program."""
        return self.exit_code in {_INTERRUPTED, 128 + signal.SIGTERM}

    def count(self) -> Counter[str]:
        """Return the number of tests with each outcome."""
        return Counter(row.outcome for row in self.tests)


class EmulationReport(ReportModel):
    """The outcome of a program on each target."""

    program: Sequenced[Text]
    targets: Sequenced[TargetRun] = ()


def run(
    program: Sequence[str],
    targets: Sequence[str],
    *,
    quiet: bool = False,
    started: Callable[[str], None] = lambda _target: None,
) -> EmulationReport:
    """Run a Python program once for each target, with the emulated GPU as torch's `cuda`.

    Args:
        program: The command, such as `["pytest", "tests"]` or `["script.py"]`.
        targets: The targets, such as `["gfx942", "gfx1201"]`.
        quiet: Send the program's standard output to standard error.
        started: A function that is called with each target before its run.

    Returns:
        A report with a `TargetRun` for each target, with a `TestRow` for each test. After an
        interruption, the remaining targets have no `TargetRun`.

    Raises:
        RequestError: A target has no model, no program is given, or its file does not exist.
        NoResultError: A package that the emulator needs is not installed.
    """
    for target in targets:
        check_target(target)
    argv = command_of(program)
    if argv[0].startswith(str(Path(sys.executable).parent)):
        missing = [name for name in _NEEDED if importlib.util.find_spec(name) is None]
        if missing:
            raise NoResultError(f"{missing[0]} is not installed", hint=INSTALL)
    runs = list[TargetRun]()
    for target in dict.fromkeys(targets):
        started(target)
        runs.append(run_on_target(argv, target, quiet=quiet))
        if runs[-1].interrupted:
            break
    return EmulationReport(program=(*program,), targets=tuple(runs))


def command_of(program: Sequence[str]) -> list[str]:
    """Return the command to start; the program is looked up next to this Python, then on PATH."""
    if not program:
        raise RequestError(
            "no program is given", hint="put it behind --: -- pytest tests/test_x.py"
        )
    is_script = program[0].endswith(".py")
    file = "".join(program[:1] if is_script else program[1:2])
    known = is_script or Path(program[0]).name.startswith(("python", "pytest", "py.test"))
    if known and file.endswith(".py") and not Path(file).exists():
        raise RequestError(f"{file}: no such file", hint="give its path from the current folder")
    if is_script:
        return [sys.executable, *program]
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
    return [shutil.which(program[0], path=path) or program[0], *program[1:]]


def run_on_target(
    argv: Sequence[str],
    target: str,
    *,
    quiet: bool,
    plugins: Sequence[str] = (),
    env: Mapping[str, str] | None = None,
) -> TargetRun:
    """Run a command on a target, with further plug-ins of pytest, and return the outcome."""
    with tempfile.TemporaryDirectory(prefix="contribbot-emulate-") as temporary:
        folder = Path(temporary).resolve()
        (folder / "sitecustomize.py").write_text(
            _CUSTOMIZE.format(folder=str(folder), missing=_MISSING, target=target),
            encoding="utf-8",
        )
        facts = FACTS[target]
        for name, answer in _ROCM_PROGRAMS.items():
            text = answer.format(target=target, units=facts.units, lanes=facts.lanes)
            program = folder / "bin" / name
            program.parent.mkdir(exist_ok=True)
            program.write_text(f"#!/bin/sh\ncat <<END\n{text}END\n", encoding="utf-8")
            program.chmod(0o755)
        paths = [str(folder), os.environ.get("PYTHONPATH", "")]
        plugins = [_PLUGIN, *plugins, os.environ.get("PYTEST_PLUGINS", "")]
        environment = {
            **os.environ,
            "PATH": os.pathsep.join([str(folder / "bin"), os.environ.get("PATH", os.defpath)]),
            "PYTHONPATH": os.pathsep.join(filter(None, paths)),
            "PYTEST_PLUGINS": ",".join(filter(None, plugins)),
            FOLDER: str(folder),
            **(env or {}),
        }
        began = time.monotonic()
        try:
            status = run_attached(argv, environment, quiet=quiet)
        except ToolError as error:
            raise NoResultError(error.message, hint=error.hint) from error
        seconds = time.monotonic() - began
        ended = TargetRun(target=target, exit_code=status, seconds=seconds)
        return with_events(ended, folder / "events", shlex.join(argv))


def with_events(ended: TargetRun, events: Path, program: str) -> TargetRun:
    """Return a run with the tests, launches and errors that the program's processes recorded."""
    text = events.read_text(encoding="utf-8") if events.is_file() else ""
    lines = [json.loads(line) for line in text.splitlines()]
    kinds = Counter(line["kind"] for line in lines)
    tests = {line["row"]["test"]: line["row"] for line in lines if line["kind"] == "test"}
    untold = [line["row"] for line in lines if line["kind"] == "untold"]
    for row in untold:  # also from processes that a test started, whatever the outcome of the test
        before = tests.get(row["test"])
        if before and before["outcome"] not in {"fault", "not modelled"}:
            tests[row["test"]] = {**row, "seconds": before["seconds"]}
    status = _INTERRUPTED if kinds["interrupted"] else ended.exit_code
    error = next((line["error"] for line in lines if line["kind"] == "error"), "")
    error = error or _shortfall(kinds, status)
    # A program without tests has one row; an error on the GPU counts even if it was caught.
    if not tests and untold:
        tests = {program: {**untold[0], "test": program, "seconds": ended.seconds}}
    elif not tests and not error and not kinds["session"]:
        outcome = "failed" if status else "passed"
        tests = {program: {"test": program, "outcome": outcome, "seconds": ended.seconds}}
    rows = tuple(map(TestRow.model_validate, tests.values()))
    facts = {"tests": rows, "launches": kinds["launched"], "error": error, "exit_code": status}
    return ended.model_copy(update=facts)


def _shortfall(kinds: Mapping[str, int], status: int) -> str:
    """Return why a run lacks results, from its events and exit status; empty: it lacks none."""
    killed = status - 128 in signal.valid_signals()
    ended = f"signal {status - 128} ended it" if killed else f"it ended with status {status}"
    if status == 128 + signal.SIGKILL:
        ended += ", as where memory runs out"
    part = ": not all of its tests have run" if kinds["session"] else ""
    if not kinds["started"]:
        return (
            f"{ended}, and no Python began that has the emulated GPU (-I, -S and -E leave it out)"
        )
    if not kinds["launched"]:
        return f"{ended} and launched no Triton kernel: nothing was emulated"
    whole = status in {0, 1} and kinds["finished"] == kinds["session"]
    return f"{ended}{part}" if killed or (kinds["session"] and not whole) else ""


def exit_code(runs: Sequence[TargetRun]) -> int:
    """Return the exit code: 0 tests passed, 1 a test failed, 3 no result, 130 interrupted."""
    counts = sum((run.count() for run in runs), Counter[str]())
    if any(run.interrupted for run in runs):
        return _INTERRUPTED
    if counts["failed"] or counts["fault"]:
        return 1
    if counts["not modelled"] or counts["too long"] or any(run.error for run in runs):
        return _NOT_HERE
    # The failure may be outside of tests, for example coverage or a warning as an error.
    return int(any(run.exit_code for run in runs))


def obstacles(run: TargetRun) -> Iterator[tuple[str, str, int]]:
    """Yield the different faults and unmodelled features: outcome, message, number of tests."""
    found = Counter(
        (row.outcome, row.said) for row in run.tests if row.outcome in {"fault", "not modelled"}
    )
    for (outcome, said), number in found.most_common():
        yield outcome, said, number


#: Keeps the GPU until the end of the process.
_STACK: Final = contextlib.ExitStack()


def _end() -> None:
    """Record the emulator's error that ended the program, if any, and remove the GPU."""
    error = getattr(sys, "last_value", None)
    if isinstance(error, NoResultError):
        LaunchRecord().add(error)
    _STACK.close()


def start(target: str, folder: str) -> None:
    """Emulate a target from torch's import on; then run the `sitecustomize` that `folder` hides."""
    write_event(kind="started")

    def begin(_torch: ModuleType) -> None:
        # The import of torch takes seconds, and not every process needs torch.
        try:
            _STACK.enter_context(device(target))
        except Exception as error:  # noqa: BLE001  of any version of torch and triton
            if isinstance(error, EmulatorError):
                said = error.message + (f"; {error.hint}" if error.hint else "")
            else:
                said = f"{type(error).__name__}: {error}; {INSTALL}"
            write_event(kind="error", error=said)
            sys.stderr.flush()
            os._exit(_NOT_HERE)  # nothing of the program may run as if it were emulated

    atexit.register(_end)
    AfterImport("torch", begin)
    run_hidden(folder)
