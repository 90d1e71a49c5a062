"""`contribbot runners`."""

from __future__ import annotations

import contextlib
import json
import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer
from pydantic import JsonValue
from rich.console import Group, RenderableType
from rich.live import Live
from rich.text import Text

from contribbot.cli.command import (
    JsonOption,
    PatchesArgument,
    argument,
    command,
    flag,
    live_lines,
    open_queue,
    option,
    print_json,
    print_lines,
    print_notes,
    print_report,
    target_names,
)
from contribbot.cli.live import console
from contribbot.cli.outcomes import append_summary
from contribbot.cli.text import STYLES, clean, code, count, escape, table
from contribbot.errors import ContribbotError, ExitCode, QueueError, UsageError
from contribbot.files import write_named
from contribbot.queue.load import select
from contribbot.runners import workflows as queue_workflows
from contribbot.runners.collect import exit_code, gather, gather_again
from contribbot.runners.dispatch import (
    Dispatched,
    DispatchedJob,
    QueueState,
    Selection,
    Sender,
    View,
    sending,
)
from contribbot.runners.documents import (
    Again,
    CellEnd,
    CellState,
    CiJob,
    Collected,
    JobDone,
    Kind,
    Plan,
)
from contribbot.runners.plan import make_plan
from contribbot.runners.run_job import work
from contribbot.runners.workflows import Standing, Workflow, Workflows

if TYPE_CHECKING:
    from github.WorkflowRun import WorkflowRun


@command
def matrix(
    context: typer.Context,
    patches: PatchesArgument = None,
    everything: Annotated[bool, flag("--all", "Also run what a fresh record answers.")] = False,
    on: Annotated[
        list[str] | None,
        option("SET", "Only these runners, by name of the set, target or label."),
    ] = None,
    output: Annotated[Path | None, option("FILE", "Write the plan there, too.")] = None,
    as_json: JsonOption = False,
) -> None:
    """Plan which runner proves what: jobs, what has no runner, and what is fresh."""
    queue = open_queue(context, *(patches or ()))
    names = select(queue, patches or (), everything=not patches)
    outputs = os.environ.get("GITHUB_OUTPUT")
    plan = make_plan(
        queue, names, everything=everything, on=on or (), for_a_run=bool(outputs or output)
    )
    if output is not None:
        write_named(output, (plan.model_dump_json(indent=2) + "\n").encode())
    if outputs:
        append_outputs(Path(outputs), plan)
    print_report(plan, matrix_lines(plan), as_json=as_json)


@command
def install(
    context: typer.Context,
    check: Annotated[
        bool, flag("--check", "Write nothing; show what differs, and fail if anything does.")
    ] = False,
    force: Annotated[bool, flag("--force", "Replace files that were changed by hand.")] = False,
    branch: Annotated[
        str,
        option(
            "NAME",
            "The queue's main branch.",
            default="what the installed workflows name, else main",
        ),
    ] = "",
    as_json: JsonOption = False,
) -> int:
    """Write .github/workflows/ for this queue's runners: verify, rebase, open-pr."""
    if check and force:
        raise UsageError("--check writes nothing, and --force is for writing", hint="give one")
    queue = open_queue(context)
    if check:
        these = queue_workflows.look(queue, branch=branch)
    else:
        these = queue_workflows.install(queue, branch=branch, force=force)
    lines = workflow_lines(these, written=not check)
    print_report(Workflows(written=not check, workflows=these), lines, as_json=as_json)
    return int(check and any(each.standing is not Standing.CURRENT for each in these))


@command
def run(
    context: typer.Context,
    output: Annotated[
        Path, argument("DIR", "Where records and job.json go.", default="answer")
    ] = Path("answer"),
    as_json: JsonOption = False,
) -> int:
    """Do the work of one job, on its runner; verify.yml calls it."""
    queue = open_queue(context)
    summary = os.environ.get("GITHUB_STEP_SUMMARY")
    cores = len(os.sched_getaffinity(0))
    with live_lines(stderr=as_json) as lines:
        done = work(
            queue, output, jobs=cores, watcher=lines,
            told=lambda report: append_summary(Path(summary), [report]) if summary else None,
        )  # fmt: skip
    print_report(done, done_lines(done), as_json=as_json)
    return done.exit_code


@command
def pin(
    context: typer.Context,
    ours: Annotated[
        str,
        option(
            "URL",
            "contribbot's own wheel, where no index has it: https://….whl#sha256=….",
            "--contribbot",
        ),
    ] = "",
    as_json: JsonOption = False,
) -> None:
    """Write what runners install: the versions that are installed here, by their digests."""
    pinned = queue_workflows.pin(open_queue(context), ours=ours)
    without = ", ".join(sorted(queue_workflows.LEFT_OUT))
    count = f"{pinned.packages} packages; left to the runner's image: {without}"
    lines = [f"{queue_workflows.REQUIREMENTS}: {count}"]
    if pinned.wheel:
        lines.append(f"{pinned.wheel}: contribbot as it is installed here; commit it, too")
    print_report(pinned, lines, as_json=as_json)
    print_notes([pinned.note] if pinned.note else [])


@command
def dispatch(
    context: typer.Context,
    patches: PatchesArgument = None,
    ref: Annotated[
        str, option("BRANCH", "The branch of the queue to test.", default="the default branch")
    ] = "",
    target: Annotated[
        list[str] | None,
        option("TARGET", "Only this one: gfx942, ….", default="all", complete=target_names),
    ] = None,
    resume: Annotated[
        int | None, typer.Option(metavar="RUN", min=1, help="Watch a run that was started.")
    ] = None,
    as_json: JsonOption = False,
) -> int:
    """Start a run of verify.yml on GitHub, and watch it; interrupted, it goes on there."""
    if resume is not None and (patches or target or ref):
        raise UsageError("--resume starts nothing", hint="name either a run or what to prove")
    queue = open_queue(context, *(patches or ()))
    asked = resume or Selection.of(queue, patches or (), target or (), ref)

    def say(lines: list[str]) -> None:
        print_lines(lines, stderr=as_json)

    with sending(queue) as sender:
        try:
            run_id = _start(sender, asked, say) if isinstance(asked, Selection) else asked
            with board(say, stderr=as_json) as watcher:
                ended = sender.watch(run_id, watcher=watcher)
        except KeyboardInterrupt:
            print_notes(left_lines(sender) or ["nothing was started"])
            return ExitCode.INTERRUPTED
        except ContribbotError:
            print_notes(left_lines(sender))
            raise
    say(over_lines(ended))
    if as_json:
        print_json(ended)
    return ended.exit_code


def _start(sender: Sender, asked: Selection, say: Callable[[list[str]], None]) -> int:
    """Start a run, say which, and end those that it makes pointless."""
    selection = sender.on_branch(asked)
    state = sender.state(selection)
    say(state_lines(state))
    run = sender.start(selection)
    say(started_lines(run, state))
    ended = sender.supersede(selection, run)
    say([f"ended run {each.id}, which this one replaces" for each in ended])
    return run.id


@command
def collect(
    context: typer.Context,
    run: Annotated[
        int | None, typer.Argument(metavar="RUN", min=1, help="Its number.", show_default=False)
    ] = None,
    folder: Annotated[
        Path | None,
        option("DIR", "Take the run's zips from there; GitHub says what they are.", "--from"),
    ] = None,
    again: Annotated[
        bool,
        flag("--again", "Keep nothing; say what runners failed so far, and plan second tries."),
    ] = False,
    as_json: JsonOption = False,
) -> int:
    """Fetch what a run of verify.yml left, judge it, and keep the records that are good."""
    if run is None and folder is None:
        raise UsageError(
            "neither a run nor --from", hint="name the run's number, which its page has"
        )
    if folder is not None and not folder.is_dir():
        raise UsageError(f"{folder}: no such folder", hint="name the one that holds the run's zips")
    queue = open_queue(context)
    if again:
        tries = gather_again(queue, run, folder=folder)
        if outputs := os.environ.get("GITHUB_OUTPUT"):
            append_again(Path(outputs), tries.jobs)
        print_report(tries, again_lines(tries), as_json=as_json)
        return 0
    collected = gather(queue, run, folder=folder)
    print_report(collected, collect_lines(collected), as_json=as_json)
    if outputs := os.environ.get("GITHUB_OUTPUT"):
        # Whether runners failed, and no patch did.
        _append(Path(outputs), {"runners_failed": str(collected.runners_failed).lower()}, ())
    if summary := os.environ.get("GITHUB_STEP_SUMMARY"):
        append_collected(Path(summary), collected)
    return exit_code(collected).value


_SHOWN: Final = 12
_CHARACTERS: Final = 300
_ORDER: Final = (
    CellState.REFUTED, CellState.REFUSED, CellState.FAILED, CellState.TIMED_OUT,
    CellState.CANCELLED, CellState.MISSING, CellState.FAULT, CellState.INCOMPLETE,
    CellState.RUNNING, CellState.OPEN, CellState.SIMULATED, CellState.PROVED,
)  # fmt: skip


def _grid(cells: Iterable[CellEnd]) -> list[tuple[str, ...]]:
    """Return patch, target, ROCm version, what became of each cell and why; safe to print."""
    ordered = sorted(cells, key=lambda cell: (_ORDER.index(cell.state), cell.patch, cell.target,
                                              cell.rocm, cell.kind))  # fmt: skip
    return [
        (clean(cell.patch), clean(f"compile:{cell.target}" if cell.kind == "compile"
                                  else cell.target),
         clean(cell.rocm) or "-", str(cell.state),
         _short(f"fresh: {cell.why}" if cell.fresh else cell.why))
        for cell in ordered
    ]  # fmt: skip


def _short(text: str) -> str:
    line = clean(text)
    return line if len(line) <= _CHARACTERS else f"{line[: _CHARACTERS - 1]}…"


def collect_lines(collected: Collected) -> list[str]:
    """Return the grid, what became of records and artifacts, and what else must be known."""
    lines = table(_grid(collected.cells))
    written = [each for each in collected.records if each.merged in {"new", "replaced"}]
    lines += [f"record {each.merged}: {each.path}: {each.why}" for each in written[:_SHOWN]]
    if more := len(written[_SHOWN:]):
        lines.append(f"and {count(more, 'more record')}")
    lines += [
        f"record {each.merged}: {each.path} (from {each.job}): {each.why}"
        for each in collected.records
        if each.merged in {"kept", "refused"}
    ]
    lines += [f"refused {each.name!a}: {each.refused}"
              for each in collected.artifacts if each.refused]  # fmt: skip
    attested = Counter(each.attested for each in collected.artifacts if each.attested)
    lines += [f"{words} ({count(number, 'artifact')})" for words, number in attested.items()]
    lines += [*collected.notes, closing(collected)]
    return [_short(line) for line in lines]


def closing(collected: Collected) -> str:
    """Return the last line."""
    counted = Counter(cell.state for cell in collected.cells)
    states = ", ".join(f"{counted[state]} {state}" for state in _ORDER[::-1] if counted[state])
    about = f"run {collected.run}" if collected.run else "no run"
    whole = "not all passed"
    if collected.complete:
        whole = "all that was planned came and passed"
    elif collected.runners_failed:
        whole = "runners failed, and no patch did; what they had is not known"
    return f"{about}: {states or 'no cells'}: {whole}"


def again_lines(again: Again) -> list[str]:
    """Return which cells runners failed, and where each is tried once more."""
    where = {cell.key: f"{job.id} on {job.runners}" for job in again.jobs for cell in job.cells}
    lines = [
        f"{cell.job}: {cell.key}: {where.get(cell.key, 'not tried again')}: {cell.why}"
        for cell in sorted(again.cells, key=lambda cell: cell.key)
    ]
    tries = "1 job tries" if len(again.jobs) == 1 else f"{len(again.jobs)} jobs try"
    last = f"{tries} {count(len(where), 'cell')} once more" if where else "nothing to try again"
    return [_short(line) for line in (*lines, *again.notes, last)]


def append_collected(path: Path, collected: Collected) -> None:
    """Add the grid to the step summary that Actions shows."""
    lines = [f"### {escape(_short(closing(collected)))}", ""]
    if collected.cells:
        lines += ["| patch | target | ROCm | outcome | why |", "|---|---|---|---|---|"]
        lines += [f"| {' | '.join(map(escape, row))} |" for row in _grid(collected.cells)]
    notes = [
        *(f"refused {each.name!a}: {each.refused}" for each in collected.artifacts if each.refused),
        *(f"{each.path}: {each.merged}: {each.why}" for each in collected.records
          if each.merged in {"kept", "refused"}),
        *collected.notes,
    ]  # fmt: skip
    lines += ["", *(f"- {escape(_short(note))}" for note in notes), ""]
    with path.open("a", encoding="utf-8") as file:
        file.write("\n".join(lines) + "\n")


def view_lines(view: View) -> list[str]:
    """Return what changed, and how many cells are where."""
    lines = []
    for job in view.changed:
        where = f" on {job.runner}" if job.runner else ""
        cells = f": {_listed(job.cells)}" if job.cells else ""
        lines.append(f"{job.name}: {job.state}{where}{cells}")
    if view.cells:
        lines.append(_count_line(view))
    return [clean(line) for line in lines]


def _count_line(view: View) -> str:
    """Say how many cells are where; where the plan is not known, how many jobs."""
    counts = dict(view.cells) or Counter(job.state for job in view.jobs)
    what = "cells, as their jobs are" if view.cells else "jobs"
    return f"{what}: {', '.join(f'{many} {state}' for state, many in sorted(counts.items()))}"


def state_lines(state: QueueState) -> list[str]:
    """Return how a run that is to be started will differ from the queue here."""
    lines = []
    if state.there and state.there != state.here:
        lines.append(f"the run proves {state.ref} at {state.there[:12]}; {_here(state.here)}")
    if state.uncommitted:
        first, *others = state.uncommitted
        more = f" and {len(others)} more" if others else ""
        lines.append(f"not committed, so not in the run: {first}{more}")
    return [clean(line) for line in lines]


def started_lines(run: WorkflowRun, state: QueueState) -> list[str]:
    """Return which run was started, and of which commit where that was not said before."""
    lines = [f"run {run.id}: {run.html_url}"]
    if run.head_sha not in {state.here, state.there}:
        lines.append(f"it is of {run.head_branch} at {run.head_sha[:12]}; {_here(state.here)}")
    return [clean(line) for line in lines]


def _here(commit: str) -> str:
    return f"the queue here is at {commit[:12] or 'no commit'}"


def left_lines(sender: Sender) -> list[str]:
    """Return what goes on, or may, when nobody watches any more; nothing where nothing does."""
    if sender.run_id is not None:
        run = sender.run_id
        return [
            f"the run goes on; watch it again: contribbot runners dispatch --resume {run}",
            f"when it is over: contribbot runners collect {run}",
        ]
    if sender.request:
        return [f"a run named {sender.request} may have been started: {sender.page}"]
    return []


def over_lines(ended: Dispatched) -> list[str]:
    """Return how a run ended, by what judged it, and what is next."""
    words = ended.conclusion
    if ended.collect:
        words = f"collect: {ended.collect}"
        words += ", so all that was planned came and passed" if ended.passed else ""
        words += ": runners failed, and no patch did" if ended.runners_failed else ""
        if ended.conclusion != ended.collect:
            words += f" (GitHub marks the run {ended.conclusion})"
    return [
        clean(f"run {ended.run} is over: {words}"),
        f"what each cell shows: contribbot runners collect {ended.run}",
    ]


_LISTED: Final = 4
#: Bytes of all outputs of a job, which GitHub counts in UTF-16 (its docs, "Passing information
#: between jobs": 1 MB).
_MOST: Final = 1_000_000


def matrix_rows(jobs: Iterable[CiJob]) -> list[dict[str, JsonValue]]:
    """Return the rows of a matrix (`include`), one for each job."""
    return [
        {
            "id": job.id, "artifact": job.artifact, "labels": list(job.labels), "image": job.image,
            "options": " ".join(job.flags), "minutes": job.minutes,
            "asks": [{"patch": patch, "require": list(need)} for patch, need in job.asks.items()],
        }
        for job in jobs
    ]  # fmt: skip


def append_outputs(path: Path, plan: Plan) -> None:
    """Add `compile`, `gpu` and `any` to the outputs of a step of Actions."""
    kinds: tuple[Kind, ...] = ("compile", "gpu")
    outputs: dict[str, str] = {kind: _compact(plan.of_kind(kind)) for kind in kinds}
    _append(path, {**outputs, "any": "true" if plan.jobs else "false"}, plan.jobs)


def append_again(path: Path, jobs: Sequence[CiJob]) -> None:
    """Add `again`, the matrix of second tries, to the outputs of a step of Actions."""
    _append(path, {"again": _compact(jobs)}, jobs)


def _compact(jobs: Iterable[CiJob]) -> str:
    # One line: there is nothing in it that could end a line.
    return json.dumps(matrix_rows(jobs), separators=(",", ":"))


def _append(path: Path, outputs: Mapping[str, str], jobs: Sequence[CiJob]) -> None:
    size = sum(2 * len(value) for value in outputs.values())
    if size > _MOST:
        raise QueueError(
            f"{count(len(jobs), 'job')} for {count(sum(len(job.cells) for job in jobs), 'cell')} "
            f"take {size:,} bytes as outputs, of {_MOST:,} that GitHub hands on",
            hint="plan less in one run: name patches, or some sets with --on SET, or take away a "
            "[[runners.rocm]]",
        )
    with path.open("a", encoding="utf-8") as file:
        file.write("".join(f"{name}={value}\n" for name, value in outputs.items()))


def matrix_lines(plan: Plan) -> list[str]:
    """Return the jobs, what is open and what is fresh."""
    lines = table(
        [
            (job.id, f"{count(len(job.cells), 'cell')} on {job.runners}: {_listed(job.patches)}")
            for job in plan.jobs
        ]
    )
    lacking: dict[tuple[str, str], dict[str, None]] = {}
    for cell in plan.open:
        what = f"compile:{cell.target}" if cell.kind == "compile" else cell.target
        lacking.setdefault((what, cell.reason), {})[cell.patch] = None
    # Where no runners are known, there is only what waits for which target.
    lines += [
        f"{f'open  {what}: {reason}' if plan.runners else f'waits for {what}'}: "
        f"{_listed(tuple(patches))}"
        for (what, reason), patches in lacking.items()
    ]
    lines += [
        f"fresh  {cell.patch} {'compiled for ' if cell.kind == 'compile' else ''}{cell.target} "
        f"ROCm {cell.rocm or '?'}: {cell.says} ({cell.record})"
        for cell in plan.fresh
    ]
    if plan.without:
        lines.append(f"no AMD target asked for: {', '.join(plan.without)}")
    lines.append(_last_line(plan))
    return [clean(line) for line in lines]


def _last_line(plan: Plan) -> str:
    if not plan.runners:
        return (
            "no runners.toml says which runners there are (docs/runners.md has one to copy); on a "
            "machine with the GPU: contribbot verify NAME --require TARGET"
            if plan.open
            else "nothing waits for an AMD GPU"
        )
    if not plan.cells:
        return "nothing to run"
    return f"{count(len(plan.jobs), 'job')} for {count(len(plan.cells), 'cell')}"


def _listed(names: Sequence[str]) -> str:
    shown, more = ", ".join(names[:_LISTED]), len(names) - _LISTED
    return f"{shown} and {more} more" if more > 0 else shown


_DONE: Final = {
    Standing.CURRENT: "as it was",
    Standing.MISSING: "written",
    Standing.OUTDATED: "brought up to date",
    Standing.EDITED: "written; what was changed by hand is gone",
}


def workflow_lines(workflows: Sequence[Workflow], *, written: bool) -> list[str]:
    """Return what installing did; or how workflows stand, and what installing would change."""
    if written:
        return [f"{each.path}: {_DONE[each.standing]}" for each in workflows]
    return [
        line for each in workflows for line in (f"{each.path}: {each.standing}", *code(each.diff))
    ]


def done_lines(done: JobDone) -> list[str]:
    """Return how a job ended."""
    asked = {entry.patch: entry.require for entry in done.asked}
    lines = []
    for patch in done.patches:
        end = patch.error or (f"exit code {patch.exit_code}" if patch.exit_code else "proved")
        lines.append(f"{patch.patch}: {', '.join(asked.get(patch.patch, ()))}: {end}")
        lines += [
            f"  {each.stage} on {each.target}: the runner is at fault: "
            f"{each.fault.kind}: {each.fault.said}"
            for each in patch.faults
        ]
    return [clean(line) for line in lines]


_BOARD_ORDER: Final = (
    "in progress", "failure", "timed out", "cancelled", "queued", "success", "skipped",
)  # fmt: skip
#: Lines that are no jobs: how many more there are, the counts, and where the cursor stays.
_OTHERS: Final = 3


@contextlib.contextmanager
def board(say: Callable[[list[str]], None], *, stderr: bool) -> Iterator[Callable[[View], None]]:
    """Give what tells of a run: a board on a terminal, and elsewhere lines of what changed."""
    out = console(stderr=stderr)
    if not out.is_terminal or out.is_dumb_terminal:
        yield lambda view: say(view_lines(view))
        return
    views: list[View] = []

    def screen() -> RenderableType:
        if not views:
            return Text("waiting for the first job")
        # What nobody knows yet stands where it can be seen.
        rank = {state: number for number, state in enumerate(_BOARD_ORDER)}
        jobs = sorted(views[-1].jobs, key=lambda job: rank.get(job.state, 0))
        return _drawn(views[-1], jobs[: max(1, out.size.height - _OTHERS)], cut=True)

    drawing = Live(console=out, get_renderable=screen, refresh_per_second=2, transient=True)
    try:
        with drawing:
            yield views.append
    finally:
        # What it looked like in the end stays.
        if views:
            out.print(_drawn(views[-1], views[-1].jobs, cut=False))


def _drawn(view: View, jobs: Sequence[DispatchedJob], *, cut: bool) -> RenderableType:
    """Return a line a job, and the counts. What matters most stands where nothing is cut off."""
    now = datetime.now(UTC)
    rows = [(clean(job.state), _time(job, now), clean(job.name), clean(job.runner),
             clean(_listed(job.cells))) for job in jobs]  # fmt: skip
    lines = [Text(line) for line in table(rows)]
    for line, (state, *_) in zip(lines, rows, strict=True):
        line.stylize(STYLES.get(state, ""), 0, len(state))
    if more := len(view.jobs) - len(jobs):
        lines.append(Text(f"and {more} more jobs"))
    lines.append(Text(clean(_count_line(view))))
    for line in lines:
        line.no_wrap, line.overflow = True, "ellipsis" if cut else "ignore"
    return Group(*lines)


def _time(job: DispatchedJob, now: datetime) -> str:
    """Return how long a job has been running, or ran; nothing of one that waits."""
    if job.started is None or not (job.ended or job.state == "in progress"):
        return ""
    # GitHub's clock may be ahead of the one here.
    seconds = max(0, round(((job.ended or now) - job.started).total_seconds()))
    return f"{seconds // 3600}:{seconds // 60 % 60:02}:{seconds % 60:02}"
