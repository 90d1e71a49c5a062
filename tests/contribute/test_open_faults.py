"""Every fault at every request: one clean run afterwards, and there is one of everything."""

from __future__ import annotations

import shutil
from collections.abc import Sequence

import pytest

from contribbot.contribute.open_pr import Opened
from contribbot.contribute.publication import state
from contribbot.errors import ContribbotError
from tests.contribute.place import make_desk
from tests.github.faults import KILL_AFTER, KILL_BEFORE, ODD, WIRE_FAULTS, Fault, each
from tests.github.handle import GitHub
from tests.github.wire import Request
from tests.tools import kinds
from tests.toy import FIXED, Toy

#: The client makes one attempt, so that every fault ends a request.
FAULTS = dict.fromkeys((*WIRE_FAULTS, *ODD))


class Trials:
    """One local GitHub, and for each trial another person with a fresh copy of the queue."""

    def __init__(self, toy: Toy, github: GitHub) -> None:
        self.desk = make_desk(toy, github)
        self.desk.attempts = 1
        self.faults = self.desk.faults
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

    def made(self) -> list[Request]:
        return self.desk.requests(lambda: self.desk.open(ready=True))

    def strike(self, fault: Fault, number: int = 1, path: str = "") -> None:
        """Let a run meet a fault at a request; check that all that the run reports is on GitHub."""
        desk, done, said = self.desk, None, ""
        desk.waited.clear()
        self.faults.struck.clear()
        self.faults.arm(fault, number=number, path=path)
        try:
            (done,) = desk.open(ready=True)
        except ContribbotError as error:  # no other
            said = error.message
        self.faults.clear()
        assert self.faults.struck
        assert said.isprintable()
        assert sum(desk.waited) <= 900
        if isinstance(done, Opened):
            (pull,) = (pull for pull in desk.pulls() if pull.head is desk.fork)
            head = desk.fork.git.ref("refs/heads/contribbot/area")
            assert (done.head, done.pull_request) == (head, f"example/toy#{pull.number}")
            assert (pull.issue.title, pull.issue.body) == (desk.title, desk.body)
            assert pull.draft == (done.state == "draft")

    def resume(self) -> None:
        """Run `open-pr` again; check for one branch with the patch, and one pull request."""
        desk = self.desk
        desk.open(ready=True)
        branches = desk.fork.git.refs("refs/heads/")
        assert set(branches) == {"refs/heads/main", "refs/heads/contribbot/area"}
        (pull,) = (pull for pull in desk.pulls() if pull.head is desk.fork)
        head = branches["refs/heads/contribbot/area"]
        assert (pull.head_sha, pull.issue.state, pull.draft) == (head, "open", False)
        assert (pull.issue.title, pull.issue.body) == (desk.title, desk.body)
        expected = b"return area" + (f" + {self._versions} * 0".encode() if self._versions else b"")
        assert expected + b"\n" in desk.fork.git.git("show", f"{head}:src/toy/area.py")
        main = desk.upstream.git.ref("refs/heads/main")
        assert desk.fork.git.commit(head).parents == (main,)
        known = state(desk.events())
        assert known is not None
        assert (known.open, known.head) == ((), head)


@pytest.fixture
def trials(toy: Toy, github: GitHub) -> Trials:
    return Trials(toy, github)


def writes(made: Sequence[Request]) -> list[int]:
    """Return the numbers of the requests that change something."""
    return [
        number
        for number, row in enumerate(made, start=1)
        if row.method != "GET" and (row.path != "/graphql" or b"mutation" in row.body)
    ]


@pytest.mark.parametrize("fault", kinds(FAULTS, lambda fault: fault.name == "reset-after", str))
def test_opening_is_resumed_after_a_fault_at_any_request(trials: Trials, fault: Fault) -> None:
    for number in range(1, len(trials.made()) + 1):
        trials.fresh()
        trials.strike(fault, number)
        trials.resume()


@pytest.mark.parametrize("fault", each(FAULTS))
def test_forking_is_resumed_after_a_fault(trials: Trials, fault: Fault) -> None:
    trials.fresh(fork=False)
    trials.strike(fault, path="/forks$")
    trials.resume()
    forks = [row for row in trials.desk.github.repositories.values() if row.parent]
    assert len(forks) == 2


@pytest.mark.slow
@pytest.mark.parametrize("fault", each(FAULTS))
def test_updating_is_resumed_after_a_fault_at_any_request(trials: Trials, fault: Fault) -> None:
    trials.desk.open()
    trials.change()
    made = trials.made()
    # The requests before the look at the branch are the same as in opening.
    start = next(n for n, row in enumerate(made, start=1) if "/git/ref/" in row.path)
    for number in range(start, len(made) + 1):
        trials.change()
        trials.desk.pulls()[0].draft = True
        trials.strike(fault, number)
        trials.resume()


def killed(trials: Trials, fault: Fault, number: int) -> None:
    trials.faults.struck.clear()
    trials.faults.arm(fault, number=number)
    child = trials.desk.start()
    trials.faults.victim(child.pid)
    with child:
        try:
            _, errors = child.communicate(timeout=60)
        finally:
            child.kill()
    trials.faults.clear()
    assert child.returncode == -9, errors.decode()
    assert trials.faults.struck


@pytest.mark.slow
@pytest.mark.parametrize("fault", each([KILL_BEFORE, KILL_AFTER]))
def test_a_killed_process_leaves_what_the_next_run_resumes(trials: Trials, fault: Fault) -> None:
    # A kill before the first write loses nothing: one such case is enough.
    for number in [1, *writes(trials.made())]:
        trials.fresh()
        killed(trials, fault, number)
        trials.resume()
    trials.change()
    made = len(trials.made())
    for number in range(made - 3, made + 1):
        trials.change()
        killed(trials, fault, number)
        trials.resume()
