"""Ordinary inputs, masked scores with sm_scale = 0, and NaN; the error of dv for larger scores.

Pass-to-pass: results and gradients of ordinary inputs have the same bits on both trees.
"""

import hashlib

import attention
import pytest
import torch

#: Of the bytes of the result, dq, dk and dv without the change, gfx942, Triton 3.7.1.
BYTES = {
    (torch.float16, 0.125): "3cfb6514ca9f64ff",
    (torch.bfloat16, 0.125): "b9ea2537186fd158",
    (torch.float32, 0.125): "30480bde4b620f82",
    (torch.bfloat16, 0.0): "6c72c6d7baf6dd27",
}


def digest(tensors: list[torch.Tensor]) -> str:
    content = b"".join(tensor.view(torch.uint8).numpy().tobytes() for tensor in tensors)
    return hashlib.sha256(content).hexdigest()[:16]


@pytest.mark.parametrize(
    ("dtype", "sm_scale"),
    [
        (torch.float16, 0.125),
        (torch.bfloat16, 0.125),
        (torch.float32, 0.125),
        (torch.bfloat16, 0.0),
    ],
)
def test_same_bits(dtype: torch.dtype, sm_scale: float) -> None:
    tensors = attention.inputs(1.0, dtype)
    ours = attention.run(tensors, sm_scale, causal=True)
    exact = attention.reference(tensors, sm_scale, causal=True)
    for tensor, right in zip(ours, exact, strict=True):
        assert (tensor.double() - right).abs().max() < 8 * torch.finfo(dtype).eps
    assert digest(ours) == BYTES[dtype, sm_scale]


def test_error_of_dv_at_scores_of_4e6() -> None:
    q, k, v, _ = attention.inputs(1000.0)
    tensors = [q, k, v, torch.ones_like(v)]
    ours, exact = attention.run(tensors)[3], attention.reference(tensors)[3]
    assert 0.1 < (ours.double() - exact).abs().max() < 0.5


def test_nan_stays_nan() -> None:
    tensors = attention.inputs(1.0)
    tensors[0][0, 0, 3, 5] = float("nan")
    out, dq, dk, dv = attention.run(tensors)
    rows = out.isnan().any(-1)
    assert rows.sum() == 1
    assert (dq.isnan().any(-1) == rows).all()
    assert dk.isnan().all()
    assert dv.isnan().all()
