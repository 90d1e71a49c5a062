"""Checks of a patch: what is run on the base tree and on the patched tree."""

from __future__ import annotations

import re
from typing import Annotated, Final, Literal

from pydantic import (
    AfterValidator,
    Field,
    JsonValue,
    SerializerFunctionWrapHandler,
    StringConstraints,
    model_serializer,
    model_validator,
)

from contribbot.model.base import Model, Name, Pattern

_ORDERS: Final = ("PYTHON", "PYTEST", "COVERAGE", "CONTRIBBOT", "LD_")


def _is_the_checks_own(name: str) -> str:
    if name.startswith(_ORDERS):
        raise ValueError(f"{name}: a check may not give orders to pytest, Python or the loader")
    return name


#: What a check needs: hardware (`cpu`, `cuda`, a gfx target) or an importable module.
Requirement = Annotated[
    str,
    StringConstraints(
        pattern=r"^(cpu|cuda|gfx[0-9a-f]{3,5}|python:[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*)$"
    ),
]
#: An LLVM AMDGPU target.
GfxTarget = Annotated[str, StringConstraints(pattern=r"^gfx[0-9a-f]{3,5}$")]
#: Hardware that something is built for or runs on.
Target = Annotated[str, StringConstraints(pattern=r"^(cpu|cuda|gfx[0-9a-f]{3,5})$")]
#: A pytest file directly inside `checks/`.
CheckFile = Annotated[str, StringConstraints(pattern=r"^test_[A-Za-z0-9_]+\.py$")]
VariableName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")]
VariableValue = Annotated[str, StringConstraints(pattern=r"^[^\x00]*$")]
Environment = dict[VariableName, VariableValue]
#: Without what pytest, Python or the loader takes orders by.
CheckEnvironment = dict[Annotated[VariableName, AfterValidator(_is_the_checks_own)], VariableValue]
Seconds = Annotated[float, Field(gt=0, le=86_400, strict=False)]

#: A failure of no particular kind; a stated reason must tell itself from it.
_NO_REASON: Final = "Error: x"
Expectation = Literal["fail-to-pass", "pass-to-pass"]


class Stated(Model):
    """What must happen on the base and on the patched tree.

    Attributes:
        expect: `fail-to-pass`: fails on the base for the stated reason and passes
            on the patched tree. `pass-to-pass`: passes on both.
        reason: Regular expression, searched in each failure on the base. Only for
            fail-to-pass, and required there.
    """

    expect: Expectation
    reason: Pattern = ""

    @model_validator(mode="after")
    def _reason_fits(self) -> Stated:
        if self.expect == "pass-to-pass":
            if self.reason:
                raise ValueError("reason: only a fail-to-pass check states why the base fails")
            return self
        if not self.reason:
            raise ValueError("reason: a fail-to-pass check must state why the base fails")
        if re.search(self.reason, "") or re.search(self.reason, _NO_REASON):
            raise ValueError("reason: matches every failure, so it states no reason")
        return self


class Needy(Model):
    """Something that runs only where what it needs is there.

    Attributes:
        requires: One hardware target and any number of `python:MODULE`.
    """

    requires: Annotated[tuple[Requirement, ...], Field(strict=False, min_length=1)] = ("cpu",)

    @model_validator(mode="after")
    def _one_target(self) -> Needy:
        hardware = [need for need in self.requires if not need.startswith("python:")]
        if len(hardware) != 1:
            raise ValueError("requires: name exactly one of cpu, cuda or a gfx target")
        return self

    @property
    def target(self) -> str:
        """The hardware that it runs on: `cpu`, `cuda` or a gfx target."""
        return next(need for need in self.requires if not need.startswith("python:"))

    @property
    def modules(self) -> tuple[str, ...]:
        """The Python modules that must be importable."""
        return tuple(need[7:] for need in self.requires if need.startswith("python:"))


class Check(Stated, Needy):
    """A pytest file of a patch, run on the base tree and on the patched tree.

    Every test of the file must do what `expect` says; `reason` is searched in
    `ExceptionType: message`.

    Attributes:
        name: How outcomes call it.
        file: The file in `checks/`.
        build: The `[[build]]` whose product it loads, or empty.
        timeout: Seconds that one run may take.
        env: Environment variables for it.
        kernels: Regular expressions; each must be found in the name of a kernel that ran
            on the GPU under the patched tree.
    """

    name: Name
    file: CheckFile
    build: Name | Literal[""] = ""
    timeout: Seconds = 120.0
    env: CheckEnvironment = Field(default_factory=dict)
    kernels: Annotated[tuple[Pattern, ...], Field(strict=False)] = ()

    @model_validator(mode="after")
    def _kernels_are_a_gpus(self) -> Check:
        if self.kernels and self.target == "cpu":
            raise ValueError("kernels: only a check on a GPU runs any")
        if any(re.search(one, "") for one in self.kernels):
            raise ValueError("kernels: one is found in every name, so it states nothing")
        return self

    @model_serializer(mode="wrap")
    def _without_what_is_not_stated(
        self, dump: SerializerFunctionWrapHandler
    ) -> dict[str, JsonValue]:
        """Leave `kernels` out where none are stated.

        The digest of checks is over this text: a key that was not there when a record was
        made would make the record stale though nothing was changed.
        """
        fields: dict[str, JsonValue] = dump(self)
        if not self.kernels:
            fields.pop("kernels", None)
        return fields
