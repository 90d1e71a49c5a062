"""Reading TOML into models, with errors that name the file, the line and the key."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Final, TypeVar

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from contribbot.errors import QueueError
from contribbot.model.pin import SOURCE_KINDS

M = TypeVar("M", bound=BaseModel)

_HEADER: Final = re.compile(r"^\s*\[(\[)?\s*([^\[\]]+?)\s*\]\]?\s*(?:#.*)?$")
_KEY: Final = re.compile(r"^\s*([A-Za-z0-9_\"'.-]+)\s*=")
#: Pydantic's prefix for what a validator of ours raised.
_OUR_PREFIX: Final = "Value error, "


def read_model(path: Path, model: type[M]) -> M:
    """Read a TOML file into a model."""
    try:
        text = path.read_bytes().decode("utf-8")
    except FileNotFoundError as error:
        raise QueueError(f"{path}: no such file", hint="see `contribbot list`") from error
    except UnicodeDecodeError as error:
        line = path.read_bytes()[: error.start].count(b"\n") + 1
        raise QueueError(f"{path}:{line}: not UTF-8", hint="save the file as UTF-8") from error
    if text.startswith("\N{BYTE ORDER MARK}"):
        raise QueueError(
            f"{path}:1: it begins with a byte order mark", hint="save the file as UTF-8 without one"
        )
    try:
        data = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise QueueError(*_syntax(path, text, str(error))) from error
    except (RecursionError, ValueError) as error:
        raise QueueError(f"{path}: not TOML that can be read: {error}") from error
    try:
        return model.model_validate(data)
    except ValidationError as error:
        first, *rest = _own(error.errors())
        where = _spell([part for part in first["loc"] if part not in SOURCE_KINDS])
        line = find_line(text, first["loc"])
        message = first["msg"].removeprefix(_OUR_PREFIX)
        if first["type"] == "extra_forbidden":
            message = "there is no such key"
        more = f" (and {len(rest)} more)" if rest else ""
        raise QueueError(
            f"{path}:{line}: {where}{': ' if where else ''}{message}{more}",
            hint="correct the file; docs/queue.md lists every key",
        ) from error


def _own(errors: list[ErrorDetails]) -> list[ErrorDetails]:
    """Leave out what only follows from another error; what is misspelled is also missing."""
    places = [one["loc"] for one in errors]
    own = [
        one
        for one in errors
        # An item that is refused is also one item too few.
        if one["type"] != "too_short"
        or not any(place[: len(one["loc"])] == one["loc"] != place for place in places)
    ]
    return sorted(own, key=lambda one: one["type"] == "missing")


def _syntax(path: Path, text: str, said: str) -> tuple[str]:
    """Word a syntax error of the TOML parser with line and key."""
    found = re.search(r"\(at line (\d+), column (\d+)\)", said)
    line = int(found.group(1)) if found else text.count("\n") + 1
    what = said[: found.start()].strip() if found else said.removesuffix("(at end of document)")
    rows = text.splitlines()
    key = _KEY.match(rows[line - 1]) if 0 < line <= len(rows) else None
    named = f" in the value of {key.group(1)}" if key else ""
    return (f"{path}:{line}: not TOML: {what.strip()}{named}",)


def _spell(location: list[int | str]) -> str:
    """Write a location as `checks[0].expect`."""
    spelled = ""
    for part in location:
        if isinstance(part, int):
            spelled += f"[{part}]"
        else:
            spelled += f".{part}" if spelled else part
    return spelled


def find_line(text: str, location: tuple[int | str, ...]) -> int:
    """Return the line where the key at a location stands, or its nearest table.

    The standard library's parser keeps no positions. Headers and keys at the
    start of a line are enough for the files of a queue; inline tables are found
    by the key that holds them.
    """
    best, best_line = -1, 1
    table: list[int | str] = []
    counts: dict[str, int] = {}
    for number, row in enumerate(text.splitlines(), start=1):
        header = _HEADER.match(row)
        if header:
            name = header.group(2)
            table = [part.strip("\"' ") for part in name.split(".")]
            if header.group(1):
                index = counts.get(name, -1) + 1
                counts = {k: v for k, v in counts.items() if not k.startswith(f"{name}.")}
                counts[name] = index
            table = _with_indexes(table, counts)
            here = table
        else:
            key = _KEY.match(row)
            if not key:
                continue
            here = [*table, *(part.strip("\"'") for part in key.group(1).split("."))]
        shared = _shared(here, location)
        if shared == len(here) and shared > best:
            best, best_line = shared, number
    return best_line


def _with_indexes(table: list[int | str], counts: dict[str, int]) -> list[int | str]:
    """Put the current index behind each part of a table's name that is an array."""
    full: list[int | str] = []
    for depth, part in enumerate(table, start=1):
        full.append(part)
        name = ".".join(str(step) for step in table[:depth])
        if name in counts:
            full.append(counts[name])
    return full


def _shared(here: list[int | str], location: tuple[int | str, ...]) -> int:
    """Count how many parts of a place lie on the way to a location, from its start."""
    # Pydantic puts the tag of a union into the location; it is no key of the file.
    wanted = [part for part in location if part not in SOURCE_KINDS]
    count = 0
    for ours, theirs in zip(here, wanted, strict=False):
        if ours != theirs:
            break
        count += 1
    return count
