"""What a job does on its runner: prove what it is asked, and leave records for an artifact."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final

from pydantic import TypeAdapter, ValidationError

from contribbot import process
from contribbot.errors import ContribbotError, ExitCode, NoSpaceError, UsageError
from contribbot.files import write_atomically
from contribbot.hardware.machine import JOB, container_of, run_of
from contribbot.model.evidence import Outcome, PatchReport
from contribbot.model.failure import RunFailure
from contribbot.queue.load import Queue, select
from contribbot.runners.documents import ASKS, Asked, FaultAt, JobDone, JobId, PatchDone
from contribbot.verify.pipeline import Options, Watcher
from contribbot.verify.run import exit_code, targets, verify_and_record
from contribbot.verify.runner_fault import fault_of, runner_fault

#: The variable that holds what a job is asked, as JSON: `asks` of its row of the matrix.
VARIABLE: Final = "CONTRIBBOT_ASKS"
_JOB_ID: Final = TypeAdapter[str](JobId)
_LONGEST: Final = 2000


def work(
    queue: Queue,
    output: Path,
    *,
    jobs: int,
    watcher: Watcher,
    told: Callable[[PatchReport], None],
    environment: Mapping[str, str] = os.environ,
) -> JobDone:
    """Do the work of one job. One patch that cannot be proved does not keep others from it."""
    asks = _read_asks(environment)
    for asked in asks:
        select(queue, [asked.patch])
        targets(asked.require)
    done = JobDone(
        job=environment[JOB],
        run=run_of(environment),
        container=container_of(environment),
        asked=asks,
        # Until all is done: a job that is killed has not proved what it was asked.
        exit_code=ExitCode.MACHINE.value,
    )
    _write(output, done)
    for asked in asks:
        try:
            verified = verify_and_record(
                queue,
                [asked.patch],
                options=Options(jobs=jobs),
                folder=output / "records",
                watcher=watcher,
            )
        except (ContribbotError, OSError) as error:
            ended = _not_proved(asked, error)
        else:
            for report in verified.reports:
                told(report)
            ended = _proved(asked, verified.reports)
        done = done.model_copy(update={"patches": (*done.patches, ended)})
        _write(output, done)
    codes = [patch.exit_code for patch in done.patches]
    # A no stands before what could not be done.
    code = ExitCode.NO.value if ExitCode.NO in codes else max(codes)
    done = done.model_copy(update={"exit_code": code})
    _write(output, done)
    return done


def _read_asks(environment: Mapping[str, str]) -> tuple[Asked, ...]:
    for name in (VARIABLE, JOB):
        if not environment.get(name):
            raise UsageError(
                f"{name} is not set: this is what a job of verify.yml runs",
                hint="prove a patch here with `contribbot verify NAME`",
            )
    name = JOB
    try:
        _JOB_ID.validate_python(environment[JOB])
        name = VARIABLE
        return ASKS.validate_json(environment[VARIABLE])
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = ": ".join(filter(None, [name, ".".join(str(part) for part in first["loc"])]))
        raise UsageError(
            f"{where}: {first['msg']}",
            hint="install the workflows again: contribbot runners workflows install",
        ) from error


def _proved(asked: Asked, reports: Sequence[PatchReport]) -> PatchDone:
    results = [result for report in reports for result in report.stages]
    lost = (
        result.reason
        for result in results
        if result.stage == "source" and result.outcome is Outcome.UNAVAILABLE
    )
    return PatchDone(
        patch=asked.patch,
        exit_code=exit_code(reports, asked.require).value,
        error=next(lost, "")[:_LONGEST],
        faults=tuple(
            FaultAt(stage=result.stage, target=result.target, fault=cause)
            for result in results
            if (cause := fault_of(result)) is not None
        ),
    )


def _not_proved(asked: Asked, error: ContribbotError | OSError) -> PatchDone:
    """Return why a patch was not proved; a full disk is the runner's fault, whatever was asked."""
    if isinstance(error, OSError):
        if error.errno not in {errno.ENOSPC, errno.EDQUOT}:
            raise error
        error = process.no_space(str(error))
    words = f"{error.message}; {error.hint}" if error.hint else error.message
    faults: tuple[FaultAt, ...] = ()
    if isinstance(error, NoSpaceError):
        words = error.message
        needs = [need.partition(":") for need in asked.require]
        faults = tuple(
            FaultAt(stage=stage, target=target, fault=runner_fault(RunFailure.DISK_FULL, words))
            for stage, _, target in needs
        )
    return PatchDone(patch=asked.patch, exit_code=error.exit_code.value, error=words[:_LONGEST],
                     faults=faults)  # fmt: skip


def _write(output: Path, done: JobDone) -> None:
    write_atomically(output / "job.json", (done.model_dump_json(indent=2) + "\n").encode())
