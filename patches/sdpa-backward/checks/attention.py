"""AOTriton's attention function for tests, with either of its backward passes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any  # AOTriton's functions have no types.

import attn_torch_function as upstream
import torch

HEAD = 16


class FusedKernel:
    """The fused kernel with the arguments that `backward_fused` does not pass at this release."""

    def __init__(self, kernel: Any) -> None:
        self._kernel = kernel

    def __getitem__(self, grid: Any) -> Callable[..., None]:
        def launch(*args: object, head_dim: int, **named: object) -> None:
            nothing = torch.empty(0, device="cuda", dtype=torch.int32)
            self._kernel[grid](
                *args,
                seq_strides_q=nothing,
                seq_strides_k=nothing,
                hdim_qk=head_dim,
                hdim_vo=head_dim,
                **named,
            )

        return launch


def use_fused_backward() -> None:
    """Have the gradients come from `bwd_kernel_fuse`."""
    upstream.bare_bwd_kernel_fuse = FusedKernel(upstream.bare_bwd_kernel_fuse)
    upstream._attention.backward = staticmethod(upstream._attention.backward_fused)  # noqa: SLF001


def inputs(scale: float, dtype: torch.dtype = torch.bfloat16) -> list[torch.Tensor]:
    """Return q and k of N(0, scale), and v and an output gradient of N(0, 1)."""
    generator = torch.Generator().manual_seed(0)
    factors = (scale, scale, 1.0, 1.0)
    return [
        (torch.randn(1, 1, 64, HEAD, generator=generator) * factor).to(dtype) for factor in factors
    ]


def run(
    tensors: list[torch.Tensor], sm_scale: float = HEAD**-0.5, *, causal: bool = False
) -> list[torch.Tensor]:
    """Return the result, dq, dk and dv of AOTriton's kernels."""
    q, k, v = (tensor.cuda().requires_grad_() for tensor in tensors[:3])
    arguments = upstream.AttentionExtraArgs(fillnan=True, is_testing=False)
    out, _, _ = upstream.attention(q, k, v, None, causal, sm_scale, 0.0, arguments)
    out.backward(tensors[3].cuda())
    return [tensor.detach().cpu() for tensor in (out, q.grad, k.grad, v.grad)]


def reference(
    tensors: list[torch.Tensor], sm_scale: float = HEAD**-0.5, *, causal: bool = False
) -> list[torch.Tensor]:
    """Return the same in float64, by matrix products."""
    q, k, v = (tensor.double().requires_grad_() for tensor in tensors[:3])
    scores = q @ k.transpose(-2, -1) * sm_scale
    if causal:
        later = torch.ones(scores.shape[-2:], dtype=torch.bool).triu(1)
        scores = scores.masked_fill(later, float("-inf"))
    out = scores.softmax(-1) @ v
    out.backward(tensors[3].double())
    found = [tensor.grad for tensor in (q, k, v)]
    return [out.detach(), *(tensor for tensor in found if tensor is not None)]
