"""The error limits that a patch states in `[[numerics]]`."""

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

#: The variable with the limits: `{"fudge": 2.0, "floor": 1e-6}`, or a floor for each dtype.
VARIABLE: Final = "CONTRIBBOT_NUMERICS"


class CannotJudgeError(Exception):
    """A reference or the limits cannot judge a result: the check is broken, not the code."""

    #: The pytest process reads this mark: such an error never counts as the stated reason.
    contribbot_broken = True


class _Entry(BaseModel):
    """The keys of `[[numerics]]` in patch.toml that this module reads."""

    fudge: Positive
    floor: Positive | dict[str, Positive]


@dataclass(frozen=True)
class Limits:
    """The largest allowed error of a result.

    Attributes:
        fudge: The largest ratio of a result's error to the same-precision reference's error.
        floor: The least absolute error that is assumed for the reference; one number,
            or a number for each dtype, by name (`float16`).
    """

    fudge: float
    floor: float | Mapping[str, float]

    def floor_for(self, dtype: str) -> float:
        """Return the floor for a dtype, such as `bfloat16`."""
        if not isinstance(self.floor, Mapping):
            return self.floor
        if dtype not in self.floor:
            named = ", ".join(sorted(self.floor))
            raise CannotJudgeError(f"the patch states a floor for {named}, and none for {dtype}")
        return self.floor[dtype]

    @classmethod
    def stated(cls, check: Path) -> Limits:
        """Return the limits from the variable, or else from the patch.toml of a check file."""
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
    """Return the `[[numerics]]` entry of a check file in its patch.toml."""
    content = tomllib.loads((check.parent.parent / "patch.toml").read_text(encoding="utf-8"))
    for entry in content.get("numerics", ()):
        if entry["file"] == check.name:
            return entry
    raise LookupError("the patch has no [[numerics]] with this file")
