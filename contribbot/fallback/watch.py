"""Run a program while its fallbacks to the CPU are counted, and read the counts."""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from contribbot import fallback, process
from contribbot.errors import ExitCode
from contribbot.model.base import Many, Model

#: The text of a `sitecustomize.py`, which Python runs before a program if it is on sys.path.
_CUSTOMIZE: Final = """\
import importlib.util, sys
spec = importlib.util.spec_from_file_location("_contribbot_fallback", {package!r})
module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
spec.loader.exec_module(module)
module.start({folder!r}, {path!r}, {device!r})
"""


class AuditRow(Model, extra="ignore"):
    """An event at one line of the program: kind, operator, number of events, bytes and seconds."""

    kind: str  # fallback, download, upload
    operator: str
    file: str
    line: int
    code: str
    count: int
    bytes: int
    seconds: float  # of the host, in calls that may wait for the GPU


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
        folder, path = str(Path(name).resolve()), os.environ.get("PYTHONPATH")
        text = _CUSTOMIZE.format(package=fallback.__file__, folder=folder, path=path, device=device)
        Path(folder, "sitecustomize.py").write_text(text, encoding="utf-8")
        env = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, [folder, path]))}
        began = time.monotonic()
        status = process.attached(argv, env=env, stdout=2 if quiet else None)
        seconds, report = time.monotonic() - began, Path(folder, "report.json")
        unread = {"unwatched": "no Python started that reads PYTHONPATH"}
        counts = json.loads(report.read_bytes()) if report.is_file() else unread
    rows = sorted(counts.get("findings", ()), key=lambda row: -row["seconds"])
    if not (counts["unwatched"] or rows or counts["gpu_operators"]):
        counts["unwatched"] = "the first Python process ran no operator on a GPU"
    ended = {"program": program, "exit_code": process.shell_status(status), "seconds": seconds}
    return FallbackReport.model_validate({**counts, **ended, "findings": rows})


def exit_code(report: FallbackReport) -> int:
    """Return the program's exit code, or MACHINE if that code is 0 but nothing was watched."""
    return report.exit_code or (ExitCode.MACHINE if report.unwatched else ExitCode.OK)
