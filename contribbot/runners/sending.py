"""What `contribbot dispatch` does, without a command line."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from contribbot.errors import (
    ContribbotError,
    GitHubError,
    NotFoundError,
    UncertainError,
    UsageError,
)
from contribbot.files import run_folder
from contribbot.github.git_data import head_of
from contribbot.github.waits import sleep
from contribbot.model.actions import Run
from contribbot.queue.load import Queue, select
from contribbot.runners import actions
from contribbot.runners.dispatching import (
    Selection,
    ask,
    cancel_superseded,
    check_targets,
    find,
    request_for,
)
from contribbot.runners.fetching import Origin
from contribbot.runners.watching import Ended, View, watch
from contribbot.runners.where import WORKFLOW, commit_of, connected, uncommitted

if TYPE_CHECKING:
    from contribbot.github.client import GitHub


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
                return actions.run(self.github, self.repository, run_id)
        run = find(self.github, self.repository, selection.ref, self.request, sleep=self.sleep)
        if run is None:
            raise lost
        self.run_id = run.id
        return run

    def supersede(self, selection: Selection, run: Run) -> tuple[Run, ...]:
        """End older runs of the same; see `dispatching.cancel_superseded`."""
        return cancel_superseded(self.github, self.repository, selection, run)

    def watch(self, run_id: int, *, every: float, told: Callable[[View], None]) -> Ended:
        """Look on until a run is over; see `watching.watch`."""
        self.run_id = run_id
        origin = Origin(self.github, self.repository, self.scratch, attest=lambda *_: "")
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
