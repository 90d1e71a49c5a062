"""Run a program with an emulated AMD GPU in the place of its own."""

from __future__ import annotations

import atexit
import contextlib
import importlib.util
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Final

from contribbot import process
from contribbot.compile.toolchain import INSTALL
from contribbot.emulate import outcomes
from contribbot.emulate.decode import check_target
from contribbot.emulate.outcomes import EmulationReport, TargetRun
from contribbot.errors import ContribbotError, ExitCode, MachineError, UsageError, install
from contribbot.fallback.after_import import AfterImport, run_hidden

#: Python runs it in each process that has its folder on the path, before the program.
_CUSTOMIZE: Final = """\
import os, sys
try:
    from contribbot.emulate.run_program import start
except ImportError as error:
    with open({folder!r} + "/events", "a") as events:
        events.write({missing!r} % str(error).replace('"', "'").replace(chr(92), "/") + chr(10))
    os._exit(3)
start({target!r}, {folder!r})
"""
_MISSING: Final = '{"kind": "error", "error": "its Python lacks the extra emulate (%s)"}'
_PLUGIN: Final = "contribbot.emulate.pytest"
_NEEDED: Final = ("torch", "triton", "tinygrad", "elftools", "msgpack")


def emulate(
    program: Sequence[str],
    targets: Sequence[str],
    *,
    quiet: bool = False,
    started: Callable[[str], None] = lambda _target: None,
) -> EmulationReport:
    """Run a program once for each target; `quiet`: its standard output goes to standard error."""
    for target in targets:
        check_target(target)
    argv = command_of(program)
    if argv[0].startswith(str(Path(sys.executable).parent)):
        missing = [name for name in _NEEDED if importlib.util.find_spec(name) is None]
        if missing:
            raise MachineError(f"{missing[0]} is not installed", hint=INSTALL)
    runs = list[TargetRun]()
    for target in dict.fromkeys(targets):
        started(target)
        runs.append(run_on_target(argv, target, quiet=quiet))
        if runs[-1].interrupted:
            break
    return EmulationReport(program=(*program,), targets=tuple(runs))


def command_of(program: Sequence[str]) -> list[str]:
    """Return the program's command; a name is looked for beside this Python first."""
    if not program:
        raise UsageError("no program is given", hint="put it behind --: -- pytest tests/test_x.py")
    if program[0].endswith(".py"):
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
    """Run a command on a target; `plugins` are further ones of pytest's."""
    with tempfile.TemporaryDirectory(prefix="contribbot-emulate-") as name:
        folder = Path(name).resolve()
        (folder / "sitecustomize.py").write_text(
            _CUSTOMIZE.format(folder=str(folder), missing=_MISSING, target=target),
            encoding="utf-8",
        )
        paths = [str(folder), os.environ.get("PYTHONPATH", "")]
        plugins = [_PLUGIN, *plugins, os.environ.get("PYTEST_PLUGINS", "")]
        environment = {
            **os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths)),
            "PYTEST_PLUGINS": ",".join(filter(None, plugins)), outcomes.FOLDER: str(folder),
            **(env or {}),
        }  # fmt: skip
        began = time.monotonic()
        status = process.attached(argv, env=environment, stdout=2 if quiet else None)
        run = TargetRun(
            target=target,
            exit_code=process.shell_status(status),
            seconds=time.monotonic() - began,
        )
        return outcomes.read(folder, run, process.describe(argv))


def places(run: TargetRun) -> Iterator[tuple[str, str, int]]:
    """Yield what stopped tests: outcome, what was said, and how many tests."""
    found = dict[tuple[str, str], int]()
    for row in run.tests:
        if row.outcome in {"fault", "not modelled"}:
            found[row.outcome, row.said] = found.get((row.outcome, row.said), 0) + 1
    for (outcome, said), number in sorted(found.items(), key=lambda each: -each[1]):
        yield outcome, said, number


#: Holds the GPU to the end of the process.
_STACK: Final = contextlib.ExitStack()


def _end() -> None:
    """Tell what ended the program, if that is none of its own, and take the GPU away."""
    error = getattr(sys, "last_value", None)
    if isinstance(error, MachineError):
        outcomes.RECORD.ended(error)
    _STACK.close()


def start(target: str, folder: str) -> None:
    """Emulate a target from torch's import to the program's end; the folder has `sitecustomize`."""
    outcomes.write(kind="started")

    def begin(_torch: ModuleType) -> None:
        # Once torch is there: it takes seconds to import, and not every process wants it.
        try:
            from contribbot.emulate.device import device  # noqa: PLC0415  see above

            _STACK.enter_context(device(target))
        except Exception as error:  # noqa: BLE001  of any version of torch and triton
            if isinstance(error, ContribbotError):
                said = error.message + (f"; {error.hint}" if error.hint else "")
            else:
                said = f"{type(error).__name__}: {error}; {install('emulate')}"
            outcomes.write(kind="error", error=said)
            sys.stderr.flush()
            os._exit(ExitCode.MACHINE)  # nothing of the program may run as if it were emulated

    atexit.register(_end)
    AfterImport("torch", begin)
    run_hidden(folder)
