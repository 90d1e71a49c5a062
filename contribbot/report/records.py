"""Evidence for people and for programs."""

from __future__ import annotations

from contribbot.github.auth import find_server
from contribbot.model.base import Model
from contribbot.model.evidence import Details, Statement
from contribbot.model.outcome import too_noisy
from contribbot.queue.load import Queue
from contribbot.report.text import clean, columns
from contribbot.verify.records import Record, missing


class RecordView(Model):
    """One record and what it is worth.

    Attributes:
        file: Where it lies, seen from the queue.
        state: `fresh`, `stale`, `tampered` or `foreign`.
        why: One line.
        statement: Its content, where it can be read.
    """

    file: str
    state: str
    why: str
    statement: Statement | None


class RecordList(Model):
    """What `evidence show --json` and `evidence check --json` print.

    Attributes:
        records: The records.
        missing: Patches without a fresh record.
    """

    records: tuple[RecordView, ...]
    missing: tuple[str, ...]

    @classmethod
    def of(cls, queue: Queue, records: list[Record]) -> RecordList:
        """List records."""
        return cls(
            records=tuple(
                RecordView(
                    file=_inside(queue, record),
                    state=str(record.state),
                    why=record.why,
                    statement=record.statement,
                )
                for record in records
            ),
            missing=tuple(missing(queue, records)),
        )


def _inside(queue: Queue, record: Record) -> str:
    path = record.path
    if path.is_relative_to(queue.folder):
        path = path.relative_to(queue.folder)
    # A name that is no UTF-8 is spelled out.
    return str(path).encode("utf-8", "backslashreplace").decode()


def check_lines(queue: Queue, records: list[Record]) -> list[str]:
    """Return a line a record, and one for each patch without a fresh one."""
    lines = [
        f"{record.state:8}  {clean(_inside(queue, record))}: {clean(record.why)}"
        for record in records
    ]
    lines += [f"missing   {name}: no fresh record" for name in missing(queue, records)]
    return lines


def show_lines(queue: Queue, patch: str, records: list[Record]) -> list[str]:
    """Return the records of a patch in full, as lines for a terminal."""
    if not records:
        return [f"{patch}: no record; make one with `contribbot verify {patch}`"]
    lines: list[str] = []
    for record in records:
        lines.append(f"{clean(_inside(queue, record))}: {record.state} ({clean(record.why)})")
        if record.statement is not None:
            lines += _statement_lines(record.statement)
        lines.append("")
    return lines[:-1]


def _origin_lines(details: Details) -> list[str]:
    """Return which run a record names, and which container: contribbot saw neither itself."""
    lines = []
    if run := details.run:
        which = f"{run.repository} run {run.run_id}, attempt {run.attempt}"
        lines += [
            f"  run       job {run.job} of {which}, as the job was told",
            f"            {find_server().web}/{run.repository}/actions/runs/{run.run_id}",
        ]
    if container := details.container:
        flags = clean(" ".join(container.flags)) or "no flags"
        lines += [
            f"  in        {clean(container.image)}, as the job was told",
            f"            with {flags}",
        ]
    return lines


def _statement_lines(statement: Statement) -> list[str]:
    details = statement.predicate.contribbot
    machine = details.machine
    gpus = ", ".join(f"{gpu.name} ({gpu.target})" for gpu in machine.gpus) or "no GPU"
    versions = ", ".join(f"{name} {version}" for name, version in machine.packages.items())
    lines = [
        f"  seen      {details.finished:%Y-%m-%d %H:%M} UTC by contribbot {details.tool}",
        f"  machine   {clean(machine.system)}, {clean(machine.cpu)}, {clean(gpus)}",
        f"  with      {clean(machine.python)}, git {clean(machine.git)}, {clean(versions)}",
        f"  base      {details.upstream} {details.pin}, commit {details.base_commit[:12]}",
        *_origin_lines(details),
        f"  again     {clean(details.command)}",
    ]
    for one in details.stages:
        _, stage, target, outcome, _, reason = columns(details.patch, one)
        lines.append(f"  {stage:10}{target:8}{outcome:12}{reason}")
    noisy = {f"{one.stage}:{one.target}" for one in details.stages if too_noisy(one)}
    lines += [
        f"  {'too noisy to tell' if target in noisy else 'not run'} on {target}"
        for target in details.open
    ]
    return lines
