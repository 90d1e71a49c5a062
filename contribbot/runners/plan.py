"""From patches, runners and records to a plan."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from contribbot.errors import QueueError
from contribbot.model.checks import is_simulated
from contribbot.model.evidence import SIMULATE, Outcome
from contribbot.model.patch import Patch, PatchSpec
from contribbot.queue.load import Queue
from contribbot.runners.documents import (
    AGAIN,
    COMPILING,
    CellName,
    CiJob,
    FreshCell,
    Hosted,
    Kind,
    OpenCell,
    Plan,
    PlannedCell,
    Runners,
    RunnerSet,
    Subject,
    is_version,
    load_fleet,
    restricted,
)
from contribbot.verify.evidence import Record, State, read_records

Require = tuple[str, ...]


def demands(spec: PatchSpec, runners: Runners) -> dict[tuple[Kind, str], Require]:
    """Return the stages on AMD targets by kind and target: builds too, and simulations."""
    stages: dict[tuple[Kind, str], dict[str, None]] = {}
    for stage, _, target in spec.units:
        if target.startswith("gfx"):
            kind: Kind = "compile" if stage == "compile" else "gpu"
            stages.setdefault((kind, target), {})[f"{stage}:{target}"] = None
    for each in runners.runners:
        checks = (*spec.checks, *spec.numerics) if each.under else ()
        if any(check.target == each.gpu and not check.build for check in checks):
            stages["gpu", each.target] = {f"{SIMULATE}:{each.target}": None}
    return {key: tuple(names) for key, names in stages.items()}


def asked_cells(
    queue: Queue, names: Sequence[str], runners: Runners, meant: Runners
) -> tuple[dict[CellName, Require], list[OpenCell]]:
    """Return the cells that the runners meant can run, with what each must prove, and the rest."""
    able, used = _offers(runners), _offers(meant)
    wanted: dict[CellName, Require] = {}
    lacking: list[OpenCell] = []
    for name in names:
        for (kind, target), require in demands(queue.specs[name], runners).items():
            offered = [rocm for rocm in runners.versions if (kind, target, rocm) in able]
            for rocm in offered:
                if (kind, target, rocm) in used:
                    wanted[CellName(kind=kind, patch=name, target=target, rocm=rocm)] = require
            missing = [
                rocm
                for rocm in runners.versions
                if rocm not in offered and not is_simulated(target)
            ]
            lacking += [
                OpenCell(kind=kind, patch=name, target=target, rocm=rocm,
                         reason=_lack(runners, kind, target, rocm))
                for rocm in (missing if offered else [""])
            ]  # fmt: skip
    return wanted, lacking


def _offers(runners: Runners) -> set[tuple[Kind, str, str]]:
    return {(each.kind, *offer) for each in runners.sets for offer in each.offers}


def _lack(runners: Runners, kind: Kind, target: str, rocm: str) -> str:
    if kind == "gpu":
        return f"no runner with {target} has ROCm {rocm}" if rocm else f"no runner has {target}"
    if runners.hosted is None:
        return "no [hosted] runner compiles"
    with_rocm = f" with ROCm {rocm}" if rocm else ""
    return f"no [[hosted.rocm]] compiles for {target}{with_rocm}"


def record_says(
    record: Record, require: Iterable[str], rocm: str | None
) -> Literal["passed", "failed", ""]:
    """Return what a record says of a cell under a ROCm version (None: any), or nothing."""
    if record.state is not State.FRESH or record.statement is None:
        return ""
    details = record.statement.predicate.contribbot
    needs = [need.partition(":")[::2] for need in require]
    beside = details.run is not None and not details.run.job.startswith(f"{COMPILING}-")
    if beside and any(stage == "compile" for stage, _ in needs):
        return ""
    if rocm is not None and not is_version(rocm, details.machine.rocm):
        return ""
    outcomes = [
        {result.outcome for result in details.stages if (result.stage, result.target) == need}
        for need in needs
    ]
    if any(Outcome.FAILED in each for each in outcomes):
        return "failed"
    return "passed" if all(each == {Outcome.PASSED} for each in outcomes) else ""


_RELEASE: Final = re.compile(r"[0-9]{1,3}(?:\.[0-9]{1,3}){1,2}")


def _answer(
    queue: Queue, cell: CellName, require: Require, records: Iterable[Record]
) -> FreshCell | None:
    """Return what the records of a patch say of a cell: one that failed goes before others."""
    says = {(record_says(record, require, cell.rocm or None), record.path): record
            for record in records}  # fmt: skip
    for (answer, path), record in sorted(says.items(), key=lambda item: item[0]):
        if answer and record.statement is not None:
            # Distributions write it as 7.1.0-84.
            release = _RELEASE.match(record.statement.predicate.contribbot.machine.rocm)
            return FreshCell(
                kind=cell.kind, patch=cell.patch, target=cell.target,
                rocm=cell.rocm or (release[0] if release else ""),
                record=path.relative_to(queue.folder).as_posix(), says=answer,
            )  # fmt: skip
    return None


#: Jobs that Actions makes of a matrix at most (GitHub, "Actions limits").
MOST_JOBS: Final = 256
#: Patches of a job, so that trying it again costs little; more where there would be too many jobs.
_PATCHES: Final = 8


@dataclass(frozen=True)
class Piece:
    """Cells that one verification answers: a patch under one ROCm version, on one pin."""

    cells: tuple[PlannedCell, ...]
    pin: str

    @property
    def rocm(self) -> str:
        """The ROCm version."""
        return self.cells[0].rocm


@dataclass(frozen=True)
class PackedJob:
    """The pieces of a job, all of one image and pin."""

    runners: RunnerSet | Hosted
    pieces: tuple[Piece, ...]


def split(given: Sequence[tuple[RunnerSet | Hosted, Sequence[Piece]]]) -> list[PackedJob]:
    """Make the jobs of one matrix: patches on one pin share a job, whose runner brings it once."""
    most = max((len(pieces) for _, pieces in given), default=0)
    scale = 1
    while True:
        jobs = [
            PackedJob(runners, tuple(group[place::number]))
            for runners, pieces in given
            for group in _alike(pieces)
            for short in [min(_PATCHES, math.ceil(len(group) / runners.count)) * scale]
            for number in [math.ceil(len(group) / short)]
            for place in range(number)
        ]
        if len(jobs) <= MOST_JOBS:
            return jobs
        if scale > most:
            raise QueueError(
                f"these are {len(jobs)} jobs, and a run has at most {MOST_JOBS}",
                hint="name fewer patches, plan some sets only (--on SET), or take away a "
                "[[runners.rocm]]: each ROCm version of each set needs a job of its own",
            )
        scale *= 2


def _alike(pieces: Iterable[Piece]) -> list[list[Piece]]:
    """Return pieces of one image and pin together."""
    groups: dict[tuple[str, str], list[Piece]] = {}
    for piece in pieces:
        groups.setdefault((piece.rocm, piece.pin), []).append(piece)
    return list(groups.values())


def make_plan(
    queue: Queue,
    names: Sequence[str],
    *,
    everything: bool = False,
    on: Sequence[str] = (),
    for_a_run: bool = False,
) -> Plan:
    """Make the plan of a run; without `runners.toml` it says what waits for which target."""
    fleet = load_fleet(queue.folder, needed=for_a_run or bool(on))
    meant = restricted(fleet, on)
    wanted, lacking = asked_cells(queue, names, fleet.runners, meant)
    records = {name: read_records(queue, queue.evidence, name) for name in names}
    answers: dict[CellName, FreshCell] = {}
    if not everything:
        needs: dict[CellName, Require] = wanted
        if not fleet.runners.sets:
            # Without runners, a record under any ROCm version answers what waits.
            needs = {cell: demands(queue.specs[cell.patch], fleet.runners)[cell.kind, cell.target]
                     for cell in lacking}  # fmt: skip
        for cell, require in needs.items():
            if answer := _answer(queue, cell, require, records[cell.patch]):
                answers[cell] = answer
    due = {cell: require for cell, require in wanted.items() if cell not in answers}
    patches = {name: queue.patch(name) for name in dict.fromkeys(cell.patch for cell in due)}
    given = _given(meant, _pieces(due, patches))
    kinds: tuple[Kind, ...] = ("compile", "gpu")
    packed = [
        job
        for kind in kinds
        for job in split([(each, given[each.name]) for each in meant.sets if each.kind == kind])
    ]
    return Plan(
        runners_sha256=fleet.sha256,
        subjects=tuple(
            Subject(patch=name, patch_sha256=patch.digest, checks_sha256=patch.checks_digest)
            for name, patch in patches.items()
        ),
        jobs=tuple(_jobs(meant, packed)),
        open=tuple(cell for cell in lacking if cell not in answers),
        fresh=tuple(answers.values()),
        without=tuple(name for name in names if not demands(queue.specs[name], fleet.runners)),
        runners=tuple(each.name for each in meant.sets),
    )


def _pieces(due: Mapping[CellName, Require], patches: Mapping[str, Patch]) -> list[Piece]:
    """Put cells that one verification answers together: all compiles of a patch."""
    groups: dict[tuple[str, str, str], list[PlannedCell]] = {}
    for cell, require in due.items():
        gpu = cell.target if cell.kind == "gpu" else ""
        groups.setdefault((cell.patch, cell.rocm, gpu), []).append(
            PlannedCell(kind=cell.kind, patch=cell.patch, target=cell.target, rocm=cell.rocm,
                        require=require)
        )  # fmt: skip
    return [Piece(tuple(cells), patches[name].pin.title) for (name, _, _), cells in groups.items()]


def _given(meant: Runners, pieces: Sequence[Piece]) -> dict[str, list[Piece]]:
    """Give each piece to the cheapest set that can run it, of several to the idlest."""
    given: dict[str, list[Piece]] = {each.name: [] for each in meant.sets}
    for piece in pieces:
        cell = piece.cells[0]
        able = [each for each in meant.sets
                if each.kind == cell.kind and (cell.target, cell.rocm) in each.offers]  # fmt: skip
        best = min(able, key=lambda each: (each.cost, len(given[each.name]) / each.count))
        given[best.name].append(piece)
    return given


def _jobs(meant: Runners, packed: Sequence[PackedJob]) -> list[CiJob]:
    """Write the jobs of all sets, numbered by ROCm version; those that compile come first."""
    jobs: list[CiJob] = []
    compiled: dict[tuple[str, str, str], str] = {}
    numbers = Counter[tuple[str, str]]()
    for job in packed:
        own, rocm = job.runners, job.pieces[0].rocm
        # A set is called by its target, where that names no other.
        twins = [each for each in meant.runners if each.target == own.target]
        stem = own.target.replace(":", "-") or COMPILING
        stem = f"{stem}-{own.name}" if len(twins) > 1 else stem
        image = next(image for image in own.rocm if image.version == rocm)
        numbers[stem, rocm] += 1
        name = f"{stem}-rocm{rocm}-{numbers[stem, rocm]}"
        cells = tuple(cell for piece in job.pieces for cell in piece.cells)
        keys = [(cell.patch, cell.target, cell.rocm) for cell in cells]
        after = dict.fromkeys(compiled[key] for key in keys if key in compiled)
        if own.kind == "compile":
            compiled |= dict.fromkeys(keys, name)
        jobs.append(CiJob(
            id=name, kind=own.kind, runners=own.name, labels=own.labels, target=own.target,
            rocm=rocm, image=image.image, flags=image.flags, minutes=own.minutes_limit,
            cells=cells, after=tuple(after),
        ))  # fmt: skip
    return jobs


def second_try(plan: Plan, job: CiJob, cells: Iterable[str], runners: Runners) -> CiJob | None:
    """Return what tries cells of a job once more: on another set that can, else on the same."""
    wanted = frozenset(cells)
    left = tuple(cell for cell in job.cells if cell.key in wanted)
    if not left:
        return None
    # The sets that were meant: somebody may have chosen among those of the queue.
    meant = {*plan.runners} - {job.runners}
    able = [
        (other.cost, other, image)
        for other in runners.runners
        for image in other.rocm
        if other.name in meant
        and (other.target, image.version) == (job.target, job.rocm)
        and job.minutes <= other.minutes_limit
    ]
    changed: dict[str, object] = {"id": f"{job.id}{AGAIN}", "cells": left, "after": ()}
    if able:
        _, other, image = min(able, key=lambda way: way[0])
        changed |= {"runners": other.name, "labels": other.labels, "image": image.image,
                    "flags": image.flags, "minutes": other.minutes_limit}  # fmt: skip
    return job.model_copy(update=changed)
