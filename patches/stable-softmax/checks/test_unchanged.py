"""What is not half precision with weights keeps its results bit for bit.

Pass-to-pass on a CPU. What must come out is computed here, with the operators that the
function has always used and in their order: projection, scaled query, `baddbmm` with the
mask or `bmm`, softmax, dropout, `bmm`, projection, average.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import pytest
import torch
from attention import HALVES
from torch.nn import functional

LENGTH, SOURCE, BATCH, HEADS, WIDTH = 9, 9, 3, 4, 32
FULL = (torch.float32, torch.float64)


@dataclass(frozen=True)
class Case:
    """One way to call the function.

    Attributes:
        mask: `none`, or which masks are given.
        average: Average the weights over the heads.
        dropout_p: The probability of a weight to be zeroed.
        training: Whether dropout applies.
        biases: Give `bias_k` and `bias_v`.
        zero: Give `add_zero_attn`.
        batched: Inputs have a batch dimension.
    """

    mask: str = "none"
    average: bool = True
    dropout_p: float = 0.0
    training: bool = True
    biases: bool = False
    zero: bool = False
    batched: bool = True


CASES = {
    "plain": Case(),
    "each head": Case(average=False),
    "causal": Case(mask="causal"),
    "padding": Case(mask="padding"),
    "both": Case(mask="both"),
    "float": Case(mask="float"),
    "every head its own": Case(mask="heads"),
    "dropout": Case(dropout_p=0.3, average=False),
    "dropout and mask": Case(dropout_p=0.3, mask="float"),
    "no dropout in eval": Case(dropout_p=0.3, training=False),
    "biases": Case(biases=True),
    "biases and masks": Case(biases=True, mask="both"),
    "zero": Case(zero=True),
    "zero, biases and masks": Case(zero=True, biases=True, mask="both"),
    "unbatched": Case(batched=False),
    "unbatched causal": Case(batched=False, mask="causal"),
}


@dataclass
class Inputs:
    """The tensors of a case; all may require gradients."""

    query: torch.Tensor
    key: torch.Tensor
    value: torch.Tensor
    in_weight: torch.Tensor
    in_bias: torch.Tensor
    out_weight: torch.Tensor
    out_bias: torch.Tensor
    bias_k: torch.Tensor
    bias_v: torch.Tensor

    def leaves(self) -> Inputs:
        """Return copies that require gradients."""
        copies = {name: one.clone().requires_grad_() for name, one in vars(self).items()}
        return replace(self, **copies)


def make_inputs(dtype: torch.dtype, *, batched: bool) -> Inputs:
    generator = torch.Generator().manual_seed(0)

    def random(*shape: int) -> torch.Tensor:
        return torch.randn(shape, generator=generator, dtype=torch.float64).to(dtype)

    batch = (BATCH,) if batched else ()
    return Inputs(
        query=random(LENGTH, *batch, WIDTH),
        key=random(SOURCE, *batch, WIDTH),
        value=random(SOURCE, *batch, WIDTH),
        in_weight=random(3 * WIDTH, WIDTH) / 3,
        in_bias=random(3 * WIDTH),
        out_weight=random(WIDTH, WIDTH) / 5,
        out_bias=random(WIDTH),
        bias_k=random(1, 1, WIDTH),
        bias_v=random(1, 1, WIDTH),
    )


def make_masks(case: Case, dtype: torch.dtype) -> tuple[torch.Tensor | None, torch.Tensor | None]:
    """Return attn_mask and key_padding_mask, as a caller gives them."""
    batch = BATCH if case.batched else 1
    generator = torch.Generator().manual_seed(1)
    causal = torch.ones(LENGTH, SOURCE, dtype=torch.bool).triu(1)
    padding = torch.zeros(batch, SOURCE, dtype=torch.bool)
    padding[-1, -2:] = True
    attn: dict[str, torch.Tensor] = {
        "causal": causal,
        "both": causal,
        "float": torch.randn(LENGTH, SOURCE, generator=generator).to(dtype),
        "heads": torch.randn(batch * HEADS, LENGTH, SOURCE, generator=generator).to(dtype),
    }
    return attn.get(case.mask), padding if case.mask in {"padding", "both"} else None


def as_float(mask: torch.Tensor | None, dtype: torch.dtype) -> torch.Tensor | None:
    if mask is None or mask.dtype != torch.bool:
        return mask
    return torch.zeros_like(mask, dtype=dtype).masked_fill_(mask, float("-inf"))


def merged_mask(case: Case, dtype: torch.dtype, batch: int) -> torch.Tensor | None:
    """Return what is added to the scores: None, or (1 or batch * heads, length, source)."""
    attn, padding = (as_float(mask, dtype) for mask in make_masks(case, dtype))
    if attn is not None and attn.dim() == 2:
        attn = attn[None]
    for added in (case.biases, case.zero):
        if added:
            attn = None if attn is None else functional.pad(attn, (0, 1))
            padding = None if padding is None else functional.pad(padding, (0, 1))
    if padding is None:
        return attn
    each = padding.view(batch, 1, 1, -1).expand(-1, HEADS, -1, -1).reshape(batch * HEADS, 1, -1)
    return each if attn is None else attn + each


def split(rows: torch.Tensor, batch: int) -> torch.Tensor:
    """Return (batch * heads, length, head width)."""
    return rows.view(rows.shape[0], batch * HEADS, WIDTH // HEADS).transpose(0, 1)


def expected(case: Case, given: Inputs) -> tuple[torch.Tensor, torch.Tensor]:
    """Return output and weights as the function has always computed them."""
    query, key, value = given.query, given.key, given.value
    if not case.batched:
        query, key, value = (one.unsqueeze(1) for one in (query, key, value))
    batch = query.shape[1]
    weights_in = given.in_weight.chunk(3)
    q, k, v = (
        functional.linear(one, weight, bias)
        for one, weight, bias in zip(
            (query, key, value), weights_in, given.in_bias.chunk(3), strict=True
        )
    )
    if case.biases:
        k = torch.cat([k, given.bias_k.repeat(1, batch, 1)])
        v = torch.cat([v, given.bias_v.repeat(1, batch, 1)])
    q, k, v = (split(one, batch) for one in (q, k, v))
    if case.zero:
        nothing = torch.zeros(batch * HEADS, 1, WIDTH // HEADS, dtype=k.dtype)
        k, v = (torch.cat([one, nothing], dim=1) for one in (k, v))
    mask = merged_mask(case, query.dtype, batch)
    q = q * math.sqrt(1.0 / (WIDTH // HEADS))
    if mask is None:
        scores = torch.bmm(q, k.transpose(-2, -1))
    else:
        scores = torch.baddbmm(mask, q, k.transpose(-2, -1))
    weights = scores.softmax(dim=-1)
    if case.training and case.dropout_p > 0:
        weights = functional.dropout(weights, p=case.dropout_p)
    joined = torch.bmm(weights, v).transpose(0, 1).reshape(LENGTH * batch, WIDTH)
    output = functional.linear(joined, given.out_weight, given.out_bias).view(LENGTH, batch, WIDTH)
    weights = weights.view(batch, HEADS, LENGTH, -1)
    if case.average:
        weights = weights.mean(dim=1)
    return (output, weights) if case.batched else (output.squeeze(1), weights.squeeze(0))


def computed(
    case: Case, given: Inputs, *, need_weights: bool = True
) -> tuple[torch.Tensor, torch.Tensor | None]:
    attn_mask, key_padding_mask = make_masks(case, given.query.dtype)
    if key_padding_mask is not None and not case.batched:
        key_padding_mask = key_padding_mask[0]
    output, weights = functional.multi_head_attention_forward(
        given.query,
        given.key,
        given.value,
        WIDTH,
        HEADS,
        given.in_weight,
        given.in_bias,
        given.bias_k if case.biases else None,
        given.bias_v if case.biases else None,
        add_zero_attn=case.zero,
        dropout_p=case.dropout_p,
        out_proj_weight=given.out_weight,
        out_proj_bias=given.out_bias,
        training=case.training,
        key_padding_mask=key_padding_mask,
        need_weights=need_weights,
        attn_mask=attn_mask,
        average_attn_weights=case.average,
    )
    return output, weights


def assert_same_bits(name: str, actual: torch.Tensor | None, right: torch.Tensor | None) -> None:
    if right is None:
        assert actual is None, f"{name}: there is one"
        return
    assert actual is not None, f"{name}: there is none"
    assert actual.dtype == right.dtype
    assert torch.equal(actual, right), f"{name}: other bits"


@pytest.mark.parametrize("dtype", FULL, ids=str)
@pytest.mark.parametrize("name", CASES)
def test_full_precision_keeps_its_bits(name: str, dtype: torch.dtype) -> None:
    case = CASES[name]
    given = make_inputs(dtype, batched=case.batched)
    torch.manual_seed(7)
    output, weights = computed(case, given)
    torch.manual_seed(7)
    right = expected(case, given)
    assert_same_bits("output", output, right[0])
    assert_same_bits("weights", weights, right[1])


@pytest.mark.parametrize("dtype", FULL, ids=str)
@pytest.mark.parametrize("name", CASES)
def test_gradients_of_full_precision_keep_their_bits(name: str, dtype: torch.dtype) -> None:
    case = CASES[name]
    given = make_inputs(dtype, batched=case.batched)
    grads = []
    for run in (computed, expected):
        leaves = given.leaves()
        torch.manual_seed(7)
        output, weights = run(case, leaves)
        assert weights is not None
        (output.square().sum() + weights.square().sum()).backward()
        grads.append({part: one.grad for part, one in vars(leaves).items()})
    for part in grads[0]:
        assert_same_bits(f"gradient of {part}", grads[0][part], grads[1][part])


@pytest.mark.parametrize("dtype", [*FULL, *HALVES], ids=str)
def test_without_weights_it_is_sdpa_bit_for_bit(dtype: torch.dtype) -> None:
    given = make_inputs(dtype, batched=True)
    output, weights = computed(Case(), given, need_weights=False)
    q, k, v = (
        split(functional.linear(one, weight, bias), BATCH).unflatten(0, (BATCH, HEADS))
        for one, weight, bias in zip(
            (given.query, given.key, given.value),
            given.in_weight.chunk(3),
            given.in_bias.chunk(3),
            strict=True,
        )
    )
    right = functional.scaled_dot_product_attention(q, k, v)
    rows = right.permute(2, 0, 1, 3).reshape(LENGTH * BATCH, WIDTH)
    right = functional.linear(rows, given.out_weight, given.out_bias).view(LENGTH, BATCH, WIDTH)
    assert weights is None
    assert_same_bits("output", output, right)


@pytest.mark.parametrize("dtype", [*FULL, *HALVES], ids=str)
def test_the_causal_hint_without_a_mask_is_refused(dtype: torch.dtype) -> None:
    module = torch.nn.MultiheadAttention(WIDTH, HEADS, dtype=dtype)
    x = make_inputs(dtype, batched=True).query
    with pytest.raises(RuntimeError, match="Need attn_mask if specifying the is_causal hint"):
        module(x, x, x, is_causal=True)
