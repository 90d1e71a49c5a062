"""What ran where: patches by targets and ROCm versions, as records that still hold say it."""

from __future__ import annotations

import enum
import re
from collections.abc import Iterable, Sequence
from typing import Final

from pydantic import computed_field

from contribbot.model.base import Model
from contribbot.model.evidence import ON_HARDWARE, SEEN, Details, Outcome, StageResult, too_noisy
from contribbot.model.patch import Patch, units_of
from contribbot.runners.model import Runners, is_version
from contribbot.verify.evidence import Record, State

#: What ran on hardware is one line of a cell; other stages have one each.
RUN: Final = "run"
#: The words for what passed, and for what nobody did.
_WORDS: Final = {
    RUN: ("passed", "not run"),
    "compile": ("compiled", "not compiled"),
    "build": ("built", "not built"),
}
_RELEASE: Final = re.compile(r"\d+(?:\.\d+){1,2}")
_KNOWN: Final = {"cpu": "CPU", "cuda": "CUDA"}
_KINDS: Final = {"cpu": "a processor", "cuda": "NVIDIA, not AMD"}


class Mark(enum.StrEnum):
    """What entries on one target come to."""

    PASSED = "passed"
    FAILED = "failed"
    #: Some passed, and none failed; the rest was not run.
    PART = "part"
    NOISY = "noisy"
    #: What passed was an earlier state of the patch, its checks or its base.
    STALE = "stale"
    OPEN = "open"


class CellLine(Model):
    """What was done on a target: run, compiled or built."""

    stage: str
    mark: Mark
    passed: int
    stated: int

    @computed_field  # type: ignore[prop-decorator]  # mypy knows no decorated property
    @property
    def text(self) -> str:
        """The cell's words."""
        done, undone = _WORDS.get(self.stage, (f"{self.stage} passed", f"{self.stage} not run"))
        return {
            Mark.PASSED: done, Mark.FAILED: "failed", Mark.NOISY: "too noisy to tell",
            Mark.PART: f"partly {done}", Mark.STALE: f"stale: {done} before a change",
            Mark.OPEN: undone,
        }[self.mark]  # fmt: skip

    @property
    def count(self) -> str:
        """How many entries passed, where that says more."""
        if self.mark in {Mark.PASSED, Mark.PART, Mark.FAILED} and self.stated > 1:
            return f"{self.passed} of {self.stated}"
        return "" if self.stated or self.stage != RUN else "no check for it"


class TargetColumn(Model):
    """A target, and the ROCm version where one is known."""

    target: str
    rocm: str = ""

    @property
    def title(self) -> str:
        """The target for readers."""
        kind, _, name = self.target.rpartition(":")
        return _KNOWN.get(name, name) + (f", {kind}" if kind else "")

    @property
    def kind(self) -> str:
        """What sort of machine that is."""
        if ":" in self.target:
            return "not the hardware itself"
        if self.rocm:
            return f"AMD, ROCm {self.rocm}"
        return _KINDS.get(self.target, "AMD")


class TargetCell(Model):
    """One patch on one target."""

    column: TargetColumn
    lines: tuple[CellLine, ...]


def target_order(target: str) -> tuple[int, int, str]:
    """Order the host, CUDA, then others by their generation; what is emulated stands behind."""
    known = (*_KNOWN,)
    kind, _, name = target.rpartition(":")
    place = known.index(name) if name in known else len(known)
    return place, len(name), f"{name} {kind}"


def columns_of(
    patches: Sequence[Patch], records: Iterable[Record], runners: Runners
) -> list[TargetColumn]:
    """Return every target that a patch states, with the ROCm versions that somebody has."""
    targets = {target for patch in patches for _, _, target in units_of(patch)} - {"any"}
    versions: dict[str, set[str]] = {target: set() for target in {"cpu", *targets}}
    for target, rocm in (offer for each in runners.sets for offer in each.offers):
        if target in versions:
            versions[target].add(rocm)
    for details in _fresh(records):
        for result in details.stages:
            if result.outcome in SEEN and result.target in targets - {*_KNOWN}:
                known = versions[result.target]
                seen = details.machine.rocm
                if not any(is_version(rocm, seen) for rocm in known):
                    known.add(_release(seen))
    return [
        TargetColumn(target=target, rocm=rocm)
        for target in sorted(versions, key=target_order)
        for rocm in sorted(versions[target] or {""}, key=_numbers)
    ]


def _release(rocm: str) -> str:
    found = _RELEASE.match(rocm)
    return found[0] if found else rocm


def _numbers(rocm: str) -> list[int]:
    return [int(part) for part in re.findall(r"\d+", rocm)]


def _fresh(records: Iterable[Record]) -> list[Details]:
    return [
        record.statement.predicate.contribbot
        for record in records
        if record.state is State.FRESH and record.statement is not None
    ]


def cells_of(
    patch: Patch, columns: Sequence[TargetColumn], records: Sequence[Record]
) -> list[TargetCell]:
    """Return what the records of a patch say of each column."""
    fresh = _fresh(records)
    stale = [
        record.statement.predicate.contribbot
        for record in records
        if record.state is State.STALE and record.statement is not None
    ]
    cells = []
    for column in columns:
        stated: dict[str, list[tuple[str, str]]] = {RUN: []}
        for stage, label, target in units_of(patch):
            if target == column.target:
                line = RUN if stage in ON_HARDWARE else stage
                stated.setdefault(line, []).append((stage, label))
        lines = tuple(
            _line(stage, [(_results(fresh, column, *unit), _results(stale, column, *unit))
                          for unit in units])
            for stage, units in stated.items()
        )  # fmt: skip
        cells.append(TargetCell(column=column, lines=lines))
    return cells


def _results(
    documents: Iterable[Details], column: TargetColumn, stage: str, label: str
) -> list[StageResult]:
    return [
        result
        for details in documents
        if _on(column, details.machine.rocm)
        for result in details.stages
        if (result.stage, str(result.details.get("check", "")), result.target)
        == (stage, label, column.target)
    ]


def _on(column: TargetColumn, rocm: str) -> bool:
    """Say whether a machine's ROCm belongs to a column; CPU and CUDA do not care."""
    if column.target in _KNOWN:
        return True
    return is_version(column.rocm, rocm) if column.rocm else not rocm


def _line(stage: str, units: Sequence[tuple[list[StageResult], list[StageResult]]]) -> CellLine:
    """Sum up the entries of a cell: in fresh records, and in stale ones."""
    outcomes = [{result.outcome for result in fresh} for fresh, _ in units]
    failed = sum(Outcome.FAILED in each for each in outcomes)
    passed = sum(Outcome.PASSED in each and Outcome.FAILED not in each for each in outcomes)
    if failed:
        mark = Mark.FAILED
    elif passed:
        mark = Mark.PASSED if passed == len(units) else Mark.PART
    elif any(too_noisy(result) for fresh, _ in units for result in fresh):
        mark = Mark.NOISY
    elif any(result.outcome is Outcome.PASSED for _, stale in units for result in stale):
        mark = Mark.STALE
    else:
        mark = Mark.OPEN
    return CellLine(stage=stage, mark=mark, passed=passed, stated=len(units))
