"""RMSNorm gives aiter's kernels a layout that they can read, whatever the caller gives it.

Fail-to-pass: on the base each of these hands the kernel something else.
"""

from __future__ import annotations

import aiter_standin
import pytest
import torch
from aiter_standin import recorder
from copy_counter import CopyCounter
from norm_cases import DIM, LAYOUTS, Inputs, Make, as_pair, assert_right
from sglang_tree import load_layernorm, make_norm

LAYERNORM = load_layernorm(aiter_standin.as_module())

#: Tokens, and Qwen3-8B's (query heads, key heads) and head width.
REAL = (256, (32, 8), 128)


@pytest.mark.parametrize("which", [0, 1], ids=["q", "k"])
def test_real_qk_views(which: int) -> None:
    view = Make(torch.bfloat16).packed_qk(*REAL)[which]
    assert view.shape == (256, REAL[1][which], 128)
    assert view.stride() == (6144, 128, 1)
    norm = make_norm(LAYERNORM, 128, torch.bfloat16)
    assert_right(norm, Inputs(view), norm.forward(view))


@pytest.mark.parametrize("layout", LAYOUTS)
def test_numbers_and_shape(layout: str) -> None:
    inputs = LAYOUTS[layout](Make(torch.bfloat16))
    norm = make_norm(LAYERNORM, DIM, torch.bfloat16)
    assert_right(norm, inputs, norm.forward(*inputs))


@pytest.mark.parametrize("layout", LAYOUTS)
def test_callers_memory_is_only_read(layout: str) -> None:
    inputs = LAYOUTS[layout](Make(torch.bfloat16))
    given = [tensor for tensor in inputs if tensor is not None]
    before = [tensor.clone() for tensor in given]
    owned = {tensor.untyped_storage().data_ptr() for tensor in given if tensor.numel()}
    result = as_pair(make_norm(LAYERNORM, DIM, torch.bfloat16).forward(*inputs))
    for tensor, copy in zip(given, before, strict=True):
        assert torch.equal(tensor, copy)
    for tensor in result:
        assert tensor.untyped_storage().data_ptr() not in owned


@pytest.mark.parametrize(
    "layout", [name for name in LAYOUTS if "addition" not in name]
)  # the sum with an addition is new memory anyway
def test_one_copy_of_what_needs_one(layout: str) -> None:
    inputs = LAYOUTS[layout](Make(torch.bfloat16))
    given = [tensor for tensor in inputs if tensor is not None]
    norm = make_norm(LAYERNORM, DIM, torch.bfloat16)
    with CopyCounter() as counter:
        norm.forward(*inputs)
    assert counter.copies == sum(not tensor.is_contiguous() for tensor in given)


@pytest.mark.parametrize("layout", ["3-D", "4-D", "3-D, residual"])
def test_packed_memory_of_higher_rank_is_handed_through(layout: str) -> None:
    inputs = LAYOUTS[layout](Make(torch.bfloat16))
    recorder.clear()
    make_norm(LAYERNORM, DIM, torch.bfloat16).forward(*inputs)
    (call,) = recorder.calls
    assert call.rows.data_ptr == inputs.x.data_ptr()
    if inputs.residual is not None:
        assert call.residual is not None
        assert call.residual.data_ptr == inputs.residual.data_ptr()


@pytest.mark.parametrize("layout", [name for name in LAYOUTS if name.startswith("empty")])
def test_nothing_is_launched_for_an_empty_batch(layout: str) -> None:
    inputs = LAYOUTS[layout](Make(torch.float16))
    recorder.clear()
    result = as_pair(make_norm(LAYERNORM, DIM, torch.float16).forward(*inputs))
    assert recorder.calls == []
    assert [tensor.shape for tensor in result] == [inputs.x.shape] * len(result)
