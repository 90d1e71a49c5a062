"""The numbers of RMSNorm over shapes, dtypes and layouts that the base cannot take.

Fail-to-pass: on the base each of these cells hands the kernel a layout that it cannot read.
The kernels are stood in for on the CPU, so this judges what the layer does around them:
that the right rows reach the kernel, that their results come back in the right places,
and that nothing is rounded once more on the way.
"""

from __future__ import annotations

import functools

import aiter_standin
import torch
from norm_cases import as_pair
from sglang_tree import load_layernorm, make_norm

from contribbot.numerics import Cell, Draw, Grid

LAYERNORM = load_layernorm(aiter_standin.as_module())
#: What the layer takes where nobody says.
EPSILON = 1e-6


def _refused_by_the_base(cell: Cell) -> bool:
    """Leave out what the base can do: contiguous 2-D input."""
    return not (cell.texts["shape"] == "24x256" and cell.texts["layout"] == "contiguous")


GRID = Grid(
    {
        "dtype": [torch.float16, torch.bfloat16, torch.float32],
        # The query heads of Qwen3-8B, the kv_a of a latent attention cut short.
        "shape": [(4, 32, 128), (24, 256)],
        "layout": ["contiguous", "packed", "row-stride", "transposed", "strided", "expanded"],
        "residual": ["none", "same layout", "with addition"],
    },
    seeds=1,
    where=_refused_by_the_base,
)


def _arguments(draw: Draw) -> list[torch.Tensor]:
    """Draw the input, and the residual and the addition where the cell has them."""
    layouts = {
        "none": [draw.layout],
        "same layout": [draw.layout, draw.layout],
        "with addition": [draw.layout, draw.layout, "contiguous"],
    }[draw.axis("residual", str)]
    return [draw.normal(*draw.shape, layout=layout) for layout in layouts]


def _plain(rows: list[torch.Tensor], weight: torch.Tensor, wide: torch.dtype) -> list[torch.Tensor]:
    """Compute in a wider dtype and round once, but for the addition, as the layer does."""
    x, *added = rows
    total = x.to(wide) + (sum(added[1:], added[0]).to(wide) if added else 0)
    scale = torch.rsqrt(total.square().mean(dim=-1, keepdim=True) + EPSILON)
    output = total * scale * weight.to(wide)
    return [one.to(x.dtype) for one in ([output, total] if added else [output])]


def _kernel(rows: list[torch.Tensor], weight: torch.Tensor) -> list[torch.Tensor]:
    """Call the kernel as it wants to be called."""
    x, *added = rows
    if not added:
        return [aiter_standin.rmsnorm2d_fwd(x, weight, EPSILON)]
    output, total = torch.empty_like(x), torch.empty_like(x)
    residual = sum(added[1:], added[0])
    aiter_standin.rmsnorm2d_fwd_with_add(output, x, residual, total, weight, EPSILON)
    return [output, total]


@GRID.each_cell
def test_every_layout(draw: Draw) -> None:
    arguments, width = _arguments(draw), draw.shape[-1]
    weight = torch.linspace(0.5, 1.5, width).to(draw.dtype)

    @functools.cache
    def layer() -> tuple[torch.Tensor, ...]:
        norm = make_norm(LAYERNORM, width, draw.dtype)
        with torch.no_grad():
            norm.weight.copy_(weight)
            results = as_pair(norm.forward(*arguments))
        assert len(results) == len(exact)
        return results

    rows = [one.reshape(-1, width).contiguous() for one in arguments]
    exact = _plain([one.double() for one in rows], weight.double(), torch.float64)
    usual, packed = _plain(rows, weight, torch.float32), _kernel(rows, weight)
    for place, name in enumerate(("output", "residual output")[: len(exact)]):
        got = functools.partial(lambda place: layer()[place], place)
        right, own, same = (one[place].reshape(draw.shape) for one in (exact, usual, packed))
        draw.judge(name, got, reference=right, same_precision=own)
        # The kernel is the same: the layout may not change a bit.
        draw.judge_exact(f"{name} as of packed rows", got, same)
