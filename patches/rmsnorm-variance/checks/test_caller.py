"""With tensor parallelism, vision attention takes the mean over the heads of all GPUs.

Fail-to-pass: on the base, where the JIT norm loads, each GPU takes it over its own heads.
The real `VisionAttention.forward` runs as on ROCm, up to the attention itself.
"""

from __future__ import annotations

import contextlib
from functools import partial
from types import SimpleNamespace

import pytest
import torch
from rocm_norm import AITER, BaseFusedOp
from torch import nn

from contribbot.testing import answers, import_file

#: InternViT-6B has 25 heads of 128 columns.
HEAD, WIDTH, TOKENS = 128, 25 * 128, 6

_no = partial(answers, answer=False)
_exec = SimpleNamespace(deterministic=SimpleNamespace(rl_on_policy_target=None))
_platforms = _no(*(f"is_{name}" for name in ("cuda", "cpu", "npu", "xpu", "musa")))
vision = import_file(
    "python/sglang/srt/layers/attention/vision.py",
    real=["sglang.srt.layers.layernorm", "sglang.srt.models.utils"],
    given={
        "sglang.srt.utils": {
            **_platforms,
            **_no("is_gfx1250_supported", "is_flashinfer_available", "cpu_has_amx_support"),
            **answers("is_hip", "get_bool_env_var", answer=True),
        },
        "sglang.kernels.ops.layernorm.norm": answers("can_use_fused_inplace_qknorm", answer=True),
        "sglang.kernels.fused_op": {"BaseFusedOp": BaseFusedOp},
        "sglang.srt.batch_invariant_ops": _no("is_batch_invariant_mode_enabled"),
        "sglang.srt.runtime_context": answers("get_exec", answer=_exec),
        "sglang.srt.utils.custom_op": {"register_custom_op": lambda *_, **__: lambda made: made},
        "sglang.srt.utils.multi_stream_utils": {
            "with_multi_stream": contextlib.nullcontext,
            "maybe_execute_in_parallel": lambda first, second, *_: (first(), second()),
        },
        "sglang.srt.distributed": {
            "split_tensor_along_last_dim": lambda x, num_partitions: x.chunk(num_partitions, -1),
        },
        "aiter": AITER,
    },
)


class _ReachedAttentionError(Exception):
    pass


class _Rank(vision.VisionAttention):
    """One of `size` GPUs, whose projection gives its heads of the rows `q` and `k`."""

    def __init__(self, rank: int, size: int, q: torch.Tensor, k: torch.Tensor) -> None:
        nn.Module.__init__(self)
        heads = q.shape[-1] // HEAD // size
        self.tp_rank, self.tp_size, self.head_size = rank, size, HEAD
        self.num_attention_heads_per_partition = heads
        self.num_attention_kv_heads_per_partition = heads
        self.q_size = self.kv_size = heads * HEAD
        self.use_qkv_parallel = self.qk_normalization = True
        self.pass_strided_qkv = self.qk_normalization_by_head_size = False
        self.customized_position_embedding_applier = self.aux_stream = self.sinks = None
        self.softmax_scale = None
        self.ln_events: list[object] = []
        self.window_size = (-1, -1)
        self.q_norm, self.k_norm = (_norm(q.shape[-1], seed) for seed in (2, 3))
        qkv = torch.cat([x.chunk(size, -1)[rank] for x in (q, k, q)], -1)
        self.qkv_proj = lambda _: (qkv.unsqueeze(0), None)
        self.qkv_backend = SimpleNamespace(forward=self._stop)

    @staticmethod
    def _stop(q: torch.Tensor, k: torch.Tensor, **_: object) -> None:
        raise _ReachedAttentionError(q, k)


def _draw(*shape: int, seed: int) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def _norm(hidden: int, seed: int) -> nn.Module:
    norm = vision.RMSNorm(hidden, var_hidden_size=WIDTH).bfloat16()
    norm.weight.data.copy_(1 + 0.1 * _draw(hidden, seed=seed))
    return norm


def _rows(heads: int, seed: int) -> torch.Tensor:
    """Return a row of all heads for each token; those that pad are zeros, as in InternVL."""
    rows = _draw(TOKENS, heads * HEAD, seed=seed).bfloat16()
    rows[:, WIDTH:] = 0
    return rows


@pytest.mark.parametrize(("size", "heads"), [(2, 26), (4, 28), (8, 32)])
def test_mean_over_the_heads_of_all_gpus(
    size: int, heads: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    # SGLang asks it before it calls aiter.
    monkeypatch.setattr(torch.Tensor, "is_cuda", property(lambda _: True))
    q, k = _rows(heads, 0), _rows(heads, 1)
    for rank in range(size):
        whole = {x.chunk(size, -1)[rank].sum().item(): x for x in (q, k)}
        monkeypatch.setattr(
            vision, "tensor_model_parallel_all_gather", lambda x, whole=whole: whole[x.sum().item()]
        )
        attention = _Rank(rank, size, q, k)
        with torch.no_grad(), pytest.raises(_ReachedAttentionError) as reached:
            attention(torch.zeros(1, TOKENS, 1))
        for x, norm, y in zip(
            (q, k), (attention.q_norm, attention.k_norm), reached.value.args, strict=True
        ):
            mean = x[:, :WIDTH].double().square().mean(-1, keepdim=True)
            expected = x.double() * torch.rsqrt(mean + 1e-6) * norm.weight.double()
            expected = expected.chunk(size, -1)[rank]
            off = ((y.flatten(1).double() - expected).abs() / expected.abs().clamp_min(1e-3)).max()
            assert off < 2**-7, f"off by {off:.0%}, on GPU {rank} of {size}"
