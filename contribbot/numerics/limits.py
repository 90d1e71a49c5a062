"""How much error a patch allows, by its `[[numerics]]`, or by a tolerance that was measured."""

from __future__ import annotations

import json
import os
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Final, Literal

from pydantic import BaseModel, Field, ValidationError

from contribbot.model.base import Line, Model, Name, Prose
from contribbot.model.checks import Positive
from contribbot.numerics.records import Count, Finite, Integers
from contribbot.numerics.words import number

#: Set by the stage: `{"fudge": 2.0, "floor": 1e-6}`, or a floor for each dtype.
VARIABLE: Final = "CONTRIBBOT_NUMERICS"


class CannotJudgeError(Exception):
    """A reference, or the limits, can judge nothing: the check is broken, not the code."""

    #: Read by the child pytest: never the stated reason of a failure.
    contribbot_broken = True


class _Entry(BaseModel):
    """The part of a `[[numerics]]` that is read here."""

    fudge: Positive
    floor: Positive | dict[str, Positive]


@dataclass(frozen=True)
class Limits:
    """The error that is allowed.

    Attributes:
        fudge: How many times the same-precision reference's own error.
        floor: The absolute error below which that error is not believed; one number,
            or one for each dtype, by name (`float16`).
    """

    fudge: float
    floor: float | Mapping[str, float]

    def floor_for(self, dtype: str) -> float:
        """Return the floor of a dtype, such as `bfloat16`."""
        if not isinstance(self.floor, Mapping):
            return self.floor
        if dtype not in self.floor:
            named = ", ".join(sorted(self.floor))
            raise CannotJudgeError(f"the patch states a floor for {named}, and none for {dtype}")
        return self.floor[dtype]

    @classmethod
    def stated(cls, check: Path) -> Limits:
        """Return what the variable, or the `patch.toml` beside its folder, states for a check."""
        text = os.environ.get(VARIABLE, "")
        try:
            entry = _Entry.model_validate(json.loads(text) if text else _beside(check))
        except (OSError, LookupError, ValueError) as error:
            raise CannotJudgeError(
                f"no fudge and floor for {check.name}: set {VARIABLE} to "
                '{"fudge": 2, "floor": 1e-6}, or state them in its [[numerics]] of the patch.toml'
                f" beside checks/ ({type(error).__name__}: {error})"
            ) from None
        return cls(entry.fudge, entry.floor)


def _beside(check: Path) -> object:
    """Read the entry of a check file from its patch."""
    content = tomllib.loads((check.parent.parent / "patch.toml").read_text(encoding="utf-8"))
    for entry in content.get("numerics", ()):
        if entry["file"] == check.name:
            return entry
    raise LookupError("the patch has no [[numerics]] with this file")


#: The file beside a patch's checks.
TOLERANCES: Final = "tolerances.toml"
#: Times what was measured that a tolerance may allow: other inputs err otherwise.
MARGIN: Final = 4.0
#: What torch.testing.assert_close takes unless told (torch/testing/_comparison.py).
TORCH_DEFAULTS: Final = {
    "float16": (1e-3, 1e-5), "bfloat16": (1.6e-2, 1e-5), "float32": (1.3e-6, 1e-5),
}  # fmt: skip
_Bound = Annotated[float, Field(ge=0, strict=False, allow_inf_nan=False)]


class Tolerance(Model):
    """How far two results may lie apart: `abs(a - b) <= atol + rtol * abs(b)`."""

    name: Name
    rtol: _Bound
    atol: _Bound
    floor: Line  # a file beside it, by `contribbot numerics floor`
    arithmetic: Line | Literal[""] = ""  # a row of it, where not only the order may differ
    why: Prose


class ErrorSpread(Model):
    """How far results of one computation lie apart."""

    max_abs: Finite
    max_rel: Finite | None
    max_ulps: Count


class NoiseFloor(Model):
    """How far a computation's results lie apart by arithmetic alone, on some inputs."""

    computation: Line
    dtype: Line
    shapes: dict[str, Integers]
    device: Line
    versions: dict[str, str]
    largest: Finite  # magnitude in the result
    orders: Count  # of summation
    floor: ErrorSpread  # over those, and the recorded result
    arithmetics: dict[str, ErrorSpread]  # each against the usual one

    def allows(self, arithmetic: str) -> float:
        """Return the largest difference that a tolerance may allow."""
        if arithmetic and arithmetic not in self.arithmetics:
            raise ValueError(f"no arithmetic {arithmetic!r} was measured")
        more = self.arithmetics[arithmetic].max_abs if arithmetic else 0.0
        return MARGIN * (self.floor.max_abs + more)


def tolerance(name: str, check: Path | str) -> dict[str, float]:
    """Return `rtol` and `atol` for `torch.testing.assert_close`.

    Args:
        name: Of a `[[tolerances]]` in `tolerances.toml`.
        check: The check file beside it: `__file__`.

    Raises:
        CannotJudgeError: None of that name is stated, or it is wider than its measurement.
    """
    folder = Path(check).parent
    files = {path.name: path.read_bytes() for path in folder.glob("*.[tj][os][mo][ln]")}
    found: Tolerance | None = None
    try:
        found = next((entry for entry in _stated(files) if entry.name == name), None)
    except ValueError as error:
        raise CannotJudgeError(f"{folder / TOLERANCES}: {error}") from None
    if found is None:
        raise CannotJudgeError(f"{folder / TOLERANCES}: no tolerance {name}")
    if problem := _problem(found, files):
        raise CannotJudgeError(problem)
    return {"rtol": found.rtol, "atol": found.atol}


def problems(files: Mapping[str, bytes]) -> Iterator[str]:
    """Say which tolerances among a patch's check files no measurement supports."""
    try:
        stated = _stated(files)
    except ValueError as error:
        yield f"checks/{TOLERANCES}: {error}"
        return
    for entry in stated:
        if problem := _problem(entry, files):
            yield f"checks/{TOLERANCES}: {problem}"


def _stated(files: Mapping[str, bytes]) -> list[Tolerance]:
    content = tomllib.loads(files.get(TOLERANCES, b"").decode())
    if content.keys() - {"tolerances"}:
        raise ValueError("holds [[tolerances]] and nothing else")
    try:
        return [Tolerance.model_validate(entry) for entry in content.get("tolerances", [])]
    except ValidationError as error:
        first = error.errors()[0]
        raise ValueError(f"{'.'.join(map(str, first['loc']))}: {first['msg']}") from None


def _problem(entry: Tolerance, files: Mapping[str, bytes]) -> str:
    if entry.floor not in files:
        write = f"contribbot numerics floor RECORD --json > {entry.floor}"
        return f"{entry.name}: no file {entry.floor}; write it: {write}"
    try:
        measured = NoiseFloor.model_validate_json(files[entry.floor])
        most = measured.allows(entry.arithmetic)
    except ValidationError:
        return f"{entry.name}: {entry.floor} is not by `numerics floor`"
    except ValueError as error:
        return f"{entry.name}: {entry.floor}: {error}"
    allowed = entry.atol + entry.rtol * measured.largest
    if allowed <= most:
        return ""
    return (
        f"{entry.name}: allows {number(allowed)} at the largest value, {number(measured.largest)};"
        f" its measurement supports {number(most)}, {MARGIN:g} times what was seen"
    )
