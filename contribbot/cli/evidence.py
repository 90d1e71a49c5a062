"""`contribbot evidence show`, `check` and `report`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from contribbot.cli.command import PATCH, Reply, argument, command, open_patch, open_queue
from contribbot.cli.outcomes import outcome_blocks
from contribbot.cli.render import Block, StateText, Table, count, pairs
from contribbot.github.auth import find_server
from contribbot.model.base import Model
from contribbot.model.evidence import Details, PatchReport, Statement, Verdict
from contribbot.queue.load import Queue
from contribbot.verify import evidence
from contribbot.verify.evidence import Record, State
from contribbot.verify.verdict import too_noisy, verdict_rest


@command("evidence show rmsnorm")
def show(patch: str = PATCH) -> Reply:
    """Show the records of a patch: what was seen, where and when, and what is open."""
    queue, name = open_patch(patch)
    records = evidence.read_records(queue, queue.evidence, name)
    blocks: list[Block] = []
    for record in records:
        blocks += [""] if blocks else []
        blocks.append(StateText(f"{_file(queue, record)}: {record.state} ({record.why})"))
        blocks += _details_blocks(record.details) if record.details else ()
    none = f"{name}: no record; make one with `contribbot verify {name}`"
    return Reply(_listed(queue, records), blocks or [none])


@command("evidence check --json")
def check() -> Reply:
    """Show which records are fresh, stale, tampered, removed or foreign; exit 1 unless all hold."""
    queue = open_queue()
    local = evidence.read_records(queue, queue.evidence)
    records = [evidence.compare_with_remote(queue, record) for record in local]
    records += evidence.removed_records(queue, local)
    listed = _listed(queue, records)
    rows = []
    for record, view in zip(records, listed.records, strict=True):
        details, why = record.details, record.why
        if record.state is State.FRESH and details and details.verdict is Verdict.INCOMPLETE:
            rest = verdict_rest(PatchReport.of_record(details), where="there")
            why = f"{why}; {rest.removeprefix(': ')}"
        rows.append((StateText(record.state), f"{view.file}: {why}"))
    rows += [(StateText("missing"), f"{name}: no fresh record") for name in listed.missing]
    good = {record.state for record in records} <= {State.FRESH, State.RETIRED}
    blocks = [Table(rows, ("state", "record"))] if rows else ["no records"]
    return Reply(listed, blocks, 0 if good and not listed.missing else 1)


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
    from contribbot.report import make_report  # noqa: PLC0415  start-up time

    made = make_report(open_queue(), folder)
    states = [f"{number} {state}" for state, number in made.records.items() if number]
    where = f"{made.folder}/index.html: {count(len(made.pages), 'page')}"
    lines = [f"{where}; records: {', '.join(states) or 'none'}"]
    return Reply(made, [*lines, *(f"  no fresh record: {name}" for name in made.missing)])


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


def _file(queue: Queue, record: Record) -> str:
    """Return a record's path in the queue; bytes that are not UTF-8 are escaped."""
    inside = record.path.is_relative_to(queue.folder)
    path = record.path.relative_to(queue.folder) if inside else record.path
    return str(path).encode("utf-8", "backslashreplace").decode()


def _listed(queue: Queue, records: Sequence[Record]) -> RecordList:
    """Return the JSON document of records, with the names of patches that have no fresh record."""
    views = tuple(
        RecordView(
            file=_file(queue, record),
            state=str(record.state),
            why=record.why,
            statement=record.statement,
        )
        for record in records
    )
    return RecordList(records=views, missing=tuple(evidence.missing(queue, [*records])))


def _details_blocks(details: Details) -> Iterator[Block]:
    """Yield a record's machine, versions, base and command, its outcomes, and its open targets."""
    machine, run, container = details.machine, details.run, details.container
    gpus = ", ".join(f"{gpu.name} ({gpu.target})" for gpu in machine.gpus) or "no GPU"
    # The kernels may be compiled with another release of Triton than the installed one.
    releases = evidence.triton_releases(details.stages)
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
    yield pairs([*rows, ("again", [details.command])])
    yield from outcome_blocks("", details.stages)
    noisy = {f"{result.stage}:{result.target}" for result in details.stages if too_noisy(result)}
    for target in details.open:
        yield f"  {'too noisy to tell' if target in noisy else 'not run'} on {target}"
