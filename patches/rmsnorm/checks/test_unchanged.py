"""What the patch must leave as it is, and that the judges of the other checks can say no.

Pass-to-pass: true on the base and on the patched tree.
"""

from __future__ import annotations

from collections.abc import Callable

import aiter_standin
import pytest
import torch
from aiter_standin import AiterContractError, recorder, rmsnorm2d_fwd, rmsnorm2d_fwd_with_add
from copy_counter import CopyCounter
from norm_cases import DIM, LAYOUTS, Inputs, Make, as_pair, assert_right
from sglang_tree import load_layernorm, make_norm

LAYERNORM = load_layernorm(aiter_standin.as_module())
DTYPES = [torch.bfloat16, torch.float16, torch.float32]
ROWS = 7

#: Contiguous 2-D inputs with at least one row: nothing to repair.
GOOD = {
    "x": lambda m: Inputs(m.normal(ROWS, DIM)),
    "x, residual": lambda m: Inputs(m.normal(ROWS, DIM), m.normal(ROWS, DIM)),
    "x, residual, addition": lambda m: Inputs(
        m.normal(ROWS, DIM), m.normal(ROWS, DIM), m.normal(ROWS, DIM)
    ),
    "middle rows": lambda m: Inputs(m.normal(3 * ROWS, DIM)[ROWS : 2 * ROWS]),
    "one row of a wider tensor": lambda m: Inputs(
        m.normal(1, 3 * DIM)[:, DIM : 2 * DIM], m.normal(1, DIM)
    ),
}
good = pytest.mark.parametrize("layout", GOOD)


@good
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_numbers_shape_and_dtype(layout: str, dtype: torch.dtype) -> None:
    inputs = GOOD[layout](Make(dtype))
    norm = make_norm(LAYERNORM, DIM, dtype)
    assert_right(norm, inputs, norm.forward(*inputs))


@good
def test_good_input_is_handed_through_without_a_copy(layout: str) -> None:
    inputs = GOOD[layout](Make(torch.bfloat16))
    norm = make_norm(LAYERNORM, DIM, torch.bfloat16)
    recorder.clear()
    with CopyCounter() as counter:
        norm.forward(*inputs)
    assert counter.copies == 0
    (call,) = recorder.calls
    assert call.rows.data_ptr == inputs.x.data_ptr()
    assert call.weight.data_ptr == norm.weight.data_ptr()
    assert call.epsilon == norm.variance_epsilon
    if inputs.residual is not None and inputs.addition is None:
        assert call.residual is not None
        assert call.residual.data_ptr == inputs.residual.data_ptr()


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_result_is_bit_for_bit_the_kernels(dtype: torch.dtype) -> None:
    x, residual, addition = GOOD["x, residual, addition"](Make(dtype))
    assert residual is not None
    assert addition is not None
    norm = make_norm(LAYERNORM, DIM, dtype)
    weight = norm.weight.detach()
    plain = as_pair(norm.forward(x))[0]
    assert torch.equal(plain, rmsnorm2d_fwd(x, weight, norm.variance_epsilon))
    for result, added in (
        (norm.forward(x, residual), residual),
        (norm.forward(x, residual, addition), residual + addition),
    ):
        out, total = torch.empty_like(x), torch.empty_like(x)
        rmsnorm2d_fwd_with_add(out, x, added, total, weight, norm.variance_epsilon)
        output, residual_output = as_pair(result)
        assert torch.equal(output, out)
        assert torch.equal(residual_output, total)


@good
def test_callers_memory_is_only_read(layout: str) -> None:
    inputs = GOOD[layout](Make(torch.bfloat16))
    given = [tensor for tensor in inputs if tensor is not None]
    before = [tensor.clone() for tensor in given]
    owned = {tensor.untyped_storage().data_ptr() for tensor in given}
    result = as_pair(make_norm(LAYERNORM, DIM, torch.bfloat16).forward(*inputs))
    for tensor, copy in zip(given, before, strict=True):
        assert torch.equal(tensor, copy)
    for tensor in result:
        assert tensor.untyped_storage().data_ptr() not in owned


@pytest.mark.parametrize("layout", [name for name in LAYOUTS if "addition" not in name])
def test_forward_native_takes_every_layout_and_no_kernel(layout: str) -> None:
    x, residual, _ = LAYOUTS[layout](Make(torch.float32))
    norm = make_norm(LAYERNORM, DIM, torch.float32)
    recorder.clear()
    result = as_pair(norm.forward_native(x, residual))
    assert recorder.calls == []
    total = x if residual is None else x + residual
    scale = torch.rsqrt(total.pow(2).mean(-1, keepdim=True) + norm.variance_epsilon)
    assert torch.equal(result[0], total * scale * norm.weight)
    assert residual is None or torch.equal(result[1], total)


def _narrow(dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.ones(ROWS, DIM, dtype=dtype), torch.ones(DIM, dtype=dtype)


REFUSED: dict[str, Callable[[torch.Tensor, torch.Tensor], object]] = {
    "3-D": lambda x, w: rmsnorm2d_fwd(x[None], w, 1e-6),
    "1-D": lambda x, w: rmsnorm2d_fwd(x[0], w, 1e-6),
    "row stride": lambda x, w: rmsnorm2d_fwd(x[:, : DIM // 2], w[: DIM // 2], 1e-6),
    "column stride": lambda x, w: rmsnorm2d_fwd(x[:, ::2], w[::2].contiguous(), 1e-6),
    "no rows": lambda x, w: rmsnorm2d_fwd(x[:0], w, 1e-6),
    "input dtype": lambda x, w: rmsnorm2d_fwd(x.double(), w.double(), 1e-6),
    "weight dtype": lambda x, w: rmsnorm2d_fwd(x, w.float(), 1e-6),
    "weight width": lambda x, w: rmsnorm2d_fwd(x, w[1:], 1e-6),
    "weight stride": lambda x, w: rmsnorm2d_fwd(x, w.repeat(2)[::2], 1e-6),
    "residual shape": lambda x, w: rmsnorm2d_fwd_with_add(x, x, x[1:], x, w, 1e-6),
    "residual dtype": lambda x, w: rmsnorm2d_fwd_with_add(x, x, x.float(), x, w, 1e-6),
    "residual stride": lambda x, w: rmsnorm2d_fwd_with_add(
        x, x, x.repeat(1, 2)[:, :DIM], x, w, 1e-6
    ),
    "output stride": lambda x, w: rmsnorm2d_fwd_with_add(x.repeat(1, 2)[:, :DIM], x, x, x, w, 1e-6),
    "residual output rank": lambda x, w: rmsnorm2d_fwd_with_add(x, x, x, x[None], w, 1e-6),
}


@pytest.mark.parametrize("call", REFUSED)
def test_stand_in_refuses(call: str) -> None:
    x, weight = _narrow(torch.bfloat16)
    recorder.clear()
    with pytest.raises(AiterContractError, match=r"^rmsnorm2d_fwd(_with_add)?: \w+ must "):
        REFUSED[call](x, weight)
    assert recorder.calls == []


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_judge_sees_one_element_that_is_off_by_two_units(dtype: torch.dtype) -> None:
    inputs = GOOD["x"](Make(dtype))
    norm = make_norm(LAYERNORM, DIM, dtype)
    result = as_pair(norm.forward(*inputs))[0]
    result[3, 5] *= 1 + 2 * torch.finfo(dtype).eps
    with pytest.raises(AssertionError, match="relative error"):
        assert_right(norm, inputs, result)
