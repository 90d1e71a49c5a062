"""Where the patches of a queue stand (what `status --json` prints)."""

from __future__ import annotations

import enum
from typing import Annotated

from pydantic import Field

from contribbot.model.base import Model
from contribbot.model.behaviour import Behaviour


class Text(enum.StrEnum):
    """What becomes of a patch's text at a release."""

    #: It applies exactly.
    CLEAN = "clean"
    #: It applies at other lines, or with less context.
    OFFSET = "offset"
    #: It had to be merged, which went well.
    MERGED = "merged"
    CONFLICT = "conflict"
    #: The release has all of it already.
    UPSTREAM = "upstream"
    #: A patch that it depends on does not apply.
    BLOCKED = "blocked"
    #: It cannot be told here, for the reason given.
    UNKNOWN = "unknown"


class Says(Model):
    """What can be said of a patch's text, and why.

    Attributes:
        text: What becomes of it.
        why: One line.
    """

    text: Annotated[Text, Field(strict=False)]
    why: str


class TargetState(Model):
    """What the kept records say of one target.

    Attributes:
        target: `cpu`, `cuda`, a gfx target, or `STAGE:TARGET`.
        evidence: `fresh`, `stale` or `missing`.
    """

    target: str
    evidence: str


class Due(Model):
    """A condition of `expires_when`.

    Attributes:
        condition: It, in words.
        come: Whether it has come; None: it cannot be told here.
        why: One line.
    """

    condition: str
    come: bool | None
    why: str


class PatchStatus(Model):
    """One patch at a glance.

    Attributes:
        patch: Its name.
        upstream: The upstream.
        pin: What it stands on.
        against: The release that `text` and `behaviour` are about.
        text: What becomes of its text there.
        text_why: One line.
        behaviour: What its checks say without it there; None: not asked.
        evidence: What the kept records say, by target.
        contribution: What is known of its pull request.
        due: Its conditions of expiry.
        versions: How many versions are recorded.
    """

    patch: str
    upstream: str
    pin: str
    against: str
    text: Annotated[Text, Field(strict=False)]
    text_why: str
    behaviour: Behaviour | None
    evidence: Annotated[tuple[TargetState, ...], Field(strict=False)]
    contribution: str
    due: Annotated[tuple[Due, ...], Field(strict=False)]
    versions: int


class StatusReport(Model):
    """What `status --json` prints.

    Attributes:
        patches: One each, in the queue's order.
    """

    patches: Annotated[tuple[PatchStatus, ...], Field(strict=False)]
