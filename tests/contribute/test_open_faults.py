"""Every fault at every request: one clean run afterwards, and there is one of everything."""

from __future__ import annotations

import contextlib
import re
import shutil
from collections.abc import Sequence

import pytest

from contribbot.contribute.publication import state
from contribbot.errors import GitHubError, OpeningError
from tests.contribute.opening import make_desk
from tests.github.faults import KILL_AFTER, KILL_BEFORE, WIRE_FAULTS, Fault, each
from tests.github.handle import GitHub
from tests.github.server import Logged
from tests.tools import kinds
from tests.toy import FIXED, Toy


class Trials:
    """One local GitHub, and for each trial another person with a fresh copy of the queue."""

    def __init__(self, toy: Toy, github: GitHub) -> None:
        toy.put_patch()
        toy.put_queue(["area"])
        self.desk = make_desk(toy, github)
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
        mine = re.compile(r"\bada(?=/|%3A)")
        reads = {mine.sub("person[0-9]+", row.path) for row in made if not writes(row)}
        for path in reads:
            self.faults.arm(fault, path=f"^{path}$", method="GET")
        self.run()
        assert len(self.faults.struck) == len(reads)

    def resume(self) -> None:
        """Run again: one branch, with the patch, and one pull request."""
        desk = self.desk
        desk.open()
        branches = desk.fork.git.refs("refs/heads/")
        assert set(branches) == {"refs/heads/main", "refs/heads/contribbot/area"}
        (pull,) = (pull for pull in desk.pulls() if pull.head is desk.fork)
        head = branches["refs/heads/contribbot/area"]
        assert (pull.head_sha, pull.issue.state) == (head, "open")
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


def writes(request: Logged) -> bool:
    """Say whether a request changes something."""
    return request.method != "GET" and (request.path != "/graphql" or b"mutation" in request.body)


def places(fault: Fault, made: Sequence[Logged], start: int = 1) -> list[int]:
    """Return the requests at which a fault is tried by itself.

    A fault that passes is tried at all reads in one run (`strike_reads`): the client asks
    again, and nothing comes to an end.
    """
    numbered = enumerate(made, start=1)
    return [n for n, row in numbered if n >= start and (writes(row) or not fault.passing)]


@pytest.mark.parametrize(
    "fault", kinds(WIRE_FAULTS, lambda fault: fault.name == "reset-after", str)
)
def test_opening_is_resumed_after_a_fault_at_any_request(trials: Trials, fault: Fault) -> None:
    made = trials.made()
    for number in places(fault, made):
        trials.fresh()
        trials.strike(fault, number)
        trials.resume()
    if fault.passing:
        trials.fresh()
        trials.strike_reads(fault, made)
        trials.resume()


@pytest.mark.parametrize("fault", each(WIRE_FAULTS))
def test_forking_is_resumed_after_a_fault(trials: Trials, fault: Fault) -> None:
    trials.fresh(fork=False)
    trials.faults.arm(fault, method="POST", path="/forks$")
    trials.run()
    trials.resume()
    forks = [row for row in trials.desk.github.state.repositories.values() if row.parent]
    assert len(forks) == 2


@pytest.mark.slow
@pytest.mark.parametrize("fault", each(WIRE_FAULTS))
def test_updating_is_resumed_after_a_fault_at_any_request(trials: Trials, fault: Fault) -> None:
    trials.desk.open()
    trials.change()
    made = trials.made()
    # What comes before is the same as in opening: until the branch is known, and until a
    # branch that is known is moved.
    refs = [n for n, row in enumerate(made, start=1) if "/git/ref/" in row.path]
    start = refs[-1] if fault.passing else refs[0]
    for number in places(fault, made, start):
        trials.change()
        trials.strike(fault, number)
        trials.resume()


def killed(trials: Trials, fault: Fault, number: int) -> None:
    """Kill a real process at one of its requests."""
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
    # Before the first write nothing is lost: that is tried once.
    for number in [1, *(n for n, row in enumerate(trials.made(), start=1) if writes(row))]:
        trials.fresh()
        killed(trials, fault, number)
        trials.resume()
    trials.change()
    made = len(trials.made())
    for number in range(made - 3, made + 1):
        trials.change()
        killed(trials, fault, number)
        trials.resume()
