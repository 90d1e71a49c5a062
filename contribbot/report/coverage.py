"""The grid of patches by targets and ROCm versions, from records that still hold."""

from __future__ import annotations

import enum
import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Final

from contribbot.model.base import Model
from contribbot.model.checks import is_emulated
from contribbot.model.evidence import ON_HARDWARE, SEEN, Outcome, StageResult
from contribbot.model.patch import Patch, units_of
from contribbot.queue.history import Refutation
from contribbot.runners.fleet import Runners, is_version
from contribbot.verify.evidence import Source
from contribbot.verify.patch_verdict import too_noisy

#: Stages on hardware share one line of a cell; every other stage has its own.
RUN: Final = "run"
#: The words for what passed, and for what nobody did.
_WORDS: Final = {
    RUN: ("passed", "not run"),
    "compile": ("compiled", "not compiled"),
    "build": ("built", "not built"),
    "emulate": ("emulated", "not emulated"),
}
#: Targets that are not AMD's, which no ROCm has a say in: how they are called, and what they are.
_OTHERS: Final = {"cpu": ("CPU", "a processor"), "cuda": ("CUDA", "NVIDIA, not AMD")}


class Mark(enum.StrEnum):
    """The result of the entries on one target."""

    PASSED = "passed"
    FAILED = "failed"
    #: Some passed, and none failed; the rest was not run.
    PART = "part"
    NOISY = "noisy"
    #: An earlier state of the patch, its checks or its base passed.
    STALE = "stale"
    OPEN = "open"


class CellLine(Model):
    """A stage on a target: run, compiled or built; how many of the stated entries passed."""

    stage: str
    mark: Mark
    text: str
    passed: int
    stated: int


class TargetColumn(Model):
    """A target, and the ROCm version where one is known."""

    target: str
    rocm: str
    title: str
    kind: str


class TargetCell(Model):
    """One patch on one target."""

    column: TargetColumn
    lines: tuple[CellLine, ...]


class PlaceCell(Model):
    """The result of a patch on all targets of a kind: a column of the first page."""

    title: str
    mark: Mark
    text: str
    #: Whether the patch states something of it; of AMD's hardware, if it names a target of AMD's.
    asked: bool
    passed: int
    stated: int


#: The columns of the first page, with the word for what is open, and for what nobody asked.
PLACES: Final = {
    "CPU": ("not run", "not run"),
    "CUDA": ("not run", "not run"),
    "AMD": ("not run", "not run"),
    "compiled": ("not compiled", "-"),
    "emulated": ("not emulated", "-"),
}
_DECIDES: Final = {
    Mark.FAILED: "failed",
    Mark.PART: "partly",
    Mark.PASSED: "passed",
    Mark.NOISY: "too noisy",
    Mark.STALE: "stale",
}


def place_of(stage: str, target: str) -> str:
    """Return the column of the first page in which a stage on a target counts; `any` in none."""
    if target == "any" or is_emulated(target):
        return "" if target == "any" else "emulated"
    return "compiled" if stage in {"compile", "build"} else _OTHERS.get(target, ("AMD",))[0]


def places_of(cells: Iterable[TargetCell]) -> tuple[PlaceCell, ...]:
    """Sum up cells; what is compiled or emulated for a GPU of AMD's is asked on it, too."""
    found: dict[str, list[tuple[str, CellLine]]] = {title: [] for title in PLACES}
    for target, line in ((cell.column.target, line) for cell in cells for line in cell.lines):
        if line.stated:
            found[place_of(line.stage, target)].append((target, line))
    on_amd = any("gfx" in target for lines in found.values() for target, _ in lines)
    return tuple(
        _place(title, lines, asked=bool(lines) or (on_amd and title == "AMD"))
        for title, lines in found.items()
    )


def _place(title: str, found: Sequence[tuple[str, CellLine]], *, asked: bool) -> PlaceCell:
    targets, lines = len({target for target, _ in found}), [line for _, line in found]
    marks = {line.mark for line in lines}
    mark = next((mark for mark in _DECIDES if mark in marks), Mark.OPEN)
    mark = Mark.PART if mark is Mark.PASSED and len(marks) > 1 else mark
    text = _DECIDES.get(mark) or PLACES[title][not asked]
    if mark is Mark.PASSED and title not in {"CPU", "CUDA"}:
        text = f"{targets} target{'s' if targets > 1 else ''}"
    passed, stated = sum(line.passed for line in lines), sum(line.stated for line in lines)
    return PlaceCell(title=title, mark=mark, text=text, asked=asked, passed=passed, stated=stated)


def columns_of(
    patches: Iterable[Patch], fresh: Iterable[Source], runners: Runners
) -> list[TargetColumn]:
    """Return every target that a patch states, with the ROCm versions that somebody has."""
    stated = {"cpu", *(target for patch in patches for _, _, target in patch.spec.units)}
    versions: dict[str, set[str]] = {target: set() for target in stated}
    for target, rocm in (offer for each in runners.sets for offer in each.offers):
        versions.get(target, set()).add(rocm)
    for source in fresh:
        rocm = source.details.machine.rocm
        ran = {result.target for result in source.stages if result.outcome in SEEN}
        for target in filter(_has_rocm, ran & stated):
            if not any(is_version(known, rocm) for known in versions[target]):
                versions[target].add(rocm)
    return [
        _column(target, rocm)
        for target in sorted(stated, key=_order)
        for rocm in sorted(versions[target] or {""}, key=_numbers)
    ]


def _has_rocm(target: str) -> bool:
    """Say whether what ran there ran by ROCm."""
    return target not in _OTHERS and not is_emulated(target)


def _column(target: str, rocm: str) -> TargetColumn:
    how, _, name = target.rpartition(":")
    title, kind = _OTHERS.get(name, (name, f"AMD, ROCm {rocm}" if rocm else "AMD"))
    if how:
        title, kind = f"{title}, {how}", "not the hardware itself"
    return TargetColumn(target=target, rocm=rocm, title=title, kind=kind)


def _order(target: str) -> tuple[bool, int, str]:
    """Order the host, CUDA, then AMD's by generation; what is emulated stands behind each."""
    how, _, name = target.rpartition(":")
    return name not in _OTHERS, len(name), f"{name} {how}"


def _numbers(rocm: str) -> list[int]:
    return [int(part) for part in re.findall(r"\d+", rocm)]


def cell_of(
    patch: Patch,
    column: TargetColumn,
    fresh: Iterable[Source],
    stale: Iterable[Source],
    refuted: Iterable[Refutation] = (),
) -> TargetCell:
    """Return what the records of a patch, and its refutations that stand, say of a column."""
    units: dict[str, list[tuple[str, str]]] = {_first(column.target): []}
    for stage, label, target in units_of(patch):
        if target == column.target:
            units.setdefault(RUN if stage in ON_HARDWARE else stage, []).append((stage, label))
    now, then = _results(fresh, column), _results(stale, column)
    failed = {(each.stage, each.entry) for each in refuted if each.target == column.target}
    lines = [
        _line(
            stage,
            [(now[entry], then[entry]) for entry in entries],
            failed=not failed.isdisjoint(entries),
        )
        for stage, entries in units.items()
    ]
    return TargetCell(column=column, lines=tuple(lines))


def _first(target: str) -> str:
    """Return what a cell says in any case: what ran on hardware, or was emulated."""
    return "emulate" if is_emulated(target) else RUN


def _results(
    sources: Iterable[Source], column: TargetColumn
) -> defaultdict[tuple[str, str], list[StageResult]]:
    """Return what records saw on a column's target, by stage and label."""
    found = defaultdict[tuple[str, str], list[StageResult]](list)
    for source in sources:
        if not _has_rocm(column.target) or is_version(column.rocm, source.details.machine.rocm):
            for result in (each for each in source.stages if each.target == column.target):
                found[result.stage, result.label].append(result)
    return found


def _line(
    stage: str, entries: Sequence[tuple[list[StageResult], list[StageResult]]], *, failed: bool
) -> CellLine:
    """Sum up entries, each by its results in fresh and in stale records."""
    outcomes = [{result.outcome for result in now} for now, _ in entries]
    failed = failed or any(Outcome.FAILED in each for each in outcomes)
    passed = sum(Outcome.PASSED in each and Outcome.FAILED not in each for each in outcomes)
    before = any(result.outcome is Outcome.PASSED for _, then in entries for result in then)
    noisy = any(too_noisy(result) for now, _ in entries for result in now)
    done, undone = _WORDS.get(stage, (f"{stage} passed", f"{stage} not run"))
    mark, text = next(
        (mark, text)
        for mark, text, holds in (
            (Mark.FAILED, "failed", failed),
            (Mark.PASSED, done, passed and passed == len(entries)),
            (Mark.PART, f"partly {done}", passed),
            (Mark.NOISY, "too noisy to tell", noisy),
            (Mark.STALE, f"stale: {done} before a change", before),
            (Mark.OPEN, undone, True),
        )
        if holds
    )
    return CellLine(stage=stage, mark=mark, text=text, passed=passed, stated=len(entries))
