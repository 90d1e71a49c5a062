"""Every request and every answer, held against GitHub's own published description.

The description is the one that githubkit's models and client are generated from, in the version
that clients get when they ask for none. What is held against it is what went over the wire.
"""

from __future__ import annotations

import importlib
import inspect
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Final, Protocol, Union, cast, get_args

from pydantic import JsonValue, TypeAdapter, ValidationError

from tests.github.described import Row, find
from tests.github.server import Hook
from tests.github.wire import Answer, Request

VERSION: Final = "2022-11-28"
GRAPHQL: Final = "/graphql"
_PACKAGE: Final = "githubkit_schemas.v2022_11_28"
#: Statuses that any operation may have, with GitHub's plain error.
_ANYWHERE: Final = frozenset({401, 403, 404, 429, 500, 502, 503})
_NO_KEYS: Final[frozenset[str]] = frozenset()
#: Each error of GitHub's has its status too; only the plain one's description says so.
_IN_ERRORS: Final = frozenset({"status"})
_NOT_MODIFIED: Final = 304
_NO_CONTENT: Final = 204


class UndescribedError(AssertionError):
    """Something went over the wire that GitHub's description does not have."""


class _Method(Protocol):
    """An operation of the generated client."""

    def __call__(self, *path: str, **parameters: str) -> object: ...


@dataclass
class _Config:
    """The one setting that the generated client looks at: leave bodies alone."""

    rest_api_validate_body: bool = False


@dataclass
class _Recorder:
    """Stands where the generated client's transport would be, and sends nothing."""

    config: _Config = field(default_factory=_Config)
    seen: tuple[str, str] = ("", "")
    #: As the client wrote it: a model, a list of one, a union; None where there is no content.
    answer: object = None
    errors: Mapping[str, object] = field(default_factory=dict)

    def request(
        self,
        method: str,
        url: str,
        *,
        response_model: object = None,
        error_models: Mapping[str, object] | None = None,
        **_sent: object,
    ) -> None:
        """Keep what the client says of an operation."""
        self.seen = (method, url)
        self.answer = response_model
        self.errors = error_models or {}


@dataclass(frozen=True)
class Description:
    """What GitHub's description has of one operation.

    Attributes:
        method: The HTTP method.
        path: The path's template.
        query: The parameters that a query may have.
        source: The client's own text, which names the models of the body.
        answer: The model of a success.
        errors: The models of errors by status.
    """

    method: str
    path: str
    query: frozenset[str]
    source: str
    answer: object
    errors: Mapping[str, object]


@cache
def describe(operation: str) -> Description:
    """Ask the generated client about an operation, under GitHub's name for it."""
    room, name = operation.replace("-", "_").split("/")
    module = importlib.import_module(f"{_PACKAGE}.rest.{room}")
    title = "".join(part.capitalize() for part in room.split("_"))
    recorder = _Recorder()
    client = cast("Callable[[_Recorder], object]", getattr(module, f"{title}Client"))(recorder)
    method = cast("_Method", getattr(client, name))
    parameters = inspect.signature(method).parameters.values()
    path = [one.name for one in parameters if one.kind is one.POSITIONAL_OR_KEYWORD]
    named = [one for one in parameters if one.kind is one.KEYWORD_ONLY]
    needed = {one.name: "x" for one in named if one.default is one.empty}
    method(*(f"{{{one}}}" for one in path), **needed)
    return Description(
        *recorder.seen,
        query=frozenset(one.name.rstrip("_") for one in named) - {"headers", "stream", "data"},
        source=inspect.getsource(cast("Callable[..., object]", method)),
        answer=recorder.answer,
        errors=recorder.errors,
    )


@cache
def _body_of(row: Row) -> object:
    """Return the type that a row's body has."""
    known: dict[str, object] = {"None": type(None), "list[str]": list[str]}
    return _union([known.get(name) or _model(name) for name in row.body])


@cache
def _answer_of(row: Row) -> object:
    """Return the type that a row's answers have."""
    answer = _model(row.answer) if row.answer else describe(row.operation).answer
    if not row.also:
        return answer
    (item,) = get_args(answer)
    also = (_model(name) for name in row.also)
    shape: object = list.__class_getitem__(_union([item, *also]))
    return shape


def _model(name: str) -> object:
    model: object = getattr(importlib.import_module(f"{_PACKAGE}.models"), name)
    return model


def _union(shapes: Sequence[object]) -> object:
    """Return the type of what is one of these."""
    if len(shapes) == 1:
        return shapes[0]
    union: object = Union.__getitem__(tuple(shapes))
    return union


@cache
def _adapter(shape: object) -> TypeAdapter[object]:
    """Return what holds values against a type; making one takes longer than using it."""
    return TypeAdapter(cast("type[object]", shape))


def unknown(sent: JsonValue, kept: object, place: str = "") -> Iterator[str]:
    """Give the places of keys that were sent and that the model has not kept."""
    if isinstance(sent, dict) and isinstance(kept, Mapping):
        for key, value in sent.items():
            if key in kept:
                yield from unknown(value, kept[key], f"{place}.{key}")
            else:
                yield f"{place}.{key}"
    elif isinstance(sent, list) and isinstance(kept, Sequence):
        for number, (value, other) in enumerate(zip(sent, kept, strict=True)):
            yield from unknown(value, other, f"{place}[{number}]")


def _without_nulls(sent: JsonValue, keys: frozenset[str]) -> JsonValue:
    """Leave out some keys of an object, or of each object in a list, where they are null."""
    if isinstance(sent, list):
        return [_without_nulls(one, keys) for one in sent]
    if not isinstance(sent, dict):
        return sent
    return {key: one for key, one in sent.items() if one is not None or key not in keys}


def _check(
    what: str,
    shape: object,
    content: bytes,
    *,
    nullable: frozenset[str] = _NO_KEYS,
    allowed: frozenset[str] = _NO_KEYS,
) -> None:
    """Hold JSON against a type: no wrong value, no key that the type does not have."""
    adapter = _adapter(shape)
    sent = _without_nulls(json.loads(content or b"null"), nullable)
    try:
        value = adapter.validate_json(json.dumps(sent), strict=True)
    except ValidationError as error:
        lines = [
            f"  {'.'.join(map(str, one['loc']))}: {one['msg']}"
            for one in error.errors(include_url=False, include_input=False)[:12]
        ]
        text = f"{what} is not what GitHub describes\n" + "\n".join(lines)
        raise UndescribedError(text) from error
    kept: object = adapter.dump_python(value, by_alias=True, exclude_unset=True)
    if extra := sorted(set(unknown(sent, kept)) - {f".{key}" for key in allowed}):
        raise UndescribedError(f"{what} has keys that GitHub does not know: {', '.join(extra)}")


def check_request(method: str, path: str, query: Mapping[str, str], body: bytes) -> None:
    """Hold a request against the description.

    Raises:
        UndescribedError: There is no such operation, query parameter, or body.
    """
    what = f"{method} {path}"
    row = _row(method, path)
    described = describe(row.operation)
    if wrong := sorted(set(query) - described.query):
        raise UndescribedError(f"{what}: GitHub knows no query parameter {', '.join(wrong)}")
    if row.body:
        _check(f"the body of {what}", _body_of(row), body)
    elif body:
        raise UndescribedError(f"{what} takes no body, and one was sent: {body[:80]!r}")


def check_answer(method: str, path: str, status: int, media: str, body: bytes) -> None:
    """Hold an answer against the description.

    Args:
        method: The request's method.
        path: The request's path.
        status: The answer's status.
        media: The answer's media type.
        body: The answer's content.

    Raises:
        UndescribedError: The operation has no such status, or the body is another.
    """
    row = _row(method, path)
    what = f"the answer {status} of {method} {path}"
    described = describe(row.operation)
    if status in row.success:
        if row.media and "json" not in media:
            return
        if status == _NO_CONTENT:
            _check_empty(what, body)
        else:
            _check(what, _answer_of(row), body, nullable=frozenset(row.nullable))
    elif status == _NOT_MODIFIED and method == "GET":
        _check_empty(what, body)
    elif str(status) in described.errors:
        _check(what, described.errors[str(status)], body, allowed=_IN_ERRORS)
    elif status in _ANYWHERE or status in row.plain:
        _check(what, _model("BasicError"), body)
    else:
        raise UndescribedError(f"{what}: GitHub describes no such status of {row.operation}")


def _check_empty(what: str, body: bytes) -> None:
    if body:
        raise UndescribedError(f"{what} has a body: {body[:80]!r}")


def _row(method: str, path: str) -> Row:
    row = find(method, path)
    if row is None:
        raise UndescribedError(
            f"{method} {path}: not in tests/github/described.py, so nothing says what it may hold"
        )
    return row


class Validation(Hook):
    """The hook that holds everything against the description; must be the first hook.

    GraphQL is held against its own schema: see `tests/github/graphql.py`.
    """

    def before(self, request: Request) -> Answer | None:
        """Hold the request against it; a violation ends in `server.broken`."""
        if request.path != GRAPHQL:
            check_request(request.method, request.path, request.query, request.body)
        return None

    def after(self, request: Request, answer: Answer) -> Answer:
        """Hold the answer against it, as the handler gave it: errors too."""
        if request.path != GRAPHQL:
            media = answer.headers.get("Content-Type", "application/json")
            check_answer(request.method, request.path, answer.status, media, answer.body())
        return answer
