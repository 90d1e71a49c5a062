"""The journal as opening a pull request uses it; in a rehearsal nothing of it is written."""

from __future__ import annotations

from collections.abc import Sequence

from contribbot.contribute.state import Contribution, state
from contribbot.model.history import DoneEvent, Event, IntentEvent
from contribbot.model.patch import Patch
from contribbot.queue import history
from contribbot.queue.load import Queue
from contribbot.queue.transaction import transaction


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
