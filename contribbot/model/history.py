"""The events in a patch's journal; each line of the journal is a JSON object."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import ConfigDict, Field, TypeAdapter

from contribbot.model.base import Line, Loose, Many, Model, Name, ObjectId, Sha256, Tag, Time
from contribbot.model.evidence import Outcome, Verdict
from contribbot.model.patch import Reference
from contribbot.model.pin import Pin


class _Noted(Model):
    """The keys that each event has; unknown keys, of a later release, are ignored."""

    model_config = ConfigDict(strict=True, extra="ignore", frozen=True)

    time: Time
    summary: Line


class VersionFile(Model):
    """The name and size of a patch file in a version."""

    name: str
    size: Annotated[int, Field(ge=0)]


class VersionEvent(_Noted):
    """A new version of the patch files; the operation log has the files."""

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
    """The outcome of an entry of a stage on a target; `entry` may be empty."""

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
    #: Outcomes of entries that passed or failed; events of older releases have none.
    units: Many[UnitOutcome] = ()


class _Published(_Noted):
    """The keys of events about a published branch or pull request."""

    fork: Line | None = None
    branch: Line | None = None
    head: ObjectId | None = None
    base: ObjectId | None = None
    digest: Sha256 | None = None
    below: dict[str, Sha256] | None = None
    version: Annotated[int, Field(ge=1)] | None = None
    text: Sha256 | None = None


class IntentEvent(_Published):
    """A request that is about to be sent; without a later `DoneEvent`, its fate is unknown."""

    event: Literal["intent"] = "intent"
    what: Line
    key: Line
    reference: Reference | None = None


class DoneEvent(_Published):
    """A note that GitHub has carried out the request of an `IntentEvent`."""

    event: Literal["done"] = "done"
    what: Line
    key: Line
    reference: Reference | None = None
    url: Line | None = None


class PullRequestEvent(_Published):
    """A new state of the patch's pull request."""

    event: Literal["pull-request"] = "pull-request"
    reference: Reference
    state: Line


class RetiredEvent(_Noted):
    """A note that the patch left the queue, and why."""

    event: Literal["retired"] = "retired"
    why: Line


Event = Annotated[
    VersionEvent | VerifiedEvent | IntentEvent | DoneEvent | PullRequestEvent | RetiredEvent,
    Field(discriminator="event"),
]
#: A parser and writer for events of any kind.
EVENT: TypeAdapter[Event] = TypeAdapter(Event)
