"""Arithmetics that are planted, by other code than the one that looks for them, are found."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pytest
import safetensors.torch
import torch

from contribbot.numerics import Arithmetic, Computation, Explanation, explain, record, recording
from contribbot.numerics.explanation import Confidence
from tests.conftest import Program
from tests.tools import kinds

Array = npt.NDArray[np.float32]
Store = Callable[[Array], Array]
F32, BF16, F16 = torch.float32, torch.bfloat16, torch.float16
R: Final = np.random.default_rng(5)


def normal(*shape: int, by: float = 1.0) -> Array:
    return (R.standard_normal(shape) * by).astype(np.float32)


def bits(values: Array, width: int) -> Array:
    """Round to some bits of mantissa, the hidden one too."""
    mantissa, exponent = np.frexp(values.astype(np.float64))
    return np.asarray(np.ldexp(np.rint(mantissa * 2.0**width), exponent - width), np.float32)


def same(values: Array) -> Array:
    return values


tf32, bf16 = functools.partial(bits, width=11), functools.partial(bits, width=8)


def f16(values: Array) -> Array:
    return values.astype(np.float16).astype(np.float32)


def chain(terms: Array, store: Store = same) -> Array:
    total: Array = np.zeros_like(terms[0])
    for term in terms:
        total = store(total + term)
    return total


def dot(
    x: Array, w: Array, *, block: int = 0, fused: bool = False,
    store: Store = same,
) -> Array:  # fmt: skip
    """Multiply (M, K) by (N, K), one term after the other, in blocks."""
    parts = []
    for start in range(0, x.shape[1], block or x.shape[1]):
        total: Array = np.zeros((len(x), len(w)), np.float32)
        for k in range(start, min(start + (block or x.shape[1]), x.shape[1])):
            left, right = x[:, k, None], w[None, :, k]
            if fused:  # a long double holds the product, and 16 bits more than the sum needs
                wide = left.astype(np.longdouble) * right + total
                total = wide.astype(np.float32)
            else:
                total = store(total + left * right)
        parts.append(total)
    return chain(np.stack(parts), store)


def splits(x: Array, w: Array, many: int, *, store: Store = same, across: Store = same) -> Array:
    """Multiply in K-splits whose partial sums are rounded, 16 products at a time, and add them."""
    parts = []
    for left, right in zip(np.split(x, many, 1), np.split(w, many, 1), strict=True):
        total: Array = np.zeros((len(x), len(w)), np.float32)
        for k in range(0, left.shape[1], 16):
            some = left[:, k : k + 16].astype(np.float64) @ right[:, k : k + 16].T
            total = store(np.asarray(some + total, np.float32))
        parts.append(total)
    return chain(np.stack(parts), across)


def attention(
    q: Array, k: Array, v: Array, *, tile: int = 0, store: Store = same, causal: bool = False
) -> Array:
    """Take weights whole, or by tiles from the last on, as FlashAttention does."""
    result = np.zeros_like(q)
    for row, query in enumerate(q):
        seen = row + 1 if causal else len(k)
        scores = (k[:seen].astype(np.float64) @ query).astype(np.float32) / np.float32(4)
        starts = range(0, seen, tile or seen)
        largest, total, out = -np.inf, 0.0, np.zeros(v.shape[1])
        for start in reversed(starts):
            some = scores[start : start + (tile or seen)]
            before, largest = largest, max(largest, some.max())
            powers = np.exp(some.astype(np.float64) - largest).astype(np.float32)
            less = np.exp(before - largest)
            total = total * less + powers.sum(dtype=np.float64)
            out = out * less + store(powers).astype(np.float64) @ v[start : start + len(some)]
        result[row] = out / total
    return result


def halves(terms: Array) -> Array:
    while len(terms) > 1:
        terms = terms[: len(terms) // 2] + terms[len(terms) // 2 :]
    return chain(terms)


def softmax(
    x: Array, *, power: bool = False, inverse: bool = False, store: Store = same,
    total: Store = lambda e: chain(e.T),
    exp: Store = lambda x: np.exp(x.astype(np.float64)).astype(np.float32),
) -> Array:  # fmt: skip
    shifted = x - x.max(1, keepdims=True)
    if power:
        scaled = shifted * np.float32(np.log2(np.e))
        e = np.exp2(scaled.astype(np.float64)).astype(np.float32)
    else:
        e = exp(shifted)
    e = store(e)
    whole = store(total(e))[:, None]
    return e * (np.float32(1) / whole) if inverse else e / whole


def exact(terms: Array) -> Array:
    return np.asarray(terms.sum(1, dtype=np.float64), np.float32)


def rmsnorm(x: Array, w: Array, *, eps: float = 1e-6, store: Store = same) -> Array:
    root = np.sqrt(chain((x * x).T) / np.float32(x.shape[1]) + np.float32(eps))
    return store(x / root[:, None]) * w


def layernorm(x: Array, *, one_pass: bool, eps: float = 1e-5) -> Array:
    n = np.float32(x.shape[1])
    mean = chain(x.T) / n
    away = x - mean[:, None]
    square = chain((x * x).T) / n - mean * mean if one_pass else chain((away * away).T) / n
    result: Array = away / np.sqrt(square + np.float32(eps))[:, None]
    return result


def quantised(x: Array, dtype: torch.dtype, largest: float) -> Array:
    return quantised_by(x, np.abs(x).max(1, keepdims=True) / np.float32(largest), dtype, largest)


def quantised_by(x: Array, scale: Array, dtype: torch.dtype, largest: float) -> Array:
    codes = torch.from_numpy(x / scale).clamp(-largest, largest).to(dtype).float().numpy()
    return np.asarray(codes * scale, np.float32)


def swapped(values: Array) -> Array:
    return values[[0, 2, 1, *range(3, len(values))]]


def stirred(values: Array, by: float) -> Array:
    return values * (1 + normal(*values.shape, by=by))


class Planted(NamedTuple):
    name: str
    computation: str
    inputs: dict[str, Array]
    a: Array
    b: Array
    #: What is said of A and of B; nothing: no arithmetic makes it.
    said: tuple[str, str] | None
    dtype: torch.dtype = F32
    confidence: Confidence = Confidence.BITS


def planted() -> list[Planted]:
    x, w, v = normal(24, 64), normal(20, 64), normal(64)
    rows, wide, spread = normal(48, 64), normal(48, 100), normal(48, 64, by=4.0)
    low, lw = bf16(x), bf16(w)
    long, lv = f16(normal(24, 256)), f16(normal(20, 256))
    q, k, value = (bf16(normal(96, 16, by=2.0)) for _ in range(3))
    qkv, seen = {"q": q, "k": k, "v": value}, attention(q, k, value)
    codes = R.integers(-127, 128, (20, 64)).astype(np.float32)
    scale = (R.random(20) * 0.01).astype(np.float32)
    s16 = bf16(scale)
    xw, rw = {"x": x, "weight": w}, {"x": rows, "weight": v}
    int8, int16 = ({"x": x, "weight": codes, "scale": scale},
                   {"x": low, "weight": codes, "scale": s16})  # fmt: skip
    mixed, turned = R.permutation(64), R.permutation(64)
    many, stir = normal(64, 512, by=4.0), R.permutation(512)
    summed = softmax(many, total=lambda e: halves(e[:, stir].T))
    noisy = torch.from_numpy(dot(low, lw)).to(BF16)
    flipped = noisy.view(torch.int16) + torch.from_numpy(R.integers(-1, 2, noisy.shape)).short()
    plain, raised = dot(x, w), rows + np.float32(3)
    short, row = dot(bf16(x), bf16(w)), normal(1, 512, by=4.0)
    query, keys, held = normal(1, 16), normal(96, 16), normal(96, 16)
    masked = np.where(np.arange(512) % 7 == 0, np.float32(-np.inf), many)
    e4m3 = quantised(rows, torch.float8_e4m3fn, 448)
    return [
        Planted("tf32", "matmul", {"x": x, "y": w.T.copy()}, plain, dot(tf32(x), tf32(w)),
                ("inputs: as given", "inputs: tf32")),
        Planted("bfloat16 inputs", "linear", xw, plain, dot(bf16(x), bf16(w)),
                ("inputs: as given", "inputs: bfloat16")),
        Planted("fused", "linear", xw, plain, dot(x, w, fused=True),
                ("multiply-add: separate", "multiply-add: fused")),
        Planted("blocks", "linear", xw, plain, dot(x, w, block=8),
                ("order: sequential", "order: blocks of 8")),
        Planted("tf32 and split", "linear", xw, plain, dot(tf32(x), tf32(w), block=16),
                ("inputs: as given, order: sequential", "inputs: tf32, order: blocks of 16")),
        Planted("tf32, orders unknown", "linear", xw, dot(x[:, mixed], w[:, mixed]),
                dot(tf32(x[:, turned]), tf32(w[:, turned]), block=7),
                ("inputs: as given", "inputs: tf32"), confidence=Confidence.VALUES),
        Planted("accumulate bfloat16", "linear", {"x": low, "weight": lw}, dot(low, lw),
                dot(low, lw, store=bf16), ("accumulate: float32", "accumulate: bfloat16"), BF16),
        Planted("accumulate float16", "linear", {"x": f16(x), "weight": f16(w)},
                dot(f16(x), f16(w)), dot(f16(x), f16(w), store=f16),
                ("accumulate: float32", "accumulate: float16"), F16),
        Planted("float16 in splits", "linear", {"x": long, "weight": lv}, splits(long, lv, 2),
                splits(long, lv, 2, store=f16, across=f16),
                ("accumulate: float32", "accumulate: float16"), F16),
        Planted("float16 in splits, summed in float32", "linear", {"x": long, "weight": lv},
                dot(long, lv), splits(long, lv, 4, store=f16),
                ("accumulate: float32", "accumulate: float16 in parts"), F16),
        Planted("sums of splits in bfloat16", "linear", {"x": bf16(long), "weight": bf16(lv)},
                dot(bf16(long), bf16(lv)), splits(bf16(long), bf16(lv), 4, across=bf16),
                ("accumulate: float32", "accumulate: bfloat16 sum of parts"), BF16),
        Planted("weights alone", "linear", xw, plain, dot(x, bf16(w)),
                ("inputs: as given", "inputs: bfloat16, weight alone")),
        Planted("one factor alone", "matmul", {"x": x, "y": w.T.copy()}, plain, dot(tf32(x), w),
                ("inputs: as given", "inputs: tf32, x alone")),
        Planted("a norm's weight alone", "rmsnorm", rw, rmsnorm(rows, v), rmsnorm(rows, bf16(v)),
                ("inputs: as given", "inputs: bfloat16, weight alone")),
        Planted("flash attention", "attention", qkv, seen,
                attention(q, k, value, tile=32, store=bf16),
                ("between: float32, softmax: whole",
                 "between: weights, softmax: online, 32 at a time from the last"), BF16),
        Planted("a mask off by one", "attention", qkv, seen, attention(q, k[1:], value[1:]), None,
                BF16),
        Planted("keys and values mixed up", "attention", qkv, seen,
                attention(q, k, swapped(value)), None, BF16),
        Planted("dequantised first", "int8-linear", int8, plain_int8 := dot(x, codes) * scale,
                dot(x, codes * scale[:, None]), ("scale: result", "scale: weights")),
        Planted("int8 in bfloat16", "int8-linear", int16, bf16(dot(low, codes)) * s16,
                dot(low, bf16(codes * s16[:, None])), ("scale: result", "scale: weights"), BF16),
        Planted("int8, tf32", "int8-linear", int8, plain_int8, dot(tf32(x), codes) * scale,
                ("inputs: as given", "inputs: tf32")),
        Planted("sum in halves", "sum", {"x": rows}, chain(rows.T), halves(rows.T),
                ("order: sequential", "order: halves")),
        Planted("mean by reciprocal", "mean", {"x": wide}, chain(wide.T) / np.float32(100),
                chain(wide.T) * (np.float32(1) / np.float32(100)),
                ("divide: divide", "divide: reciprocal")),
        Planted("exp2 and reciprocal", "softmax", {"x": spread}, softmax(spread),
                softmax(spread, power=True, inverse=True),
                ("exp: rounded, divide: divide", "exp: exp2, divide: reciprocal")),
        Planted("exp2, orders unknown", "softmax", {"x": many}, summed,
                softmax(many, power=True, total=lambda e: halves(e[:, stir[::-1]].T)),
                ("", ""), confidence=Confidence.SIZE),
        Planted("noise of a softmax", "softmax", {"x": many}, summed, stirred(summed, 1e-7),
                ("", ""), confidence=Confidence.SIZE),
        Planted("softmax in bfloat16", "softmax", {"x": bf16(spread)}, softmax(bf16(spread)),
                softmax(bf16(spread), store=bf16), ("between: float32", "between: result"), BF16),
        Planted("rmsnorm, cast first", "rmsnorm", {"x": bf16(rows), "weight": bf16(v)},
                rmsnorm(bf16(rows), bf16(v)), rmsnorm(bf16(rows), bf16(v), store=bf16),
                ("between: float32", "between: result"), BF16),
        Planted("one pass", "layernorm", {"x": raised}, layernorm(raised, one_pass=False),
                layernorm(raised, one_pass=True), ("variance: two-pass", "variance: one-pass")),
        Planted("fnuz", "quantise", {"x": rows}, e4m3, quantised(rows, torch.float8_e4m3fnuz, 240),
                ("fp8: e4m3fn", "fp8: e4m3fnuz")),
        Planted("one query", "attention", {"q": query, "k": keys, "v": held},
                attention(query, keys, held), attention(bf16(query), bf16(keys), bf16(held)),
                ("inputs: as given", "inputs: bfloat16"), confidence=Confidence.VALUES),
        Planted("masked inputs", "softmax", {"x": masked}, softmax(masked), softmax(bf16(masked)),
                ("inputs: as given", "inputs: bfloat16")),
        Planted("another exponential", "softmax", {"x": many}, softmax(many, total=exact),
                softmax(many, exp=np.exp, total=exact), ("", ""), confidence=Confidence.SIZE),
        Planted("a factor of the only row", "softmax", {"x": row}, softmax(row),
                softmax(row) * np.float32(1 + 2**-21), ("", ""), confidence=Confidence.SIZE),
        Planted("unknown order", "linear", xw, plain, dot(x[:, mixed], w[:, mixed]), ("", ""),
                confidence=Confidence.SIZE),
        Planted("rows swapped", "linear", xw, plain, swapped(plain), None),
        Planted("all zero", "linear", {"x": long[:4], "weight": lv[:4]}, plain[:4, :4] * 0,
                dot(long[:4], lv[:4]), None),
        Planted("NaN beside bfloat16 inputs", "linear", xw, plain,
                np.where(np.arange(24)[:, None] < 18, np.float32(np.nan), short), None),
        Planted("scale off", "linear", xw, plain, plain * np.float32(1.002), None),
        Planted("noise", "linear", xw, plain, stirred(plain, 1e-4), None),
        Planted("a term left out", "linear", xw, plain, dot(x[:, :-1], w[:, :-1]), None),
        Planted("noise of one bit", "linear", {"x": low, "weight": lw}, noisy.float().numpy(),
                flipped.view(BF16).float().numpy(), None, BF16),
        Planted("another eps", "rmsnorm", rw, rmsnorm(rows, v), rmsnorm(rows, v, eps=1e-3), None),
        Planted("codes off", "quantise", {"x": rows}, e4m3, e4m3 * np.float32(1.01), None),
        Planted("tf32 in one row of four", "linear", xw, plain,
                np.where(np.arange(24)[:, None] % 4 == 0, dot(tf32(x), tf32(w)), plain), None),
    ]  # fmt: skip


CASES: Final = planted()


def found(case: Planted) -> Explanation:
    exact = {"weight": torch.int8} if case.computation == "int8-linear" else {}
    inputs = {name: torch.from_numpy(np.ascontiguousarray(values)).to(exact.get(name, case.dtype))
              for name, values in case.inputs.items()}  # fmt: skip
    a, b = (
        recording(
            case.computation, torch.from_numpy(np.ascontiguousarray(side)).to(case.dtype), inputs
        )
        for side in (case.a, case.b)
    )
    return explain(a, b)


#: What every run of the tests asks for, of each kind one: the others take up to a minute.
QUICK: Final = {"tf32", "fused", "blocks", "fnuz"}


@pytest.mark.parametrize(
    "case", kinds(CASES, lambda case: case.name in QUICK, lambda case: case.name)
)
def test_a_planted_arithmetic_is_named_and_no_other(case: Planted) -> None:
    seen = found(case)
    if case.said is None:
        assert seen.confidence is Confidence.NONE
        return
    assert seen.confidence is case.confidence
    assert seen.arithmetic_a == case.said[0]
    assert case.said[1] in {seen.arithmetic_b, *seen.as_good}


#: A fault beside an honest cause: computation, inputs, A, B, parameters, and the lines that stay
#: unexplained.
Fault = tuple[str, dict[str, Array], Array, Array, dict[str, float], tuple[str, int]]


def faults() -> dict[str, Fault]:
    x, w, bias = normal(64, 64), normal(48, 64), normal(48, by=0.05)
    bias[5] = 0.2
    linear = {"x": x, "weight": w}
    plain, short, cut = dot(x, w), dot(bf16(x), bf16(w)), dot(tf32(x), tf32(w))
    stale, lost, spot = short.copy(), cut + bias, cut.copy()
    stale[7] = stale[6]
    lost[:, 5] -= bias[5]
    spot[3, 4] += 1
    groups = normal(256, 16)
    scale = np.abs(groups).max(1, keepdims=True) / np.float32(448)
    code = functools.partial(quantised_by, groups)
    fnuz = code(scale * np.float32(448 / 240), torch.float8_e4m3fnuz, 240)
    other = code(scale * np.float32(1.3 * 448 / 240), torch.float8_e4m3fnuz, 240)
    fnuz[9::64] = other[9::64]
    raised = normal(64, 64) + np.float32(5)
    one_pass = layernorm(raised, one_pass=True, eps=5e-5)
    as_rows = {"group": 16.0}
    quantise = {"x": groups.reshape(64, 64)}
    whole = code(scale, torch.float8_e4m3fn, 448).reshape(64, 64)
    biased = {**linear, "bias": bias}
    two_pass = layernorm(raised, one_pass=False)
    return {
        "a stale row": ("linear", linear, plain, stale, {}, ("row", 1)),
        "a bias lost in a column": ("linear", biased, plain + bias, lost, {}, ("column", 1)),
        "an element": ("linear", linear, plain, spot, {}, ("element", 1)),
        "stale scales": ("quantise", quantise, whole, fnuz.reshape(64, 64), as_rows, ("group", 4)),
        "another epsilon": ("layernorm", {"x": raised}, two_pass, one_pass, {}, ("", 0)),
    }


FAULTS: Final = faults()


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_beside_an_honest_cause_stays_unexplained(name: str) -> None:
    computation, arrays, *sides, parameters, lines = FAULTS[name]
    inputs = {name: torch.from_numpy(values) for name, values in arrays.items()}
    a, b = (recording(computation, torch.from_numpy(side), inputs, **parameters) for side in sides)
    seen = explain(a, b)
    assert not seen.complete
    assert lines in {("", 0), *((left.kind, left.lines) for left in seen.unexplained)}


#: int8 weights and their result on one NVIDIA H200 (torch 2.11): `(x @ weight.T) * scale` with TF32
#: off and on, and `linear(x, weight * scale)`; x of 16x512 by torch.randn, weights of 64x512.
H200: Final = Path(__file__).with_name("numerics_h200")
REAL: Final = {
    "tf32": (Confidence.VALUES, "inputs: as given", "inputs: tf32"),
    "dequantised": (Confidence.BITS, "scale: result", "scale: weights"),
    "plain": (Confidence.SAME, "", ""),
}


@pytest.mark.slow
@pytest.mark.parametrize("other", REAL)
def test_what_a_real_gpu_did_is_named(other: str, tmp_path: Path) -> None:
    ran = Program(tmp_path)(
        "numerics", "explain", H200 / "plain.safetensors", H200 / f"{other}.safetensors", "--json"
    )
    assert ran.code == 0
    found = Explanation.model_validate_json(ran.out, strict=False)
    assert (found.confidence, found.arithmetic_a, found.arithmetic_b) == REAL[other]


ONE: Final = {"x": torch.ones(4, 8), "weight": torch.ones(4, 8)}
LINEAR: Final = ("linear", torch.ones(4, 4), ONE)
ROWS: Final = {"x": torch.ones(4, 8)}
Kept = tuple[str, torch.Tensor, dict[str, torch.Tensor]]
#: Two records, and what is said of them.
REFUSED: Final[dict[str, tuple[Kept, Kept, str]]] = {
    "another computation": (LINEAR, ("sum", torch.ones(4), ROWS), "differ in computation"),
    "other inputs": (LINEAR, (*LINEAR[:2], ONE | {"x": torch.zeros(4, 8)}), "the input x"),
    "another dtype": (LINEAR, ("linear", torch.ones(4, 4).half(), ONE), "differ in dtype"),
    "another shape": (LINEAR, ("linear", torch.ones(4, 2), ONE), "differ in shape"),
    **{
        name: ((computation, result, inputs), (computation, result + 1, inputs), said)
        for name, computation, inputs, result, said in (
            ("no such computation", "conv", ONE, torch.zeros(4, 4), "no computation 'conv'"),
            ("an input missing", "linear", ROWS, torch.zeros(4, 4), "has the inputs x, weight"),
            ("factors that do not fit", "matmul", {"x": ONE["x"], "y": ONE["x"]},
             torch.zeros(4, 4), "cannot be computed"),
            ("groups that divide nothing", "int8-linear", ONE | {"scale": torch.ones(4, 3)},
             torch.zeros(4, 4), "cannot be computed"),
            ("a result too small", "linear", ONE, torch.zeros(3, 3), "gives 16"),
            ("empty", "sum", {"x": torch.ones(0, 8)}, torch.zeros(0), "empty"),
            ("integers", "sum", ROWS, torch.zeros(4).int(), "int32"),
            ("double", "sum", ROWS, torch.zeros(4).double(), "float64"),
            ("a scalar", "sum", {"x": torch.tensor(1.0)}, torch.tensor(0.0), "cannot be computed"),
        )
    },
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_records_that_cannot_be_explained_are_refused(case: str, tmp_path: Path) -> None:
    *sides, said = REFUSED[case]
    for name, (computation, result, inputs) in zip("ab", sides, strict=True):
        record(tmp_path / name, computation, result, inputs)
    assert_refused(tmp_path, said)


@pytest.mark.parametrize("damage", ["cut", "flipped", "text", "missing", "folder", "foreign"])
def test_what_is_no_record_is_refused(damage: str, tmp_path: Path) -> None:
    for name in "ab":
        record(tmp_path / name, "linear", torch.ones(4, 4), ONE)
    file, content = tmp_path / "b", (tmp_path / "b").read_bytes()
    file.unlink()
    if damage == "folder":
        file.mkdir()
    elif damage == "foreign":
        file.write_bytes(safetensors.torch.save({"result": torch.ones(2)}))
    elif damage != "missing":
        flipped = content[:-1] + bytes([content[-1] ^ 1])
        file.write_bytes({"cut": content[:-9], "flipped": flipped, "text": b"hello"}[damage])
    assert_refused(tmp_path, "no record of a computation")


def assert_refused(folder: Path, said: str) -> None:
    ran = Program(folder)("numerics", "explain", "a", "b")
    assert (ran.code, ran.out) == (2, "")
    assert said in ran.err
    assert len(ran.err.splitlines()) == 1


def test_nan_is_counted_and_not_in_the_way() -> None:
    x, w = torch.randn(8, 16), torch.randn(8, 16)
    a = x @ w.T
    b = a.clone()
    b[3, 4], b[3, 5] = float("nan"), float("inf")
    plain, broken = (recording("linear", side, {"x": x, "weight": w}) for side in (a, b))
    seen = explain(plain, broken)
    assert (seen.difference.not_finite, seen.difference.place) == (2, (3, 4))
    assert seen.confidence is Confidence.NONE
    b[:] = float("nan")
    broken = recording("linear", b, {"x": x, "weight": w})
    assert explain(broken, plain).confidence is Confidence.NONE


def test_a_computation_of_ones_own_is_repeated() -> None:
    def gelu(inputs: Mapping[str, torch.Tensor], arithmetic: Arithmetic) -> torch.Tensor:
        x = arithmetic.take(inputs["x"])
        return arithmetic.quotient(x, 1 + arithmetic.exponential(-1.702 * x))

    mine = Computation(gelu, {"exp": ("rounded", "exp2"), "divide": ("divide", "reciprocal")})
    inputs = {"x": torch.from_numpy(normal(8, 32, by=4.0))}
    power = torch.exp((-1.702 * inputs["x"]).double()).float()
    a, b = (recording("gelu", side, inputs)
            for side in (inputs["x"] / (1 + power), inputs["x"] * (1 / (1 + power))))  # fmt: skip
    seen = explain(a, b, mine)
    assert seen.confidence is Confidence.BITS
    assert (seen.arithmetic_a, seen.arithmetic_b) == ("divide: divide", "divide: reciprocal")


@pytest.mark.slow
def test_the_page_shows_what_is_printed(tmp_path: Path) -> None:
    page = (Path(__file__).parent.parent / "docs/explain.md").read_text(encoding="utf-8")
    files = H200 / "plain.safetensors", H200 / "tf32.safetensors"
    assert Program(tmp_path)("numerics", "explain", *files, COLUMNS="100").out in page
