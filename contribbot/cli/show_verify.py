"""Evidence for people and for programs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from xml.etree import ElementTree as ET

from contribbot.cli.output import clean, columns, side_lines, table
from contribbot.files import write_atomically
from contribbot.github.auth import find_server
from contribbot.model.base import Model
from contribbot.model.evidence import (
    Details,
    Outcome,
    PatchReport,
    StageResult,
    Statement,
    too_noisy,
)
from contribbot.model.lifecycle import (
    Bisection,
    Need,
    PatchPlan,
    PatchStatus,
    Question,
    RebasePlan,
    Share,
    StackReport,
    StatusReport,
    Step,
    TargetState,
    Text,
)
from contribbot.queue.load import Queue
from contribbot.verify.evidence import Record, missing


class RecordView(Model):
    """One record and what it is worth."""

    file: str
    state: str
    why: str
    statement: Statement | None


class RecordList(Model):
    """What `evidence show --json` and `evidence check --json` print."""

    #: The records.
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
    return lines or ["no records"]


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


def write_junit(path: Path, reports: Sequence[PatchReport]) -> None:
    """Write a JUnit file."""
    root = ET.Element("testsuites", name="contribbot")
    for report in reports:
        root.append(_suite(report))
    ET.indent(root)
    write_atomically(path, ET.tostring(root, encoding="utf-8", xml_declaration=True) + b"\n")


def _suite(report: PatchReport) -> ET.Element:
    count = {outcome: sum(one.outcome is outcome for one in report.stages) for outcome in Outcome}
    suite = ET.Element(
        "testsuite",
        name=report.patch,
        tests=str(len(report.stages)),
        failures=str(count[Outcome.FAILED]),
        errors="0",
        skipped=str(count[Outcome.UNAVAILABLE] + count[Outcome.SKIPPED]),
        time=f"{sum(one.seconds for one in report.stages):.3f}",
    )
    for one in report.stages:
        suite.append(_case(report, one))
    return suite


def _case(report: PatchReport, one: StageResult) -> ET.Element:
    check = one.details.get("check")
    name = f"{one.stage} {check}" if check else one.stage
    case = ET.Element(
        "testcase", classname=f"{report.patch}.{one.target}", name=name, time=f"{one.seconds:.3f}"
    )
    reason = clean(one.reason)
    if one.outcome is Outcome.FAILED:
        ET.SubElement(case, "failure", message=reason).text = reason
    elif one.outcome is not Outcome.PASSED:
        ET.SubElement(case, "skipped", message=f"{one.outcome}: {reason}")
    return case


def status_lines(report: StatusReport) -> list[str]:
    """Return two lines a patch, and more where something asks for attention."""
    width = max((len(one.patch) for one in report.patches), default=0)
    lines: list[str] = []
    for one in report.patches:
        lines.append(f"{one.patch:{width}}  {_place(one)}: {_state(one)}")
        pull_request = f"pull request {clean(one.contribution)}"
        lines.append(f"{'':{width}}  evidence {_evidence(one.evidence)}; {pull_request}")
        lines += [f"{'':{width}}  {row}" for row in _attention(one)]
    return lines


def _place(one: PatchStatus) -> str:
    if one.against == one.pin:
        return f"{one.upstream} {one.pin}"
    return f"{one.upstream} {one.pin} at {one.against}"


def _state(one: PatchStatus) -> str:
    words = {
        Text.CLEAN: "applies",
        Text.OFFSET: "applies with offset",
        Text.MERGED: "applies after a merge",
        Text.CONFLICT: "conflicts",
        Text.UPSTREAM: "already upstream",
        Text.BLOCKED: "blocked by a dependency",
        Text.UNKNOWN: "not known",
    }
    text = words[one.text]
    if one.behaviour is None:
        return text
    need = {
        Need.SUPERSEDED: "superseded (its checks pass without it)",
        Need.PARTLY: "partly superseded (some of its checks pass without it)",
        Need.NEEDED: "still needed",
        Need.UNCLEAR: "unclear whether it is needed",
    }
    return f"{text}, {need[one.behaviour.verdict]}"


def _evidence(states: Sequence[TargetState]) -> str:
    by_state: dict[str, list[str]] = {}
    for one in states:
        by_state.setdefault(one.evidence, []).append(one.target)
    parts = [
        f"{state}: {', '.join(by_state[state])}"
        for state in ("fresh", "stale", "missing")
        if state in by_state
    ]
    return " | ".join(parts) or "asked for nowhere"


def _attention(one: PatchStatus) -> list[str]:
    rows = []
    if one.text not in {Text.CLEAN, Text.UPSTREAM} and one.text_why:
        rows.append(clean(one.text_why))
    if one.behaviour is not None:
        rows.append(clean(one.behaviour.why))
        rows += [f"{clean(old)} is {clean(new)} there" for old, new in one.behaviour.moved.items()]
    rows += [f"expires: {clean(due.condition)}: {clean(due.why)}" for due in one.due if due.come]
    return rows


def plan_lines(plan: RebasePlan) -> list[str]:
    """Return what becomes of each patch, with the three sides of every conflict."""
    width = max((len(one.patch) for one in plan.patches), default=0)
    lines = [f"{plan.upstream} {plan.old} -> {plan.new}"]
    for one in plan.patches:
        why = f": {clean(one.why)}" if one.why else ""
        lines.append(f"{one.patch:{width}}  {one.decision} ({one.text}){why}")
        lines += _behaviour(one)
        for side in one.conflicts:
            lines += [f"    {row}" for row in side_lines(side, base="the release")]
    return lines


def _behaviour(one: PatchPlan) -> list[str]:
    if one.behaviour is None or one.behaviour.why == one.why:
        return []
    return [f"    without it there: {clean(one.behaviour.why)}"]


def step_line(step: Step, *, question: Question) -> str:
    """Return one step of a bisection as a line."""
    words = {
        "breaks": {"before": "applies", "after": "does not apply"},
        "unneeded": {"before": "needed", "after": "not needed"},
    }
    twice = ", looked at twice" if step.again else ""
    why = f"{clean(step.why)}{twice}".removeprefix(", ")
    what = "upstream already" if step.taken else words[question].get(step.says, "skipped")
    return f"{step.at}: {what}{f' ({why})' if why else ''}"


def bisection_lines(found: Bisection) -> list[str]:
    """Return what a bisection found."""
    what = {
        "breaks": "the first at which its text does not apply",
        "unneeded": "the first at which it is not needed",
    }[found.question]
    if found.first and found.taken:
        what = "the first that has all of its text already: it is upstream there, not broken"
    if found.first:
        return [f"{found.patch}: {found.first} is {what}"]
    text = f"{found.patch}: {what} cannot be told: it is one of {', '.join(found.suspects)}"
    last = ", and the last has all of it already" if found.taken else ""
    return [f"{text}; those before the last could not be tried{last}"]


#: Outcomes of one member that are listed; the rest is counted.
_SHOWN = 8


def alone_lines(report: StackReport) -> list[str]:
    """Return the table of stacks, members, and what fails without each."""
    lines = [f"{top}: cannot be told: {clean(why)}" for top, why in report.untold.items()]
    heads = table([(one.top, f"without {one.without}", _told(one)) for one in report.shares])
    for one, head in zip(report.shares, heads, strict=True):
        lines.append(head)
        lines += [f"  {loss.what}: {clean(loss.reason)}" for loss in one.losses[:_SHOWN]]
        if len(one.losses) > _SHOWN:
            lines.append(f"  and {len(one.losses) - _SHOWN} more")
    return lines


def _told(share: Share) -> str:
    if not share.applies:
        text = "the rest does not apply"
    elif share.losses:
        text = f"{len(share.losses)} no longer pass, {share.kept} still do"
    else:
        text = f"all {share.kept} still pass: it contributes nothing that was seen"
    return text + (f"; {share.open} not run here" if share.open else "")
