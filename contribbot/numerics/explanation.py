"""Explain why two results of a computation differ: rounding, order of summation, or a fault."""

from __future__ import annotations

import enum
import itertools
import math
import operator
from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import cached_property
from typing import Final, Literal, NamedTuple

import torch

from contribbot.errors import UsageError
from contribbot.markdown import number
from contribbot.model.base import Many, Model
from contribbot.model.record import Count, Finite
from contribbot.numerics.arithmetic import (
    COMPUTATIONS,
    MATRIX_ORDERS,
    Arithmetic,
    Computation,
    Float64,
)
from contribbot.numerics.recordings import Recording, RecordingHeader

#: The share of a difference that a cause must explain.
_ENOUGH: Final = 0.9
#: A result may differ from the exact sum by this many times the scatter of summation orders.
_SPREAD: Final = 4.0
#: In fewer parts of the result, or fewer elements of a row, a pattern may be chance.
_FEWEST: Final = 16
#: Elements times terms on which each arithmetic is tried, and on which a cause is checked.
_TRIED, _CHECKED = 2**17, 2**25
#: The number of arithmetics nearest to each result that are compared in pairs.
_NEAREST: Final = 24
#: Choices that change a result as little as another order of summation does.
_SMALL: Final = ("order", "multiply_add", "exp", "divide", "variance", "softmax")
LineKind = Literal["row", "column", "group", "element"]


class Confidence(enum.StrEnum):
    """How well a difference is explained."""

    SAME = "same"  # there is no difference
    BITS = "bits"  # two arithmetics give both results bit for bit
    VALUES = "values"  # two arithmetics give the difference of each element, but for the last bits
    SIZE = "size"  # the difference is as large as that of another order of summation
    NONE = "none"


class Difference(Model):
    """How many elements of two results differ, where, and by how much."""

    elements: Count
    differing: Count
    not_finite: Count  # differing elements with NaN or infinity
    place: Many[int]  # the index of the largest difference, or of the first that is not finite
    max_abs: Finite
    max_rel: Finite | None
    rows: Count  # with differences, as are columns
    columns: Count


class Error(NamedTuple):
    """The error of a result against float64, in ULPs of the result's dtype."""

    median: Finite
    largest: Finite


class Unexplained(Model):
    """Rows, columns, groups or elements whose difference the found arithmetics do not explain."""

    kind: LineKind
    numbers: tuple[Many[int], ...]  # the indices of the first three
    lines: Count
    of: Count

    def __str__(self) -> str:
        names = ", ".join(str(at if len(at) > 1 else at[0]) for at in self.numbers)
        more = self.lines - len(self.numbers)
        rest = f" and {more:,} more" if more else ""
        kind = f"{self.kind}{'s' * (self.lines > 1)}"
        return f"left   {kind} {names}{rest} (of {self.of:,}): unexplained, look for a fault"


class Explanation(Model):
    """How two results A and B differ, the arithmetics that explain the difference, and the rest.

    Attributes:
        difference: The counts of differing elements, rows and columns, and the largest difference.
        error_a: The error of A against float64, in ULPs of the dtype; `error_b` likewise.
        confidence: How well the difference is explained; `none`: look for a fault.
        arithmetic_a: The choices of A's arithmetic that B lacks, as text; `arithmetic_b` likewise.
        explained: The share of differing elements (`bits`) or of the difference (`values`), 0 to 1.
        unexplained: Rows, columns, groups or elements that the arithmetics do not explain.
        tried: The number of arithmetics that were tried.
    """

    a: RecordingHeader
    b: RecordingHeader
    difference: Difference
    error_a: Error | None = None
    error_b: Error | None = None
    confidence: Confidence
    arithmetic_a: str = ""  # empty: no arithmetic explains the difference
    arithmetic_b: str = ""
    as_good: tuple[str, ...] = ()  # other choices for B that explain as much
    explained: Finite = 0.0  # from 0 to 1
    unexplained: tuple[Unexplained, ...] = ()
    tried: Count = 0

    @property
    def complete(self) -> bool:
        """Whether a cause explains the difference of all rows, columns, groups and elements."""
        return self.confidence is not Confidence.NONE and not self.unexplained

    def lines(self, names: tuple[str, str] = ("A", "B")) -> Iterator[str]:
        """Yield the report's lines: difference, place, cause, rest; `names`: the results' names."""
        seen, facts = self.difference, self.a.result
        share = f"{seen.differing:,} of {seen.elements:,} elements differ"
        yield f"{self.a.computation} {facts.shape} {facts.dtype}: {share}"
        for side, name, header in zip("AB", names, (self.a, self.b), strict=True):
            versions = ", ".join(f"{key} {value}" for key, value in header.versions.items())
            yield f"  {side}  {'' if name == side else f'{name}, '}{header.device}, {versions}"
        for name in sorted({*self.a.settings, *self.b.settings}):
            a, b = (header.settings.get(name, "unset") for header in (self.a, self.b))
            if a != b:
                yield f"  setting {name}: {a} in A, {b} in B"
        if self.confidence is Confidence.SAME:
            return
        relative = "" if seen.max_rel is None else f", max rel {number(seen.max_rel)}"
        broken = f"; {seen.not_finite:,} not finite" if seen.not_finite else ""
        largest = f"{number(seen.max_abs)}{relative}, largest at {seen.place}{broken}"
        yield f"  size   max abs {largest}"
        yield f"  where  in {seen.rows:,} rows, {seen.columns:,} columns"
        for side, error in zip("AB", (self.error_a, self.error_b), strict=True):
            if error is not None:
                size = f"{number(error.median)} in the median, {number(error.largest)} at most"
                yield f"  error  of {side} against float64, in ULPs: {size}"
        if self.arithmetic_a:
            yield from (f"  A  {self.arithmetic_a}", f"  B  {self.arithmetic_b}")
            yield from (f"     or {other}" for other in self.as_good)
        share = f"explains {100 * self.explained:.4g} %"
        cause = {
            Confidence.BITS: f"{share} of the elements that differ, bit for bit",
            Confidence.VALUES: f"{share} of the difference, element by element; the last bits do "
            "not fit",
            Confidence.SIZE: "the size fits another order of summation or rounding, and so would "
            "noise of that size: single bits do not fit",
            Confidence.NONE: f"none of {self.tried:,} arithmetics explains the difference",
        }
        yield f"  {cause[self.confidence]}"
        yield from (f"  {rest}" for rest in self.unexplained)


class _Trial(NamedTuple):
    """An arithmetic, and the distances of its result from A and from B."""

    arithmetic: Arithmetic
    far_a: float
    far_b: float


def same(left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
    """Return a mask of the equal elements of two tensors; NaN equals NaN, and 0.0 equals -0.0."""
    return torch.isclose(left.float(), right.float(), rtol=0, atol=0, equal_nan=True)


def difference(a: torch.Tensor, b: torch.Tensor) -> Difference:
    """Return the difference of two results of the same shape and dtype."""
    unlike = ~same(a, b)
    finite = a.float().isfinite() & b.float().isfinite()
    apart = torch.where(finite, (a.double() - b.double()).abs(), 0.0)
    broken = unlike & ~finite
    ranked = broken if bool(broken.any()) else apart
    relative = (apart / a.double().abs())[finite & (a != 0)]
    flat = unlike.reshape(-1, a.shape[-1] if a.dim() else 1)
    return Difference(
        elements=a.numel(),
        differing=int(unlike.sum()),
        not_finite=int(broken.sum()),
        place=_index(int(ranked.double().argmax()), a.shape),
        max_abs=float(apart.max()),
        max_rel=float(relative.max()) if len(relative) else None,
        rows=int(flat.any(1).sum()),
        columns=int(flat.any(0).sum()),
    )


def error(result: torch.Tensor, reference: torch.Tensor) -> Error | None:
    """Return a result's error against a float64 reference, in ULPs; None: no element is finite."""
    wide = result.double()
    finite = wide.isfinite() & reference.isfinite()
    about, limits = reference[finite], torch.finfo(result.dtype)
    exponent = torch.frexp(about.abs().clamp_min(limits.smallest_normal)).exponent - 1
    steps = (wide[finite] - about).abs() / torch.ldexp(torch.full_like(about, limits.eps), exponent)
    return Error(median=float(steps.median()), largest=float(steps.max())) if len(steps) else None


def explain(a: Recording, b: Recording, computation: Computation | None = None) -> Explanation:
    """Look for two arithmetics that explain why two results of a computation differ.

    Args:
        a: The recording of a result in float32, bfloat16, float16 or float8.
        b: The recording of another result, of the same computation, inputs, shape and dtype.
        computation: How to repeat the computation; None: the entry in `COMPUTATIONS`.

    Raises:
        UsageError: The recordings are not as stated, or the computation cannot be repeated.
    """
    _require_alike(a.header, b.header)
    # One thread: the tensors are small, and on a busy machine threads would wait.
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        search, seen = _Search(a, b, computation), difference(a.result, b.result)
        found = Explanation(a=a.header, b=b.header, difference=seen, confidence=Confidence.SAME)
        if not seen.differing:
            return found
        reference = search.result(Float64(order="exact", dtype=search.dtype), search.units)
        facts: dict[str, object] = {
            "error_a": error(search.a[search.units], reference),
            "error_b": error(search.b[search.units], reference),
            "confidence": Confidence.NONE,
            "tried": len(search.trials),
        }
        found = found.model_copy(update=facts)
        return search.by_pairs(found) or search.by_size(found)
    finally:
        torch.set_num_threads(threads)


def _require_alike(a: RecordingHeader, b: RecordingHeader) -> None:
    sides: list[dict[str, object]] = [
        {"computation": side.computation, "parameters": side.parameters}
        | {f"the input {name}": facts for name, facts in side.inputs.items()}
        | {"dtype": side.result.dtype, "shape": side.result.shape}
        for side in (a, b)
    ]
    for what in {**sides[0], **sides[1]}:
        left, right = (side.get(what) or "none" for side in sides)
        if left != right:
            raise UsageError(f"the records differ in {what}: {left} and {right}")
    if 0 in a.result.shape:
        raise UsageError("the results are empty")
    if a.result.dtype not in {"float32", "bfloat16", "float16"} and "float8" not in a.result.dtype:
        raise UsageError(f"{a.result.dtype}: arithmetics are repeated for float32, 16 and 8 bits")


class _Search:
    """A search among the arithmetics of a computation, on some parts (`units`) of the results."""

    def __init__(self, a: Recording, b: Recording, computation: Computation | None) -> None:
        name, inputs = a.header.computation, {**a.inputs, **b.inputs}
        computation = computation or COMPUTATIONS.get(name)
        if computation is None:
            raise UsageError(f"no computation {name!r}; there are {', '.join(COMPUTATIONS)}")
        if missing := a.header.inputs.keys() - inputs.keys():
            raise UsageError(f"no record keeps the input {min(missing)}")
        needs = computation.needs
        if needs and not {*needs} <= {*inputs} <= {*needs, *computation.may}:
            listed = ", ".join([*needs, *(f"perhaps {other}" for other in computation.may)])
            present = ", ".join(inputs) or "none"
            raise UsageError(f"{name} has the inputs {listed}; the record has {present}")
        self.computation, self.inputs = computation, inputs
        self.parameters, self.dtype = a.header.parameters, a.result.dtype
        self.arithmetics = computation.arithmetics(self.dtype, inputs)
        self.usual = self.arithmetics[0]
        try:
            units = computation.units(inputs)
            # A computation without parts is repeated as a whole; its units are the elements.
            self.whole = units == 1
            first = computation.part(inputs, torch.arange(1))
            width = computation.run(first, self.usual, **self.parameters).numel()
        except (RuntimeError, LookupError, ValueError, TypeError, ArithmeticError) as error:
            why = str(error).partition("\n")[0]
            raise UsageError(f"{name} cannot be computed from these inputs: {why}") from error
        if a.result.numel() != units * width:
            elements = f"{units * width:,} elements, and the result has {a.result.numel():,}"
            raise UsageError(f"{name} of these inputs gives {elements}")
        self.shape = a.result.shape
        rows = width if self.whole else units
        self.a, self.b = (side.result.reshape(rows, -1) for side in (a, b))
        self.differing = ~same(self.a, self.b).all(1)
        terms = inputs["x"].shape[-1:].numel() if "x" in inputs else 1
        sizes = [] if self.whole else [tensor.numel() for tensor in first.values()]
        self.cost = max(terms, sum(sizes) + self.a.shape[1])
        self.units = self.sample(min(1024, max(2 * _FEWEST, _TRIED // self.cost)))

    def sample(self, size: int) -> torch.Tensor:
        """Return evenly spread units, about three quarters of them with differences."""
        wrong, right = self.differing.nonzero()[:, 0], (~self.differing).nonzero()[:, 0]
        more = min(len(wrong), max(size - len(right), size * 3 // 4))
        parts = [(wrong, more), (right, min(len(right), size - more))]
        return torch.cat([_spread(units, many) for units, many in parts]).sort().values

    @cached_property
    def trials(self) -> list[_Trial]:
        """The trials of the arithmetics that, with exact sums, come near to A or to B."""
        some = self.arithmetics
        # If a kind with exact sums is far from both results, each order of this kind is far, too;
        # the same holds for a rounding of partial sums that is far in one order.
        for likened in (_kind, _accumulated):
            tried = [self._trial(choice) for choice in dict.fromkeys(map(likened, some))]
            near = {trial.arithmetic for trial in _nearest(tried, _NEAREST // 2, factor=10)}
            some = [choice for choice in some if likened(choice) in near]
        return [self._trial(choice) for choice in some]

    def _trial(self, arithmetic: Arithmetic) -> _Trial:
        result = self.result(arithmetic, self.units).to(self.dtype)
        return _Trial(
            arithmetic, *(_distance(result, side[self.units]) for side in (self.a, self.b))
        )

    def result(self, arithmetic: Arithmetic, units: torch.Tensor) -> torch.Tensor:
        """Return some units of an arithmetic's result, not rounded to the result's dtype."""
        part = self.computation.part(self.inputs, torch.arange(1) if self.whole else units)
        result = self.computation.run(part, arithmetic, **self.parameters)
        return result.reshape(-1, 1)[units] if self.whole else result.reshape(len(units), -1)

    def by_pairs(self, found: Explanation) -> Explanation | None:
        """Return the explanation by the simplest pair for bits, or else for values; or None."""
        kinds = dict.fromkeys(_kind(trial.arithmetic) for trial in self.trials)
        ranked = [*_nearest(self.trials, _NEAREST), *_nearest([*map(self._trial, kinds)], _NEAREST)]
        # Many orders give the same 16-bit result: also try each with sums in float32.
        twins = (replace(trial.arithmetic, accumulate="float32") for trial in ranked)
        ranked += map(self._trial, dict.fromkeys(twins))
        near = dict.fromkeys(trial.arithmetic for trial in ranked if trial.far_a < math.inf)
        # A few wrong rows or elements are too few for a pattern.
        rare = int(self.differing.sum()) < min(_FEWEST, len(self.a))
        if rare or int((~same(self.a, self.b)).sum()) < _FEWEST or not near:
            return None
        a, b = (side[self.units].double() for side in (self.a, self.b))
        wrong, finite = ~same(a, b), a.isfinite() & b.isfinite()
        results = [self.result(choice, self.units).to(self.dtype).double() for choice in near]
        equal_a, equal_b = (
            torch.stack([same(result, side)[wrong] for result in results]).double()
            for side in (a, b)
        )
        missed = 1 - equal_a @ equal_b.T / wrong.sum()
        values = torch.stack([(result - results[0])[finite] for result in results])
        moved = (b - a)[finite]
        left = torch.cdist(values + moved, values, compute_mode="donot_use_mm_for_euclid_dist")
        left = (left / moved.norm()) ** 2 if not bool((wrong & ~finite).any()) else left + math.inf
        # The cost of a pair: bits before values, then the number of choices, then the rest.
        costs = dict[tuple[Arithmetic, Arithmetic], tuple[Confidence, int, float]]()
        for (p, first), (q, second) in itertools.product(enumerate(near), repeat=2):
            names = first.unlike(second)
            if float(missed[p, q]) <= 1 - _ENOUGH:
                costs[first, second] = Confidence.BITS, len(names), float(missed[p, q])
            # Small choices change values as little as another order does: they explain no values.
            elif float(left[p, q]) <= 1 - _ENOUGH and not {*names} <= {*_SMALL}:
                costs[first, second] = Confidence.VALUES, len(names), float(left[p, q])
        if not costs:
            return None
        confidence, fewest, least = min(costs.values())
        pairs = [
            pair
            for pair, (sort, many, rest) in costs.items()
            if (sort, many) == (confidence, fewest) and rest <= 2 * least + 1e-9
        ]
        first, second = min(pairs, key=lambda pair: sum(len(x.unlike(self.usual)) for x in pair))
        names = first.unlike(second)
        others = (
            other.words(names)
            for choice, other in pairs
            if choice == first and other.unlike(first) == names and other != second
        )
        cause: dict[str, object] = {
            "confidence": confidence,
            "arithmetic_a": first.words(names),
            "arithmetic_b": second.words(names),
            "as_good": tuple(dict.fromkeys(others))[:3],
            "explained": 1 - costs[first, second][2],
            "unexplained": tuple(self.unexplained(first, second)),
        }
        return found.model_copy(update=cause)

    def by_size(self, found: Explanation) -> Explanation:
        """Return the explanation, of confidence `size` if orders or roundings differ as much."""
        # Tiles have a single order, so that there is no scatter to measure.
        whole = [trial for trial in self.trials if trial.arithmetic.softmax == "whole"]
        if not whole:
            return found
        nearest = _kind(min(whole, key=lambda trial: trial.far_a).arithmetic)
        # Also look at the largest differences: a fault may be in a single row.
        apart = (self.b.double() - self.a.double()).nan_to_num(math.inf).abs().amax(1)
        units = torch.cat([self.units, apart.topk(min(_FEWEST, len(apart))).indices])
        centre, reach = self.result(nearest, units), self.noise(nearest, units)
        low, high = ((centre + sign * reach).to(self.dtype).float() for sign in (-1, 1))
        sides = (side[units].float() for side in (self.a, self.b))
        inside = all(bool(((low <= side) & (side <= high)).all()) for side in sides)
        # If nearly all rows grow, or nearly all shrink, an epsilon or a scale differs.
        before, after = (side.double().reshape(-1, self.shape[-1]) for side in (self.a, self.b))
        signs = ((after - before) * before).nansum(1).sign()
        signs = signs[signs != 0]
        one_way = len(signs) >= _FEWEST and abs(float(signs.mean())) > 2 * _ENOUGH - 1
        confidence = Confidence.SIZE if inside and not one_way else Confidence.NONE
        return found.model_copy(update={"confidence": confidence})

    def noise(self, arithmetic: Arithmetic, units: torch.Tensor) -> torch.Tensor:
        """Return how much orders of summation and small roundings may change some units."""
        usual = {name: getattr(self.usual, name) for name in _SMALL}
        centre = self.result(arithmetic, units)
        spread = torch.zeros_like(centre)
        alike = replace(arithmetic, **usual)
        for choice in self.arithmetics:
            if choice.accumulate != "float32" or choice.order in MATRIX_ORDERS:
                continue
            if replace(choice, **usual) == alike:
                spread = torch.maximum(spread, (self.result(choice, units) - centre).abs())
        # The error of one rounding: half a unit in float32's last place.
        unit = centre.abs() * torch.finfo(torch.float32).eps / 2
        return _SPREAD * torch.maximum(torch.maximum(spread, spread.median()), unit)

    def unexplained(self, first: Arithmetic, second: Arithmetic) -> Iterator[Unexplained]:
        """Yield rows, columns and groups, or else elements, that two arithmetics do not explain."""
        units = self.sample(min(len(self.a), max(_FEWEST, _CHECKED // self.cost)))
        moved = torch.full(self.a.shape, torch.nan, dtype=torch.float64)
        left = moved.clone()
        moved[units] = (self.b.double() - self.a.double())[units]
        for some in torch.split(units, max(1, 2**22 // self.cost)):
            a, b = (self.result(side, some).to(self.dtype) for side in (first, second))
            left[some] = moved[some] - (b.double() - a.double())
        place = torch.arange(self.a.numel()).reshape(self.a.shape)
        lines: dict[LineKind, torch.Tensor] = {}
        if len(self.shape) > 1:
            lines = {"row": place // self.shape[-1], "column": place % self.shape[-1]}
            if group := int(self.parameters.get("group", 0)):
                lines["group"] = place // group
        shapes = {"row": self.shape[:-1], "element": self.shape}
        found = {kind: self._left(second, line, moved, left) for kind, line in lines.items()}
        if not any(found.values()):
            beyond = left.abs() > _SPREAD * (moved - left).nan_to_num(0).abs().max()
            found = {"element": beyond.flatten().nonzero()[:, 0].tolist()}
            lines = {"element": place}
        for kind, numbers in found.items():
            of = int(lines[kind].max()) + 1
            places = tuple(_index(number, shapes.get(kind, (of,))) for number in numbers[:3])
            if numbers:
                yield Unexplained(kind=kind, numbers=places, lines=len(numbers), of=of)

    def _left(
        self, arithmetic: Arithmetic, line: torch.Tensor, moved: torch.Tensor, left: torch.Tensor
    ) -> list[int]:
        """Return rows (columns, groups) whose difference is mostly unexplained and above noise."""
        of = int(line.max()) + 1

        def total(values: torch.Tensor, units: torch.Tensor | None = None) -> torch.Tensor:
            empty = torch.zeros(of, dtype=torch.float64)
            lines = line if units is None else line[units]
            return empty.index_add(0, lines.flatten(), values.double().nan_to_num(0).flatten())

        enough = total(moved.abs() > 0) >= min(_FEWEST, line.numel() // of)
        suspect = enough & (total(left**2) > total(moved**2) / 2)
        units = (suspect[line] & ~left.isnan()).any(1).nonzero()[:, 0]
        if not len(units):
            return []
        units = _spread(units, max(2 * _FEWEST, 4 * _TRIED // self.cost))
        step = 2 * torch.finfo(self.dtype).eps * self.b[units].double().abs()
        beyond = left[units].abs() > self.noise(arithmetic, units) + step
        most = total(beyond, units) > total(torch.ones_like(beyond), units) / 2
        return (suspect & most).nonzero()[:, 0].tolist()


def _kind(arithmetic: Arithmetic) -> Arithmetic:
    """Return an arithmetic with exact sums, otherwise the same."""
    return replace(arithmetic, order="exact", accumulate="float32", multiply_add="separate")


def _accumulated(arithmetic: Arithmetic) -> Arithmetic:
    """Return an arithmetic with exact sums, or with blocks of 32 if partial sums are rounded."""
    if arithmetic.accumulate == "float32":
        return _kind(arithmetic)
    return replace(arithmetic, order="blocks of 32")


def _nearest(trials: list[_Trial], many: int, *, factor: float = 0.0) -> Iterator[_Trial]:
    """Yield the `many` trials nearest to A, and to B; `factor` limits how far they may be."""
    # Of arithmetics with the same distances, and so probably the same result, keep the first.
    kinds = {f"{trial.far_a:.6g} {trial.far_b:.6g}": trial for trial in reversed(trials)}
    trials = [*reversed(kinds.values())]
    for distance in (operator.attrgetter("far_a"), operator.attrgetter("far_b")):
        first, *others = sorted(trials, key=distance)[:many]
        limit = factor * distance(first) if factor else math.inf
        yield from (first, *(trial for trial in others if distance(trial) <= limit))


def _index(number: int, shape: Iterable[int]) -> tuple[int, ...]:
    return tuple(map(int, torch.unravel_index(torch.tensor(number), tuple(shape))))


def _spread(units: torch.Tensor, many: int) -> torch.Tensor:
    """Return at most `many` of the units, evenly spread."""
    many = min(many, len(units))
    return units[torch.linspace(0, len(units) - 1, many).round().long()] if many else units[:0]


def _distance(left: torch.Tensor, right: torch.Tensor) -> float:
    """Return the distance of two results in the finite elements of the second result."""
    apart = left.float() - right.float()
    if not bool(apart.isfinite().all()):
        apart = apart[right.float().isfinite()]
    # The norm of order 0.5, so that no single row outweighs the rest.
    size = float(torch.linalg.vector_norm(apart, ord=0.5, dtype=torch.float64))
    return size if math.isfinite(size) else math.inf
