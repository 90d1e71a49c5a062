"""Requests to GitHub of one run: counted by the local GitHub of the tests, nothing estimated.

`dispatch` starts the run and watches it to its end, on a clock that runs as fast as it can;
`collect` fetches what its jobs left. What asks for attestations (GitHub's own program) and
fetches artifacts from their storage is not counted.
"""

from __future__ import annotations

import io
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from contribbot.github.auth import Secret, Server, Token
from contribbot.github.client import connect
from contribbot.queue.load import Queue
from contribbot.runners.actions import from_github
from contribbot.runners.dispatch import Selection, Sender
from contribbot.runners.documents import Plan
from tests.github.handle import GitHub, serve
from tests.github.state import Repository
from tests.github.state_actions import Storage, actions_of, add_job, end_job, upload

#: When each job begins and ends, in seconds.
Ends = Mapping[str, tuple[float, float]]

REPOSITORY: Final = "example/queue"
WORKFLOW: Final = Path(__file__).parent.parent / "workflows" / "verify.yml"
#: Seconds that the job takes that makes the plan.
PLANNED: Final = 60.0
#: What has not changed since it was asked for before; GitHub does not count it.


@dataclass
class Play:
    """A run that works as the clock of whoever watches it goes on."""

    github: GitHub
    repository: Repository
    plan: Plan
    ends: Ends
    now: float = 0.0
    looks: int = 0
    _done: set[str] = field(default_factory=set)

    def sleep(self, seconds: float) -> None:
        """Let time go by, and what happens then."""
        self.looks += 1
        self.now += seconds
        with self.github.state.lock:
            self._go_on()

    def _go_on(self) -> None:
        state = self.github.state
        (run,) = actions_of(self.repository).runs.values()
        if self.now < PLANNED:
            return
        if not run.jobs:
            upload(state, run, "contribbot-plan", _zip("plan.json", self.plan.model_dump_json()))
            end_job(state, add_job(state, run, "plan"), "success")
            for job in self.plan.jobs:
                add_job(state, run, job.id)
            run.status = "in_progress"
        for ghost in run.jobs[1:]:
            begin, end = (PLANNED + at for at in self.ends[ghost.name])
            if self.now >= end and ghost.status != "completed":
                end_job(state, ghost, "success")
                upload(state, run, f"contribbot-{ghost.name}", _zip("job.json", "{}"))
            elif self.now >= begin and ghost.status == "queued":
                ghost.status, ghost.runner = "in_progress", "runner-1"
        if all(ghost.status == "completed" for ghost in run.jobs):
            run.status, run.conclusion = "completed", "success"


def _zip(name: str, text: str) -> bytes:
    place = io.BytesIO()
    with zipfile.ZipFile(place, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(name, text)
    return place.getvalue()


def told_requests(queue: Queue, plan: Plan, ends: Ends, folder: Path) -> list[str]:
    """Let a run be started, watched and fetched; return the requests that each needed."""
    with Storage().running() as storage, serve(folder / "github") as github:
        github.state.rate_limits["core"] = 10**6
        user = github.add_user("ada")
        repository = github.add_repository(REPOSITORY, members={"ada": "write"})
        actions_of(repository).storage = storage
        github.commit(repository, "main", {".github/workflows/verify.yml": WORKFLOW.read_bytes()})
        play = Play(github, repository, plan, ends)
        token = Token(Secret(user.tokens[0].text), "benchmark")
        with connect(server=Server(api=github.base), token=token) as client:
            sender = Sender(queue, client, REPOSITORY, play.sleep)
            return _counted(sender, play)


def _counted(sender: Sender, play: Play) -> list[str]:
    log = play.github.requests

    def since(begun: int) -> str:
        return f"{len(log) - begun} requests"

    selection = sender.on_branch(Selection(""))
    sender.state(selection)
    run = sender.start(selection)
    sender.supersede(selection, run)
    lines = [f"  requests to GitHub: to start the run {since(0)}"]
    begun, play.looks = len(log), 0
    sender.watch(run.id, watcher=lambda _: None)
    lines.append(f"  to watch it to its end, with {play.looks} looks: {since(begun)}")
    begun = len(log)
    download = from_github(sender.github, REPOSITORY, run.id)
    lines.append(f"  to fetch its {len(download.artifacts)} artifacts: {since(begun)}")
    return lines
