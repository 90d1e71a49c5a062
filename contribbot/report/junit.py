"""JUnit XML, as CI servers read it: one suite a patch, one case an outcome."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from xml.etree import ElementTree as ET

from contribbot.files import write_atomically
from contribbot.model.outcome import Outcome, StageResult
from contribbot.model.report import PatchReport
from contribbot.report.text import clean


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
        "testcase",
        classname=f"{report.patch}.{one.target}",
        name=name,
        time=f"{one.seconds:.3f}",
    )
    reason = clean(one.reason)
    if one.outcome is Outcome.FAILED:
        ET.SubElement(case, "failure", message=reason).text = reason
    elif one.outcome is not Outcome.PASSED:
        ET.SubElement(case, "skipped", message=f"{one.outcome}: {reason}")
    return case
