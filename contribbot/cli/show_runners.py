"""What a run left, as text: whatever a job sent is shown, and nothing of it is obeyed."""

from __future__ import annotations

import contextlib
import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from pydantic import JsonValue
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.text import Text

from contribbot.cli.live import console
from contribbot.cli.output import clean, escape, table
from contribbot.errors import QueueError
from contribbot.runners.dispatch import Dispatched, DispatchedJob, QueueState, Sender, View
from contribbot.runners.model import (
    Again,
    CellEnd,
    CellState,
    Collected,
    FreshCell,
    Job,
    JobDone,
    Kind,
    OpenCell,
    Plan,
    Run,
    Workflow,
)
from contribbot.runners.model import Standing as WorkflowStanding

_SHOWN: Final = 12
_CHARACTERS: Final = 300
#: What a reader looks for first.
_ORDER: Final = (
    CellState.REFUTED, CellState.REFUSED, CellState.FAILED, CellState.TIMED_OUT,
    CellState.CANCELLED, CellState.MISSING, CellState.FAULT, CellState.INCOMPLETE,
    CellState.RUNNING, CellState.OPEN, CellState.PROVED,
)  # fmt: skip


def _row(cell: CellEnd) -> tuple[str, str, str, str, str]:
    """Return patch, target, ROCm version, what became of it and why; safe to print."""
    target = f"compile:{cell.target}" if cell.kind == "compile" else cell.target
    why = f"fresh: {cell.why}" if cell.fresh else cell.why
    return (clean(cell.patch), clean(target), clean(cell.rocm) or "-", str(cell.state),
            _short(why))  # fmt: skip


def _short(text: str) -> str:
    line = clean(text)
    return line if len(line) <= _CHARACTERS else f"{line[: _CHARACTERS - 1]}…"


def _sorted(cells: Iterable[CellEnd]) -> list[CellEnd]:
    return sorted(cells, key=lambda one: (_ORDER.index(one.state), one.patch, one.target,
                                          one.rocm, one.kind))  # fmt: skip


def collect_lines(collected: Collected) -> list[str]:
    """Return the grid, what became of records and artifacts, and what else must be known."""
    lines = table([_row(one) for one in _sorted(collected.cells)])
    written = [one for one in collected.records if one.merged in {"new", "replaced"}]
    lines += [f"record {one.merged}: {one.path}: {one.why}" for one in written[:_SHOWN]]
    if len(written) > _SHOWN:
        more = len(written) - _SHOWN
        lines.append(f"and {more} more record{'s' * (more > 1)}")
    lines += [
        f"record {one.merged}: {one.path} (from {one.job}): {one.why}"
        for one in collected.records
        if one.merged in {"kept", "refused"}
    ]
    lines += [f"refused {one.name!a}: {one.refused}" for one in collected.artifacts if one.refused]
    attested = Counter(one.attested for one in collected.artifacts if one.attested)
    lines += [f"{said} ({count} artifact{'s' * (count > 1)})" for said, count in attested.items()]
    lines += collected.notes
    lines.append(closing(collected))
    return [_short(line) for line in lines]


def closing(collected: Collected) -> str:
    """Return the last line."""
    counted = Counter(one.state for one in collected.cells)
    said = ", ".join(f"{counted[state]} {state}" for state in _ORDER[::-1] if counted[state])
    about = f"run {collected.run}" if collected.run else "no run"
    whole = "not all passed"
    if collected.complete:
        whole = "all that was planned came and passed"
    elif collected.runners_failed:
        whole = "runners failed, and no patch did; what they had is not known"
    return f"{about}: {said or 'no cells'}: {whole}"


def again_lines(again: Again) -> list[str]:
    """Return which cells runners failed, and where each is tried once more."""
    where = {cell.key: job for job in again.jobs for cell in job.cells}
    lines = []
    for one in _sorted(again.cells):
        job = where.get(one.key)
        tried = f"{job.id} on {job.runners}" if job else "not tried again"
        lines.append(f"{one.job}: {one.key}: {tried}: {one.why}")
    jobs = "1 job tries" if len(again.jobs) == 1 else f"{len(again.jobs)} jobs try"
    closing = f"{jobs} {len(where)} {'cell' if len(where) == 1 else 'cells'} once more"
    lines += [*again.notes, closing if where else "nothing to try again"]
    return [_short(line) for line in lines]


def append_runners_failed(path: Path, collected: Collected) -> None:
    """Add `runners_failed`, whether runners failed and no patch did, to the outputs of a step."""
    with path.open("a", encoding="utf-8") as file:
        file.write(f"runners_failed={str(collected.runners_failed).lower()}\n")


def append_collected(path: Path, collected: Collected) -> None:
    """Add the grid to the step summary that Actions shows."""
    lines = [f"### {escape(_short(closing(collected)))}", ""]
    if collected.cells:
        lines += ["| patch | target | ROCm | outcome | why |", "|---|---|---|---|---|"]
        lines += [
            "| " + " | ".join(escape(text) for text in _row(one)) + " |"
            for one in _sorted(collected.cells)
        ]
    told = [
        *(f"refused {one.name!a}: {one.refused}" for one in collected.artifacts if one.refused),
        *(f"{one.path}: {one.merged}: {one.why}" for one in collected.records
          if one.merged in {"kept", "refused"}),
        *collected.notes,
    ]  # fmt: skip
    lines += ["", *(f"- {escape(_short(one))}" for one in told), ""]
    with path.open("a", encoding="utf-8") as file:
        file.write("\n".join(lines) + "\n")


def view_lines(view: View) -> list[str]:
    """Return what changed, and how many cells are where."""
    lines = []
    for job in view.changed:
        where = f" on {job.runner}" if job.runner else ""
        cells = cells_of(job)
        lines.append(f"{job.name}: {job.state}{where}{f': {cells}' if cells else ''}")
    if view.cells:
        lines.append(count_line(view))
    return [clean(line) for line in lines]


def cells_of(job: DispatchedJob) -> str:
    """Return the first cells of a job, and how many more it has."""
    return _listed(job.cells)


def count_line(view: View) -> str:
    """Say how many cells are where; where the plan is not known, how many jobs."""
    counts = dict(view.cells) or Counter(job.state for job in view.jobs)
    what = "cells, as their jobs are" if view.cells else "jobs"
    return f"{what}: {', '.join(f'{count} {state}' for state, count in sorted(counts.items()))}"


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


def started_lines(run: Run, state: QueueState) -> list[str]:
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
        run = f"{sender.run_id}{sender.named}"
        return [
            f"the run goes on; watch it again: contribbot dispatch --resume {run}",
            f"when it is over: contribbot collect {run}",
        ]
    if sender.request:
        return [f"a run named {sender.request} may have been started: {sender.page}"]
    return []


def over_lines(ended: Dispatched, named: str = "") -> list[str]:
    """Return how a run ended, by what judged it, and what is next."""
    said = ended.conclusion
    if ended.collect:
        said = f"collect: {ended.collect}"
        said += ", so all that was planned came and passed" if ended.passed else ""
        said += ": runners failed, and no patch did" if ended.runners_failed else ""
        if ended.conclusion != ended.collect:
            said += f" (GitHub marks the run {ended.conclusion})"
    return [
        clean(f"run {ended.run} is over: {said}"),
        f"what each cell shows: contribbot collect {ended.run}{named}",
    ]


_KINDS: Final[tuple[Kind, ...]] = ("compile", "gpu")
_MATRIX_SHOWN: Final = 4
#: Bytes of all outputs of a job, which GitHub counts in UTF-16 (its docs, "Passing information
#: between jobs": 1 MB).
_MOST: Final = 1_000_000


def matrix(plan: Plan, kind: Kind) -> list[dict[str, JsonValue]]:
    """Return the rows of a matrix (`include`), one for each job of a kind."""
    return [_matrix_row(job) for job in plan.of_kind(kind)]


def _matrix_row(job: Job) -> dict[str, JsonValue]:
    return {
        "id": job.id,
        "artifact": job.artifact,
        "labels": list(job.labels),
        "image": job.image,
        "options": " ".join(job.flags),
        "minutes": job.minutes,
        "asks": [{"patch": patch, "require": list(require)} for patch, require in job.asks.items()],
    }


def append_outputs(path: Path, plan: Plan) -> None:
    """Add `compile`, `gpu` and `any` to the outputs of a step of Actions."""
    outputs: dict[str, str] = {kind: _compact(matrix(plan, kind)) for kind in _KINDS}
    outputs["any"] = "true" if plan.jobs else "false"
    _append(path, outputs, plan.jobs)


def append_again(path: Path, jobs: Sequence[Job]) -> None:
    """Add `again`, the matrix of second tries, to the outputs of a step of Actions."""
    _append(path, {"again": _compact([_matrix_row(job) for job in jobs])}, jobs)


def _compact(rows: list[dict[str, JsonValue]]) -> str:
    # One line: there is nothing in it that could end a line.
    return json.dumps(rows, separators=(",", ":"))


def _append(path: Path, outputs: Mapping[str, str], jobs: Sequence[Job]) -> None:
    size = sum(2 * len(value) for value in outputs.values())
    if size > _MOST:
        raise QueueError(
            f"{_count(len(jobs), 'job')} for {_count(sum(len(job.cells) for job in jobs), 'cell')} "
            f"take {size:,} bytes as outputs, of {_MOST:,} that GitHub hands on",
            hint="plan less in one run: name patches, or some sets with --on SET, or take away a "
            "[[runners.rocm]]",
        )
    with path.open("a", encoding="utf-8") as file:
        file.write("".join(f"{name}={value}\n" for name, value in outputs.items()))


def matrix_lines(plan: Plan) -> list[str]:
    """Return the jobs, what is open, what is fresh and how busy the runners are."""
    what = [
        f"{_count(len(job.cells), 'cell')}, about {duration(job.seconds)} on {job.runners}"
        for job in plan.jobs
    ]
    lines = table([
        (job.id, f"{said}: {_listed(job.patches)}")
        for job, said in zip(plan.jobs, what, strict=True)
    ])  # fmt: skip
    lines += _open_lines(plan.open, known=bool(plan.loads))
    lines += _fresh_lines(plan.fresh)
    if plan.without:
        lines.append(f"no AMD target asked for: {', '.join(plan.without)}")
    lines += [
        f"{load.runners}: {_count(load.jobs, 'job')} on {_count(load.count, 'runner')}, the last "
        f"ends after about {duration(load.seconds)} (no order ends before {duration(load.bound)})"
        for load in plan.loads
        if load.jobs
    ]
    lines.append(_closing(plan))
    return [clean(line) for line in lines]


def _open_lines(cells: Iterable[OpenCell], *, known: bool) -> list[str]:
    """Say what has no runner; where no runners are known, what waits for which target."""
    grouped: dict[tuple[str, str], dict[str, None]] = {}
    for one in cells:
        what = f"compile:{one.target}" if one.kind == "compile" else one.target
        grouped.setdefault((what, one.reason), {})[one.patch] = None
    return [
        f"open  {what}: {reason}: {_listed(tuple(patches))}"
        if known
        else f"waits for {what}: {_listed(tuple(patches))}"
        for (what, reason), patches in grouped.items()
    ]


def _fresh_lines(cells: Iterable[FreshCell]) -> list[str]:
    return [
        f"fresh  {one.patch} {'compiled for ' if one.kind == 'compile' else ''}{one.target} "
        f"ROCm {one.rocm or '?'}: {one.says} ({one.record})"
        for one in cells
    ]


def _closing(plan: Plan) -> str:
    cells = plan.cells
    if not plan.loads:
        return (
            "no runners.toml says which runners there are (docs/runners.md has one to copy); on a "
            "machine with the GPU: contribbot verify NAME --require TARGET"
            if plan.open
            else "nothing waits for an AMD GPU"
        )
    if not cells:
        return "nothing to run"
    said = f"{_count(len(plan.jobs), 'job')} for {_count(len(cells), 'cell')}"
    guessed = sum(cell.estimate == "default" for cell in cells)
    others = sum(cell.estimate == "other records" for cell in cells)
    parts = []
    if others:
        parts.append(f"{others} from other records")
    if guessed:
        parts.append(f"{guessed} by default, as no record tells")
    return f"{said}; times: {', '.join(parts) or 'from records of the same'}"


def _count(number: int, what: str) -> str:
    return f"{number:,} {what}" if number == 1 else f"{number:,} {what}s"


def _listed(names: tuple[str, ...]) -> str:
    shown = ", ".join(names[:_MATRIX_SHOWN])
    more = len(names) - _MATRIX_SHOWN
    return f"{shown} and {more} more" if more > 0 else shown


def duration(seconds: float) -> str:
    """Return a time as people say it, such as `2 h 05 min`."""
    minutes = round(seconds / 60)
    if minutes < 1:
        return f"{seconds:.0f} s"
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02} min" if hours else f"{minutes} min"


_DONE = {
    WorkflowStanding.CURRENT: "as it was",
    WorkflowStanding.MISSING: "written",
    WorkflowStanding.OUTDATED: "brought up to date",
    WorkflowStanding.EDITED: "written; what was changed by hand is gone",
}


def installed_lines(workflows: Sequence[Workflow]) -> list[str]:
    """Return what installing did."""
    return [f"{one.path}: {_DONE[one.standing]}" for one in workflows]


def checked_lines(workflows: Sequence[Workflow]) -> list[str]:
    """Return how workflows stand, and what installing would change."""
    lines = []
    for one in workflows:
        lines.append(f"{one.path}: {one.standing}")
        lines += [clean(row) for row in one.diff]
    return lines


def done_lines(done: JobDone) -> list[str]:
    """Return how a job ended."""
    asked = {one.patch: one.require for one in done.asked}
    lines = []
    for one in done.patches:
        said = one.error or ("proved" if one.exit_code == 0 else f"exit code {one.exit_code}")
        lines.append(f"{one.patch}: {', '.join(asked.get(one.patch, ()))}: {said}")
        lines += [
            f"  {each.stage} on {each.target}: the runner is at fault: "
            f"{each.fault.kind}: {each.fault.said}"
            for each in one.faults
        ]
    return [clean(line) for line in lines]


#: What is looked at first; a screen may not have room for all.
_BOARD_ORDER: Final = (
    "in progress", "failure", "timed out", "cancelled", "queued", "success", "skipped",
)  # fmt: skip
#: The word is always there.
_STYLES: Final = {"success": "green", "failure": "bold red", "timed out": "bold red",
                  "cancelled": "yellow", "queued": "dim", "skipped": "dim"}  # fmt: skip
#: Lines that are no jobs: how many more there are, the counts, and where the cursor stays.
_OTHERS: Final = 3


class Board:
    """The jobs of a run, one a line."""

    def __init__(self, out: Console) -> None:
        self._out = out
        self._view: View | None = None

    def told(self, view: View) -> None:
        """Take what changed; it is drawn when the time has come."""
        self._view = view

    @contextlib.contextmanager
    def shown(self) -> Iterator[None]:
        """Draw while the block runs, and leave below what it looked like in the end."""
        drawing = Live(console=self._out, get_renderable=self._screen, refresh_per_second=2,
                       transient=True)  # fmt: skip
        try:
            with drawing:
                yield
        finally:
            if self._view is not None:
                self._out.print(_drawn(self._view, self._view.jobs, cut=False))

    def _screen(self) -> RenderableType:
        """Return what there is room for."""
        view = self._view
        if view is None:
            return Text("waiting for the first job")
        rank = {state: number for number, state in enumerate(_BOARD_ORDER)}
        # What nobody knows yet stands where it can be seen.
        jobs = sorted(view.jobs, key=lambda one: rank.get(one.state, 0))
        room = max(1, self._out.size.height - _OTHERS)
        return _drawn(view, jobs[:room], cut=True)


@contextlib.contextmanager
def telling(say: Callable[[list[str]], None], *, stderr: bool) -> Iterator[Callable[[View], None]]:
    """Give what tells of a run: a board on a terminal, and elsewhere lines of what changed."""
    out = console(stderr=stderr)
    if not out.is_terminal or out.is_dumb_terminal:
        yield lambda view: say(view_lines(view))
        return
    board = Board(out)
    with board.shown():
        yield board.told


def _drawn(view: View, jobs: Sequence[DispatchedJob], *, cut: bool) -> RenderableType:
    """Return a line a job, and the counts. What matters most stands where nothing is cut off."""
    now = datetime.now(UTC)
    rows = [(clean(job.state), _time(job, now), clean(job.name), clean(job.runner),
             clean(cells_of(job))) for job in jobs]  # fmt: skip
    lines = [Text(line) for line in table(rows)]
    for line, (state, *_) in zip(lines, rows, strict=True):
        line.stylize(_STYLES.get(state, ""), 0, len(state))
    if more := len(view.jobs) - len(jobs):
        lines.append(Text(f"and {more} more jobs"))
    lines.append(Text(clean(count_line(view))))
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
