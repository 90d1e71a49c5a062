"""Which side of SGLang's `test_scale_applied` is wrong on ROCm? docs/tied-experts.md says it.

SGLANG=TREE/python contribbot emulate gfx942 gfx1201 -- pytest docs/examples/test_tied_experts.py
"""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from contribbot import emulate
from contribbot.numerics import record

KERNEL = Path(os.environ["SGLANG"], "sglang/kernels/ops/moe/gemma4_routing.py")
TOKENS, EXPERTS, CHOSEN = 4, 128, 8
ALLOWED = 5e-3
Words = NDArray[np.uint64]


def philox(seed: int, threads: int, offset: int) -> list[Words]:
    """Return the words of Philox 4x32-10 that each thread of a CUDA kernel of torch's draws."""
    low, half = np.uint64(2**32 - 1), np.uint64(32)
    zero = np.zeros(threads, np.uint64)
    words = [zero + np.uint64(offset), zero, np.arange(threads, dtype=np.uint64), zero]
    for step in range(10):
        keys = [np.uint64((seed * (not place) + step * each) % 2**32)
                for place, each in enumerate((0x9E3779B9, 0xBB67AE85))]  # fmt: skip
        first, second = words[0] * np.uint64(0xD2511F53), words[2] * np.uint64(0xCD9E8D57)
        words = [second >> half ^ words[1] ^ keys[0], second & low,
                 first >> half ^ words[3] ^ keys[1], first & low]  # fmt: skip
    return words


def uniform(words: Words) -> NDArray[np.float64]:
    """Return words as numbers from 0 to 1, without 0."""
    return (words.astype(np.float64) + 0.5) * 2.0**-32


def normal(threads: int, seed: int = 1) -> torch.Tensor:
    """Return what `torch.randn` draws on CUDA right after `torch.manual_seed`: Box and Muller."""
    first, second, *_ = philox(seed, threads, 0)
    drawn = np.sin(uniform(second) * 2 * np.pi) * np.sqrt(-2 * np.log(uniform(first)))
    return torch.from_numpy(drawn).float()


def inputs() -> tuple[torch.Tensor, torch.Tensor]:
    """Return the logits and scales of the test, as it draws them on a GPU."""
    logits = normal(TOKENS * EXPERTS).bfloat16().view(TOKENS, EXPERTS)
    return logits, torch.from_numpy(uniform(philox(1, EXPERTS, 1)[0])).float().bfloat16() * 3


def in_torch(ids: torch.Tensor, kind: torch.dtype = torch.bfloat16) -> torch.Tensor:
    """Return the weights of chosen experts, computed in one type as the test's reference does."""
    logits, scales = inputs()
    weights = torch.softmax(logits.gather(1, ids).to(kind), -1)
    return weights * scales[ids].to(kind)


def in_order() -> torch.Tensor:
    """Return the best experts of each token, of tied ones the lower first."""
    logits, _ = inputs()
    ordered = torch.sort(logits.float(), dim=-1, descending=True, stable=True)
    return ordered.indices[:, :CHOSEN]


def by_the_kernel(scales: torch.Tensor | None = None) -> tuple[torch.Tensor, torch.Tensor]:
    """Return weights and experts of SGLang's kernel on the GPU; `scales`: not the test's."""
    logits, own = inputs()
    spec = importlib.util.spec_from_file_location(KERNEL.stem, KERNEL)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    route: Callable[..., tuple[torch.Tensor, torch.Tensor]] = module.gemma4_fused_routing
    weights, ids = route(logits.cuda(), (own if scales is None else scales).cuda(), CHOSEN)
    return weights.cpu(), ids.cpu().long()


def test_the_kernel_is_right() -> None:
    """It chooses the best, and weighs them as float64 does."""
    weights, ids = by_the_kernel()
    assert torch.equal(ids, in_order())
    exact = in_torch(ids, torch.float64)
    error = ((weights - exact) / exact).abs().max()
    print(f"the kernel's largest relative error: {error / 2**-23:.2f} times 2^-23")
    assert error < 2 * 2**-23


def test_two_experts_are_tied() -> None:
    """Two experts have one logit, and other scales."""
    # What torch draws on CUDA from seed 0, as many pages show it.
    assert normal(3, seed=0).tolist() == pytest.approx([-0.9247, -0.4253, -2.6438], abs=5e-5)
    logits, scales = inputs()
    assert in_order()[0, :2].tolist() == [1, 26]
    assert logits[0, [1, 26]].tolist() == [2.671875, 2.671875]
    assert scales[[1, 26]].tolist() == [0.6953125, 1.5]


def test_in_the_other_order_the_difference_is_the_published_one() -> None:
    """Exchange the two in the reference."""
    weights, ids = by_the_kernel()
    other = ids.clone()
    other[0, :2] = ids[0, [1, 0]]
    difference = (weights - in_torch(other)).abs()
    print(
        f"in the other order: {difference.max():.6f}, in {int((difference > ALLOWED).sum())} of 32"
    )
    assert f"{difference.max():.3f}" == "0.156"


def test_in_the_same_order_the_format_is_what_is_left() -> None:
    """Compare with the reference, which is in bfloat16, in the kernel's order."""
    weights, ids = by_the_kernel()
    exact = in_torch(ids, torch.float64)
    print(f"in the same order: {(weights - in_torch(ids)).abs().max():.6f}")
    print(f"of it torch's bfloat16: {(exact - in_torch(ids)).abs().max():.6f}")
    torch.testing.assert_close(weights, in_torch(ids).float(), atol=ALLOWED, rtol=ALLOWED)


def test_what_hangs_on_a_bound() -> None:
    """See what could be otherwise by AMD's documents."""
    logits, scales = inputs()
    target = torch.cuda.get_device_properties(0).gcnArchName.partition(":")[0]
    types = dict.fromkeys(("gating_ptr", "per_expert_scale_ptr"), "*bf16")
    types |= {"topk_weights_ptr": "*fp32", "topk_ids_ptr": "*i32", "stride_g_t": "i32"}
    constants = {"E": EXPERTS, "K": CHOSEN, "BLOCK_E": EXPERTS}
    types |= dict.fromkeys(constants, "constexpr")
    kernel = emulate.compile_triton(
        KERNEL, "_gemma4_routing_kernel", target, types, constants=constants, num_warps=1
    )
    weights = torch.zeros(TOKENS, CHOSEN)
    ids = torch.zeros(TOKENS, CHOSEN, dtype=torch.int32)
    lanes = kernel.metadata.wavefront_size
    ran = emulate.launch(
        kernel, TOKENS, lanes, [logits, scales, weights, ids, EXPERTS, 0, 0], bounds=True
    )
    hang = {name: mask.reshape(-1, 4) for name, mask in ran.undetermined.items() if mask.any()}
    assert {*hang} <= {"argument 2"}  # the weights, and no expert
    assert not any(mask[:, 1:].any() for mask in hang.values())
    count = sum(int(mask.sum()) for mask in hang.values())
    print(f"bytes that hang on a documented bound: {count}, each the lowest of its weight")


def test_what_explain_is_given() -> None:
    """Write the kernel's softmax and torch's, all scales 1, where RECORDS names a folder."""
    logits, scales = inputs()
    weights, ids = by_the_kernel(torch.ones_like(scales))
    chosen = logits.gather(1, ids)
    results = {"kernel": weights, "torch": torch.softmax(chosen, -1).float()}
    if folder := os.environ.get("RECORDS"):
        for name, result in results.items():
            record(f"{folder}/{name}.safetensors", "softmax", result, {"x": chosen.float()})
