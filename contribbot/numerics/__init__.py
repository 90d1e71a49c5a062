"""The library for `[[numerics]]` checks of a patch: `from contribbot import numerics`.

A result is judged by the error that a reference of the *same* precision makes on the same input:
`error(actual) <= fudge * max(error(same_precision), floor)`; an error is the largest absolute
difference from a float64 reference. `Grid.each_cell` makes a pytest test of each cell, which runs
all seeds; `Draw` draws inputs and judges results. See `docs/numerics.md` for an example.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Final

from contribbot.model.record import CellRecord, OutputRecord

if TYPE_CHECKING:
    from contribbot.numerics.arithmetic import COMPUTATIONS, Arithmetic, Computation
    from contribbot.numerics.compare import CannotJudgeError, Limits
    from contribbot.numerics.explanation import Explanation, explain
    from contribbot.numerics.grid import LAYOUTS, Cell, Draw, Grid, lay_out
    from contribbot.numerics.recordings import Recording, record, recording

__all__ = [
    "COMPUTATIONS",
    "LAYOUTS",
    "Arithmetic",
    "CannotJudgeError",
    "Cell",
    "CellRecord",
    "Computation",
    "Draw",
    "Explanation",
    "Grid",
    "Limits",
    "OutputRecord",
    "Recording",
    "explain",
    "lay_out",
    "record",
    "recording",
]

#: Modules that need torch, and the names that each module provides.
_LATE: Final = {
    "arithmetic": {"COMPUTATIONS", "Arithmetic", "Computation"},
    "compare": {"CannotJudgeError", "Limits"},
    "explanation": {"Explanation", "explain"},
    "grid": {"LAYOUTS", "Cell", "Draw", "Grid", "lay_out"},
    "recordings": {"Recording", "record", "recording"},
}


def __getattr__(name: str) -> object:
    """Return a public name from a module that needs torch; import the module at the first use."""
    module = next((module for module, names in _LATE.items() if name in names), None)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value: object = getattr(importlib.import_module(f"{__name__}.{module}"), name)
    return value
