"""The stage: its work on two trees or on one, and its finding."""

from __future__ import annotations

import abc
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from pydantic import JsonValue

from contribbot.machine.machine import Packages
from contribbot.model.checks import Stated
from contribbot.model.evidence import Outcome, PatchFault, StageResult
from contribbot.model.lifecycle import Says
from contribbot.model.patch import Patch
from contribbot.model.record import PreflightRecord, RunnerFault, StageDetails
from contribbot.verify.job import Job
from contribbot.verify.runner_fault import UnavailableError

#: Everything that an outcome or an answer depends on.
Inputs = dict[str, JsonValue]


@dataclass(frozen=True)
class Finding:
    """The outcome of a unit of work."""

    outcome: Outcome
    reason: str  # one line that says why
    details: StageDetails | None = None  # the facts, for the record
    #: Whether the same inputs would give the same again. A crash or a time-out may not, and is not
    #: remembered.
    lasting: bool = True
    proof: bool = True  # whether it proves the patch by itself, where it goes from red to green
    #: How long the work took, where that is not the time from its start to its end (it may have
    #: waited for others).
    seconds: float | None = None
    #: Whether the work was done before, so that nothing was repeated.
    cached: bool = False
    runner_fault: RunnerFault | None = None
    preflight: PreflightRecord | None = None
    patch_fault: PatchFault | None = None
    #: On which the outcome depends, beside the inputs of its unit.
    packages: Packages = field(default_factory=Packages)


@dataclass(frozen=True)
class Unit:
    """One piece of work of a stage, with everything that its outcome depends on."""

    target: str  # the hardware that it needs, or `any`
    #: The inputs of the outcome, beside tool and machine; None: done every time.
    inputs: Mapping[str, JsonValue] | None
    work: Callable[[], Finding]  # runs in a worker thread
    label: str = ""  # what people call it; empty where the stage has one unit
    missing: str = ""  # why this machine cannot do it, or empty
    #: Makes what the outcome depends on, where that changes less often than `inputs`; asked where
    #: no outcome of these is remembered. None: it cannot be made.
    product: Callable[[], Mapping[str, JsonValue] | None] = lambda: None
    #: Whether a remembered outcome still holds for what is there now.
    usable: Callable[[StageResult], bool] = lambda _result: True


@dataclass(frozen=True)
class TreeAnswer:
    """The outcome of an entry on one tree, and why."""

    says: Says
    why: str
    lasting: bool = True  # as of a finding
    log: str = ""


@dataclass(frozen=True)
class Probe:
    """A fail-to-pass entry, as it is asked of one tree."""

    label: str  # what people call it
    target: str  # the hardware, or `any`
    ask: Callable[[Job, str], TreeAnswer]
    tools: Inputs = field(default_factory=dict)  # what the answer depends on, beside the tree
    paths: Sequence[str] = ()  # the files of the tree that it names


def unavailable(error: UnavailableError) -> Finding:
    """Return the finding of work that this machine could not do."""
    return Finding(
        Outcome.UNAVAILABLE,
        str(error),
        lasting=False,
        runner_fault=error.fault,
        preflight=error.preflight,
    )


class Stage(abc.ABC):
    """One kind of proof. A new one is one file, one row in the registry, one test."""

    #: The type of its outcomes, which has its name.
    result: type[StageResult]
    #: Stages that must have passed for this one to make sense.
    after: tuple[str, ...] = ("apply",)

    @property
    def name(self) -> str:
        """Its name."""
        return self.result.stage_name()

    @abc.abstractmethod
    def units(self, job: Job) -> list[Unit]:
        """Return the work to be done; called when the stages before it have ended."""

    def probes(self, patch: Patch) -> Iterable[Probe]:  # noqa: ARG002  most have none
        """Return the fail-to-pass entries, for a tree without the patch."""
        return ()

    def settle(self, job: Job, results: Sequence[StageResult]) -> None:  # noqa: B027  most need nothing
        """Take over from its results what later stages need."""


def is_red(entry: Stated) -> bool:
    """Say whether an entry must fail without the patch."""
    return entry.expect == "fail-to-pass"


def absent(path: str) -> TreeAnswer:
    """Answer for an entry that names a file which a release has not."""
    return TreeAnswer(Says.OTHER, f"{path} is not there, and git knows of no file that it became")


def answer(
    entry: Stated, problems: Sequence[str], *, good: str, lacking: str, crash: str, log: str = ""
) -> TreeAnswer:
    """Judge one tree by what this machine lacked, how a program crashed, and what is wrong."""
    if lacking or crash:
        says = Says.CANNOT if lacking else Says.OTHER
        return TreeAnswer(says, lacking or crash, lasting=False, log=log)
    for problem in problems:
        if not re.search(entry.reason, problem):
            why = f"fails for another reason than stated: {problem}"
            return TreeAnswer(Says.OTHER, why, log=log)
    if problems:
        return TreeAnswer(Says.FAILS, problems[0], log=log)
    return TreeAnswer(Says.PASSES, good, log=log)
