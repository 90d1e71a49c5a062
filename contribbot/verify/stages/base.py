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

#: The inputs on which an outcome or an answer depends.
Inputs = dict[str, JsonValue]


@dataclass(frozen=True)
class Finding:
    """The outcome of a unit of work."""

    outcome: Outcome
    reason: str  # one line
    details: StageDetails | None = None  # the facts, for the record
    #: Whether the same inputs give the same outcome again. A crash or a time-out is not lasting,
    #: and is not remembered.
    lasting: bool = True
    proof: bool = True  # whether a pass from red to green proves the patch alone
    #: The duration of the work, where that is not the time from start to end (the work may wait
    #: for other work).
    seconds: float | None = None
    #: Whether the outcome comes from earlier work.
    cached: bool = False
    runner_fault: RunnerFault | None = None
    preflight: PreflightRecord | None = None
    patch_fault: PatchFault | None = None
    #: The packages on which the outcome depends beside the unit's inputs.
    packages: Packages = field(default_factory=Packages)


@dataclass(frozen=True)
class Unit:
    """A piece of work of a stage, with the inputs of its outcome."""

    target: str  # the hardware that the work needs, or `any`
    #: The inputs of the outcome, beside tool and machine; None: the work is done every time.
    inputs: Mapping[str, JsonValue] | None
    work: Callable[[], Finding]  # runs in a worker thread
    label: str = ""  # the name in messages; empty where the stage has one unit
    missing: str = ""  # why this machine cannot do the work, or empty
    limit: float = 0.0  # the time limit in seconds: longer work has a higher limit
    #: Makes an intermediate product, which changes less often than `inputs`, and by which an
    #: outcome may be remembered, too. None: no product.
    product: Callable[[], Mapping[str, JsonValue] | None] = lambda: None
    #: Whether a remembered outcome can still be used.
    usable: Callable[[StageResult], bool] = lambda _result: True


@dataclass(frozen=True)
class TreeAnswer:
    """The outcome of an entry on one tree, and the reason."""

    says: Says
    why: str
    lasting: bool = True  # as in `Finding`
    log: str = ""


@dataclass(frozen=True)
class Probe:
    """A fail-to-pass entry as a question to one tree."""

    label: str  # the name in messages
    target: str  # the hardware, or `any`
    ask: Callable[[Job, str], TreeAnswer]
    tools: Inputs = field(default_factory=dict)  # the inputs of the answer beside the tree
    paths: Sequence[str] = ()  # the files of the tree that the entry names


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
    """A kind of proof. A new stage is a file, a row in the registry, and a test."""

    #: The type of the stage's outcomes, which holds the stage's name.
    result: type[StageResult]
    #: Stages that must have passed before this stage.
    after: tuple[str, ...] = ("apply",)

    @property
    def name(self) -> str:
        """The name of the stage."""
        return self.result.stage_name()

    @abc.abstractmethod
    def units(self, job: Job) -> list[Unit]:
        """Return the stage's units of work; called after the end of the stages in `after`."""

    def probes(self, patch: Patch) -> Iterable[Probe]:  # noqa: ARG002  most have none
        """Return the fail-to-pass entries, for a tree without the patch."""
        return ()

    def settle(self, job: Job, results: Sequence[StageResult]) -> None:  # noqa: B027  optional
        """Store the facts in the stage's results that later stages need."""


def is_red(entry: Stated) -> bool:
    """Return whether an entry must fail without the patch."""
    return entry.expect == "fail-to-pass"


def absent(path: str) -> TreeAnswer:
    """Return the answer for an entry whose file the release lacks."""
    return TreeAnswer(Says.OTHER, f"{path} is not there, and git knows of no file that it became")


def answer(
    entry: Stated, problems: Sequence[str], *, good: str, lacking: str, crash: str, log: str = ""
) -> TreeAnswer:
    """Return the answer of one tree by a lack of this machine, a crash, or the tree's problems."""
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
