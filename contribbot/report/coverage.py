"""The table of patches by targets: each cell sums up a patch's records on a target."""

from __future__ import annotations

import enum
from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Final

from contribbot.model.base import Model
from contribbot.model.checks import is_emulated
from contribbot.model.evidence import ON_HARDWARE, Outcome, StageResult, target_order
from contribbot.model.patch import Patch, units_of
from contribbot.queue.history import Refutation
from contribbot.verify.evidence import Source
from contribbot.verify.patch_verdict import too_noisy

#: Stages on hardware share one line of a cell; every other stage has a separate line.
RUN: Final = "run"
#: The words for a pass, and for an entry that was not run, by stage.
_WORDS: Final = {
    RUN: ("passed", "not run"),
    "compile": ("compiled", "not compiled"),
    "build": ("built", "not built"),
    "emulate": ("emulated", "not emulated"),
}
#: The titles and descriptions of targets that are not AMD GPUs.
_OTHERS: Final = {"cpu": ("CPU", "a processor"), "cuda": ("CUDA", "NVIDIA, not AMD")}


class Mark(enum.StrEnum):
    """The combined result of a patch's entries on one target."""

    PASSED = "passed"
    FAILED = "failed"
    #: Some entries passed, and none failed; the other entries were not run.
    PART = "part"
    NOISY = "noisy"
    #: Only an earlier version of the patch, the checks or the base passed.
    STALE = "stale"
    OPEN = "open"


class CellLine(Model):
    """The combined result of a stage on a target, or of a column of the first page."""

    title: str
    mark: Mark
    text: str
    passed: int
    stated: int
    #: Whether the patch states an entry here; for AMD's GPUs, an entry for any AMD target counts.
    asked: bool = True


class TargetCell(Model):
    """The cell of a patch and a target in the report's table."""

    target: str
    title: str
    kind: str
    lines: tuple[CellLine, ...] = ()


#: The first page's columns, each with words for entries not run, and for no entries.
PLACES: Final = {
    "CPU": ("not run", "not run"),
    "CUDA": ("not run", "not run"),
    "AMD": ("not run", "not run"),
    "compiled": ("not compiled", "-"),
    "emulated": ("not emulated", "-"),
}
#: A column takes the first of these marks that one of its lines has; each mark with a word.
_DECIDES: Final = {
    Mark.FAILED: "failed",
    Mark.PART: "partly",
    Mark.PASSED: "passed",
    Mark.NOISY: "too noisy",
    Mark.STALE: "stale",
}


def place_of(stage: str, target: str) -> str:
    """Return the first page's column for a stage on a target; empty for the target `any`."""
    if target == "any" or is_emulated(target):
        return "" if target == "any" else "emulated"
    return "compiled" if stage in {"compile", "build"} else _OTHERS.get(target, ("AMD",))[0]


def places_of(cells: Iterable[TargetCell]) -> tuple[CellLine, ...]:
    """Return a line for each column; with any AMD target, the column AMD counts as asked for."""
    found: dict[str, list[tuple[str, CellLine]]] = {title: [] for title in PLACES}
    for target, line in ((cell.target, line) for cell in cells for line in cell.lines):
        if line.stated:
            found[place_of(line.title, target)].append((target, line))
    on_amd = any("gfx" in target for lines in found.values() for target, _ in lines)
    return tuple(
        _place(title, lines, asked=bool(lines) or (on_amd and title == "AMD"))
        for title, lines in found.items()
    )


def _place(title: str, found: Sequence[tuple[str, CellLine]], *, asked: bool) -> CellLine:
    targets, lines = len({target for target, _ in found}), [line for _, line in found]
    marks = {line.mark for line in lines}
    mark = next((mark for mark in _DECIDES if mark in marks), Mark.OPEN)
    mark = Mark.PART if mark is Mark.PASSED and len(marks) > 1 else mark
    text = _DECIDES.get(mark) or PLACES[title][not asked]
    if mark is Mark.PASSED and title not in {"CPU", "CUDA"}:
        text = f"{targets} target{'s' if targets > 1 else ''}"
    passed, stated = sum(line.passed for line in lines), sum(line.stated for line in lines)
    return CellLine(title=title, mark=mark, text=text, passed=passed, stated=stated, asked=asked)


def columns_of(patches: Iterable[Patch]) -> list[TargetCell]:
    """Return an empty cell for each target that some patch states, and for `cpu`."""
    stated = {"cpu", *(target for patch in patches for _, _, target in patch.spec.units)}
    return [column(target) for target in sorted(stated, key=target_order)]


def column(target: str) -> TargetCell:
    """Return the heading of a target's column: a cell with title and kind, without results."""
    how, _, name = target.rpartition(":")
    title, kind = _OTHERS.get(name, (name, "AMD"))
    if how:
        title, kind = f"{title}, {how}", "not the hardware itself"
    return TargetCell(target=target, title=title, kind=kind)


def cell_of(
    patch: Patch,
    empty: TargetCell,
    fresh: Iterable[Source],
    stale: Iterable[Source],
    refuted: Iterable[Refutation] = (),
) -> TargetCell:
    """Return a patch's cell of a column, from the patch's records and valid refutations."""
    entries: dict[str, list[tuple[str, str]]] = {
        "emulate" if is_emulated(empty.target) else RUN: []  # shown even without an entry
    }
    for stage, label, target in units_of(patch):
        if target == empty.target:
            entries.setdefault(RUN if stage in ON_HARDWARE else stage, []).append((stage, label))
    now, then = _results(fresh, empty.target), _results(stale, empty.target)
    failed = {(each.stage, each.entry) for each in refuted if each.target == empty.target}
    lines = (
        _line(
            stage,
            [now[entry] for entry in own],
            [result for entry in own for result in then[entry]],
            failed=not failed.isdisjoint(own),
        )
        for stage, own in entries.items()
    )
    return empty.model_copy(update={"lines": (*lines,)})


def _results(sources: Iterable[Source], target: str) -> dict[tuple[str, str], list[StageResult]]:
    """Return the outcomes of records on a target, by stage and label."""
    found = defaultdict[tuple[str, str], list[StageResult]](list)
    for result in (result for source in sources for result in source.stages):
        if result.target == target:
            found[result.stage, result.label].append(result)
    return found


def _line(
    stage: str, entries: Sequence[list[StageResult]], before: Iterable[StageResult], *, failed: bool
) -> CellLine:
    """Return the line that sums up entries, by their outcomes in fresh, then in stale records."""
    outcomes = [{result.outcome for result in now} for now in entries]
    passed = sum(Outcome.PASSED in each and Outcome.FAILED not in each for each in outcomes)
    done, undone = _WORDS.get(stage, (f"{stage} passed", f"{stage} not run"))
    if failed or any(Outcome.FAILED in each for each in outcomes):
        mark, text = Mark.FAILED, "failed"
    elif passed:
        whole = passed == len(entries)
        mark, text = (Mark.PASSED, done) if whole else (Mark.PART, f"partly {done}")
    elif any(too_noisy(result) for now in entries for result in now):
        mark, text = Mark.NOISY, "too noisy to tell"
    elif any(result.outcome is Outcome.PASSED for result in before):
        mark, text = Mark.STALE, f"stale: {done} before a change"
    else:
        mark, text = Mark.OPEN, undone
    return CellLine(title=stage, mark=mark, text=text, passed=passed, stated=len(entries))
