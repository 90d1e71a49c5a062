"""Evidence, status, rebases and bisections for people and for programs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Final
from xml.etree import ElementTree as ET

from contribbot.cli.text import clean, columns, side_lines, table
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
    PatchStatus,
    Question,
    RebasePlan,
    Share,
    StackReport,
    StatusReport,
    Step,
    Text,
)
from contribbot.queue.load import Queue
from contribbot.verify.evidence import Record, missing

#: Outcomes of one member of a stack that are listed; the rest is counted.
_SHOWN: Final = 8
_TEXTS: Final = {
    Text.CLEAN: "applies",
    Text.OFFSET: "applies with offset",
    Text.MERGED: "applies after a merge",
    Text.CONFLICT: "conflicts",
    Text.UPSTREAM: "already upstream",
    Text.BLOCKED: "blocked by a dependency",
    Text.UNKNOWN: "not known",
}
_NEEDS: Final = {
    Need.SUPERSEDED: "superseded (its checks pass without it)",
    Need.PARTLY: "partly superseded (some of its checks pass without it)",
    Need.NEEDED: "still needed",
    Need.UNCLEAR: "unclear whether it is needed",
}
#: What a step of a bisection says, and what was searched for.
_STEPS: Final[dict[Question, dict[str, str]]] = {
    "breaks": {"before": "applies", "after": "does not apply"},
    "unneeded": {"before": "needed", "after": "not needed"},
}
_FIRSTS: Final[dict[Question, str]] = {
    "breaks": "the first at which its text does not apply",
    "unneeded": "the first at which it is not needed",
}


class RecordView(Model):
    """One record and what it is worth."""

    file: str
    state: str
    why: str
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
                    file=file, state=str(record.state), why=record.why, statement=record.statement
                )
            )
        return cls(records=tuple(views), missing=tuple(missing(queue, [*records])))


def check_lines(listed: RecordList) -> list[str]:
    """Return a line a record, and one for each patch without a fresh one."""
    lines = [
        f"{record.state:8}  {clean(record.file)}: {clean(record.why)}" for record in listed.records
    ]
    lines += [f"missing   {name}: no fresh record" for name in listed.missing]
    return lines or ["no records"]


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
    machine = details.machine
    gpus = ", ".join(f"{gpu.name} ({gpu.target})" for gpu in machine.gpus) or "no GPU"
    versions = ", ".join(f"{name} {version}" for name, version in machine.packages.items())
    lines = [
        f"  seen      {details.finished:%Y-%m-%d %H:%M} UTC by contribbot {details.tool}",
        f"  machine   {clean(machine.system)}, {clean(machine.cpu)}, {clean(gpus)}",
        f"  with      {clean(machine.python)}, git {clean(machine.git)}, {clean(versions)}",
        f"  base      {details.upstream} {details.pin}, commit {details.base_commit[:12]}",
    ]
    # Which run a record names, and which container: contribbot saw neither itself.
    if run := details.run:
        which = f"{run.repository} run {run.run_id}, attempt {run.attempt}"
        lines += [
            f"  run       job {run.job} of {which}, as the job was told",
            f"            {find_server().web}/{run.repository}/actions/runs/{run.run_id}",
        ]
    if container := details.container:
        lines += [
            f"  in        {clean(container.image)}, as the job was told",
            f"            with {clean(' '.join(container.flags)) or 'no flags'}",
        ]
    lines.append(f"  again     {clean(details.command)}")
    for result in details.stages:
        _, stage, target, outcome, _, reason = columns(details.patch, result)
        lines.append(f"  {stage:10}{target:8}{outcome:12}{reason}")
    noisy = {f"{result.stage}:{result.target}" for result in details.stages if too_noisy(result)}
    lines += [
        f"  {'too noisy to tell' if target in noisy else 'not run'} on {target}"
        for target in details.open
    ]
    return lines


def write_junit(path: Path, reports: Sequence[PatchReport]) -> None:
    """Write a JUnit file."""
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
    write_atomically(path, ET.tostring(root, encoding="utf-8", xml_declaration=True) + b"\n")


def _add_case(suite: ET.Element, patch: str, result: StageResult) -> None:
    name = f"{result.stage} {result.details.get('check') or ''}".rstrip()
    place, time = f"{patch}.{result.target}", f"{result.seconds:.3f}"
    case = ET.SubElement(suite, "testcase", classname=place, name=name, time=time)
    reason = clean(result.reason)
    if result.outcome is Outcome.FAILED:
        ET.SubElement(case, "failure", message=reason).text = reason
    elif result.outcome is not Outcome.PASSED:
        ET.SubElement(case, "skipped", message=f"{result.outcome}: {reason}")


def status_lines(report: StatusReport) -> list[str]:
    """Return two lines a patch, and more where something asks for attention."""
    width = max((len(patch.patch) for patch in report.patches), default=0)
    lines: list[str] = []
    for patch in report.patches:
        at = "" if patch.against == patch.pin else f" at {patch.against}"
        state, behaviour = _TEXTS[patch.text], patch.behaviour
        if behaviour is not None:
            state += f", {_NEEDS[behaviour.verdict]}"
        rows = [f"evidence {_evidence(patch)}; pull request {clean(patch.contribution)}"]
        if patch.text not in {Text.CLEAN, Text.UPSTREAM} and patch.text_why:
            rows.append(clean(patch.text_why))
        if behaviour is not None:
            moved = behaviour.moved.items()
            rows += [clean(behaviour.why), *(f"{clean(a)} is {clean(b)} there" for a, b in moved)]
        rows += [
            f"expires: {clean(due.condition)}: {clean(due.why)}" for due in patch.due if due.come
        ]
        lines.append(f"{patch.patch:{width}}  {patch.upstream} {patch.pin}{at}: {state}")
        lines += [f"{'':{width}}  {row}" for row in rows]
    return lines


def _evidence(patch: PatchStatus) -> str:
    parts = [
        f"{state}: {', '.join(targets)}"
        for state in ("fresh", "stale", "missing")
        if (targets := [row.target for row in patch.evidence if row.evidence == state])
    ]
    return " | ".join(parts) or "asked for nowhere"


def plan_lines(plan: RebasePlan) -> list[str]:
    """Return what becomes of each patch, with the three sides of every conflict."""
    width = max((len(patch.patch) for patch in plan.patches), default=0)
    lines = [f"{plan.upstream} {plan.old} -> {plan.new}"]
    for patch in plan.patches:
        why = f": {clean(patch.why)}" if patch.why else ""
        lines.append(f"{patch.patch:{width}}  {patch.decision} ({patch.text}){why}")
        if patch.behaviour is not None and patch.behaviour.why != patch.why:
            lines.append(f"    without it there: {clean(patch.behaviour.why)}")
        for side in patch.conflicts:
            lines += [f"    {row}" for row in side_lines(side, base="the release")]
    return lines


def step_line(step: Step, *, question: Question) -> str:
    """Return one step of a bisection as a line."""
    twice = ", looked at twice" if step.again else ""
    why = f"{clean(step.why)}{twice}".removeprefix(", ")
    what = "upstream already" if step.taken else _STEPS[question].get(step.says, "skipped")
    return f"{step.at}: {what}{f' ({why})' if why else ''}"


def bisection_lines(bisection: Bisection) -> list[str]:
    """Return what a bisection found."""
    what = _FIRSTS[bisection.question]
    if bisection.first and bisection.taken:
        what = "the first that has all of its text already: it is upstream there, not broken"
    if bisection.first:
        return [f"{bisection.patch}: {bisection.first} is {what}"]
    suspects = ", ".join(bisection.suspects)
    last = ", and the last has all of it already" if bisection.taken else ""
    text = f"{bisection.patch}: {what} cannot be told: it is one of {suspects}"
    return [f"{text}; those before the last could not be tried{last}"]


def alone_lines(report: StackReport) -> list[str]:
    """Return the table of stacks, members, and what fails without each."""
    lines = [f"{top}: cannot be told: {clean(why)}" for top, why in report.untold.items()]
    shares = report.shares
    heads = table([(share.top, f"without {share.without}", _lost(share)) for share in shares])
    for share, head in zip(shares, heads, strict=True):
        lines.append(head)
        lines += [f"  {loss.what}: {clean(loss.reason)}" for loss in share.losses[:_SHOWN]]
        if len(share.losses) > _SHOWN:
            lines.append(f"  and {len(share.losses) - _SHOWN} more")
    return lines


def _lost(share: Share) -> str:
    if not share.applies:
        text = "the rest does not apply"
    elif share.losses:
        text = f"{len(share.losses)} no longer pass, {share.kept} still do"
    else:
        text = f"all {share.kept} still pass: it contributes nothing that was seen"
    return text + (f"; {share.open} not run here" if share.open else "")
