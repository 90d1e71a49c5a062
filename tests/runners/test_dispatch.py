"""`contribbot runners dispatch`: a run is started, found, watched, resumed; older ones end."""

from __future__ import annotations

import json
import re
from collections.abc import Callable

import pytest

from contribbot.errors import ExitCode
from contribbot.runners.actions import RUNNERS_STEP
from tests.github.handle import GitHub
from tests.github.server import Hook
from tests.github.state_actions import Run, Storage, actions_of, add_run, upload
from tests.github.wire import Answer, HangUpError, Request
from tests.runners.conftest import CHECKS, Ranged, Said
from tests.runners.desk import WORKFLOW, Desk, Script
from tests.runners.homing import COMPILED, RAN, make_home, packed
from tests.toy import git

ALL_PASSED = "collect: success, so all that was planned came and passed"


def test_a_run_from_its_start_to_its_end(desk: Desk) -> None:
    desk.script = [desk.plan, desk.work, desk.end]
    said = desk("area", "--target", "gfx942")
    assert (said.code, said.err) == (ExitCode.OK, "")
    (run,) = desk.runs()
    assert {key: run.inputs[key] for key in ("patches", "targets")} == {
        "patches": "area", "targets": "gfx942",
    }  # fmt: skip
    assert re.fullmatch(r"[0-9a-f]{12}-[0-9a-f]{12}", run.inputs["request"])
    lines = said.out.splitlines()
    assert lines == [
        f"run {run.id}: https://github.com/example/queue/actions/runs/{run.id}",
        "plan: success on runner-1",
        f"{COMPILED}: queued: compile/area/gfx942/rocm7.1",
        f"{RAN}: queued: gpu/area/gfx942/rocm7.1",
        "cells, as their jobs are: 2 queued",
        f"{COMPILED}: in progress on node-1: compile/area/gfx942/rocm7.1",
        "cells, as their jobs are: 1 in progress, 1 queued",
        f"{COMPILED}: success on node-1: compile/area/gfx942/rocm7.1",
        f"{RAN}: success on runner-1: gpu/area/gfx942/rocm7.1",
        "cells, as their jobs are: 2 success",
        f"run {run.id} is over: success",
        f"what each cell shows: contribbot runners collect {run.id}",
    ]


def test_one_json_document_and_nothing_else(desk: Desk) -> None:
    desk.script = [desk.plan, desk.work, desk.judged("success")]
    said = desk("--json")
    assert said.code == ExitCode.OK
    (run,) = desk.runs()
    document = json.loads(said.out)
    jobs = document.pop("jobs")
    assert document == {
        "type": "contribbot/dispatched/v1", "repository": "example/queue", "run": run.id,
        "url": f"https://github.com/example/queue/actions/runs/{run.id}", "commit": run.head_sha,
        "conclusion": "failure", "collect": "success", "passed": True, "runners_failed": False,
    }  # fmt: skip
    assert [(each["name"], each["state"], each["runner"]) for each in jobs] == [
        ("plan", "success", "runner-1"), (COMPILED, "success", "node-1"),
        (RAN, "failure", "runner-1"), (f"{RAN}-again", "success", "runner-1"),
        ("collect", "success", "runner-1"),
    ]  # fmt: skip
    assert jobs[2]["cells"] == ["gpu/area/gfx942/rocm7.1"]
    assert jobs[2]["started"] < jobs[2]["ended"]
    # What goes on is on standard error.
    assert f"{COMPILED}: in progress on node-1: compile/area/gfx942/rocm7.1" in said.err
    assert f"run {run.id}: https://" in said.err


def test_the_longer_nothing_changes_the_rarer_it_looks(desk: Desk) -> None:
    desk.script = [desk.plan, *[lambda _: None] * 6, desk.end]
    desk()
    # Never rarer than four times as long.
    assert desk.slept[2:7] == [15.0, 22.5, 33.75, 40.0, 40.0]


def test_what_the_run_will_not_prove_is_said_before_it_is_started(desk: Desk) -> None:
    folder, toy = desk.home.ranged.folder, desk.home.ranged.toy
    there = desk.home.repository.git.ref("refs/heads/main") or ""
    toy.put("notes.txt", "Not of the queue.\n")
    desk.script = [desk.end]
    assert desk().out.startswith("run ")
    git(folder, "commit", "-q", "--allow-empty", "-m", "More")
    here = git(folder, "rev-parse", "HEAD").decode()
    toy.put("patches/area/checks/test_same.py", "def test_two():\n    pass\n")
    toy.put("patches/area/checks/test_new.py", "def test_three():\n    pass\n")
    desk.script = [desk.end]
    first, second, started, *_ = desk().out.splitlines()
    assert first == f"the run proves main at {there[:12]}; the queue here is at {here[:12]}"
    assert second == "not committed, so not in the run: patches/area/checks/test_new.py and 1 more"
    assert started.startswith("run ")


def test_two_at_the_same_moment_leave_one(desk: Desk) -> None:
    other: list[Said] = []

    class Meanwhile(Hook):
        def before(self, request: Request) -> Answer | None:
            if request.path.endswith("/jobs") and len(desk.runs()) == 1:
                other.append(desk())
            return None

    desk.home.github.hooks.append(Meanwhile())
    desk.script = [desk.end]
    first = desk()
    assert [each.conclusion for each in desk.runs()] == ["cancelled", "success"]
    assert (first.code, other[0].code) == (ExitCode.NO, ExitCode.OK)


@pytest.mark.parametrize(
    ("collect", "mark", "steps", "code", "said"),
    [
        # A first try failed and the second passed: the job that failed first stays red.
        ("success", "failure", (), ExitCode.OK, f"{ALL_PASSED} (GitHub marks the run failure)"),
        ("failure", "failure", (), ExitCode.NO, "collect: failure"),
        ("failure", "success", (), ExitCode.NO, "collect: failure (GitHub marks the run success)"),
        ("failure", "failure", (RUNNERS_STEP,), ExitCode.MACHINE,
         "collect: failure: runners failed, and no patch did"),
        # It judged nothing: there was nothing to prove, or it did not come to it.
        ("skipped", "success", (), ExitCode.OK, "success"),
        ("timed_out", "failure", (), ExitCode.NO, "failure"),
        ("cancelled", "cancelled", (), ExitCode.NO, "cancelled"),
    ],
)  # fmt: skip
def test_what_judged_the_run_decides(
    desk: Desk, collect: str, mark: str, *, steps: tuple[str, ...], code: ExitCode, said: str
) -> None:
    desk.script = [spoilt(desk), desk.judged(collect, mark, steps=("Collect", *steps))]
    told = desk()
    assert told.code == code
    (run,) = desk.runs()
    assert f"run {run.id} is over: {said}" in told.out.splitlines()
    # A plan that cannot be read is fetched once.
    assert len(desk.home.storage.seen) == 1


def spoilt(desk: Desk) -> Script:
    """Return what makes a plan that cannot be read."""

    def script(run: Run) -> None:
        desk.plan(run)
        run.artifacts.clear()
        upload(desk.home.github.state, run, "contribbot-plan", packed({"plan.json": b"{}"}))

    return script


def test_a_run_shows_up_late_or_never(desk: Desk) -> None:
    own = actions_of(desk.home.repository)
    own.delay = 3
    desk.script = [lambda _: None] * 3 + [desk.end]
    assert desk().code == ExitCode.OK
    assert desk.slept[:3] == [1.0, 1.0, 2.0]
    own.delay = 1000
    said = desk()
    assert said.code == ExitCode.MACHINE
    assert "does not show up" in said.err
    assert "--resume RUN" in said.err
    desk.script = [desk.interrupt]
    said = desk()
    assert said.code == ExitCode.INTERRUPTED
    assert desk.runs()[-1].inputs["request"] in said.err
    assert "/actions/workflows/verify.yml" in said.err


def test_interrupted_it_goes_on_and_is_resumed(desk: Desk) -> None:
    desk.script = [desk.plan, desk.interrupt]
    said = desk()
    (run,) = desk.runs()
    assert said.code == ExitCode.INTERRUPTED
    assert said.err.splitlines() == [
        f"the run goes on; watch it again: contribbot runners dispatch --resume {run.id}",
        f"when it is over: contribbot runners collect {run.id}",
    ]
    assert run.status == "in_progress"

    desk.script = [desk.work, desk.end]
    said = desk("--resume", str(run.id))
    assert said.code == ExitCode.OK
    assert len(desk.runs()) == 1
    assert said.out.splitlines()[-2:] == [
        f"run {run.id} is over: success",
        f"what each cell shows: contribbot runners collect {run.id}",
    ]  # fmt: skip


class Happens(Hook):
    """Does something before a request whose path ends so, or loses or replaces its answer."""

    def __init__(self, path: str, act: Callable[[], object], *, lost: bool = False) -> None:
        self._path, self._act, self._lost = path, act, lost

    def before(self, request: Request) -> Answer | None:
        answer = self._act() if request.path.endswith(self._path) else None
        return answer if isinstance(answer, Answer) else None

    def after(self, request: Request, answer: Answer) -> Answer:
        if self._lost and request.path.endswith(self._path):
            raise HangUpError
        return answer


def test_an_older_run_of_the_same_is_ended(desk: Desk) -> None:
    old, other = desk.started("area"), desk.started()
    over = desk.started("area")
    eve = desk.home.github.add_user("eve")
    theirs = desk.started("area", "--target", "gfx942")
    theirs.title, theirs.actor = old.title[:-1] + "0", eve
    old.status, old.conclusion = "in_progress", None

    def end() -> None:
        over.status, over.conclusion = "completed", "success"

    # One that ends at that moment is no error.
    desk.home.github.hooks.append(Happens(f"/{over.id}/cancel", end))
    desk.script = [desk.end]
    said = desk("area")
    assert [line for line in said.out.splitlines() if line.endswith("replaces")] == [
        f"ended run {old.id}, which this one replaces"
    ]
    ends = [each.conclusion for each in (old, other, over, theirs)]
    assert ends == ["cancelled", None, "success", None]


def test_the_answer_to_the_request_is_lost(desk: Desk) -> None:
    desk.home.github.hooks.append(Happens("/dispatches", lambda: None, lost=True))
    desk.script = [desk.end]
    said = desk()
    # It is not sent again: it is looked for, and there.
    assert said.code == ExitCode.OK, said.err
    assert len(desk.runs()) == 1


def test_the_run_is_deleted_meanwhile(desk: Desk) -> None:
    desk.script = [lambda _: actions_of(desk.home.repository).runs.clear()]
    said = desk()
    assert said.code == ExitCode.MACHINE
    assert "there is none (any more); it was deleted, or the token may not see it" in said.err
    assert "the run goes on" not in said.err


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (("dispatch", "none"), "no such patch: none"),
        (("dispatch", "--target", "gfx1100"), "no patch that is meant asks for it; they ask for"),
        (("dispatch", "--target", "gfx90a"), "no set of runners.toml has it; it has gfx942"),
        (("dispatch", "--resume", "7", "area"), "--resume starts nothing"),
    ],
)
def test_what_makes_no_sense_is_said_before_a_token_is_looked_for(
    desk: Desk, args: tuple[str, ...], said: str
) -> None:
    desk.home.ranged.patch("wide", CHECKS.replace("gfx942", "gfx90a"))
    token = {"GITHUB_TOKEN": "it can be no token"}
    told = desk.home.command(*args, **token)
    assert told.code == ExitCode.USAGE, told.err
    assert said in told.err
    for words in (("dispatch",), ("collect", "7")):
        unnamed = desk.home.command(*words, **token, GITHUB_REPOSITORY="no repository")
        assert (unnamed.code, "not a repository" in unnamed.err) == (ExitCode.USAGE, True)
    lacking = desk.home.command("dispatch", **token)
    assert lacking.code == ExitCode.MACHINE
    assert "GITHUB_TOKEN" in lacking.err
    assert desk.runs() == []


@pytest.mark.parametrize(
    ("workflow", "said"),
    [
        (WORKFLOW.replace("request:", "other:"), "Unexpected inputs provided"),
        (None, "verify.yml must be on its default branch"),
    ],
)
def test_a_workflow_that_is_too_old_or_none(
    ranged: Ranged, github: GitHub, workflow: str | None, said: str
) -> None:
    if workflow:
        ranged.toy.put(".github/workflows/verify.yml", workflow)
    with Storage().running() as storage:
        told = make_home(ranged, github, storage).command("dispatch")
    assert told.code == ExitCode.USAGE
    assert said in told.err
    assert "contribbot runners workflows install" in told.err


def test_a_branch_by_its_full_name_to_which_somebody_pushes(desk: Desk) -> None:
    github, repository = desk.home.github, desk.home.repository
    assert "No ref found for: nowhere" in desk("--ref", "nowhere").err
    git(desk.home.ranged.folder, "branch", "next")
    github.commit(repository, "next", {"README": b"Next\n"})
    github.hooks.append(
        Happens("/dispatches", lambda: github.commit(repository, "next", {"README": b"More\n"}))
    )
    desk.script = [desk.end]
    said = desk("--ref", "refs/heads/next")
    assert said.code == ExitCode.OK, said.err
    assert desk.runs()[0].head_branch == "next"
    assert f"it is of next at {desk.runs()[0].head_sha[:12]}" in said.out


@pytest.mark.parametrize(
    ("path", "refused", "code", "said", "begun"),
    [
        # It was started all the same: that is said, and how to find it.
        ("/verify.yml/runs", Answer(451, {"message": "Not today"}), ExitCode.MACHINE, "Not today",
         True),
        ("/dispatches", Answer(422, {"message": "a disabled workflow"}), ExitCode.USAGE,
         "if the workflow is disabled, enable it", False),
    ],
)  # fmt: skip
def test_what_is_refused_says_whether_it_may_have_been_started(
    desk: Desk, path: str, refused: Answer, code: ExitCode, said: str, *, begun: bool
) -> None:
    actions_of(desk.home.repository).delay = 1
    desk.home.github.hooks.append(Happens(path, lambda: refused))
    told = desk()
    assert told.code == code
    assert said in told.err
    names = [f"a run named {run.inputs['request']} may have been started" for run in desk.runs()]
    assert [name in told.err for name in names] == ([True] if begun else [])


def test_a_run_of_another_workflow_is_not_watched(desk: Desk) -> None:
    state = desk.home.github.state
    run = add_run(state, desk.home.repository, "rebase.yml", "main", event="schedule",
                  actor=desk.home.user)  # fmt: skip
    said = desk("--resume", str(run.id))
    assert (said.code, said.out) == (ExitCode.USAGE, "")
    assert "is one of '.github/workflows/rebase.yml', not of verify.yml" in said.err
    assert "the run goes on" not in said.err
