"""A plan as lines for a terminal, and as what Actions makes its matrices from."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final

from pydantic import JsonValue

from contribbot.errors import QueueError
from contribbot.model.runners import FreshCell, Job, Kind, OpenCell, Plan
from contribbot.report.text import clean

_KINDS: Final[tuple[Kind, ...]] = ("compile", "gpu")
_SHOWN: Final = 4
#: Bytes of all outputs of a job, which GitHub counts in UTF-16 (its docs, "Passing information
#: between jobs": 1 MB).
_MOST: Final = 1_000_000


def matrix(plan: Plan, kind: Kind) -> list[dict[str, JsonValue]]:
    """Return the rows of a matrix (`include`), one for each job of a kind."""
    return [_row(job) for job in plan.of_kind(kind)]


def _row(job: Job) -> dict[str, JsonValue]:
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
    _append(path, {"again": _compact([_row(job) for job in jobs])}, jobs)


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
    width = max((len(job.id) for job in plan.jobs), default=0)
    lines = [
        f"{job.id:{width}}  {_count(len(job.cells), 'cell')}, about "
        f"{duration(job.seconds)} on {job.runners}: {_listed(job.patches)}"
        for job in plan.jobs
    ]
    lines += _open_lines(plan.open)
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


def _open_lines(cells: Iterable[OpenCell]) -> list[str]:
    grouped: dict[tuple[str, str], dict[str, None]] = {}
    for one in cells:
        what = f"compile:{one.target}" if one.kind == "compile" else one.target
        grouped.setdefault((what, one.reason), {})[one.patch] = None
    return [
        f"open  {what}: {reason}: {_listed(tuple(patches))}"
        for (what, reason), patches in grouped.items()
    ]


def _fresh_lines(cells: Iterable[FreshCell]) -> list[str]:
    return [
        f"fresh  {one.patch} {'compiled for ' if one.kind == 'compile' else ''}{one.target} "
        f"ROCm {one.rocm}: {one.says} ({one.record})"
        for one in cells
    ]


def _closing(plan: Plan) -> str:
    cells = plan.cells
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
    shown = ", ".join(names[:_SHOWN])
    more = len(names) - _SHOWN
    return f"{shown} and {more} more" if more > 0 else shown


def duration(seconds: float) -> str:
    """Return a time as people say it, such as `2 h 05 min`."""
    minutes = round(seconds / 60)
    if minutes < 1:
        return f"{seconds:.0f} s"
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02} min" if hours else f"{minutes} min"
