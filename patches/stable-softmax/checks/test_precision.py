"""In half precision the weights and the output are as exact as SDPA's, on every way to them.

Fail-to-pass on a CPU. Scores in half precision lose what softmax tells apart, and overflow.
The table of the problem is in test_numerics.py; here are the ways to call the function.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from attention import (
    HALVES,
    assert_like_sdpa,
    attend,
    by_rounded_weights,
    double,
    draw,
    max_error,
    with_weights,
)

#: TorchScript is deprecated; as long as it is there, it must go on working.
pytestmark = pytest.mark.filterwarnings("ignore:`torch.jit:DeprecationWarning")

Way = Callable[[list[torch.Tensor]], tuple[torch.Tensor, torch.Tensor]]


class Attention(torch.nn.Module):
    """A module around the function, for what wants one."""

    def forward(
        self, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Return output and weights."""
        return with_weights(query, key, value)


def identity_module(like: torch.Tensor) -> torch.nn.MultiheadAttention:
    width = like.shape[-1]
    module = torch.nn.MultiheadAttention(width, 4, dtype=like.dtype, device=like.device)
    with torch.no_grad():
        eye = torch.eye(width, dtype=like.dtype, device=like.device)
        module.in_proj_weight.copy_(eye.repeat(3, 1))
        module.out_proj.weight.copy_(eye)
    return module


def eager(inputs: list[torch.Tensor]) -> tuple[torch.Tensor, torch.Tensor]:
    return with_weights(*inputs)


def training(inputs: list[torch.Tensor]) -> tuple[torch.Tensor, torch.Tensor]:
    return with_weights(*(one.clone().requires_grad_() for one in inputs))


def scripted(inputs: list[torch.Tensor]) -> tuple[torch.Tensor, torch.Tensor]:
    script = torch.jit.script(identity_module(inputs[0]))
    output, weights = script(*inputs)
    return output, weights


def compiled(inputs: list[torch.Tensor]) -> tuple[torch.Tensor, torch.Tensor]:
    torch.compiler.reset()
    run = torch.compile(with_weights, backend="aot_eager", fullgraph=True)
    output, weights = run(*inputs)
    return output, weights


def exported(inputs: list[torch.Tensor]) -> tuple[torch.Tensor, torch.Tensor]:
    output, weights = torch.export.export(Attention(), tuple(inputs)).module()(*inputs)
    return output, weights


def mapped(inputs: list[torch.Tensor]) -> tuple[torch.Tensor, torch.Tensor]:
    run = torch.func.vmap(with_weights)
    output, weights = run(*(one[None] for one in inputs))
    return output[0], weights[0]


WAYS: list[Way] = [eager, training, scripted, compiled, exported, mapped]


@pytest.mark.parametrize("dtype", HALVES, ids=str)
@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
def test_every_way_is_exact(way: Way, dtype: torch.dtype) -> None:
    inputs = draw("cpu", dtype, 20.0)
    reference, exact_weights = with_weights(*double(*inputs))
    sdpa, _ = attend(*inputs, need_weights=False)
    output, weights = way(inputs)
    assert_like_sdpa("output", output, reference, sdpa, by_rounded_weights(inputs))
    error = max_error(weights, exact_weights)
    bound = 4 * torch.finfo(dtype).eps
    assert error <= bound, f"weights: max abs error {error:.3g}, more than {bound:.3g}"


@pytest.mark.parametrize("dtype", HALVES, ids=str)
@pytest.mark.parametrize("head_dim", [24, 48, 96, 128])
def test_heads_whose_scale_is_no_power_of_two(head_dim: int, dtype: torch.dtype) -> None:
    inputs = draw("cpu", dtype, 5.0, head_dim=head_dim)
    reference, _ = with_weights(*double(*inputs))
    sdpa, _ = attend(*inputs, need_weights=False)
    rounded = by_rounded_weights(inputs)
    assert_like_sdpa("output", with_weights(*inputs)[0], reference, sdpa, rounded)


@pytest.mark.parametrize("dtype", HALVES, ids=str)
@pytest.mark.parametrize("mask", ["causal", "padding", "both", "float", "each head"])
def test_masked_scores_are_exact(mask: str, dtype: torch.dtype) -> None:
    inputs = draw("cpu", dtype, 5.0)
    causal = torch.ones(64, 64, dtype=torch.bool).triu(1)
    padding = torch.zeros(2, 64, dtype=torch.bool)
    padding[1, -7:] = True
    generator = torch.Generator().manual_seed(1)
    bias = torch.randn(64, 64, generator=generator).to(dtype)
    each = torch.randn(8, 64, 64, generator=generator).to(dtype)
    attn_mask = {"causal": causal, "both": causal, "float": bias, "each head": each}.get(mask)
    key_padding_mask = padding if mask in {"padding", "both"} else None
    wide = attn_mask.double() if attn_mask is not None and attn_mask.dtype == dtype else attn_mask
    reference, _ = with_weights(*double(*inputs), attn_mask=wide, key_padding_mask=key_padding_mask)
    rounded = by_rounded_weights(inputs, attn_mask=wide, key_padding_mask=key_padding_mask)
    sdpa, _ = attend(
        *inputs, need_weights=False, attn_mask=attn_mask, key_padding_mask=key_padding_mask
    )
    output, _ = with_weights(*inputs, attn_mask=attn_mask, key_padding_mask=key_padding_mask)
    assert_like_sdpa("output", output, reference, sdpa, rounded)


@pytest.mark.parametrize("average", [True, False], ids=["average", "each head"])
def test_scores_beyond_float16_are_finite(*, average: bool) -> None:
    inputs = draw("cpu", torch.float16, 200.0)
    for name, one in zip(
        ("output", "weights"), with_weights(*inputs, average=average), strict=True
    ):
        assert bool(one.isfinite().all()), f"{name}: not finite"


def test_a_finite_mask_at_the_end_of_float16_is_finite() -> None:
    query, _, value = draw("cpu", torch.float16, 5.0)
    mask = torch.full((64, 64), torch.finfo(torch.float16).min, dtype=torch.float16)
    # Scores below 0 at a mask of -65,504: the sum is finite, and no float16.
    output, _ = with_weights(query.abs(), -query.abs(), value, attn_mask=mask)
    assert bool(output.isfinite().all()), "output: not finite"


@pytest.mark.parametrize("dtype", HALVES, ids=str)
def test_gradients_follow_the_exact_weights(dtype: torch.dtype) -> None:
    seen = {}
    for kind in (dtype, torch.float64):
        leaves = [one.to(kind).requires_grad_() for one in draw("cpu", dtype, 5.0)]
        output, weights = with_weights(*leaves)
        (output.square().sum() + weights.square().sum()).backward()
        seen[kind] = [one.grad for one in leaves]
    for name, actual, exact in zip(
        ("query", "key", "value"), seen[dtype], seen[torch.float64], strict=True
    ):
        assert actual is not None
        assert exact is not None
        error = float((actual.double() - exact).norm() / exact.norm())
        bound = 4 * torch.finfo(dtype).eps
        assert error <= bound, f"gradient of {name}: relative error {error:.3g} over {bound:.3g}"


def test_gradients_beyond_float16_are_finite() -> None:
    leaves = [one.requires_grad_() for one in draw("cpu", torch.float16, 200.0)]
    output, _ = with_weights(*leaves)
    output.float().sum().backward()
    for name, one in zip(("query", "key", "value"), leaves, strict=True):
        assert one.grad is not None
        assert bool(one.grad.isfinite().all()), f"gradient of {name}: not finite"
