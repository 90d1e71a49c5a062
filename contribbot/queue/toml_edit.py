"""Changing a TOML file without touching the rest of it, on the `tomlkit` library."""

from __future__ import annotations

import difflib
import itertools
import tomllib
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from contribbot.errors import QueueError
from contribbot.model.pin import Pin
from contribbot.queue.load import find_line

if TYPE_CHECKING:
    from pydantic import JsonValue
    from tomlkit.items import AbstractTable, AoT, Array
    from tomlkit.toml_document import TOMLDocument


#: A table of the file, as data.
Table = dict[str, "JsonValue"]
#: Lines to put behind the line of a key, which tomlkit has no way to do.
Rows = list[tuple[tuple[int | str, ...], str]]


def edited(what: str, content: bytes, edit: Callable[[TOMLDocument, Table], Rows]) -> bytes:
    """Edit a file, and see that it says what it shall say then, and nothing else."""
    import tomlkit  # noqa: PLC0415  27 ms that reading commands need not pay

    try:
        text = content.decode()
        data: Table = tomllib.loads(text)
        if text and not text.endswith("\n"):
            text += "\n"
        document = tomlkit.parse(text)
    except (ValueError, RecursionError) as error:
        raise QueueError(f"{what}: not TOML that can be read: {error}") from error
    rows = edit(document, data)
    edited = _spaced(tomlkit.dumps(document), like=text)
    for place, row in rows:
        lines = edited.splitlines(keepends=True)
        lines.insert(find_line(edited, place), row + ("\r\n" if "\r\n" in text else "\n"))
        edited = "".join(lines)
    try:
        right = tomllib.loads(edited) == data
    except tomllib.TOMLDecodeError:
        right = False
    if not right:
        raise QueueError(
            f"{what}: it is laid out in a way that cannot be edited without harm",
            hint="make the change by hand",
        )
    return edited.encode()


def _spaced(text: str, *, like: str) -> str:
    """Put an empty line before each header of an array's table, where the file had them so."""
    if any(before.strip() and not before.startswith("#") for before in _before_headers(like)):
        return text
    rows = text.splitlines(keepends=True)
    spaced: list[str] = []
    for row in rows:
        if row.startswith("[[") and spaced and spaced[-1].strip() and spaced[-1][0] != "#":
            spaced.append("\r\n" if row.endswith("\r\n") else "\n")
        spaced.append(row)
    return "".join(spaced)


def _before_headers(text: str) -> list[str]:
    """Return the lines before the headers of arrays' tables."""
    rows = text.splitlines()
    return [before for before, row in itertools.pairwise(rows) if row.startswith("[[")]


def tables(data: Table, key: str) -> list[Table]:
    """Return a list of tables of the data."""
    listed = data.get(key, [])
    found = [one for one in listed if isinstance(one, dict)] if isinstance(listed, list) else []
    if not isinstance(listed, list) or len(found) != len(listed):
        raise QueueError(f"queue.toml: {key}: not a list of tables")
    return found


def names_of(data: Table, key: str) -> list[str]:
    """Return a list of names of the data."""
    found = data.get(key, [])
    if not isinstance(found, list):
        raise QueueError(f"{key}: not a list")
    return [str(one) for one in found]


def items_of(table: TOMLDocument | AbstractTable, key: str, data: Table) -> AoT | Array:
    """Return an array of tables, in whichever of TOML's two ways it is written."""
    import tomlkit  # noqa: PLC0415  see edited
    from tomlkit.items import AoT, Array  # noqa: PLC0415  see edited

    if key not in table:
        table.append(key, tomlkit.aot())
        data[key] = []
    found = table[key]
    assert isinstance(found, AoT | Array)  # noqa: S101  it is a list of tables in the data
    # `pins = []` can be filled in braces only: it stands where no header may.
    return found


def insert(items: AoT | Array, number: int, value: Table) -> None:
    """Put a table into an array of tables."""
    from tomlkit.items import AoT  # noqa: PLC0415  see edited

    items.insert(number, _table(value) if isinstance(items, AoT) else _inline(value))


def update(table: AbstractTable, wanted: Table, place: tuple[int | str, ...]) -> Rows:
    """Change a table's values; its sources are told from each other by their kinds."""
    from tomlkit.items import InlineTable  # noqa: PLC0415  see edited

    rows: Rows = []
    for key in [key for key in table if key not in wanted]:
        table.remove(key)
    behind = ""
    for key, value in wanted.items():
        if _is_tables(value) and isinstance(value, list) and key in table:
            rows += _update_list(items_of(table, key, {}), value, (*place, key))
        elif key not in table and behind and not isinstance(table, InlineTable):
            rows.append(((*place, behind), f"{key} = {_spelled(value)}"))
        elif key not in table or table[key] != value:
            table[key] = value
        behind = behind if key not in table else key
    return rows


def _update_list(items: AoT | Array, wanted: list[JsonValue], place: tuple[int | str, ...]) -> Rows:
    """Change the tables of an array: those whose kind stays are changed, not replaced."""
    entries = [one for one in wanted if isinstance(one, dict)]
    old = [str(one.get("kind")) for one in items]
    new = [str(one.get("kind")) for one in entries]
    pairs = [
        (block.a + number, block.b + number)
        for block in difflib.SequenceMatcher(None, old, new, autojunk=False).get_matching_blocks()
        for number in range(block.size)
    ]
    kept = {first for first, _ in pairs}
    for number in reversed([number for number in range(len(old)) if number not in kept]):
        del items[number]
    same = {second for _, second in pairs}
    rows: Rows = []
    for number, entry in enumerate(entries):
        if number in same:
            rows += update(items[number], entry, (*place, number))
        else:
            insert(items, number, entry)
    return rows


def _spelled(value: JsonValue) -> str:
    import tomlkit  # noqa: PLC0415  see edited

    return tomlkit.item(value).as_string()


def set_names(document: TOMLDocument, data: Table, key: str, wanted: list[str]) -> None:
    """Change a list of names: entries that stay keep their comments."""
    import tomlkit  # noqa: PLC0415  see edited
    from tomlkit.items import Array  # noqa: PLC0415  see edited

    there = names_of(data, key)
    if there == wanted and key in data:
        return
    data[key] = list(wanted)
    array = document.get(key)
    if not isinstance(array, Array):
        document[key] = wanted
        return
    for number in reversed(range(len(there))):
        if there[number] not in wanted:
            del array[number]
    for number, name in enumerate(wanted):
        if number >= len(array) or str(array[number]) != name:
            array.insert(number, name)
    if [str(one) for one in array] != wanted:
        fresh = tomlkit.array()
        fresh.extend(wanted)
        document[key] = fresh.multiline("\n" in array.as_string())


def _table(value: Mapping[str, JsonValue]) -> AbstractTable:
    """Return data as a table with a header."""
    import tomlkit  # noqa: PLC0415  see edited

    table = tomlkit.table()
    nested = {key for key, one in value.items() if _is_tables(one)}
    for key in (*(key for key in value if key not in nested), *nested):
        one = value[key]
        if key in nested and isinstance(one, list):
            array = tomlkit.aot()
            for entry in one:
                assert isinstance(entry, dict)  # noqa: S101  _is_tables has seen to it
                array.append(_table(entry))
            table.append(key, array)
        else:
            table.append(key, one)
    return table


def _inline(value: Mapping[str, JsonValue]) -> AbstractTable:
    """Return data as a table in braces."""
    import tomlkit  # noqa: PLC0415  see edited

    table = tomlkit.inline_table()
    table.update(value)
    return table


def _is_tables(value: JsonValue) -> bool:
    return bool(value) and isinstance(value, list) and all(isinstance(one, dict) for one in value)


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
