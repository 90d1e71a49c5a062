"""On CUDA: no rows launch nothing, and an output type without a kernel is refused.

Fail-to-pass: the base launches a grid of size zero, an error that torch's next launch
reports, and leaves the output as it was for a type that it does not know.
"""

from __future__ import annotations

import pytest
import torch
from group_quant import fp8, int8


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32], ids=str)
@pytest.mark.parametrize("kind", ["fp8", "int8"])
def test_no_rows(kind: str, dtype: torch.dtype) -> None:
    x = torch.empty(0, 512, dtype=dtype, device="cuda")
    one = torch.zeros(1, device="cuda")
    values, scales = fp8(x) if kind == "fp8" else int8(x)
    assert values.shape == (0, 512)
    assert scales.shape == (0, 4)
    # This launch reports what the one before it left behind.
    assert float(one + 1) == 1


@pytest.mark.parametrize("dtype", [torch.float8_e4m3fnuz, torch.float8_e5m2], ids=str)
def test_type_without_a_kernel(dtype: torch.dtype) -> None:
    x = torch.ones(4, 512, dtype=torch.bfloat16, device="cuda")
    with pytest.raises(RuntimeError, match="not implemented for"):
        fp8(x, dtype=dtype)
