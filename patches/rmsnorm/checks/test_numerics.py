"""The numbers of RMSNorm over shapes, dtypes, layouts and seeds that the base cannot take.

Fail-to-pass: on the base each of these cells hands the kernel a layout that it cannot read.
The kernels are stood in for on the CPU, so this judges what the layer does around them:
that the right rows reach the kernel, that their results come back in the right places,
and that nothing is rounded once more on the way.
"""

from __future__ import annotations

import aiter_standin
import torch
from norm_cases import as_pair
from sglang_tree import RMSNorm, load_layernorm, make_norm

from contribbot.numerics import Cell, Draw, Grid

LAYERNORM = load_layernorm(aiter_standin.as_module())


def _refused_by_the_base(cell: Cell) -> bool:
    """Leave out what the base can do: contiguous 2-D input."""
    return not (cell.texts["shape"] == "24x256" and cell.texts["layout"] == "contiguous")


GRID = Grid(
    {
        "dtype": [torch.float16, torch.bfloat16, torch.float32],
        # The query heads of Qwen3-8B, the kv_a of a latent attention cut short, a batch.
        "shape": [(4, 32, 128), (24, 256), (2, 3, 5, 64)],
        "layout": ["contiguous", "packed", "row-stride", "transposed", "strided", "expanded"],
        "residual": ["none", "same layout", "with addition"],
    },
    seeds=3,
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


def _exact(norm: RMSNorm, arguments: list[torch.Tensor]) -> list[torch.Tensor]:
    """Compute in float64, with no rounding of any sum."""
    total = torch.stack([one.double() for one in arguments]).sum(dim=0)
    scale = torch.rsqrt(total.square().mean(dim=-1, keepdim=True) + norm.variance_epsilon)
    output = total * scale * norm.weight.detach().double()
    return [output] if len(arguments) == 1 else [output, total]


@GRID.each_cell
def test_every_layout(draw: Draw) -> None:
    arguments = _arguments(draw)
    norm = make_norm(LAYERNORM, draw.shape[-1], draw.dtype)
    with torch.no_grad():
        actual = as_pair(norm.forward(*arguments))
        # SGLang's own torch code; it takes no addition, so that is added as the layer does.
        x, *added = arguments
        usual = as_pair(norm.forward_native(x, sum(added[1:], added[0]) if added else None))
        flat = [one.reshape(-1, draw.shape[-1]).contiguous() for one in arguments]
        packed = as_pair(norm.forward(*flat))
    exact = _exact(norm, arguments)
    for name, got, right, own, same in zip(
        ("output", "residual output"), actual, exact, usual, packed, strict=False
    ):
        draw.judge(name, got, reference=right, same_precision=own)
        # The kernel is the same: the layout may not change a bit.
        draw.judge_exact(f"{name} as of packed rows", got, same.reshape(draw.shape))
    assert len(actual) == len(exact)
