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
from contribbot.model.evidence import Outcome, PatchReport, StageResult
from contribbot.queue.load import Queue, select
from contribbot.runners.model import ASKS, Asked, FaultAt, JobDone, JobId, PatchDone
from contribbot.verify.pipeline import Watcher
from contribbot.verify.run import exit_code, targets, verify_and_record
from contribbot.verify.runner_fault import fault, fault_of

#: The variable that holds what a job is asked, as JSON: `asks` of its row of the matrix.
VARIABLE: Final = "CONTRIBBOT_ASKS"
_JOB_ID: Final = TypeAdapter[str](JobId)
_FULL: Final = frozenset({errno.ENOSPC, errno.EDQUOT})
#: Characters of an error that are kept.
_SAID: Final = 2000


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
    asked = _asked(environment)
    for one in asked:
        select(queue, [one.patch])
        targets(one.require)
    about = JobDone.model_validate(
        {
            "job": environment.get(JOB, ""),
            "run": run_of(environment),
            "container": container_of(environment),
            "asked": asked,
            # Until all is done: a job that is killed has not proved what it was asked.
            "exit_code": ExitCode.MACHINE.value,
        }
    )
    _write(output, about)
    ended: list[PatchDone] = []
    for one in asked:
        done = _prove(queue, one, folder=output / "records", jobs=jobs, watcher=watcher, told=told)
        ended.append(done)
        about = about.model_copy(update={"patches": tuple(ended)})
        _write(output, about)
    about = about.model_copy(update={"exit_code": _worst([one.exit_code for one in ended])})
    _write(output, about)
    return about


def _asked(environment: Mapping[str, str]) -> tuple[Asked, ...]:
    """Read what is asked."""
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
        where = ": ".join([name, ".".join(str(part) for part in first["loc"])])
        raise UsageError(
            f"{where.removesuffix(': ')}: {first['msg']}",
            hint="install the workflows again: contribbot workflows install",
        ) from error


def _prove(
    queue: Queue,
    asked: Asked,
    *,
    folder: Path,
    jobs: int,
    watcher: Watcher,
    told: Callable[[PatchReport], None],
) -> PatchDone:
    try:
        done = verify_and_record(
            queue, [asked.patch], jobs=jobs, force=False, folder=folder, watcher=watcher
        )
    except NoSpaceError as error:
        return _no_room(asked, error.message)
    except ContribbotError as error:
        said = f"{error.message}; {error.hint}" if error.hint else error.message
        return PatchDone(patch=asked.patch, exit_code=error.exit_code.value, error=said[:_SAID])
    except OSError as error:
        if error.errno not in _FULL:
            raise
        return _no_room(asked, str(process.no_space(str(error))))
    for report in done.reports:
        told(report)
    seen = [one for report in done.reports for one in report.stages]
    return PatchDone(
        patch=asked.patch,
        exit_code=exit_code(done.reports, asked.require).value,
        error=_without_source(seen)[:_SAID],
        faults=tuple(
            FaultAt(stage=one.stage, target=one.target, fault=found)
            for one in seen
            if (found := fault_of(one)) is not None
        ),
    )


def _no_room(asked: Asked, said: str) -> PatchDone:
    """Say that the disk is full, which is the runner's fault whatever was asked."""
    places = [need.partition(":") for need in asked.require]
    faults = tuple(
        FaultAt(stage=stage, target=target, fault=fault("disk-full", said))
        for stage, _, target in places
    )
    code = ExitCode.MACHINE.value
    return PatchDone(patch=asked.patch, exit_code=code, error=said[:_SAID], faults=faults)


def _without_source(seen: Sequence[StageResult]) -> str:
    """Say why there was no tree to look at, or nothing."""
    lost = (
        one.reason for one in seen if one.stage == "source" and one.outcome is Outcome.UNAVAILABLE
    )
    return next(lost, "")


def _worst(codes: Sequence[int]) -> int:
    """Return what the job tells: a no stands before what could not be done."""
    return ExitCode.NO.value if ExitCode.NO in codes else max(codes)


def _write(output: Path, done: JobDone) -> None:
    write_atomically(output / "job.json", (done.model_dump_json(indent=2) + "\n").encode())
