"""`contribbot evidence`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from contribbot.cli.command import PATCH, Reply, argument, command, open_patch, open_queue
from contribbot.cli.outcomes import outcome_blocks
from contribbot.cli.render import Block, StateText, Table, count, pairs
from contribbot.github.auth import find_server
from contribbot.model.base import Model
from contribbot.model.evidence import Details, PatchReport, Statement, Verdict
from contribbot.queue.load import Queue
from contribbot.verify.evidence import (
    Record,
    State,
    compare_with_remote,
    missing,
    read_records,
    removed_records,
    triton_releases,
)
from contribbot.verify.verdict import too_noisy, verdict_rest


@command("evidence show rmsnorm")
def show(patch: str = PATCH) -> Reply:
    """Show the records of a patch: what was seen, where and when, and what is open."""
    queue, name = open_patch(patch)
    listed = _listed(queue, read_records(queue, queue.evidence, name))
    return Reply(listed, show_blocks(name, listed))


@command("evidence check --json")
def check() -> Reply:
    """Show which records are fresh, stale, tampered, removed or foreign; exit 1 unless all hold."""
    queue = open_queue()
    local = read_records(queue, queue.evidence)
    records = [compare_with_remote(queue, record) for record in local]
    records += removed_records(queue, local)
    listed = _listed(queue, records)
    good = {record.state for record in records} <= {State.FRESH, State.RETIRED}
    return Reply(listed, check_blocks(listed), 0 if good and not listed.missing else 1)


@command("evidence report")
def report(
    folder: Path = argument(
        "DIR",
        "The folder for the pages: a new one, an empty one, or one that holds a report.",
        Path("site"),
        default="site",
    ),
) -> Reply:
    """Write the queue as static pages: what each patch is for, what ran where, what did not."""
    from contribbot.report.site import make_report  # noqa: PLC0415  start-up time

    made = make_report(open_queue(), folder)
    states = [f"{number} {state}" for state, number in made.records.items() if number]
    where = f"{made.folder}/index.html: {count(len(made.pages), 'page')}"
    lines = [f"{where}; records: {', '.join(states) or 'none'}"]
    lines += [f"  no fresh record: {name}" for name in made.missing]
    return Reply(made, lines)


class RecordView(Model):
    """An evidence record, its state, and why the record has this state."""

    file: str
    state: str
    why: str
    statement: Statement | None


class RecordList(Model):
    """The document of `evidence show --json` and `evidence check --json`."""

    records: tuple[RecordView, ...]
    missing: tuple[str, ...]


def _listed(queue: Queue, records: Sequence[Record]) -> RecordList:
    """Return the list of records, each with its path in the queue."""
    views = []
    for record in records:
        path, folder = record.path, queue.folder
        path = path.relative_to(folder) if path.is_relative_to(folder) else path
        # Write bytes of a name that are not UTF-8 as escapes.
        file, state = str(path).encode("utf-8", "backslashreplace").decode(), str(record.state)
        views.append(RecordView(file=file, state=state, why=record.why, statement=record.statement))
    return RecordList(records=tuple(views), missing=tuple(missing(queue, [*records])))


def check_blocks(listed: RecordList) -> list[Block]:
    """Return a row for each record, and for each patch without a fresh record."""
    rows = []
    for record in listed.records:
        details = record.statement.predicate.contribbot if record.statement else None
        why = record.why
        if record.state == State.FRESH and details and details.verdict is Verdict.INCOMPLETE:
            rest = verdict_rest(PatchReport.of_record(details), where="there")
            why = f"{why}; {rest.removeprefix(': ')}"
        rows.append((StateText(record.state), f"{record.file}: {why}"))
    rows += [(StateText("missing"), f"{name}: no fresh record") for name in listed.missing]
    return [Table(rows, ("state", "record"))] if rows else ["no records"]


def show_blocks(patch: str, listed: RecordList) -> list[Block]:
    """Return the records of a patch in full."""
    if not listed.records:
        return [f"{patch}: no record; make one with `contribbot verify {patch}`"]
    blocks: list[Block] = []
    for record in listed.records:
        blocks += [StateText(f"{record.file}: {record.state} ({record.why})")]
        if record.statement is not None:
            blocks += _details_blocks(record.statement.predicate.contribbot)
        blocks += [""]
    return blocks[:-1]


def _details_blocks(details: Details) -> list[Block]:
    machine, run, container = details.machine, details.run, details.container
    gpus = ", ".join(f"{gpu.name} ({gpu.target})" for gpu in machine.gpus) or "no GPU"
    # The kernels may be compiled with another release of Triton than the installed one.
    releases = triton_releases(details.stages)
    packages = machine.packages | ({"triton": releases} if releases else {})
    versions = ", ".join(f"{name} {version}" for name, version in packages.items())
    rows = [
        ("seen", [f"{details.finished:%Y-%m-%d %H:%M} UTC by contribbot {details.tool}"]),
        ("machine", [f"{machine.system}, {machine.cpu}, {gpus}"]),
        ("with", [f"{machine.python}, git {machine.git}, {versions}"]),
        ("base", [f"{details.upstream} {details.pin}, commit {details.base_commit[:12]}"]),
    ]
    # A record's run and container come from the job: contribbot cannot see either itself.
    if run:
        which = f"{run.repository} run {run.run_id}, attempt {run.attempt}"
        page = f"{find_server().web}/{run.repository}/actions/runs/{run.run_id}"
        rows.append(("run", [f"job {run.job} of {which}, as given to the job", page]))
    if container:
        flags = " ".join(container.flags) or "no flags"
        rows.append(("in", [f"{container.image}, as given to the job", f"with {flags}"]))
    rows.append(("again", [details.command]))
    noisy = {f"{result.stage}:{result.target}" for result in details.stages if too_noisy(result)}
    open_targets = ((t, "too noisy to tell" if t in noisy else "not run") for t in details.open)
    return [
        pairs(rows),
        *outcome_blocks("", details.stages),
        *(f"  {words} on {target}" for target, words in open_targets),
    ]
