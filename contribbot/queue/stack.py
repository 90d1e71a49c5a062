"""Patches applied to the pin that they stand on, each on what it depends on; all in memory."""

from __future__ import annotations

import uuid
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from contribbot.errors import QueueError, UsageError
from contribbot.files import stores_folder
from contribbot.git.apply import Series, apply_series
from contribbot.git.merge import Moved, Moving, move
from contribbot.git.repository import Store, open_store
from contribbot.git.source import Progress
from contribbot.git.sources import provide
from contribbot.model.patch import PatchFile, digest_of
from contribbot.model.pin import Pin
from contribbot.queue.load import Queue


@dataclass(frozen=True)
class Landed:
    """A pin whose tree is in the store."""

    pin: Pin
    commit: str
    store: Store


def land(queue: Queue, pin: Pin, *, progress: Progress) -> Landed:
    """Bring a pin's tree into its upstream's store."""
    store = open_store(stores_folder(), pin.upstream)
    got = provide(pin, queue.upstreams[pin.upstream], store, progress=progress)
    return Landed(pin, got.commit, store)


def own_pin(queue: Queue, name: str) -> Pin:
    """Return the pin that a patch stands on."""
    spec = queue.specs[name]
    pin = queue.pin(spec.upstream, spec.pin)
    assert pin is not None  # noqa: S101  load_queue has checked it
    return pin


def with_dependencies(queue: Queue, names: Sequence[str]) -> list[str]:
    """Return patches with all that they depend on, in the queue's order."""
    wanted = {*names, *(lower for name in names for lower in queue.below(name))}
    return [name for name in queue.specs if name in wanted]


@dataclass(frozen=True)
class AppliedPatch:
    """A patch on the commit below it, and what does not apply, in one line; empty when all does."""

    series: Series
    why: str = ""

    @property
    def base(self) -> str:
        """The commit below it: the pin with the patches that it depends on."""
        return self.series.base

    @property
    def tip(self) -> str:
        """Its last commit."""
        return self.series.commit

    @property
    def commits(self) -> tuple[str, ...]:
        """Its own commits, one a patch file."""
        return tuple(one.commit for one in self.series.applied)


class PatchStack:
    """The patches on one pin. New objects are written: hold `store.exclusive()` while it works."""

    def __init__(
        self,
        queue: Queue,
        landed: Landed,
        scratch: Path,
        *,
        files: Mapping[str, Sequence[PatchFile]] | None = None,
        done: dict[tuple[str, str], Series] | None = None,
    ) -> None:
        self.queue = queue
        self.landed = landed
        self._scratch = scratch
        self._files = files or {}
        self._done = {} if done is None else done

    def with_files(self, files: Mapping[str, Sequence[PatchFile]]) -> PatchStack:
        """Return the same stack with other files for some patches than those on the disk."""
        both = {**self._files, **files}
        return PatchStack(self.queue, self.landed, self._scratch, files=both, done=self._done)

    def apply(self, name: str) -> AppliedPatch:
        """Put a patch on what it stands on."""
        below = self.chain(self.landed.commit, self.queue.below(name))
        if below.why:
            return below
        try:
            series = self.series(below.tip, self.files_of(name))
        except QueueError as error:
            return AppliedPatch(Series(below.tip, (), ()), error.message)
        return AppliedPatch(series, series.conflicts[0].headline if series.conflicts else "")

    def chain(self, base: str, names: Sequence[str]) -> AppliedPatch:
        """Put patches on each other, as `verify` stacks dependencies; return the top."""
        for name in names:
            try:
                series = self.series(base, self.files_of(name))
            except QueueError as error:
                return AppliedPatch(Series(base, (), ()), f"the dependency {name}: {error.message}")
            if series.conflicts:
                why = f"the dependency {name}: {series.conflicts[0].headline}"
                return AppliedPatch(Series(base, (), ()), why)
            base = series.commit
        return AppliedPatch(Series(base, (), ()))

    def files_of(self, name: str) -> tuple[PatchFile, ...]:
        """Return the files of a patch."""
        return tuple(self._files[name]) if name in self._files else self.queue.patch(name).files

    def series(self, base: str, files: Sequence[PatchFile]) -> Series:
        """Apply files to a commit, once."""
        key = (base, digest_of(tuple(files)))
        if key not in self._done:
            scratch = self._scratch / uuid.uuid4().hex
            scratch.mkdir()
            self._done[key] = apply_series(
                self.landed.store, base, files, pin=self.landed.pin.title, scratch=scratch
            )
        return self._done[key]


def series_of(
    queue: Queue, names: Sequence[str], landed: Landed, *, scratch: Path
) -> dict[str, Series]:
    """Apply patches to the pin that they stand on."""
    stack = PatchStack(queue, landed, scratch)
    with landed.store.exclusive():
        return {name: stack.apply(name).series for name in names}


def carry(
    queue: Queue,
    names: Sequence[str],
    old: Landed,
    new: Landed,
    *,
    scratch: Path,
    resolved: Mapping[str, tuple[PatchFile, ...]] | None = None,
    gone: Collection[str] = (),
) -> list[Moved]:
    """Carry patches of one pin over to another one; nothing is written but objects."""
    series = series_of(queue, names, old, scratch=scratch)
    for name, one in series.items():
        if one.conflicts:
            raise UsageError(
                f"{name} does not apply to its own pin: {one.conflicts[0].headline}",
                hint=f"mend it first: contribbot verify {name}",
            )
    files = resolved or {}
    moving = [
        Moving(name, tuple(queue.below(name)), series[name], files.get(name, ()), name in gone)
        for name in names
    ]
    with new.store.exclusive():
        return move(
            new.store, moving, old=old.commit, new=new.commit, pin=new.pin.title, scratch=scratch
        )
