"""What a run left, as text: whatever a job sent is shown, and nothing of it is obeyed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from contribbot.model.actions import Again, CellEnd, CellState, Collected
from contribbot.report.summary import escape
from contribbot.report.text import clean

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
    rows = [_row(one) for one in _sorted(collected.cells)]
    widths = [max((len(row[place]) for row in rows), default=0) for place in range(4)]
    lines = ["  ".join([*(text.ljust(width) for text, width in zip(row, widths, strict=False)),
                        row[-1]]).rstrip()
             for row in rows]  # fmt: skip
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
