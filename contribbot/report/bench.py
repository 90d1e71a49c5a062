"""The cases of a `bench` outcome as lines for a terminal."""

from __future__ import annotations

from typing import Final

from pydantic import JsonValue

from contribbot.model.outcome import StageResult
from contribbot.report.text import clean

_HEAD: Final = ("case", "base", "patched", "base/patched", "moved", "computed", "peak memory")
#: Thousands and their names, for times and for rates.
_TIMES: Final = ((1.0, "s"), (1e-3, "ms"), (1e-6, "us"), (0.0, "ns"))


def bench_lines(result: StageResult) -> list[str]:
    """Return a table of the cases that were measured, and what they are set against.

    A ratio above 1 means that the patched tree is faster; in brackets is the interval
    that holds the true median 95 times in 100. What was not measured is said instead.
    """
    listed = result.details.get("cases")
    if result.stage != "bench" or not isinstance(listed, list):
        return []
    cases = [one for one in listed if isinstance(one, dict)]
    rows = [_HEAD, *(_row(one) for one in cases if isinstance(one.get("ratio"), dict))]
    used = [place for place in range(len(_HEAD)) if any(row[place] for row in rows[1:])]
    width = {place: max(len(row[place]) for row in rows) for place in used}
    lines = [
        "  " + "  ".join(row[place].ljust(width[place]) for place in used).rstrip()
        for row in (rows if len(rows) > 1 else [])
    ]
    lines += [
        f"  {clean(str(one.get('case')))}: {clean(str(one.get('text')))}"
        for one in cases
        if one.get("verdict") != "passed"
    ]
    return [*lines, *_ceilings(result.details.get("ceilings"))]


def _row(case: dict[str, JsonValue]) -> tuple[str, ...]:
    base, patched = _table(case, "base"), _table(case, "patched")
    return (
        clean(str(case.get("case"))),
        _time(base),
        _time(patched),
        _ratio(_table(case, "ratio")),
        _moved(patched),
        _computed(patched),
        _memory(base, patched),
    )


def _table(value: dict[str, JsonValue], key: str) -> dict[str, JsonValue]:
    inner = value.get(key)
    return inner if isinstance(inner, dict) else {}


def _number(value: dict[str, JsonValue], key: str) -> float | None:
    inner = value.get(key)
    return float(inner) if isinstance(inner, int | float) else None


def _time(side: dict[str, JsonValue]) -> str:
    median, low, high = (_number(side, key) for key in ("seconds", "low", "high"))
    if median is None or low is None or high is None:
        return ""
    factor, unit = next(pair for pair in _TIMES if median >= pair[0])
    factor = factor or 1e-9
    return f"{_three(median / factor)} {unit} ({_three(low / factor)} to {_three(high / factor)})"


def _ratio(ratio: dict[str, JsonValue]) -> str:
    median, low, high = (_number(ratio, key) for key in ("median", "low", "high"))
    if median is None or low is None or high is None:
        return ""
    noise = ", noise" if ratio.get("noise") is True else ""
    return f"{median:.3f} ({low:.3f} to {high:.3f}{noise})"


def _moved(side: dict[str, JsonValue]) -> str:
    rate = _number(side, "bytes_per_second")
    return "" if rate is None else f"{_three(rate / 1e9)} GB/s{_share(side, 'of_copy', 'copy')}"


def _computed(side: dict[str, JsonValue]) -> str:
    rate = _number(side, "flops_per_second")
    if rate is None:
        return ""
    return f"{_three(rate / 1e12)} TFLOP/s{_share(side, 'of_matmul', 'matmul')}"


def _share(side: dict[str, JsonValue], key: str, ceiling: str) -> str:
    """Say what part of a measured ceiling was reached, where one was measured."""
    part = _number(side, key)
    if part is None:
        return ""
    # Above the copy's speed the data came from a cache; a percentage would read like an error.
    return f", {part:.0%} of {ceiling}" if part <= 1 else f", above {ceiling}"


def _memory(base: dict[str, JsonValue], patched: dict[str, JsonValue]) -> str:
    before, after = _number(base, "peak_bytes"), _number(patched, "peak_bytes")
    if before is None or after is None:
        return ""
    return f"{before / 2**20:,.1f} -> {after / 2**20:,.1f} MiB"


def _ceilings(ceilings: JsonValue) -> list[str]:
    if not isinstance(ceilings, dict):
        return []
    said = []
    copy = _number(ceilings, "copy_bytes_per_second")
    if copy is not None:
        said.append(f"copy {_three(copy / 1e9)} GB/s")
    rates = _table(ceilings, "matmul_flops_per_second")
    for name in rates:
        rate = _number(rates, name)
        if rate is not None:
            said.append(f"{clean(name)} matmul {_three(rate / 1e12)} TFLOP/s")
    return [f"  measured here ({clean(str(ceilings.get('device')))}): {', '.join(said)}"]


def _three(value: float) -> str:
    """Return a number with three digits or all before the point."""
    for limit, digits in ((1, 3), (10, 2), (100, 1)):
        if value < limit:
            return f"{value:.{digits}f}"
    return f"{value:,.0f}"
