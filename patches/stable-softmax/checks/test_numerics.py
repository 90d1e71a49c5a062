"""The table of the problem on a CPU. Fail-to-pass."""

from __future__ import annotations

from table import grid, judge_attention

from contribbot.numerics import Draw

GRID = grid("cpu")


@GRID.each_cell
def test_weights_as_exact_as_sdpa(draw: Draw) -> None:
    judge_attention(draw)
