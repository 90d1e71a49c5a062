"""What the measuring child and its parent say to each other: one JSON document a line.

What a child sends was written by a process that runs a patch's code; the parent checks
the form of every answer.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from contribbot.model.base import Model

Positive = Annotated[float, Field(gt=0, allow_inf_nan=False, strict=False)]
Count = Annotated[int, Field(ge=0)]
#: A number of bytes or operations; any that can be divided.
Amount = Annotated[int, Field(gt=0, lt=2**63)]

#: Why a child could not do what it was asked.
#: `error`: the file or the tree's code raised. `memory`: there is not enough memory.
#: `fault`: the tree's code broke the GPU's context. `lost`: the GPU went away.
#: `missing`: the machine lacks something.
Kind = Literal["error", "memory", "fault", "lost", "missing"]


class Refused(Model):
    """The child could not do what it was asked.

    Attributes:
        kind: What kind of thing went wrong.
        error: `ExceptionType: message`.
    """

    kind: Kind
    error: str


class CaseInfo(Model):
    """A case as its file describes it."""

    name: Annotated[str, Field(min_length=1, max_length=200)]
    device: Literal["cpu", "cuda"]
    bytes_moved: Amount | None
    flops: Amount | None
    matmul: Literal["float16", "bfloat16", "float32", "float64"] | None


class Loaded(Model):
    """The file is imported.

    Attributes:
        cases: Its cases, in its order.
    """

    cases: Annotated[tuple[CaseInfo, ...], Field(strict=False)]


class Prepared(Model):
    """A case has its inputs and has run once.

    Attributes:
        memory: Bytes of device memory at the peak of a run, without what was there before
            it (the inputs); None on the processor.
        sets: Sets of inputs that take turns.
    """

    memory: Count | None
    sets: Annotated[int, Field(ge=1)]


class Measured(Model):
    """One round of one case.

    Attributes:
        seconds: The median time of a call.
        samples: How many times it was taken.
    """

    seconds: Positive
    samples: Annotated[int, Field(ge=1)]


class Done(Model):
    """It is done, and there is nothing to say about it."""


class Ceilings(Model):
    """What this machine can do at best, measured on the spot.

    Attributes:
        device: What the device is called.
        copy_rate: Bytes a second, read and written, of a large copy.
        matmul_rate: Operations a second of a large matrix multiplication, by element type.
    """

    device: str
    copy_rate: Positive
    matmul_rate: dict[str, Positive]
