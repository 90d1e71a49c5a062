"""Reading many objects of a store at once, and knowing an object's id before it is written."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

from contribbot.errors import MachineError
from contribbot.store.repository import Store


@dataclass(frozen=True)
class Object:
    """An object of a store.

    Attributes:
        id: Its id.
        kind: `blob`, `tree`, `commit` or `tag`.
        content: Its bytes, as git keeps them.
    """

    id: str
    kind: str
    content: bytes


def read_objects(store: Store, names: Sequence[str]) -> list[Object | None]:
    """Read objects with one process, however many they are."""
    if not names:
        return []
    asked = [name.encode("utf-8", "surrogateescape") for name in names]
    # NUL between the names: a path may hold a newline.
    said = store.git("cat-file", "--batch", "-z", stdin=b"\0".join(asked) + b"\0").stdout
    found: list[Object | None] = []
    at = 0
    for name in asked:
        missing = name + b" missing\n"
        if said.startswith(missing, at):
            found.append(None)
            at += len(missing)
            continue
        end = said.find(b"\n", at)
        fields = said[at:end].split(b" ")
        if len(fields) != 3 or not fields[2].isdigit():  # noqa: PLR2004  id, kind, size
            raise MachineError(
                f"{store.path.name}: git cannot read {name.decode('utf-8', 'replace')!a}",
                hint=f"remove {store.path}; it is made anew",
            )
        start, size = end + 1, int(fields[2])
        found.append(Object(fields[0].decode(), fields[1].decode(), said[start : start + size]))
        at = start + size + 1
    return found


def object_id(kind: str, content: bytes) -> str:
    """Return the id that git gives to an object."""
    head = f"{kind} {len(content)}\0".encode()
    return hashlib.sha1(head + content, usedforsecurity=False).hexdigest()
