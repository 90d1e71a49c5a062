"""Judging a compile: red for the stated reason on the base, and what the listings must show."""

from __future__ import annotations

import contextlib
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from pydantic import BaseModel, JsonValue, ValidationError

from contribbot.hardware.build_cache import Compiled
from contribbot.hardware.listing import KernelListing, Listing, Numbers, by_class, function_of
from contribbot.model.checks import Compile
from contribbot.model.evidence import Outcome

#: Rows that a record keeps of one target; the worst come first.
_ROWS: Final = 150
_NAMES: Final = 20
#: What clang says of a name that is not declared, where HIP or its libraries may declare it.
_HIP_NAME: Final = re.compile(
    r"(?:undeclared identifier|unknown type name) '(__\w+|hip\w+)'",
    re.IGNORECASE,
)
COLUMNS: Final = Numbers._fields


@dataclass(frozen=True)
class ListingRow:
    """Kernels of a function whose numbers are the same; a record keeps it as a list."""

    title: str  # the kernel; without template arguments where there are several
    count: int
    base: Numbers | None  # None: that side has it not
    patched: Numbers | None

    @property
    def changed(self) -> bool:
        """Whether any number differs."""
        return self.base != self.patched

    @property
    def emptied(self) -> bool:
        """Whether they do something on the base, and nothing but end on the patched tree."""
        if self.base is None or self.patched is None:
            return False
        return self.base.instructions > 1 >= self.patched.instructions

    @property
    def badness(self) -> tuple[int, int, float]:
        """How much worse the patched side is: spills, wavefronts, instructions."""
        before, after = self.base, self.patched
        if before is None or after is None:
            return (after.spills if after else 0, 0, 0.0)
        return (
            after.spills - before.spills,
            (before.occupancy or 0) - (after.occupancy or 0),
            after.instructions / max(1, before.instructions),
        )

    def to_json(self) -> JsonValue:
        """Return it as the record keeps it."""
        base: JsonValue = [*self.base] if self.base else None
        patched: JsonValue = [*self.patched] if self.patched else None
        return [self.title, self.count, base, patched]


class _Table(BaseModel):
    """What a record has of the rows of an entry and a target."""

    columns: list[str]
    rows: list[tuple[str, int, Numbers | None, Numbers | None]]
    left_out: dict[str, int] = {}


def pair_kernels(
    base: Sequence[KernelListing], patched: Sequence[KernelListing]
) -> list[ListingRow]:
    """Pair the kernels of two trees: by symbol, else by title, else by function in order."""
    rows: list[ListingRow] = []
    left, right = list(base), list(patched)
    keys: tuple[Callable[[KernelListing], str], ...] = (
        lambda kernel: kernel.symbol,
        lambda kernel: kernel.title,
        lambda kernel: function_of(kernel.title),
    )
    for key in keys:
        before, after = _grouped(left, key), _grouped(right, key)
        same = {name for name in before if len(before[name]) == len(after.get(name, ()))}
        rows += [
            ListingRow(new.title, 1, old.numbers, new.numbers)
            for name in same
            for old, new in zip(before[name], after[name], strict=True)
        ]
        left, right = (
            [kernel for kernel in kernels if key(kernel) not in same] for kernels in (left, right)
        )
    rows += [ListingRow(kernel.title, 1, kernel.numbers, None) for kernel in left]
    rows += [ListingRow(kernel.title, 1, None, kernel.numbers) for kernel in right]
    return sorted(rows, key=lambda row: row.title)


def _grouped(
    kernels: Iterable[KernelListing], key: Callable[[KernelListing], str]
) -> dict[str, list[KernelListing]]:
    groups: dict[str, list[KernelListing]] = defaultdict(list)
    for kernel in kernels:
        groups[key(kernel)].append(kernel)
    return groups


def merged(rows: Iterable[ListingRow]) -> list[ListingRow]:
    """Return equal rows of a function as one, the worst change first."""
    groups: dict[tuple[str, Numbers | None, Numbers | None], ListingRow] = {}
    for row in rows:
        function = function_of(row.title)
        key = (function, row.base, row.patched)
        if known := groups.get(key):
            groups[key] = replace(known, title=f"{function}<…>", count=known.count + row.count)
        else:
            groups[key] = row
    return sorted(groups.values(), key=lambda row: (row.changed, *row.badness), reverse=True)


@dataclass(frozen=True)
class ListingJudgement:
    """What two compiles come to."""

    outcome: Outcome
    reason: str
    #: How the base fails, and what is wrong on the patched tree.
    red: str = ""
    amiss: str = ""
    #: Whether the same would be seen again.
    lasting: bool = True


def counted(entry: Compile, listing: Listing | None) -> list[KernelListing]:
    """Return the kernels of a listing that an entry is about."""
    kernels = listing.kernels if listing is not None else ()
    return [kernel for kernel in kernels if re.search(entry.kernels, kernel.title)]


def _rows(entry: Compile, base: Compiled, patched: Compiled) -> list[ListingRow]:
    return pair_kernels(counted(entry, base.listing), counted(entry, patched.listing))


def judge_compile(
    entry: Compile, target: str, base: Compiled, patched: Compiled
) -> ListingJudgement:
    """Judge an entry for one target."""
    sides = (("base", base), ("patched tree", patched))
    crashes = [f"on the {name}: {side.crashed}" for name, side in sides if side.crashed]
    if crashes:
        return ListingJudgement(Outcome.FAILED, crashes[0], lasting=False)
    # What is wrong on the patched tree stays wrong, whatever lacks on the base.
    unable = [
        f"on the {name}: {side.missing}"
        for name, side in sides
        if side.missing and (patched.missing or not patched.error)
    ]
    if base.error == patched.error != "" and not (base.absent or _stated(entry, base.error)):
        # Not the patch's doing: the recipe, or the entry, lacks what the source is compiled with.
        unable.append(f"compiles on neither tree: {base.error}{_of_stand_ins(base)}")
    lacking = "" if base.error or patched.error else unmet(entry, "", patched.listing)
    if lacking and unmet(entry, "", base.listing) and not _stated(entry, lacking):
        unable.append(f"on both trees: {lacking}{_titles(base.listing)}")
    if unable:
        return ListingJudgement(Outcome.UNAVAILABLE, unable[0], base.error)
    red = base.error or unmet(entry, target, base.listing)
    rows = _rows(entry, base, patched)
    not_fewer = ""
    if target in entry.fewer_instructions and base.listing and patched.listing:
        not_fewer = _not_fewer(rows, base.listing, patched.listing)
        if entry.expect == "fail-to-pass" and not red and not not_fewer:
            red = "more instructions than on the patched tree"
    wrong = _wrong_on_base(entry, base, red, not_fewer or _green_base(entry, target))
    amiss = _wrong_on_patched(entry, target, base, patched, rows)
    if wrong or amiss:
        return ListingJudgement(Outcome.FAILED, wrong or amiss, red, amiss)
    listings = [side.listing for side in (base, patched) if side.listing is not None]
    calls = [", ".join(listing.unresolved) for listing in listings if listing.unresolved]
    if calls and (entry.no_spills or target in entry.fewer_instructions):
        unreal = (
            f"calls {calls[0]}, which this toolchain has not, "
            "so that registers and instructions are not real: install ROCm"
        )
        return ListingJudgement(Outcome.UNAVAILABLE, unreal, red)
    amiss = _spilling(rows, listings[-1]) if entry.no_spills else ""
    amiss = amiss or not_fewer
    if amiss:
        return ListingJudgement(Outcome.FAILED, amiss, red, amiss)
    reason = _seen(entry, rows, base, patched, listings[-1])
    return ListingJudgement(Outcome.PASSED, reason, red)


def _as_base(entry: Compile, base: Compiled, patched: Compiled) -> bool:
    """Say whether what a patch turns green has figures and instructions of kernels of the base."""
    if entry.expect != "fail-to-pass" or base.listing is None:
        return False
    before = [(kernel.numbers, kernel.mnemonics) for kernel in base.listing.kernels]
    after = counted(entry, patched.listing)
    return all((kernel.numbers, kernel.mnemonics) in before for kernel in after)


def _of_stand_ins(side: Compiled) -> str:
    """Say that a name which is not declared may be one of HIP's that the stand-ins lack."""
    name = _HIP_NAME.search(side.error)
    if name is None or "<stand-ins>/rocm" not in side.command:
        return ""
    return f" (contribbot's stand-ins may lack {name[1]}, which HIP's own headers have: use ROCm)"


def _stated(entry: Compile, red: str) -> bool:
    """Say whether the base was to fail like this."""
    return entry.expect == "fail-to-pass" and bool(re.search(entry.reason, red))


def _wrong_on_base(entry: Compile, base: Compiled, red: str, green: str) -> str:
    if entry.expect == "pass-to-pass":
        # A source that the patch adds has nothing to pass on the base.
        broken = base.error and not base.absent
        return f"does not compile on the base: {base.error}" if broken else ""
    if base.absent:
        return f"shows nothing: on the base, {base.error}"
    if not red:
        return green
    if not _stated(entry, red):
        return f"fails on the base for another reason than stated: {red}"
    return ""


def _green_base(entry: Compile, target: str) -> str:
    held = [f"holds {name}" for name in entry.instructions.get(target, ())]
    if not held and entry.kernels:
        held = [f"has kernels that match {entry.kernels!r}"]
    what = f" and {', '.join(held)}" if held else ""
    return f"compiles on the base{what} already, so the change shows nothing"


def _titles(listing: Listing | None) -> str:
    """Say which kernels a listing has."""
    titles = [kernel.title for kernel in listing.kernels] if listing else []
    more = f" and {len(titles) - _NAMES} more" if len(titles) > _NAMES else ""
    return f"; there are {', '.join(titles[:_NAMES])}{more}" if titles else ""


def unmet(entry: Compile, target: str, listing: Listing | None) -> str:
    """Say which expectation a listing does not meet, or nothing."""
    kernels = counted(entry, listing)
    if not kernels:
        about = f" whose name matches {entry.kernels!r}" if entry.kernels else ""
        return f"no kernel{about} in the listing"
    # A kernel that does nothing on this target needs no instruction but its end.
    working = [kernel for kernel in kernels if kernel.works]
    for mnemonic in entry.instructions.get(target, ()):
        without = [kernel for kernel in working if mnemonic not in kernel.mnemonics]
        if without or not working:
            return f"no {mnemonic} in {len(without)} of {len(working)} kernels"
    return ""


def _wrong_on_patched(
    entry: Compile, target: str, base: Compiled, patched: Compiled, rows: Sequence[ListingRow]
) -> str:
    if patched.error:
        return f"does not compile on the patched tree: {patched.error}"
    if lacking := unmet(entry, target, patched.listing):
        return f"on the patched tree: {lacking}"
    if target in entry.fewer_instructions and base.listing is None:
        return "no fewer instructions than on the base, which does not compile"
    if target in {*entry.instructions, *entry.fewer_instructions}:
        # What a kernel holds is no claim any more where its work is gone.
        for row in rows:
            if row.emptied:
                return f"{row.title} does nothing on the patched tree, and does on the base"
    return ""


def _spilling(rows: Sequence[ListingRow], patched: Listing) -> str:
    """Say that a kernel spills more than it did, or may; or nothing."""
    for row in rows:
        before, after = (
            (side.spills, side.scratch) if side else (0, 0) for side in (row.base, row.patched)
        )
        if after[0] > before[0]:
            spilled = f"{after[0]} registers on the patched tree, {before[0]} on the base"
            return f"{row.title} spills {spilled}"
        # What a kernel calls shares its scratch, and its spills stand nowhere.
        if patched.functions and after[1] > before[1]:
            return (
                f"{row.title} may spill in a function that is not inlined: "
                f"{before[1]:,} -> {after[1]:,} bytes of scratch"
            )
    return ""


def _not_fewer(rows: Sequence[ListingRow], base: Listing, patched: Listing) -> str:
    """Say what is wrong with the claim of fewer instructions, or nothing."""
    # What is not inlined is part of the kernels that call it.
    before, after = sum(base.functions.values()), sum(patched.functions.values())
    for row in rows:
        if row.base is None or row.patched is None:
            side = "base" if row.patched is None else "patched tree"
            return f"{row.title} is on the {side} only: its instructions cannot be compared"
        old, new = row.base.instructions, row.patched.instructions
        if new > old:
            return f"{row.title} has more instructions: {old:,} -> {new:,}"
        before += old
        after += new
    return "" if after < before else f"not fewer instructions: {before:,} -> {after:,}"


_Counted = Sequence[tuple[int, Numbers]]


def _seen(
    entry: Compile, rows: Sequence[ListingRow], base: Compiled, patched: Compiled, listing: Listing
) -> str:
    """Say what was seen, for a pass, with the patched tree's listing."""
    before: _Counted = [(row.count, row.base) for row in rows if row.base is not None]
    after: _Counted = [(row.count, row.patched) for row in rows if row.patched is not None]
    how = "compiles on the patched tree, new there" if base.absent else "compiles on both"
    if entry.expect == "fail-to-pass":
        how = "fails on the base as stated, " + (
            "compiles on the patched tree"
            if base.absent or base.error
            else "as expected on the patched tree"
        )
    fewer, kernels = sum(count for count, _ in before), sum(count for count, _ in after)
    listed, unresolved = len(listing.kernels), listing.unresolved[:_NAMES]
    of = f"{kernels} of {listed}" if kernels < listed else f"{listed}"
    emptied = sum(row.count for row in rows if row.emptied)
    spills = [sum(count * numbers.spills for count, numbers in side) for side in (before, after)]
    parts = [
        f"{f'{fewer} -> ' if fewer > kernels else ''}{of} kernel{'s' if listed != 1 else ''}",
        *([f"{emptied} of them now empty"] if emptied else []),
        f"instructions {_change(_instructions(before), _instructions(after))}",
        f"VGPRs {_change(_vgprs(before), _vgprs(after))}",
        f"spills {_change(*map(str, spills))}" if any(spills) else "no spills",
        *([f"with calls to {', '.join(unresolved)}, not there"] if unresolved else []),
    ]
    alone = ""
    if _as_base(entry, base, patched):
        alone = "; by their figures they are kernels of the base, which proves nothing alone"
    if entry.expect == "fail-to-pass" and entry.defines:
        alone += f"; with {', '.join(entry.defines)}, which the upstream's build may not define"
    return f"{how}; {', '.join(parts)}{alone}"


def _instructions(side: _Counted) -> str:
    total = sum(count * numbers.instructions for count, numbers in side)
    return f"{total:,}" if side else ""


def _vgprs(side: _Counted) -> str:
    values = sorted({numbers.vgprs for _, numbers in side})
    return "..".join(map(str, dict.fromkeys((*values[:1], *values[-1:]))))


def _change(before: str, after: str) -> str:
    return after if before in {"", after} else f"{before} -> {after}"


def details_of(
    entry: Compile, target: str, base: Compiled, patched: Compiled, judgement: ListingJudgement
) -> dict[str, JsonValue]:
    """Return what the record keeps of an entry for one target."""
    red = judgement.red if entry.expect == "fail-to-pass" else base.error
    amiss = judgement.amiss or patched.error
    rows = merged(_rows(entry, base, patched))
    left_out = rows[_ROWS:]
    changed = sum(row.count for row in left_out if row.changed)
    return {
        "kind": entry.kind,
        "source": entry.source,
        "expect": entry.expect,
        "stated_reason": entry.reason,
        **({"as_base": True} if _as_base(entry, base, patched) else {}),
        "command": patched.command or base.command,
        "base": _side(entry, target, base, base.crashed or base.missing or red),
        "patched": _side(entry, target, patched, patched.crashed or patched.missing or amiss),
        "table": {
            "columns": [*COLUMNS],
            "rows": [row.to_json() for row in rows[:_ROWS]],
            "left_out": {
                "changed": changed,
                "unchanged": sum(row.count for row in left_out) - changed,
            },
        },
    }


def _table_in(details: Mapping[str, JsonValue]) -> _Table:
    """Return the table of a record; an empty one where it has none of this kind."""
    with contextlib.suppress(ValidationError):
        table = _Table.model_validate(details.get("table"))
        if table.columns == [*COLUMNS]:
            return table
    return _Table(columns=[], rows=[])


def rows_in(details: Mapping[str, JsonValue]) -> list[ListingRow]:
    """Return the rows of a record's table."""
    return [ListingRow(*cells) for cells in _table_in(details).rows]


def left_out_of(details: Mapping[str, JsonValue]) -> tuple[int, int]:
    """Return how many changed and unchanged kernels a record's table leaves out."""
    left_out = _table_in(details).left_out
    return left_out.get("changed", 0), left_out.get("unchanged", 0)


def _side(entry: Compile, target: str, side: Compiled, wrong: str) -> dict[str, JsonValue]:
    name, listing = f"{entry.name} [{target}]", side.listing
    failure: dict[str, JsonValue] = {"test": name, "when": "compile", "message": wrong}
    details: dict[str, JsonValue] = {
        "failed": [failure] if wrong else [],
        "passed": [] if wrong else [name],
        "seconds": round(side.seconds, 3),
        "remembered": side.cached,
        **({"absent": True} if side.absent else {}),
    }
    if listing is None:
        return details
    kernels = counted(entry, listing)
    return details | {
        **({"log_sha256": side.log} if side.log else {}),
        "kernels": len(kernels),
        "listed": len(listing.kernels),
        "instructions": sum(kernel.numbers.instructions for kernel in kernels),
        "classes": {**by_class(kernels)},
        "named": {
            mnemonic: {
                "kernels": sum(mnemonic in kernel.mnemonics for kernel in kernels),
                "times": sum(kernel.mnemonics.get(mnemonic, 0) for kernel in kernels),
            }
            for mnemonic in entry.instructions.get(target, ())
        },
        "not_inlined": dict([*listing.functions.items()][:_NAMES]),
        "unresolved": [*listing.unresolved[:_NAMES]],
    }


#: Numbers of a kernel: their title, and 1 where more is worse.
_WORSE: Final = {
    "vgprs": ("VGPRs", 1),
    "sgprs": ("SGPRs", 1),
    "lds": ("LDS", 1),
    "spills": ("spills", 1),
    "scratch": ("scratch", 1),
    "occupancy": ("waves", -1),
    "instructions": ("instructions", 1),
}


def worse_in(rows: Sequence[ListingRow]) -> tuple[str, ...]:
    """Say which numbers of kernels got worse: in how many kernels, and the most."""
    pairs = [
        (row.count, row.base, row.patched)
        for row in rows
        # What was empty on the base has no numbers to lose.
        if row.base and row.patched and row.base.instructions > 1
    ]
    said = []
    for column, (title, sign) in _WORSE.items():
        found = [
            (sign * (new - old), old, new, count)
            for count, base, patched in pairs
            for old, new in [(getattr(base, column), getattr(patched, column))]
            if None not in {old, new} and sign * (new - old) > 0
        ]
        if found:
            _, old, new, _ = max(found)
            kernels = sum(count for *_, count in found)
            most = " at most" if len(found) > 1 else ""
            said.append(f"{title} {old:,} → {new:,}{most} in {kernels} kernel{'s'[: kernels - 1]}")
    return tuple(said)
