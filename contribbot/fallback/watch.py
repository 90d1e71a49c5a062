"""Run a program under the audit, and read what that wrote."""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from contribbot import process
from contribbot.errors import ExitCode
from contribbot.fallback import start_audit
from contribbot.fallback.ledger import LOOP, SIZE, Counts, Ledger
from contribbot.model.base import Many, Model

#: Python runs it in each process that has its folder on the path, before the program.
_CUSTOMIZE: Final = """\
import importlib.util
spec = importlib.util.spec_from_file_location("_contribbot_inside", {inside!r})
module = importlib.util.module_from_spec(spec)
spec.loader.exec_module(module)
module.start({folder!r}, {path!r}, {device!r})
"""


class AuditRow(Model):
    """What happened at one line of the program, how often, and what it cost."""

    kind: str  # fallback, download, upload, streamed
    operator: str
    file: str
    line: int
    code: str
    count: int
    bytes: int
    seconds: float  # of the host, inside the call: it may wait for the GPU
    returned: int  # how often what came of it went back to the GPU


class FallbackReport(Model):
    """What a program left to the CPU."""

    program: Many[str]
    exit_code: int
    seconds: float
    torch: str = ""
    gpu_operators: int = 0
    unwatched: str = ""  # why nothing was watched; or empty
    findings: Many[AuditRow] = ()
    streamed: Many[AuditRow] = ()  # copies from and to pinned memory that nothing waits for


def watch(program: Sequence[str], *, device: str = "", quiet: bool = False) -> FallbackReport:
    """Run a program to its end, `quiet` on standard output, and report what it left to the CPU."""
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
        with (folder / "cells").open("wb") as cells:
            cells.truncate(SIZE)
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
    """Return the report with what the program's process wrote."""
    record = folder / "places.jsonl"
    text = record.read_text(encoding="utf-8") if record.is_file() else ""
    lines = [json.loads(line) for line in text.splitlines()]
    facts = {line["kind"]: line for line in lines}
    ledger = Ledger((folder / "cells").read_bytes(), lambda _place: None)
    places = [line for line in lines if "operator" in line]
    found = [*_findings([(ledger.counts(index), line) for index, line in enumerate(places)])]
    if not facts:
        unwatched = "no Python started that reads PYTHONPATH"
    elif "torch" not in facts:
        unwatched = "the first Python process did not import torch"
    elif "fault" in facts:
        unwatched = f"the watch ended by a fault of its own: {facts['fault']['operator']}"
    elif not ledger.cells[0] and not facts.keys() & {"download", "upload", "streamed"}:
        unwatched = "the first Python process ran no operator on a GPU"
    else:
        unwatched = ""
    return report.model_copy(update={
        "torch": facts.get("torch", {}).get("version", ""), "gpu_operators": ledger.cells[0],
        "unwatched": unwatched,
        "findings": tuple(each for each in found if each.kind != "streamed"),
        "streamed": tuple(each for each in found if each.kind == "streamed"),
    })  # fmt: skip


def _findings(rows: Sequence[tuple[Counts, dict[str, object]]]) -> Iterator[AuditRow]:
    """Yield what is worth a line, the most time first."""
    for counts, line in sorted(rows, key=lambda row: -row[0].nanoseconds):
        single = counts.rounds < LOOP and not counts.returned
        if line["kind"] in {"fault", *(("upload", "streamed") if single else ())}:
            continue
        yield AuditRow.model_validate({
            **line, "count": counts.times, "bytes": counts.size,
            "seconds": counts.nanoseconds / 1e9, "returned": counts.returned,
        })  # fmt: skip


def exit_code(report: FallbackReport) -> int:
    """Return the program's own, but for one that ended well and could not be watched."""
    if report.unwatched and not report.exit_code:
        return ExitCode.MACHINE
    return report.exit_code
