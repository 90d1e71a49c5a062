"""What the `[[numerics]]` checks of a patch are written with: `from contribbot import numerics`.

A result is judged by the error that a reference of the *same* precision makes on the same input:
`error(actual) <= fudge * max(error(same_precision), floor)`, each the largest absolute one against
float64. `Grid.each_cell` makes one pytest test of each cell, and runs it once for each seed;
`Draw` draws its inputs and judges its results. `docs/numerics.md` has an example, and all of it.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Final

from contribbot.numerics.limits import CannotJudgeError, Limits
from contribbot.numerics.records import CellRecord, OutputRecord

if TYPE_CHECKING:
    from contribbot.numerics.arithmetic import Arithmetic
    from contribbot.numerics.computations import COMPUTATIONS, Computation
    from contribbot.numerics.draw import Cell, Draw
    from contribbot.numerics.explanation import Explanation, explain
    from contribbot.numerics.grid import Grid
    from contribbot.numerics.recordings import Recording, record, recording
    from contribbot.numerics.tensors import LAYOUTS, lay_out

__all__ = [
    "COMPUTATIONS", "LAYOUTS", "Arithmetic", "CannotJudgeError", "Cell", "CellRecord",
    "Computation", "Draw", "Explanation", "Grid", "Limits", "OutputRecord", "Recording", "explain",
    "lay_out", "record", "recording",
]  # fmt: skip

#: What needs torch, and the module that has it.
_LATE: Final = {
    "Arithmetic": "arithmetic", "COMPUTATIONS": "computations", "Cell": "draw",
    "Computation": "computations", "Draw": "draw", "Explanation": "explanation", "Grid": "grid",
    "LAYOUTS": "tensors", "Recording": "recordings", "explain": "explanation",
    "lay_out": "tensors", "record": "recordings", "recording": "recordings",
}  # fmt: skip


def __getattr__(name: str) -> object:
    """Import what needs torch when it is asked for: the stage reads records without it."""
    if name not in _LATE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value: object = getattr(importlib.import_module(f"{__name__}.{_LATE[name]}"), name)
    return value
