"""SGLang's Triton kernels, called through SGLang's own functions: run with `--emulate TARGET`.

SGLANG names the unpacked wheel. Each module is loaded from its file: the package imports far more.
"""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch.nn import functional

ULP = 2.0**-23


def function(module: str, name: str) -> Callable[..., torch.Tensor]:
    """Return a function of SGLang's kernels."""
    path = Path(os.environ["SGLANG"], "sglang/kernels/ops", module)
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    loaded = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(loaded)
    found: Callable[..., torch.Tensor] = getattr(loaded, name)
    return found


@pytest.fixture(autouse=True)
def seed() -> None:
    torch.manual_seed(3)


def gpu(*shape: int, kind: torch.dtype = torch.float32, scale: float = 1) -> torch.Tensor:
    """Return random numbers on the GPU."""
    return (torch.randn(shape) * scale).to(kind).cuda()


@pytest.mark.parametrize("kind", [torch.float32, torch.bfloat16])
def test_rmsnorm(kind: torch.dtype) -> None:
    x, weight = gpu(5, 300, kind=kind), gpu(300)
    y = function("layernorm/rmsnorm_fp32.py", "rmsnorm_fp32")(x, weight, 1e-6)
    wide = x.cpu().double()
    expected = wide * (wide.square().mean(-1, keepdim=True) + 1e-6).rsqrt() * weight.cpu()
    torch.testing.assert_close(y.cpu(), expected.to(kind), rtol=16 * ULP if kind.itemsize == 4
                               else 2**-7, atol=0)  # fmt: skip


@pytest.mark.parametrize("read", [True, False])
def test_copy_at_an_offset(*, read: bool) -> None:
    x, y = gpu(64, 129), torch.zeros(64, 129).cuda()
    offset, size = torch.tensor([7]).cuda(), torch.tensor([33]).cuda()
    function("memory/memcpy_triton.py", "memcpy_triton")(y, x, 0, offset, size, read)
    expected = torch.zeros(64, 129)
    part = slice(0, 33) if read else slice(7, 40)
    expected[part] = x.cpu()[7:40] if read else x.cpu()[:33]
    assert torch.equal(y.cpu(), expected)


def test_zeroed_pages() -> None:
    pool, pages = torch.full((10 * 4808,), 9, dtype=torch.uint8).cuda(), torch.tensor([1, 8, 3])
    function("kvcache/zero_pages.py", "zero_pages")(pool, pages.cuda(), 10, 4808)
    expected = torch.full((10, 4808), 9, dtype=torch.uint8)
    expected[pages] = 0
    assert torch.equal(pool.cpu().view(10, 4808), expected)


def test_argmax_of_softcapped_logits() -> None:
    logits = gpu(3, 5000, scale=20)
    logits[1, 17] = logits[1, 4999] = 900.0  # the first of equals
    out = function("sampling/softcap_row_argmax.py", "softcap_row_argmax")(logits, 30.0, 5000, 100)
    capped = (logits.cpu().double() / 30).tanh() * 30
    # OCML's tanh is within 2 ULP; of those values that are as near as that, the first counts.
    torch.testing.assert_close(out[:, 0].cpu().double(), capped.amax(1), rtol=8 * ULP, atol=0)
    for row, place in enumerate(out[:, 1].long().tolist()):
        assert capped[row, place - 100] >= capped[row].max() * (1 - 8 * ULP)
    assert out[1, 1] == 117


def test_three_bfloat16_of_a_float() -> None:
    x = gpu(40, 60, scale=1e4)
    parts = (
        function("quantization/bf16x3_split.py", "split_fp32_to_bf16x3")(x).cpu().view(3, 40, 60)
    )
    rest = x.cpu()
    for part in parts:
        assert torch.equal(part, rest.bfloat16())
        rest -= part.float()
    assert not rest.any()


def test_merged_states() -> None:
    before, after, lse, other = gpu(6, 4, 96), gpu(6, 4, 96), gpu(6, 4, scale=3), gpu(6, 4, scale=3)
    lse[0] = float("inf")  # nothing before
    out, total = function("attention/merge_state.py", "merge_state_triton")(
        before, lse, after, other
    )
    both = torch.stack([lse.cpu(), other.cpu()]).double()
    both[both == float("inf")] = float("-inf")
    weights = both.softmax(0)[..., None]
    expected = weights[0] * before.cpu() + weights[1] * after.cpu()
    torch.testing.assert_close(out.cpu().double(), expected, rtol=2e-6, atol=2e-6)
    torch.testing.assert_close(total.cpu().double(), both.logsumexp(0), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("kind", [torch.int32, torch.float32])
def test_filled_rows(kind: torch.dtype) -> None:
    x = torch.arange(60).view(10, 6).to(kind)
    y = x.cuda()
    module = "moe/fill_padded_rows.py"
    function(module, "_fill_padded_rows")(y, torch.tensor([7], dtype=torch.int32).cuda(), -1)
    x[7:] = -1
    assert torch.equal(y.cpu(), x)


def test_gates() -> None:
    log, a, b, bias = gpu(20), gpu(7, 20, scale=9), gpu(7, 20), gpu(20)
    a[0] = 30.0  # above the threshold of softplus
    module = "attention/linear/fused_gdn_gating.py"
    g, beta = function(module, "fused_gdn_gating")(log, a, b, bias)
    x = (a + bias).cpu()
    expected = -log.cpu().double().exp() * functional.softplus(x.double())
    # log(1 + exp(x)) loses what is below half an ULP of 1.
    torch.testing.assert_close(g[0].cpu().double(), expected, rtol=16 * ULP, atol=4 * ULP * 20)
    torch.testing.assert_close(beta[0].cpu(), b.cpu().sigmoid(), rtol=4 * ULP, atol=0)


def test_embeddings_of_a_shard() -> None:
    weight, tokens = (
        gpu(24, 200, kind=torch.bfloat16),
        torch.tensor([3, 10, 25, 29, 30, 99, 101, 104]),
    )
    module = "embeddings/vocab_parallel_embedding.py"
    arguments = (tokens.cuda(), weight, 10, 30, 2, 100, 102)
    out = function(module, "vocab_parallel_embedding")(*arguments)
    expected = torch.zeros(8, 200, dtype=torch.bfloat16)
    for row, token in enumerate(tokens.tolist()):
        if 10 <= token < 30:
            expected[row] = weight.cpu()[token - 10]
        elif 100 <= token < 102:
            expected[row] = weight.cpu()[22 + token - 100]
    assert torch.equal(out.cpu(), expected)


def test_experts_by_a_table() -> None:
    logits, tokens = gpu(9, 32), torch.randint(0, 50, (9,))
    table = torch.stack([torch.randperm(32)[:6] for _ in range(50)]).int()
    weights, experts = function("moe/triton_hash_topk.py", "hash_topk_triton")(
        logits, tokens.cuda(), table.cuda(), 1, 2.5, "sqrtsoftplus"
    )
    chosen = table[tokens].long()
    score = functional.softplus(logits.cpu().double()).sqrt().gather(1, chosen)
    assert torch.equal(experts.cpu()[:, :6].long(), chosen)
    assert (experts[:, 6] == 32).all()
    expected = score / score.sum(1, keepdim=True)
    torch.testing.assert_close(weights.cpu()[:, :6].double(), expected, rtol=32 * ULP, atol=0)
    assert (weights[:, 6] == torch.tensor(1 / 2.5)).all()


def test_quantised_to_mxfp8() -> None:
    x = gpu(70, 96, kind=torch.bfloat16, scale=5)
    x[3] = 0
    codes, scales = function("quantization/mxfp8_quant.py", "to_mxfp8")(x)
    blocks = x.cpu().float().view(70, 3, 32)
    # log2 is within 1 ULP: the scale may be off only where the largest is a power of two of 448.
    exponent = (
        (blocks.abs().amax(-1).clamp(min=1e-30).double() / 448).log2().ceil().clamp(-127, 127)
    )
    assert torch.equal(scales.cpu().long(), exponent.long() + 127)
    wide = (blocks / torch.exp2(exponent)[..., None].float()).clamp(-448, 448)
    expected = wide.to(torch.float8_e4m3fn).view(70, 96)
    assert torch.equal(codes.cpu().view(torch.uint8), expected.view(torch.uint8))
