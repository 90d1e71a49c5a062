"""What both sides compute, compared before it is timed: in process, as a child does it."""

from __future__ import annotations

import dataclasses
import itertools
import random
import re
from collections import namedtuple
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from contribbot.bench import Case
from contribbot.bench.results import ResultFinding, UncomparableError, compare, compute, read, write


@dataclasses.dataclass
class Output:
    weights: torch.Tensor
    name: str = "x"


Pair = namedtuple("Pair", "left right")  # noqa: PYI024  as code under test has them
Result = Callable[[torch.Tensor], object]
EPS = torch.finfo(torch.float32).eps
#: What calls share.
COUNT, OWN, OUT = itertools.count(), torch.Generator(), torch.empty(40, 50)
SAME, WITHIN, DIFFERENT, VACUOUS, UNLIKE = ResultFinding


def seed(number: int) -> None:
    random.seed(number)
    torch.manual_seed(number)


def case(run: Result, rtol: float | None = None, atol: float | None = None) -> Case:
    return Case("it", lambda: (torch.randn(40, 50),), run, rtol=rtol, atol=atol)


def compared(
    base: Result, patched: Result, folder: Path, **more: float
) -> tuple[ResultFinding, str]:
    theirs, _ = compute(case(patched), seed)
    write(theirs, folder / "results")
    ours, unlike = compute(case(base, **more), seed)
    assert not unlike
    return compare(ours, read(folder / "results"), case(base, **more))


def masked(x: torch.Tensor) -> torch.Tensor:
    """One huge value, as masks have them."""
    return torch.where(torch.arange(50) == 7, torch.finfo(x.dtype).min, x)


def with_nan(x: torch.Tensor, column: int = 0) -> torch.Tensor:
    return x.masked_fill(torch.arange(50) == column, float("nan"))


@pytest.mark.parametrize(
    ("base", "patched", "finding", "said"),
    [
        (torch.exp, torch.exp, SAME, ""),
        (torch.exp, lambda x: x.exp() * (1 + 4 * EPS), WITHIN, ""),
        # The same sum in another order: elements that cancel are far off by themselves.
        (lambda x: x.sum(0), lambda x: x.flip(0).cumsum(0)[-1], WITHIN, ""),
        (torch.exp, torch.zeros_like, DIFFERENT, "result: 2,000 elements, none of them finite"),
        (lambda x: x * 1e-30, torch.zeros_like, DIFFERENT, "none of them finite and not 0"),
        (lambda _: 0.5, lambda _: 0.0, DIFFERENT, "result: 0.0 instead of 0.5"),
        (torch.exp, lambda x: x.exp() * 1.001, DIFFERENT, "2,000 of 2,000 elements differ, first"),
        (masked, lambda x: masked(x * 1.01), DIFFERENT, "1,960 of 2,000 elements differ"),
        (with_nan, with_nan, SAME, ""),
        (with_nan, lambda x: with_nan(x, 1), DIFFERENT, "80 of 2,000 elements differ"),
        (lambda x: x / 0, torch.exp, VACUOUS, ""),
        (lambda x: x * float("nan"), torch.exp, VACUOUS, ""),
        (torch.zeros_like, torch.zeros_like, VACUOUS, ""),
        (lambda _: None, lambda _: None, VACUOUS, ""),
        (lambda x: (x[:0], [], 0.0), lambda x: (x[:0], [], 0.0), VACUOUS, ""),
        (torch.exp, lambda x: x.exp().half(), DIFFERENT, "float16 instead of float32"),
        (torch.exp, lambda x: x.exp().t(), DIFFERENT, "shape [50, 40] instead of [40, 50]"),
        (torch.exp, lambda x: x.exp().t().contiguous().t(), SAME, ""),
        (torch.exp, lambda x: x.exp().tolist(), DIFFERENT, "2000 values instead of 1"),
        (lambda x: x.exp().int(), lambda x: x.exp().int() + 1, DIFFERENT, "2,000 of 2,000"),
        (lambda x: x.long() + 2**60, lambda x: x.long() + 2**60 + 1, DIFFERENT, "2,000 of"),
        (lambda x: x > 0, lambda x: x >= 0, SAME, ""),
        (lambda x: x.half(), lambda x: (x.half() * 1.001), WITHIN, ""),
        (lambda x: x.to(torch.float8_e4m3fn), lambda x: (x * 1.001).to(torch.float8_e4m3fn),
         WITHIN, ""),
        (lambda x: torch.complex(x, x), lambda x: torch.complex(x, -x), DIFFERENT, "j instead of "),
        (lambda x: torch.complex(x, x).conj(), lambda x: torch.complex(x, -x), SAME, ""),
        (lambda x: Output(x.exp()), lambda x: Output(x.exp(), "y"), DIFFERENT,
         "result.name: 'y' instead"),
        (lambda x: Pair(x, 3), lambda x: (x, 4), DIFFERENT, "result[1]: 4 instead of 3"),
        (lambda x: {"b": 1, "a": x}, lambda x: {"a": x, "b": 1}, SAME, ""),
        (lambda x: {"a": x.exp()}, lambda x: {"b": x}, DIFFERENT, "under other names"),
        (lambda x: np.float32(x[0, 0]), lambda x: x[0, 0].numpy(), SAME, ""),
        (lambda x: x.numpy() + 1, lambda x: x.numpy() + 2, DIFFERENT, "2,000 of 2,000 elements"),
        (lambda x: x.relu().to_sparse(), lambda x: x.relu().to_sparse(), SAME, ""),
        (lambda _: 0.1 + 0.2, lambda _: 0.3, WITHIN, ""),
        (lambda _: "text", lambda _: "taxt", DIFFERENT, "'taxt' instead of 'text'"),
        # The same random numbers on both sides; inputs of a second draw are others.
        (lambda x: x + torch.rand(50), lambda x: x + torch.rand(50), SAME, ""),
        (torch.exp, lambda x, first=[]: (first or first.append(x.exp()) or first)[0], DIFFERENT,
         "with other inputs, result: 2,000 of 2,000 elements differ"),
    ],
)  # fmt: skip
def test_two_results_are_compared(
    base: Result, patched: Result, finding: ResultFinding, said: str, tmp_path: Path
) -> None:
    actual, text = compared(base, patched, tmp_path)
    assert (actual, said in text) == (finding, True), text


FIXED = torch.linspace(0, 1, 50)
HELD = FIXED.exp()
CACHE = torch.zeros(3, 50)
CALLS: list[object] = []


def written_once(x: torch.Tensor) -> torch.Tensor:
    """Write what is returned in the first call alone."""
    if not CALLS:
        CALLS.append(torch.exp(x, out=OUT[0]))
    return OUT[0]


def kept(x: torch.Tensor) -> torch.Tensor:
    """Write one row of what lasts."""
    CACHE[1] = x.exp()
    return CACHE


def cleaned(x: torch.Tensor) -> torch.Tensor:
    return x.clamp_(0.1).exp()


@pytest.mark.parametrize(
    ("prepare", "base", "patched", "finding", "said"),
    [
        # The same values, whatever the seed: another draw tells nothing of them.
        (lambda: (FIXED,), torch.exp, torch.exp, SAME, ""),
        (lambda: (FIXED,), torch.exp, lambda _: HELD, VACUOUS,
         "result on the patched tree lies in the same memory with the same values"),
        (lambda: (FIXED,), torch.exp, written_once, VACUOUS, "patched tree lies in the same"),
        (lambda: (torch.rand(50),), kept, kept, SAME, ""),
        (lambda: (FIXED,), kept, kept, VACUOUS, "result lies in the same memory"),
        # What is handed over is returned as it is; a buffer that is written to is a result.
        (lambda: (FIXED,), lambda x: x.clone(), lambda x: x, VACUOUS,
         "result on the patched tree is an input as it was"),
        (lambda: (FIXED,), torch.zeros_like, torch.zeros_like, VACUOUS, ""),
        (lambda: (FIXED,), lambda x: x, lambda x: x, VACUOUS, "result is an input as it was"),
        (lambda: (FIXED,), lambda x: (x, 1), lambda x: (x, 1), SAME, ""),
        (lambda: (FIXED, torch.empty(50)), lambda x, out: torch.exp(x, out=out),
         lambda x, out: torch.exp(x, out=out), SAME, ""),
        (lambda: (torch.rand(50),), lambda x: x.clamp(0.1).exp(), cleaned, UNLIKE,
         "inputs[0]: float32 [50], overwritten by run on the patched tree, float32 [50] on the b"),
        (lambda: (torch.rand(50),), cleaned, cleaned, SAME, ""),
        (lambda: (object(), torch.rand(3)), lambda _, x: x.exp(), lambda _, x: x.exp(), SAME, ""),
        (lambda: (np.random.default_rng().random(3),), np.ones_like, np.ones_like, SAME, ""),
        (lambda: (FIXED.to(torch.float8_e4m3fn),), lambda x: x.float(), lambda x: x.float(),
         SAME, ""),
    ],
)  # fmt: skip
def test_both_sides_do_the_same_work(
    *, prepare: Callable[[], tuple[object, ...]], base: Callable[..., object],
    patched: Callable[..., object], finding: ResultFinding, said: str, tmp_path: Path,
) -> None:  # fmt: skip
    CALLS.clear()
    write(compute(Case("it", prepare, patched), seed)[0], tmp_path / "results")
    ours, unlike = compute(Case("it", prepare, base), seed)
    assert not unlike
    actual, text = compare(ours, read(tmp_path / "results"), Case("it", prepare, base))
    assert (actual, said in text, bool(text)) == (finding, True, bool(said)), text


def test_inputs_of_two_sides_are_compared_where_results_are_not(tmp_path: Path) -> None:
    made = ((torch.ones(3),), (torch.ones(4),))
    cases = [Case("it", prepare, torch.exp, not_compared="so") for prepare in (
        lambda: made[0], lambda: made[1])]  # fmt: skip
    both = [compute(each, seed)[0] for each in cases]
    write(both[1], tmp_path / "results")
    assert compare(both[0], both[0], cases[0]) == (SAME, "")
    said = "inputs[0]: float32 [4] on the patched tree, float32 [3] on the base"
    assert compare(both[0], read(tmp_path / "results"), cases[0]) == (UNLIKE, said)


@pytest.mark.parametrize(
    ("more", "finding"),
    [({}, DIFFERENT), ({"atol": 1.0}, WITHIN), ({"rtol": 0.9}, WITHIN), ({"atol": 0.5}, DIFFERENT)],
)
def test_the_author_states_how_far_results_may_differ(
    more: dict[str, float], finding: ResultFinding, tmp_path: Path
) -> None:
    def base(x: torch.Tensor) -> object:
        return x.sign().int() * 2, 2

    actual, _ = compared(base, lambda x: (x.sign().int() * 3, 3), tmp_path, **more)
    assert actual is finding
    # Nothing is 0 within any tolerance.
    assert compared(base, lambda x: (x.int() * 0, 0), tmp_path, **more)[0] is DIFFERENT


@pytest.mark.parametrize(
    ("run", "said"),
    [
        (lambda x: x.mul_(0.5), "result: 2,000 of 2,000 elements differ"),
        (lambda x: x.exp_().cos_(), "elements differ"),
        (lambda x: x + next(COUNT), "elements differ"),
        (lambda x: x + torch.rand(50, generator=OWN), "elements differ"),
        (lambda x: x + torch.rand(50), ""),
        (lambda x: torch.exp(x, out=OUT), ""),
    ],
)
def test_a_second_call_with_the_same_inputs_gives_the_same(run: Result, said: str) -> None:
    results, unlike = compute(case(run), seed)
    assert bool(unlike) is bool(said)
    assert said in unlike
    # What the next call overwrites was kept.
    first, other = (leaves[0].tensor for leaves in results[:2])
    assert first is not None
    assert other is not None
    assert not torch.equal(first, other)


@pytest.mark.parametrize(
    ("result", "what"), [((1, {2}), "result[1] is a set"), (object(), "result is a object")]
)
def test_what_cannot_be_compared_is_named(result: object, what: str) -> None:
    with pytest.raises(UncomparableError, match=re.escape(what) + ".*, which cannot be compared"):
        compute(case(lambda _: result), seed)
