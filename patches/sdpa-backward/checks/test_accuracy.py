"""The error of dv by float64, for large scores: what the stored logsumexp allows.

Fail-to-pass: without the change softmax weights exceed 1.
"""

import attention
import pytest
import torch

#: Scores reach 4e7, 4e8 and 8e10.
SCALES = [(3000.0, 2.0), (10000.0, 4.0), (133120.0, 4.0)]


@pytest.mark.parametrize(("scale", "most"), SCALES)
def test_dv_errs_by_at_most(scale: float, most: float) -> None:
    q, k, v, _ = attention.inputs(scale)
    tensors = [q, k, v, torch.ones_like(v)]
    ours, exact = attention.run(tensors)[3], attention.reference(tensors)[3]
    error = (ours.double() - exact).abs().max().item()
    assert error <= most, f"dv errs by {error:.3g}, its largest element is {exact.max():.3g}"
