"""The base class of all models, and types of their fields."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from datetime import datetime
from typing import Annotated, Final, TypeVar

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, StringConstraints

_TAG: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]{0,79}")


class Model(BaseModel):
    """A pydantic model that is checked strictly when it is made, and cannot change."""

    # A command uses few of the models: pydantic builds each model at its first use.
    model_config = ConfigDict(strict=True, extra="forbid", frozen=True, defer_build=True)


#: The words by which error messages describe the texts that match a regular expression.
FORMS: Final[dict[str, str]] = {}


def form(pattern: str, words: str, *, max_length: int | None = None) -> StringConstraints:
    """Return a constraint of a text to a pattern, which error messages describe by `words`."""
    FORMS[pattern] = words
    return StringConstraints(pattern=pattern, max_length=max_length)


T = TypeVar("T")
#: A value that JSON and TOML write as text, such as a time or an enum.
Loose = Annotated[T, Field(strict=False)]
#: A tuple that JSON and TOML write as a list.
Many = Annotated[tuple[T, ...], Field(strict=False)]
Some = Annotated[tuple[T, ...], Field(strict=False, min_length=1)]
#: A line of text that is not blank.
Line = Annotated[
    str,
    StringConstraints(min_length=1),
    form(r"^[^\x00-\x1f\x7f]*[^\s\x00-\x1f\x7f][^\x00-\x1f\x7f]*$", "one line with text in it"),
]
Time = Loose[datetime]
#: A text of any number of lines that is not blank.
Prose = Annotated[str, StringConstraints(min_length=1), form(r"\S", "text")]
#: A name that is safe as a folder, as a part of a git ref, and as an argument.
Name = Annotated[
    str,
    form(r"^[a-z0-9][a-z0-9._-]*$", "a name of a-z, 0-9 and . _ - (not first)", max_length=80),
]


def _is_ref(tag: str) -> str:
    """Raise ValueError for a tag that cannot be the last part of a git ref."""
    if not _TAG.fullmatch(tag) or ".." in tag or tag.endswith((".", ".lock")):
        raise ValueError("not a tag's name: letters, digits and . _ + - only, none of them first")
    return tag


#: A tag that is safe as the last part of a git ref (git-check-ref-format).
Tag = Annotated[str, AfterValidator(_is_ref)]
#: A full git object id.
ObjectId = Annotated[str, form(r"^[0-9a-f]{40}$", "a commit's 40 hexadecimal digits")]
#: A SHA-256 in hexadecimal.
Sha256 = Annotated[str, form(r"^[0-9a-f]{64}$", "a SHA-256 in 64 hexadecimal digits")]


def _inside(path: str) -> str:
    """Raise ValueError for a path that may lead out of a tree, or has odd characters."""
    if any(part in {"", ".", ".."} for part in path.split("/")):
        raise ValueError("not a relative path inside the tree, written with plain names")
    if not path.isprintable() or "\\" in path:
        raise ValueError("a path may hold neither control characters nor backslashes")
    return path


#: A path inside an upstream's tree: relative, with `/`, without `.` and `..` parts.
TreePath = Annotated[str, AfterValidator(_inside)]


def refuse_twins(key: str, names: Sequence[str]) -> None:
    """Raise ValueError if a list contains a name twice."""
    twice = sorted(name for name, times in Counter(names).items() if times > 1)
    if twice:
        raise ValueError(f"{key}: {twice[0]} is there twice")


def _compiles(pattern: str) -> str:
    """Raise ValueError for a text that is no regular expression."""
    try:
        re.compile(pattern)
    except re.error as error:
        raise ValueError(f"not a regular expression: {error}") from error
    return pattern


#: A regular expression for Python's `re`, which may be empty.
Pattern = Annotated[str, AfterValidator(_compiles)]
Lines = Many[Line]
Names = Many[Name]
TreePaths = Many[TreePath]
