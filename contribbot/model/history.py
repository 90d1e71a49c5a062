"""The events of a patch's journal, one JSON object a line."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import ConfigDict, Field, TypeAdapter

from contribbot.model.base import Line, Loose, Many, Model, Name, ObjectId, Sha256, Tag, Time
from contribbot.model.evidence import Outcome, Verdict
from contribbot.model.patch import Reference
from contribbot.model.pin import Pin


class _Noted(Model):
    """The keys of every event; keys of a later release are passed over."""

    model_config = ConfigDict(strict=True, extra="ignore", frozen=True)

    time: Time
    summary: Line


class VersionFile(Model):
    """A patch file of a version."""

    name: str
    size: Annotated[int, Field(ge=0)]


class VersionEvent(_Noted):
    """A change of the patch files, whose bytes are in the operation log."""

    event: Literal["version"] = "version"
    version: Annotated[int, Field(ge=1)]
    digest: Sha256
    upstream: Name
    pin: Tag
    why: Line
    files: Many[VersionFile]
    base: Pin
    below: dict[str, Sha256] = Field(default_factory=dict)


class UnitOutcome(Model):
    """The outcome of one unit of a verification; `entry` is empty where the stage has none."""

    stage: str
    entry: str
    target: str
    outcome: Loose[Outcome]


class VerifiedEvent(_Noted):
    """A verification with a new outcome."""

    event: Literal["verified"] = "verified"
    digest: Sha256
    checks: Sha256 | None = None
    pin: Tag
    machine: Line
    verdict: Loose[Verdict]
    targets: dict[str, Loose[Outcome]]
    #: The units that passed or failed; none in an event of an earlier contribbot.
    units: Many[UnitOutcome] = ()


class _Published(_Noted):
    """The facts of a published branch or pull request that an event may hold."""

    fork: Line | None = None
    branch: Line | None = None
    head: ObjectId | None = None
    base: ObjectId | None = None
    digest: Sha256 | None = None
    below: dict[str, Sha256] | None = None
    version: Annotated[int, Field(ge=1)] | None = None
    text: Sha256 | None = None


class IntentEvent(_Published):
    """A request that is about to be sent; unless a `DoneEvent` follows, GitHub must be asked."""

    event: Literal["intent"] = "intent"
    what: Line
    key: Line
    reference: Reference | None = None


class DoneEvent(_Published):
    """A confirmation that GitHub has carried out the request of an intent."""

    event: Literal["done"] = "done"
    what: Line
    key: Line
    reference: Reference | None = None
    url: Line | None = None


class PullRequestEvent(_Published):
    """A change of the pull request."""

    event: Literal["pull-request"] = "pull-request"
    reference: Reference
    state: Line


class RetiredEvent(_Noted):
    """The patch left the queue."""

    event: Literal["retired"] = "retired"
    why: Line


Event = Annotated[
    VersionEvent | VerifiedEvent | IntentEvent | DoneEvent | PullRequestEvent | RetiredEvent,
    Field(discriminator="event"),
]
#: Reads an event of any kind.
EVENT: TypeAdapter[Event] = TypeAdapter(Event)
