"""What moving a pin would do to the patches that stand on it."""

from __future__ import annotations

import enum
from typing import Annotated, Literal

from pydantic import Field

from contribbot.model.base import Model
from contribbot.model.behaviour import Behaviour
from contribbot.model.status import Text

#: What to do with patches that the new release does without.
Superseded = Literal["stop", "retire", "keep"]


class Decision(enum.StrEnum):
    """What becomes of a patch."""

    #: It goes along.
    MOVE = "move"
    #: The new release does without it what it was for, by its text or by its checks.
    SUPERSEDED = "superseded"
    #: A person must resolve its conflict.
    WORK = "needs work"
    #: It waits for a patch that it depends on.
    BLOCKED = "blocked"


class Side(Model):
    """A hunk, or a whole file, that does not fit, with its three sides.

    Attributes:
        headline: Which hunk of which file, and why, in one line.
        patch_file: The patch file, or where it came from.
        path: The file that it wants to change.
        hunk: Number of the hunk in that file, from 1; 0: the whole file.
        why: One phrase.
        line: Where the nearest place in the release starts, from 1; 0: there is none.
        expected: What the patch expects.
        found: What the release has there.
        wanted: What the patch wants there.
    """

    headline: str
    patch_file: str
    path: str
    hunk: int
    why: str
    line: int
    expected: tuple[str, ...]
    found: tuple[str, ...]
    wanted: tuple[str, ...]


class PatchPlan(Model):
    """What moving the pin does to one patch.

    Attributes:
        patch: Its name.
        decision: What becomes of it.
        text: What becomes of its text.
        why: One line.
        conflicts: The hunks that do not fit.
        behaviour: What its checks say without it at the new release; None: not asked.
    """

    patch: str
    decision: Annotated[Decision, Field(strict=False)]
    text: Annotated[Text, Field(strict=False)]
    why: str
    conflicts: Annotated[tuple[Side, ...], Field(strict=False)] = ()
    behaviour: Behaviour | None = None


class RebasePlan(Model):
    """What `rebase --json` prints.

    Attributes:
        upstream: The upstream.
        old: The tag of the pin that moves.
        new: Where to.
        patches: What becomes of each patch on it, in the queue's order.
        done: Whether the queue was changed.
        resolve: The folder with a conflict for a person to resolve, or empty.
        conflicted: What waits there for the person; empty where all is resolved.
        remembered: What was resolved there as it was once before.
        superseded: What is done with patches that the release does without.
    """

    upstream: str
    old: str
    new: str
    patches: Annotated[tuple[PatchPlan, ...], Field(strict=False)]
    done: bool = False
    resolve: str = ""
    conflicted: Annotated[tuple[str, ...], Field(strict=False)] = ()
    remembered: Annotated[tuple[str, ...], Field(strict=False)] = ()
    superseded: Superseded = "stop"

    @property
    def ready(self) -> bool:
        """Whether every patch can go along."""
        return all(one.decision is Decision.MOVE for one in self.patches)
