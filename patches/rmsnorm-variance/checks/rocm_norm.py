"""SGLang's real `layernorm.py` as on ROCm, with stand-ins for aiter's kernels.

They run on a CPU and do what those do: they normalise a row by the mean square of all its columns.
"""

from __future__ import annotations

from functools import partial

import torch

from contribbot.testing import answers, import_file

#: The kernels that were called since the list was cleared.
calls: list[str] = []


def normalise(x: torch.Tensor, weight: torch.Tensor, epsilon: float) -> torch.Tensor:
    """Scale float32 rows by the root mean square of all columns, and the weight."""
    return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + epsilon) * weight.float()


def _aiter(x: torch.Tensor, weight: torch.Tensor, epsilon: float) -> torch.Tensor:
    assert x.dim() == 2, "aiter reads 2-D rows"
    assert x.is_contiguous(), "aiter reads contiguous rows"
    calls.append("aiter")
    return normalise(x.float(), weight, epsilon).to(x.dtype)


def _aiter_add(  # noqa: PLR0917  aiter's own signature
    out: torch.Tensor,
    x: torch.Tensor,
    residual_in: torch.Tensor,
    residual_out: torch.Tensor,
    weight: torch.Tensor,
    epsilon: float,
) -> None:
    calls.append("aiter with residual")
    total = x.float() + residual_in.float()
    residual_out.copy_(total)
    out.copy_(normalise(total, weight, epsilon))


class BaseFusedOp(torch.nn.Module):
    """Of SGLang's dispatch: the method that a layer names, else that of the platform."""

    def __init__(self) -> None:
        super().__init__()
        self._forward_method = self.forward_hip

    def forward(self, *args: object) -> object:
        """Run the method that was chosen."""
        return self._forward_method(*args)


_no = partial(answers, answer=False)
RMS_NORM = import_file(
    "python/sglang/srt/layers/layernorm.py",
    given={
        "sglang.srt.utils": {
            **_no(*(f"is_{name}" for name in ("cuda", "cpu", "npu", "xpu", "musa"))),
            **_no("is_gfx1250_supported", "is_flashinfer_available", "cpu_has_amx_support"),
            **answers("is_hip", "get_bool_env_var", answer=True),
        },
        "sglang.kernels.fused_op": {"BaseFusedOp": BaseFusedOp},
        "sglang.srt.batch_invariant_ops": _no("is_batch_invariant_mode_enabled"),
        "aiter": {"rmsnorm2d_fwd": _aiter, "rmsnorm2d_fwd_with_add": _aiter_add},
    },
).RMSNorm
# SGLang asks it before it calls aiter.
setattr(torch.Tensor, "is_cuda", property(lambda _: True))  # noqa: B010  mypy knows it as read-only


def draw(*shape: int, seed: int = 0) -> torch.Tensor:
    """Return values of a normal distribution, always the same."""
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))
