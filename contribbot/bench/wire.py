"""What the measuring child and its parent say to each other: one JSON document a line.

What a child sends was written by a process that runs a patch's code; the parent checks
the form of every answer.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from contribbot.bench.results import Finding
from contribbot.model.base import Line, Model

Positive = Annotated[float, Field(gt=0, allow_inf_nan=False, strict=False)]
Count = Annotated[int, Field(ge=0)]
#: A number of bytes or operations; any that can be divided.
Amount = Annotated[int, Field(gt=0, lt=2**63)]
#: Below 1: what is 0 lies within 1 of everything.
Relative = Annotated[float, Field(ge=0, lt=1, strict=False)]
Absolute = Annotated[float, Field(ge=0, allow_inf_nan=False, strict=False)]

#: Why a child could not do what it was asked.
#: `error`: the file or the tree's code raised. `memory`: there is not enough memory.
#: `fault`: the tree's code broke the GPU's context. `lost`: the GPU went away.
#: `missing`: the machine lacks something. `uncomparable`: the result cannot be compared.
Kind = Literal["error", "memory", "fault", "lost", "missing", "uncomparable"]


class Refused(Model):
    """The child could not do what it was asked; `error` is `ExceptionType: message`."""

    kind: Kind
    error: str


class CaseInfo(Model):
    """A case as its file describes it."""

    name: Annotated[str, Field(min_length=1, max_length=200)]
    device: Literal["cpu", "cuda"]
    bytes_moved: Amount | None
    flops: Amount | None
    matmul: Literal["float16", "bfloat16", "float32", "float64"] | None
    rtol: Relative | None = None
    atol: Absolute | None = None
    not_compared: Annotated[Line, Field(max_length=200)] | Literal[""] = ""


class Loaded(Model):
    """The file is imported: its cases, in its order."""

    cases: Annotated[tuple[CaseInfo, ...], Field(strict=False)]


class Prepared(Model):
    """A case has its inputs (so many sets, which take turns) and has run once.

    `memory` is the peak of a run in bytes on the device, without the inputs.
    """

    memory: Count | None
    sets: Annotated[int, Field(ge=1)]


class Measured(Model):
    """One round of one case: the median time of a call, over so many samples."""

    seconds: Positive
    samples: Annotated[int, Field(ge=1)]


class Computed(Model):
    """A case has computed its results; `unlike` says how they differ when it does so again."""

    unlike: str


class Compared(Model):
    """The base's side has compared its results with the patched tree's."""

    finding: Annotated[Finding, Field(strict=False)]
    text: str


class Done(Model):
    """It is done, and there is nothing to say about it."""


class Ceilings(Model):
    """What this machine can do at best, measured on the spot.

    `copy_rate` is in bytes a second, read and written; `matmul_rate` in operations a second,
    by element type.
    """

    device: str
    copy_rate: Positive
    matmul_rate: dict[str, Positive]
