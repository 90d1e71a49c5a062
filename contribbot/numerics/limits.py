"""The error that a patch allows, as its `[[numerics]]` states it."""

from __future__ import annotations

import json
import os
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from pydantic import BaseModel

from contribbot.model.checks import Positive

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
        """Return a check's limits, of the variable or of the `patch.toml` beside its folder."""
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
