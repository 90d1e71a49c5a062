"""Tolerances as data with a reason: `checks/tolerances.toml`, and the measurements it rests on."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Final, Literal

from pydantic import Field, ValidationError

from contribbot.model.base import Line, Model, Name, Prose
from contribbot.numerics.limits import CannotJudgeError
from contribbot.numerics.records import Count, Finite, Integers
from contribbot.numerics.words import number

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
        """Return the largest difference that a tolerance may allow.

        Raises:
            ValueError: It has no such row.
        """
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
