"""The entries of a `patch.toml` that verify a patch: checks, compiles, builds and benches."""

from __future__ import annotations

import operator
import re
from typing import Annotated, Final, Literal

from pydantic import AfterValidator, Field, JsonValue, model_validator

from contribbot.model.base import (
    Line,
    Lines,
    Many,
    Model,
    Name,
    Pattern,
    Prose,
    Some,
    TreePath,
    TreePaths,
    form,
)

#: Prefixes of variables that control pytest, Python, contribbot or the loader.
_ORDERS: Final = ("PYTHON", "PYTEST", "CONTRIBBOT", "LD_")


def _is_the_checks_own(name: str) -> str:
    if name.startswith(_ORDERS):
        raise ValueError(f"{name}: a check may not give orders to pytest, Python or the loader")
    return name


#: A requirement of a check: hardware (`cpu`, `cuda`, a gfx target) or an importable module.
Requirement = Annotated[
    str,
    form(
        r"^(cpu|cuda|gfx[0-9a-f]{3,5}|python:[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*)$",
        "cpu, cuda, a target such as gfx942, or python:MODULE",
    ),
]
GfxTarget = Annotated[str, form(r"^gfx[0-9a-f]{3,5}$", "a target such as gfx942")]
Target = Annotated[
    str, form(r"^(cpu|cuda|gfx[0-9a-f]{3,5})$", "cpu, cuda or a target such as gfx942")
]

#: The prefix of a target whose code the emulator executes on a CPU.
EMULATED: Final = "emulated:"


def is_emulated(target: str) -> bool:
    """Return whether a target is an emulated GPU."""
    return target.startswith(EMULATED)


CheckFile = Annotated[str, form(r"^test_[A-Za-z0-9_]+\.py$", "test_NAME.py, a file in checks/")]
VariableName = Annotated[str, form(r"^[A-Za-z_][A-Za-z0-9_]*$", "the name of a variable")]
VariableValue = Annotated[str, form(r"^[^\x00]*$", "text without a NUL")]
Environment = dict[VariableName, VariableValue]
#: A check's environment variables, without those that control pytest, Python or the loader.
CheckEnvironment = dict[Annotated[VariableName, AfterValidator(_is_the_checks_own)], VariableValue]
Seconds = Annotated[float, Field(gt=0, le=86_400, strict=False)]
#: A version on a package index, written as in the archive's name, since versions compare as text.
Version = Annotated[str, form(r"^[A-Za-z0-9.!+_-]+$", "a version such as 2.9.1")]

#: A failure that says nothing; a stated reason must not match this text.
_NO_REASON: Final = "Error: x"
Expectation = Literal["fail-to-pass", "pass-to-pass"]


def stated_line(reason: str, message: str) -> str:
    """Return a message's first line that matches the stated reason, or else the first line."""
    lines = message.splitlines() or [""]
    return next((line.strip() for line in lines if re.search(reason, line)), lines[0])


class Stated(Model):
    """The result that an entry must have on the base and on the patched tree."""

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
            raise ValueError(
                f"reason: matches {_NO_REASON!r} too, a failure that says nothing; state more of it"
            )
        return self


class Needy(Model):
    """An entry that runs only on a machine with certain hardware and Python modules."""

    requires: Some[Requirement] = ("cpu",)

    @model_validator(mode="after")
    def _one_target(self) -> Needy:
        hardware = [need for need in self.requires if not need.startswith("python:")]
        if len(hardware) != 1:
            raise ValueError("requires: name exactly one of cpu, cuda or a gfx target")
        return self

    @property
    def target(self) -> str:
        """The hardware that the entry runs on: `cpu`, `cuda` or a gfx target."""
        return next(need for need in self.requires if not need.startswith("python:"))

    @property
    def targets(self) -> tuple[str, ...]:
        """The target alone in a tuple, as entries for several targets have a tuple of targets."""
        return (self.target,)

    @property
    def modules(self) -> tuple[str, ...]:
        """The names of the Python modules that must be importable."""
        return tuple(need[7:] for need in self.requires if need.startswith("python:"))


class Check(Stated, Needy):
    """A pytest file, run on both trees; `reason` is searched in `ExceptionType: message`."""

    name: Name
    file: CheckFile
    build: Name | Literal[""] = ""
    timeout: Seconds = 120.0
    env: CheckEnvironment = Field(default_factory=dict)

    @model_validator(mode="before")
    @classmethod
    def _shortest(cls, stated: object) -> object:
        """Add defaults: an entry's name from its file, and the expectation fail-to-pass."""
        if not isinstance(stated, dict):
            return stated
        name = str(stated.get("file", "")).removeprefix("test_").removesuffix(".py").lower()
        return {"name": name, "expect": "fail-to-pass", **stated}

    @property
    def title(self) -> str:
        """The name of the entry in outcomes."""
        return self.name


#: The default targets of a `[[compile]]` entry: CDNA 2 to 4, RDNA 2 to 4.
DEFAULT_TARGETS: Final = ("gfx90a", "gfx942", "gfx950", "gfx1030", "gfx1100", "gfx1201")

Mnemonic = Annotated[str, form(r"^[a-z][a-z0-9_]*$", "a name of a-z, 0-9 and _")]
#: Suffixes of sources for the host's C++ compiler, and for nvcc or hipcc.
_CPP: Final = (".cpp", ".cc", ".cxx")
_KERNELS: Final = (".cu", ".hip")
BenchFile = Annotated[str, form(r"^bench_[A-Za-z0-9_]+\.py$", "bench_NAME.py, a file in checks/")]
Positive = Annotated[float, Field(gt=0, strict=False, allow_inf_nan=False)]
DtypeName = Annotated[str, form(r"^[a-z][a-z0-9_]*$", "a name of a-z, 0-9 and _")]


class Hipify(Stated):
    """The result that the upstream's hipify step must have."""

    expect: Expectation = "pass-to-pass"
    sources: TreePaths = ()


class Compile(Stated):
    """A source to compile for AMD targets; `reason` matches the error or condition on the base."""

    name: Name
    kind: Literal["hip", "triton"] = "hip"
    source: TreePath
    targets: Some[GfxTarget] = DEFAULT_TARGETS
    kernels: Pattern = ""
    instructions: dict[GfxTarget, Many[Mnemonic]] = Field(default_factory=dict)
    fewer_instructions: Many[GfxTarget] = ()
    no_spills: bool = False
    include: TreePaths = ()
    defines: Lines = ()
    timeout: Seconds = 300.0
    function: Annotated[
        str, form(r"^(?:[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*)?$", "a function, or Class.function")
    ] = ""
    signature: dict[str, Line] = Field(default_factory=dict)
    constants: dict[str, JsonValue] = Field(default_factory=dict)
    num_warps: Annotated[int, Field(ge=1, le=32)] = 4
    #: None: Triton's default for the target (and not in the digest of checks).
    num_stages: Annotated[int, Field(ge=1)] | None = Field(default=None, exclude_if=operator.not_)
    #: Environment variables for the import of a Triton kernel's file. An empty `env` is left out of
    #: the digest of checks, so that records older than this key stay valid.
    env: CheckEnvironment = Field(default_factory=dict, exclude_if=operator.not_)
    #: The release of Triton; empty: the pin's first release (and not in the digest of checks).
    triton: Version | Literal[""] = Field(default="", exclude_if=operator.not_)

    @model_validator(mode="after")
    def _fits_its_kind(self) -> Compile:
        if (self.kind == "triton") != bool(self.function):
            raise ValueError("function: kind triton names one, kind hip has none")
        if self.env and self.kind == "hip":
            raise ValueError("env: kind triton has one, kind hip has `defines`")
        if self.triton and self.kind == "hip":
            raise ValueError("triton: kind hip is compiled without it")
        claims = {"instructions": self.instructions, "fewer_instructions": self.fewer_instructions}
        for key, target in ((key, target) for key, stated in claims.items() for target in stated):
            if target not in self.targets:
                listed = ", ".join(self.targets)
                raise ValueError(f"{key}: {target} is not among the targets: {listed}")
        return self


#: The targets that `contribbot.emulate` models.
EMULATED_TARGETS: Final = (
    *("gfx90a", "gfx942", "gfx950"),
    *("gfx1100", "gfx1150", "gfx1151", "gfx1152", "gfx1201"),
)


#: The environment variable with the limits of an error: `{"fudge": 2.0, "floor": 1e-6}`, or a floor
#: for each dtype.
LIMITS_VARIABLE: Final = "CONTRIBBOT_NUMERICS"


class Numerics(Check):
    """A check whose results are judged against a reference of higher precision."""

    fudge: Positive
    floor: Positive | dict[DtypeName, Positive]
    why: Prose


class EmulatedCheck(Check):
    """An `[[emulated]]` entry for one of its targets: a check on an emulated GPU."""

    #: The `[[compile]]` whose kernels the check launches; empty: the tree launches its own kernels.
    compile: Name | Literal[""] = ""
    triton: Version | Literal[""] = Field(default="", exclude_if=operator.not_)
    emulated: GfxTarget

    @property
    def title(self) -> str:
        """The check's name and emulated target."""
        return f"{self.name} for {EMULATED}{self.emulated}"


class EmulatedNumerics(EmulatedCheck, Numerics):
    """An emulated check whose results are judged against a reference of higher precision."""


class Emulated(Stated):
    """A pytest file that runs on an emulated GPU: compiled kernels, or the tree through torch."""

    name: Name
    file: CheckFile
    compile: Name | Literal[""] = ""
    targets: Some[GfxTarget]
    timeout: Seconds = 300.0
    env: CheckEnvironment = Field(default_factory=dict)
    #: The release of Triton, as in `Compile.triton`.
    triton: Version | Literal[""] = Field(default="", exclude_if=operator.not_)
    fudge: Positive | None = None
    floor: Positive | dict[DtypeName, Positive] | None = None
    why: Prose | Literal[""] = ""

    @model_validator(mode="after")
    def _modelled(self) -> Emulated:
        for target in self.targets:
            if target not in EMULATED_TARGETS:
                known = ", ".join(EMULATED_TARGETS)
                raise ValueError(f"targets: {target} is not emulated; {known} are")
        if self.triton and self.compile:
            raise ValueError(f"triton: the [[compile]] {self.compile} states it")
        if len({bool(self.fudge), self.floor is not None, bool(self.why)}) > 1:
            raise ValueError("fudge, floor and why: all three, or none")
        return self

    @property
    def checks(self) -> tuple[EmulatedCheck, ...]:
        """The checks of this entry, one for each target."""
        kind = EmulatedCheck if self.fudge is None else EmulatedNumerics
        stated = self.model_dump(exclude={"targets"}, exclude_none=True)
        if self.fudge is None:
            stated.pop("why")
        return tuple(kind.model_validate({**stated, "emulated": t}) for t in self.targets)


class Bench(Needy):
    """A bench file, measured on the base and on the patched tree in turns."""

    name: Name
    file: BenchFile
    build: Name | Literal[""] = ""
    cases: Pattern = ""
    at_least: Positive
    memory_at_most: Positive | None = None
    rounds: Annotated[int, Field(ge=6, le=200)] = 9
    timeout: Seconds = 600.0
    env: CheckEnvironment = Field(default_factory=dict)

    @model_validator(mode="after")
    def _memory_is_a_gpus(self) -> Bench:
        if self.memory_at_most is not None and self.target == "cpu":
            raise ValueError("memory_at_most: memory is measured on a GPU only")
        return self


class Build(Stated):
    """A build of an extension or a whole tree, on base and patched tree, for checks to load."""

    name: Name
    way: Literal["extension", "full"]
    expect: Expectation = "pass-to-pass"
    sources: TreePaths = ()
    binding: TreePath | Literal[""] = ""
    include: TreePaths = ()
    defines: Lines = ()
    flags: Lines = ()
    targets: Some[Target]
    timeout: Seconds | None = None

    @model_validator(mode="after")
    def _fits_its_way(self) -> Build:
        stated = (self.sources, self.binding, self.include, self.defines, self.flags)
        if self.way == "full" and any(stated):
            raise ValueError(
                "way full: the upstream's recipe knows its sources, binding, include, defines"
                " and flags"
            )
        if self.way == "extension" and not self.sources:
            raise ValueError("sources: an extension is made of some")
        for source in (*self.sources, *((self.binding,) if self.binding else ())):
            if not source.endswith((*_CPP, *_KERNELS)):
                raise ValueError(
                    f"{source}: cpp_extension compiles {', '.join((*_CPP, *_KERNELS))}"
                )
            if "cpu" in self.targets and not source.endswith(_CPP):
                raise ValueError(f"{source}: for cpu, sources are {', '.join(_CPP)}")
        return self
