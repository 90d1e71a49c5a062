"""`contribbot verify`."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated
from xml.etree import ElementTree as ET

import typer

from contribbot.cli.command import (
    JobsOption,
    JsonOption,
    SomePatchesArgument,
    command,
    flag,
    live_lines,
    open_queue,
    option,
    print_json,
    print_lines,
    target_names,
)
from contribbot.cli.outcomes import (
    UnitKey,
    annotation_lines,
    append_summary,
    closing_blocks,
)
from contribbot.cli.render import clean
from contribbot.errors import UsageError
from contribbot.files import write_named
from contribbot.model.evidence import Outcome, PatchReport, StageResult, VerifyReport
from contribbot.queue.load import Queue, select
from contribbot.verify.evidence import read_records
from contribbot.verify.pipeline import Options
from contribbot.verify.run import exit_code, refuse_unknown, verify_and_record


@command
def verify(
    context: typer.Context,
    patches: SomePatchesArgument = None,
    everything: Annotated[bool, flag("--all", "Verify every patch.")] = False,
    require: Annotated[
        list[str] | None,
        option(
            "TARGET",
            "Fail unless it is proved here on this target: cpu, cuda, gfx942, …",
            complete=target_names,
        ),
    ] = None,
    force: Annotated[bool, flag("--force", "Repeat what is remembered.")] = False,
    jobs: JobsOption = None,
    as_json: JsonOption = False,
    junit: Annotated[Path | None, option("FILE", "Write the outcomes as JUnit XML.")] = None,
    evidence: Annotated[
        Path | None, option("DIR", "Where records go.", default="evidence/")
    ] = None,
) -> int:
    """Test patches: checks fail without them and pass with them, or it says what could not run."""
    if everything and patches:
        hint = f"leave out --all, or {', '.join(patches)}"
        raise UsageError("--all names every patch already", hint=hint)
    queue = open_queue(context, *(patches or ()))
    options = Options(jobs=jobs, force=force) if jobs else Options(force=force)
    names = select(queue, patches or (), everything=everything)
    required = require or []
    refuse_unknown(queue, names, required)
    folder = evidence or queue.evidence
    with live_lines(stderr=as_json, order=names) as lines:
        lines.expect(expected(queue, names))
        done = verify_and_record(queue, names, options=options, folder=folder, watcher=lines)
    print_lines(closing_blocks(done.reports, done.records, required), stderr=as_json)
    if os.environ.get("GITHUB_ACTIONS") == "true":
        print_lines(annotation_lines(queue, done.reports), stderr=as_json)
    if as_json:
        print_json(VerifyReport(patches=tuple(done.reports)))
    if junit is not None:
        write_junit(junit, done.reports)
    if step_summary := os.environ.get("GITHUB_STEP_SUMMARY"):
        append_summary(Path(step_summary), done.reports)
    return exit_code(done.reports, required)


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
