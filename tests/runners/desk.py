"""A user who dispatches runs of a queue on the local GitHub."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from tests.github.state_actions import Run, actions_of, add_job, end_job, upload
from tests.runners.conftest import Said
from tests.runners.homing import Home, packed

WORKFLOW = """\
name: contribbot verify
run-name: contribbot verify ${{ inputs.request }}
on:
  workflow_dispatch:
    inputs:
      patches: {type: string, default: ""}
      targets: {type: string, default: ""}
      request: {type: string, default: ""}
jobs: {}
"""

Script = Callable[[Run], None]


@dataclass
class Desk:
    """A user at the queue; what happens meanwhile happens while contribbot sleeps."""

    home: Home
    script: list[Script] = field(default_factory=list)
    slept: list[float] = field(default_factory=list)

    def sleep(self, seconds: float) -> None:
        """Let the next thing happen."""
        self.slept.append(seconds)
        assert len(self.slept) < 100, "it watches for ever"
        if self.script:
            step = self.script.pop(0)
            with self.home.github.state.lock:
                step(self.runs()[-1])

    def runs(self) -> list[Run]:
        """Return the runs, oldest first."""
        return list(actions_of(self.home.repository).runs.values())

    def __call__(self, *args: str) -> Said:
        """Run `contribbot runners dispatch`."""
        return self.home.command("dispatch", *args)

    def started(self, *args: str) -> Run:
        """Start a run and leave it."""
        self.script = [self.interrupt]
        self(*args)
        return self.runs()[-1]

    # What a run does:

    def plan(self, run: Run) -> None:
        """Make the plan."""
        state = self.home.github.state
        job = add_job(state, run, "plan")
        self.home.plan = self.home.ranged.plan()
        upload(state, run, "contribbot-plan",
               packed({"plan.json": self.home.plan.model_dump_json().encode()}))  # fmt: skip
        end_job(state, job, "success")
        run.status = "in_progress"
        for each in self.home.plan.jobs:
            add_job(state, run, each.id)

    def work(self, run: Run) -> None:
        """Let a runner take the first job, and the other wait."""
        run.jobs[1].status, run.jobs[1].runner = "in_progress", "node-1"

    def end(self, run: Run) -> None:
        """Let all end."""
        for job in run.jobs:
            end_job(self.home.github.state, job, "success")
        run.status, run.conclusion = "completed", "success"

    def fail(self, run: Run) -> None:
        """Let it end badly."""
        run.status, run.conclusion = "completed", "failure"

    def judged(
        self, conclusion: str, run: str = "failure", *, steps: tuple[str, ...] = ("Collect",)
    ) -> Script:
        """Let a first try have failed, and the run's own `collect` end so, at those steps."""

        def script(each: Run) -> None:
            state = self.home.github.state
            for number, job in enumerate(each.jobs):
                end_job(state, job, "failure" if number == len(each.jobs) - 1 else "success")
            end_job(state, add_job(state, each, f"{each.jobs[-1].name}-again"), "success")
            own = add_job(state, each, "collect")
            own.steps = tuple((step, "completed", conclusion) for step in steps)
            end_job(state, own, conclusion)
            each.status, each.conclusion = "completed", run

        return script

    def interrupt(self, _: Run) -> None:
        """Press Ctrl-C."""
        raise KeyboardInterrupt
