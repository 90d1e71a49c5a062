"""The block of speed: what the change costs or saves, and where nobody has measured."""

from __future__ import annotations

from typing import Final

from pydantic import JsonValue

from contribbot.contribute.text.escape import cell, code, plain
from contribbot.contribute.text.grid import grid_of
from contribbot.contribute.text.seen import Seen
from contribbot.contribute.text.tables import Context, table

#: Cases of a benchmark that are shown one by one, by how short the text must be.
_CASES: Final = (4, 2, 0, 0)
#: Seconds in a unit, and its name.
_UNITS: Final = ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs"), (1e-9, "ns"))
#: A factor of memory that is worth a word.
_SAME_MEMORY: Final = 1.005


def speed(context: Context) -> list[str]:
    """Return how long the change takes against what it replaces."""
    found = context.figures.of("bench")
    if not found:
        # Nothing is claimed of it, and nobody should read silence as "no slower".
        return ["Speed: **not measured**."]
    lines, rows = [], []
    for one in found:
        lines.append(
            f"- {code(one.name)} {device(one)}: {plain(one.summary)}{_memory(one)} ({one.labels})"
        )
        cases = one.rows("cases")
        if len(cases) <= _CASES[context.level]:
            rows += [_case(one, each) for each in cases]
    # Some of many would look like a choice of the best.
    rows = rows if len(rows) <= _CASES[context.level] else []
    meaning = (
        "Speed is the time without the change divided by the time with it, measured in turns: "
        "above 1 is faster."
    )
    head = ("case", "on", "without", "with", "speed (interval)", "record")
    measured = {one.result.target for one in found}
    named = [target for row in grid_of(context.figures, context.rules) for target in row.targets]
    rest = [target for target in named if target not in {*measured, "cpu"}]
    lines += [f"- **not measured** on {', '.join(rest)}"] if rest else []
    return [meaning, "\n".join(lines), *table(head, rows)]


def device(one: Seen) -> str:
    """Name the hardware that something ran on."""
    ceilings = one.table("ceilings").get("device")
    statement = one.source.record.statement
    machine = statement.predicate.contribbot.machine if statement else None
    if one.result.target == "cpu":
        threads = one.result.details.get("threads")
        processor = machine.cpu if machine else ""
        return f"on processor {code(processor)}, {threads} thread{'s' if threads != 1 else ''}"
    name = machine.gpus[0].name if machine and machine.gpus else str(ceilings or "")
    return f"on {one.result.target}, {code(name)}"


def _memory(one: Seen) -> str:
    ratios = [float(value) for value in _numbers(one, "memory_ratio")]
    if not ratios or max(ratios) <= _SAME_MEMORY:
        return ""
    return f"; peak memory up to {max(ratios):.2f} times as much"


def _numbers(one: Seen, key: str) -> list[float]:
    found = (each.get(key) for each in one.rows("cases"))
    return [float(value) for value in found if isinstance(value, int | float)]


def _case(one: Seen, case: dict[str, JsonValue]) -> tuple[str, ...]:
    text = str(case.get("text", "")).partition(";")[0]
    return (
        cell(str(case.get("case")), limit=60),
        one.result.target,
        _time(case.get("base")),
        _time(case.get("patched")),
        plain(text),
        one.labels,
    )


def _time(side: JsonValue) -> str:
    seconds = side.get("seconds") if isinstance(side, dict) else None
    if not isinstance(seconds, int | float):
        return ""
    size, unit = next((pair for pair in _UNITS if seconds >= pair[0]), _UNITS[-1])
    return f"{seconds / size:.3g} {unit}"
