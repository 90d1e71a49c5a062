"""What happened to a patch: the events of its journal, one JSON object a line."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Literal

from pydantic import ConfigDict, Discriminator, Field, JsonValue, Tag, TypeAdapter

from contribbot.model.base import Line, Model, Name, ObjectId, Sha256
from contribbot.model.base import Tag as TagName
from contribbot.model.evidence import Outcome, Verdict
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


class _Published(_Noted):
    """What an event may say of what is published, each where it is known and matters.

    Attributes:
        fork: The repository that has the branch, as `owner/name`.
        branch: The branch, without `refs/heads/`.
        head: The commit that the branch has, or is to have.
        base: The upstream's commit that it stands on.
        digest: Digest of the patch files that it carries.
        below: Digests of the patches whose commits it carries below them, by name.
        version: The version of the patch that it carries.
        text: Digest of the title and body (`contribute.state.text_digest`).
    """

    fork: Line | None = None
    branch: Line | None = None
    head: ObjectId | None = None
    base: ObjectId | None = None
    digest: Sha256 | None = None
    below: dict[str, Sha256] | None = None
    version: Annotated[int, Field(ge=1)] | None = None
    text: Sha256 | None = None


class IntentEvent(_Published):
    """Something is about to be written to GitHub that must not happen twice, or unseen.

    It stands in the journal before the request is sent. Whether it happened is said by
    the `DoneEvent`, or `PullRequestEvent`, that follows; where none does, a crash came
    between, and GitHub must be asked.

    Attributes:
        event: Always `intent`.
        what: What kind of write: `fork`, `branch`, `pull-request`, `text`, `comment`, `reply`.
        key: What tells it from others of its kind; the same in its `DoneEvent`.
        reference: The pull request that it is about, where there is one.
    """

    event: Literal["intent"] = "intent"
    what: Line
    key: Line
    reference: Reference | None = None


class DoneEvent(_Published):
    """GitHub has what an intent was about.

    Attributes:
        event: Always `done`.
        what: What kind of write, as its intent says; or `handoff`, which has none: from
            then on a person is to open the pull request.
        key: As its intent says.
        reference: The pull request that it is about, where there is one.
        url: The page of what was written, where it has one.
    """

    event: Literal["done"] = "done"
    what: Line
    key: Line
    reference: Reference | None = None
    url: Line | None = None


class PullRequestEvent(_Published):
    """Something happened to the pull request.

    Attributes:
        event: Always `pull-request`.
        reference: The pull request, as `owner/name#number`.
        state: What it is now, such as `draft`, `open` or `merged`.
    """

    event: Literal["pull-request"] = "pull-request"
    reference: Reference
    state: Line


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


_KINDS = ("version", "verified", "intent", "done", "pull-request", "retired")


def _kind(value: JsonValue | _Noted) -> str:
    """Return which of the classes an event belongs to."""
    said = value.get("event") if isinstance(value, dict) else getattr(value, "event", None)
    return said if isinstance(said, str) and said in _KINDS else "other"


Event = Annotated[
    Annotated[VersionEvent, Tag("version")]
    | Annotated[VerifiedEvent, Tag("verified")]
    | Annotated[IntentEvent, Tag("intent")]
    | Annotated[DoneEvent, Tag("done")]
    | Annotated[PullRequestEvent, Tag("pull-request")]
    | Annotated[RetiredEvent, Tag("retired")]
    | Annotated[OtherEvent, Tag("other")],
    Discriminator(_kind),
]
#: Reads an event of any kind.
EVENT: TypeAdapter[Event] = TypeAdapter(Event)
