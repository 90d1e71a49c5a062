"""Grids whose cells lie on a GPU; torch calls it `cuda`, also under ROCm."""

from __future__ import annotations

import pytest
import torch

from contribbot.numerics.compare import CannotJudgeError, Limits, compare, compare_exact
from contribbot.numerics.grid import LAYOUTS, Cell, Draw, Findings, Grid, lay_out

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="torch sees no GPU here")

GPU = torch.device("cuda")
LIMITS = Limits(fudge=2.0, floor=1e-6)


def drawing(cell: Cell, device: str) -> Draw:
    """Return a draw of a cell on a device."""
    return Draw(
        cell, 0, device=torch.device(device), limits=lambda: LIMITS, findings=Findings(cell)
    )


@pytest.mark.parametrize("layout", LAYOUTS)
def test_both_processors_see_the_same_input_in_the_same_layout(layout: str) -> None:
    for cell in Grid({"dtype": [torch.float16, torch.float8_e4m3fn, torch.float32]}).cells:
        here, on_gpu = (
            drawing(cell, device).normal(4, 6, 8, layout=layout) for device in ("cpu", "cuda")
        )
        assert on_gpu.device.type == "cuda"
        assert here.stride() == on_gpu.stride()
        assert here.storage_offset() == on_gpu.storage_offset()
        assert compare_exact(on_gpu, here, device=GPU).complaint == ""
        wrong = on_gpu.clone()
        bits = {1: torch.uint8, 2: torch.int16, 4: torch.int32}[wrong.dtype.itemsize]
        wrong.view(bits)[0, 0, 0] ^= 1
        assert compare_exact(wrong, here, device=GPU).mismatches >= 1
    assert lay_out(torch.ones(8, dtype=torch.float16, device=GPU), "misaligned").data_ptr() % 16


@pytest.mark.parametrize("where", ["cpu", "cuda"])
def test_references_may_lie_on_either_and_the_result_may_not(where: str) -> None:
    x = torch.randn(33, 65, dtype=torch.float16, generator=torch.Generator().manual_seed(3))
    exact = torch.softmax(x.double(), -1).to(where)
    usual = torch.softmax(x.to(where), -1)
    actual = torch.softmax(x.to(GPU), -1)

    record = compare(actual, reference=exact, same_precision=usual, limits=LIMITS, device=GPU)
    assert record.complaint == ""
    assert record.ratio is not None
    assert record.ratio > 0

    left = compare(actual.cpu(), reference=exact, same_precision=usual, limits=LIMITS, device=GPU)
    assert left.complaint == "lies on cpu, not on cuda"

    actual[3, 4] += 1
    wrong = compare(actual, reference=exact, same_precision=usual, limits=LIMITS, device=GPU)
    assert (wrong.place, wrong.mismatches) == ((3, 4), 1)
    actual[5, 6] = float("nan")
    spoiled = compare(actual, reference=exact, same_precision=usual, limits=LIMITS, device=GPU)
    assert (spoiled.place, spoiled.non_finite) == ((5, 6), 1)
    exact[7, 7] = float("inf")
    with pytest.raises(CannotJudgeError, match=r"\(7, 7\)"):
        compare(actual, reference=exact, same_precision=usual, limits=LIMITS, device=GPU)


def test_judging_a_huge_tensor_takes_little_memory_there() -> None:
    actual = torch.ones(16384, 16384, dtype=torch.float16, device=GPU)
    usual = actual.clone()
    exact = torch.ones(1, 1, dtype=torch.float64, device=GPU).expand(16384, 16384)
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    record = compare(actual, reference=exact, same_precision=usual, limits=LIMITS, device=GPU)
    assert (record.complaint, record.elements) == ("", 2**28)
    assert torch.cuda.max_memory_allocated() - before < 400 * 2**20
