"""Lines and tables on outcomes: verdicts, stages, bench cases, kernels, numerics, conflicts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import compress
from pathlib import Path
from typing import Final

from contribbot.cli import render
from contribbot.cli.render import Block, Code, StateText, Table, count, indented
from contribbot.markdown import multiple, number, seconds, times
from contribbot.model import record
from contribbot.model.evidence import Outcome, PatchReport, StageResult, target_order
from contribbot.verify.pipeline import STAGES
from contribbot.verify.verdict import unmet, verdict_line


def closing_blocks(
    reports: Sequence[PatchReport], records: Mapping[str, Path], required: Sequence[str]
) -> list[Block]:
    """Return each patch's verdict, its required targets without a proof, and its record's path."""
    blocks: list[Block] = [""]
    for report in reports:
        blocks.append(verdict_line(report))
        if missing := unmet(report, required):
            blocks.append(f"  required, and not proved here: {', '.join(missing)}")
        if path := records.get(report.patch):
            blocks.append(Code(f"  record: {render.near(path)}"))
    return blocks


_ORDER: Final = [stage.name for together in STAGES for stage in together]


def outcome_blocks(patch: str, results: Iterable[StageResult]) -> list[Block]:
    """Return a table of outcomes by stage and target, equal outcomes in one row; then details."""
    ordered = sorted(
        # Leave out stages that are not of the pipeline, which other commands run.
        (result for result in results if result.stage in _ORDER),
        key=lambda row: (_ORDER.index(row.stage), target_order(row.target), row.label),
    )
    details = [detail_blocks(result) for result in ordered]
    groups: dict[tuple[str, Outcome, str], list[StageResult]] = {}
    for at, result in enumerate(ordered):
        if result.outcome is Outcome.SKIPPED:
            continue
        alone = str(at) if details[at] else ""
        text = result.sentence.replace(result.target, "\0") + alone
        groups.setdefault((result.stage, result.outcome, text), []).append(result)
    rows = [*map(_row, groups.values())]
    if skipped := [result for result in ordered if result.outcome is Outcome.SKIPPED]:
        # The reason of the first skipped stage is the cause of all later skips.
        stages = ", ".join(dict.fromkeys(result.stage for result in skipped))
        why = f"{stages}: {skipped[0].reason}"
        rows.append(("not run", "", StateText(Outcome.SKIPPED), "", why))
    blocks: list[Block] = [patch] if patch and rows else []
    blocks += [Table(rows, indent=2)] if rows else []
    for result, below in zip(ordered, details, strict=True):
        title = " ".join(filter(None, (result.stage, result.label, result.target)))
        blocks += [f"  {title}", *indented(indented(below))] if below else []
    return blocks


def _row(rows: Sequence[StageResult]) -> tuple[str, ...]:
    """Return the table row of a stage's equal outcomes: targets, outcome, time and reason."""
    first = rows[0]
    targets = [*dict.fromkeys(row.target for row in rows)]
    labels = ", ".join(filter(None, dict.fromkeys(row.label for row in rows)))
    text, target = first.sentence, "" if first.target == "any" else first.target
    if len(targets) > 1:
        target, listed = f"{len(targets)} targets", ", ".join(targets)
        named = first.target in text
        text = text.replace(first.target, listed) if named else f"{text} ({listed})"
    text = f"{labels}: {text}" if labels else text
    spent = sum(row.seconds for row in rows)
    time = "cached" if all(row.cached for row in rows) else f"{spent:.1f} s" if spent else ""
    return first.stage, target, StateText(first.outcome), time, text


_HEAD: Final = (
    "case",
    "base",
    "patched",
    "speed (95 in 100)",
    "called as a program does",
    "moved",
    "computed",
    "peak memory",
)


def bench_blocks(bench: record.BenchDetails) -> list[Block]:
    """Return a table of measured cases (a speed above 1: faster), and lines on failed cases."""
    rows = [*map(_bench_row, bench.measured)]
    table = [Table(rows, _HEAD, headed=True)] if rows else []
    others = (case for case in bench.cases if case.verdict is not record.CaseVerdict.PASSED)
    return [*table, *(f"{case.case}: {case.text}" for case in others)]


def _bench_row(case: record.MeasuredCase) -> tuple[str, ...]:
    base, patched = case.base, case.patched
    memory = moved = computed = called = ""
    if case.called_ratio is not None:
        before, after = base.called_seconds or 0, patched.called_seconds or 0
        called = f"{seconds(before)} -> {seconds(after)}, {_speed(case.called_ratio)}"
    if base.peak_bytes is not None and patched.peak_bytes is not None:
        memory = f"{base.peak_bytes / 2**20:,.1f} -> {patched.peak_bytes / 2**20:,.1f} MiB"
    if patched.bytes_per_second is not None:
        moved = f"{times(patched.bytes_per_second / 1e9)} GB/s"
    if patched.flops_per_second is not None:
        computed = f"{times(patched.flops_per_second / 1e12)} TFLOP/s"
    speeds = (seconds(base.seconds), seconds(patched.seconds), _speed(case.ratio))
    return (case.case, *speeds, called, moved, computed, memory)


def _speed(ratio: record.Ratio) -> str:
    noise = ", noise" if ratio.noise else ""
    return f"{ratio.median:.3f} ({ratio.low:.3f}-{ratio.high:.3f}{noise})"


#: The most rows to show for one target; the record has all rows.
_ROWS: Final = 3
_NAME: Final = 44
#: Kernels with the same figures may still differ in their instructions.
_SAME: Final = "with the same figures"
_SHOWN: Final = {
    "vgprs": "VGPR",
    "sgprs": "SGPR",
    "lds": "LDS",
    "spills": "spills",
    "occupancy": "waves",
    "code": "code",
    "instructions": "instructions",
}


def listing_blocks(result: StageResult) -> list[Block]:
    """Return a table of kernels whose machine code changed from base to patched tree."""
    details = result.details
    if not isinstance(details, record.CompileDetails) or not details.table.rows:
        return []
    rows, left_out = details.table.rows, details.table.left_out
    changed = [row for row in rows if row.changed]
    kinds = {"changed": left_out.changed, _SAME: left_out.unchanged, "new": 0, "gone": 0}
    for row in rows:
        kinds[_kind(row)] += row.kernels
    counts = [f"{count(many, 'kernel')} {kind}" for kind, many in kinds.items() if many]
    blocks: list[Block] = [f"{result.label} {result.target}: {', '.join(counts)}"]
    if shown := changed[:_ROWS]:
        cells = [[_cell(row, column) for column in _SHOWN] for row in shown]
        moved = [any("->" in cell for cell in column) for column in zip(*cells, strict=True)]
        used = moved if any(moved) else [True] * len(_SHOWN)
        table = [(_title(row), *compress(own, used)) for row, own in zip(shown, cells, strict=True)]
        head = ("", *compress(_SHOWN.values(), used))
        blocks.append(Table(table, head, indent=2, headed=True))
    more = sum(row.kernels for row in changed[_ROWS:]) + left_out.changed
    digests = (("base", details.base.log_sha256), ("patched", details.patched.log_sha256))
    logs = [f"{side} {digest[:16]}.log" for side, digest in digests if digest]
    blocks += [f"and {more} more"] if more else []
    return [*blocks, *([f"listings in .contribbot/logs: {', '.join(logs)}"] if logs else [])]


def _kind(row: record.ListingRow) -> str:
    if row.base is None or row.patched is None:
        return "new" if row.base is None else "gone"
    return "changed" if row.changed else _SAME


def _title(row: record.ListingRow) -> str:
    """Return a kernel's shortened name, and the number of kernels in the table row."""
    name = row.title.replace("(anonymous namespace)::", "").replace("c10::", "")
    if len(name) > _NAME:
        # Keep the end, where template arguments tell instantiations apart.
        name = f"{name[: _NAME // 2 - 1]}…{name[-_NAME // 2 :]}"
    kind = f" ({_kind(row)})" if _kind(row) in {"new", "gone"} else ""
    return f"{name}{f' x{row.kernels}' if row.kernels > 1 else ''}{kind}"


def _cell(row: record.ListingRow, column: str) -> str:
    """Return a kernel's number on base and patched tree; `?`: the compiler reports no number."""
    counts: list[int | None] = [getattr(each, column) for each in (row.base, row.patched) if each]
    texts = dict.fromkeys("?" if count is None else f"{count:,}" for count in counts)
    return " -> ".join(texts)


_MOST: Final = 3


def worst_blocks(numerics: record.NumericsRecord) -> list[Block]:
    """Return lines on the largest errors of numerics, on the patched tree and on the base."""
    blocks: list[Block] = []
    sides = (("patched tree", numerics.cells.patched), ("base", numerics.cells.base))
    for title, cells in sides:
        judged = ((cell, output) for cell in cells for output in cell.outputs)
        ranked = sorted(judged, key=lambda pair: pair[1].badness, reverse=True)
        if ranked:
            blocks.append(f"worst on the {title}:")
            blocks += [f"  {_numerics_row(cell, output)}" for cell, output in ranked[:_MOST]]
    return blocks


def _numerics_row(cell: record.CellRecord, output: record.OutputRecord) -> str:
    where = f"{cell.cell} seed {output.worst_seed}: {output.name}: "
    if output.complaint and not output.elements:
        return where + output.complaint
    differ = f"{output.mismatches:,} of {output.elements:,} elements"
    parts = [f"{output.non_finite:,} NaN or infinite"] if output.non_finite else []
    if output.kind == "exact":
        parts.append(f"{differ} differ")
    else:
        error = multiple(output.ratio or 0.0, output.reference_abs, output.floor)
        parts += [f"max abs {number(output.max_abs)}, {error}", f"{differ} beyond"]
    parts.append("max rel " + ("undefined" if output.max_rel is None else number(output.max_rel)))
    if output.place is not None:
        parts.append(f"at {output.place}")
    return where + ", ".join(parts)


def detail_blocks(result: StageResult) -> list[Block]:
    """Return lines on an outcome's details: conflicts, bench cases, largest errors or kernels."""
    match result.details:
        case record.ApplyDetails(conflicts=conflicts):
            return [*render.conflict_blocks(each for each in conflicts if each.hunk)]
        case record.BenchDetails() as bench:
            return bench_blocks(bench)
        case record.NumericsDetails(numerics=numerics) if result.outcome is Outcome.FAILED:
            return worst_blocks(numerics)
        case record.CompileDetails():
            return listing_blocks(result)
    return []
