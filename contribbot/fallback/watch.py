"""Run a program under the audit, and read the audit's counts."""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from contribbot import process
from contribbot.errors import ExitCode
from contribbot.fallback import start_audit
from contribbot.model.base import Many, Model

#: The text of a `sitecustomize.py`, which Python runs before a program if it is on sys.path.
_CUSTOMIZE: Final = """\
import importlib.util
spec = importlib.util.spec_from_file_location("_contribbot_inside", {inside!r})
module = importlib.util.module_from_spec(spec)
spec.loader.exec_module(module)
module.start({folder!r}, {path!r}, {device!r})
"""


class AuditRow(Model):
    """An event at one line of the program, how often it happened, and the cost."""

    kind: str  # fallback, download, upload
    operator: str
    file: str
    line: int
    code: str
    count: int
    bytes: int
    seconds: float  # of the host, in calls that may wait for the GPU
    returned: int  # how often the result went back to the GPU


class _Counts(Model):
    """The content of the program's report file: empty, then torch's version, then the counts."""

    torch: str = ""
    gpu_operators: int | None = None
    fault: str = ""
    rows: Many[AuditRow] = ()


class FallbackReport(Model):
    """The work that a program left to the CPU, and its copies from and to the GPU."""

    program: Many[str]
    exit_code: int
    seconds: float
    torch: str = ""
    gpu_operators: int = 0
    unwatched: str = ""  # why the program was not watched; or empty
    findings: Many[AuditRow] = ()


def watch(program: Sequence[str], *, device: str = "", quiet: bool = False) -> FallbackReport:
    """Run a program and report its work on the CPU; `quiet`: its output goes to standard error."""
    argv = [sys.executable, *program] if program[0].endswith(".py") else [*program]
    with tempfile.TemporaryDirectory(prefix="contribbot-fallback-") as name:
        folder = Path(name).resolve()
        path = os.environ.get("PYTHONPATH")
        (folder / "sitecustomize.py").write_text(
            _CUSTOMIZE.format(
                inside=start_audit.__file__, folder=str(folder), path=path, device=device
            ),
            encoding="utf-8",
        )
        found = os.pathsep.join(filter(None, [str(folder), path]))
        began = time.monotonic()
        status = process.attached(
            argv, env={**os.environ, "PYTHONPATH": found}, stdout=2 if quiet else None
        )
        report = FallbackReport(
            program=(*program,),
            exit_code=process.shell_status(status),
            seconds=time.monotonic() - began,
        )
        return _read(folder, report)


def _read(folder: Path, report: FallbackReport) -> FallbackReport:
    """Return the report with the counts of the program's process."""
    file = folder / "report.json"
    started = file.is_file()
    counts = _Counts.model_validate_json(file.read_bytes()) if started else _Counts()
    causes = (
        (not started, "no Python started that reads PYTHONPATH"),
        (not counts.torch, "the first Python process did not import torch"),
        (
            counts.gpu_operators is None,
            "the program was ended by a signal or by os._exit, and its counts are lost",
        ),
        (bool(counts.fault), f"the watch ended by a fault of its own: {counts.fault}"),
        (
            not counts.gpu_operators and not counts.rows,
            "the first Python process ran no operator on a GPU",
        ),
    )
    return report.model_copy(
        update={
            "torch": counts.torch,
            "gpu_operators": counts.gpu_operators or 0,
            "unwatched": next((words for holds, words in causes if holds), ""),
            "findings": tuple(sorted(counts.rows, key=lambda row: -row.seconds)),
        }
    )


def exit_code(report: FallbackReport) -> int:
    """Return the program's exit code; if that is 0 but nothing was watched, return MACHINE."""
    if report.unwatched and not report.exit_code:
        return ExitCode.MACHINE
    return report.exit_code
