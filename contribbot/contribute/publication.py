"""What a patch's journal says of its contribution: the one truth about what was published."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from contribbot.errors import OpeningError
from contribbot.model.history import (
    DoneEvent,
    Event,
    IntentEvent,
    PullRequestEvent,
    RetiredEvent,
    VersionEvent,
)
from contribbot.model.patch import Patch
from contribbot.queue import history
from contribbot.queue.load import Queue
from contribbot.queue.transaction import transaction

#: Kinds of writes (`IntentEvent.what`).
FORK: Final = "fork"
BRANCH: Final = "branch"
PULL: Final = "pull-request"
TEXT: Final = "text"
COMMENT: Final = "comment"
#: The branch is there, and a person is to open the pull request.
HANDOFF: Final = "handoff"


@dataclass(frozen=True)
class Contribution:
    """How far a patch is on GitHub."""

    fork: str = ""
    branch: str = ""
    head: str = ""
    base: str = ""
    digest: str = ""
    below: Mapping[str, str] = field(default_factory=dict)
    version: int = 0
    reference: str = ""
    state: str = ""
    handed_off: bool = False
    announced: int = 0
    heads: frozenset[str] = frozenset()
    texts: frozenset[str] = frozenset()
    open: tuple[IntentEvent, ...] = ()
    former: str = ""

    @property
    def number(self) -> int:
        """The pull request's number; 0 with no reference."""
        return int(self.reference.rpartition("#")[2] or 0)

    @property
    def ended(self) -> bool:
        """Whether its pull request is closed or merged, as far as is known."""
        return self.state not in {"", "draft", "open"}

    def begun(self, what: str, key: str) -> bool:
        """Say whether a write was begun of which nobody knows whether it happened."""
        return any((one.what, one.key) == (what, key) for one in self.open)


def state(events: Sequence[Event], *, digest: str = "") -> Contribution | None:
    """Fold a journal into where its contribution stands.

    Another patch under the name of one that was retired has nothing to do with the pull
    request of that one, unless that is open still.
    """
    found: Contribution | None = None
    last, retired = "", False
    for event in events:
        if isinstance(event, VersionEvent):
            found = _anew(found) if retired and found else found
            last, retired = event.digest, False
        elif isinstance(event, RetiredEvent):
            retired = True
        elif isinstance(event, IntentEvent):
            found = _intent(found or Contribution(), event)
        elif isinstance(event, DoneEvent):
            found = _done(found or Contribution(), event)
        elif isinstance(event, PullRequestEvent):
            found = _pull(found or Contribution(), event)
    return _anew(found) if found and retired and digest and digest != last else found


def _anew(was: Contribution) -> Contribution:
    """Forget the pull request of a patch that was retired; its branch stays known as ours."""
    if was.reference and not was.ended:
        return was
    return replace(
        was, reference="", state="", handed_off=False, announced=0,
        former=was.reference or was.former,
    )  # fmt: skip


def _with(known: frozenset[str], one: str | None) -> frozenset[str]:
    return known | {one} if one else known


def _intent(was: Contribution, event: IntentEvent) -> Contribution:
    same = (event.what, event.key)
    others = tuple(one for one in was.open if (one.what, one.key) != same)
    return replace(
        was,
        open=(*others, event),
        heads=_with(was.heads, event.head),
        texts=_with(was.texts, event.text),
    )


def _closed(was: Contribution, what: str, key: str) -> Contribution:
    """Take away the intent that an event answers."""
    return replace(was, open=tuple(one for one in was.open if (one.what, one.key) != (what, key)))


def _done(was: Contribution, event: DoneEvent) -> Contribution:
    now = _closed(was, event.what, event.key)
    if event.what == BRANCH:
        now = replace(
            now,
            fork=event.fork or now.fork,
            branch=event.branch or now.branch,
            head=event.head or now.head,
            heads=_with(now.heads, event.head),
            base=event.base or now.base,
            digest=event.digest or now.digest,
            below=event.below or {},
            version=event.version or now.version,
        )
    elif event.what == HANDOFF:
        now = replace(now, handed_off=True)
    elif event.what == COMMENT:
        now = replace(now, announced=max(now.announced, event.version or 0))
    return replace(now, texts=_with(now.texts, event.text))


def _pull(was: Contribution, event: PullRequestEvent) -> Contribution:
    fresh = event.reference != was.reference
    now = replace(
        was,
        reference=event.reference,
        state=event.state,
        fork=event.fork or was.fork,
        branch=event.branch or was.branch,
        # Whoever sees a pull request for the first time sees what it carries then.
        announced=(event.version or was.version) if fresh else was.announced,
        texts=_with(was.texts, event.text),
    )
    # A head that follow saw may be somebody else's commit: only what we meant to push is ours.
    if event.head in was.heads and event.digest:
        now = replace(
            now,
            head=event.head or now.head,
            digest=event.digest,
            base=event.base or now.base,
            below=event.below if event.below is not None else now.below,
            version=event.version or now.version,
        )
    return replace(now, open=tuple(one for one in now.open if one.what != PULL))


class Book:
    """What happened to the patches of a queue, and what is noted now."""

    def __init__(self, queue: Queue, *, dry: bool = False) -> None:
        self._queue = queue
        self._dry = dry
        self._kept: dict[str, list[Event]] = {}

    def contribution(self, patch: str, *, digest: str = "") -> Contribution:
        """Return how far a patch is on GitHub."""
        events: Sequence[Event] = history.read(self._queue.folder, patch)
        return state([*events, *self._kept.get(patch, ())], digest=digest) or Contribution()

    def note(self, patch: str, event: Event) -> None:
        """Add an event to the journal of a patch, down to the disk."""
        if self._dry:
            self._kept.setdefault(patch, []).append(event)
        else:
            history.append(self._queue.folder, patch, event)

    def done(self, patch: str, intent: IntentEvent, summary: str, *, url: str = "") -> None:
        """Note that GitHub has what an intent was about, in the intent's own words.

        The intent is noted by itself, before the request is sent: what lies between the two
        is what a run that was cut off must look for.
        """
        meant = intent.model_dump(exclude={"event", "time", "summary"})
        self.note(patch, DoneEvent(time=history.now(), summary=summary, url=url or None, **meant))

    def version(self, patch: Patch) -> int:
        """Return the version that a patch is now, recorded."""
        if not self._dry:
            below = history.digests(history.below_of(self._queue, patch.name))
            with transaction(self._queue.folder) as change:
                history.record(
                    change, patch.name, patch.files, patch.pin, why="open-pr", below=below
                )
        known = history.versions(self._queue.folder, patch.name)
        last = known[-1].event if known else None
        if last is None:
            return 1
        return last.version + ((last.digest, last.base) != (patch.digest, patch.pin))


#: Ended, and the upstream does not have it.
_NOT_KEPT: Final = frozenset({"closed", "reverted"})


class MissingBelowError(OpeningError):
    """What a patch depends on has no pull request yet: a person opens that first."""


def check_below(
    queue: Queue, book: Book, name: str, *, rehearsed: Collection[str] = ()
) -> dict[str, str]:
    """See that what a patch depends on has its pull request, open or merged."""
    found: dict[str, str] = {}
    missing: list[str] = []
    for lower in queue.below(name):
        known = book.contribution(lower)
        if lower in rehearsed:
            found[lower] = known.reference or f"the pull request of {lower}"
        elif not known.reference:
            missing.append(lower)
        elif known.state in _NOT_KEPT:
            raise OpeningError(
                f"{name}: it depends on {lower}, whose pull request {known.reference} was"
                f" {known.state}",
                hint=f"take it up again there, or take {lower} out of depends_on",
            )
        elif not known.ended:
            found[lower] = known.reference
    if missing:
        handed = [one for one in missing if book.contribution(one).handed_off]
        look = f"; of {handed[0]} it is not known yet: contribbot follow" if handed else ""
        raise MissingBelowError(
            f"{name}: it depends on {', '.join(missing)}, which"
            f" {'has' if len(missing) == 1 else 'have'} no pull request yet{look}",
            hint=f"open that first: contribbot open-pr {missing[0]}",
        )
    return found


def waits_for(queue: Queue, name: str) -> tuple[str, ...]:
    """Return what must be merged before a patch can be, as its pull request names it."""
    known = [(lower, state(history.read(queue.folder, lower))) for lower in queue.below(name)]
    return tuple(
        one.reference if one and one.reference else f"`{lower}` (no pull request yet)"
        for lower, one in known
        if one is None or not one.ended
    )


def digests_below(queue: Queue, name: str) -> dict[str, str]:
    """Return the digests of the patches that a patch stands on, by name, lowest first."""
    return {lower: queue.patch(lower).digest for lower in queue.below(name)}
