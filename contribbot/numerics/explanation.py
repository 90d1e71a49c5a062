"""Why two results of one computation differ: which arithmetic turns one into the other."""

from __future__ import annotations

import contextlib
import enum
import itertools
import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Final

import numpy as np
import torch

from contribbot.errors import UsageError
from contribbot.model.base import Model
from contribbot.numerics.arithmetic import Arithmetic, distinct_orders
from contribbot.numerics.computations import COMPUTATIONS, Computation, Tensors
from contribbot.numerics.recordings import Recording, RecordingHeader
from contribbot.numerics.records import Count, Finite, Integers
from contribbot.numerics.tensors import digest
from contribbot.numerics.words import count, number, place_of

#: No two orders of so many terms are one: the largest block is of 384, and there are 8 splits.
_LONG: Final = 8 * 512
#: Elements times terms that every arithmetic is tried on, and that the best are confirmed on.
_TRIED, _CONFIRMED = 2**17, 2**24
_FEWEST, _MOST = 32, 1024
#: Of the difference, or of the elements beyond chance, that an explanation must explain.
_ENOUGH: Final = 0.9
#: How probable chance may be, over all pairs that were tried.
_DOUBT: Final = 1e-3
#: Arithmetics of each side that are tried in pairs.
_NEAREST: Final = 24
#: Times the spread of all orders of summation in which both results must lie.
_SPREAD: Final = 4.0
#: How much farther than the nearest a kind of arithmetic is left aside, and how many are not.
_FAR, _KINDS_TRIED = 10.0, 12
_ULPS: Final = (0, 1, 3, 15, 255)
#: How much of its inputs a rounding must move: float16 of bfloat16 rounds subnormal numbers alone.
_UNMOVED: Final = 1e-6
#: What another order of summation does not move.
_KINDS: Final = ("inputs", "between", "scale", "softmax", "fp8")
_BITS: Final = {1: torch.int8, 2: torch.int16, 4: torch.int32}


class Confidence(enum.StrEnum):
    """How much of a difference is explained."""

    SAME = "same"  # there is none
    BITS = "bits"  # both results, bit for bit
    VALUES = "values"  # the difference, element by element, but for its last bits
    SIZE = "size"  # its size is that of another order of summation
    NONE = "none"


class Difference(Model):
    """How two results differ."""

    elements: Count
    differing: Count
    not_finite: Count  # of those, where one is NaN or infinite
    place: Integers | None  # of the largest, or of the first that is not finite
    max_abs: Finite
    max_rel: Finite | None
    ulps: dict[str, Count]  # how many finite elements differ by how many ULPs
    rows: tuple[Count, Count]  # that hold differences, of how many
    columns: tuple[Count, Count]
    typical: Finite  # the median magnitude of A
    typical_differing: Finite  # the same where they differ


class NearArithmetic(Model):
    """An arithmetic, and how much of each result it gives."""

    arithmetic: str
    a: Finite  # share of the elements tried that it gives bit for bit
    b: Finite


class Explanation(Model):
    """What is known of a difference, and what would make it."""

    a: RecordingHeader
    b: RecordingHeader
    difference: Difference
    confidence: Confidence
    arithmetic_a: str = ""  # what they differ in; empty unless explained
    arithmetic_b: str = ""
    both: str = ""  # what both need beside that and is not the usual choice
    as_good: tuple[str, ...] = ()  # other choices for B that explain as much
    explained: Finite = 0.0  # share: of the differing elements (bits), of the difference (values)
    relative: bool = False  # each element's difference counts by its own magnitude
    chance: Finite = 0.0  # what an arithmetic explains that has nothing to do with it
    confirmed: tuple[Count, Count] = (0, 0)  # elements given bit for bit, of how many looked at
    tried: Count = 0
    best: tuple[NearArithmetic, ...] = ()

    def lines(self, names: tuple[str, str] = ("A", "B")) -> list[str]:
        """Return it as text: what differs, where, and which arithmetic would make it."""
        seen, facts = self.difference, self.a.result
        share = f"{count(seen.differing)} of {count(seen.elements)} elements differ"
        rows = [f"{self.a.computation} {place_of(facts.shape)} {facts.dtype}: {share}"]
        for side, name, header in zip("AB", names, (self.a, self.b), strict=True):
            versions = ", ".join(f"{key} {value}" for key, value in header.versions.items())
            rows.append(
                f"  {side}  {'' if name == side else f'{name}, '}{header.device}, {versions}"
            )
        settings = self.a.settings, self.b.settings
        for name in sorted({*settings[0], *settings[1]}):
            a, b = (some.get(name, "unset") for some in settings)
            rows += [f"  setting {name}: {a} in A, {b} in B"] if a != b else []
        if self.confidence is Confidence.SAME:
            return rows
        relative = "" if seen.max_rel is None else f", max rel {number(seen.max_rel)}"
        largest = f"{number(seen.max_abs)}{relative}, largest at {place_of(seen.place or ())}"
        broken = f"; {count(seen.not_finite)} not finite" if seen.not_finite else ""
        steps = ", ".join(f"{name}: {count(many)}" for name, many in seen.ulps.items())
        rows += [f"  size   max abs {largest}{broken}", f"  ULPs   {steps}"]
        rows.append(
            f"  where  {seen.rows[0]:,} of {seen.rows[1]:,} rows, {seen.columns[0]:,} of "
            f"{seen.columns[1]:,} columns; median magnitude {number(seen.typical_differing)} where "
            f"they differ, {number(seen.typical)} in all"
        )
        if self.arithmetic_a:
            rows += [f"  A  {self.arithmetic_a}", f"  B  {self.arithmetic_b}"]
            rows += [f"     or {other}" for other in self.as_good]
            rows += [f"  both, such as  {self.both}"] if self.both else []
        return [*rows, f"  {self._verdict()}"]

    def _verdict(self) -> str:
        good, of = map(count, self.confirmed)
        explained, chance = (f"{100 * part:.4g} %" for part in (self.explained, self.chance))
        said = {
            Confidence.BITS: f"explains {good} of {of} elements of both bit for bit; of those that "
            f"differ {explained} (by chance {chance})",
            Confidence.VALUES: f"explains {explained} of the {'relative ' * self.relative}"
            f"difference, element by element (by chance {chance}); the last bits do not fit",
            Confidence.SIZE: "the size fits another order of summation or rounding, and so would "
            "noise of that size: single bits do not fit",
            Confidence.NONE: f"none of these: no pair of {count(self.tried)} arithmetics explains "
            "more than chance",
        }
        return said[self.confidence]


@dataclass(frozen=True)
class _Trial:
    """An arithmetic and which elements of A and B it gives bit for bit."""

    arithmetic: Arithmetic
    a: torch.Tensor
    b: torch.Tensor
    far_a: float
    far_b: float


def ordered(tensor: torch.Tensor) -> torch.Tensor:
    """Return integers that count representable numbers: a difference of 1 is one ULP."""
    bits = tensor.contiguous().view(_BITS[tensor.element_size()]).long()
    mask = (1 << 8 * tensor.element_size() - 1) - 1
    return torch.where(bits < 0, -(bits & mask), bits)


def same(left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
    """Return where two tensors have the same bits, or are both NaN; 0.0 is -0.0."""
    left, right = left.float(), right.float()
    return (left == right) | (left.isnan() & right.isnan())


def difference(a: torch.Tensor, b: torch.Tensor) -> Difference:
    """Return how two results of one shape and dtype differ."""
    unlike = ~same(a, b)
    finite = a.float().isfinite() & b.float().isfinite()
    apart = torch.where(finite, (a.double() - b.double()).abs(), 0.0)
    steps = (ordered(a) - ordered(b)).abs()[finite]
    edges = [*_ULPS, 2**33]
    names = ["0", "1", "2 to 3", "4 to 15", "16 to 255", "more"]
    below = [int((steps <= edge).sum()) for edge in edges]
    broken = unlike & ~finite
    ranked = broken if bool(broken.any()) else apart
    relative = (apart / a.double().abs())[finite & (a != 0)]
    flat, size = unlike.reshape(-1, a.shape[-1] if a.dim() else 1), a.double().abs()[finite]
    some = a.double().abs()[finite & unlike]
    return Difference(
        elements=a.numel(),
        differing=int(unlike.sum()),
        not_finite=int(broken.sum()),
        place=tuple(map(int, np.unravel_index(int(ranked.double().argmax()), a.shape))),
        max_abs=float(apart.max()),
        max_rel=float(relative.max()) if len(relative) else None,
        ulps={name: high - low for name, low, high in zip(names, [0, *below], below, strict=False)},
        rows=(int(flat.any(1).sum()), flat.shape[0]),
        columns=(int(flat.any(0).sum()), flat.shape[1]),
        typical=float(size.median()) if len(size) else 0.0,
        typical_differing=float(some.median()) if len(some) else 0.0,
    )  # fmt: skip


def explain(a: Recording, b: Recording, computation: Computation | None = None) -> Explanation:
    """Look for the arithmetic that turns one result of a computation into another.

    Args:
        a: One result.
        b: Another one of the same computation on the same inputs.
        computation: How to repeat it; unless given, the one of its name in `COMPUTATIONS`.

    Raises:
        UsageError: They are not results of one computation, or it cannot be repeated.
    """
    with one_thread():
        search = ArithmeticSearch.of(a, b, computation)
        seen = difference(a.result, b.result)
        facts: dict[str, object] = {"a": a.header, "b": b.header, "difference": seen}
        if not seen.differing:
            return Explanation.model_validate({**facts, "confidence": Confidence.SAME})
        return search.explanation(facts)


@contextlib.contextmanager
def one_thread() -> Iterator[None]:
    """Let torch compute in one thread: small tensors, whose threads wait on a busy machine."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _require_alike(a: RecordingHeader, b: RecordingHeader) -> None:
    for what in ("computation", "parameters"):
        if getattr(a, what) != getattr(b, what):
            raise UsageError(f"two computations: {what} {getattr(a, what)} and {getattr(b, what)}")
    for name in sorted(a.inputs.keys() | b.inputs.keys()):
        if a.inputs.get(name) != b.inputs.get(name):
            raise UsageError(f"the records have other inputs: {name} is not the same in both")
    for what in ("dtype", "shape"):
        left, right = (getattr(header.result, what) for header in (a, b))
        if left != right:
            raise UsageError(f"the results differ in {what}: {left} and {right}")
    if 0 in a.result.shape:
        raise UsageError("the results are empty")
    if a.result.dtype not in {"float32", "bfloat16", "float16"} and "float8" not in a.result.dtype:
        raise UsageError(f"{a.result.dtype}: arithmetics are repeated for float32, 16 and 8 bits")


class ArithmeticSearch:
    """All arithmetics of one computation, tried on some units of its result."""

    def __init__(
        self, computation: Computation, inputs: Tensors, a: Recording, b: Recording
    ) -> None:
        name, needs = a.header.computation, computation.needs
        if needs and not {*needs} <= {*inputs} <= {*needs, *computation.may}:
            listed = ", ".join([*needs, *(f"perhaps {other}" for other in computation.may)])
            has = ", ".join(inputs) or "none"
            raise UsageError(f"{name} has the inputs {listed}; the record has {has}")
        self.computation, self.inputs = computation, inputs
        self.parameters, self.dtype = a.header.parameters, a.result.dtype
        first = {name: values[0] for name, values in computation.axes.items()}
        self.usual = Arithmetic(**first, dtype=self.dtype)
        try:
            units = computation.units(inputs)
            # What is not cut into parts is repeated whole, and its elements are looked at alone.
            self.whole = units == 1
            one = computation.part(inputs, torch.arange(1))
            width = computation.run(one, self.usual, **self.parameters).numel()
        except (RuntimeError, LookupError, ValueError, TypeError, ArithmeticError) as error:
            why = str(error).partition("\n")[0]
            raise UsageError(f"{name} cannot be computed from these inputs: {why}") from error
        if a.result.numel() != units * width:
            raise UsageError(f"{name} of these inputs gives {count(units * width)} elements, "
                             f"and the result has {count(a.result.numel())}")  # fmt: skip
        units = units if not self.whole else width
        self.a, self.b = (side.result.reshape(units, -1) for side in (a, b))
        self.terms = max(inputs["x"].shape[-1:].numel() if "x" in inputs else 1, self.a.shape[1])
        sizes = [] if self.whole else [tensor.numel() for tensor in one.values()]
        self.cost = max(self.terms, sum(sizes) + self.a.shape[1])
        self.differing = ~same(self.a, self.b).all(1)
        budget = min(_MOST, max(_FEWEST, _TRIED // self.cost))
        self.units = self.sample(budget)
        self.part = one if self.whole else computation.part(inputs, self.units)

    @classmethod
    def of(
        cls, a: Recording, b: Recording, computation: Computation | None = None
    ) -> ArithmeticSearch:
        """Return it for two recordings, one of which keeps the inputs."""
        _require_alike(a.header, b.header)
        name, inputs = a.header.computation, {**a.inputs, **b.inputs}
        chosen = computation or COMPUTATIONS.get(name)
        if chosen is None:
            raise UsageError(f"no computation {name!r}; there are {', '.join(COMPUTATIONS)}")
        if missing := a.header.inputs.keys() - inputs.keys():
            raise UsageError(f"no record keeps the input {min(missing)}")
        return cls(chosen, inputs, a, b)

    def sample(self, size: int) -> torch.Tensor:
        """Return numbers of units, evenly spread; three in four differ, if so many do."""
        wrong, right = self.differing.nonzero()[:, 0], (~self.differing).nonzero()[:, 0]
        more = min(len(wrong), max(size - len(right), size * 3 // 4))
        parts = [(wrong, more), (right, min(len(right), size - more))]
        return torch.cat([units[torch.linspace(0, len(units) - 1, many).round().long()]
                          for units, many in parts if many]).sort().values  # fmt: skip

    @cached_property
    def trials(self) -> list[_Trial]:
        """Every arithmetic that comes near to either result, with what it gives."""
        inputs = self.inputs
        floating = {name: side for name, side in self.part.items() if side.is_floating_point()}
        small = [*floating.values(), self.a, self.b]
        tiny = torch.finfo(torch.float32).tiny
        flushed = any(bool(((t != 0) & (t.float().abs() < tiny)).any()) for t in small)
        given = self.computation.arithmetics(self.dtype, inputs, flushed=flushed)
        # Of ways to round inputs that give the same ones, and of orders that are one: the first.
        rounded: dict[str, str] = {}
        for choice in dict.fromkeys(arithmetic.inputs for arithmetic in given):
            alike = Arithmetic(inputs=choice)
            taken = {name: alike.take(tensor, name) for name, tensor in floating.items()}
            moved = any(
                _distance(side, floating[name]) > _UNMOVED * _distance(side * 0, floating[name])
                for name, side in taken.items()
            )
            rounded.setdefault(digest(*taken.values()) if moved else "", choice)
        orders = distinct_orders(min(self.terms, _LONG))
        given = [a for a in given if a.inputs in rounded.values() and a.order in orders]
        # Far from both results without any error of summation, a kind needs no further look; nor,
        # in one order, does a way to round partial sums.
        for likened in (_kind, _accumulated):
            far = {kind: self._tried(kind) for kind in dict.fromkeys(map(likened, given))}
            near = set[Arithmetic]()
            for side in ("far_a", "far_b"):
                away = {kind: float(getattr(trial, side)) for kind, trial in far.items()}
                nearest = sorted(away, key=away.__getitem__)[:_KINDS_TRIED]
                near |= {kind for kind in nearest if away[kind] <= _FAR * away[nearest[0]]}
            given = [arithmetic for arithmetic in given if likened(arithmetic) in near]
        return [self._tried(arithmetic) for arithmetic in given]

    def _tried(self, arithmetic: Arithmetic) -> _Trial:
        result = self.result(arithmetic, self.units)
        sides = self.a[self.units], self.b[self.units]
        a, b = (same(result, side).flatten() for side in sides)
        return _Trial(arithmetic, a, b, *(_distance(result, side) for side in sides))

    def result(self, arithmetic: Arithmetic, units: torch.Tensor) -> torch.Tensor:
        """Return some units of the result in an arithmetic."""
        return self.wide(arithmetic, units).to(self.dtype)

    def wide(self, arithmetic: Arithmetic, units: torch.Tensor) -> torch.Tensor:
        """Return them before they are rounded to the result's dtype."""
        part = self.part
        if not self.whole and units is not self.units:
            part = self.computation.part(self.inputs, units)
        result = self.computation.run(part, arithmetic, **self.parameters).float()
        return result.reshape(-1, 1)[units] if self.whole else result.reshape(len(units), -1)

    def explanation(self, facts: dict[str, object]) -> Explanation:
        """Return the first that holds: bit for bit, by values, by size, none."""
        found = self._by_bits() or self._by_values() or self._by_size()
        if found.get("confidence") is Confidence.SIZE:
            # Orders of summation may move the largest elements more than the cause moves others.
            found = self._by_values(relative=True) or found
        ranked = [*sorted(self.trials, key=lambda t: -int(t.a.sum()))[:3],
                  *sorted(self.trials, key=lambda t: -int(t.b.sum()))[:3]]  # fmt: skip
        best = {self._words(t.arithmetic): (float(t.a.double().mean()), float(t.b.double().mean()))
                for t in ranked}  # fmt: skip
        rows = [NearArithmetic(arithmetic=name, a=a, b=b) for name, (a, b) in best.items()]
        facts |= {"tried": len(self.trials), "best": tuple(rows)}
        return Explanation.model_validate({"confidence": Confidence.NONE, **facts, **found})

    def _words(self, arithmetic: Arithmetic) -> str:
        flushing = ["denormals"] if arithmetic.denormals != "kept" else []
        return arithmetic.words([*self.computation.axes, *flushing])

    def _by_bits(self) -> dict[str, object]:
        """Say which pair gives both results bit for bit, if more often than chance would."""
        wrong = ~same(self.a[self.units], self.b[self.units]).flatten()
        sides = [[getattr(trial, side) for trial in self.trials] for side in "ab"]
        tied = [_as_good([int((~hits).sum()) for hits in side]) for side in sides]
        first, second = self._simplest((p, q) for p in tied[0] for q in tied[1])
        both = sides[0][first] & sides[1][second]
        share = float(both[wrong].double().mean())
        # What one of these arithmetics gives by accident; the truth is among them at most once.
        chance = math.prod(
            sum(float(hits[wrong].double().mean()) for hits in side) / len(side) for side in sides
        )
        beyond = (share - chance) / (1 - chance)
        # Elements of one unit are right or wrong together.
        alone = int(self.differing[self.units].sum())
        doubt = len(self.trials) ** 2 * math.exp(-alone * _divergence(share, chance))
        if beyond < _ENOUGH or doubt > _DOUBT or not self._reaches(first, second):
            return {}
        others = [self.trials[q].arithmetic for q in tied[1]]
        found = self._found(Confidence.BITS, first, second, others)
        return {**found, "explained": share, "chance": chance,
                "confirmed": self._confirmed(first, second)}  # fmt: skip

    def _confirmed(self, first: int, second: int) -> tuple[int, int]:
        """Return how many elements a pair gives in both results, of all or of a larger sample."""
        units = self.sample(min(len(self.a), max(_FEWEST, _CONFIRMED // self.cost)))
        good = 0
        size = max(1, 2**22 // self.cost)
        for some in (units[start : start + size] for start in range(0, len(units), size)):
            sides = ((self.a, first), (self.b, second))
            both = [same(self.result(self.trials[which].arithmetic, some), side[some])
                    for side, which in sides]  # fmt: skip
            good += int((both[0] & both[1]).sum())
        return good, len(units) * self.a.shape[1]

    def _by_values(self, *, relative: bool = False) -> dict[str, object]:
        """Say which pair differs as the results do, element by element."""
        order = range(len(self.trials))
        near = {*sorted(order, key=lambda i: self.trials[i].far_a)[:_NEAREST],
                *sorted(order, key=lambda i: self.trials[i].far_b)[:_NEAREST],
                *[i for i in order if self.trials[i].arithmetic.order == "exact"]}  # fmt: skip
        chosen = [i for i in sorted(near) if math.isfinite(self.trials[i].far_a)]
        a, b = self.a[self.units].double(), self.b[self.units].double()
        finite = a.isfinite() & b.isfinite()
        weights = _inverse(a[finite].abs()) if relative else 1.0
        moved = (b - a)[finite] * weights
        broken = bool((~same(a, b) & ~finite).any())
        if not chosen or broken or self._scaled(a, b):
            return {}
        values = torch.stack([
            self.result(self.trials[i].arithmetic, self.units).double()[finite] * weights
            for i in chosen
        ])  # fmt: skip
        values = values - values[0].clone()
        left = torch.cdist(values + moved, values, compute_mode="donot_use_mm_for_euclid_dist")
        left = (left / moved.norm()) ** 2
        # A choice more must leave a tenth of what is unexplained without it; an order, of which
        # there are many, a hundredth.
        costs = {
            (p, q): float(left[p, q]) * 10.0 ** self._choices(chosen[p], chosen[q])
            for p, q in (left <= 1 - _ENOUGH).nonzero().tolist()
        }
        if min(costs.values(), default=math.inf) > 1:
            return {}
        # Twice as much may be the noise of an order of summation that is not among these.
        pairs = [pair for pair, cost in costs.items() if cost <= 2 * min(costs.values()) + 1e-9]
        first, second = self._simplest((chosen[p], chosen[q]) for p, q in pairs)
        if not self._reaches(first, second):
            return {}
        p, q = chosen.index(first), chosen.index(second)
        shuffled = values[:, torch.randperm(len(moved), generator=torch.Generator().manual_seed(0))]
        chance = 1 - float((moved - shuffled[q] + shuffled[p]).norm() / moved.norm()) ** 2
        others = [self.trials[chosen[other]].arithmetic for row, other in pairs if row == p]
        found = self._found(Confidence.VALUES, first, second, others)
        return {**found, "explained": 1 - float(left[p, q]), "chance": max(0.0, chance),
                "relative": relative}  # fmt: skip

    def _by_size(self) -> dict[str, object]:
        """Say whether another order, or another rounding of the same size, can give both."""
        # Tiles come in one order, which has no spread.
        whole = [trial for trial in self.trials if trial.arithmetic.softmax == "whole"]
        if not whole:
            return {}
        nearest = min(whole, key=lambda trial: trial.far_a).arithmetic
        kept = {field: getattr(nearest, field) for field in _KINDS}
        family = [
            trial.arithmetic
            for trial in self.trials
            if trial.arithmetic == replace(trial.arithmetic, accumulate="float32", **kept)
        ]
        if len(family) <= 1:
            return {}
        centre = self.wide(_kind(family[0]), self.units)
        spread = torch.zeros_like(centre)
        for arithmetic in family:
            spread = torch.maximum(spread, (self.wide(arithmetic, self.units) - centre).abs())
        # Of one rounding, half a unit in the last place of float32.
        unit = centre.abs() * torch.finfo(torch.float32).eps / 2
        reach = _SPREAD * torch.maximum(torch.maximum(spread, spread.median()), unit)
        low, high = ((centre + sign * reach).to(self.dtype).float() for sign in (-1, 1))
        a, b = self.a[self.units].float(), self.b[self.units].float()
        inside = (low <= a) & (a <= high) & (low <= b) & (b <= high)
        return {"confidence": Confidence.SIZE} if bool(inside.all()) else {}

    def _scaled(self, a: torch.Tensor, b: torch.Tensor) -> bool:
        """Say whether few units differ, most of it by a factor each, which some pair always has."""
        cut = self.computation.part is not Computation.part
        if self.whole and cut:
            a, b = a.T, b.T
        apart = a != b
        if int((apart.any(1) if cut else apart).sum()) >= _FEWEST // 2:
            return False
        factor = (a * b).nansum(1, keepdim=True) / (a * a).nansum(1, keepdim=True)
        return float((b - factor * a).norm()) ** 2 < float((b - a).norm()) ** 2 / 2

    def _reaches(self, first: int, second: int) -> bool:
        """Say whether a pair explains the largest difference, too: a fault may be in one row."""
        moved = (self.b.double() - self.a.double()).nan_to_num(0, 0, 0)
        largest = moved.abs().amax(1).argmax().reshape(1)
        sides = [self.trials[which].arithmetic for which in (first, second)]
        usual, there = (
            self.result(sides[1], units).double() - self.result(sides[0], units).double()
            for units in (self.units, largest)
        )
        moved = moved[largest]
        if bool(moved.abs().max() <= _SPREAD * usual.nan_to_num(0, 0, 0).abs().max()):
            return True
        return bool((moved - there).norm() <= moved.norm() / 2)

    def _choices(self, first: int, second: int) -> int:
        names = self.trials[first].arithmetic.unlike(self.trials[second].arithmetic)
        return len(names) + ("order" in names and len(names) > 1)

    def _simplest(self, pairs: Iterable[tuple[int, int]]) -> tuple[int, int]:
        """Return the pair that differs in fewest choices, then misses least, then is most usual."""
        misses = {
            side: [int((~getattr(trial, side)).sum()) for trial in self.trials] for side in "ab"
        }

        def effort(pair: tuple[int, int]) -> tuple[int, int, int, tuple[int, int]]:
            first, second = (self.trials[i].arithmetic for i in pair)
            far = len(first.unlike(self.usual)) + len(second.unlike(self.usual))
            missed = misses["a"][pair[0]] + misses["b"][pair[1]]
            return len(first.unlike(second)), missed, far, pair

        return min(itertools.islice(pairs, 40_000), key=effort)

    def _found(
        self, confidence: Confidence, first: int, second: int, others: list[Arithmetic]
    ) -> dict[str, object]:
        a, b = self.trials[first].arithmetic, self.trials[second].arithmetic
        names = a.unlike(b)
        same_names = [other.words(names) for other in others
                      if other.unlike(a) == names and other.unlike(b)]  # fmt: skip
        return {
            "confidence": confidence, "arithmetic_a": a.words(names),
            "arithmetic_b": b.words(names),
            "both": a.words([name for name in a.unlike(self.usual) if name not in names]),
            "as_good": tuple(dict.fromkeys(same_names))[:3],
        }  # fmt: skip


def _kind(arithmetic: Arithmetic) -> Arithmetic:
    return replace(arithmetic, order="exact", accumulate="float32", multiply_add="separate")


def _accumulated(arithmetic: Arithmetic) -> Arithmetic:
    """Return it in the order of its kind, or in one that has parts to round."""
    if arithmetic.accumulate == "float32":
        return _kind(arithmetic)
    return replace(arithmetic, order="blocks of 32")


def _as_good(misses: list[int]) -> list[int]:
    """Return the best, and what is not worse than it by more than counting allows."""
    least = min(misses)
    allowed = least + 3 * math.sqrt(least + 1)
    return [which for which, missed in enumerate(misses) if missed <= allowed][:200]


def _distance(left: torch.Tensor, right: torch.Tensor) -> float:
    apart = left.float() - right.float()
    if not bool(apart.isfinite().all()):
        apart = apart[right.float().isfinite()]
    size = float(torch.linalg.vector_norm(apart, dtype=torch.float64))
    return size if math.isfinite(size) else math.inf


def _inverse(size: torch.Tensor) -> torch.Tensor:
    """Return 1 over each magnitude; of the least tenth, which may have cancelled out, alike."""
    some = size[size > 0].sort().values
    return 1 / size.clamp_min(float(some[len(some) // 10])) if len(some) else torch.ones_like(size)


def _divergence(share: float, chance: float) -> float:
    """Return Kullback and Leibler's, by which Chernoff bounds so many hits by chance."""
    pairs = ((share, chance), (1 - share, 1 - chance))
    return sum(p * math.log(p / max(q, 1e-9)) for p, q in pairs if p > 0) if share > chance else 0.0
