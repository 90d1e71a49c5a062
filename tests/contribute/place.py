"""The start of every test of contributions: a person with a queue, and the GitHub for both."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import ClassVar

from contribbot.github.auth import Secret, Server, Token
from contribbot.github.client import GitHub as Client
from contribbot.github.client import Waits, connect
from contribbot.queue import history
from contribbot.queue.history import DoneEvent, Event, PullRequestEvent
from contribbot.queue.load import Queue, load_queue
from tests.conftest import Program
from tests.github.faults import Faults
from tests.github.handle import GitHub
from tests.github.state import Pull, Repository, User
from tests.github.wire import Request
from tests.toy import Toy

#: The methods of requests that change something on GitHub.
WRITES = frozenset({"POST", "PUT", "PATCH", "DELETE"})


@dataclass
class Place:
    """A person with a queue, and the GitHub that it goes to."""

    #: The URL of GitHub's pages; empty: the URL of the API.
    web: ClassVar = ""
    toy: Toy
    github: GitHub
    upstream: Repository
    me: User
    waited: list[float] = field(default_factory=list)
    attempts: int = 3

    @property
    def faults(self) -> Faults:
        return self.github.faults

    @property
    def fork(self) -> Repository:
        known = self.github.repositories.values()
        return next(
            each for each in known if each.parent is self.upstream and each.owner is self.me
        )

    @property
    def queue(self) -> Queue:
        return load_queue(self.toy.queue)

    @property
    def token(self) -> str:
        return self.me.tokens[0].text

    @contextlib.contextmanager
    def connect(self, token: str = "", *, waits: Waits | None = None) -> Iterator[Client]:
        """Yield contribbot's client, with the person's token or another."""
        patient = Waits(self.waited.append, 900.0, self.attempts, 0, lambda: sum(self.waited))
        with connect(
            server=Server(api=self.github.base, web=self.web or self.github.base),
            token=Token(Secret(token or self.token), "a test"),
            waits=waits or patient,
        ) as client:
            yield client

    def env(self) -> dict[str, str]:
        return {"GITHUB_API_URL": self.github.base, "GITHUB_TOKEN": self.token}

    @property
    def program(self) -> Program:
        return Program(self.toy.queue, self.env())

    def pulls(self) -> list[Pull]:
        return self.upstream.pulls()

    def events(self, name: str = "area") -> list[Event]:
        return history.read(self.toy.queue, name)

    def requests(self, act: Callable[[], object]) -> list[Request]:
        before = len(self.github.requests)
        act()
        return list(self.github.requests[before:])

    def push(self, files: dict[str, bytes | None], branch: str = "main") -> str:
        return self.github.commit(self.upstream, branch, files)

    def note(self, state: str, name: str = "area", *, number: int = 1, **facts: str) -> None:
        """Note the state of a pull request, as follow does."""
        known = {"time": history.now(), "summary": state, "state": state, **facts}
        reference = f"{self.upstream.full_name}#{number}"
        event = PullRequestEvent.model_validate({**known, "reference": reference})
        history.append(self.toy.queue, name, event)

    def note_write(self, what: str, name: str = "area", **facts: str) -> None:
        """Note a finished write to the patch's branch, as open-pr does."""
        known = {"time": history.now(), "summary": what, "what": what, "key": "k", **facts}
        known |= {"fork": self.fork.full_name, "branch": f"contribbot/{name}"}
        history.append(self.toy.queue, name, DoneEvent.model_validate(known))
