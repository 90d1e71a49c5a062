"""transform_cases.py on a CUDA device, or on ROCm's, which torch calls by the same name."""

from __future__ import annotations

import pytest
import torch
from attention import max_error, with_weights
from transform_cases import *  # noqa: F403  all of them are tests that pytest finds here
from transform_cases import assert_agree, bound, make_masks, small


@pytest.fixture
def device() -> str:
    return "cuda"


def test_inductor(device: str) -> None:
    """Inductor's own kernels; on a processor it would compile C++ for half a minute."""
    torch.compiler.reset()
    run = torch.compile(with_weights, fullgraph=True, dynamic=True)
    inputs = small(device, torch.bfloat16)
    assert_agree(run, with_weights, inputs, **make_masks(device))
    with torch.no_grad():
        for one, other in zip(run(*inputs), with_weights(*inputs), strict=True):
            assert one.dtype == other.dtype
            assert max_error(one, other) <= 2 * bound(torch.bfloat16)
