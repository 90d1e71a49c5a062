"""Each way of not being answered, at each thing that commands ask of GitHub, for good.

No internal error, no success that is none, no wait beyond the limit; what was tried is logged.
The gate's rows have a table of their own (`test_gate.py`).
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable

import pytest

from contribbot.contribute.model import Followed
from contribbot.contribute.open_pr import Opened
from contribbot.errors import ContribbotError
from contribbot.queue import history
from tests.contribute.following import Post
from tests.contribute.place import Place
from tests.contribute.test_open_faults import Trials
from tests.github.faults import (
    FORBIDDEN,
    NOT_FOUND,
    ODD,
    RESET_AFTER,
    RESET_BEFORE,
    SERVER_ERROR,
    Fault,
    secondary_limit,
)  # fmt: skip
from tests.github.handle import GitHub
from tests.github.server import Logged
from tests.toy import Toy

log = logging.getLogger(__name__)
pytestmark = pytest.mark.slow
WAYS = (
    SERVER_ERROR, NOT_FOUND, FORBIDDEN, RESET_BEFORE, RESET_AFTER, secondary_limit(429, 400), *ODD,
)  # fmt: skip


def places(made: list[Logged], login: str) -> list[tuple[str, str]]:
    """Return what was asked for, once each, whoever asks."""
    mine = re.compile(rf"\b{login}(?=/|%3A|:)")
    # Each person has a pull request of their own.
    number = re.compile("(?<=/)([0-9]+|[0-9a-f]{40})(?=/|$)")
    paths = (
        number.sub("[0-9a-f]+", mine.sub("(person[0-9]+|ada)", re.escape(row.path))) for row in made
    )
    return [*dict.fromkeys((row.method, path) for row, path in zip(made, paths, strict=True))]


def struck(place: Place, fault: Fault, where: tuple[str, str], act: Callable[[], object]) -> object:
    """Let something meet a fault from then on; return what it gives, or its error of ours."""
    place.waited.clear()
    place.faults.struck.clear()
    place.faults.arm(fault, method=where[0], path=f"^{where[1]}$", times=0)
    try:
        result = act()
    except ContribbotError as error:
        result = error
    finally:
        place.faults.clear()
    assert any(each is fault for each, _ in place.faults.struck), where
    assert sum(place.waited) <= 900
    assert not isinstance(result, ContribbotError) or result.message.isprintable()
    log.info("tried %s: %s %s: %s", act.__name__, *where, fault)
    return result


def told(row: Followed) -> Followed:
    """Return what is told, without the change of state."""
    return row.model_copy(update={"change": ""})


@pytest.mark.parametrize("fault", WAYS, ids=str)
@pytest.mark.parametrize("ended", ["", "bot", "squash"])
def test_follow(post: Post, fault: Fault, ended: str) -> None:
    pull = post.open(draft=True)
    post.comment("Why?")
    post.thread()
    post.review("CHANGES_REQUESTED", "Not yet.")
    post.pass_ci()
    pull.draft = False
    if ended:
        post.github.merge(pull, "bot" if ended == "bot" else "squash")
    journal = history.journal_file(post.toy.queue, "area")
    opened = journal.read_bytes()

    def forget() -> None:
        journal.write_bytes(opened)
        for path in (post.toy.queue / ".contribbot/follow").glob("*"):
            path.unlink()

    def follow() -> Followed:
        return post.look().report.contributions[0]

    truth = told(follow())
    forget()
    for where in places(post.requests(follow), "ada"):
        forget()
        found = struck(post, fault, where, follow)
        assert isinstance(found, Followed), (where, found)
        assert post.states() in (["draft"], ["draft", "merged" if ended else "open"])
        assert found.error or told(found) == truth, where


@pytest.fixture
def trials(toy: Toy, github: GitHub) -> Trials:
    return Trials(toy, github)


@pytest.mark.parametrize("fault", WAYS, ids=str)
@pytest.mark.parametrize("update", [False, True], ids=["open", "update"])
def test_open_pr(trials: Trials, fault: Fault, update: bool) -> None:
    desk = trials.desk

    def open_pr() -> Opened:
        return desk.open(ready=True)[0]

    trials.fresh(fork=update)
    if update:
        desk.open()
        trials.change()
    login = desk.me.login
    for where in places(desk.requests(open_pr), login):
        # One that is open is updated again and again; each first one has a person of its own.
        if update:
            trials.change()
            desk.pulls()[0].draft = True
        else:
            trials.fresh(fork=False)
        done = struck(desk, fault, where, open_pr)
        pulls = [
            pull for pull in desk.pulls() if pull.head is not None and pull.head.owner is desk.me
        ]
        assert len(pulls) <= 1
        if isinstance(done, Opened):
            # What is told as done is there.
            (pull,) = pulls
            head = desk.fork.git.ref("refs/heads/contribbot/area")
            assert (done.head, done.pull_request) == (head, f"example/toy#{pull.number}"), where
            assert (pull.issue.title, pull.issue.body) == (desk.title, desk.body), where
            assert pull.draft == (done.state == "draft"), where
        trials.resume()
