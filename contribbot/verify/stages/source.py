"""Stage `source`: the pinned tree is in the store."""

from __future__ import annotations

import re
from typing import Final

from contribbot.errors import IntegrityError, SourceError
from contribbot.git.sources import provide
from contribbot.model.evidence import Outcome, StageResult
from contribbot.model.pin import Pin
from contribbot.verify.job import Finding, Job, Unit

#: The record's details hold digests in full; a line for people need not.
_DIGEST: Final = re.compile(r"\b([0-9a-f]{12})[0-9a-f]{28}(?:[0-9a-f]{24})?\b")
_SHORT: Final = r"\1"


def provided(pin: Pin, detail: str) -> str:
    """Say where a pinned tree came from."""
    return f"{pin.title} from {_DIGEST.sub(_SHORT, detail)}"


class SourceStage:
    """Brings the pin's tree into the store, from the first source that has it."""

    name = "source"
    after: tuple[str, ...] = ()

    def units(self, job: Job) -> list[Unit]:
        """One unit, done every time: the store itself remembers."""
        return [Unit("any", None, lambda: self._provide(job))]

    def settle(self, job: Job, results: list[StageResult]) -> None:
        """Take the pinned commit over."""
        job.trees.pin_commit = str(results[0].details["commit"])

    def _provide(self, job: Job) -> Finding:
        pin = job.patch.pin
        try:
            got = provide(pin, job.patch.upstream, job.store, progress=job.progress)
        except IntegrityError:
            raise  # it gave something else than the pin names: for a person to look at
        except SourceError as error:
            # It says nothing about the patch: this machine could not look.
            next_step = f"; next: {error.hint}" if error.hint else ""
            return Finding(Outcome.UNAVAILABLE, error.message + next_step, lasting=False)
        return Finding(
            Outcome.PASSED,
            provided(pin, got.detail),
            {
                "kind": got.kind,
                "commit": got.commit,
                "tree": got.tree,
                "from": got.detail,
                "failed_before": list(got.failures),
                "already_there": not got.fresh,
            },
        )
