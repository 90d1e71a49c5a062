"""The base class of all models."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from datetime import datetime
from typing import Annotated, Final, TypeVar

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, StringConstraints

_TAG: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]{0,79}")


class Model(BaseModel):
    """A value that is checked when it is made and never changes after."""

    # A command uses few of the models: pydantic builds each model at its first use.
    model_config = ConfigDict(strict=True, extra="forbid", frozen=True, defer_build=True)


#: The words by which messages name the form of a text, by the pattern of the form.
FORMS: Final[dict[str, str]] = {}


def form(pattern: str, words: str, *, max_length: int | None = None) -> StringConstraints:
    """Return a constraint by a pattern; messages name the form of a text by `words`."""
    FORMS[pattern] = words
    return StringConstraints(pattern=pattern, max_length=max_length)


T = TypeVar("T")
#: Values that JSON and TOML have as text: times, enums.
Loose = Annotated[T, Field(strict=False)]
#: JSON and TOML have lists only; models hold tuples, which cannot change.
Many = Annotated[tuple[T, ...], Field(strict=False)]
Some = Annotated[tuple[T, ...], Field(strict=False, min_length=1)]
#: A line of text that is not blank.
Line = Annotated[
    str,
    StringConstraints(min_length=1),
    form(r"^[^\x00-\x1f\x7f]*[^\s\x00-\x1f\x7f][^\x00-\x1f\x7f]*$", "one line with text in it"),
]
Time = Loose[datetime]
#: Prose that is not blank.
Prose = Annotated[str, StringConstraints(min_length=1), form(r"\S", "text")]
#: A name that is safe as a folder, a ref and an argument.
Name = Annotated[
    str,
    form(r"^[a-z0-9][a-z0-9._-]*$", "a name of a-z, 0-9 and . _ - (not first)", max_length=80),
]


def _is_ref(tag: str) -> str:
    """Refuse a tag that git refuses as the last part of a ref (git-check-ref-format)."""
    if not _TAG.fullmatch(tag) or ".." in tag or tag.endswith((".", ".lock")):
        raise ValueError("not a tag's name: letters, digits and . _ + - only, none of them first")
    return tag


#: A tag, safe as the last part of a ref.
Tag = Annotated[str, AfterValidator(_is_ref)]
#: A full git object id.
ObjectId = Annotated[str, form(r"^[0-9a-f]{40}$", "a commit's 40 hexadecimal digits")]
#: A SHA-256 in hexadecimal.
Sha256 = Annotated[str, form(r"^[0-9a-f]{64}$", "a SHA-256 in 64 hexadecimal digits")]


def _inside(path: str) -> str:
    """Refuse a path that is not plainly inside a tree."""
    if any(part in {"", ".", ".."} for part in path.split("/")):
        raise ValueError("not a relative path inside the tree, written with plain names")
    if not path.isprintable() or "\\" in path:
        raise ValueError("a path may hold neither control characters nor backslashes")
    return path


#: A path inside an upstream's tree: relative, with `/`, without `.` and `..` parts.
TreePath = Annotated[str, AfterValidator(_inside)]


def refuse_twins(key: str, names: Sequence[str]) -> None:
    """Refuse a list with a name twice."""
    twice = sorted(name for name, times in Counter(names).items() if times > 1)
    if twice:
        raise ValueError(f"{key}: {twice[0]} is there twice")


def _compiles(pattern: str) -> str:
    """Refuse a text that is no regular expression."""
    try:
        re.compile(pattern)
    except re.error as error:
        raise ValueError(f"not a regular expression: {error}") from error
    return pattern


#: A regular expression of Python's `re`; may be empty.
Pattern = Annotated[str, AfterValidator(_compiles)]
Lines = Many[Line]
Names = Many[Name]
TreePaths = Many[TreePath]
