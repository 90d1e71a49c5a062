"""What the gate before a pull request says: one row a rule, and who else is at the same work."""

from __future__ import annotations

import enum
from collections.abc import Iterable
from datetime import datetime
from typing import Annotated, Literal

from pydantic import Field, JsonValue, SerializerFunctionWrapHandler, model_serializer

from contribbot.model.base import Line, Model, Name, Sha256
from contribbot.model.patch import Reference


class RowState(enum.StrEnum):
    """What a rule says."""

    PASSED = "passed"
    FAILED = "failed"
    #: No program can say; whoever attests looks at it.
    PERSON = "for a person"
    #: GitHub would have to be asked, and gave no usable answer.
    UNKNOWN = "not known"
    #: GitHub would have to be asked, and nobody wanted that (`--offline`).
    NOT_LOOKED_AT = "not looked at"


class Searched(Model):
    """A look for duplicates that found none, as far as a text tells of it.

    Attributes:
        time: When.
        days: How far back merged pull requests counted.
        seen: Pull requests that were listed or found by a search.
        looked_into: Those of them whose files were compared.
        limits: What was not looked at, a line each.
    """

    time: Annotated[datetime, Field(strict=False)]
    days: int
    seen: int
    looked_into: int
    limits: Annotated[tuple[Line, ...], Field(strict=False)] = ()


class Row(Model):
    """One rule.

    Attributes:
        rule: Its name.
        state: What it says.
        seen: What was seen, in a line.
        next: The next step; empty when there is none.
        github: Whether it is from GitHub, so that it ages.
        mended_by_opening: Whether `open-pr` does something about it by itself, so that it
            keeps nobody from running that.
        searched: Of the row about duplicates, the look, where that found none.
    """

    rule: Name
    state: Annotated[RowState, Field(strict=False)]
    seen: Line
    next: Line | Literal[""] = ""
    github: bool = False
    mended_by_opening: bool = False
    searched: Searched | None = None

    @model_serializer(mode="wrap")
    def _without_what_is_not_there(
        self, dump: SerializerFunctionWrapHandler
    ) -> dict[str, JsonValue]:
        """Leave a look out where there is none: attestations are sealed with their rows."""
        fields: dict[str, JsonValue] = dump(self)
        if self.searched is None:
            fields.pop("searched", None)
        return fields

    @property
    def blocks(self) -> bool:
        """Whether it keeps a person from attesting: it failed, or nobody knows."""
        good = self.state in {RowState.PASSED, RowState.PERSON}
        return not good and not self.mended_by_opening


class Candidate(Model):
    """A pull request that may be the same work.

    Attributes:
        reference: The pull request.
        title: Its title, as GitHub has it: hostile text.
        author: Who opened it.
        state: `open`, `draft`, `merged`; `closed`: only where the patch itself names it.
        url: Its page.
        in_common: What it has in common with the patch, the weightiest first.
        weight: How much that is; the higher, the more alike.
        answer: Why the patch is different, as `[contribution].different` says; or empty.
    """

    reference: Reference
    title: str
    author: str
    state: Literal["open", "draft", "merged", "closed"]
    url: str
    in_common: Annotated[tuple[Line, ...], Field(strict=False, min_length=1)]
    weight: int
    answer: str = ""


class Look(Model):
    """One look for duplicates.

    Attributes:
        key: Digest of all that it depends on.
        time: When.
        days: How far back merged pull requests count.
        seen: Pull requests that were listed or found by a search.
        looked_into: Those of them whose files were compared.
        candidates: Those that have something in common, the most alike first.
        limits: What was not looked at, a line each.
    """

    key: Sha256
    time: Annotated[datetime, Field(strict=False)]
    days: int
    seen: int
    looked_into: int
    candidates: Annotated[tuple[Candidate, ...], Field(strict=False)]
    limits: Annotated[tuple[Line, ...], Field(strict=False)] = ()

    @property
    def searched(self) -> Searched | None:
        """What may be told of it where it found nothing; else none."""
        if self.candidates:
            return None
        return Searched(
            time=self.time,
            days=self.days,
            seen=self.seen,
            looked_into=self.looked_into,
            limits=self.limits,
        )


def searched_in(rows: Iterable[Row]) -> Searched | None:
    """Return the look for duplicates that the rows of a gate tell of; None: it found some."""
    return next((row.searched for row in rows if row.searched is not None), None)


class Gate(Model):
    """All rows for one patch.

    Attributes:
        patch: The patch.
        upstream: The upstream.
        repository: Its repository.
        rows: One a rule, in a fixed order.
        candidates: Who else is at it, the most alike first.
        limits: What the look for duplicates left out.
        looked: When GitHub was asked; of several looks the oldest. None: it was not.
    """

    patch: Name
    upstream: Name
    repository: Line
    rows: Annotated[tuple[Row, ...], Field(strict=False)]
    candidates: Annotated[tuple[Candidate, ...], Field(strict=False)] = ()
    limits: Annotated[tuple[Line, ...], Field(strict=False)] = ()
    looked: Annotated[datetime | None, Field(strict=False)] = None

    def of(self, *states: RowState) -> list[Row]:
        """Return the rows in some states."""
        return [row for row in self.rows if row.state in states]

    @property
    def blocking(self) -> list[Row]:
        """The rows that keep a person from attesting."""
        return [row for row in self.rows if row.blocks]
