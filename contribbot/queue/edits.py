"""Edits of `queue.toml` and `patch.toml` that leave comments and layout alone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from contribbot.errors import QueueError
from contribbot.model.pin import Pin
from contribbot.queue.tomledit import (
    Rows,
    Table,
    edited,
    insert,
    items_of,
    names_of,
    set_names,
    tables,
    update,
)

if TYPE_CHECKING:
    from tomlkit.toml_document import TOMLDocument


def set_pin(queue_toml: bytes, old: Pin | None, new: Pin) -> bytes:
    """Put a pin into the place of another, or behind all that are there."""

    def edit(document: TOMLDocument, data: Table) -> Rows:
        pins = tables(data, "pins")
        wanted = _plain(new)
        if old is None:
            insert(items_of(document, "pins", data), len(pins), wanted)
            data["pins"] = [*pins, wanted]
            return []
        at = [
            number
            for number, pin in enumerate(pins)
            if (pin.get("upstream"), pin.get("tag")) == (old.upstream, old.tag)
        ]
        if not at:
            raise QueueError(f"queue.toml: pins: there is no {old.title}")
        number = at[0]
        data["pins"] = [*pins[:number], wanted, *pins[number + 1 :]]
        return update(items_of(document, "pins", data)[number], wanted, ("pins", number))

    return edited("queue.toml", queue_toml, edit)


def remove_pin(queue_toml: bytes, pin: Pin) -> bytes:
    """Take a pin out."""

    def edit(document: TOMLDocument, data: Table) -> Rows:
        pins = tables(data, "pins")
        for number in reversed(range(len(pins))):
            if (pins[number].get("upstream"), pins[number].get("tag")) == (pin.upstream, pin.tag):
                del items_of(document, "pins", data)[number]
                del pins[number]
        data["pins"] = list(pins)
        return []

    return edited("queue.toml", queue_toml, edit)


def add_to_order(queue_toml: bytes, name: str, *, after: str | None = None) -> bytes:
    """Put a patch into the queue's order."""

    def edit(document: TOMLDocument, data: Table) -> Rows:
        order = names_of(data, "order")
        if name in order:
            return []
        if after is not None and after not in order:
            raise QueueError(f"queue.toml: order: there is no {after}")
        place = len(order) if after is None else order.index(after) + 1
        set_names(document, data, "order", [*order[:place], name, *order[place:]])
        return []

    return edited("queue.toml", queue_toml, edit)


def remove_from_order(queue_toml: bytes, name: str) -> bytes:
    """Take a patch out of the queue's order."""

    def edit(document: TOMLDocument, data: Table) -> Rows:
        order = names_of(data, "order")
        set_names(document, data, "order", [one for one in order if one != name])
        return []

    return edited("queue.toml", queue_toml, edit)


def set_patch(
    patch_toml: bytes,
    *,
    pin: str | None = None,
    files: Sequence[str] | None = None,
    depends_on: Sequence[str] | None = None,
) -> bytes:
    """Change what a `patch.toml` says; what is None stays."""

    def edit(document: TOMLDocument, data: Table) -> Rows:
        if pin is not None and data.get("pin") != pin:
            document["pin"] = pin
            data["pin"] = pin
        if files is not None:
            set_names(document, data, "files", list(files))
        if depends_on is not None:
            set_names(document, data, "depends_on", list(depends_on))
        return []

    return edited("patch.toml", patch_toml, edit)


def _plain(pin: Pin) -> Table:
    """Return a pin as `queue.toml` states it: without what is so by default."""
    table: Table = pin.model_dump(mode="json", exclude_defaults=True)
    return table
