"""Records for people, and outcomes for JUnit readers."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from xml.etree import ElementTree as ET

from contribbot.cli.show_results import UnitKey, result_lines, row_lines
from contribbot.cli.text import Coloured, clean, count, indented, titled
from contribbot.files import write_named
from contribbot.github.auth import find_server
from contribbot.model.base import Model
from contribbot.model.evidence import (
    Details,
    Outcome,
    PatchReport,
    StageResult,
    Statement,
    Verdict,
)
from contribbot.queue.load import Queue
from contribbot.verify.evidence import Record, State, missing, read_records
from contribbot.verify.patch_verdict import too_noisy, verdict_rest
from contribbot.verify.two_tritons import EntryPair, TritonComparison


class RecordView(Model):
    """One record and what it is worth."""

    file: str
    state: str
    why: str
    signature: str
    statement: Statement | None


class RecordList(Model):
    """What `evidence show --json` and `evidence check --json` print."""

    records: tuple[RecordView, ...]
    missing: tuple[str, ...]

    @classmethod
    def of(cls, queue: Queue, records: Sequence[Record]) -> RecordList:
        """List records by their paths in the queue."""
        views = []
        for record in records:
            path = record.path
            if path.is_relative_to(queue.folder):
                path = path.relative_to(queue.folder)
            # A name that is no UTF-8 is spelled out.
            file = str(path).encode("utf-8", "backslashreplace").decode()
            views.append(
                RecordView(
                    file=file,
                    state=str(record.state),
                    why=record.detail,
                    signature=record.signature.words,
                    statement=record.statement,
                )
            )
        return cls(records=tuple(views), missing=tuple(missing(queue, [*records])))


def check_lines(listed: RecordList) -> list[str]:
    """Return a line a record, and one for each patch without a fresh one."""
    rows = [(record.state, f"{clean(record.file)}: {clean(record.why)}{clean(_shortfall(record))}")
            for record in listed.records]  # fmt: skip
    rows += [("missing", f"{name}: no fresh record") for name in listed.missing]
    return [Coloured.of(f"{state:8}  {text}", state) for state, text in rows] or ["no records"]


def _shortfall(record: RecordView) -> str:
    """Return why a record that still holds proves nothing, or nothing."""
    details = record.statement.predicate.contribbot if record.statement else None
    if record.state != State.FRESH or details is None or details.verdict != Verdict.INCOMPLETE:
        return ""
    why = verdict_rest(PatchReport.of_record(details), where="there")
    return f"; {why.removeprefix(': ')}"


def show_lines(patch: str, listed: RecordList) -> list[str]:
    """Return the records of a patch in full, as lines for a terminal."""
    if not listed.records:
        return [f"{patch}: no record; make one with `contribbot verify {patch}`"]
    lines: list[str] = []
    for record in listed.records:
        lines.append(f"{clean(record.file)}: {record.state} ({clean(record.why)})")
        if record.statement is not None:
            lines += _details_lines(record.statement.predicate.contribbot)
        lines.append("")
    return lines[:-1]


def _details_lines(details: Details) -> list[str]:
    machine, run, container = details.machine, details.run, details.container
    gpus = ", ".join(f"{gpu.name} ({gpu.target})" for gpu in machine.gpus) or "no GPU"
    versions = ", ".join(f"{name} {version}" for name, version in machine.packages.items())
    rows = [
        ("seen", [f"{details.finished:%Y-%m-%d %H:%M} UTC by contribbot {details.tool}"]),
        ("machine", [f"{machine.system}, {machine.cpu}, {gpus}"]),
        ("with", [f"{machine.python}, git {machine.git}, {versions}"]),
        ("base", [f"{details.upstream} {details.pin}, commit {details.base_commit[:12]}"]),
    ]
    # Which run a record names, and which container: contribbot saw neither itself.
    if run:
        which = f"{run.repository} run {run.run_id}, attempt {run.attempt}"
        page = f"{find_server().web}/{run.repository}/actions/runs/{run.run_id}"
        rows.append(("run", [f"job {run.job} of {which}, as given to the job", page]))
    if container:
        flags = " ".join(container.flags) or "no flags"
        rows.append(("in", [f"{container.image}, as given to the job", f"with {flags}"]))
    rows.append(("again", [details.command]))
    lines = titled(rows)
    lines += [line for line, _ in result_lines("", details.stages, sys.maxsize)[1:]]
    noisy = {f"{result.stage}:{result.target}" for result in details.stages if too_noisy(result)}
    return lines + [
        f"  {'too noisy to tell' if target in noisy else 'not run'} on {target}"
        for target in details.open
    ]


def expected(queue: Queue, names: Sequence[str]) -> dict[UnitKey, float]:
    """Return what verifying patches will do, and how long that took by their records."""
    seconds: dict[UnitKey, float] = {}
    for name in names:
        seconds |= {(name, stage, "", "any"): 0.0 for stage in ("source", "apply", "style")}
        seconds |= {(name, *unit): 0.0 for unit in queue.specs[name].units}
        for record in read_records(queue, queue.evidence, name):
            stages = record.statement.predicate.contribbot.stages if record.statement else ()
            seconds |= {(name, *result.unit): result.seconds for result in stages}
    return seconds


def write_junit(path: Path, reports: Sequence[PatchReport]) -> None:
    """Write a JUnit file; its folder is made, as the work is done by now."""
    path.parent.mkdir(parents=True, exist_ok=True)
    root = ET.Element("testsuites", name="contribbot")
    for report in reports:
        count = Counter(result.outcome for result in report.stages)
        suite = ET.SubElement(
            root,
            "testsuite",
            name=report.patch,
            tests=str(len(report.stages)),
            failures=str(count[Outcome.FAILED]),
            errors="0",
            skipped=str(count[Outcome.UNAVAILABLE] + count[Outcome.SKIPPED]),
            time=f"{sum(result.seconds for result in report.stages):.3f}",
        )
        for result in report.stages:
            _add_case(suite, report.patch, result)
    ET.indent(root)
    write_named(path, ET.tostring(root, encoding="utf-8", xml_declaration=True) + b"\n")


def _add_case(suite: ET.Element, patch: str, result: StageResult) -> None:
    name = f"{result.stage} {result.label}".rstrip()
    place, time = f"{patch}.{result.target}", f"{result.seconds:.3f}"
    case = ET.SubElement(suite, "testcase", classname=place, name=name, time=time)
    reason = clean(result.reason)
    if result.outcome is Outcome.FAILED:
        ET.SubElement(case, "failure", message=reason).text = reason
    elif result.outcome is not Outcome.PASSED:
        ET.SubElement(case, "skipped", message=f"{result.outcome}: {reason}")


def comparison_lines(found: TritonComparison) -> Iterator[str]:
    """Yield what each entry came to under two releases of Triton, and what changed in its code."""
    releases = found.versions["triton"]
    yield ""
    for name, (before, now) in found.versions.items():
        yield clean(f"{name} {before}" + (f" -> {now}" if before != now else ""))
    for pair in found.entries:
        yield ""
        yield from _pair_lines(pair, releases)
    if found.left_out:
        yield ""
        yield f"Triton compiles nothing of {', '.join(found.left_out)}"
    yield "compiled, or emulated from AMD's instruction reference; not run on a GPU; not recorded"


def _pair_lines(pair: EntryPair, releases: tuple[str, str]) -> Iterator[str]:
    before, now = pair.before, pair.now
    outcome = " -> ".join(dict.fromkeys((before.outcome, now.outcome)))
    line = clean(f"{now.patch} {now.stage} {now.entry} {now.target}: {outcome}")
    yield Coloured.of(line, now.outcome)
    for release, run in zip(releases, (before, now), strict=True):
        if run.unsteady:
            many = count(len(run.unsteady), "test")
            yield clean(f"  triton {release}: bits of {many} differ from run to run: not compared")
        if run.outcome is not Outcome.PASSED:
            yield clean(f"  triton {release}: {run.reason}")
    if pair.rows:
        yield from indented(row_lines("", pair.rows))
    for test, kernels in pair.other_bits.items():
        yield clean(f"  other bits of {', '.join(kernels)}: {test}")
    if pair.same_bits:
        yield f"  {count(pair.same_bits, 'test')} left the same bits"
