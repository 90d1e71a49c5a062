"""The gate, for people."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from contribbot.model.gate import Candidate, Gate, Row, RowState
from contribbot.report.text import clean

#: Candidates that are shown; `--json` has all.
_SHOWN: Final = 15
_TITLE: Final = 80


def gate_lines(gate: Gate, *, everything: bool = False) -> list[str]:
    """Return one line a rule, the next step below those that need one, then the candidates."""
    most = len(gate.candidates) if everything else _SHOWN
    wide = max(len(row.rule) for row in gate.rows)
    lines = [line for row in gate.rows for line in _row(row, wide)]
    if gate.candidates:
        lines += ["", f"{gate.patch}: pull requests with something in common:"]
        lines += [line for one in gate.candidates[:most] for line in _candidate(one)]
        if len(gate.candidates) > most:
            lines.append(f"  and {len(gate.candidates) - most} more; --json has them")
    lines += [f"{gate.patch}: {clean(one)}" for one in gate.limits]
    return [*lines, "", summary(gate)]


def summary(gate: Gate) -> str:
    """Say in one line what the gate says."""
    counts = [(len(gate.of(state)), state) for state in RowState]
    said = ", ".join(f"{count} {state}" for count, state in counts if count)
    when = f"; GitHub was asked {gate.looked:%Y-%m-%d %H:%M} UTC" if gate.looked else ""
    return f"{gate.patch}: {said}{when}"


def _row(row: Row, wide: int) -> Iterator[str]:
    yield f"{row.rule:<{wide}}  {row.state:<13}  {clean(row.seen)}"
    if row.next and row.state is not RowState.PASSED:
        yield f"{'':<{wide}}  {'':<13}  -> {clean(row.next)}"


def _candidate(one: Candidate) -> Iterator[str]:
    title = clean(one.title)
    title = title if len(title) <= _TITLE else title[: _TITLE - 1] + "…"
    yield f"  {one.reference} ({one.state}, {clean(one.author)}): {title}"
    yield f"      {clean('; '.join(one.in_common))}"
    yield f"      {clean(f'different: {one.answer}' if one.answer else 'no answer yet')}"
