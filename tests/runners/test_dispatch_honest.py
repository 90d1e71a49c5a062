"""`contribbot dispatch` says what a run will not prove, and what goes on when it fails."""

from __future__ import annotations

import pytest
import typer

from contribbot.errors import ExitCode
from tests.github.server import Hook
from tests.github.state_actions import actions_of, add_run
from tests.github.wire import Answer, Request
from tests.runners.conftest import HOSTED, MI300, Said
from tests.runners.desk import Desk
from tests.toy import git


def told_before(desk: Desk, *args: str) -> list[str]:
    """Dispatch, and return what was said before anything was started."""
    before: list[str] = []

    class Looks(Hook):
        def before(self, request: Request) -> Answer | None:
            if request.path.endswith("/dispatches"):
                before.extend(lines)
            return None

    lines: list[str] = []
    say = typer.echo

    def echo(line: str, *, err: bool = False) -> None:
        lines.append(line)
        say(line, err=err)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(typer, "echo", echo)
        desk.home.github.hooks.append(Looks())
        desk.script = [desk.end]
        said = desk(*args)
    assert said.code == ExitCode.OK, said.err
    return before


def test_the_queue_here_is_another(desk: Desk) -> None:
    there = desk.home.repository.git.ref("refs/heads/main") or ""
    assert told_before(desk) == []
    git(desk.home.ranged.folder, "commit", "-q", "--allow-empty", "-m", "More")
    here = git(desk.home.ranged.folder, "rev-parse", "HEAD").decode()
    assert told_before(desk) == [
        f"the run proves main at {there[:12]}; the queue here is at {here[:12]}"
    ]


def test_what_is_not_committed_is_not_in_the_run(desk: Desk) -> None:
    toy = desk.home.ranged.toy
    toy.put("notes.txt", "Not of the queue.\n")
    assert told_before(desk) == []
    toy.put("patches/area/checks/test_same.py", "def test_two():\n    pass\n")
    toy.put("patches/area/checks/test_new.py", "def test_three():\n    pass\n")
    assert told_before(desk) == [
        "not committed, so not in the run: patches/area/checks/test_new.py and 1 more"
    ]


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


def test_what_ends_an_older_run_is_refused(desk: Desk) -> None:
    old = desk.started()
    desk.home.github.hooks.append(Refuses("/cancel", 451, "Not today"))
    said = desk()
    new = desk.runs()[-1]
    assert (said.code, old.status, len(desk.runs())) == (ExitCode.MACHINE, "queued", 2)
    assert f"contribbot dispatch --resume {new.id}" in said.err


def test_nobody_answers_any_more(desk: Desk) -> None:
    desk.script = [lambda _: desk.home.github.hooks.append(Refuses("/jobs", 451, "Not today"))]
    said = desk()
    assert said.code == ExitCode.MACHINE
    assert f"contribbot dispatch --resume {desk.runs()[0].id}" in said.err


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
    assert [one.conclusion for one in desk.runs()] == ["cancelled", "success"]


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
    assert [one.conclusion for one in desk.runs()] == ["cancelled", "success"]
    assert (first.code, other[0].code) == (ExitCode.NO, ExitCode.OK)


def test_a_token_that_may_not_start_runs(desk: Desk) -> None:
    token = desk.home.github.add_token(desk.home.user, repositories=["example/queue"])
    said = desk.home.command("dispatch", GITHUB_TOKEN=token)
    assert (said.code, desk.runs()) == (ExitCode.MACHINE, [])
    assert "Resource not accessible by personal access token" in said.err
    assert "may have been started" not in said.err
