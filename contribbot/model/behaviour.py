"""What an upstream's release does without a patch, and what each member of a stack is for."""

from __future__ import annotations

import enum
from typing import Annotated

from pydantic import Field, JsonValue, computed_field, model_validator

from contribbot.model.base import Model


class Says(enum.StrEnum):
    """What a fail-to-pass entry says of a tree without the patch."""

    #: All of it passed, and something ran.
    PASSES = "passes"
    #: It fails, in every case as the patch states.
    FAILS = "fails"
    #: It fails in another way, or asks for what no release has: it says nothing of the fault.
    OTHER = "other"
    #: This machine lacks something that it needs.
    CANNOT = "cannot"


class Need(enum.StrEnum):
    """Whether a release still needs a patch, by what it does."""

    #: Something that failed without the patch passes without it, and nothing fails as stated.
    SUPERSEDED = "superseded"
    #: Something passes without it, and something else still fails as stated.
    PARTLY = "partly superseded"
    #: Something still fails as stated, and nothing passes.
    NEEDED = "needed"
    #: Neither was seen.
    UNCLEAR = "unclear"


class Entry(Model):
    """One fail-to-pass entry of a patch, run on a tree without it.

    Attributes:
        label: What people call it, such as `check red` or `compile all gfx942`.
        target: The hardware that it needs, or `any`.
        says: What it said.
        reason: One line that says why.
        cached: Whether it was run earlier, with the same inputs.
    """

    label: str
    target: str
    says: Annotated[Says, Field(strict=False)]
    reason: str
    cached: bool = False


class Behaviour(Model):
    """What a release does without a patch.

    Attributes:
        patch: The patch.
        pin: The release, by the upstream's tag.
        commit: The release's commit in the store; empty where it could not be had.
        below: The patches that were put below, lowest first.
        entries: What each fail-to-pass entry said; none where nothing could be run.
        moved: Files that the entries name and the release has elsewhere, old path and new.
        trouble: Why nothing could be run, or empty.
    """

    patch: str
    pin: str
    commit: str = ""
    below: Annotated[tuple[str, ...], Field(strict=False)] = ()
    entries: Annotated[tuple[Entry, ...], Field(strict=False)] = ()
    moved: dict[str, str] = Field(default_factory=dict)
    trouble: str = ""

    @model_validator(mode="before")
    @classmethod
    def _judged_anew(cls, told: JsonValue) -> JsonValue:
        """Leave out what follows from the rest, so that what was written can be read."""
        if not isinstance(told, dict):
            return told
        return {key: value for key, value in told.items() if key not in {"verdict", "why"}}

    @computed_field  # type: ignore[prop-decorator]  # mypy knows no decorated property
    @property
    def verdict(self) -> Need:
        """Whether the release still needs the patch."""
        said = {entry.says for entry in self.entries}
        if Says.FAILS in said:
            return Need.PARTLY if Says.PASSES in said else Need.NEEDED
        return Need.SUPERSEDED if Says.PASSES in said else Need.UNCLEAR

    @computed_field  # type: ignore[prop-decorator]  # the same
    @property
    def why(self) -> str:
        """One line that says what the verdict stands on, and what could not be told."""
        if self.trouble:
            return self.trouble
        counts = {says: [entry for entry in self.entries if entry.says is says] for says in Says}
        fails, passes = counts[Says.FAILS], counts[Says.PASSES]
        if not self.entries:
            return "the patch states nothing that fails without it"
        parts = []
        if fails:
            parts.append(f"{fails[0].label} still fails as stated: {fails[0].reason}")
        if passes:
            parts.append(f"{len(passes)} of {len(self.entries)} pass without the patch")
        if counts[Says.OTHER]:
            first = counts[Says.OTHER][0]
            parts.append(f"{len(counts[Says.OTHER])} say nothing ({first.label}: {first.reason})")
        if counts[Says.CANNOT]:
            parts.append(f"{len(counts[Says.CANNOT])} cannot run here")
        return "; ".join(parts)


class Loss(Model):
    """An outcome that a stack's top loses without one of its members.

    Attributes:
        what: The outcome, such as `compile all-kernels gfx942`.
        reason: How it ends without the member.
    """

    what: str
    reason: str


class Share(Model):
    """What one member of a stack contributes to its top.

    Attributes:
        top: The patch that was verified.
        without: The member that was left out.
        applies: Whether the rest applies without it.
        losses: What passes with it and not without; one entry where the rest does not apply.
        kept: How many outcomes pass all the same.
        open: How many this machine cannot run, with or without it.
    """

    top: str
    without: str
    applies: bool
    losses: Annotated[tuple[Loss, ...], Field(strict=False)]
    kept: int
    open: int


class StackReport(Model):
    """What `verify --leave-one-out --json` prints.

    Attributes:
        shares: One for each stack and member.
        untold: Stacks of which nothing can be said, and why.
        refuted: Those of them that fail as a whole.
    """

    shares: Annotated[tuple[Share, ...], Field(strict=False)]
    untold: dict[str, str] = Field(default_factory=dict)
    refuted: Annotated[tuple[str, ...], Field(strict=False)] = ()
