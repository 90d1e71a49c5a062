"""From patches, runners and records to a plan."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from contribbot.model.patch import Patch
from contribbot.model.runners import (
    COMPILING,
    HOSTED,
    Cell,
    FreshCell,
    Job,
    Plan,
    Runners,
    RunnerSet,
    Subject,
)
from contribbot.queue.load import Queue
from contribbot.runners.cells import Wanted, asked_cells
from contribbot.runners.config import Fleet, load_fleet, restricted
from contribbot.runners.pack import Piece, Pool, Stack, pack
from contribbot.runners.seen import Facts, read_facts
from contribbot.runners.times import Times


def make_plan(
    queue: Queue, names: Sequence[str], *, everything: bool = False, on: Sequence[str] = ()
) -> Plan:
    """Make the plan of a run. The same queue, runners and records give the same plan."""
    fleet = load_fleet(queue.folder)
    meant = restricted(fleet, on)
    asked = asked_cells(queue, names, fleet.runners, meant)
    facts = read_facts(queue, names)
    wanted, fresh = _split(asked.wanted, {} if everything else facts)
    patches = {name: queue.patch(name) for name in dict.fromkeys(one.patch for one in wanted)}
    times = Times(one for each in facts.values() for one in each)
    pieces = _pieces(wanted, patches, times)
    stacks = pack(_pools(fleet, meant, pieces))
    return Plan(
        runners_sha256=fleet.sha256,
        subjects=tuple(
            Subject(patch=name, patch_sha256=one.digest, checks_sha256=one.checks_digest)
            for name, one in patches.items()
        ),
        jobs=_linked([job for stack in stacks for job in _written(meant, stack)]),
        open=asked.open,
        fresh=tuple(fresh),
        without=asked.without,
        loads=tuple(stack.load for stack in stacks),
    )


def _split(
    wanted: Sequence[Wanted], facts: Mapping[str, Sequence[Facts]]
) -> tuple[list[Wanted], list[FreshCell]]:
    """Part what must be run from what a record answers.

    Where records of two machines disagree, the one that says no is named.
    """
    due, fresh = [], []
    for one in wanted:
        said = [(known.says(one.require, one.rocm), known) for known in facts.get(one.patch, ())]
        answers = [(says, known) for says, known in said if says]
        if not answers:
            due.append(one)
            continue
        says, known = min(answers, key=lambda answer: answer[0] != "failed")
        fresh.append(
            FreshCell(kind=one.kind, patch=one.patch, target=one.target, rocm=one.rocm,
                      record=known.path, says="failed" if says == "failed" else "passed")
        )  # fmt: skip
    return due, fresh


def _pieces(wanted: Sequence[Wanted], patches: Mapping[str, Patch], times: Times) -> list[Piece]:
    """Put cells that one verification answers together: all compiles of a patch."""
    together: dict[tuple[str, str, str], list[Wanted]] = {}
    for one in wanted:
        alone = one.target if one.kind == "gpu" else ""
        together.setdefault((one.patch, one.rocm, alone), []).append(one)
    return [_piece(group, patches[group[0].patch], times) for group in together.values()]


def _piece(group: Sequence[Wanted], patch: Patch, times: Times) -> Piece:
    gpu = group[0].kind == "gpu"
    # A verification does all that its machine can do, whatever was asked of it.
    around = times.host(patch) + times.compiled(patch)[0]
    tree = patch.pin.title
    cells = []
    for one in group:
        seconds, basis = (times.ran if gpu else times.compiled)(patch, one.target)
        whole = around + seconds if gpu else around / len(group)
        cells.append(
            Cell(kind=one.kind, patch=one.patch, target=one.target, rocm=one.rocm,
                 require=one.require, tree=tree, seconds=round(whole, 3), estimate=basis)
        )  # fmt: skip
    return Piece(
        cells=tuple(cells),
        seconds=sum(cell.seconds for cell in cells),
        tree=tree,
        shared=times.shared(patch, group[0].target if gpu else ""),
    )


def _pools(fleet: Fleet, meant: Runners, pieces: Sequence[Piece]) -> list[Pool]:
    """Give each piece to a set; what compiles first, then the cheapest set."""
    sets = sorted(meant.runners, key=lambda one: one.cost)
    given: dict[str, list[Piece]] = {one.name: [] for one in sets}
    loads = dict.fromkeys(given, 0.0)
    for piece in sorted(pieces, key=lambda one: (-one.seconds, one.key)):
        if piece.cells[0].kind == "compile":
            continue
        one = _chosen(sets, loads, piece)
        given[one.name].append(piece)
        loads[one.name] += piece.seconds
    pools = [
        Pool(one.name, "gpu", one.count, one.minutes_limit, one.jobs_limit * one.count,
             tuple(given[one.name]), f"{fleet.path}: runners {one.name}")
        for one in sets
    ]  # fmt: skip
    if meant.hosted is None:
        return pools
    compiled = tuple(piece for piece in pieces if piece.cells[0].kind == "compile")
    host = meant.hosted
    return [
        Pool(HOSTED, "compile", host.count, host.minutes_limit, 4 * host.count, compiled,
             f"{fleet.path}: hosted"),
        *pools,
    ]  # fmt: skip


def _chosen(sets: Sequence[RunnerSet], loads: Mapping[str, float], piece: Piece) -> RunnerSet:
    """Return the cheapest set that can run a piece in time; of several, the one least busy."""
    cell = piece.cells[0]
    able = [
        one
        for one in sets
        if one.target == cell.target and cell.rocm in {image.version for image in one.rocm}
    ]
    # Where it is too long for all of them, `pack` says so.
    able = [one for one in able if piece.alone <= one.minutes_limit * 60] or able
    return min(able, key=lambda one: (one.cost, (loads[one.name] + piece.seconds) / one.count))


def _written(runners: Runners, stack: Stack) -> list[Job]:
    """Write the jobs of a set, numbered by ROCm version."""
    pool, jobs, numbers = stack.pool, [], dict[str, int]()
    for packed in stack.jobs:
        rocm = packed.pieces[0].rocm
        numbers[rocm] = numbers.get(rocm, 0) + 1
        one = next((each for each in runners.runners if each.name == pool.name), None)
        stem = COMPILING if one is None else _stem(runners, one)
        common = {"rocm": rocm, "runners": pool.name, "kind": pool.kind, "minutes": pool.minutes}
        host = runners.hosted
        offered = one.rocm if one else host.rocm if host else ()
        image = next(each for each in offered if each.version == rocm)
        jobs.append(
            Job.model_validate({
                **common,
                "id": f"{stem}-rocm{rocm}-{numbers[rocm]}",
                "labels": one.labels if one else host.labels if host else (),
                "target": one.target if one else "",
                "image": image.image,
                "flags": getattr(image, "flags", ()),
                "seconds": round(packed.seconds, 3),
                "cells": tuple(cell for piece in packed.pieces for cell in piece.cells),
            })
        )  # fmt: skip
    return jobs


def _stem(runners: Runners, one: RunnerSet) -> str:
    """Return how the jobs of a set are called: by its target, where that names no other."""
    alone = sum(each.target == one.target for each in runners.runners) == 1
    return one.target if alone else f"{one.target}-{one.name}"


def _linked(jobs: Sequence[Job]) -> tuple[Job, ...]:
    """Say of each job that runs which jobs compile for it."""
    compiled = {
        (cell.patch, cell.target, cell.rocm): job.id
        for job in jobs
        if job.kind == "compile"
        for cell in job.cells
    }
    return tuple(
        job
        if job.kind == "compile"
        else job.model_copy(update={"after": tuple(dict.fromkeys(
            compiled[key]
            for cell in job.cells
            if (key := (cell.patch, cell.target, cell.rocm)) in compiled
        ))})
        for job in jobs
    )  # fmt: skip


def again(plan: Plan, cells: Sequence[str], runners: Runners) -> tuple[Job, ...]:
    """Return what tries cells once more: on another set where one can, else on the same.

    `jobs_limit` is for what is planned: second tries come on top of it, one at most for each
    job. Else a set that is full could not take what another one's runners failed.
    """
    wanted = frozenset(cells)
    # The sets that were meant: somebody may have chosen among those of the queue.
    meant = {load.runners for load in plan.loads}
    sets = [one for one in runners.runners if one.name in meant]
    jobs = []
    for job in plan.jobs:
        left = tuple(cell for cell in job.cells if cell.key in wanted)
        if left:
            named = {"id": f"{job.id}-again", "cells": left, "after": ()}
            jobs.append(job.model_copy(update={**_elsewhere(job, sets), **named}))
    return tuple(jobs)


def _elsewhere(job: Job, sets: Sequence[RunnerSet]) -> dict[str, object]:
    """Return what of a job differs on the cheapest other set that can run it; or nothing."""
    able = [
        (one, image)
        for one in sets
        for image in one.rocm
        if one.name != job.runners
        and (one.target, image.version) == (job.target, job.rocm)
        and job.seconds <= one.minutes_limit * 60
    ]
    if not able:
        return {}
    one, image = min(able, key=lambda pair: pair[0].cost)
    return {"runners": one.name, "labels": one.labels, "image": image.image,
            "flags": image.flags, "minutes": one.minutes_limit}  # fmt: skip
