"""Results of stages for people: verdicts, benches, listings, numerics, the step summary."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

from pydantic import JsonValue, ValidationError

from contribbot.cli.text import clean, columns, conflict_lines, escape, table
from contribbot.hardware.compare import COLUMNS, ListingRow, left_out_of, rows_in
from contribbot.hardware.listing import Numbers, function_of
from contribbot.model.evidence import (
    ON_HARDWARE,
    Outcome,
    PatchReport,
    StageResult,
    Verdict,
    proves,
    too_noisy,
    unmet,
    went_red_to_green,
)
from contribbot.numerics.records import CellRecord, OutputRecord
from contribbot.numerics.words import count, number, place_of
from contribbot.verify.runner_fault import at_fault


def verdict_line(report: PatchReport) -> str:
    """Say in one line what was shown, where, and what is open."""
    if report.verdict is Verdict.PROVED:
        text = f"{report.patch}: proved {_where(report)}"
    elif report.verdict is Verdict.REFUTED:
        failed = dict.fromkeys(
            result.stage for result in report.stages if result.outcome is Outcome.FAILED
        )
        text = f"{report.patch}: refuted by {', '.join(failed)}"
    else:
        missing = dict.fromkeys(
            result.stage
            for result in report.stages
            if result.outcome is Outcome.UNAVAILABLE and not too_noisy(result)
        )
        shown = _where(report)
        what = f"shown {shown}, but not all of it" if shown else "nothing proved, nothing refuted"
        if not shown and any(map(went_red_to_green, report.stages)):
            what += "; what went from red to green ran nothing that the patch adds"
        text = f"{report.patch}: {what}"
        if missing:
            text += f"; unavailable: {', '.join(missing)}"
    noisy = dict.fromkeys(
        f"{result.stage}:{result.target}" for result in report.stages if too_noisy(result)
    )
    if noisy:
        text += f"; too noisy to tell: {', '.join(noisy)}"
    if unrun := [_open(report, target) for target in report.open if target not in noisy]:
        text += f"; not run: {', '.join(unrun)}"
    return text


def _open(report: PatchReport, name: str) -> str:
    """Return an open target's name, and whether it is the runner's fault."""
    stage, _, target = name.rpartition(":")
    asked = [
        result
        for result in report.stages
        if result.target == target and stage in {"", result.stage}
    ]
    return f"{name} (runner fault)" if at_fault(asked) else name


def _where(report: PatchReport) -> str:
    """Say where a patch was shown to go from red to green: what ran apart from what compiled."""
    shown = [result for result in report.stages if proves(result)]
    ran = dict.fromkeys(result.target for result in shown if result.stage in ON_HARDWARE)
    made = dict.fromkeys(result.target for result in shown if result.stage == "compile")
    others = dict.fromkeys(
        result.stage for result in shown if result.stage not in {*ON_HARDWARE, "compile"}
    )
    parts = [
        *([f"on {', '.join(ran)}"] if ran else []),
        *([f"by compiling for {', '.join(made)}"] if made else []),
        *([f"by {', '.join(others)}"] if others else []),
    ]
    return " and ".join(parts)


def closing_lines(
    reports: Sequence[PatchReport], records: Mapping[str, Path], required: Sequence[str]
) -> list[str]:
    """Return verdicts, what was required and is not there, and where the records are."""
    lines = []
    for report in reports:
        lines.append(verdict_line(report))
        missing = unmet(report, required)
        if missing:
            lines.append(f"{report.patch}: required, and not proved here: {', '.join(missing)}")
        record = records.get(report.patch)
        if record is not None:
            lines.append(f"{report.patch}: record in {_near(record)}")
    return lines


def _near(path: Path) -> str:
    """Return a path as seen from the current folder, where there is one."""
    try:
        return os.path.relpath(path)
    except FileNotFoundError:
        return str(path)


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
    cases = [case for case in listed if isinstance(case, dict)]
    rows = [_HEAD, *(_row(case) for case in cases if isinstance(case.get("ratio"), dict))]
    used = [place for place in range(len(_HEAD)) if any(row[place] for row in rows[1:])]
    lines = [
        f"  {line}" for line in table([[row[place] for place in used] for row in rows if used])
    ]
    lines += [
        f"  {clean(str(case.get('case')))}: {clean(str(case.get('text')))}"
        for case in cases
        if case.get("verdict") != "passed"
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


#: Rows of one target; many instantiations of a template change alike.
_ROWS: Final = 6
#: Characters of a kernel's name.
_NAME: Final = 64
#: Of these, what is left at least of the function's own name.
_LEAST: Final = 9
#: The table has figures alone: a kernel with the same ones may have other instructions.
_SAME: Final = "with the same figures"
#: Columns of a record, and what stands above them. `waves` is occupancy, by SIMD.
_SHOWN: Final = (
    ("vgprs", "VGPR"),
    ("sgprs", "SGPR"),
    ("lds", "LDS"),
    ("spills", "spills"),
    ("occupancy", "waves"),
    ("code", "code"),
    ("instructions", "instructions"),
)


def listing_lines(results: Iterable[StageResult], *, limit: int = _ROWS) -> list[str]:
    """Return tables of what changed, base -> patched: one for each entry and target.

    Kernels that did not change are counted, those that did are shown, the worst first.
    """
    lines: list[str] = []
    for result in results:
        rows = rows_in(result.details) if result.stage == "compile" else []
        if not rows:
            continue
        name = f"{result.details.get('check', '')} {result.target}"
        lines += _listing_table(name, rows, left_out_of(result.details), limit)
    return lines


def _listing_table(
    name: str, rows: Sequence[ListingRow], left_out: tuple[int, int], limit: int
) -> list[str]:
    more, same = left_out
    changed = [row for row in rows if row.changed]
    shown = changed[:limit]
    left = sum(row.count for row in changed[limit:]) + more
    kinds = {"changed": more, _SAME: same, "new": 0, "gone": 0}
    for row in rows:
        kinds[_kind(row)] += row.count
    counts = [
        f"{number} kernel{'s' if number != 1 else ''} {kind}"
        for kind, number in kinds.items()
        if number
    ]
    lines = [f"{clean(name)}: {', '.join(counts)}"]
    if shown:
        cells = [["", *(title for _, title in _SHOWN)], *(_cells(row) for row in shown)]
        lines += [f"  {line}" for line in table(cells)]
    if left:
        lines.append(f"  and {left} more")
    return lines


def _kind(row: ListingRow) -> str:
    if row.base is None or row.patched is None:
        return "new" if row.base is None else "gone"
    return "changed" if row.changed else _SAME


def _cells(row: ListingRow) -> list[str]:
    name = _short(row.title)
    if row.count > 1:
        name += f" x{row.count}"
    if _kind(row) in {"new", "gone"}:
        name += f" ({_kind(row)})"
    return [name, *(_cell(row, column) for column, _ in _SHOWN)]


def _cell(row: ListingRow, column: str) -> str:
    before, after = _value(row.base, column), _value(row.patched, column)
    if not before or not after or before == after:
        return after or before
    return f"{before} -> {after}"


def _value(numbers: Numbers | None, column: str) -> str:
    if numbers is None:
        return ""
    value = numbers[COLUMNS.index(column)]
    return f"{value:,}" if value is not None else "?"


def _short(title: str) -> str:
    """Return a kernel's name without the namespaces that say nothing, cut in the middle."""
    for namespace in ("(anonymous namespace)::", "c10::"):
        title = title.replace(namespace, "")
    title = clean(title)
    if len(title) <= _NAME:
        return title
    # Template arguments tell instantiations apart; of the function a part will do.
    function = function_of(title)
    arguments = title[len(function) :]
    if len(arguments) <= _NAME - _LEAST:
        return _cut(function, _NAME - len(arguments)) + arguments
    return _cut(title, _NAME)


def _cut(text: str, length: int) -> str:
    """Return a text cut in the middle."""
    half = (length - 1) // 2
    return f"{text[:half]}…{text[-half:]}" if len(text) > length else text


#: Results shown of each side.
_MOST: Final = 3


def worst_lines(result: StageResult) -> list[str]:
    """Return the worst results of the base and of the patched tree."""
    cells = result.details.get("cells")
    if not isinstance(cells, dict):
        return []
    lines: list[str] = []
    for side, title in (("patched", "patched tree"), ("base", "base")):
        ranked = sorted(_judged(cells.get(side)), key=lambda pair: pair[1].badness, reverse=True)
        if ranked:
            lines.append(f"  worst on the {title}:")
            lines += [f"    {_numerics_row(cell, output)}" for cell, output in ranked[:_MOST]]
    return lines


def _judged(cells: JsonValue) -> Iterator[tuple[CellRecord, OutputRecord]]:
    for document in cells if isinstance(cells, list) else []:
        try:
            cell = CellRecord.model_validate(document)
        except ValidationError:
            continue  # a record of another version; the reason line still says what came of it
        for output in cell.outputs:
            yield cell, output


def _numerics_row(cell: CellRecord, output: OutputRecord) -> str:
    where = f"{cell.cell} seed {output.worst_seed}: {output.name}: "
    if output.complaint and not output.elements:
        return clean(where + output.complaint)
    told = []
    if output.non_finite:
        told.append(f"{count(output.non_finite)} NaN or infinite")
    if output.kind == "exact":
        told.append(f"{count(output.mismatches)} of {count(output.elements)} elements differ")
    else:
        told.append(f"max abs {number(output.max_abs)}, {output.multiple}")
        told.append(f"{count(output.mismatches)} of {count(output.elements)} elements beyond")
    told.append("max rel " + ("undefined" if output.max_rel is None else number(output.max_rel)))
    if output.place is not None:
        told.append(f"at {place_of(output.place)}")
    return clean(where + ", ".join(told))


def append_summary(path: Path, reports: Sequence[PatchReport]) -> None:
    """Add to the step summary file, as GitHub Actions asks."""
    lines: list[str] = []
    for report in reports:
        lines += [f"### {escape(verdict_line(report))}", ""]
        lines += ["| stage | target | outcome | time | seen |", "|---|---|---|---|---|"]
        for result in report.stages:
            cells = columns(report.patch, result)[1:]
            lines.append("| " + " | ".join(escape(cell) for cell in cells) + " |")
        lines.append("")
    with path.open("a", encoding="utf-8") as file:
        file.write("\n".join(lines) + "\n")


#: Kernels of one target; the record has all.
_DETAILS_ROWS: Final = 3


def detail_lines(result: StageResult) -> list[str]:
    """Return the lines that belong below an outcome."""
    if result.stage == "apply":
        return conflict_lines(result)
    if result.stage == "bench":
        return bench_lines(result)
    if result.stage == "numerics":
        return worst_lines(result) if result.outcome is Outcome.FAILED else []
    return [f"  {line}" for line in listing_lines([result], limit=_DETAILS_ROWS)]
