"""What all models share."""

from __future__ import annotations

import re
from datetime import datetime
from typing import Annotated, Final, TypeVar

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, StringConstraints

_TAG: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]{0,79}")


class Model(BaseModel):
    """A value that is checked when it is made and never changes after."""

    # Few of all models are needed by one command: each is built when it is first used.
    model_config = ConfigDict(strict=True, extra="forbid", frozen=True, defer_build=True)


T = TypeVar("T")
#: What JSON and TOML have as text: times, enums.
Loose = Annotated[T, Field(strict=False)]
#: They have lists only; models hold tuples, which cannot change.
Many = Annotated[tuple[T, ...], Field(strict=False)]
Some = Annotated[tuple[T, ...], Field(strict=False, min_length=1)]
#: A line of text with something on it.
Line = Annotated[
    str,
    StringConstraints(
        min_length=1, pattern=r"^[^\x00-\x1f\x7f]*[^\s\x00-\x1f\x7f][^\x00-\x1f\x7f]*$"
    ),
]
Time = Loose[datetime]
#: Prose with something in it.
Prose = Annotated[str, StringConstraints(min_length=1, pattern=r"\S")]
#: A name that is safe as a folder, a ref and an argument.
Name = Annotated[str, StringConstraints(pattern=r"^[a-z0-9][a-z0-9._-]*$", max_length=80)]


def _is_ref(tag: str) -> str:
    """Refuse what git refuses as the last part of a ref (git-check-ref-format)."""
    if not _TAG.fullmatch(tag) or ".." in tag or tag.endswith((".", ".lock")):
        raise ValueError("not a tag's name: letters, digits and . _ + - only, none of them first")
    return tag


#: A tag, safe as the last part of a ref.
Tag = Annotated[str, AfterValidator(_is_ref)]
#: A full git object id.
ObjectId = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{40}$")]
#: A SHA-256 in hexadecimal.
Sha256 = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")]


def _inside(path: str) -> str:
    """Refuse a path that is not plainly inside a tree."""
    if any(part in {"", ".", ".."} for part in path.split("/")):
        raise ValueError("not a relative path inside the tree, written with plain names")
    if not path.isprintable() or "\\" in path:
        raise ValueError("a path may hold neither control characters nor backslashes")
    return path


#: A path inside an upstream's tree: relative, with `/`, without `.` and `..` parts.
TreePath = Annotated[str, AfterValidator(_inside)]


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
