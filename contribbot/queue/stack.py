"""What the patches of a queue stand on, and whether they apply there, in memory."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from contribbot.errors import QueueError
from contribbot.files import stores_folder
from contribbot.git.apply import Series, apply_series
from contribbot.git.repository import Store, open_store
from contribbot.git.source import Progress
from contribbot.git.sources import provide
from contribbot.model.patch import PatchFile, digest_of
from contribbot.queue.load import Queue


@dataclass(frozen=True)
class Standing:
    """Where a patch stands.

    Attributes:
        base: The commit below it: the pin with the patches that it depends on.
        commits: Its own commits, one a patch file.
        why: What does not apply, in one line; empty when all does.
    """

    base: str
    commits: tuple[str, ...]
    why: str = ""

    @property
    def tip(self) -> str:
        """The last commit."""
        return self.commits[-1] if self.commits else self.base


@dataclass
class Ground:
    """A pin in its store, for all patches that stand on it; each series is applied once.

    New objects are written: hold `store.exclusive()` while it is asked.

    Attributes:
        queue: The queue.
        store: The upstream's store.
        pin: What the pin is called.
        commit: The pin's commit.
        scratch: A folder for temporary files.
        files: The patch files to use instead of those on the disk, by patch.
    """

    queue: Queue
    store: Store
    pin: str
    commit: str
    scratch: Path
    files: Mapping[str, Sequence[PatchFile]] = field(default_factory=dict)
    _done: dict[tuple[str, str, str], Series] = field(default_factory=dict)

    def with_files(self, name: str, files: Sequence[PatchFile]) -> Ground:
        """Return the same ground with other files for one patch."""
        return Ground(
            self.queue, self.store, self.pin, self.commit, self.scratch, {name: files}, self._done
        )

    def stand(self, name: str) -> Standing:
        """Put a patch on what it stands on. What is wrong with its files is a `why`, too."""
        base = self.commit
        for lower in self.queue.below(name):
            try:
                below = self._series(base, lower)
            except QueueError as error:
                return Standing(base, (), f"the dependency {lower}: {error.message}")
            if below.conflicts:
                why = f"the dependency {lower}: {below.conflicts[0].headline}"
                return Standing(base, (), why)
            base = below.commit
        try:
            own = self._series(base, name)
        except QueueError as error:
            return Standing(base, (), error.message)
        commits = tuple(one.commit for one in own.applied)
        return Standing(base, commits, own.conflicts[0].headline if own.conflicts else "")

    def _series(self, base: str, name: str) -> Series:
        files = tuple(self.files[name] if name in self.files else self.queue.patch(name).files)
        key = (base, name, digest_of(files))
        if key not in self._done:
            scratch = self.scratch / uuid.uuid4().hex
            scratch.mkdir()
            self._done[key] = apply_series(self.store, base, files, pin=self.pin, scratch=scratch)
        return self._done[key]


def ground_of(queue: Queue, name: str, *, scratch: Path, progress: Progress) -> Ground:
    """Return the ground of a patch, bringing its pin into the store where it is not there."""
    patch = queue.patch(name)
    store = open_store(stores_folder(), patch.upstream.name)
    got = provide(patch.pin, patch.upstream, store, progress=progress)
    return Ground(queue, store, patch.pin.title, got.commit, scratch)
