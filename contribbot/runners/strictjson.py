"""JSON from somebody who is not trusted: read as everybody reads it, written so that it is safe."""

from __future__ import annotations

import json
import math
import re
from typing import Final, NoReturn

from pydantic import JsonValue

#: What is looked at again: most of it is printable all the same.
_UNUSUAL: Final = re.compile(r"[^\n\x20-\x7e]")


def parse(content: bytes) -> JsonValue:
    """Read JSON: no key twice, no number that is none or that only some can hold."""

    def unique(pairs: list[tuple[str, JsonValue]]) -> dict[str, JsonValue]:
        found = dict(pairs)
        if len(found) != len(pairs):
            raise ValueError("a key is there twice")
        return found

    def never(text: str) -> NoReturn:
        raise ValueError(f"{text} is no number of JSON")

    def finite(text: str) -> float:
        # 1e999 is JSON, and becomes infinity, which is not and would be written.
        number = float(text)
        if not math.isfinite(number):
            raise ValueError(f"{text[:20]} is too large for a number")
        return number

    document: JsonValue = json.loads(
        content.decode("utf-8"), object_pairs_hook=unique, parse_constant=never, parse_float=finite
    )
    return document


def written(document: JsonValue, most: int) -> bytes:
    """Write JSON for a file that people look at.

    What a terminal would obey, or what would hide some of the text, stands there as an escape.
    """
    parts, size = [], 0
    for part in json.JSONEncoder(indent=2, ensure_ascii=False).iterencode(document):
        size += len(part)
        if size > most:
            raise ValueError(f"written out it has more than {most} characters")
        parts.append(part)
    text = "".join(parts)
    text.encode()
    return _UNUSUAL.sub(_escaped, text).encode() + b"\n"


def _escaped(found: re.Match[str]) -> str:
    char = found[0]
    return char if char.isprintable() else json.dumps(char)[1:-1]
