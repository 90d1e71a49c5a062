"""What the rules of the gate look at: a patch, its upstream's rules, its text, GitHub."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property
from typing import TYPE_CHECKING, Final, TypeVar

from contribbot.contribute.gate.touching import Touch, read_files
from contribbot.contribute.state import Contribution, state
from contribbot.contribute.text.body import Body, make_body
from contribbot.contribute.text.escape import clean, shortened
from contribbot.errors import ContribbotError, GitHubError, NotFoundError, RefusedError
from contribbot.git.patch_format import Mail, read_mail
from contribbot.model.gate import Look, RowState, Searched
from contribbot.model.patch import Patch
from contribbot.model.rules import Rules
from contribbot.queue import history
from contribbot.queue.load import Queue

if TYPE_CHECKING:
    from github.Repository import Repository

    from contribbot.github.client import GitHub

T = TypeVar("T")
_LONGEST: Final = 300


@dataclass(frozen=True)
class Finding:
    """What a rule says."""

    #: Whether it is kept.
    state: RowState
    seen: str
    #: The next step, or empty.
    next: str = ""
    #: The look for duplicates, where it found none.
    searched: Searched | None = None


def passed(seen: str) -> Finding:
    """Say that a rule is kept."""
    return Finding(RowState.PASSED, seen)


def failed(seen: str, then: str) -> Finding:
    """Say that a rule is broken, and the next step."""
    return Finding(RowState.FAILED, seen, then)


def person(seen: str, then: str = "") -> Finding:
    """Say that a person must look."""
    return Finding(RowState.PERSON, seen, then)


def refused(error: ContribbotError) -> Finding:
    """Say that a rule is broken in the words of an error."""
    return failed(error.message, error.hint)


def line(text: str) -> str:
    """Return text of any origin as one line that a row can hold."""
    return shortened(clean(text), _LONGEST)


class NotAskedError(Exception):
    """GitHub would have to be asked, and nobody wants that."""


@dataclass
class Case:
    """A patch before the gate."""

    queue: Queue
    patch: Patch
    rules: Rules
    #: Reads from GitHub; None: it is not asked.
    github: GitHub | None
    broken: GitHubError | None
    server: str
    now: datetime
    #: Whether the rule at hand asked GitHub.
    asked: bool = False
    #: When GitHub was asked; the oldest that matters.
    looked: datetime | None = None
    look: Look | None = None
    _repository: Repository | None = field(default=None, repr=False)

    def ask(self, question: Callable[[GitHub], T]) -> T:
        """Ask GitHub something."""
        self.asked = True
        if self.broken is not None:
            raise self.broken
        if self.github is None:
            raise NotAskedError
        try:
            answer = question(self.github)
        except (NotFoundError, RefusedError):
            raise
        except GitHubError as error:
            # Whoever waited for one answer in vain need not wait for the others.
            self.broken = error
            raise
        self.looked = min(self.looked or self.now, self.now)
        return answer

    @property
    def repository(self) -> Repository:
        """The upstream's repository; asked for once."""
        self.asked = True
        if self._repository is None:
            name = self.patch.upstream.repository
            self._repository = self.ask(lambda github: github.repository(name).complete())
        return self._repository

    @property
    def me(self) -> str:
        """Whose token it is."""
        return self.ask(lambda github: github.me)

    @cached_property
    def contribution(self) -> Contribution:
        """How far the patch is on GitHub, as its journal says."""
        return state(history.read(self.queue.folder, self.patch.name)) or Contribution()

    @cached_property
    def body(self) -> Body | ContribbotError:
        """The text of the pull request, or why there is none."""
        try:
            return make_body(self.queue, self.patch.name)
        except ContribbotError as error:
            return error

    @cached_property
    def touches(self) -> list[Touch]:
        """What the patch files touch."""
        return read_files(self.patch.files)

    @cached_property
    def mails(self) -> list[tuple[str, Mail]]:
        """The patch files' names, and what they say."""
        return [(file.name, read_mail(file)) for file in self.patch.files]
