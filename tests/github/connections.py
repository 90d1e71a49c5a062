"""Arguments, lists that come in pages, and refusals, as GraphQL at GitHub has them."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from typing import Final

from pydantic import JsonValue

from tests.github.wire import UnmodelledError

_PAGE_LIMIT: Final = 100

Node = Mapping[str, object]


class RefusalError(Exception):
    """GitHub says no in a field of a GraphQL answer.

    Args:
        kind: GitHub's word for it, such as NOT_FOUND.
        message: GitHub's words.
    """

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind


class Arguments:
    """The arguments of a field.

    Args:
        field: The field, for messages.
        given: What the query gives it.
    """

    def __init__(self, field: str, given: Mapping[str, JsonValue]) -> None:
        self.field = field
        self.given = given

    def only(self, *names: str) -> None:
        """See that there are no others.

        Raises:
            UnmodelledError: There is another.
        """
        if unknown := sorted(set(self.given) - set(names)):
            raise UnmodelledError(f"{self.field}: arguments {', '.join(unknown)} are not modelled")

    def text(self, name: str) -> str | None:
        """Return an argument that is text."""
        value = self.given.get(name)
        assert isinstance(value, str | None)
        return value

    def number(self, name: str) -> int | None:
        """Return an argument that is a number."""
        value = self.given.get(name)
        assert isinstance(value, int | None)
        return value

    def within(self, name: str) -> Arguments:
        """Return an argument that is an input object."""
        value = self.given[name]
        assert isinstance(value, dict)
        return Arguments(f"{self.field}({name})", value)


def connection(arguments: Arguments, nodes: Sequence[Node]) -> Node:
    """Give the part of a list that was asked for; GitHub insists on a number of nodes."""
    arguments.only("first", "after")
    field = arguments.field.rsplit(".", 1)[-1]
    first = arguments.number("first")
    if first is None:
        words = (
            "You must provide a `first` or `last` value to properly paginate the "
            f"`{field}` connection."
        )
        raise RefusalError("MISSING_PAGINATION_BOUNDARIES", words)
    if not 0 < first <= _PAGE_LIMIT:
        words = (
            f"Requesting {first} records on the `{field}` connection exceeds the `first` "
            f"limit of {_PAGE_LIMIT} records."
        )
        raise RefusalError("EXCESSIVE_PAGINATION", words)
    after = arguments.text("after")
    start = int(base64.b64decode(after)) if after else 0
    end = min(start + first, len(nodes))
    cursors = [base64.b64encode(str(at + 1).encode()).decode() for at in range(start, end)]
    part = nodes[start:end]
    return {
        "nodes": part,
        "edges": [
            {"node": node, "cursor": cursor} for node, cursor in zip(part, cursors, strict=True)
        ],
        "totalCount": len(nodes),
        "pageInfo": {
            "hasNextPage": end < len(nodes),
            "hasPreviousPage": start > 0,
            "startCursor": cursors[0] if cursors else None,
            "endCursor": cursors[-1] if cursors else None,
        },
    }
