"""Reading the body of a request, which GitHub's description has let through already."""

from __future__ import annotations

from tests.github.wire import Json


def text(body: Json, key: str) -> str:
    """Return a string that must be there."""
    value = body[key]
    assert isinstance(value, str)
    return value


def optional_text(body: Json, key: str) -> str | None:
    """Return a string, or None where it is null or not there."""
    return None if body.get(key) is None else text(body, key)


def flag(body: Json, key: str, *, default: bool) -> bool:
    """Return a boolean."""
    return bool(body.get(key, default))


def number(body: Json, key: str) -> int:
    """Return a whole number that must be there."""
    value = body[key]
    assert isinstance(value, int)
    return value


def texts(body: Json, key: str) -> list[str]:
    """Return a list of strings; empty where it is not there."""
    value = body.get(key, [])
    assert isinstance(value, list)
    return [str(one) for one in value]


def table(body: Json, key: str) -> Json:
    """Return an object; an empty one where it is not there."""
    value = body.get(key) or {}
    assert isinstance(value, dict)
    return value


def tables(body: Json, key: str) -> list[Json]:
    """Return a list of objects that must be there."""
    value = body[key]
    assert isinstance(value, list)
    return [one for one in value if isinstance(one, dict)]
