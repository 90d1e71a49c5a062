"""Judging a compile: red for the stated reason on the base, and what the listings must show."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Final, Self

from pydantic import JsonValue

from contribbot.hardware.build_cache import Compiled
from contribbot.hardware.listing import Kernel, Listing, by_class
from contribbot.model.checks import Compile
from contribbot.model.evidence import Outcome

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
    def emptied(self) -> bool:
        """Whether they do something on the base, and nothing but end on the patched tree."""
        both = self.base is not None and self.patched is not None
        return both and self._of(self.base, "instructions") > 1 >= self._of(
            self.patched, "instructions"
        )

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


@dataclass(frozen=True)
class Judgement:
    """What two compiles come to."""

    outcome: Outcome
    reason: str
    #: How the base fails, and what is wrong on the patched tree.
    red: str = ""
    amiss: str = ""
    #: Whether the same would be seen again.
    lasting: bool = True


def counted(entry: Compile, listing: Listing | None) -> tuple[Kernel, ...]:
    """Return the kernels of a listing that an entry is about."""
    if listing is None:
        return ()
    return tuple(one for one in listing.kernels if re.search(entry.kernels, one.title))


def judge_compile(entry: Compile, target: str, base: Compiled, patched: Compiled) -> Judgement:
    """Judge an entry for one target."""
    if obstacle := _obstacle(base, patched):
        return obstacle
    red = base.error or unmet(entry, target, base.listing)
    if entry.expect == "pass-to-pass":
        # A source that the patch adds has nothing to pass on the base.
        broken = base.error and not base.absent
        wrong = f"does not compile on the base: {base.error}" if broken else ""
    elif base.absent:
        wrong = f"shows nothing: on the base, {base.error}"
    elif not red:
        wrong = "compiles on the base, so it shows nothing"
    elif not re.search(entry.reason, red):
        wrong = f"fails on the base for another reason than stated: {red}"
    else:
        wrong = ""
    amiss = _wrong_on_patched(entry, target, base, patched)
    if wrong or amiss:
        return Judgement(Outcome.FAILED, wrong or amiss, red, amiss)
    if unreal := _unreal(entry, target, base, patched):
        return Judgement(Outcome.UNAVAILABLE, unreal, red)
    amiss = _numbers_wrong(entry, target, base.listing, patched.listing)
    if amiss:
        return Judgement(Outcome.FAILED, amiss, red, amiss)
    return Judgement(Outcome.PASSED, _seen(entry, base, patched), red)


def _obstacle(base: Compiled, patched: Compiled) -> Judgement | None:
    """Return the judgement where a compiler or this machine, not the source, is at fault."""
    sides = (("base", base), ("patched tree", patched))
    for side, one in sides:
        if one.crashed:
            return Judgement(Outcome.FAILED, f"on the {side}: {one.crashed}", lasting=False)
    for side, one in sides:
        # What is wrong on the patched tree stays wrong, whatever lacks on the base.
        if one.missing and (patched.missing or not patched.error):
            return Judgement(Outcome.UNAVAILABLE, f"on the {side}: {one.missing}")
    return None


def unmet(entry: Compile, target: str, listing: Listing | None) -> str:
    """Say which expectation a listing does not meet, or nothing."""
    kernels = counted(entry, listing)
    if not kernels:
        about = f" whose name matches {entry.kernels!r}" if entry.kernels else ""
        return f"no kernel{about} in the listing"
    # A kernel that does nothing on this target needs no instruction but its end.
    working = [one for one in kernels if one.works]
    for mnemonic in entry.instructions.get(target, ()):
        without = [one for one in working if mnemonic not in one.mnemonics]
        if without or not working:
            return f"no {mnemonic} in {len(without)} of {len(working)} kernels"
    return ""


def _wrong_on_patched(entry: Compile, target: str, base: Compiled, patched: Compiled) -> str:
    if patched.error:
        return f"does not compile on the patched tree: {patched.error}"
    if lacking := unmet(entry, target, patched.listing):
        return f"on the patched tree: {lacking}"
    if target in entry.fewer_instructions and base.listing is None:
        return "no fewer instructions than on the base, which does not compile"
    if target in {*entry.instructions, *entry.fewer_instructions}:
        # What a kernel holds is no claim any more where its work is gone.
        for pair in _pairs(entry, base.listing, patched.listing):
            if pair.emptied:
                return f"{pair.title} does nothing on the patched tree, and does on the base"
    return ""


def _pairs(entry: Compile, base: Listing | None, patched: Listing | None) -> list[Pair]:
    return pair_kernels(counted(entry, base), counted(entry, patched))


def _unreal(entry: Compile, target: str, base: Compiled, patched: Compiled) -> str:
    """Say why the numbers that are to be compared are not those of the real thing."""
    if not entry.no_spills and target not in entry.fewer_instructions:
        return ""
    for listing in (base.listing, patched.listing):
        if listing is not None and listing.unresolved:
            return (
                f"calls {', '.join(listing.unresolved)}, which this toolchain has not, "
                "so that registers and instructions are not real: install ROCm"
            )
    return ""


def _numbers_wrong(
    entry: Compile, target: str, base: Listing | None, patched: Listing | None
) -> str:
    pairs = _pairs(entry, base, patched)
    if entry.no_spills:
        calls = patched is not None and bool(patched.functions)
        for pair in pairs:
            if wrong := _spilling(pair, calls=calls):
                return wrong
    if target in entry.fewer_instructions and base is not None and patched is not None:
        return _not_fewer(pairs, base, patched)
    return ""


def _spilling(pair: Pair, *, calls: bool) -> str:
    """Say that a kernel spills more than it did, or may; or nothing."""
    before, after = (
        (one.spills, one.scratch) if one is not None else (0, 0)
        for one in (pair.base, pair.patched)
    )
    if after[0] > before[0]:
        return (
            f"{pair.title} spills {after[0]} registers on the patched tree, {before[0]} on the base"
        )
    if calls and after[1] > before[1]:
        # What a kernel calls shares its scratch, and its spills stand nowhere.
        return (
            f"{pair.title} may spill in a function that is not inlined: "
            f"{before[1]:,} -> {after[1]:,} bytes of scratch"
        )
    return ""


def _not_fewer(pairs: Sequence[Pair], base: Listing, patched: Listing) -> str:
    """Say what is wrong with the claim of fewer instructions, or nothing."""
    # What is not inlined is part of the kernels that call it.
    before, after = sum(base.functions.values()), sum(patched.functions.values())
    for pair in pairs:
        if pair.base is None or pair.patched is None:
            side = "base" if pair.patched is None else "patched tree"
            return f"{pair.title} is on the {side} only: its instructions cannot be compared"
        if pair.patched.instructions > pair.base.instructions:
            return (
                f"{pair.title} has more instructions: "
                f"{pair.base.instructions:,} -> {pair.patched.instructions:,}"
            )
        before += pair.base.instructions
        after += pair.patched.instructions
    return "" if after < before else f"not fewer instructions: {before:,} -> {after:,}"


def _seen(entry: Compile, base: Compiled, patched: Compiled) -> str:
    rows = rows_of(_pairs(entry, base.listing, patched.listing))
    listed = len(patched.listing.kernels) if patched.listing is not None else 0
    lacks = patched.listing.unresolved[:_NAMES] if patched.listing is not None else ()
    how = "absent" if base.absent else "error" if base.error else ""
    return seen(entry, rows, on_base=how, listed=listed, unresolved=lacks)


def seen(
    entry: Compile, rows: Sequence[Row], *, on_base: str, listed: int, unresolved: Sequence[str]
) -> str:
    """Say what was seen, for a pass; `on_base`: `absent`, `error`, or nothing where it compiles."""
    before, after = (
        [(row.count, side) for row in rows if (side := getattr(row, name)) is not None]
        for name in ("base", "patched")
    )
    how = "compiles on the patched tree, new there" if on_base == "absent" else "compiles on both"
    if entry.expect == "fail-to-pass":
        how = "fails on the base as stated, " + (
            "compiles on the patched tree" if on_base else "as expected on the patched tree"
        )
    some, kernels = sum(count for count, _ in before), sum(count for count, _ in after)
    of = f"{kernels} of {listed}" if kernels < listed else f"{listed}"
    emptied = sum(row.count for row in rows if row.emptied)
    parts = [
        f"{f'{some} -> ' if some > kernels else ''}{of} kernel{'s' if listed != 1 else ''}",
        *([f"{emptied} of them now empty"] if emptied else []),
        f"instructions {_change(*(_instructions(one) for one in (before, after)))}",
        f"VGPRs {_change(*(_range(one) for one in (before, after)))}",
        f"spills {_change(*(f'{_sum(one, _SPILLS)}' for one in (before, after)))}"
        if _sum(before, _SPILLS) or _sum(after, _SPILLS)
        else "no spills",
    ]
    if unresolved:
        parts.append(f"with calls to {', '.join(unresolved)}, not there")
    return f"{how}; {', '.join(parts)}"


_Counted = Sequence[tuple[int, Numbers]]
_VGPRS, _SPILLS, _CODE = map(COLUMNS.index, ("vgprs", "spills", "instructions"))


def _sum(kernels: _Counted, column: int) -> int:
    return sum(count * (numbers[column] or 0) for count, numbers in kernels)


def _instructions(kernels: _Counted) -> str:
    return f"{_sum(kernels, _CODE):,}" if kernels else ""


def _range(kernels: _Counted) -> str:
    values = sorted({numbers[_VGPRS] or 0 for _, numbers in kernels})
    return "..".join(map(str, dict.fromkeys((*values[:1], *values[-1:]))))


def _change(before: str, after: str) -> str:
    return after if before in {"", after} else f"{before} -> {after}"


#: Rows that a record keeps of one target; the worst come first.
_ROWS: Final = 150
_NAMES: Final = 20


def details_of(
    entry: Compile, target: str, base: Compiled, patched: Compiled, judgement: Judgement
) -> dict[str, JsonValue]:
    """Return what the record keeps of an entry for one target."""
    name = f"{entry.name} [{target}]"
    red = judgement.red if entry.expect == "fail-to-pass" else base.error
    amiss = judgement.amiss or patched.error
    rows = rows_of(pair_kernels(counted(entry, base.listing), counted(entry, patched.listing)))
    shown = rows[:_ROWS]
    return {
        "kind": entry.kind,
        "source": entry.source,
        "expect": entry.expect,
        "stated_reason": entry.reason,
        "command": patched.command or base.command,
        "base": _side(entry, target, base, name, base.crashed or base.missing or red),
        "patched": _side(entry, target, patched, name, patched.crashed or patched.missing or amiss),
        "table": {
            "columns": list(COLUMNS),
            "rows": [row.to_json() for row in shown],
            "left_out": {
                "changed": sum(row.count for row in rows[_ROWS:] if row.changed),
                "unchanged": sum(row.count for row in rows[_ROWS:] if not row.changed),
            },
        },
    }


def rows_in(details: dict[str, JsonValue]) -> list[Row]:
    """Return the rows of a record's table; none where it has no table of this kind."""
    table = details.get("table")
    if not isinstance(table, dict) or table.get("columns") != list(COLUMNS):
        return []
    rows = table.get("rows")
    found = map(Row.from_json, rows if isinstance(rows, list) else [])
    return [row for row in found if row is not None]


def left_out_of(details: dict[str, JsonValue]) -> tuple[int, int]:
    """Return how many changed and unchanged kernels a record's table leaves out."""
    table = details.get("table")
    told = table.get("left_out") if isinstance(table, dict) else None
    counts = [told.get(name) if isinstance(told, dict) else 0 for name in ("changed", "unchanged")]
    changed, unchanged = (one if isinstance(one, int) else 0 for one in counts)
    return changed, unchanged


def _side(
    entry: Compile, target: str, side: Compiled, name: str, wrong: str
) -> dict[str, JsonValue]:
    kernels = counted(entry, side.listing)
    failure: dict[str, JsonValue] = {"test": name, "when": "compile", "message": wrong}
    told: dict[str, JsonValue] = {
        "failed": [failure] if wrong else [],
        "passed": [] if wrong else [name],
        "seconds": round(side.seconds, 3),
        "remembered": side.cached,
        **({"absent": True} if side.absent else {}),
    }
    if side.listing is None:
        return told
    named = {
        mnemonic: {
            "kernels": sum(mnemonic in one.mnemonics for one in kernels),
            "times": sum(one.mnemonics.get(mnemonic, 0) for one in kernels),
        }
        for mnemonic in entry.instructions.get(target, ())
    }
    return told | {
        "kernels": len(kernels),
        "listed": len(side.listing.kernels),
        "instructions": sum(one.instructions for one in kernels),
        "classes": {**by_class(kernels)},
        "named": {mnemonic: {**counts} for mnemonic, counts in named.items()},
        "not_inlined": dict(list(side.listing.functions.items())[:_NAMES]),
        "unresolved": _some(side.listing.unresolved),
    }


def _some(names: Sequence[str]) -> list[JsonValue]:
    return list(names[:_NAMES])
