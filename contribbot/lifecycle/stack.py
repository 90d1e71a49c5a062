"""Patches applied to the pin that they stand on, each on what it depends on."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from contribbot.errors import UsageError
from contribbot.files import run_folder, stores_folder
from contribbot.git.apply import Series, apply_series
from contribbot.git.merge import Moved, Moving, move
from contribbot.git.releases import pin_from_git, release_tags, releases, resolve
from contribbot.git.repository import Store, open_store
from contribbot.git.source import Progress
from contribbot.git.sources import provide
from contribbot.model.patch import PatchFile
from contribbot.model.pin import GitSource, Pin
from contribbot.queue.load import Queue


@dataclass(frozen=True)
class Landed:
    """A pin whose tree is in the store.

    Attributes:
        pin: The pin.
        commit: Its commit in the store.
        store: The upstream's store.
    """

    pin: Pin
    commit: str
    store: Store


def own_pin(queue: Queue, name: str) -> Pin:
    """Return the pin that a patch stands on."""
    spec = queue.specs[name]
    pin = queue.pin(spec.upstream, spec.pin)
    assert pin is not None  # noqa: S101  load_queue has checked it
    return pin


def series_of(
    queue: Queue, names: Sequence[str], landed: Landed, *, scratch: Path
) -> dict[str, Series]:
    """Apply patches to the pin that they stand on, each on what it depends on."""
    made: dict[str, Series] = {}
    with landed.store.exclusive():
        for name in names:
            base, broken = landed.commit, False
            for lower in queue.below(name):
                # The dependencies one after the other, as `verify` stacks them.
                below = apply_series(
                    landed.store, base, queue.patch(lower).files,
                    pin=landed.pin.title, scratch=scratch,
                )  # fmt: skip
                broken = broken or bool(below.conflicts)
                base = below.commit
            if broken:
                made[name] = Series(base, (), ())
            else:
                made[name] = apply_series(
                    landed.store, base, queue.patch(name).files,
                    pin=landed.pin.title, scratch=scratch,
                )  # fmt: skip
    return made


def with_dependencies(queue: Queue, names: Sequence[str]) -> list[str]:
    """Return patches with all that they depend on, in the queue's order."""
    wanted = {*names, *(lower for name in names for lower in queue.below(name))}
    return [name for name in queue.specs if name in wanted]


def land(queue: Queue, pin: Pin, *, progress: Progress) -> Landed:
    """Bring a pin's tree into its upstream's store."""
    store = open_store(stores_folder(), pin.upstream)
    got = provide(pin, queue.upstreams[pin.upstream], store, progress=progress)
    return Landed(pin, got.commit, store)


def pin_at(queue: Queue, upstream: str, tag: str) -> Pin:
    """Return the pin of an upstream at a tag: the queue's own, or one made from its like."""
    known = queue.pin(upstream, tag)
    if known is not None:
        return known
    like = like_of(queue, upstream)
    described, source = queue.upstreams[upstream], git_source(like)
    if described.release is None and source is not None:
        found = pin_from_git(like, described, source, tag)
    else:
        found = resolve(like, described, tag)
    return queue.pin(upstream, found.tag) or found


def tags_of(queue: Queue, upstream: str, *, also: Collection[str] = ()) -> list[str]:
    """Return the tags of an upstream's final releases, oldest first."""
    like = like_of(queue, upstream)
    described, source = queue.upstreams[upstream], git_source(like)
    if described.release is None and source is not None:
        return release_tags(described, source, also=also)
    return [one.tag for one in releases(like, described, also=also)]


def like_of(queue: Queue, upstream: str) -> Pin:
    """Return the pin of an upstream that others are made like: its last one."""
    return [pin for pin in queue.spec.pins if pin.upstream == upstream][-1]


def git_source(pin: Pin) -> GitSource | None:
    """Return the first git repository that a pin can come from."""
    return next((one for one in pin.sources if isinstance(one, GitSource)), None)


def upstream_meant(queue: Queue, names: Sequence[str], wanted: str) -> str:
    """Return the upstream that a command about a tag is about."""
    theirs = dict.fromkeys(queue.specs[name].upstream for name in names)
    if not theirs:
        raise UsageError(
            f"{queue.folder}: the queue has no patches, and nothing to move",
            hint="change the pins in queue.toml by hand, or add a patch",
        )
    if wanted:
        if wanted not in theirs:
            raise UsageError(
                f"--upstream {wanted}: none of these patches is for it",
                hint=f"name one of {', '.join(theirs)}",
            )
        return wanted
    if len(theirs) != 1:
        raise UsageError(
            f"a tag belongs to one upstream, and these patches are for {', '.join(theirs)}",
            hint="name it with --upstream",
        )
    return next(iter(theirs))


def carried_over(
    queue: Queue, names: Sequence[str], new: Landed, *, progress: Progress
) -> dict[str, Moved]:
    """Carry patches, and what they depend on, from their own pin over to another one."""
    old = land(queue, own_pin(queue, names[0]), progress=progress)
    every = with_dependencies(queue, names)
    with run_folder() as scratch:
        return {one.name: one for one in carry(queue, every, old, new, scratch=scratch)}


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
    mended = resolved or {}
    moving = [
        Moving(name, tuple(queue.below(name)), series[name], mended.get(name, ()), name in gone)
        for name in names
    ]
    with new.store.exclusive():
        return move(
            new.store, moving, old=old.commit, new=new.commit, pin=new.pin.title, scratch=scratch
        )
