"""What a job on a runner says of itself, beside its records: `job.json`."""

from __future__ import annotations

from typing import Annotated, Final, Literal

from pydantic import Field, StringConstraints, TypeAdapter

from contribbot.model.base import Model, Name
from contribbot.model.evidence import Container, RunnerFault, RunOf
from contribbot.model.runners import JobId

DONE: Final = "contribbot/job/v1"
#: What `verify --require` takes.
_Requirement = Annotated[str, StringConstraints(pattern=r"^[a-z]+:(?:gfx[0-9a-f]{3,5}|cpu|cuda)$")]
_ExitCode = Annotated[int, Field(ge=0, le=255)]


class Asked(Model):
    """What a job is asked to prove of a patch.

    Attributes:
        patch: The patch.
        require: What must be proved, as `STAGE:TARGET`.
    """

    patch: Name
    require: Annotated[tuple[_Requirement, ...], Field(strict=False, min_length=1, max_length=100)]


#: As the workflow hands it over.
ASKS: Final = TypeAdapter(Annotated[tuple[Asked, ...], Field(min_length=1, max_length=2000)])


class FaultAt(Model):
    """A fault of the runner, and what it kept from being shown.

    Attributes:
        stage: The stage.
        target: The target.
        fault: What was wrong.
    """

    stage: Annotated[str, StringConstraints(max_length=40)]
    target: Annotated[str, StringConstraints(max_length=40)]
    fault: RunnerFault


class PatchDone(Model):
    """How the proof of one patch ended.

    Attributes:
        patch: The patch.
        exit_code: What `verify` would tell a shell.
        error: What stood in the way of all of it; empty: nothing.
        faults: Faults of the runner.
    """

    patch: Name
    exit_code: _ExitCode
    error: Annotated[str, StringConstraints(max_length=2000)] = ""
    faults: Annotated[tuple[FaultAt, ...], Field(strict=False, max_length=1000)] = ()


class JobDone(Model):
    """What a job says of itself. Whoever reads it knows no more than that.

    Attributes:
        type: What it is.
        job: The job's id in the plan.
        run: The run that it is part of; None: somebody ran it by hand.
        container: The container; None: none was named.
        asked: What it was asked.
        patches: How each proof ended, in that order; one that is missing was not begun.
        exit_code: What the job told Actions.
    """

    type: Literal["contribbot/job/v1"] = DONE
    job: JobId
    run: RunOf | None
    container: Container | None
    asked: Annotated[tuple[Asked, ...], Field(strict=False)]
    patches: Annotated[tuple[PatchDone, ...], Field(strict=False)] = ()
    exit_code: _ExitCode
