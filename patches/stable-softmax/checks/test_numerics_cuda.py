"""The table of the problem on a CUDA device, or on ROCm's. Fail-to-pass."""

from __future__ import annotations

from table import grid, judge_attention

from contribbot.numerics import Draw

# At 1 the release errs by less than four times, which is allowed here.
GRID = grid("cuda", least=5.0)


@GRID.each_cell
def test_weights_as_exact_as_sdpa(draw: Draw) -> None:
    judge_attention(draw)
