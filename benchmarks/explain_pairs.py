"""How often `contribbot numerics explain` is right: planted pairs, of causes and of faults.

    python -m benchmarks.explain_pairs [--device cuda] [--seeds 5] [--workers 8] [--only NAME …]

Each pair is two results of one computation that the device gave, by torch's own operators. Between
them lies a cause that is known: an arithmetic, which is to be named, or a fault, which is not to be
explained. It prints how many of each kind were right, not explained ("none"), or wrong, and the
seconds of each pair in its worker's one thread. Without a GPU, what only its kernels do is
computed step by step, or left out.
"""

from __future__ import annotations

import argparse
import math
import multiprocessing
import os
import statistics
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

import torch
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import linear, scaled_dot_product_attention

from contribbot.numerics import explain, recording
from contribbot.numerics.explanation import Confidence, Explanation
from contribbot.numerics.recordings import Recording

ROWS, TERMS, COLUMNS = 512, 512, 512
HEADS, LENGTH, WIDTH = 16, 512, 64


@dataclass
class Pair:
    """Two results, and what they were made of."""

    computation: str
    a: Tensor
    b: Tensor
    inputs: dict[str, Tensor]
    parameters: dict[str, float]


class Maker:
    """Draws inputs on a device, and computes there."""

    def __init__(self, device: str, seed: int) -> None:
        self.device = device
        self._drawn = torch.Generator().manual_seed(seed)

    def normal(self, *shape: int, dtype: torch.dtype = torch.float32, by: float = 1.0) -> Tensor:
        """Return normal numbers."""
        drawn = torch.randn(shape, generator=self._drawn) * by
        return drawn.to(dtype).to(self.device)

    def pair(
        self, computation: str, a: Tensor, b: Tensor, inputs: dict[str, Tensor], **known: float
    ) -> Pair:
        """Return a pair of results."""
        return Pair(computation, a, b, inputs, known)

    def factors(self, dtype: torch.dtype = torch.float32) -> tuple[Tensor, Tensor]:
        """Return a linear layer's input and weights."""
        return self.normal(ROWS, TERMS, dtype=dtype), self.normal(COLUMNS, TERMS, dtype=dtype)

    def heads(self, dtype: torch.dtype, width: int = WIDTH) -> tuple[Tensor, Tensor, Tensor]:
        """Return queries, keys and values."""
        q, k, v = (self.normal(2, HEADS, LENGTH, width, dtype=dtype) for _ in range(3))
        return q, k, v


@contextmanager
def settings(*, tf32: bool = False, half: bool = False) -> Iterator[None]:
    """Let CUDA's products take TF32, or accumulate in float16."""
    products = torch.backends.cuda.matmul
    products.allow_tf32 = tf32
    products.allow_fp16_reduced_precision_reduction = False
    products.allow_bf16_reduced_precision_reduction = False
    products.allow_fp16_accumulation = half
    try:
        yield
    finally:
        products.allow_tf32 = products.allow_fp16_accumulation = False


def product(x: Tensor, weight: Tensor) -> Tensor:
    """Return a product whose partial sums are float32's."""
    with settings():
        return linear(x, weight)


def half_product(x: Tensor, weight: Tensor) -> Tensor:
    """Return a product whose partial sums are float16's: 16 terms are added at a time."""
    if x.is_cuda:
        with settings(half=True):
            return linear(x, weight)
    total = x.new_zeros(len(x), len(weight))
    for left, right in zip(torch.split(x, 16, 1), torch.split(weight, 16, 1), strict=True):
        total = (total.double() + left.double() @ right.double().T).half()
    return total


def in_splits(
    x: Tensor, weight: Tensor, splits: int, part: Callable[[Tensor, Tensor], Tensor], *,
    wide: bool = False,
) -> Tensor:  # fmt: skip
    """Return a product of K-splits, whose sums are added as they are, or in float32."""
    sides = zip(x.chunk(splits, 1), weight.chunk(splits, 1), strict=True)
    parts = [part(left.contiguous(), right.contiguous()) for left, right in sides]
    total = parts[0].float() if wide else parts[0]
    for other in parts[1:]:
        total = total + other
    return total.to(x.dtype)


def split_half(splits: int, *, wide: bool = False) -> Callable[[Maker], Pair]:
    """Return a maker of float16 accumulation in K-splits."""

    def made(m: Maker) -> Pair:
        x, w = m.factors(torch.float16)
        b = in_splits(x, w, splits, half_product, wide=wide)
        return m.pair("linear", product(x, w), b, {"x": x, "weight": w})

    return made


def split_parts(dtype: torch.dtype, splits: int, *, wide: bool = False) -> Callable[[Maker], Pair]:
    """Return a maker of sums of splits that are kept in 16 bits."""

    def made(m: Maker) -> Pair:
        x, w = m.factors(dtype)
        b = in_splits(x, w, splits, product, wide=wide)
        return m.pair("linear", product(x, w), b, {"x": x, "weight": w})

    return made


def short(tensor: Tensor, dtype: torch.dtype = torch.bfloat16) -> Tensor:
    """Return a tensor rounded to 16 bits."""
    return tensor.to(dtype).to(tensor.dtype)


def short_weights(m: Maker) -> Pair:
    """Only the weights are rounded to bfloat16."""
    x, w = m.factors()
    return m.pair("linear", product(x, w), product(x, short(w)), {"x": x, "weight": w})


def short_inputs(m: Maker) -> Pair:
    """Only the activations are rounded to float16."""
    x, w = m.factors()
    b = product(short(x, torch.float16), w)
    return m.pair("linear", product(x, w), b, {"x": x, "weight": w})


def short_second(m: Maker) -> Pair:
    """Only the second factor of a matmul is rounded to bfloat16, its result is bfloat16."""
    x, w = m.factors()
    inputs = {"x": x, "y": w.T.contiguous()}
    return m.pair("matmul", product(x, w), product(x, short(w)), inputs)


def tf32_bias(m: Maker) -> Pair:
    """TF32, with a bias."""
    x, w = m.factors()
    bias = m.normal(COLUMNS)
    if x.is_cuda:
        with settings(tf32=True):
            b = linear(x, w) + bias
    else:
        b = linear(*(short(side, torch.float16) for side in (x, w))) + bias
    return m.pair("linear", product(x, w) + bias, b, {"x": x, "weight": w, "bias": bias})


def sdpa(
    backend: SDPBackend, *, dtype: torch.dtype = torch.bfloat16, causal: bool = False,
    width: int = WIDTH,
) -> Callable[[Maker], Pair]:  # fmt: skip
    """Return a maker of attention by two of torch's own kernels."""

    def made(m: Maker) -> Pair:
        q, k, v = m.heads(dtype, width)
        sides = []
        for chosen in (SDPBackend.MATH, backend):
            with sdpa_kernel(chosen), settings():
                sides.append(scaled_dot_product_attention(q, k, v, is_causal=causal))
        a, b = sides
        # The CPU's own fused kernel approximates exp to a few digits.
        b = b if b.is_cuda else tiled_attention(q, k, v, causal=causal)
        return m.pair("attention", a, b, {"q": q, "k": k, "v": v}, causal=causal)

    return made


def tiled_attention(
    q: Tensor, k: Tensor, v: Tensor, *, causal: bool = False, rescale: bool = True
) -> Tensor:
    """Return attention as FlashAttention 2 computes it, in tiles of 128 keys, from the last on."""
    scores = q.float() @ k.float().mT * q.shape[-1] ** -0.5
    if causal:
        hidden = torch.ones_like(scores[0, 0], dtype=torch.bool).triu(1)
        scores = scores.masked_fill(hidden, -1e30)
    total, out = torch.zeros_like(scores[..., :1]), torch.zeros_like(q).float()
    largest = torch.full_like(total, -1e29)
    for some, value in reversed([*zip(torch.split(scores, 128, -1), torch.split(v, 128, -2),
                                      strict=True)]):  # fmt: skip
        before, largest = largest, torch.maximum(largest, some.amax(-1, keepdim=True))
        less = (before - largest).exp() if rescale else torch.ones_like(largest)
        e = (some - largest).exp()
        total = total * less + e.sum(-1, keepdim=True)
        out = out * less + e.to(v.dtype).float() @ value.float()
    return (out / total).to(q.dtype)


def eager_attention(m: Maker) -> Pair:
    """Scores and weights are tensors of bfloat16."""
    q, k, v = m.heads(torch.bfloat16)
    with sdpa_kernel(SDPBackend.MATH), settings():
        a = scaled_dot_product_attention(q, k, v)
        scores = torch.matmul(q, k.mT) * WIDTH**-0.5
        b = torch.matmul(scores.float().softmax(-1).to(q.dtype), v)
    return m.pair("attention", a, b, {"q": q, "k": k, "v": v})


def powers(x: Tensor, *, two: bool = False) -> Tensor:
    """Return exp, rounded once; or exp2 of a rounded product."""
    log2e = torch.tensor(math.log2(math.e), dtype=torch.float32, device=x.device)
    return ((x * log2e).double().exp2() if two else x.double().exp()).float()


def split_softmax(m: Maker) -> Pair:
    """Each quarter of a row has its own maximum and sum."""
    x = m.normal(ROWS, TERMS, by=3.0)
    parts = x.chunk(4, 1)
    largest = [part.amax(1, keepdim=True) for part in parts]
    sums = [(part - top).exp().sum(1, keepdim=True)
            for part, top in zip(parts, largest, strict=True)]  # fmt: skip
    top = x.amax(1, keepdim=True)
    total = sum((s * (own - top).exp() for s, own in zip(sums, largest, strict=True)),
                torch.zeros_like(top))  # fmt: skip
    return m.pair("softmax", x.softmax(1), (x - top).exp() / total, {"x": x})


def exp2_softmax(m: Maker) -> Pair:
    """exp2 of the scaled input, in a softmax."""
    x = m.normal(ROWS, TERMS, by=3.0)
    shifted = x - x.amax(1, keepdim=True)
    sides = [e / e.sum(1, keepdim=True) for e in (powers(shifted), powers(shifted, two=True))]
    return m.pair("softmax", sides[0], sides[1], {"x": x})


def one_pass(m: Maker) -> Pair:
    """The variance is the mean of squares less the mean's square, with weight and bias."""
    x = m.normal(ROWS, TERMS) + 5.0
    w, bias = m.normal(TERMS), m.normal(TERMS)
    mean = x.mean(1, keepdim=True)
    squares = (x * x).mean(1, keepdim=True) - mean * mean
    b = (x - mean) / (squares + 1e-5).sqrt() * w + bias
    a = torch.nn.functional.layer_norm(x, (TERMS,), w, bias)
    return m.pair("layernorm", a, b, {"x": x, "weight": w, "bias": bias})


def normed(x: Tensor, w: Tensor, eps: float = 1e-6) -> Tensor:
    """Return RMSNorm, in float32."""
    wide = x.float()
    return (wide / (wide.square().mean(1, keepdim=True) + eps).sqrt() * w.float()).to(x.dtype)


def short_norm_weight(m: Maker) -> Pair:
    """Only the weight of an RMSNorm is rounded to bfloat16."""
    x, w = m.normal(ROWS, TERMS), m.normal(TERMS)
    return m.pair("rmsnorm", normed(x, w), normed(x, short(w)), {"x": x, "weight": w})


def other_order(m: Maker) -> Pair:
    """The sums of 24 splits, added last to first."""
    x, w = m.factors()
    b = in_splits(x.flip(1), w.flip(1), 24, product)
    return m.pair("linear", product(x, w), b, {"x": x, "weight": w})


def short_sum(m: Maker) -> Pair:
    """Sums of four splits of a row, kept in bfloat16."""
    x = m.normal(4 * ROWS, TERMS, dtype=torch.bfloat16)
    total = torch.zeros_like(x[:, 0])
    for part in x.chunk(4, 1):
        total = total + part.float().sum(1).to(x.dtype)
    return m.pair("sum", x.float().sum(1).to(x.dtype), total, {"x": x})


def power_scales(m: Maker) -> Pair:
    """Scales of a quantisation are rounded up to powers of two."""
    x = m.normal(ROWS, TERMS)
    scale = x.abs().amax(1, keepdim=True) / 448.0
    sides = [
        (x / s).clamp(-448, 448).to(torch.float8_e4m3fn).float() * s
        for s in (scale, scale.log2().ceil().exp2())
    ]
    return m.pair("quantise", sides[0], sides[1], {"x": x})


def dropped_term(m: Maker) -> Pair:
    """The last term is left out, in float16."""
    x, w = m.factors(torch.float16)
    b = product(x[:, :-1], w[:, :-1])
    return m.pair("linear", product(x, w), b, {"x": x, "weight": w})


def wrong_scale(m: Maker) -> Pair:
    """The result is too large by a thousandth."""
    x, w = m.factors()
    return m.pair("linear", product(x, w), product(x, w) * 1.001, {"x": x, "weight": w})


def wrong_attention_scale(m: Maker) -> Pair:
    """The scores are too large by a hundredth."""
    q, k, v = m.heads(torch.float16)
    with sdpa_kernel(SDPBackend.MATH), settings():
        a = scaled_dot_product_attention(q, k, v)
        b = scaled_dot_product_attention(q, k, v, scale=1.01 * WIDTH**-0.5)
    return m.pair("attention", a, b, {"q": q, "k": k, "v": v})


def wrong_mask(m: Maker) -> Pair:
    """A query sees one key too many."""
    q, k, v = m.heads(torch.bfloat16)
    seen = torch.ones(LENGTH, LENGTH, dtype=torch.bool, device=m.device).tril(1)
    with sdpa_kernel(SDPBackend.MATH), settings():
        a = scaled_dot_product_attention(q, k, v, is_causal=True)
        b = scaled_dot_product_attention(q, k, v, attn_mask=seen)
    return m.pair("attention", a, b, {"q": q, "k": k, "v": v}, causal=1)


def no_rescale(m: Maker) -> Pair:
    """A fused kernel does not rescale what it has when it meets a larger score."""
    q, k, v = m.heads(torch.bfloat16)
    with sdpa_kernel(SDPBackend.MATH), settings():
        a = scaled_dot_product_attention(q, k, v)
    return m.pair("attention", a, tiled_attention(q, k, v, rescale=False), {"q": q, "k": k, "v": v})


def swapped_factors(m: Maker) -> Pair:
    """The product of y and x instead of x and y."""
    x, y = m.normal(TERMS, TERMS), m.normal(TERMS, TERMS)
    return m.pair("matmul", product(x, y.T), product(y, x.T), {"x": x, "y": y})


def no_epsilon(m: Maker) -> Pair:
    """An RMSNorm of small numbers without its epsilon."""
    x, w = m.normal(ROWS, TERMS, by=1e-2, dtype=torch.bfloat16), m.normal(TERMS).bfloat16()
    return m.pair("rmsnorm", normed(x, w), normed(x, w, 0.0), {"x": x, "weight": w})


def stale_row(m: Maker) -> Pair:
    """One row of eight is the one before it."""
    x, w = m.factors(torch.bfloat16)
    a = product(x, w)
    b = a.clone()
    b[7::8] = a[6::8]
    return m.pair("linear", a, b, {"x": x, "weight": w})


def unbiased(m: Maker) -> Pair:
    """The variance is divided by one less."""
    x = m.normal(ROWS, TERMS)
    a, b = ((x - x.mean(1, keepdim=True)) / (x.var(1, keepdim=True, correction=c) + 1e-5).sqrt()
            for c in (0, 1))  # fmt: skip
    return m.pair("layernorm", a, b, {"x": x})


def bias_twice(m: Maker) -> Pair:
    """The bias is rounded to bfloat16 and added twice."""
    x, w = m.factors(torch.bfloat16)
    bias = m.normal(COLUMNS, dtype=torch.bfloat16, by=0.05)
    a, b = ((product(x, w).float() + times * bias.float()).bfloat16() for times in (1, 2))
    return m.pair("linear", a, b, {"x": x, "weight": w, "bias": bias})


def lost_split(m: Maker) -> Pair:
    """Half of the columns lack the last of 16 splits, in float16 accumulation."""
    x, w = m.factors(torch.float16)
    a, b = half_product(x, w), half_product(x, w)
    kept = TERMS - TERMS // 16
    b[:, COLUMNS // 2 :] = half_product(x[:, :kept].contiguous(), w[COLUMNS // 2 :, :kept])
    return m.pair("linear", a, b, {"x": x, "weight": w})


def padded_softmax(m: Maker) -> Pair:
    """A softmax counts one element of padding."""
    x = m.normal(ROWS, TERMS)
    b = torch.nn.functional.pad(x, (0, 1)).softmax(1)[:, :-1]
    return m.pair("softmax", x.softmax(1), b, {"x": x})


def stale_scale(m: Maker) -> Pair:
    """A group is quantised with the scale of the one before."""
    x = m.normal(ROWS, TERMS)
    groups = x.view(-1, 128)
    scale = groups.abs().amax(1, keepdim=True) / 448.0
    a, b = (((groups / s).clamp(-448, 448).to(torch.float8_e4m3fn).float() * s).view_as(x)
            for s in (scale, scale.roll(1, 0)))  # fmt: skip
    return m.pair("quantise", a, b, {"x": x}, group=128)


#: What is to be named of B, one of these; "size": a hint is enough, since nothing but the order of
#: sums, which is unknown, decides each bit. Nothing: a fault.
Kind = tuple[Callable[[Maker], Pair], tuple[str, ...]]
HALF: Final = ("accumulate: float16",)
ORDER: Final = ("size", "order:", "softmax: online")
KINDS: Final[dict[str, Kind]] = {
    "float16 accumulation, 2 splits": (split_half(2), HALF),
    "float16 accumulation, 4 splits": (split_half(4), HALF),
    "float16 accumulation, 8 splits": (split_half(8), HALF),
    "the same, 4 splits, summed in float32": (split_half(4, wide=True), HALF),
    "sums of 8 splits in float16": (split_parts(torch.float16, 8), HALF),
    "sums of 4 splits in bfloat16": (
        split_parts(torch.bfloat16, 4), ("accumulate: bfloat16 parts",),
    ),
    "the same, summed in float32": (
        split_parts(torch.bfloat16, 4, wide=True), ("accumulate: bfloat16 parts",),
    ),
    "only weights in bfloat16": (short_weights, ("inputs: bfloat16, weight alone",)),
    # TF32 has as many bits.
    "only inputs in float16": (
        short_inputs, ("inputs: float16, x alone", "inputs: tf32, x alone"),
    ),
    "only the second factor in bfloat16": (short_second, ("inputs: bfloat16, y alone",)),
    "only RMSNorm's weight in bfloat16": (short_norm_weight, ("inputs: bfloat16, weight alone",)),
    "TF32 with a bias": (tf32_bias, ("inputs: tf32", "inputs: float16")),
    "flash attention, bfloat16": (sdpa(SDPBackend.FLASH_ATTENTION), ("softmax: online",)),
    "flash attention, float16, causal, 128 wide": (
        sdpa(SDPBackend.FLASH_ATTENTION, dtype=torch.float16, causal=True, width=128),
        ("softmax: online",),
    ),
    "memory-efficient attention": (sdpa(SDPBackend.EFFICIENT_ATTENTION), ("softmax: online",)),
    "cuDNN's attention": (sdpa(SDPBackend.CUDNN_ATTENTION), ("softmax: online",)),
    "eager attention": (eager_attention, ("between: result",)),
    "split softmax": (split_softmax, ORDER),
    "exp2 in a softmax": (exp2_softmax, ("exp: exp2", "size")),
    "one-pass variance, weight and bias": (one_pass, ("variance: one-pass", "size")),
    "24 splits, reversed": (other_order, ORDER),
    "sums of a row's 4 splits in bfloat16": (short_sum, ("accumulate: bfloat16 parts",)),
    "scales that are powers of two": (power_scales, ("scale: power of two",)),
    "fault: the last term dropped": (dropped_term, ()),
    "fault: scale off by 1/1000": (wrong_scale, ()),
    "fault: attention's scale off by 1/100": (wrong_attention_scale, ()),
    "fault: mask off by one": (wrong_mask, ()),
    "fault: accumulator not rescaled": (no_rescale, ()),
    "fault: factors swapped": (swapped_factors, ()),
    "fault: epsilon missing": (no_epsilon, ()),
    "fault: stale row": (stale_row, ()),
    "fault: variance over n - 1": (unbiased, ()),
    "fault: bias twice": (bias_twice, ()),
    "fault: half lacks a split": (lost_split, ()),
    "fault: padding in a softmax": (padded_softmax, ()),
    "fault: stale scale": (stale_scale, ()),
}  # fmt: skip
GPU_ONLY: Final = {"memory-efficient attention", "cuDNN's attention"}


def recorded(pair: Pair) -> tuple[Recording, Recording]:
    """Return both results as records."""
    a, b = (
        recording(pair.computation, side, pair.inputs, **pair.parameters)
        for side in (pair.a, pair.b)
    )
    return a, b


def judged(found: Explanation, expected: tuple[str, ...]) -> str:
    """Say whether it is right."""
    if not found.complete:
        return "none" if expected else "right"
    if found.confidence is Confidence.SIZE:
        return "right" if "size" in expected else "wrong"
    said = (found.arithmetic_b, *found.as_good)
    return "right" if any(words in text for words in expected for text in said) else "wrong"


def explained(pair: tuple[Recording, Recording]) -> tuple[Explanation, float, float]:
    """Explain a pair, and return the seconds of it and of its processor."""
    began, used = time.perf_counter(), time.process_time()
    found = explain(*pair)
    return found, time.perf_counter() - began, time.process_time() - used


def main() -> None:
    """Plant, explain and count."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--workers", type=int, default=min(8, max(1, (os.cpu_count() or 1) // 2)))
    parser.add_argument("--only", nargs="*", default=[], help="parts of kinds' names")
    options = parser.parse_args()
    chosen = [name for name in KINDS if not options.only or any(o in name for o in options.only)]
    if options.device == "cpu":
        chosen = [name for name in chosen if name not in GPU_ONLY]
    torch.backends.cudnn.allow_tf32 = False
    counts: dict[str, Counter[str]] = {name: Counter() for name in chosen}
    spent: list[tuple[float, float]] = []
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(options.workers, mp_context=context) as pool:
        waiting: list[tuple[str, int, Future[tuple[Explanation, float, float]]]] = []
        for seed in range(options.seeds):
            for name in chosen:
                try:
                    pair = recorded(KINDS[name][0](Maker(options.device, seed)))
                except RuntimeError as error:  # a kernel that this GPU or torch does not have
                    counts[name]["not run"] += 1
                    print(f"{name}, seed {seed}: not run: {str(error).splitlines()[0]}")
                    continue
                waiting.append((name, seed, pool.submit(explained, pair)))
        for name, seed, future in waiting:
            found, seconds, used = future.result()
            verdict = judged(found, KINDS[name][1])
            counts[name][verdict] += 1
            spent.append((seconds, used))
            said = f"{found.arithmetic_a} | {found.arithmetic_b}" if found.arithmetic_b else ""
            print(
                f"{verdict:5}  {name}, seed {seed}: {found.confidence} {said} "
                f"({found.explained:.3f}; {found.tried} tried, "
                f"{seconds:.1f} s, {used:.1f} s of CPU)",
                flush=True,
            )
    verdicts = ("right", "none", "wrong", "not run")
    width = max(map(len, chosen))
    print(f"\n{'':{width}}  {'  '.join(verdicts)}")
    for name, count in {**counts, "total": sum(counts.values(), Counter[str]())}.items():
        numbers = "  ".join(f"{count[verdict]:{len(verdict)}}" for verdict in verdicts)
        print(f"{name:{width}}  {numbers}")
    device = torch.cuda.get_device_name() if options.device == "cuda" else "the CPU"
    print(f"{len(spent)} pairs on {device}, torch {torch.__version__}")
    for name, values in zip(("seconds", "seconds of CPU"), zip(*spent, strict=True), strict=True):
        print(f"{name} of a pair: median {statistics.median(values):.1f}, most {max(values):.1f}")


if __name__ == "__main__":
    main()
