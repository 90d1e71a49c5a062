"""What a bisection found (what `bisect --json` prints)."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from contribbot.model.base import Model

#: `breaks`: the first point at which a patch's text does not apply; `unneeded`: the first
#: at which its checks pass without it.
Question = Literal["breaks", "unneeded"]


class Step(Model):
    """One release or commit that was looked at.

    Attributes:
        at: Its tag, or its commit.
        says: `before`: as at the start; `after`: as at the end; `skipped`: it cannot be told.
        why: One line.
        again: Whether it was looked at a second time before it was believed.
        taken: Whether the text does not go in because all of it is there already.
    """

    at: str
    says: Literal["before", "after", "skipped"]
    why: str
    again: bool = False
    taken: bool = False


class Bisection(Model):
    """Where something changed.

    Attributes:
        patch: The patch.
        upstream: The upstream.
        question: What was asked.
        start: The first end, where the answer is still no.
        end: The other, where it is yes.
        first: The first at which the answer is yes; empty where it cannot be told.
        taken: Whether that one, or the last of the suspects, has all of the patch's text
            already, and breaks nothing.
        suspects: Those that could not be told and may be it, oldest first.
        steps: What was looked at, in that order.
        left: How many releases or commits lie between the ends.
    """

    patch: str
    upstream: str
    question: Question
    start: str
    end: str
    first: str
    taken: bool = False
    suspects: Annotated[tuple[str, ...], Field(strict=False)] = ()
    steps: Annotated[tuple[Step, ...], Field(strict=False)]
    left: int
