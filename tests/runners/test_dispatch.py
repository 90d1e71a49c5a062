"""`contribbot dispatch`: a run is started, found, watched, resumed; older ones are ended."""

from __future__ import annotations

import json
import re

import pytest

from contribbot.errors import ExitCode
from contribbot.runners.actions import RUNNERS_STEP
from tests.github.handle import GitHub
from tests.github.server import Hook
from tests.github.state_actions import Run, Storage, actions_of, add_run, upload
from tests.github.wire import Answer, HangUpError, Request
from tests.runners.conftest import HOSTED, MI300, Ranged, Said
from tests.runners.desk import WORKFLOW, Desk
from tests.runners.homing import COMPILED, RAN, REPOSITORY, make_home, packed
from tests.toy import git

ALL_PASSED = "collect: success, so all that was planned came and passed"
NO_TOKEN = {"GITHUB_TOKEN": "it can be no token"}


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
        f"what each cell shows: contribbot collect {run.id}",
    ]


@pytest.mark.parametrize(
    ("collect", "mark", "code", "said"),
    [
        # A first try failed and the second passed: the job that failed first stays red.
        ("success", "failure", ExitCode.OK, f"{ALL_PASSED} (GitHub marks the run failure)"),
        ("failure", "failure", ExitCode.NO, "collect: failure"),
        ("failure", "success", ExitCode.NO, "collect: failure (GitHub marks the run success)"),
        # It judged nothing: there was nothing to prove, or it did not come to it.
        ("skipped", "success", ExitCode.OK, "success"),
        ("skipped", "failure", ExitCode.NO, "failure"),
        ("timed_out", "failure", ExitCode.NO, "failure"),
        ("cancelled", "cancelled", ExitCode.NO, "cancelled"),
    ],
)  # fmt: skip
def test_what_judged_the_run_decides(
    desk: Desk, collect: str, mark: str, code: ExitCode, said: str
) -> None:
    desk.script = [desk.plan, desk.judged(collect, mark)]
    told = desk()
    assert told.code == code
    (run,) = desk.runs()
    assert f"run {run.id} is over: {said}" in told.out.splitlines()


def test_runners_that_failed_are_no_patch_that_did(desk: Desk) -> None:
    desk.script = [desk.plan, desk.judged("failure", steps=("Collect", RUNNERS_STEP))]
    told = desk()
    assert told.code == ExitCode.MACHINE
    (run,) = desk.runs()
    said = "collect: failure: runners failed, and no patch did"
    assert f"run {run.id} is over: {said}" in told.out.splitlines()
    document = json.loads(desk("--resume", str(run.id), "--json").out)
    assert (document["passed"], document["runners_failed"]) == (False, True)


def test_a_plan_that_cannot_be_read_is_fetched_once(desk: Desk) -> None:
    def spoilt(run: Run) -> None:
        desk.plan(run)
        run.artifacts.clear()
        upload(desk.home.github.state, run, "contribbot-plan", packed({"plan.json": b"{}"}))

    desk.script = [spoilt, desk.work, desk.judged("success")]
    assert desk().code == ExitCode.OK
    assert len(desk.home.storage.seen) == 1


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


def test_what_has_not_changed_costs_nothing(desk: Desk) -> None:
    desk.script = [desk.plan, *[lambda _: None] * 6, desk.end]
    desk()
    mine = [each for each in desk.home.github.requests
            if re.search(r"/actions/runs/\d+(/jobs)?$", each.path)]  # fmt: skip
    assert sum(each.status == 304 for each in mine) >= 12
    # The longer nothing changes, the rarer it looks; never rarer than four times as long.
    assert desk.slept[2:7] == [15.0, 22.5, 33.75, 40.0, 40.0]


def test_a_run_shows_up_late(desk: Desk) -> None:
    actions_of(desk.home.repository).delay = 3
    desk.script = [lambda _: None] * 3 + [desk.end]
    assert desk().code == ExitCode.OK
    assert desk.slept[:3] == [1.0, 1.0, 2.0]


def test_a_run_that_never_shows_up(desk: Desk) -> None:
    actions_of(desk.home.repository).delay = 1000
    said = desk()
    assert said.code == ExitCode.MACHINE
    assert "does not show up" in said.err
    assert "--resume RUN" in said.err


def test_interrupted_it_goes_on_and_is_resumed(desk: Desk) -> None:
    desk.script = [desk.plan, desk.interrupt]
    said = desk()
    (run,) = desk.runs()
    assert said.code == ExitCode.INTERRUPTED
    assert said.err.splitlines() == [
        f"the run goes on; watch it again: contribbot dispatch --resume {run.id}",
        f"when it is over: contribbot collect {run.id}",
    ]
    assert run.status == "in_progress"

    desk.script = [desk.work, desk.end]
    said = desk("--resume", str(run.id))
    assert said.code == ExitCode.OK
    assert len(desk.runs()) == 1
    assert said.out.splitlines()[-2] == f"run {run.id} is over: success"


def test_what_is_next_names_the_repository_that_was_named(desk: Desk) -> None:
    desk.script = [desk.interrupt]
    named = ("--repo", REPOSITORY)
    said = desk(*named)
    run = desk.runs()[-1]
    which = f"{run.id} --repo {REPOSITORY}"
    assert said.err.splitlines() == [
        f"the run goes on; watch it again: contribbot dispatch --resume {which}",
        f"when it is over: contribbot collect {which}",
    ]
    run.status, run.conclusion = "completed", "success"
    over = desk("--resume", str(run.id), *named)
    assert over.out.splitlines()[-1].endswith(f"contribbot collect {which}")


def test_interrupted_before_it_is_found(desk: Desk) -> None:
    actions_of(desk.home.repository).delay = 1000
    desk.script = [desk.interrupt]
    said = desk()
    assert said.code == ExitCode.INTERRUPTED
    assert desk.runs()[0].inputs["request"] in said.err
    assert "/actions/workflows/verify.yml" in said.err


def test_an_older_run_of_the_same_is_ended(desk: Desk) -> None:
    old, other = desk.started("area"), desk.started()
    eve = desk.home.github.add_user("eve")
    theirs = desk.started("area", "--target", "gfx942")
    theirs.title, theirs.actor = old.title[:-1] + "0", eve
    desk.script = [desk.end]
    said = desk("area")
    assert f"ended run {old.id}, which this one replaces" in said.out
    assert [each.conclusion for each in (old, other, theirs)] == ["cancelled", None, None]


def test_an_older_run_that_ends_at_that_moment(desk: Desk) -> None:
    old = desk.started()

    class Ends(Hook):
        def before(self, request: Request) -> Answer | None:
            if request.path.endswith("/cancel"):
                old.status, old.conclusion = "completed", "success"
            return None

    desk.home.github.hooks.append(Ends())
    desk.script = [desk.end]
    said = desk()
    assert said.code == ExitCode.OK
    assert "replaces" not in said.out


def test_the_answer_to_the_request_is_lost(desk: Desk) -> None:
    class Loses(Hook):
        def after(self, request: Request, answer: Answer) -> Answer:
            if request.path.endswith("/dispatches"):
                raise HangUpError
            return answer

    desk.home.github.hooks.append(Loses())
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
        (("none",), "no such patch: none"),
        (("--target", "gfx1100"), "no patch that is meant asks for it; they ask for gfx942"),
        (("--ref", "nowhere"), "No ref found for: nowhere"),
        (("--resume", "7", "area"), "--resume starts nothing"),
        (("--repo", "no repository"), "not a repository"),
    ],
)
def test_what_makes_no_sense(desk: Desk, args: tuple[str, ...], said: str) -> None:
    told = desk(*args)
    assert told.code == ExitCode.USAGE, told.err
    assert said in told.err
    assert desk.runs() == []


@pytest.mark.parametrize(
    "args",
    [
        ("dispatch", "none"), ("dispatch", "--target", "gfx1100"),
        ("dispatch", "--repo", "no repository"), ("collect", "7", "--repo", "no repository"),
    ],
)  # fmt: skip
def test_what_makes_no_sense_is_said_before_a_token_is_looked_for(
    desk: Desk, args: tuple[str, ...]
) -> None:
    told = desk.home.command(*args, **NO_TOKEN)
    assert told.code == ExitCode.USAGE, told.err
    lacking = desk.home.command("dispatch", **NO_TOKEN)
    assert lacking.code == ExitCode.MACHINE
    assert "GITHUB_TOKEN" in lacking.err


def test_a_workflow_that_is_too_old(ranged: Ranged, github: GitHub) -> None:
    ranged.toy.put(".github/workflows/verify.yml", WORKFLOW.replace("request:", "other:"))
    with Storage().running() as storage:
        said = make_home(ranged, github, storage).command("dispatch")
    assert said.code == ExitCode.USAGE
    assert "Unexpected inputs provided" in said.err
    assert "contribbot workflows install" in said.err


def test_without_the_workflow(ranged: Ranged, github: GitHub) -> None:
    with Storage().running() as storage:
        said = make_home(ranged, github, storage).command("dispatch")
    assert said.code == ExitCode.USAGE
    assert "verify.yml must be on its default branch" in said.err


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


def test_somebody_pushes_at_that_moment(desk: Desk) -> None:
    class Pushes(Hook):
        def before(self, request: Request) -> Answer | None:
            if request.path.endswith("/dispatches"):
                desk.home.github.commit(desk.home.repository, "main", {"README": b"More\n"})
            return None

    desk.home.github.hooks.append(Pushes())
    desk.script = [desk.end]
    said = desk()
    assert f"it is of main at {desk.runs()[0].head_sha[:12]}" in said.out


def test_a_branch_by_its_full_name(desk: Desk) -> None:
    git(desk.home.ranged.folder, "branch", "next")
    desk.home.github.commit(desk.home.repository, "next", {"README": b"Next\n"})
    desk.script = [desk.end]
    said = desk("--ref", "refs/heads/next")
    assert said.code == ExitCode.OK, said.err
    assert desk.runs()[0].head_branch == "next"


class Refuses(Hook):
    """Answers a request whose path ends so with an error."""

    def __init__(self, path: str, status: int, message: str) -> None:
        self._path, self._answer = path, Answer(status, {"message": message})

    def before(self, request: Request) -> Answer | None:
        return self._answer if request.path.endswith(self._path) else None


def test_what_looks_for_the_run_is_refused(desk: Desk) -> None:
    actions_of(desk.home.repository).delay = 1
    desk.home.github.hooks.append(Refuses("/verify.yml/runs", 451, "Not today"))
    said = desk()
    assert said.code == ExitCode.MACHINE
    # It was started all the same: that is said, and how to find it.
    assert "Not today" in said.err
    assert f"a run named {desk.runs()[0].inputs['request']} may have been started" in said.err


def test_a_request_that_is_refused_started_nothing(desk: Desk) -> None:
    desk.home.github.hooks.append(
        Refuses("/dispatches", 422, "Cannot trigger a 'workflow_dispatch' on a disabled workflow")
    )
    said = desk()
    assert said.code == ExitCode.USAGE
    assert "if the workflow is disabled, enable it" in said.err
    assert "may have been started" not in said.err


def test_a_run_of_another_workflow_is_not_watched(desk: Desk) -> None:
    state = desk.home.github.state
    run = add_run(state, desk.home.repository, "rebase.yml", "main", event="schedule",
                  actor=desk.home.user)  # fmt: skip
    said = desk("--resume", str(run.id))
    assert (said.code, said.out) == (ExitCode.USAGE, "")
    assert "is one of '.github/workflows/rebase.yml', not of verify.yml" in said.err
    assert "the run goes on" not in said.err


def test_a_target_that_no_runner_has(desk: Desk) -> None:
    desk.home.ranged.put(MI300.replace('"gfx942"', '"gfx950"') + HOSTED)
    said = desk("--target", "gfx942")
    assert said.code == ExitCode.USAGE
    assert "--target gfx942: no set of runners.toml has it; it has gfx950" in said.err
    assert desk.runs() == []


def test_killed_before_it_was_found_it_is_replaced_by_the_next(desk: Desk) -> None:
    own = actions_of(desk.home.repository)
    own.delay = 1000
    lost = desk.started("area")
    own.delay = lost.hidden = 0
    desk.script = [desk.end]
    said = desk("area")
    assert f"ended run {lost.id}, which this one replaces" in said.out
    assert [each.conclusion for each in desk.runs()] == ["cancelled", "success"]


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
