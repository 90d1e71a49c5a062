"""Set values in queue.toml and patch.toml with tomlkit; all other bytes stay the same."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Mapping, MutableSequence, Sequence
from difflib import SequenceMatcher
from typing import Final

import tomlkit
from pydantic import JsonValue
from tomlkit.exceptions import TOMLKitError
from tomlkit.items import AbstractTable, AoT, Array, InlineTable, Item, Table
from tomlkit.toml_document import TOMLDocument

from contribbot.errors import QueueError
from contribbot.model.patch import Pin

Data = dict[str, JsonValue]
#: A line before an array table's header (`[[`) without an empty line between the two.
_CROWDED: Final = re.compile(r"^((?!#)[^\r\n]+)(\r?\n)(?=\[\[)", re.MULTILINE)


def _read(file: str, content: bytes) -> Data:
    try:
        return tomllib.loads(content.decode())
    except (ValueError, RecursionError) as error:
        raise QueueError(f"{file}: not TOML that can be read: {error}") from error


def _edited(file: str, content: bytes, values: Mapping[str, JsonValue]) -> bytes:
    """Return a TOML file with some keys set, after a check that no other value changes."""
    data, text = _read(file, content), content.decode()
    changed = [key for key, value in values.items() if key not in data or data[key] != value]
    if not changed:
        return content
    try:
        document = tomlkit.parse(text if text.endswith("\n") else text + "\n")
        for key in changed:
            _set(document, key, values[key])
        order = document.get("order")
        if "order" in changed and isinstance(order, Array) and "\n" not in order.as_string():
            # One item on each line, so that git can merge the additions of two people.
            order.multiline(multiline=True)
        after = tomlkit.dumps(document)
        if not _CROWDED.search(text):
            after = _CROWDED.sub(r"\1\2\2", after)
        if "\r\n" in text:
            after = re.sub(r"(?<!\r)\n", "\r\n", after)
        right = tomllib.loads(after) == {**data, **values}
    except (TOMLKitError, ValueError, TypeError):
        right = False
    if not right:
        raise QueueError(
            f"{file}: {', '.join(changed)}: laid out in a way that cannot be changed without harm",
            hint=f"edit it by hand: {file}, {', '.join(changed)}",
        )
    return after.encode()


def _set_table(table: AbstractTable, values: Data) -> None:
    for name in [name for name in table if name not in values]:
        table.remove(name)
    for name, value in values.items():
        _set(table, name, value)


def _set(table: TOMLDocument | AbstractTable, key: str, value: JsonValue) -> None:
    old = table.get(key)
    if isinstance(old, AoT | Array) and isinstance(value, list):
        _set_list(old, value)
    elif isinstance(old, AbstractTable) and isinstance(value, dict):
        _set_table(old, value)
    elif key in table:
        if old != value:
            table[key] = value
    elif isinstance(table, Table) and not isinstance(value, dict) and len(table):
        # tomlkit's `append` would put the key after the comment of the next table.
        plain = [name for name in table if not isinstance(table[name], AoT | AbstractTable)]
        table.value._insert_after(plain[-1], key, _item(value))  # noqa: SLF001  no public way
    else:
        table.append(key, _item(value, inline=isinstance(table, InlineTable)))


def _set_list(items: AoT | Array, wanted: list[JsonValue]) -> None:
    """Change a list; equal items stay unchanged, tables of the same kind are edited in place."""
    old: list[JsonValue] = list(items.unwrap())
    texts = [[json.dumps(item, sort_keys=True) for item in side] for side in (old, wanted)]
    for tag, low, high, first, last in reversed(
        SequenceMatcher(None, texts[0], texts[1]).get_opcodes()
    ):
        new = wanted[first:last]
        if tag == "equal":
            continue
        if [_kind(item) for item in old[low:high]] == [_kind(item) for item in new]:
            for place, item in enumerate(new, start=low):
                if isinstance(item, dict):
                    _set_table(items[place], item)
            continue
        del items[low:high]
        array: MutableSequence[Item] = items
        for item in reversed(new):
            array.insert(low, _item(item, inline=isinstance(items, Array)))


def _kind(item: JsonValue) -> str:
    """Return a word that pairs old and new items: a source's kind, or a pin's upstream."""
    return str(item.get("kind", item.get("upstream"))) if isinstance(item, dict) else str(item)


def _item(value: JsonValue, *, inline: bool = False) -> Item:
    """Return data as a TOML item; `inline`: a table is written in braces, without a header."""
    if inline and isinstance(value, dict):
        braces = tomlkit.inline_table()
        braces.update(value)
        return braces
    if isinstance(value, list) and value and isinstance(value[0], dict) and not inline:
        array = tomlkit.aot()
        for entry in value:
            array.append(_item(entry))
        return array
    if not isinstance(value, dict):
        return tomlkit.item(value)
    table = tomlkit.table()
    # Plain keys come first: after a sub-table's header, a key would belong to that table.
    for key in sorted(value, key=lambda key: isinstance(value[key], list | dict)):
        table.append(key, _item(value[key]))
    return table


def _is(table: JsonValue, pin: Pin) -> bool:
    names = (table.get("upstream"), table.get("tag")) if isinstance(table, dict) else ()
    return names == (pin.upstream, pin.tag)


def set_pin(queue_toml: bytes, old: Pin | None, new: Pin | None) -> bytes:
    """Return queue.toml with the pin `new` in the place of `old`; None: at the end, or no pin."""
    pins = _read("queue.toml", queue_toml).get("pins", [])
    known = pins if isinstance(pins, list) else []
    at = next((place for place, pin in enumerate(known) if old and _is(pin, old)), len(known))
    if old is not None and at == len(known):
        raise QueueError(f"queue.toml: pins: there is no {old.title}")
    fresh = [new.model_dump(mode="json", exclude_defaults=True)] if new else []
    return _edited("queue.toml", queue_toml, {"pins": [*known[:at], *fresh, *known[at + 1 :]]})


def set_order(queue_toml: bytes, order: Sequence[str]) -> bytes:
    """Return queue.toml with another `order`."""
    return _edited("queue.toml", queue_toml, {"order": list(order)})


def remove_from_order(queue_toml: bytes, name: str) -> bytes:
    """Return queue.toml with a patch taken out of `order`."""
    order = _read("queue.toml", queue_toml).get("order", [])
    left = [other for other in order if other != name] if isinstance(order, list) else order
    return _edited("queue.toml", queue_toml, {"order": left})


def set_patch(
    patch_toml: bytes,
    *,
    pin: str | None = None,
    files: Sequence[str] | None = None,
    depends_on: Sequence[str] | None = None,
) -> bytes:
    """Return patch.toml with some keys set; None leaves a key unchanged."""
    lists = {"files": files, "depends_on": depends_on}
    values: Data = {key: [*value] for key, value in lists.items() if value is not None}
    if not depends_on and "depends_on" not in _read("patch.toml", patch_toml):
        values.pop("depends_on", None)
    if pin is not None:
        values["pin"] = pin
    return _edited("patch.toml", patch_toml, values)


def set_person(patch_toml: bytes, person: Mapping[str, str]) -> bytes:
    """Return patch.toml with the person who answers for the patch in `[contribution]`."""
    contribution = _table(_read("patch.toml", patch_toml), "contribution")
    values: Data = {"contribution": {**contribution, "person": {**person}}}
    return _edited("patch.toml", patch_toml, values)


def set_different(patch_toml: bytes, reasons: Mapping[str, str]) -> bytes:
    """Return patch.toml with more reasons in `[contribution.different]`."""
    contribution = _table(_read("patch.toml", patch_toml), "contribution")
    different = {**_table(contribution, "different")}
    for reference, why in reasons.items():
        # GitHub ignores upper and lower case in names.
        known = next((key for key in different if key.lower() == reference.lower()), reference)
        different[known] = why
    values: Data = {"contribution": {**contribution, "different": different}}
    return _edited("patch.toml", patch_toml, values)


def _table(data: Data, key: str) -> Data:
    table = data.get(key, {})
    if not isinstance(table, dict):
        raise QueueError(f"patch.toml: {key}: not a table")
    return table
