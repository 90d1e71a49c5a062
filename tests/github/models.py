"""GitHub's own models, as githubkit generates them: what fills answers up, and judges them."""

from __future__ import annotations

import datetime as dt
import importlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Final, Literal, cast, get_args, get_origin

from githubkit.utils import UNSET
from pydantic import BaseModel, JsonValue, TypeAdapter, ValidationError

Json = dict[str, JsonValue]

_MODELS: Final = "githubkit_schemas.v2022_11_28.models"
_PLAIN: Final[dict[object, JsonValue]] = {
    str: "", int: 0, float: 0.0, bool: False, dt.datetime: "2020-01-01T00:00:00Z",
}  # fmt: skip
#: A comment on a line that has changed since has no line any more, which GitHub forgot to say.
_NULLABLE: Final = frozenset({"line", "position"})


class UndescribedError(AssertionError):
    """A message differs from GitHub's description."""


@dataclass(frozen=True)
class Field:
    """A field of a model: whether it must be there, what it is at least, and its own models."""

    needed: bool
    least: JsonValue
    models: tuple[type[BaseModel], ...]


@cache
def model(name: str) -> type[BaseModel]:
    return cast("type[BaseModel]", getattr(importlib.import_module(_MODELS), name))


def body_model(method: str, template: str) -> type[BaseModel] | None:
    """Return the model of a route's body, which githubkit names after its path."""
    words = re.findall(r"[A-Za-z]+", template)
    name = "".join(word.capitalize() for word in [*words, method.lower(), "body"])
    models = importlib.import_module(_MODELS)
    return model(name) if name in models.__all__ else None


@cache
def fields(shape: type[BaseModel]) -> dict[str, Field]:
    """Return the fields of a model, under the names that go over the wire."""
    found = {}
    for name, info in shape.model_fields.items():
        kinds = _kinds(info.annotation)
        models = tuple(kind for kind in kinds if isinstance(kind, type)
                       and issubclass(kind, BaseModel))  # fmt: skip
        lists = any(get_origin(kind) is list for kind in _options(info.annotation))
        needed = info.is_required()
        least = _least(kinds, lists=lists) if needed else None
        found[info.alias or name] = Field(needed, least, models)
    return found


def _options(annotation: object) -> list[object]:
    """Return what a union, or a union in it, allows; `Annotated` and the unset value left out."""
    origin, inside = get_origin(annotation), get_args(annotation)
    if origin is Literal:
        return [annotation] if UNSET not in inside else []
    if hasattr(annotation, "__metadata__"):
        return _options(inside[0])
    if origin in {None, list, dict}:
        return [annotation]
    return [option for part in inside for option in _options(part)]


def _kinds(annotation: object) -> list[object]:
    """Return what a field, or each item of it, may be."""
    found: list[object] = []
    for option in _options(annotation):
        found += _kinds(get_args(option)[0]) if get_origin(option) is list else [option]
    return found


def _least(kinds: Sequence[object], *, lists: bool) -> JsonValue:
    """Return the emptiest value that a field may have."""
    if type(None) in kinds or lists:
        return [] if lists else None
    kind = kinds[0]
    if get_origin(kind) is Literal:
        return cast("JsonValue", get_args(kind)[0])
    if isinstance(kind, type) and issubclass(kind, BaseModel):
        return fill(kind, {})
    return _PLAIN.get(kind, {})


def fill(shape: type[BaseModel], known: Mapping[str, JsonValue]) -> Json:
    """Return an object with what is known of it, and whatever else its model insists on."""
    described = fields(shape)
    if unknown := known.keys() - described.keys():
        raise UndescribedError(f"{shape.__name__} has no {', '.join(sorted(unknown))}")
    least = {name: field.least for name, field in described.items() if field.needed}
    return least | {name: _filled(described[name], value) for name, value in known.items()}


def _filled(field: Field, value: JsonValue) -> JsonValue:
    if isinstance(value, list):
        return [_filled(field, item) for item in value]
    if not isinstance(value, dict) or not field.models:
        return value
    fitting = (shape for shape in field.models if value.keys() <= fields(shape).keys())
    return fill(next(fitting, field.models[0]), value)


@cache
def _adapter(shape: type[BaseModel]) -> TypeAdapter[BaseModel]:
    return TypeAdapter(shape)


def check(what: str, shape: type[BaseModel], value: JsonValue) -> None:
    """Hold JSON against a model: no wrong value, no key that GitHub does not know."""
    if isinstance(value, dict):
        value = {key: it for key, it in value.items() if it is not None or key not in _NULLABLE}
    try:
        parsed = _adapter(shape).validate_json(json.dumps(value), strict=True)
    except ValidationError as error:
        lines = (f"{'.'.join(map(str, row['loc']))}: {row['msg']}"
                 for row in error.errors(include_url=False, include_input=False)[:12])  # fmt: skip
        raise UndescribedError(f"{what} is no {shape.__name__}: {'; '.join(lines)}") from None
    if isinstance(value, dict) and (unknown := value.keys() - fields(type(parsed)).keys()):
        raise UndescribedError(f"{what}: {shape.__name__} has no {', '.join(sorted(unknown))}")


def described(name: str, known: Mapping[str, JsonValue]) -> Json:
    """Return an answer: what is known, filled up, and as GitHub describes it."""
    answer = fill(model(name), known)
    check("the answer", model(name), answer)
    return answer
