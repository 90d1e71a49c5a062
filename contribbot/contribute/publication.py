"""The published state of a contribution, as read from the patch's journal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from contribbot.errors import OpeningError
from contribbot.model.patch import Patch
from contribbot.queue import history
from contribbot.queue.history import (
    DoneEvent,
    Event,
    IntentEvent,
    PullRequestEvent,
    RetiredEvent,
    VersionEvent,
)
from contribbot.queue.load import Queue
from contribbot.queue.transaction import transaction

#: Kinds of writes (`IntentEvent.what`); a `HANDOFF` leaves the pull request to a person.
BRANCH: Final = "branch"
PULL: Final = "pull-request"
TEXT: Final = "text"
HANDOFF: Final = "handoff"
_NOT_KEPT: Final = frozenset({"closed", "reverted"})


@dataclass(frozen=True)
class Publication:
    """The published state of a patch: its branch, pull request and unfinished writes."""

    fork: str = ""
    branch: str = ""
    head: str = ""
    base: str = ""
    digest: str = ""
    below: Mapping[str, str] = field(default_factory=dict)
    reference: str = ""
    state: str = ""
    handed_off: bool = False
    heads: frozenset[str] = frozenset()
    texts: frozenset[str] = frozenset()
    open: tuple[IntentEvent, ...] = ()
    former: str = ""

    @property
    def repository(self) -> str:
        """The repository of the pull request; empty if no pull request is known."""
        return self.reference.partition("#")[0]

    @property
    def number(self) -> int:
        """The pull request's number; 0 if no pull request is known."""
        return int(self.reference.rpartition("#")[2] or 0)

    @property
    def ended(self) -> bool:
        """Whether the pull request is closed or merged, as far as the journal knows."""
        return self.state not in {"", "draft", "open"}

    @property
    def awaited(self) -> bool:
        """Whether an unknown pull request may exist, after a handoff or a lost answer."""
        return not self.reference and (self.handed_off or any(i.what == PULL for i in self.open))

    def begun(self, what: str, key: str) -> IntentEvent | None:
        """Return the journal's intent of a write that is not noted as done, or None."""
        known = (intent for intent in self.open if (intent.what, intent.key) == (what, key))
        return next(known, None)


def state(events: Sequence[Event], *, digest: str = "") -> Publication | None:
    """Return the published state after a journal's events; None: nothing was published."""
    known: Publication | None = None
    last, retired = "", False
    for event in events:
        if isinstance(event, VersionEvent):
            known = _renewed(known) if retired and known else known
            last, retired = event.digest, False
        elif isinstance(event, RetiredEvent):
            retired = True
        elif isinstance(event, IntentEvent | DoneEvent | PullRequestEvent):
            known = _fold(known or Publication(), event)
    return _renewed(known) if known and retired and digest and digest != last else known


def _renewed(was: Publication) -> Publication:
    """Return the state without a retired patch's ended pull request; the branch stays known."""
    if was.reference and not was.ended:
        return was
    return replace(
        was,
        reference="",
        state="",
        handed_off=False,
        former=was.reference or was.former,
    )


def _fold(was: Publication, event: IntentEvent | DoneEvent | PullRequestEvent) -> Publication:
    """Return the published state after one more event."""
    now = replace(was, texts=was.texts.union(filter(None, [event.text])))
    if isinstance(event, PullRequestEvent):
        left = tuple(intent for intent in was.open if intent.what != PULL)
        # `follow` may have seen somebody else's commit: only commits of our intents are ours.
        return replace(_placed(now, event), reference=event.reference, state=event.state, open=left)
    left = tuple(i for i in was.open if (i.what, i.key) != (event.what, event.key))
    if isinstance(event, IntentEvent):
        return replace(now, open=(*left, event), heads=was.heads.union(filter(None, [event.head])))
    now = replace(now, open=left)
    if event.what == BRANCH:
        return replace(
            _placed(now, event),
            heads=was.heads.union(filter(None, [event.head])),
            head=event.head or was.head,
            base=event.base or was.base,
            below=event.below or {},
            digest=event.digest or was.digest,
        )
    if event.what == HANDOFF:
        return replace(now, handed_off=True)
    return now


def _placed(was: Publication, event: DoneEvent | PullRequestEvent) -> Publication:
    return replace(was, fork=event.fork or was.fork, branch=event.branch or was.branch)


class PublicationJournal:
    """Reads and extends the journals of a queue's patches."""

    def __init__(self, queue: Queue) -> None:
        self._queue = queue

    def publication(self, patch: str, *, digest: str = "") -> Publication:
        """Return the published state of a patch."""
        return state(history.read(self._queue.folder, patch), digest=digest) or Publication()

    def note(self, patch: str, event: Event) -> None:
        """Append an event to a patch's journal on the disk."""
        history.append(self._queue.folder, patch, event)

    def begin(self, patch: str, what: str, key: str, summary: str, **fields: object) -> IntentEvent:
        """Append the intent of a write to GitHub to the journal, and return the intent."""
        fields |= {"time": history.now(), "summary": summary, "what": what, "key": key}
        intent = IntentEvent.model_validate(fields)
        self.note(patch, intent)
        return intent

    def done(self, patch: str, intent: IntentEvent, summary: str, **fields: str) -> None:
        """Append to the journal that an intent's write to GitHub is done."""
        meant = intent.model_dump(exclude={"event", "time", "summary"}) | fields
        self.note(patch, DoneEvent(time=history.now(), summary=summary, **meant))

    def version(self, patch: Patch) -> int:
        """Record the patch as a version in its history, and return the version's number."""
        with transaction(self._queue.folder) as change:
            history.record_present(change, self._queue, patch, why="open-pr")
        return history.versions(self._queue.folder, patch.name)[-1].event.version


class MissingBelowError(OpeningError):
    """Raised if a patch depends on a patch that has no pull request yet."""


def check_below(queue: Queue, journal: PublicationJournal, name: str) -> dict[str, str]:
    """Return dependencies' open pull requests; raise OpeningError if any is missing or rejected."""
    known = {lower: journal.publication(lower) for lower in queue.below(name)}
    missing = [lower for lower, publication in known.items() if not publication.reference]
    for lower, publication in known.items():
        if publication.state in _NOT_KEPT:
            pull = f"{publication.reference} was {publication.state}"
            hint = f"take it up again there, or take {lower} out of depends_on"
            why = f"it depends on {lower}, whose pull request {pull}"
            raise OpeningError(f"{name}: {why}", hint=hint)
    if missing:
        handed = [lower for lower in missing if known[lower].handed_off]
        look = f"; of {handed[0]} it is not known yet: contribbot follow" if handed else ""
        have = f"{'has' if len(missing) == 1 else 'have'} no pull request yet{look}"
        hint = f"open that first: contribbot open-pr {missing[0]}"
        raise MissingBelowError(
            f"{name}: it depends on {', '.join(missing)}, which {have}", hint=hint
        )
    return {lower: each.reference for lower, each in known.items() if not each.ended}


def waits_for(queue: Queue, name: str) -> tuple[str, ...]:
    """Return the pull requests of dependencies that must end before the patch can be merged."""
    journal = PublicationJournal(queue)
    known = {lower: journal.publication(lower) for lower in queue.below(name)}
    return tuple(
        lower.reference or f"`{patch}` (no pull request yet)"
        for patch, lower in known.items()
        if not lower.ended
    )
