"""What the parts of the client share."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Mapping
from typing import Final, TypeVar

from pydantic import JsonValue, TypeAdapter

from contribbot.errors import GitHubError, NotFoundError, RefusedError, TokenError
from contribbot.github.answer import Answer, clean_line
from contribbot.github.caller import Caller
from contribbot.github.retry import Kind
from contribbot.model.github import Fetched, Said

T = TypeVar("T")
P = TypeVar("P")

#: Sending it twice is the same as sending it once.
REPEATED: Final = Kind(repeat=True)
#: The same, and a new fork may not be ready for it.
STORED: Final = Kind(repeat=True, waits_for_fork=True)
#: It is sent once.
ONCE: Final = Kind(repeat=False)

_BODY: Final[TypeAdapter[JsonValue]] = TypeAdapter(JsonValue)


class Blob(Said):
    """What GitHub says of a blob, or of a file.

    Attributes:
        encoding: `base64`; `none` where it is too large to be shown.
        content: Its bytes in that encoding.
    """

    encoding: str
    content: str

    def decoded(self, what: str) -> bytes:
        """Return its bytes."""
        try:
            if self.encoding == "base64":
                return base64.b64decode("".join(self.content.split()), validate=True)
            if self.encoding == "utf-8":
                return self.content.encode()
        except (binascii.Error, ValueError):
            pass
        raise GitHubError(f"{what}: content that cannot be read ({clean_line(self.encoding, 40)})")


class Part:
    """A part of the client."""

    def __init__(self, caller: Caller) -> None:
        self._caller = caller

    def _get(self, shape: type[T], path: str) -> T:
        """Read one thing."""
        return self._caller.read(self._caller.get(path), TypeAdapter(shape))

    def _list(
        self,
        shape: TypeAdapter[tuple[T, ...]],
        path: str,
        query: Mapping[str, str] | None = None,
    ) -> tuple[T, ...]:
        """Read a whole list; pages that were kept and have not changed are not sent again."""
        return self._fetch_list(shape, path, query).value

    def _fetch_list(
        self,
        shape: TypeAdapter[tuple[T, ...]],
        path: str,
        query: Mapping[str, str] | None = None,
    ) -> Fetched[tuple[T, ...]]:
        """Read a whole list, and tell whether it changed."""
        return self._fetch_pages(shape, lambda here: here, path, query)

    def _fetch_pages(
        self,
        shape: TypeAdapter[P],
        rows: Callable[[P], tuple[T, ...]],
        path: str,
        query: Mapping[str, str] | None = None,
    ) -> Fetched[tuple[T, ...]]:
        """Read a whole list of which each page is an object with its part of it."""
        things: list[T] = []
        changed = False
        for page in self._caller.pages(path, query or {}, conditional=True):
            things += rows(self._caller.read(page, shape))
            changed = changed or not page.unchanged
        return Fetched(tuple(things), changed)

    def _graphql(self, query: str, variables: dict[str, JsonValue]) -> Answer | None:
        """Ask GraphQL; None where it is refused, or has nothing but errors to say."""
        body: JsonValue = {"query": query, "variables": variables}
        try:
            answer = self._caller.send("POST", "/graphql", body, REPEATED)
        except (NotFoundError, RefusedError, TokenError):
            return None
        said = self._caller.read(answer, _BODY)
        data = said.get("data") if isinstance(said, dict) else None
        there = isinstance(data, dict) and any(one is not None for one in data.values())
        return answer if there else None
