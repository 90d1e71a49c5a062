"""Every fault at every request: one clean run afterwards, and there is one of everything."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from contribbot.contribute.publication import state
from contribbot.errors import GitHubError, OpeningError
from tests.contribute.opening import make_desk
from tests.github.faults import KILL_AFTER, KILL_BEFORE, WIRE_FAULTS, Fault, Faults, each
from tests.github.handle import GitHub
from tests.github.server import Logged
from tests.toy import FIXED, Toy

ROOT = Path(__file__).parent.parent.parent


class Trials:
    """One local GitHub, and for each trial another person with a fresh copy of the queue."""

    def __init__(self, toy: Toy, github: GitHub) -> None:
        toy.put_patch()
        toy.put_queue(["area"])
        self.desk = make_desk(toy, github)
        self.faults = Faults()
        github.hooks.append(self.faults)
        self._count = 0
        self._versions = 0

    def fresh(self, *, fork: bool = True) -> None:
        """Let another person have the queue, with nothing published."""
        self._count += 1
        for folder in ("history", ".contribbot"):
            shutil.rmtree(self.desk.toy.queue / folder, ignore_errors=True)
        self.desk.me = self.desk.github.add_user(f"person{self._count}")
        if fork:
            self.desk.github.fork(self.desk.upstream, self.desk.me)

    def change(self) -> None:
        """Change the patch and the text, so that there is something to update."""
        self._versions += 1
        text = FIXED.replace("return area", f"return area + {self._versions} * 0")
        self.desk.toy.put_patch(patch=self.desk.toy.format_patch({"src/toy/area.py": text}))
        self.desk.body = f"Body {self._versions}.\n"

    def made(self) -> list[Logged]:
        """Return the requests of a run that meets no fault."""
        return self.desk.requests(self.desk.open)

    def run(self) -> None:
        """Let a run meet what is armed."""
        self.faults.struck.clear()
        # Whatever it says, it says it as an error of its own.
        with contextlib.suppress(GitHubError, OpeningError):
            self.desk.open()
        self.faults.clear()
        assert self.faults.struck

    def strike(self, fault: Fault, number: int) -> None:
        """Let a run meet a fault at one of its requests."""
        self.faults.arm(fault, number=number)
        self.run()

    def strike_reads(self, fault: Fault, made: Sequence[Logged]) -> None:
        """Let a run meet a fault that passes at each thing that it reads, the first time."""
        reads = {
            re.sub(r"\bada(?=/|%3A)", "person[0-9]+", one.path) for one in made if not writes(one)
        }
        for path in reads:
            self.faults.arm(fault, path=f"^{path}$", method="GET")
        self.run()
        assert len(self.faults.struck) == len(reads)

    def assert_one_of_everything(self, comments: int) -> None:
        """There is one branch, with the patch; one pull request; and so many comments."""
        desk = self.desk
        branches = desk.fork.git.refs("refs/heads/")
        assert set(branches) == {"refs/heads/main", "refs/heads/contribbot/area"}
        mine = [pull for pull in desk.pulls() if pull.head is desk.fork]
        assert len(mine) == 1
        (pull,) = mine
        head = branches["refs/heads/contribbot/area"]
        assert (pull.head_sha, pull.issue.state) == (head, "open")
        assert (pull.issue.title, pull.issue.body) == (desk.title, desk.body)
        expected = b"return area" + (f" + {self._versions} * 0".encode() if self._versions else b"")
        assert expected + b"\n" in desk.fork.git.git("show", f"{head}:src/toy/area.py")
        main = desk.upstream.git.ref("refs/heads/main")
        assert desk.fork.git.commit(head).parents == (main,)
        told = [one.body.partition("\n")[0] for one in pull.issue.comments]
        assert len(told) == len(set(told)) == comments
        known = state(desk.events())
        assert known is not None
        assert (known.open, known.head) == ((), head)


@pytest.fixture
def trials(toy: Toy, github: GitHub) -> Trials:
    return Trials(toy, github)


def writes(one: Logged) -> bool:
    """Say whether a request changes something."""
    return one.method != "GET" and (one.path != "/graphql" or b"mutation" in one.body)


def places(fault: Fault, made: Sequence[Logged], start: int = 1) -> list[int]:
    """Return the requests at which a fault is tried by itself.

    A fault that passes is tried at all reads in one run (`strike_reads`): the client asks
    again, and nothing comes to an end.
    """
    numbered = enumerate(made, start=1)
    return [n for n, one in numbered if n >= start and (writes(one) or not fault.passing)]


@pytest.mark.parametrize("fault", each(WIRE_FAULTS))
def test_opening_is_resumed_after_a_fault_at_any_request(trials: Trials, fault: Fault) -> None:
    made = trials.made()
    for number in places(fault, made):
        trials.fresh()
        trials.strike(fault, number)
        trials.desk.open()
        trials.assert_one_of_everything(comments=0)
    if fault.passing:
        trials.fresh()
        trials.strike_reads(fault, made)
        trials.desk.open()
        trials.assert_one_of_everything(comments=0)


@pytest.mark.parametrize("fault", each(WIRE_FAULTS))
def test_forking_is_resumed_after_a_fault(trials: Trials, fault: Fault) -> None:
    trials.fresh(fork=False)
    trials.faults.arm(fault, method="POST", path="/forks$")
    trials.run()
    trials.desk.open()
    trials.assert_one_of_everything(comments=0)
    forks = [one for one in trials.desk.github.state.repositories.values() if one.parent]
    assert len(forks) == 2


@pytest.mark.slow
@pytest.mark.parametrize("fault", each(WIRE_FAULTS))
def test_updating_is_resumed_after_a_fault_at_any_request(trials: Trials, fault: Fault) -> None:
    trials.desk.open()
    trials.change()
    made = trials.made()
    # What comes before is the same as in opening: until the branch is known, and until a
    # branch that is known is moved.
    refs = [n for n, one in enumerate(made, start=1) if "/git/ref/" in one.path]
    start = refs[-1] if fault.passing else refs[0]
    for done, number in enumerate(places(fault, made, start), start=2):
        trials.change()
        trials.strike(fault, number)
        trials.desk.open()
        trials.assert_one_of_everything(comments=done)


def killed(trials: Trials, fault: Fault, number: int) -> None:
    """Kill a real process at one of its requests."""
    desk = trials.desk
    trials.faults.struck.clear()
    trials.faults.arm(fault, number=number)
    child = subprocess.Popen(
        [sys.executable, "-m", "tests.contribute.opening_child", str(desk.toy.queue), desk.title,
         desk.body],
        cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
        env={
            **os.environ, "GITHUB_API_URL": desk.github.base,
            "GITHUB_TOKEN": desk.me.tokens[0].text,
        },
    )  # fmt: skip
    trials.faults.victim(child.pid)
    with child:
        try:
            _, said = child.communicate(timeout=60)
        finally:
            child.kill()
    trials.faults.clear()
    assert child.returncode == -9, said.decode()
    assert trials.faults.struck


@pytest.mark.slow
@pytest.mark.parametrize("fault", each([KILL_BEFORE, KILL_AFTER]))
def test_a_killed_process_leaves_what_the_next_run_resumes(trials: Trials, fault: Fault) -> None:
    # Before the first write nothing is lost: that is tried once.
    for number in [1, *(n for n, one in enumerate(trials.made(), start=1) if writes(one))]:
        trials.fresh()
        killed(trials, fault, number)
        trials.desk.open()
        trials.assert_one_of_everything(comments=0)
    trials.change()
    made = len(trials.made())
    for done, number in enumerate(range(made - 3, made + 1), start=2):
        trials.change()
        killed(trials, fault, number)
        trials.desk.open()
        trials.assert_one_of_everything(comments=done)
