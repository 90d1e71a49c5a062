"""`contribbot runners matrix`, `workflows install`, `dispatch` and `collect`."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from contribbot.cli import command as cli
from contribbot.cli.refusal import current_settings
from contribbot.cli.render import Block, Table, count
from contribbot.errors import ExitCode, UsageError, first_of
from contribbot.files import write_named
from contribbot.markdown import line_of
from contribbot.runners.actions import JobState, commit_of, connected, start, watch
from contribbot.runners.actions import install as install_workflows
from contribbot.runners.collect import CellState, Collected
from contribbot.runners.collect import collect as collect_run
from contribbot.runners.plan import CiJob, Plan, make_plan


@cli.command("runners matrix --on gfx942")
def matrix(
    patches: list[str] | None = cli.PATCHES,
    everything: bool = cli.flag("--all", "Also run what a fresh record answers."),
    on: list[str] | None = cli.option(
        None, "SET", "Only these runners, by name of the set, target or label."
    ),
    output: Path | None = cli.option(None, "FILE", "Write the plan there, too."),
) -> cli.Reply:
    """Plan which runner proves what: jobs, what has no runner, and what is fresh."""
    queue, names = cli.open_patches(patches)
    outputs = os.environ.get("GITHUB_OUTPUT")
    is_run = bool(outputs or output)
    plan = make_plan(queue, names, everything=everything, on=on or (), for_a_run=is_run)
    if output is not None:
        write_named(output, (plan.model_dump_json(indent=2) + "\n").encode())
    if outputs:
        with Path(outputs).open("a", encoding="utf-8") as file:
            file.write(
                f"compile={_rows(plan.of_kind('compile'))}\ngpu={_rows(plan.of_kind('gpu'))}\n"
                f"any={str(bool(plan.jobs)).lower()}\n"
            )
    return cli.Reply(plan, matrix_lines(plan))


@cli.command("runners workflows install")
def install() -> cli.Reply:
    """Write .github/workflows/ for this queue's runners: verify, rebase, open-pr, emulate."""
    done = install_workflows(cli.open_queue())
    rows = [f"{it.path}: {'written' if it.changed else 'as it was'}" for it in done.workflows]
    return cli.Reply(done, rows)


@cli.command("runners dispatch rmsnorm --target gfx942")
def dispatch(
    patches: list[str] | None = cli.PATCHES,
    ref: str = cli.option(
        "", "BRANCH", "The branch of the queue to test.", default="the default branch"
    ),
    target: list[str] | None = cli.option(
        None, "TARGET", "Only this one: gfx942, ….", default="all"
    ),
    resume: int | None = cli.option(None, "RUN", "Watch a run that was started.", least=1),
) -> cli.Reply | int:
    """Start a run of verify.yml on GitHub, and wait for its end; interrupted, it goes on there."""
    if resume is not None and (patches or target or ref):
        raise UsageError("--resume starts nothing", hint="name either a run or what to prove")
    queue, names = cli.open_patches(patches)
    if resume is None:
        make_plan(queue, names, on=target or (), for_a_run=True)  # refuses unknown targets
    as_json = current_settings().as_json

    def told(job: JobState) -> None:
        where = f" on {job.runner}" if job.runner else ""
        cli.print_lines([f"{job.name}: {job.state}{where}"], stderr=as_json)

    with connected(queue) as (github, repository):
        run = resume or start(
            github, repository, ref, tuple(names if patches else ()), tuple(target or ())
        )
        page = f"{github.server.web}/{repository}/actions/runs/{run}"
        cli.print_lines([f"run {run}: {page}"], stderr=as_json)
        try:
            ended = watch(github, repository, run, told)
        except KeyboardInterrupt:
            again = f"contribbot runners dispatch --resume {run}"
            cli.print_lines([f"the run goes on: {again}"], stderr=True)
            return ExitCode.INTERRUPTED
    here = commit_of(queue.folder)
    lines = [
        f"run {run} of commit {ended.commit[:12]} is over: {ended.conclusion}",
        *([f"the queue here is at {here[:12] or 'no commit'}"] if here != ended.commit else []),
        f"what each cell shows: contribbot runners collect {run}",
    ]
    return cli.Reply(ended, lines, ended.exit_code, lines if as_json else ())


@cli.command("runners collect 1234567890")
def collect(run: int = cli.argument("RUN", "Its number.", least=1)) -> cli.Reply:
    """Fetch the records of a run of verify.yml, check them, and keep the good ones."""
    collected = collect_run(cli.open_queue(), run)
    # The worst cells come first.
    rows = [
        (cell.patch, cell.title, cell.rocm or "-", str(cell.state), line_of(cell.why))
        for cell in sorted(collected.cells, key=lambda cell: (_ORDER.index(cell.state), cell.key))
    ]
    records = [
        f"record {each.merged}: {each.path} (from {each.job}): {each.why}"
        for each in collected.records
        if each.merged != "unchanged"
    ]
    notes = map(line_of, (*records, *collected.notes))
    return cli.Reply(collected, [Table(rows), *notes, closing(collected)], collected.exit_code)


_ORDER: Final = (
    CellState.REFUTED,
    CellState.REFUSED,
    CellState.MISSING,
    CellState.FAULT,
    CellState.INCOMPLETE,
    CellState.RUNNING,
    CellState.OPEN,
    CellState.PROVED,
)


def closing(collected: Collected) -> str:
    """Return a sentence on a collected run: numbers of patches on targets by state, and result."""
    counted = Counter(cell.state for cell in collected.cells)
    states = ", ".join(f"{counted[state]} {state}" for state in _ORDER[::-1] if counted[state])
    end = "not all passed"
    if collected.complete:
        end = "all that was planned passed"
    elif collected.runners_failed:
        end = "runners failed, and no patch did"
    return f"run {collected.run}: {states or 'no cells'}: {end}"


def _rows(jobs: Iterable[CiJob]) -> str:
    """Return jobs as JSON on one line, for the key `include` of a matrix of GitHub Actions."""
    rows = [
        {
            "id": job.id,
            "artifact": job.artifact,
            "labels": job.labels,
            "image": job.image,
            "options": " ".join(job.flags),
            "minutes": job.minutes,
            "patches": " ".join(job.patches),
            "require": " ".join(job.require),
        }
        for job in jobs
    ]
    return json.dumps(rows, separators=(",", ":"))


def matrix_lines(plan: Plan) -> list[Block]:
    """Return lines on planned jobs, on targets without a runner, and on fresh records."""
    jobs = [
        (job.id, f"{count(len(job.cells), 'cell')} on {job.runners}: {first_of(job.patches)}")
        for job in plan.jobs
    ]
    lines: list[Block] = [Table(jobs)]
    lacking: dict[str, list[str]] = {}
    for cell in plan.open:
        waits = f"open  {cell.title}: {cell.reason}" if plan.runners else f"waits for {cell.title}"
        lacking.setdefault(waits, []).append(cell.patch)
    lines += [f"{waits}: {first_of(patches)}" for waits, patches in lacking.items()]
    lines += [
        f"fresh  {cell.patch} {cell.title} ROCm {cell.rocm or '?'}: "
        f"{'passed' if cell.passed else 'failed'} ({cell.record})"
        for cell in plan.fresh
    ]
    if plan.without:
        lines.append(f"no AMD target asked for: {', '.join(plan.without)}")
    if plan.cells:
        return [*lines, f"{count(len(plan.jobs), 'job')} for {count(len(plan.cells), 'cell')}"]
    if plan.runners:
        return [*lines, "nothing to run"]
    return [*lines, _NO_FLEET if plan.open else "nothing waits for an AMD GPU"]


_NO_FLEET: Final = (
    "no runners.toml says which runners there are (docs/runners.md has one to copy); on a "
    "machine with the GPU: contribbot verify NAME --require TARGET"
)
