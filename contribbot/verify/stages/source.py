"""Stage `source`: bring the pinned tree into the store."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from contribbot.errors import IntegrityError, SourceError
from contribbot.git.pins import Provided
from contribbot.git.pins.sources import provide
from contribbot.model.evidence import Outcome, SourceStageResult, StageResult
from contribbot.model.pin import Pin
from contribbot.model.record import SourceDetails
from contribbot.verify.job import Job
from contribbot.verify.runner_fault import UnavailableError
from contribbot.verify.stages.base import Finding, Stage, Unit

#: A digest, which a line for people shortens and the details of a record have in full.
_DIGEST: Final = re.compile(r"\b([0-9a-f]{12})[0-9a-f]{28}(?:[0-9a-f]{24})?\b")


def provided(job: Job, pin: Pin) -> Provided:
    """Return a pin's tree; if the store lacks the tree, a source provides it."""
    try:
        return provide(pin, job.patch.upstream, job.store, progress=job.progress)
    except IntegrityError:
        raise  # the content is not the pin's, so a person must look
    except SourceError as error:
        next_step = f"; next: {error.hint}" if error.hint else ""
        raise UnavailableError(error.message + next_step) from error


class SourceStage(Stage):
    """Brings the pin's tree into the store, from the first source that works."""

    result = SourceStageResult
    after = ()

    def units(self, job: Job) -> list[Unit]:
        """Return one unit whose outcome is never cached, because the git store keeps the tree."""
        return [Unit("any", None, lambda: _bring(job))]

    def settle(self, job: Job, results: Sequence[StageResult]) -> None:
        """Store the pin's commit in the job."""
        details = results[0].details
        assert isinstance(details, SourceDetails)  # noqa: S101  a pass has these details
        job.trees.pin_commit = details.commit


def _bring(job: Job) -> Finding:
    pin = job.patch.pin
    source = provided(job, pin)
    short = _DIGEST.sub(r"\1", source.detail)
    return Finding(
        Outcome.PASSED,
        f"{pin.title} from {short}",
        SourceDetails(
            kind=source.kind,
            commit=source.commit,
            tree=source.tree,
            origin=source.detail,
            failures=tuple(source.failures),
        ),
        # An outcome counts as cached if the store had the tree.
        cached=not source.fresh,
    )
