"""A stage of a verification, its units of work, and their findings and answers."""

from __future__ import annotations

import abc
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from pydantic import JsonValue

from contribbot.machine import Packages
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
    """The result of a unit of work."""

    outcome: Outcome
    reason: str  # one line
    details: StageDetails | None = None  # the facts for the record
    #: Whether the same inputs give the same outcome again, which is then cached. A crash
    #: or a time-out is not lasting.
    lasting: bool = True
    proof: bool = True  # whether red to green proves the patch alone
    #: The duration of the work in seconds; None: the time from start to end. The work may wait for
    #: other work.
    seconds: float | None = None
    #: Whether the outcome comes from earlier work.
    cached: bool = False
    runner_fault: RunnerFault | None = None
    preflight: PreflightRecord | None = None
    patch_fault: PatchFault | None = None
    #: The packages on which the outcome depends, in addition to the unit's inputs.
    packages: Packages = field(default_factory=Packages)


@dataclass(frozen=True)
class Unit:
    """A piece of a stage's work, with the inputs of the outcome."""

    target: str  # the hardware that the work needs, or `any`
    #: The inputs of the outcome, without tool and machine; None: the work is done every time.
    inputs: Mapping[str, JsonValue] | None
    work: Callable[[], Finding]  # called in a thread
    label: str = ""  # the name in messages; empty if the stage has one unit
    missing: str = ""  # why this machine cannot do the work, or empty
    limit: float = 0.0  # the time limit in seconds; units with a high limit begin first
    #: Makes an intermediate product and returns its inputs, which change less often than `inputs`.
    #: The outcome is also cached under the product's inputs. None: no product.
    product: Callable[[], Mapping[str, JsonValue] | None] = lambda: None
    #: Whether a cached outcome can still be used.
    usable: Callable[[StageResult], bool] = lambda _result: True


@dataclass(frozen=True)
class TreeAnswer:
    """The answer of an entry on one tree, with the reason."""

    says: Says
    why: str
    lasting: bool = True  # whether the same tree gives the same answer again
    log: str = ""


@dataclass(frozen=True)
class Probe:
    """A fail-to-pass entry, which can be run on one tree without the patch."""

    label: str  # the name in messages
    target: str  # the hardware that the entry needs, or `any`
    ask: Callable[[Job, str], TreeAnswer]
    tools: Inputs = field(default_factory=dict)  # the inputs of the answer, without the tree
    paths: Sequence[str] = ()  # the paths of the tree that the entry names


def unavailable(error: UnavailableError) -> Finding:
    """Return the finding for work that this machine could not do."""
    return Finding(
        Outcome.UNAVAILABLE,
        str(error),
        lasting=False,
        runner_fault=error.fault,
        preflight=error.preflight,
    )


class Stage(abc.ABC):
    """A step of a verification; a new stage needs a file, a row in `pipeline.STAGES` and a test."""

    #: The type of the stage's results, which has the stage's name.
    result: type[StageResult]
    #: The stages that must have passed before this stage.
    after: tuple[str, ...] = ("apply",)

    @property
    def name(self) -> str:
        """The name of the stage."""
        return self.result.stage_name()

    @abc.abstractmethod
    def units(self, job: Job) -> list[Unit]:
        """Return the units of the stage; called when the stages in `after` have ended."""

    def probes(self, patch: Patch) -> Iterable[Probe]:  # noqa: ARG002  most stages have none
        """Return the probes of the fail-to-pass entries, for a tree without the patch."""
        return ()

    def settle(self, job: Job, results: Sequence[StageResult]) -> None:  # noqa: B027  optional
        """Store facts from the stage's results in the job, for later stages."""


def is_red(entry: Stated) -> bool:
    """Return whether an entry must fail without the patch."""
    return entry.expect == "fail-to-pass"


def absent(path: str) -> TreeAnswer:
    """Return the answer of an entry that names a file which the tree lacks."""
    return TreeAnswer(Says.OTHER, f"{path} is not there, and git knows of no file that it became")


def answer(
    entry: Stated, problems: Sequence[str], *, good: str, lacking: str, crash: str, log: str = ""
) -> TreeAnswer:
    """Return the answer of a tree, from the machine's lack, a crash, or the tree's problems."""
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
