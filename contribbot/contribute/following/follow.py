"""Following the contributions of a queue: one look at each, four at a time.

What changed its state since is written to the journal, once. What cannot be looked at says
so, and keeps nobody from hearing of the others.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from contribbot.contribute.following import lastlook
from contribbot.contribute.following.looking import Look
from contribbot.contribute.following.noting import note
from contribbot.contribute.following.subject import Seen, Subject, Upstreams
from contribbot.contribute.following.threads import line_of
from contribbot.contribute.stack import waits_for
from contribbot.contribute.state import PULL, Contribution, state
from contribbot.contribute.text.templates import rules_of
from contribbot.errors import ExitCode, GitHubError
from contribbot.model.follow import Followed, FollowReport, Kept
from contribbot.model.history import Event, VersionEvent
from contribbot.model.rules import Rules
from contribbot.queue import history
from contribbot.queue.load import Queue

if TYPE_CHECKING:
    from contribbot.github.client import GitHub

_AT_ONCE: Final = 4
_NAME: Final = re.compile(r"[a-z0-9][a-z0-9._-]{0,79}")

#: Opens GitHub, when there is something to ask.
Connect = Callable[[], "AbstractContextManager[GitHub]"]


@dataclass(frozen=True)
class Following:
    """What a run found out."""

    report: FollowReport
    #: What is to be remembered of it once it was shown, by patch.
    looks: dict[str, Kept]
    #: Why a change is not in the journal; None: all are.
    unwritten: OSError | None = None

    def remember(self, queue: Queue) -> None:
        """Remember what was shown: the next run calls nothing of it new."""
        for name, kept in self.looks.items():
            lastlook.save(queue, name, kept)

    @property
    def exit_code(self) -> ExitCode:
        """What it says to the shell."""
        failed = any(one.error for one in self.report.contributions)
        return ExitCode.MACHINE if failed else ExitCode.OK


def follow(queue: Queue, connect: Connect) -> Following:
    """Look at every contribution: those of the queue, and open ones of patches that left it."""
    subjects = subjects_of(queue)
    without = tuple(name for name in queue.specs if name not in {one.patch for one in subjects})
    if not subjects:
        return Following(FollowReport(contributions=(), without=without), {})
    told: list[Followed] = []
    looks: dict[str, Kept] = {}
    unwritten: OSError | None = None
    with connect() as github:
        upstreams = Upstreams(github)
        pool = ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="follow")
        try:
            for subject, seen in zip(
                subjects, pool.map(lambda one: _look(github, upstreams, one), subjects), strict=True
            ):
                change = ""
                try:
                    change = note(queue, subject.patch, seen.sight) if seen.sight else ""
                except OSError as error:
                    # What was seen is told all the same; the next run notes it.
                    unwritten = error
                told.append(seen.followed.model_copy(update={"change": change}))
                if seen.kept is not None:
                    looks[subject.patch] = seen.kept
        finally:
            # After an interruption those that nobody began are not begun.
            pool.shutdown(cancel_futures=True)
    return Following(FollowReport(contributions=tuple(told), without=without), looks, unwritten)


def subjects_of(queue: Queue) -> list[Subject]:
    """Return what there is to look at: the queue's in its order, then those that left it."""
    found = []
    for name in (*queue.specs, *_past(queue)):
        events = history.read(queue.folder, name)
        queued = name in queue.specs
        known = state(events, digest=queue.patch(name).digest if queued else "")
        if known is None or not _is_followed(known, queued=queued):
            continue
        upstream = queue.specs[name].upstream if queued else _upstream(events)
        described = queue.upstreams.get(upstream)
        repository = known.reference.partition("#")[0] or (
            described.repository if described is not None else ""
        )
        if repository:
            rules, kept = _rules(queue, upstream), lastlook.load(queue, name)
            above = tuple(one for one, spec in queue.specs.items() if name in spec.depends_on)
            waits = waits_for(queue, name) if queued else ()
            found.append(Subject(name, queued, repository, known, rules, kept, above, waits))
    return found


def _past(queue: Queue) -> list[str]:
    """Return the patches that left the queue and have a history."""
    return sorted(
        path.parent.name
        for path in (queue.folder / "history").glob("*/journal.jsonl")
        if path.parent.name not in queue.specs and _NAME.fullmatch(path.parent.name)
    )


def _is_followed(known: Contribution, *, queued: bool) -> bool:
    """Return whether there is something to ask of GitHub."""
    if known.reference:
        return queued or not known.ended
    waits = known.handed_off or any(one.what == PULL for one in known.open)
    return waits and bool(known.fork and known.branch)


def _upstream(events: Sequence[Event]) -> str:
    """Return the upstream of a patch that left the queue."""
    versions = [one for one in events if isinstance(one, VersionEvent)]
    return versions[-1].upstream if versions else ""


def _rules(queue: Queue, upstream: str) -> Rules | None:
    """Return the rules of an upstream; None where nobody has written any."""
    from contribbot import upstreams  # noqa: PLC0415  the name is taken above

    return rules_of(queue, upstream) if upstream in upstreams.contributing(queue.folder) else None


def _look(github: GitHub, upstreams: Upstreams, subject: Subject) -> Seen:
    """Look at one; that it cannot be looked at is what is seen of it."""
    error, before = upstreams.refusal(subject.repository), "nothing more was asked after "
    if error is None:
        try:
            return Look(github, upstreams, subject).see()
        except GitHubError as fault:
            upstreams.heed(subject.repository, fault)
            error, before = fault, ""
    said = f"{before}{error.message}{f'; {error.hint}' if error.hint else ''}"
    return Seen(subject.blank().model_copy(update={"error": line_of(said, 600)}))
