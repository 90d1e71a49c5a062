"""Reading the body of a request: the right type, or GitHub's 422."""

from __future__ import annotations

from collections.abc import Sequence

from pydantic import JsonValue

from tests.github.wire import GitHubFault, Json


def _wrong(key: str, value: JsonValue, wanted: str) -> GitHubFault:
    said = "nil" if value is None else repr(value)
    return GitHubFault(422, f"Invalid request.\n\nFor '{key}', {said} is not {wanted}.")


def text(body: Json, key: str) -> str:
    """Return a string that must be there."""
    if key not in body:
        raise GitHubFault(422, f'Invalid request.\n\n"{key}" wasn\'t supplied.')
    value = body[key]
    if not isinstance(value, str):
        raise _wrong(key, value, "a string")
    return value


def optional_text(body: Json, key: str) -> str | None:
    """Return a string, or None where it is null or not there."""
    return None if body.get(key) is None else text(body, key)


def flag(body: Json, key: str, *, default: bool) -> bool:
    """Return a boolean."""
    value = body.get(key, default)
    if not isinstance(value, bool):
        raise _wrong(key, value, "a boolean")
    return value


def number(body: Json, key: str) -> int:
    """Return a whole number that must be there."""
    value = body.get(key)
    if not isinstance(value, int) or isinstance(value, bool):
        raise _wrong(key, value, "an integer")
    return value


def texts(body: Json, key: str) -> list[str]:
    """Return a list of strings; empty where it is not there."""
    value = body.get(key, [])
    if not isinstance(value, list) or not all(isinstance(one, str) for one in value):
        raise _wrong(key, value, "an array")
    return [one for one in value if isinstance(one, str)]


def table(body: Json, key: str) -> Json | None:
    """Return an object, or None where it is not there."""
    value = body.get(key)
    if value is not None and not isinstance(value, dict):
        raise _wrong(key, value, "an object")
    return value


def tables(body: Json, key: str) -> list[Json]:
    """Return a list of objects that must be there."""
    value = body.get(key)
    if not isinstance(value, list):
        raise _wrong(key, value, "an array")
    found: list[Json] = []
    for one in value:
        if not isinstance(one, dict):
            raise _wrong(key, one, "an object")
        found.append(one)
    return found


def only(body: Json, keys: Sequence[str], where: str) -> None:
    """Refuse keys that a part of the body does not have."""
    if unknown := sorted(set(body) - set(keys)):
        raise GitHubFault(422, f"Invalid request.\n\n{unknown} are not permitted in '{where}'.")
