"""What the `[[numerics]]` checks of a patch are written with: `from contribbot import numerics`.

A result is judged by the error that a reference of the *same* precision makes on the same
input, never by a number picked by hand:

```python
import torch
from contribbot.numerics import Draw, Grid

GRID = Grid(
    {
        "dtype": [torch.float16, torch.bfloat16],
        "shape": [(7, 64), (16, 4, 32)],
        "layout": ["contiguous", "packed", "misaligned"],
        "scale": [1.0, 100.0],
    },
    seeds=5,
)


@GRID.each_cell
def test_softmax(draw: Draw) -> None:
    x = draw.normal(*draw.shape, std=draw.axis("scale", float), layout=draw.layout)
    draw.judge(
        "output",
        lambda: kernel_under_test(x),
        reference=torch.softmax(x.double(), dim=-1),
        same_precision=torch.softmax(x, dim=-1),
    )
```

`each_cell` makes one pytest test of each cell, such as
`test_softmax[float16 7x64 packed scale=100.0]`, and runs the function once for each seed.
Other fixtures and parameters may follow `draw`. `docs/numerics.md` says more.

`Draw.judge(name, actual, reference=…, same_precision=…)`:

- `actual` is a function that returns the result. Only there may the tree under test run: what
  judges is digested before, on both trees, and must be the same.
- `reference` is float64 (complex128 for complex results) and finite; so is what
  `same_precision` holds. If they are not, they can judge nothing: `CannotJudgeError`,
  which is never the stated reason of a failure.
- The result fails plainly if it is no tensor, has another shape or dtype than
  `same_precision`, lies on another device than the grid's, or holds NaN or infinity.
- An input that it overwrites on the patched tree, and not on the base, shows nothing; neither does
  a result that zeros or a constant would pass, or a row of 8 or more elements that is no better.
- What is judged is the largest absolute error over the tensor:
  `error(actual) <= fudge * max(error(same_precision), floor)`, with `fudge` and `floor`
  from the patch's `[[numerics]]`, or from `CONTRIBBOT_NUMERICS='{"fudge": 2, "floor": 1e-6}'`.

`Draw.judge_exact(name, actual, expected)`: the same bits, for quantised results. NaN and
infinity fail here as well; to compare their bits, view both sides as integers.

Values are drawn on the CPU in float64 from a generator of the cell and the seed, rounded to
the dtype, and then moved: a CPU and a GPU see the same input, and so do all dtypes and all
layouts. `LAYOUTS` lists the layouts; memory beside a view is filled with NaN, so that a
kernel that reads past its rows is caught.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Final

from contribbot.numerics.limits import CannotJudgeError, Limits, tolerance
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
    "lay_out", "record", "recording", "tolerance",
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
