"""What happened to a patch: the events of its journal, one JSON object a line."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Literal

from pydantic import ConfigDict, Discriminator, Field, JsonValue, Tag, TypeAdapter

from contribbot.model.base import Line, Model, Name, Sha256
from contribbot.model.base import Tag as TagName
from contribbot.model.outcome import Outcome, Verdict
from contribbot.model.patch import Reference
from contribbot.model.pin import Pin


class _Noted(Model):
    """What every event has.

    A journal outlives the contribbot that wrote it: keys that this one does not know
    are passed over.

    Attributes:
        time: When it happened.
        summary: What happened, in a line.
    """

    model_config = ConfigDict(strict=True, extra="ignore", frozen=True)

    time: Annotated[datetime, Field(strict=False)]
    summary: Line


class VersionFile(Model):
    """One patch file of a version.

    Attributes:
        name: Its name.
        size: Its bytes; the files lie one behind the other in `vN.mbox`.
    """

    name: str
    size: Annotated[int, Field(ge=0)]


class VersionEvent(_Noted):
    """The patch files became what `vN.mbox` holds.

    Attributes:
        event: Always `version`.
        version: N, from 1.
        digest: Digest of the patch files.
        upstream: The upstream.
        pin: The pin's tag.
        why: What made it, such as `refresh`.
        files: The patch files, in order.
        base: The whole pin, so that the version can be looked at when the queue has left it.
        below: Digests of the patches that it stood on, by name, lowest first.
    """

    event: Literal["version"] = "version"
    version: Annotated[int, Field(ge=1)]
    digest: Sha256
    upstream: Name
    pin: TagName
    why: Line
    files: Annotated[tuple[VersionFile, ...], Field(strict=False)]
    base: Pin
    below: dict[str, Sha256] = Field(default_factory=dict)


class VerifiedEvent(_Noted):
    """A verification saw something new.

    Attributes:
        event: Always `verified`.
        digest: Digest of the patch files.
        pin: The pin's tag.
        machine: The machine, as records of evidence name it.
        verdict: What the outcomes amount to.
        targets: The outcome on each piece of hardware (`gfx942`) and of each other stage
            that has targets (`compile:gfx942`): `failed` before `unavailable` before `passed`.
    """

    event: Literal["verified"] = "verified"
    digest: Sha256
    pin: TagName
    machine: Line
    verdict: Annotated[Verdict, Field(strict=False)]
    targets: dict[str, Annotated[Outcome, Field(strict=False)]]


class PullRequestEvent(_Noted):
    """Something happened to the pull request.

    Attributes:
        event: Always `pull-request`.
        reference: The pull request, as `owner/name#number`.
        state: What it is now, such as `open` or `merged`.
        digest: Digest of the patch files that it carries, where known.
    """

    event: Literal["pull-request"] = "pull-request"
    reference: Reference
    state: Line
    digest: Sha256 | None = None


class RetiredEvent(_Noted):
    """The patch left the queue.

    Attributes:
        event: Always `retired`.
        why: The reason.
    """

    event: Literal["retired"] = "retired"
    why: Line


class OtherEvent(_Noted):
    """An event of a kind that this contribbot does not know.

    Attributes:
        event: Its kind.
    """

    event: Line


_KINDS = ("version", "verified", "pull-request", "retired")


def _kind(value: JsonValue | _Noted) -> str:
    """Return which of the classes an event belongs to."""
    said = value.get("event") if isinstance(value, dict) else getattr(value, "event", None)
    return said if isinstance(said, str) and said in _KINDS else "other"


Event = Annotated[
    Annotated[VersionEvent, Tag("version")]
    | Annotated[VerifiedEvent, Tag("verified")]
    | Annotated[PullRequestEvent, Tag("pull-request")]
    | Annotated[RetiredEvent, Tag("retired")]
    | Annotated[OtherEvent, Tag("other")],
    Discriminator(_kind),
]
#: Reads an event of any kind.
EVENT: TypeAdapter[Event] = TypeAdapter(Event)
