"""Base and patched kernels side by side: which belong together, and what changed."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Final, Self

from pydantic import JsonValue

from contribbot.compiling.listing import Kernel

#: What is compared of a kernel, in the order in which it is written.
COLUMNS: Final = (
    "vgprs", "agprs", "sgprs", "lds", "scratch", "spills", "wavefront", "occupancy", "code",
    "instructions",
)  # fmt: skip
Numbers = tuple[int | None, ...]


@dataclass(frozen=True)
class Pair:
    """The same kernel on both sides; one of them may lack it."""

    base: Kernel | None
    patched: Kernel | None

    @property
    def title(self) -> str:
        """Its name, the patched tree's where both have one."""
        one = self.patched or self.base
        return one.title if one is not None else ""

    @property
    def emptied(self) -> bool:
        """Whether it does something on the base, and nothing on the patched tree."""
        return bool(self.base and self.base.works and self.patched and not self.patched.works)


def pair_kernels(base: Sequence[Kernel], patched: Sequence[Kernel]) -> list[Pair]:
    """Return which kernels belong together: by symbol, else by name, else by function in order."""
    pairs: list[Pair] = []
    left, right = list(base), list(patched)
    keys: tuple[Callable[[Kernel], str], ...] = (
        lambda one: one.symbol,
        lambda one: one.title,
        lambda one: one.function,
    )
    for key in keys:
        there, here = _grouped(left, key), _grouped(right, key)
        for name in there.keys() & here.keys():
            if len(there[name]) != len(here[name]):
                continue
            for one, other in zip(there[name], here[name], strict=True):
                pairs.append(Pair(one, other))
                left.remove(one)
                right.remove(other)
    pairs += [Pair(one, None) for one in left]
    pairs += [Pair(None, one) for one in right]
    return sorted(pairs, key=lambda pair: pair.title)


def _grouped(kernels: Iterable[Kernel], key: Callable[[Kernel], str]) -> dict[str, list[Kernel]]:
    groups: dict[str, list[Kernel]] = defaultdict(list)
    for kernel in kernels:
        groups[key(kernel)].append(kernel)
    return groups


@dataclass(frozen=True)
class Row:
    """One or more pairs of a function whose numbers are the same."""

    #: The kernel; without template arguments where there are several.
    title: str
    count: int
    #: By `COLUMNS`; None: that side has it not.
    base: Numbers | None
    patched: Numbers | None

    @property
    def changed(self) -> bool:
        """Whether any number differs."""
        return self.base != self.patched

    @property
    def badness(self) -> tuple[int, int, float]:
        """How much worse the patched side is: spills, wavefronts, instructions."""
        if self.base is None or self.patched is None:
            return (self._of(self.patched, "spills"), 0, 0.0)
        more = self._of(self.patched, "instructions") / max(1, self._of(self.base, "instructions"))
        return (
            self._of(self.patched, "spills") - self._of(self.base, "spills"),
            self._of(self.base, "occupancy") - self._of(self.patched, "occupancy"),
            more,
        )

    @staticmethod
    def _of(numbers: Numbers | None, column: str) -> int:
        return (numbers[COLUMNS.index(column)] or 0) if numbers is not None else 0

    def to_json(self) -> JsonValue:
        """Return it as the record keeps it."""
        return [
            self.title,
            self.count,
            list(self.base) if self.base is not None else None,
            list(self.patched) if self.patched is not None else None,
        ]

    @classmethod
    def from_json(cls, value: JsonValue) -> Self | None:
        """Read it from a record; None where that is no row."""
        if not isinstance(value, list) or len(value) != len(("title", "count", "base", "patched")):
            return None
        title, count, base, patched = value
        if not isinstance(title, str) or not isinstance(count, int):
            return None
        return cls(title, count, _numbers(base), _numbers(patched))


def _numbers(value: JsonValue) -> Numbers | None:
    if not isinstance(value, list) or len(value) != len(COLUMNS):
        return None
    return tuple(one if isinstance(one, int) else None for one in value)


def rows_of(pairs: Iterable[Pair]) -> list[Row]:
    """Return pairs as rows, the worst change first; equal ones of a function are one row."""
    merged: dict[tuple[str, Numbers | None, Numbers | None], Row] = {}
    for pair in pairs:
        one = pair.patched or pair.base
        if one is None:
            continue
        key = (one.function, _of_kernel(pair.base), _of_kernel(pair.patched))
        known = merged.get(key)
        if known is None:
            merged[key] = Row(one.title, 1, key[1], key[2])
        else:
            merged[key] = replace(known, title=f"{one.function}<…>", count=known.count + 1)
    return sorted(merged.values(), key=lambda row: (row.changed, *row.badness), reverse=True)


def _of_kernel(kernel: Kernel | None) -> Numbers | None:
    if kernel is None:
        return None
    return tuple(getattr(kernel, column) for column in COLUMNS)
