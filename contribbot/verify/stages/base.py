"""What a stage is: the work that it does, and what it found."""

from __future__ import annotations

import abc
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from pydantic import JsonValue

from contribbot.model.checks import Stated
from contribbot.model.evidence import Outcome, StageResult
from contribbot.verify.job import Job

Facts = dict[str, JsonValue]


@dataclass(frozen=True)
class Finding:
    """What a unit of work found."""

    outcome: Outcome
    reason: str  # one line that says why
    details: Facts = field(default_factory=dict)  # what was seen, for the record
    #: Whether the same inputs would give the same again. A crash or a time-out may not, and is not
    #: remembered.
    lasting: bool = True
    #: How long the work took, where that is not the time from its start to its end (it may have
    #: waited for others).
    seconds: float | None = None


@dataclass(frozen=True)
class Unit:
    """One piece of work of a stage, with everything that its outcome depends on."""

    target: str  # the hardware that it needs, or `any`
    #: What the outcome depends on, beside tool and machine; None: it is done every time.
    inputs: Mapping[str, JsonValue] | None
    work: Callable[[], Finding]  # runs in a worker thread
    label: str = ""  # what people call it; empty where the stage has one unit
    missing: str = ""  # why this machine cannot do it, or empty
    #: Makes what the outcome depends on, where that changes less often than `inputs`; asked where
    #: no outcome of these is remembered. None: it cannot be made.
    product: Callable[[], Mapping[str, JsonValue] | None] = lambda: None
    #: Whether a remembered outcome still stands on what is there now.
    usable: Callable[[StageResult], bool] = lambda _result: True


class Stage(abc.ABC):
    """One kind of proof. A new one is one file, one row in the registry, one test."""

    name: str
    #: Stages that must have passed for this one to make sense.
    after: tuple[str, ...] = ("apply",)

    @abc.abstractmethod
    def units(self, job: Job) -> list[Unit]:
        """Return the work to be done; called when the stages before it have ended."""

    def settle(self, job: Job, results: Sequence[StageResult]) -> None:  # noqa: B027  most need nothing
        """Take over from its results what later stages need."""


def stated_facts(entry: Stated) -> Facts:
    """Return what the record keeps of what a patch states."""
    return {"expect": entry.expect, "stated_reason": entry.reason}


def as_table(value: JsonValue) -> Facts:
    """Return a table of a record."""
    if not isinstance(value, dict):
        raise TypeError("a table is expected")
    return value
