"""What half precision with weights has always done, and must go on doing, on any device.

The tests take the fixture `device`, which test_half.py and test_half_cuda.py give. Inputs
are small numbers, where half precision was good enough before as well.
"""

from __future__ import annotations

import pytest
import torch
from attention import HALVES, attend, double, draw, max_error, with_weights
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

EACH_HALF = pytest.mark.parametrize("dtype", HALVES, ids=str)
LENGTH = 16


def close(dtype: torch.dtype) -> float:
    """Return an absolute error that scores in half precision keep to, for these inputs."""
    return 8 * torch.finfo(dtype).eps


def assert_close(name: str, actual: torch.Tensor, right: torch.Tensor) -> None:
    allowed = close(actual.dtype) * max(1.0, float(right.detach().abs().max()))
    assert max_error(actual, right) <= allowed, f"{name}: off by {max_error(actual, right):.3g}"


def masks(device: str, dtype: torch.dtype) -> dict[str, dict[str, torch.Tensor]]:
    generator = torch.Generator().manual_seed(3)
    causal = torch.ones(LENGTH, LENGTH, dtype=torch.bool).triu(1)
    padding = torch.zeros(2, LENGTH, dtype=torch.bool)
    padding[1, -3:] = True
    as_float = torch.zeros(2, LENGTH, dtype=dtype).masked_fill(padding, float("-inf"))
    bias = torch.randn(LENGTH, LENGTH, generator=generator).to(dtype)
    heads = torch.randn(8, LENGTH, LENGTH, generator=generator).to(dtype)
    named = {
        "causal": {"attn_mask": causal},
        "padding": {"key_padding_mask": padding},
        "both": {"attn_mask": causal, "key_padding_mask": padding},
        "float": {"attn_mask": bias},
        "float both": {"attn_mask": bias, "key_padding_mask": as_float},
        "every head its own": {"attn_mask": heads},
        "all": {"attn_mask": heads, "key_padding_mask": as_float},
    }
    return {
        name: {part: mask.to(device) for part, mask in given.items()}
        for name, given in named.items()
    }


@EACH_HALF
@pytest.mark.parametrize("average", [True, False], ids=["average", "each head"])
@pytest.mark.parametrize("batched", [True, False], ids=["batched", "unbatched"])
def test_shapes_and_dtypes(
    device: str, dtype: torch.dtype, *, average: bool, batched: bool
) -> None:
    inputs = draw(device, dtype, 1.0, length=LENGTH)
    if not batched:
        inputs = [one[:, 0] for one in inputs]
    output, weights = with_weights(*inputs, average=average)
    right, right_weights = with_weights(*double(*inputs), average=average)
    assert output.dtype == weights.dtype == dtype
    assert output.shape == inputs[0].shape
    batch, heads = (2,) if batched else (), () if average else (4,)
    assert weights.shape == (*batch, *heads, LENGTH, LENGTH)
    assert_close("output", output, right)
    assert_close("weights", weights, right_weights)
    assert_close("sums", weights.sum(-1), torch.ones_like(right_weights.sum(-1)))


@EACH_HALF
@pytest.mark.parametrize("mask", masks("cpu", torch.float16))
def test_masks(device: str, dtype: torch.dtype, mask: str) -> None:
    inputs = draw(device, dtype, 1.0, length=LENGTH)
    given = masks(device, dtype)[mask]
    wide = {part: one if one.dtype == torch.bool else one.double() for part, one in given.items()}
    output, weights = with_weights(*inputs, average=False, **given)
    right, right_weights = with_weights(*double(*inputs), average=False, **wide)
    assert_close("output", output, right)
    assert_close("weights", weights, right_weights)
    assert bool((weights[right_weights == 0] == 0).all()), "a masked key has weight"


@EACH_HALF
def test_the_causal_hint_with_its_mask(device: str, dtype: torch.dtype) -> None:
    inputs = draw(device, dtype, 1.0, length=LENGTH)
    causal = masks(device, dtype)["causal"]["attn_mask"]
    hinted, _ = attend(*inputs, attn_mask=causal, is_causal=True)
    plain, _ = attend(*inputs, attn_mask=causal)
    assert torch.equal(hinted, plain)


@EACH_HALF
def test_a_row_without_keys_is_nan(device: str, dtype: torch.dtype) -> None:
    # pytorch/pytorch#160064 and #152028 are about that; it is another question.
    inputs = draw(device, dtype, 1.0, length=LENGTH)
    mask = torch.zeros(LENGTH, LENGTH, dtype=torch.bool, device=device)
    mask[3] = True
    output, weights = with_weights(*inputs, attn_mask=mask)
    assert bool(output[3].isnan().all())
    assert bool(weights[:, 3].isnan().all())
    assert int(output.isnan().sum()) == output[3].numel()


@EACH_HALF
@pytest.mark.parametrize(
    "options",
    [
        {"add_bias_kv": True},
        {"add_zero_attn": True},
        {"kdim": 24, "vdim": 40},
        {"add_bias_kv": True, "add_zero_attn": True, "batch_first": True},
    ],
    ids=["bias_kv", "zero_attn", "other widths", "all"],
)
def test_options_of_the_module(device: str, dtype: torch.dtype, options: dict[str, object]) -> None:
    torch.manual_seed(0)
    make = torch.nn.MultiheadAttention
    module = make(32, 4, **options).to(device, dtype)  # type: ignore[arg-type]  any of its options
    wide = make(32, 4, **options).to(device, torch.float64)  # type: ignore[arg-type]  the same
    wide.load_state_dict(module.state_dict())
    shapes = [(LENGTH, 2, module.embed_dim), (LENGTH, 2, module.kdim), (LENGTH, 2, module.vdim)]
    inputs = [torch.randn(shape).to(device, dtype) for shape in shapes]
    if module.batch_first:
        inputs = [one.transpose(0, 1) for one in inputs]
    padding = masks(device, dtype)["padding"]["key_padding_mask"]
    output, weights = module(*inputs, key_padding_mask=padding)
    right, right_weights = wide(*double(*inputs), key_padding_mask=padding)
    assert_close("output", output, right)
    assert_close("weights", weights, right_weights)


@EACH_HALF
@pytest.mark.parametrize("part", ["output", "weights", "both"])
@pytest.mark.parametrize("mask", [None, "both", "float", "every head its own"])
def test_gradients(device: str, dtype: torch.dtype, mask: str | None, part: str) -> None:
    given = masks(device, dtype)[mask] if mask else {}
    found = []
    for kind in (dtype, torch.float64):
        inputs = draw(device, dtype, 1.0, length=LENGTH)
        leaves = [one.to(kind).requires_grad_() for one in inputs]
        learnt = {
            name: one if one.dtype == torch.bool else one.detach().to(kind).requires_grad_()
            for name, one in given.items()
        }
        leaves += [one for one in learnt.values() if one.requires_grad]
        output, weights = with_weights(*leaves[:3], **learnt)
        loss = output.double().sin().sum() if part != "weights" else output.new_zeros(())
        if part != "output":
            loss = loss + weights.double().square().sum()
        needed = leaves if part != "weights" else [*leaves[:2], *leaves[3:]]
        found.append(torch.autograd.grad(loss, needed))
    for actual, right in zip(*found, strict=True):
        assert actual.dtype == dtype
        error = float((actual.double() - right).norm() / right.norm())
        assert error <= close(dtype), f"relative error {error:.3g}"


@EACH_HALF
@pytest.mark.parametrize("leaf", [0, 1, 2])
def test_gradient_of_one_input_alone(device: str, dtype: torch.dtype, leaf: int) -> None:
    inputs = draw(device, dtype, 1.0, length=LENGTH)
    together = [one.clone().requires_grad_() for one in inputs]
    alone = [one.clone().requires_grad_(at == leaf) for at, one in enumerate(inputs)]
    grads = []
    for leaves in (together, alone):
        with_weights(*leaves)[0].sum().backward()
        grads.append(leaves[leaf].grad)
    assert grads[0] is not None
    assert grads[1] is not None
    assert torch.equal(grads[0], grads[1])


@EACH_HALF
@pytest.mark.parametrize("leaf", [0, 1, 2])
def test_weights_depend_on_query_and_key_alone(device: str, dtype: torch.dtype, leaf: int) -> None:
    inputs = draw(device, dtype, 1.0, length=LENGTH)
    inputs[leaf].requires_grad_()
    output, weights = with_weights(*inputs)
    assert output.requires_grad
    assert weights.requires_grad == (leaf < 2)


@EACH_HALF
def test_a_key_of_another_type_is_refused(device: str, dtype: torch.dtype) -> None:
    query, key, value = draw(device, dtype, 1.0, length=LENGTH, head_dim=8)
    eye = torch.eye(32, dtype=dtype, device=device)
    static = key.float().reshape(LENGTH, 8, 8).transpose(0, 1)
    with pytest.raises(RuntimeError, match=r"same dtype|scalar type"):
        functional.multi_head_attention_forward(
            query, key, value, 32, 4, eye.repeat(3, 1), None, None, None,
            add_zero_attn=False, dropout_p=0.0, out_proj_weight=eye, out_proj_bias=None,
            static_k=static,
        )  # fmt: skip


@EACH_HALF
def test_second_derivatives(device: str, dtype: torch.dtype) -> None:
    found = []
    for kind in (dtype, torch.float64):
        query, key, value = (one.to(kind) for one in draw(device, dtype, 1.0, length=LENGTH))
        query.requires_grad_()
        output, weights = with_weights(query, key, value)
        loss = output.double().square().sum() + weights.double().square().sum()
        (first,) = torch.autograd.grad(loss, query, create_graph=True)
        found += torch.autograd.grad(first.double().square().sum(), query)
    error = float((found[0].double() - found[1]).norm() / found[1].norm())
    assert error <= 2 * close(dtype)


@EACH_HALF
def test_dropout_draws_what_it_drew(device: str, dtype: torch.dtype) -> None:
    inputs = draw(device, dtype, 1.0, length=LENGTH)
    kept, _ = attend(*inputs, average=False)
    _, weights = attend(*inputs, average=False)
    assert weights is not None
    seen = []
    for _ in range(2):
        torch.manual_seed(11)
        seen.append(attend(*inputs, average=False, dropout_p=0.4))
    output, dropped = seen[0]
    assert dropped is not None
    torch.manual_seed(11)
    right = functional.dropout(weights.flatten(0, 1), p=0.4)
    assert torch.equal(dropped.flatten(0, 1), right), "other weights were dropped"
    assert torch.equal(output, seen[1][0]), "the same seed gives another output"
    assert not torch.equal(output, kept)
    rows = inputs[2].reshape(LENGTH, 8, 64).transpose(0, 1)
    product = torch.bmm(right, rows).transpose(0, 1).reshape(LENGTH, 2, 256)
    assert_close("output", output, product.double())
    resting, _ = attend(*inputs, dropout_p=0.4, training=False)
    assert torch.equal(resting, kept), "dropout in eval"


@EACH_HALF
def test_gradients_through_dropout(device: str, dtype: torch.dtype) -> None:
    leaves = [one.requires_grad_() for one in draw(device, dtype, 1.0, length=LENGTH)]
    grads = []
    for _ in range(2):
        torch.manual_seed(11)
        output, weights = attend(*leaves, dropout_p=0.4)
        assert weights is not None
        loss = output.double().sum() + weights.double().square().sum()
        grads.append(torch.autograd.grad(loss, leaves))
    for one, again in zip(*grads, strict=True):
        assert bool(one.isfinite().all())
        assert bool(one.any())
        assert torch.equal(one, again)


@EACH_HALF
def test_autocast_returns_what_softmax_returns_there(device: str, dtype: torch.dtype) -> None:
    inputs = [one.float().requires_grad_() for one in draw(device, dtype, 1.0, length=LENGTH)]
    with torch.autocast(device, dtype=dtype):
        expected = torch.softmax(torch.zeros(1, 1, dtype=dtype, device=device), -1).dtype
        output, weights = with_weights(*inputs)
        dropped, _ = attend(*inputs, dropout_p=0.1)
    right, right_weights = with_weights(*double(*inputs))
    assert output.dtype == dropped.dtype == dtype
    assert weights.dtype == expected
    assert max_error(output, right) <= close(dtype) * float(right.detach().abs().max())
    assert max_error(weights, right_weights) <= close(dtype)
    (output.float().sum() + weights.float().square().sum()).backward()
    for one in inputs:
        assert one.grad is not None
        assert one.grad.dtype == torch.float32
        assert bool(one.grad.isfinite().all())


@EACH_HALF
def test_checkpointing_changes_nothing(device: str, dtype: torch.dtype) -> None:
    grads = []
    for wrapped in (False, True):
        leaves = [one.requires_grad_() for one in draw(device, dtype, 1.0, length=LENGTH)]
        run = checkpoint(with_weights, *leaves, use_reentrant=False) if wrapped else None
        output, _ = run if run is not None else with_weights(*leaves)
        grads.append(torch.autograd.grad(output.sum(), leaves))
    assert all(torch.equal(*pair) for pair in zip(*grads, strict=True))


@EACH_HALF
def test_modes_without_gradients_agree(device: str, dtype: torch.dtype) -> None:
    inputs = draw(device, dtype, 1.0, length=LENGTH)
    output, weights = with_weights(*(one.clone().requires_grad_() for one in inputs))
    for mode in (torch.no_grad, torch.inference_mode):
        with mode():
            other, other_weights = with_weights(*inputs)
        assert torch.equal(output.detach(), other)
        assert torch.equal(weights.detach(), other_weights)


@EACH_HALF
@pytest.mark.parametrize("length", [1, 2, 300, 1100])
def test_lengths(device: str, dtype: torch.dtype, length: int) -> None:
    query, _, _ = draw(device, dtype, 1.0, length=7, head_dim=8)
    _, key, value = draw(device, dtype, 1.0, length=length, head_dim=8)
    output, weights = with_weights(query, key, value)
    right, right_weights = with_weights(*double(query, key, value))
    assert_close("output", output, right)
    assert_close("weights", weights, right_weights)
    output, weights = with_weights(key, query, query)
    right, right_weights = with_weights(*double(key, query, query))
    assert_close("output", output, right)
    assert_close("weights", weights, right_weights)


@EACH_HALF
def test_no_batch_and_no_query(device: str, dtype: torch.dtype) -> None:
    query, key, value = draw(device, dtype, 1.0, length=LENGTH)
    output, weights = with_weights(query[:, :0], key[:, :0], value[:, :0])
    assert output.shape == (LENGTH, 0, 256)
    assert weights.shape == (0, LENGTH, LENGTH)
    output, weights = with_weights(query[:0], key, value)
    assert output.shape == (0, 2, 256)
    assert weights.shape == (2, 0, LENGTH)
