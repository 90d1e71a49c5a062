"""Multi-head attention as the checks call it: `torch.nn.functional`, identity projections.

Identity projections leave queries, keys and values as they are, so that what is seen is
the attention itself. The functions run on the device of their inputs.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch.nn import functional

HALVES = (torch.float16, torch.bfloat16)


@dataclass(frozen=True)
class Projections:
    """What stays the same over the calls of one check."""

    embed_dim: int
    heads: int
    in_weight: torch.Tensor
    out_weight: torch.Tensor

    @classmethod
    def identity(cls, like: torch.Tensor, heads: int) -> Projections:
        """Return identity projections for tensors such as `like`.

        Args:
            like: A query (length, batch, embed_dim).
            heads: The number of heads.
        """
        width = like.shape[-1]
        eye = torch.eye(width, dtype=like.dtype, device=like.device)
        return cls(width, heads, eye.repeat(3, 1), eye)


def attend(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    *,
    heads: int = 4,
    need_weights: bool = True,
    attn_mask: torch.Tensor | None = None,
    key_padding_mask: torch.Tensor | None = None,
    dropout_p: float = 0.0,
    training: bool = True,
    average: bool = True,
    is_causal: bool = False,
) -> tuple[torch.Tensor, torch.Tensor | None]:
    """Return output and weights of `multi_head_attention_forward`.

    Args:
        query: (length, batch, embed_dim), or without batch.
        key: (source length, batch, embed_dim), or without batch.
        value: As `key`.
        heads: The number of heads.
        need_weights: Ask for the weights; without them it is SDPA that runs.
        attn_mask: As the function takes it.
        key_padding_mask: As the function takes it.
        dropout_p: The probability of a weight to be zeroed.
        training: Whether dropout applies.
        average: Average the weights over the heads.
        is_causal: The hint of that name.
    """
    projections = Projections.identity(query, heads)
    output, weights = functional.multi_head_attention_forward(
        query,
        key,
        value,
        projections.embed_dim,
        heads,
        projections.in_weight,
        None,
        None,
        None,
        add_zero_attn=False,
        dropout_p=dropout_p,
        out_proj_weight=projections.out_weight,
        out_proj_bias=None,
        training=training,
        key_padding_mask=key_padding_mask,
        need_weights=need_weights,
        attn_mask=attn_mask,
        average_attn_weights=average,
        is_causal=is_causal,
    )
    return output, weights


def with_weights(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    *,
    attn_mask: torch.Tensor | None = None,
    key_padding_mask: torch.Tensor | None = None,
    average: bool = True,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return output and weights; as `attend`, for callers that asked for the weights."""
    output, weights = attend(
        query,
        key,
        value,
        attn_mask=attn_mask,
        key_padding_mask=key_padding_mask,
        average=average,
    )
    assert weights is not None, "weights: none returned"
    return output, weights


def draw(
    device: str,
    dtype: torch.dtype,
    s: float,
    *,
    length: int = 64,
    head_dim: int = 64,
    seed: int = 0,
) -> list[torch.Tensor]:
    """Return query and key from N(0, s) and value from N(0, 1), (length, 2, 4 * head_dim).

    Args:
        device: Where they lie; the values are the same everywhere.
        dtype: What they are rounded to.
        s: The standard deviation of query and key.
        length: Rows of each.
        head_dim: The width of each of the 4 heads.
        seed: Of the generator.
    """
    generator = torch.Generator().manual_seed(seed)
    shape = (length, 2, 4 * head_dim)
    return [
        (torch.randn(shape, generator=generator, dtype=torch.float64) * std).to(dtype).to(device)
        for std in (s, s, 1.0)
    ]


def double(*tensors: torch.Tensor) -> list[torch.Tensor]:
    """Return the same values in float64, as new leaves of autograd."""
    return [one.detach().double() for one in tensors]


def by_rounded_weights(
    inputs: list[torch.Tensor],
    *,
    attn_mask: torch.Tensor | None = None,
    key_padding_mask: torch.Tensor | None = None,
) -> torch.Tensor:
    """Return what exact weights make of the values once they are rounded, as they are returned.

    Args:
        inputs: Query, key and value, (length, batch, embed_dim).
        attn_mask: As the function takes it, in float64.
        key_padding_mask: As the function takes it.
    """
    dtype, value = inputs[2].dtype, inputs[2]
    masks = {"attn_mask": attn_mask, "key_padding_mask": key_padding_mask}
    _, weights = with_weights(*double(*inputs), average=False, **masks)
    heads = value.double().unflatten(-1, (weights.shape[1], -1)).permute(1, 2, 0, 3)
    return (weights.to(dtype).double() @ heads).permute(2, 0, 1, 3).flatten(2).to(dtype)


def max_error(actual: torch.Tensor, reference: torch.Tensor) -> float:
    """Return the largest absolute difference; NaN if there is one."""
    return float((actual.detach().double() - reference.detach().double()).abs().max())


def assert_like_sdpa(
    name: str, actual: torch.Tensor, reference: torch.Tensor, *others: torch.Tensor
) -> None:
    """Fail if a result errs by more than twice what others err on the same input.

    Args:
        name: What it is called.
        actual: The result.
        reference: The same in float64.
        *others: The output of SDPA, and that of exact weights which are rounded. Half a unit in
            the last place of the largest element is always granted: they may have been lucky.
    """
    assert bool(actual.isfinite().all()), f"{name}: not finite"
    luck = torch.finfo(actual.dtype).eps / 2 * float(reference.detach().abs().max())
    allowed = max(luck, *(max_error(other, reference) for other in others))
    error = max_error(actual, reference)
    assert error <= 2 * allowed, (
        f"{name}: max abs error {error:.3g} is {error / allowed:.1f} times SDPA's {allowed:.3g}"
    )
