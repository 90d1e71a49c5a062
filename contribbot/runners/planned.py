"""Whether a plan that came is the queue's own, and what becomes of what it does not run."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from hashlib import sha256
from pathlib import PurePosixPath

from pydantic import ValidationError

from contribbot.errors import ContribbotError
from contribbot.model.actions import PLAN_ARTIFACT, CellEnd, CellState, RunJob
from contribbot.model.runners import (
    HOSTED,
    RUNNERS_FILE,
    FreshCell,
    Job,
    OpenCell,
    Plan,
    Runners,
    cell_key,
)
from contribbot.queue.load import Queue
from contribbot.runners.artifacts import PLAN_FILE
from contribbot.runners.cells import asked_cells, demands
from contribbot.runners.config import load_fleet
from contribbot.runners.fetching import Haul
from contribbot.runners.seen import read_facts
from contribbot.runners.where import commit_of, uncommitted

#: Jobs of the workflow that no plan has.
_OWN_JOBS = frozenset({"plan", "compile", "gpu", "plan-again", "again", "attest", "collect"})


def plan_of(queue: Queue, haul: Haul) -> tuple[Plan | None, list[str]]:
    """Return the plan of a run, None where there is none to go by; and what must be known of it."""
    came = [one for one in haul.arrived if one.name == PLAN_ARTIFACT]
    if len(came) != 1 or haul.source is None:
        what = "came twice" if came else "never came"
        job = (haul.jobs or {}).get("plan")
        ended = f" (its job: {job.conclusion or job.status})" if job else ""
        if len(came) == 1:
            what = "came, and nothing says of which run"
        return None, [f"the plan {what}{ended}: nothing can be said of any cell"]
    if came[0].refused:
        return None, [f"the plan is refused: {came[0].refused}"]
    try:
        plan = Plan.model_validate_json(came[0].files[PLAN_FILE])
    except (ValidationError, ValueError, KeyError) as error:
        what = error.errors()[0]["msg"] if isinstance(error, ValidationError) else "not there"
        return None, [f"the plan is refused: not a plan: {what}"]
    here, commit = commit_of(queue.folder), haul.source.commit
    notes = []
    if here != commit:
        notes.append(
            f"the run was of the queue's commit {commit[:12]}, and here is {here[:12] or 'none'}: "
            "what came is judged by what is here"
        )
    elif _is_strange(queue, plan):
        why = "it was not made with the runners.toml of the run's commit"
        return None, [f"the plan is refused: {why}"]
    if runners_of(queue, plan) is None:
        notes.append(
            "runners.toml here is not the one that the run was planned with, or is not valid: "
            "images, flags, what is open, what is left out and second tries are not held against "
            "it; check out the run's commit for that"
        )
    return plan, notes


def _is_strange(queue: Queue, plan: Plan) -> bool:
    """Say whether a plan of the commit that is here was not made with its `runners.toml`."""
    path = queue.folder / RUNNERS_FILE
    if path.is_file() and sha256(path.read_bytes()).hexdigest() == plan.runners_sha256:
        return False
    # What is not committed here is not what the run had.
    return all(PurePosixPath(one).name != RUNNERS_FILE for one in uncommitted(queue.folder))


def problems(queue: Queue, plan: Plan) -> dict[str, str]:
    """Return what is wrong with cells of a plan, by key: what the queue never asked so."""
    runners = runners_of(queue, plan)
    found = {}
    for job in plan.jobs:
        odd = "" if runners is None else _job_problem(job, runners)
        for cell in job.cells:
            spec = queue.specs.get(cell.patch)
            stated = demands(spec).get((cell.kind, cell.target)) if spec else None
            if spec is None:
                found[cell.key] = f"{cell.patch} is no patch of this queue"
            elif stated != cell.require:
                found[cell.key] = (
                    f"the plan asks for {', '.join(cell.require)}, and the patch for "
                    f"{', '.join(stated or ()) or 'nothing there'}"
                )
            elif (job.kind, job.rocm) != (cell.kind, cell.rocm) or (
                job.kind == "gpu" and job.target != cell.target
            ):
                found[cell.key] = "the plan gives it to a job for something else"
            elif odd:
                found[cell.key] = odd
    return found


def runners_of(queue: Queue, plan: Plan) -> Runners | None:
    """Return the runners of the queue; None where the plan was made with others."""
    try:
        fleet = load_fleet(queue.folder)
    except ContribbotError:
        return None
    return fleet.runners if fleet.sha256 == plan.runners_sha256 else None


def _job_problem(job: Job, runners: Runners) -> str:
    """Say what of a job is not in `runners.toml`; or nothing."""
    offered: set[tuple[str, str, tuple[str, ...], tuple[str, ...], int]] = set()
    if job.runners == HOSTED and runners.hosted is not None:
        host = runners.hosted
        offered = {
            (one.version, one.image, (), host.labels, host.minutes_limit) for one in host.rocm
        }
    for own in runners.runners:
        if own.name == job.runners and own.target == job.target:
            limit = own.minutes_limit
            offered = {(one.version, one.image, one.flags, own.labels, limit) for one in own.rocm}
    if (job.rocm, job.image, job.flags, job.labels, job.minutes) not in offered:
        return "the plan names runners, an image or a limit that runners.toml does not"
    return ""


def unplanned(planned: Iterable[Job], jobs: Mapping[str, RunJob] | None) -> list[str]:
    """Return what ran and is in no plan: the plan that came is not the one that was run."""
    known = {job.id for job in planned} | _OWN_JOBS
    return [
        f"job {name!a} ran, and the plan has none of this name"
        for name, job in sorted((jobs or {}).items())
        if name not in known and job.conclusion != "skipped"
    ]


def not_run(queue: Queue, plan: Plan) -> list[CellEnd]:
    """Return the cells that no job had: without a runner, or answered by a record."""
    ends = _open(queue, plan)
    names = [one.patch for one in plan.fresh if one.patch in queue.specs]
    facts = read_facts(queue, list(dict.fromkeys(names)))
    for one in plan.fresh:
        stated = demands(queue.specs[one.patch]) if one.patch in queue.specs else {}
        require = stated.get((one.kind, one.target), ())
        said = {
            known.says(require, one.rocm)
            for known in facts.get(one.patch, ())
            if require and known.path == one.record
        }
        state, why = CellState.OPEN, f"its record is not here, or not fresh: {one.record}"
        if "failed" in said:
            state, why = CellState.REFUTED, one.record
        elif "passed" in said:
            state, why = CellState.PROVED, one.record
        ends.append(
            CellEnd(kind=one.kind, patch=one.patch, target=one.target, rocm=one.rocm,
                    state=state, why=why, fresh=True)
        )  # fmt: skip
    return ends


def _open(queue: Queue, plan: Plan) -> list[CellEnd]:
    """Return the cells that a plan calls open: that they are, the queue must say as well."""
    runners = runners_of(queue, plan)
    known: set[str] | None = None
    if runners is not None:
        known = {_key(one) for one in asked_cells(queue, list(queue.specs), runners, runners).open}
    ends = []
    for one in plan.open:
        state, why = CellState.OPEN, one.reason
        if known is not None and _key(one) not in known:
            state, why = CellState.REFUSED, "the plan calls it open, and by this queue it is not"
        ends.append(
            CellEnd(kind=one.kind, patch=one.patch, target=one.target, rocm=one.rocm,
                    state=state, why=why)
        )  # fmt: skip
    return ends


def _key(cell: OpenCell | FreshCell) -> str:
    return cell_key(cell.kind, cell.patch, cell.target, cell.rocm)


def left_out(queue: Queue, plan: Plan, *, selected: bool) -> list[CellEnd]:
    """Return the cells that the patches ask for and that the plan is silent about."""
    runners = runners_of(queue, plan)
    if selected or runners is None:
        return []
    there = {one.key for one in plan.cells}
    there |= {_key(one) for one in plan.open} | {_key(one) for one in plan.fresh}
    asked = asked_cells(queue, list(queue.specs), runners, runners)
    return [
        CellEnd(kind=one.kind, patch=one.patch, target=one.target, rocm=one.rocm,
                state=CellState.MISSING, why="the plan leaves it out")
        for one in asked.wanted
        if one.key not in there
    ]  # fmt: skip
