"""The results of two sides, compared before they are timed: in process, as a child does it."""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from contribbot.bench import Case
from contribbot.bench.results import UncomparableError, compute, difference, read, write

Run = Callable[..., object]
HELD = torch.linspace(0, 1, 2000).reshape(40, 50)


def seed(number: int) -> None:
    random.seed(number)
    torch.manual_seed(number)


def case(run: Run, prepare: Callable[[], tuple[object, ...]] | None = None) -> Case:
    return Case("it", prepare or (lambda: (torch.randn(40, 50),)), run)


def compared(base: Run, patched: Run, folder: Path, **bounds: float) -> str:
    write(*compute(case(patched), seed), folder / "results")
    ours, _ = compute(case(base), seed)
    theirs, _ = read(folder / "results")
    return next(filter(None, (difference(*pair, **bounds) for pair in zip(ours, theirs))), "")  # noqa: B905  of one length


CACHE: list[torch.Tensor] = []


def first(x: torch.Tensor) -> torch.Tensor:
    """Return the first call's result each time."""
    CACHE.append(x.exp())
    return CACHE[0]


@pytest.mark.parametrize(
    ("base", "patched", "said"),
    [
        (torch.exp, torch.exp, ""),
        (torch.exp, lambda x: x.exp() * (1 + 4 * torch.finfo(x.dtype).eps), ""),
        (torch.exp, lambda x: x.exp() * 1.001, "Tensor-likes are not close!; Mismatched elements"),
        (lambda x: x * 1e-30, torch.zeros_like, "the patched tree's is nothing but 0 and NaN"),
        (torch.exp, lambda x: x.exp().half(), "dtype"),
        (torch.exp, lambda x: x.exp().t(), "shape"),
        (torch.exp, lambda x: x.exp().t().contiguous().t(), ""),
        (lambda x: x.to(torch.float8_e4m3fn), lambda x: x.to(torch.float8_e4m3fn), ""),
        (lambda x: x.log(), lambda x: x.log(), ""),  # NaN is NaN
        (lambda x: (x, 3), lambda x: [x, 4], "Expected 3 but got 4"),
        (lambda x: {"b": 1, "a": x}, lambda x: {"a": x, "b": 1}, ""),
        (lambda x: {"a": x.exp()}, lambda x: {"b": x}, "keys"),
        (lambda x: x.numpy() + 1, lambda x: x.numpy() + 2, "elements: 2000 / 2000"),
        (lambda x: np.float32(x[0, 0]), lambda x: x[0, 0].numpy(), ""),
        (lambda _: True, lambda _: 0, "resulted in the unexpected exception"),
        # The same random numbers on both sides; a second draw gives others.
        (lambda x: x + torch.rand(50), lambda x: x + torch.rand(50), ""),
        (torch.exp, first, "Tensor-likes are not close!"),
    ],
)
def test_two_results_are_compared(base: Run, patched: Run, said: str, tmp_path: Path) -> None:
    text = compared(base, patched, tmp_path)
    assert (bool(text), said in text) == (bool(said), True), text
    assert "\n" not in text


@pytest.mark.parametrize(
    ("bounds", "same"), [({}, False), ({"atol": 1.0}, True), ({"rtol": 0.9}, True)]
)
def test_the_author_states_how_far_results_may_differ(
    bounds: dict[str, float], same: bool, tmp_path: Path
) -> None:
    assert same is not bool(compared(lambda _: 2.0, lambda _: 2.9, tmp_path, **bounds))


@pytest.mark.parametrize(
    ("prepare", "run", "useless"),
    [
        (lambda: (HELD,), torch.exp, ""),
        (lambda: (HELD,), lambda x: x, "run returns its inputs as they were"),
        (lambda: (HELD,), lambda x: [x, {"a": x}], "run returns its inputs as they were"),
        (lambda: ([3, 1],), lambda numbers: numbers, "run returns its inputs as they were"),
        (lambda: ([3, 1],), lambda numbers: numbers.sort() or numbers, ""),
        (lambda: (HELD,), lambda x: (x, 1), ""),
        (lambda: (HELD.clone(),), lambda x: x.exp_(), ""),
        (lambda: (HELD, torch.empty(40, 50)), lambda x, out: torch.exp(x, out=out), ""),
        (lambda: (object(), HELD), lambda _, x: x.exp(), ""),
        (tuple, lambda: None, "run returns nothing"),
        (tuple, lambda: [0, 0.0, float("nan"), torch.zeros(3)], "run returns nothing"),
        (tuple, lambda: torch.full((3,), float("inf")), "run returns nothing"),
    ],
)
def test_results_that_prove_no_work_are_named(
    prepare: Callable[[], tuple[object, ...]], run: Run, useless: str
) -> None:
    _, text = compute(case(run, prepare), seed)
    assert (bool(text), useless in text) == (bool(useless), True), text


@pytest.mark.parametrize(
    ("result", "what"), [((1, {2}), "result[1] is a set"), (object(), "result is a object")]
)
def test_what_cannot_be_compared_is_named(result: object, what: str) -> None:
    with pytest.raises(UncomparableError, match=re.escape(what) + ".*, which cannot be compared"):
        compute(case(lambda _: result), seed)
