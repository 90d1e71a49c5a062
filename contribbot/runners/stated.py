"""Whether a record answers what its patch states: nothing left out, and nothing made up."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from typing import Final

from contribbot.model.evidence import SEEN, Details, Outcome, StageResult
from contribbot.model.patch import Patch, units_of

_RED_TO_GREEN: Final = "fail-to-pass"

#: Stage, label and target of one piece of work.
_Unit = tuple[str, str, str]


def unstated(patch: Patch, details: Details, asked: Collection[str]) -> str:
    """Say where a record is not about what the patch states; or nothing."""
    units, reds = set(units_of(patch)), _red_to_green(patch)
    counted = Counter(map(_unit, details.stages))
    if twice := [unit for unit, count in counted.items() if count > 1]:
        return f"it has two outcomes of {_name(twice[0])}"
    for one in details.stages:
        unit = _unit(one)
        # Where lines or kernels are watched, the stage finds out for itself.
        if one.outcome in SEEN and unit not in units and one.stage != "witness":
            return f"it has an outcome of {_name(unit)}, which the patch does not state"
        claimed, red = one.details.get("expect") == _RED_TO_GREEN, unit in reds
        if one.outcome is Outcome.PASSED and claimed is not red:
            how = "only that it passes" if claimed else _RED_TO_GREEN
            return f"it says otherwise what {_name(unit)} is to show: the patch states {how}"
    # A stage that made no sense any more has one outcome for all of its work.
    said = {one.stage for one in details.stages if one.outcome is not Outcome.SKIPPED}
    skipped = {one.stage for one in details.stages} - said
    for stage, label, target in sorted(units):
        lacks = (stage, label, target) not in counted and stage not in skipped
        if lacks and f"{stage}:{target}" in asked:
            return f"it leaves out {_name((stage, label, target))}, which was asked"
    return ""


def _unit(result: StageResult) -> _Unit:
    return result.stage, str(result.details.get("check", "")), result.target


def _name(unit: _Unit) -> str:
    return "/".join(part for part in unit if part)


def _red_to_green(patch: Patch) -> set[_Unit]:
    """Return what a patch states to fail on the base."""
    spec = patch.spec
    told = [
        *(
            ("compile", one.name, where, one.expect)
            for one in spec.compile
            for where in one.targets
        ),
        *(("build", one.name, where, one.expect) for one in spec.build for where in one.targets),
        *(("reproduce", one.name, one.target, one.expect) for one in spec.checks),
        *(("numerics", one.name, one.target, one.expect) for one in spec.numerics),
        *([("hipify", "", "any", spec.hipify.expect)] if spec.hipify else []),
    ]
    return {(stage, label, target) for stage, label, target, how in told if how == _RED_TO_GREEN}
