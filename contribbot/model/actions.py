"""What GitHub says of workflow runs, and what became of the cells of one.

The names in the first part are those of GitHub's REST API (https://docs.github.com/en/rest). All
text is as GitHub sent it: whoever shows it must clean it (`report.text.clean`).
"""

from __future__ import annotations

import enum
from typing import Annotated, Final, Literal

from pydantic import AliasPath, BeforeValidator, ConfigDict, Field, StringConstraints

from contribbot.model.base import Model, ObjectId, Time
from contribbot.model.runners import Job, Kind, cell_key

#: The artifact that holds the plan, and the start of the names of all of contribbot's.
PLAN_ARTIFACT: Final = "contribbot-plan"
PREFIX: Final = "contribbot-"
COLLECTED: Final = "contribbot/collected/v1"
AGAIN: Final = "contribbot/again/v1"

_Number = Annotated[int, Field(ge=1)]
_Name = Annotated[str, StringConstraints(pattern=r"^[\w.-]+/[\w.-]+$", max_length=200)]


def _login(value: object) -> object:
    return value.get("login") if isinstance(value, dict) else value


class Said(Model):
    """What GitHub said: keys that are not named are passed over."""

    model_config = ConfigDict(strict=True, extra="ignore", frozen=True, populate_by_name=True)


class Run(Said):
    """A run of a workflow; `path` is the workflow's file, where GitHub may add `@REF`."""

    id: _Number
    run_attempt: _Number = 1
    head_branch: str | None = None
    head_sha: ObjectId
    path: str
    event: str
    status: str | None
    conclusion: str | None
    html_url: str
    #: Its `run-name`.
    display_title: Annotated[str, BeforeValidator(lambda value: value or "")] = ""
    created_at: Time
    actor: Annotated[str | None, BeforeValidator(_login)] = None
    repository: Annotated[
        _Name | None, Field(validation_alias=AliasPath("repository", "full_name"))
    ] = None
    #: Where its commit is from; None where that is gone.
    head_repository: Annotated[
        _Name | None, Field(validation_alias=AliasPath("head_repository", "full_name"))
    ] = None

    @property
    def over(self) -> bool:
        """Whether it has ended."""
        return self.status == "completed"


class RunStep(Said):
    """A step of a job."""

    name: str
    status: str
    conclusion: str | None = None


class RunJob(Said):
    """A job of a run, which a matrix names; its steps are as its runner told GitHub."""

    id: _Number
    name: str
    run_attempt: _Number = 1
    status: str
    conclusion: str | None
    #: When it started, or was queued.
    started_at: Time | None = None
    completed_at: Time | None = None
    runner_name: str | None = None
    labels: Annotated[tuple[str, ...], Field(strict=False)] = ()
    steps: Annotated[tuple[RunStep, ...], Field(strict=False)] = ()

    @property
    def over(self) -> bool:
        """Whether it has ended."""
        return self.status == "completed"

    @property
    def seconds(self) -> float:
        """How long it ran; 0 where GitHub does not say."""
        if self.started_at is None or self.completed_at is None:
            return 0.0
        return (self.completed_at - self.started_at).total_seconds()


class Artifact(Said):
    """What a job uploaded."""

    id: _Number
    name: str
    #: Bytes of the zip.
    size_in_bytes: Annotated[int, Field(ge=0)]
    #: Whether GitHub has let it go.
    expired: bool
    #: `sha256:…` of the zip, as GitHub saw it come; None where it does not say.
    digest: str | None = None
    created_at: Time | None = None
    run_id: Annotated[int | None, Field(validation_alias=AliasPath("workflow_run", "id"))] = None


class CellState(enum.StrEnum):
    """What became of a cell."""

    PROVED = "proved"
    REFUTED = "refuted"
    #: Its record has no answer to all that was asked.
    INCOMPLETE = "incomplete"
    #: Its runner, or none that there is, could run it.
    OPEN = "open"
    #: Nothing came, and no job says why.
    MISSING = "missing"
    #: Its job failed and left no record of it.
    FAILED = "failed"
    TIMED_OUT = "timed out"
    CANCELLED = "cancelled"
    #: The machine was at fault: nothing is known of the patch.
    FAULT = "runner fault"
    #: Something came that is not what was asked for, or not as it was sent.
    REFUSED = "refused"
    RUNNING = "running"


class CellEnd(Model):
    """What became of a cell.

    Attributes:
        kind: Whether it was compiled or run.
        patch: The patch.
        target: The target.
        rocm: The ROCm version; empty where there is no runner under any.
        state: What became of it.
        why: One line; holds text that a job sent.
        job: The job's id; empty: none had it.
        fresh: Whether a record that was there before answers it.
    """

    kind: Kind
    patch: str
    target: str
    rocm: str
    state: Annotated[CellState, Field(strict=False)]
    why: str
    job: str = ""
    fresh: bool = False

    @property
    def key(self) -> str:
        """Its name: the same in every plan."""
        return cell_key(self.kind, self.patch, self.target, self.rocm)


#: What happened to the record that had the place.
Merged = Literal["new", "replaced", "unchanged", "kept", "refused"]


class RecordEnd(Model):
    """What became of a record that came.

    Attributes:
        path: Its place, seen from the queue's folder.
        job: The job that sent it.
        merged: `new` and `replaced` were written; `kept`: the one that is there stays.
        why: One line.
    """

    path: str
    job: str
    merged: Merged
    why: str


class ArtifactEnd(Model):
    """An artifact, and what is to be said of it.

    Attributes:
        name: Its name, which its sender chose.
        sha256: Digest of what was fetched; empty: nothing was.
        refused: Why nothing of it was taken; empty: it was.
        attested: What is known of its attestation.
    """

    name: str
    sha256: Annotated[str, StringConstraints(pattern=r"^(?:[0-9a-f]{64})?$")] = ""
    refused: str = ""
    attested: str = ""


class Collected(Model):
    """What `collect --json` prints.

    Attributes:
        type: What it is.
        repository: The queue's repository; empty where nothing says it.
        run: The run; 0 where nothing says it.
        commit: The commit that it was of; empty where nothing says it.
        cells: What became of each cell.
        records: What became of each record.
        artifacts: What came.
        notes: What else a reader must know.
        complete: Whether all that was planned came and passed.
        runners_failed: Whether runners alone kept it from that: nothing failed or is in doubt,
            and nothing is known of the cells that they had.
    """

    type: Literal["contribbot/collected/v1"] = COLLECTED
    repository: str = ""
    run: int = 0
    commit: str = ""
    cells: Annotated[tuple[CellEnd, ...], Field(strict=False)] = ()
    records: Annotated[tuple[RecordEnd, ...], Field(strict=False)] = ()
    artifacts: Annotated[tuple[ArtifactEnd, ...], Field(strict=False)] = ()
    notes: Annotated[tuple[str, ...], Field(strict=False)] = ()
    complete: bool
    runners_failed: bool = False


class Again(Model):
    """What `collect --again` prints.

    Attributes:
        type: What it is.
        run: The run; 0 where nothing says it.
        cells: The cells that failed for their runners' reasons.
        jobs: What tries them once more.
        notes: What else a reader must know.
    """

    type: Literal["contribbot/again/v1"] = AGAIN
    run: int = 0
    cells: Annotated[tuple[CellEnd, ...], Field(strict=False)] = ()
    jobs: Annotated[tuple[Job, ...], Field(strict=False)] = ()
    notes: Annotated[tuple[str, ...], Field(strict=False)] = ()
