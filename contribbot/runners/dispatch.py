"""Starting a run of the queue on GitHub, watching it, and ending those that it makes pointless."""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import json
import re
import secrets
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from http import HTTPStatus
from typing import TYPE_CHECKING, Annotated, Final, Literal

from pydantic import Field, ValidationError

from contribbot.errors import (
    ContribbotError,
    ExitCode,
    GitHubError,
    NotFoundError,
    RefusedError,
    UncertainError,
    UsageError,
)
from contribbot.github.fields import login_of, whole
from contribbot.github.git_data import head_of
from contribbot.github.waits import sleep
from contribbot.model.base import Model
from contribbot.queue.load import Queue, select
from contribbot.runners import actions
from contribbot.runners.actions import (
    COLLECTOR,
    PLAN_FILE,
    RUNNERS_STEP,
    WORKFLOW,
    RefusedArtifactError,
    check_workflow,
    commit_of,
    connected,
    is_over,
    no_run,
    open_zip,
    steps_of,
    uncommitted,
)
from contribbot.runners.documents import PLAN_ARTIFACT, RUNNERS_FILE, Plan, load_fleet
from contribbot.runners.plan import demands

if TYPE_CHECKING:
    from github.WorkflowJob import WorkflowJob
    from github.WorkflowRun import WorkflowRun

    from contribbot.github.client import GitHub

#: The names of cells by job; empty where the plan is not known.
CellsByJob = Mapping[str, tuple[str, ...]]
_NOT_ASKED: Final[CellsByJob] = {}
#: Seconds between looks for a run that was just started.
_PAUSES: Final = (1.0, 1.0, 2.0, 2.0, 4.0, 5.0, 10.0, 15.0, 20.0, 30.0)
#: How a request stands in the name of a run: `run-name` of the workflow.
_REQUEST: Final = re.compile(r"\b([0-9a-f]{12})-([0-9a-f]{12})\b")
#: Seconds between looks are at most so many times those of the first.
_EVERY: Final = 10.0
_SLOWEST: Final = 4.0
_GROWTH: Final = 1.5


@dataclass(frozen=True)
class Selection:
    """What a run is to prove: patches and targets (none: all) of a branch (empty: the default)."""

    ref: str
    patches: tuple[str, ...] = ()
    targets: tuple[str, ...] = ()

    @classmethod
    def of(
        cls, queue: Queue, patches: Sequence[str], targets: Sequence[str], ref: str = ""
    ) -> Selection:
        """Return what a queue can be asked for; else the run would do nothing."""
        names = select(queue, patches, everything=not patches)
        runners = load_fleet(queue.folder, needed=False).runners
        asked = {target for name in names for _, target in demands(queue.specs[name], runners)}
        for target in targets:
            who, known = "no patch that is meant asks for it; they ask for", asked
            if target in asked:
                sets = load_fleet(queue.folder).runners.runners
                who, known = (
                    f"no set of {RUNNERS_FILE} has it; it has",
                    {each.target for each in sets},
                )
            if target not in known:
                have = ", ".join(sorted(known)) or "none"
                raise UsageError(
                    f"--target {target}: {who} {have}",
                    hint="see what `contribbot runners matrix` plans",
                )
        return cls(ref.removeprefix("refs/heads/"), tuple(names) if patches else (), tuple(targets))

    @property
    def digest(self) -> str:
        """Twelve characters that are the same for the same selection."""
        text = json.dumps([self.ref, sorted(self.patches), sorted(self.targets)])
        return hashlib.sha256(text.encode()).hexdigest()[:12]


@dataclass(frozen=True)
class QueueState:
    """The queue here, and on GitHub."""

    ref: str
    #: The branch's commit on GitHub; empty where it is no branch.
    there: str
    #: The queue's commit here; empty where it has none.
    here: str
    #: Files of the queue that are in no commit as they are here.
    uncommitted: tuple[str, ...]


class DispatchedJob(Model):
    """A job of a run as it is; `failed` are its steps."""

    name: str
    state: str
    runner: str
    started: datetime | None
    ended: datetime | None
    #: The names of its cells; none where the plan is not known.
    cells: Annotated[tuple[str, ...], Field(strict=False)]
    failed: tuple[str, ...] = Field(default=(), exclude=True)

    @classmethod
    def of(cls, job: WorkflowJob, plan: CellsByJob) -> DispatchedJob:
        """Return a job as GitHub has it, with its cells."""
        return cls(
            name=job.name, state=(job.conclusion or job.status).replace("_", " "),
            runner=job.runner_name or "", started=job.started_at, ended=job.completed_at,
            cells=plan.get(job.name, ()),
            failed=tuple(steps_of(job, failed=True)),
        )  # fmt: skip


@dataclass(frozen=True)
class View:
    """The jobs of a run, those that changed since the last look, and the cells by state."""

    changed: tuple[DispatchedJob, ...]
    jobs: tuple[DispatchedJob, ...]
    #: Empty where the plan is not known.
    cells: Mapping[str, int]


class Dispatched(Model):
    """What `runners dispatch --json` prints of a run that is over."""

    type: Literal["contribbot/dispatched/v1"] = "contribbot/dispatched/v1"
    repository: str
    run: int
    url: str
    commit: str
    conclusion: str
    #: What the run's own `collect` came to, which knows of second tries; empty: it judged nothing.
    collect: str
    #: Whether all that was planned came and passed; by GitHub's mark where nobody judged.
    passed: bool
    #: Whether `collect` says that runners failed, and no patch did.
    runners_failed: bool
    jobs: Annotated[tuple[DispatchedJob, ...], Field(strict=False)]

    @classmethod
    def of(cls, repository: str, run: WorkflowRun, jobs: tuple[DispatchedJob, ...]) -> Dispatched:
        """Return how a run ended."""
        own = [job for job in jobs if job.name == COLLECTOR]
        judged = len(own) == 1 and own[0].state in {"success", "failure"}
        collect = own[0].state if judged else ""
        return cls(
            repository=repository, run=run.id, url=run.html_url, commit=run.head_sha,
            conclusion=run.conclusion or "", collect=collect,
            passed=(collect or run.conclusion) == "success",
            runners_failed=collect == "failure" and RUNNERS_STEP in own[0].failed, jobs=jobs,
        )  # fmt: skip

    @property
    def exit_code(self) -> ExitCode:
        """What the shell is told, as by `collect`."""
        if self.passed:
            return ExitCode.OK
        return ExitCode.MACHINE if self.runners_failed else ExitCode.NO


@dataclass
class Sender:
    """Starts and watches runs of a queue."""

    queue: Queue
    github: GitHub
    repository: str
    sleep: Callable[[float], None]
    #: The run that goes on when this process ends; None: none is known.
    run_id: int | None = None
    #: The name of what was asked for; empty: nothing was.
    request: str = ""

    @property
    def page(self) -> str:
        """The page that lists the runs."""
        return f"{self.github.server.web}/{self.repository}/actions/workflows/{WORKFLOW}"

    def on_branch(self, selection: Selection) -> Selection:
        """Return a selection with the branch that it is of."""
        ref = selection.ref or self.github.repository(self.repository).complete().default_branch
        return replace(selection, ref=ref)

    def state(self, selection: Selection) -> QueueState:
        """Return how the queue here stands to what a run will prove."""
        folder, ref = self.queue.folder, selection.ref
        there = head_of(self.github.repository(self.repository), ref) or ""
        return QueueState(ref, there, commit_of(folder), uncommitted(folder))

    def start(self, selection: Selection) -> WorkflowRun:
        """Start a run, and find it."""
        # No other request has this name, and it tells the selection.
        self.request = f"{selection.digest}-{secrets.token_hex(6)}"
        lost = GitHubError(
            f"{self.repository}: the run {self.request} was started, and does not show up",
            hint="look for it on the page of the repository's actions, and then "
            "`contribbot runners dispatch --resume RUN`",
        )
        try:
            run_id = self._ask(selection)
        except UncertainError as error:
            lost, run_id = error, 0  # it may have come, and is not sent again
        except ContribbotError:
            self.request = ""
            raise
        if run_id:
            self.run_id = run_id
            # A run may show up a little later than its number.
            with contextlib.suppress(NotFoundError):
                return self.github.run(self.repository, run_id).complete()
        for pause in (0.0, *_PAUSES):
            if pause:
                self.sleep(pause)
            for run in self._listed(selection.ref):
                # Nothing else has its name.
                if self.request in (run.display_title or ""):
                    self.run_id = run.id
                    return run
        raise lost

    def _ask(self, selection: Selection) -> int:
        """Ask for a run, and return its number; 0: this GitHub does not say it."""
        inputs = {
            "patches": " ".join(selection.patches), "targets": " ".join(selection.targets),
            "request": self.request,
        }  # fmt: skip
        try:
            run = self.github.workflow(self.repository, WORKFLOW).create_dispatch(
                selection.ref, inputs, throw=True, return_run_details=True
            )
        except NotFoundError as error:
            raise UsageError(
                f"{self.repository}: {error.message}",
                hint=f"{WORKFLOW} must be on its default branch (contribbot runners workflows "
                "install), and the token must be allowed to write actions",
            ) from error
        except RefusedError as error:
            if error.status != HTTPStatus.UNPROCESSABLE_ENTITY:
                raise
            raise UsageError(
                f"{self.repository} {selection.ref}: {error.message}",
                hint="name a branch that is there; if the inputs are refused, bring the workflows "
                "up to date with `contribbot runners workflows install` and push them; if the "
                "workflow is disabled, enable it on the page of the repository's actions",
            ) from error
        # PyGithub gives True for an answer without a body, of which its types know nothing.
        return int(getattr(run, "id", 0))

    def _listed(self, ref: str) -> tuple[WorkflowRun, ...]:
        """Return the newest runs that somebody dispatched on a branch or tag."""
        workflow = self.github.workflow(self.repository, WORKFLOW)
        try:
            runs = workflow.get_runs(branch=ref, event="workflow_dispatch")
            return whole(itertools.islice(runs, 300))
        except NotFoundError:
            return ()  # GitHub knows a workflow only when it has seen a run of it

    def supersede(self, selection: Selection, run: WorkflowRun) -> tuple[WorkflowRun, ...]:
        """End older runs of the same selection that the same account started with this tool."""
        return tuple(
            each
            for each in self._listed(selection.ref)
            if (named := _REQUEST.search(each.display_title or ""))
            and (named[1], login_of(each.actor)) == (selection.digest, login_of(run.actor))
            and each.id < run.id
            and not is_over(each)
            and actions.cancel_run(self.github, self.repository, each.id)
        )

    def watch(self, run_id: int, *, watcher: Callable[[View], None]) -> Dispatched:
        """Look on until a run is over. What has not changed costs GitHub nothing."""
        self.run_id, pause = run_id, _EVERY
        before, plan = set[tuple[str, ...]](), _NOT_ASKED
        while True:
            # The run first: a job that ends after this look is seen at the next.
            try:
                run = self.github.run(self.repository, run_id).complete()
                check_workflow(run)
                listed = actions.read_jobs(self.github, self.repository, run_id)
            except (NotFoundError, UsageError) as error:
                self.run_id, self.request = None, ""  # there is nothing that goes on
                gone = isinstance(error, NotFoundError)
                raise (no_run(self.repository, run_id) if gone else error) from error
            if plan is _NOT_ASKED and any(job.name == "plan" and is_over(job) for job in listed):
                plan = self._plan(run_id)
            jobs = tuple(DispatchedJob.of(job, plan) for job in listed)
            changed = tuple(job for job in jobs if (job.name, job.state, job.runner) not in before)
            before = {(job.name, job.state, job.runner) for job in jobs}
            if changed:
                watcher(View(changed, jobs, _counted(jobs, plan)))
            if is_over(run):
                return Dispatched.of(self.repository, run, jobs)
            pause = _EVERY if changed else min(pause * _GROWTH, _EVERY * _SLOWEST)
            self.sleep(pause)

    def _plan(self, run_id: int) -> CellsByJob:
        """Return the plan's cells, to name them; it is judged when the run is collected."""
        for artifact in self.github.run(self.repository, run_id).get_artifacts():
            if artifact.name != PLAN_ARTIFACT or artifact.expired:
                continue
            # Without it, only names are lacking.
            with contextlib.suppress(RefusedArtifactError, ValidationError, GitHubError):
                content = actions.download(self.github, self.repository, artifact)
                plan = Plan.model_validate_json(open_zip(content, plan=True)[PLAN_FILE])
                return {job.id: tuple(cell.key for cell in job.cells) for job in plan.jobs}
        return {}


def _counted(jobs: Sequence[DispatchedJob], plan: CellsByJob) -> dict[str, int]:
    states = {job.name: job.state for job in jobs}
    counted: Counter[str] = Counter()
    for job, cells in plan.items():
        counted[states.get(job, "not begun")] += len(cells)
    return dict(counted)


@contextlib.contextmanager
def sending(queue: Queue) -> Iterator[Sender]:
    """Give what starts and watches runs of a queue."""
    with connected(queue) as (github, name):
        yield Sender(queue, github, name, sleep)
