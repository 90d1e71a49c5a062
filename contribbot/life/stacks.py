"""Patches applied to the pin that they stand on, each on what it depends on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from contribbot.model.pin import Pin
from contribbot.queue.load import Queue
from contribbot.store.repository import Store
from contribbot.store.series import Series, apply_series


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
