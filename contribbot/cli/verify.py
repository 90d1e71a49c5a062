"""`contribbot verify`."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, Final
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
    print_report,
    target_names,
)
from contribbot.cli.outcomes import (
    UnitKey,
    annotation_lines,
    append_summary,
    closing_blocks,
    row_blocks,
)
from contribbot.cli.refusal import echo
from contribbot.cli.render import Block, StateText, Table, clean, count, indented, lines_of
from contribbot.errors import UsageError
from contribbot.files import write_named
from contribbot.lifecycle import leave_one_out as stacks
from contribbot.model.evidence import Outcome, PatchReport, StageResult, VerifyReport
from contribbot.model.lifecycle import Share, StackReport
from contribbot.queue.load import Queue, select
from contribbot.verify.evidence import read_records
from contribbot.verify.pipeline import Options
from contribbot.verify.run import exit_code, refuse_unknown, targets, verify_and_record
from contribbot.verify.two_tritons import EntryPair, TritonComparison


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
    leave_one_out: Annotated[
        bool,
        flag(
            "--leave-one-out",
            "Verify stacks with each member left out, to see what it contributes.",
        ),
    ] = False,
    with_: Annotated[
        str | None,
        option("triton==A,B", "Compare two releases of Triton; records nothing.", "--with"),
    ] = None,
) -> int:
    """Test patches: checks fail without them and pass with them, or it says what could not run."""
    if everything and patches:
        hint = f"leave out --all, or {', '.join(patches)}"
        raise UsageError("--all names every patch already", hint=hint)
    queue = open_queue(context, *(patches or ()))
    if with_:
        given = {"--require": require, "--jobs": jobs, "--junit": junit, "--evidence": evidence,
                 "--leave-one-out": leave_one_out, "--force": force}  # fmt: skip
        if others := [name for name, value in given.items() if value]:
            hint = f"leave out {' and '.join(others)}"
            raise UsageError("--with compares, and records nothing", hint=hint)
        named = select(queue, patches or (), everything=everything)
        return _compare(queue, named, with_, as_json=as_json)
    options = Options(jobs=jobs, force=force) if jobs else Options(force=force)
    if leave_one_out:
        tops = stacks.stacks(queue, select(queue, patches or (), everything=not patches))
        # What fails without a member is a finding here: the table is the result.
        with live_lines() as lines:
            report = stacks.leave_one_out(queue, tops, options=options, watcher=lines)
        print_report(report, alone_lines(report), as_json=as_json)
        return stacks.exit_code(report)
    names = select(queue, patches or (), everything=everything)
    required = targets(require or ())
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


def _compare(queue: Queue, names: Sequence[str], releases: str, *, as_json: bool) -> int:
    """Run what Triton compiles of patches under two releases of it."""
    from contribbot.hardware.triton import two_releases  # noqa: PLC0415  start-up time
    from contribbot.verify.two_tritons import compare_releases  # noqa: PLC0415  the same

    def started(what: str) -> None:
        echo(f"verify: {what}", stderr=True)

    found = compare_releases(queue, names, two_releases(releases), started)
    print_report(found, comparison_lines(found), as_json=as_json)
    return found.exit_code


_SHOWN: Final = 8


def alone_lines(report: StackReport) -> list[str]:
    """Return the table of stacks, members, and what fails without each."""
    lines = [f"{top}: not clear: {clean(why)}" for top, why in report.untold.items()]
    shares = report.shares
    rows = [(share.top, f"without {share.without}", _lost(share)) for share in shares]
    heads = lines_of([Table(rows)])
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


def comparison_lines(found: TritonComparison) -> Iterator[Block]:
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


def _pair_lines(pair: EntryPair, releases: tuple[str, str]) -> Iterator[Block]:
    before, now = pair.before, pair.now
    outcome = " -> ".join(dict.fromkeys((before.outcome, now.outcome)))
    line = clean(f"{now.patch} {now.stage} {now.entry} {now.target}: {outcome}")
    yield StateText(line)
    for release, run in zip(releases, (before, now), strict=True):
        if run.unsteady:
            many = count(len(run.unsteady), "test")
            yield clean(f"  triton {release}: bits of {many} differ from run to run: not compared")
        if run.outcome is not Outcome.PASSED:
            yield clean(f"  triton {release}: {run.reason}")
    if pair.rows:
        yield from indented(row_blocks("", pair.rows))
    for test, kernels in pair.other_bits.items():
        yield clean(f"  other bits of {', '.join(kernels)}: {test}")
    if pair.same_bits:
        yield f"  {count(pair.same_bits, 'test')} left the same bits"
