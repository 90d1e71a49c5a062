"""What `contribbot dispatch` does, without a command line."""

from __future__ import annotations

import contextlib
import hashlib
import json
import re
import secrets
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Final

from pydantic import ValidationError

from contribbot.errors import (
    ContribbotError,
    ExitCode,
    GitHubError,
    NotFoundError,
    RefusedError,
    UncertainError,
    UsageError,
)
from contribbot.files import run_folder
from contribbot.github.git_data import head_of
from contribbot.github.waits import sleep
from contribbot.queue.load import Queue, select
from contribbot.runners import artifacts
from contribbot.runners.artifacts import (
    COLLECTOR,
    PACKED,
    PLAN_FILE,
    RUNNERS_STEP,
    Origin,
    RefusedArtifactError,
    open_zip,
)
from contribbot.runners.config import (
    WORKFLOW,
    check_workflow,
    commit_of,
    connected,
    load_fleet,
    no_run,
    uncommitted,
)
from contribbot.runners.model import PLAN_ARTIFACT, RUNNERS_FILE, Plan, Run, RunJob
from contribbot.runners.plan import demands

if TYPE_CHECKING:
    from contribbot.github.client import GitHub


_UNPROCESSABLE: Final = 422
#: Seconds between looks for a run that was just started.
_PAUSES: Final = (1.0, 1.0, 2.0, 2.0, 4.0, 5.0, 10.0, 15.0, 20.0, 30.0)
#: How a request stands in the name of a run: `run-name` of the workflow.
_REQUEST: Final = re.compile(r"\b([0-9a-f]{12})-([0-9a-f]{12})\b")


@dataclass(frozen=True)
class Selection:
    """What a run is to prove."""

    ref: str
    #: Names; none: all.
    patches: tuple[str, ...] = ()
    #: Targets; none: all.
    targets: tuple[str, ...] = ()

    @property
    def digest(self) -> str:
        """Twelve characters that are the same for the same selection."""
        text = json.dumps([self.ref, sorted(self.patches), sorted(self.targets)])
        return hashlib.sha256(text.encode()).hexdigest()[:12]


def check_targets(queue: Queue, names: Sequence[str], targets: Sequence[str]) -> None:
    """Refuse targets that no patch asks for, or no runner has: the run would do nothing."""
    if not targets:
        return
    asked = {target for name in names for _, target in demands(queue.specs[name])}
    for target in targets:
        if target not in asked:
            known = ", ".join(sorted(asked)) or "no AMD target"
            raise UsageError(
                f"--target {target}: no patch that is meant asks for it",
                hint=f"they ask for {known}",
            )
    there = {one.target for one in load_fleet(queue.folder).runners.runners}
    for target in targets:
        if target not in there:
            raise UsageError(
                f"--target {target}: no set of {RUNNERS_FILE} has it",
                hint=f"it has {', '.join(sorted(there)) or 'none with a GPU'}",
            )


def request_for(selection: Selection) -> str:
    """Return a name for a request that no other has, and that tells the selection."""
    return f"{selection.digest}-{secrets.token_hex(6)}"


def ask(github: GitHub, repository: str, selection: Selection, request: str) -> int:
    """Ask for a run, and return its number; 0: this GitHub does not say it."""
    inputs = {
        "patches": " ".join(selection.patches), "targets": " ".join(selection.targets),
        "request": request,
    }  # fmt: skip
    try:
        run = github.workflow(repository, WORKFLOW).create_dispatch(
            selection.ref, inputs, throw=True, return_run_details=True
        )
    except NotFoundError as error:
        raise UsageError(
            f"{repository}: {error.message}",
            hint=f"{WORKFLOW} must be on its default branch (contribbot workflows install), and "
            "the token must be allowed to write actions",
        ) from error
    except RefusedError as error:
        if error.status != _UNPROCESSABLE:
            raise
        raise UsageError(
            f"{repository} {selection.ref}: {error.message}",
            hint="name a branch that is there; if the inputs are refused, bring the workflows up "
            "to date with `contribbot workflows install` and push them; if the workflow is "
            "disabled, enable it on the page of the repository's actions",
        ) from error
    # PyGithub gives True for an answer without a body, of which its types know nothing.
    return int(getattr(run, "id", 0))


def find(
    github: GitHub, repository: str, ref: str, request: str, *, sleep: Callable[[float], None]
) -> Run | None:
    """Return the run that a request started: nothing else has its name. None: not seen."""
    for pause in (*_PAUSES, 0.0):
        for run in _listed(github, repository, ref):
            if request in run.display_title:
                return run
        if pause:
            sleep(pause)
    return None


def _listed(github: GitHub, repository: str, ref: str) -> tuple[Run, ...]:
    try:
        return artifacts.read_runs(github, repository, WORKFLOW, branch=ref)
    except NotFoundError:
        return ()  # GitHub knows a workflow only when it has seen a run of it


def cancel_superseded(
    github: GitHub, repository: str, selection: Selection, run: Run
) -> tuple[Run, ...]:
    """End older runs of the same selection that the same account started with this tool."""
    ended = []
    for one in _listed(github, repository, selection.ref):
        named = _REQUEST.search(one.display_title)
        mine = named is not None and named[1] == selection.digest and one.actor == run.actor
        if (
            mine
            and one.id < run.id
            and not one.over
            and artifacts.cancel_run(github, repository, one.id)
        ):
            ended.append(one)
    return tuple(ended)


#: Seconds between looks are at most so many times those of the first.
_SLOWEST: Final = 4.0
_GROWTH: Final = 1.5


@dataclass(frozen=True)
class Step:
    """A job as it is."""

    job: str
    now: str
    #: Which runner has it; may be empty.
    runner: str
    #: The names of its cells; none where the plan is not known.
    cells: tuple[str, ...]
    started: datetime | None
    ended: datetime | None
    failed: tuple[str, ...] = ()


@dataclass(frozen=True)
class View:
    """What changed since the last look."""

    steps: tuple[Step, ...]
    jobs: tuple[Step, ...]
    #: How many cells are in jobs in each state; empty where the plan is not known.
    cells: Mapping[str, int]


@dataclass(frozen=True)
class Ended:
    """A run that is over."""

    run: Run
    jobs: tuple[Step, ...]

    @property
    def collect(self) -> str:
        """What the run's own `collect` came to, which knows of second tries; or nothing."""
        found = [one.now for one in self.jobs if one.job == COLLECTOR]
        return found[0] if len(found) == 1 and found[0] in {"success", "failure"} else ""

    @property
    def passed(self) -> bool:
        """Whether all that was planned came and passed; by GitHub's mark where nobody judged."""
        return (self.collect or self.run.conclusion) == "success"

    @property
    def runners_failed(self) -> bool:
        """Whether the run's own `collect` says that runners failed, and no patch did."""
        failed = [one.failed for one in self.jobs if one.job == COLLECTOR]
        return self.collect == "failure" and RUNNERS_STEP in failed[0]

    @property
    def exit_code(self) -> ExitCode:
        """What the shell is told, as by `collect`."""
        if self.passed:
            return ExitCode.OK
        return ExitCode.MACHINE if self.runners_failed else ExitCode.NO


def watch(
    origin: Origin,
    run_id: int,
    *,
    every: float,
    sleep: Callable[[float], None],
    told: Callable[[View], None],
) -> Ended:
    """Look on until a run is over. What has not changed costs GitHub nothing."""
    known: dict[str, tuple[str, str]] = {}
    plan: Plan | None = None
    asked = False
    pause = every
    while True:
        try:
            # The run first: a job that ends after this look is seen at the next.
            run = artifacts.read_run(origin.github, origin.repository, run_id)
            check_workflow(run)
            jobs = artifacts.read_jobs(origin.github, origin.repository, run_id)
            if not asked and any(one.name == "plan" and one.over for one in jobs):
                plan, asked = _plan(origin, run_id), True
        except NotFoundError as error:
            raise no_run(origin.repository, run_id) from error
        steps = _steps(jobs, plan)
        changed = tuple(one for one in steps if known.get(one.job) != (one.now, one.runner))
        known = {one.job: (one.now, one.runner) for one in steps}
        if changed:
            told(View(changed, steps, _counted(steps, plan)))
        if run.over:
            return Ended(run, steps)
        pause = every if changed else min(pause * _GROWTH, every * _SLOWEST)
        sleep(pause)


def _steps(jobs: Sequence[RunJob], plan: Plan | None) -> tuple[Step, ...]:
    cells = {job.id: tuple(cell.key for cell in job.cells) for job in plan.jobs} if plan else {}
    return tuple(
        Step(one.name, (one.conclusion or one.status).replace("_", " "), one.runner_name or "",
             cells.get(one.name, ()), one.started_at, one.completed_at,
             tuple(step.name for step in one.steps if step.conclusion == "failure"))
        for one in jobs
    )  # fmt: skip


def _counted(steps: Sequence[Step], plan: Plan | None) -> dict[str, int]:
    """Return how many cells are in jobs in each state."""
    states = {one.job: one.now for one in steps}
    counted: Counter[str] = Counter()
    for job in plan.jobs if plan else ():
        counted[states.get(job.id, "not begun")] += len(job.cells)
    return dict(counted)


def _plan(origin: Origin, run_id: int) -> Plan | None:
    """Return the plan, to name cells with; it is judged when the run is collected."""
    listed = artifacts.read_artifacts(origin.github, origin.repository, run_id)
    found = next((one for one in listed if one.name == PLAN_ARTIFACT and not one.expired), None)
    if found is None or found.size_in_bytes > PACKED:
        return None
    try:
        content = artifacts.download(origin.github, origin.repository, found)
        return Plan.model_validate_json(open_zip(content, plan=True)[PLAN_FILE])
    except (RefusedArtifactError, ValidationError, GitHubError):
        return None  # only names are lacking


@dataclass(frozen=True)
class Order:
    """What a user asks for, as far as the queue alone says what that is."""

    #: Names; none: all.
    patches: tuple[str, ...]
    #: Targets; none: all.
    targets: tuple[str, ...]
    #: The branch; empty: the default branch.
    ref: str

    @classmethod
    def of(
        cls, queue: Queue, patches: Sequence[str], targets: Sequence[str], ref: str = ""
    ) -> Order:
        """Return an order that the queue can be asked for."""
        names = select(queue, patches, everything=not patches)
        check_targets(queue, names, targets)
        return cls(tuple(names) if patches else (), tuple(targets), ref)


@dataclass(frozen=True)
class Standing:
    """How the queue here stands to what a run will prove."""

    ref: str
    #: The branch's commit on GitHub; empty where it is no branch.
    there: str
    #: The queue's commit here; empty where it has none.
    here: str
    #: Files of the queue that are in no commit as they are here.
    uncommitted: tuple[str, ...]


@dataclass
class Sender:
    """Starts and watches runs of a queue."""

    queue: Queue
    github: GitHub
    repository: str
    scratch: Path
    sleep: Callable[[float], None]
    #: The run that goes on when this process ends; None: none is known.
    run_id: int | None = None
    #: The name of what was asked for; empty: nothing was.
    request: str = ""
    #: ` --repo OWNER/NAME` where the repository was named so: the next command needs it.
    named: str = ""

    @property
    def page(self) -> str:
        """The page that lists the runs."""
        return f"{self.github.server.web}/{self.repository}/actions/workflows/{WORKFLOW}"

    def select(self, order: Order) -> Selection:
        """Return what an order means."""
        ref = order.ref.removeprefix("refs/heads/")
        ref = ref or self.github.repository(self.repository).complete().default_branch
        return Selection(ref, order.patches, order.targets)

    def standing(self, selection: Selection) -> Standing:
        """Return how the queue here stands to what a run will prove."""
        folder, ref = self.queue.folder, selection.ref
        there = head_of(self.github.repository(self.repository), ref) or ""
        return Standing(ref, there, commit_of(folder), uncommitted(folder))

    def start(self, selection: Selection) -> Run:
        """Start a run, and find it."""
        self.request = request_for(selection)
        lost = GitHubError(
            f"{self.repository}: the run {self.request} was started, and does not show up",
            hint="look for it on the page of the repository's actions, and then "
            f"`contribbot dispatch --resume RUN{self.named}`",
        )
        try:
            run_id = ask(self.github, self.repository, selection, self.request)
        except UncertainError as error:
            lost, run_id = error, 0  # it may have come, and is not sent again
        except ContribbotError:
            self.request = ""
            raise
        if run_id:
            self.run_id = run_id
            # A run may show up a little later than its number.
            with contextlib.suppress(NotFoundError):
                return artifacts.read_run(self.github, self.repository, run_id)
        run = find(self.github, self.repository, selection.ref, self.request, sleep=self.sleep)
        if run is None:
            raise lost
        self.run_id = run.id
        return run

    def supersede(self, selection: Selection, run: Run) -> tuple[Run, ...]:
        """End older runs of the same; see `cancel_superseded`."""
        return cancel_superseded(self.github, self.repository, selection, run)

    def watch(self, run_id: int, *, every: float, told: Callable[[View], None]) -> Ended:
        """Look on until a run is over; see `watch`."""
        self.run_id = run_id
        origin = Origin(self.github, self.repository, self.scratch)
        try:
            return watch(origin, run_id, every=every, sleep=self.sleep, told=told)
        except (NotFoundError, UsageError):
            self.run_id, self.request = None, ""  # there is nothing that goes on
            raise


@contextlib.contextmanager
def sending(queue: Queue, repository: str) -> Iterator[Sender]:
    """Give what starts and watches runs of a queue."""
    with run_folder() as scratch, connected(queue, repository) as (github, name):
        named = f" --repo {name}" if repository else ""
        yield Sender(queue, github, name, scratch, sleep, named=named)
