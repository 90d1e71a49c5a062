"""Judge a `[[compile]]` entry: the stated failure on the base, and claims about listings."""

from __future__ import annotations

import enum
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from contribbot.compile.cache import Compiled
from contribbot.compile.listing import KernelListing, Listing, by_class, function_of
from contribbot.model.checks import Compile
from contribbot.model.evidence import Outcome
from contribbot.model.record import (
    CompileDetails,
    CompileRecord,
    LeftOut,
    ListingRow,
    ListingTable,
    NamedCount,
    Numbers,
    ToolchainRecord,
    step_failures,
)

#: The largest number of rows for a target in a record; the worst rows are kept.
_ROWS: Final = 150
_NAMES: Final = 20


def pair_kernels(
    base: Sequence[KernelListing], patched: Sequence[KernelListing]
) -> list[ListingRow]:
    """Return a row for each pair of kernels of equal symbol, title or function, or lone kernel."""
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
    """Return the rows, the worst first; a function's rows with equal numbers become one row."""
    groups: dict[tuple[str, Numbers | None, Numbers | None], ListingRow] = {}
    for row in rows:
        function = function_of(row.title)
        key = (function, row.base, row.patched)
        if known := groups.get(key):
            title, number = f"{function}<…>", known.kernels + row.kernels
            groups[key] = known._replace(title=title, kernels=number)
        else:
            groups[key] = row
    return sorted(groups.values(), key=lambda row: (row.changed, *row.badness), reverse=True)


class ListingFault(enum.Enum):
    """The ways in which compiled code fails an entry, each with a message to format."""

    SIDE = "on the {}: {}"
    NEITHER_TREE = "compiles on neither tree: {}"
    BOTH_TREES = "on both trees: {}"
    BOTH_TREES_TITLES = "on both trees: {}; there are {}"
    NO_KERNEL = "no kernel in the listing"
    NO_MATCH = "no kernel whose name matches {!r} in the listing"
    NO_INSTRUCTION = "no {} in {} of {} kernels"
    MORE_THAN_PATCHED = "more instructions than on the patched tree"
    MORE = "{} has more instructions: {:,} -> {:,}"
    NOT_FEWER = "not fewer instructions: {:,} -> {:,}"
    NO_PARTNER = "{} is on the {} only: its instructions cannot be compared"
    BASE_WITHOUT_CODE = "no fewer instructions than on the base, which does not compile"
    EMPTIED = "{} does nothing on the patched tree, and does on the base"
    SPILLS = "{} spills {} registers on the patched tree, {} on the base"
    MAY_SPILL = "{} may spill in a function that is not inlined: {:,} -> {:,} bytes of scratch"
    UNREAL = (
        "calls {}, which this toolchain has not, "
        "so that registers and instructions are not real: install ROCm"
    )
    BASE_BROKEN = "does not compile on the base: {}"
    PATCHED_BROKEN = "does not compile on the patched tree: {}"
    NO_SOURCE = "shows nothing: on the base, {}"
    OTHER_REASON = "fails on the base for another reason than stated: {}"
    GREEN_BASE = "compiles on the base already, so the change shows nothing"
    GREEN_BASE_HOLDS = "compiles on the base and {} already, so the change shows nothing"
    AS_BASE = "by their figures they are kernels of the base"
    BY_DEFINE = "with {}, which the upstream's build may not define"


@dataclass(frozen=True)
class ListingProblem:
    """A fault of compiled code with the values for the fault's message."""

    fault: ListingFault
    facts: tuple[object, ...] = ()

    def __str__(self) -> str:
        """Return the message in one line, which a stated `reason` must match."""
        return self.fault.value.format(*self.facts)


def _problem(fault: ListingFault, *facts: object) -> ListingProblem:
    return ListingProblem(fault, facts)


@dataclass(frozen=True)
class ListingJudgement:
    """The judgement of an entry's compiles on the base and on the patched tree."""

    outcome: Outcome
    reason: str
    #: `red`: the fault of the base; `patched_fault`: the fault of the patched tree.
    red: str = ""
    patched_fault: str = ""
    #: Whether another compile would give the same judgement.
    lasting: bool = True
    proof: bool = True  # whether a change from red to green proves the patch without other entries


def matching_kernels(entry: Compile, listing: Listing | None) -> list[KernelListing]:
    """Return the kernels of a listing whose titles match an entry's `kernels`."""
    kernels = listing.kernels if listing is not None else ()
    return [kernel for kernel in kernels if re.search(entry.kernels, kernel.title)]


def _rows(entry: Compile, base: Compiled, patched: Compiled) -> list[ListingRow]:
    return pair_kernels(
        matching_kernels(entry, base.listing), matching_kernels(entry, patched.listing)
    )


def judge_compile(
    entry: Compile, target: str, base: Compiled, patched: Compiled
) -> ListingJudgement:
    """Return the judgement of a `[[compile]]` entry for one target."""
    sides = (("base", base), ("patched tree", patched))
    for name, side in sides:
        if side.crashed:
            crash = str(_problem(ListingFault.SIDE, name, side.crashed))
            return ListingJudgement(Outcome.FAILED, crash, lasting=False)
    if unable := _unable(entry, base, patched):
        return ListingJudgement(Outcome.UNAVAILABLE, str(unable), base.error)
    red = base.error or str(unmet(entry, target, base.listing) or "")
    rows = _rows(entry, base, patched)
    not_fewer = None
    if target in entry.fewer_instructions and base.listing and patched.listing:
        not_fewer = _not_fewer(rows, base.listing, patched.listing)
        if entry.expect == "fail-to-pass" and not red and not not_fewer:
            red = str(_problem(ListingFault.MORE_THAN_PATCHED))
    wrong = _wrong_on_base(entry, base, red, not_fewer or _green_base(entry, target))
    patched_fault = _wrong_on_patched(entry, target, base, patched, rows)
    if problem := wrong or patched_fault:
        return ListingJudgement(Outcome.FAILED, str(problem), red, str(patched_fault or ""))
    listings = [side.listing for side in (base, patched) if side.listing is not None]
    calls = [", ".join(listing.unresolved) for listing in listings if listing.unresolved]
    if calls and (entry.no_spills or target in entry.fewer_instructions):
        unreal = str(_problem(ListingFault.UNREAL, calls[0]))
        return ListingJudgement(Outcome.UNAVAILABLE, unreal, red)
    patched_fault = (_spilling(rows, listings[-1]) if entry.no_spills else None) or not_fewer
    if patched_fault:
        return ListingJudgement(Outcome.FAILED, str(patched_fault), red, str(patched_fault))
    reason = _seen(entry, rows, base, listings[-1])
    weakness = _weakness(entry, base, patched)
    if weakness:
        reason += f"; {weakness}: that proves nothing alone"
    return ListingJudgement(Outcome.PASSED, reason, red, proof=weakness is None)


def _unable(entry: Compile, base: Compiled, patched: Compiled) -> ListingProblem | None:
    """Return the problem of machine or entry that prevents a judgement; None: no problem."""
    # A fault of the patched tree is a fault even if the base cannot be compiled here.
    if base.missing and (patched.missing or not patched.error):
        return _problem(ListingFault.SIDE, "base", base.missing)
    if patched.missing:
        return _problem(ListingFault.SIDE, "patched tree", patched.missing)
    if not (base.error or patched.error):
        return _unmet_on_both(entry, base, patched)
    if base.error != patched.error or base.absent or _stated(entry, base.error):
        return None
    return _problem(ListingFault.NEITHER_TREE, base.error)


def _unmet_on_both(entry: Compile, base: Compiled, patched: Compiled) -> ListingProblem | None:
    """Return an expectation that neither tree meets, or None if the entry states the failure."""
    lack = unmet(entry, "", patched.listing)
    if not lack or not unmet(entry, "", base.listing) or _stated(entry, str(lack)):
        return None
    titles = [kernel.title for kernel in base.listing.kernels] if base.listing else []
    if not titles:
        return _problem(ListingFault.BOTH_TREES, lack)
    more = f" and {len(titles) - _NAMES} more" if len(titles) > _NAMES else ""
    return _problem(ListingFault.BOTH_TREES_TITLES, lack, ", ".join(titles[:_NAMES]) + more)


def _weakness(entry: Compile, base: Compiled, patched: Compiled) -> ListingProblem | None:
    """Return why an entry's change from red to green is no proof; None: the change is a proof."""
    if entry.expect != "fail-to-pass":
        return None
    if base.listing is not None:
        before = [(kernel.numbers, kernel.mnemonics) for kernel in base.listing.kernels]
        after = matching_kernels(entry, patched.listing)
        if all((kernel.numbers, kernel.mnemonics) in before for kernel in after):
            return _problem(ListingFault.AS_BASE)
    if entry.defines:
        return _problem(ListingFault.BY_DEFINE, ", ".join(entry.defines))
    return None


def _stated(entry: Compile, red: str) -> bool:
    """Return whether the `reason` of a fail-to-pass entry matches the base's failure `red`."""
    return entry.expect == "fail-to-pass" and bool(re.search(entry.reason, red))


def _wrong_on_base(
    entry: Compile, base: Compiled, red: str, green: ListingProblem
) -> ListingProblem | None:
    if entry.expect == "pass-to-pass":
        # A source that the patch adds has nothing to pass on the base.
        broken = base.error and not base.absent
        return _problem(ListingFault.BASE_BROKEN, base.error) if broken else None
    if base.absent:
        return _problem(ListingFault.NO_SOURCE, base.error)
    if not red:
        return green
    return None if _stated(entry, red) else _problem(ListingFault.OTHER_REASON, red)


def _green_base(entry: Compile, target: str) -> ListingProblem:
    found = [f"holds {name}" for name in entry.instructions.get(target, ())]
    if not found and entry.kernels:
        found = [f"has kernels that match {entry.kernels!r}"]
    if not found:
        return _problem(ListingFault.GREEN_BASE)
    return _problem(ListingFault.GREEN_BASE_HOLDS, ", ".join(found))


def unmet(entry: Compile, target: str, listing: Listing | None) -> ListingProblem | None:
    """Return the first expectation of an entry that a listing does not meet, or None."""
    kernels = matching_kernels(entry, listing)
    if not kernels:
        if not entry.kernels:
            return _problem(ListingFault.NO_KERNEL)
        return _problem(ListingFault.NO_MATCH, entry.kernels)
    # A kernel that does nothing on this target needs no such instruction.
    working = [kernel for kernel in kernels if kernel.works]
    for name in entry.instructions.get(target, ()):
        without = [kernel for kernel in working if name not in kernel.mnemonics]
        if without or not working:
            return _problem(ListingFault.NO_INSTRUCTION, name, len(without), len(working))
    return None


def _wrong_on_patched(
    entry: Compile, target: str, base: Compiled, patched: Compiled, rows: Sequence[ListingRow]
) -> ListingProblem | None:
    if patched.error:
        return _problem(ListingFault.PATCHED_BROKEN, patched.error)
    if lack := unmet(entry, target, patched.listing):
        return _problem(ListingFault.SIDE, "patched tree", lack)
    if target in entry.fewer_instructions and base.listing is None:
        return _problem(ListingFault.BASE_WITHOUT_CODE)
    if target in {*entry.instructions, *entry.fewer_instructions}:
        # A kernel that lost all its work does not count as a kernel with fewer instructions.
        for row in rows:
            if row.emptied:
                return _problem(ListingFault.EMPTIED, row.title)
    return None


def _spilling(rows: Sequence[ListingRow], patched: Listing) -> ListingProblem | None:
    """Return a problem for the first kernel that spills, or may spill, more than on the base."""
    for row in rows:
        before, after = (
            (side.spills, side.scratch) if side else (0, 0) for side in (row.base, row.patched)
        )
        if after[0] > before[0]:
            return _problem(ListingFault.SPILLS, row.title, after[0], before[0])
        # A called function uses the kernel's scratch memory, and its spills are not known.
        if patched.functions and after[1] > before[1]:
            return _problem(ListingFault.MAY_SPILL, row.title, before[1], after[1])
    return None


def _not_fewer(
    rows: Sequence[ListingRow], base: Listing, patched: Listing
) -> ListingProblem | None:
    """Return the first problem with the claim of fewer instructions; None: the claim is true."""
    # Functions that are not inlined count, too, as kernels call them.
    before, after = sum(base.functions.values()), sum(patched.functions.values())
    for row in rows:
        if row.base is None or row.patched is None:
            side = "base" if row.patched is None else "patched tree"
            return _problem(ListingFault.NO_PARTNER, row.title, side)
        old, new = row.base.instructions, row.patched.instructions
        if new > old:
            return _problem(ListingFault.MORE, row.title, old, new)
        before += old
        after += new
    return None if after < before else _problem(ListingFault.NOT_FEWER, before, after)


_Counted = Sequence[tuple[int, Numbers]]


def _seen(entry: Compile, rows: Sequence[ListingRow], base: Compiled, listing: Listing) -> str:
    """Return a passed entry's sentence on its kernels, instructions, registers and spills."""
    before: _Counted = [(row.kernels, row.base) for row in rows if row.base is not None]
    after: _Counted = [(row.kernels, row.patched) for row in rows if row.patched is not None]
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
    emptied = sum(row.kernels for row in rows if row.emptied)
    totals = (
        f"{sum(count * numbers.instructions for count, numbers in side):,}" if side else ""
        for side in (before, after)
    )
    spills = [sum(count * numbers.spills for count, numbers in side) for side in (before, after)]
    parts = [
        f"{f'{fewer} -> ' if fewer > kernels else ''}{of} kernel{'s' if listed != 1 else ''}",
        *([f"{emptied} of them now empty"] if emptied else []),
        f"instructions {_change(*totals)}",
        f"VGPRs {_change(_vgprs(before), _vgprs(after))}",
        f"spills {_change(*map(str, spills))}" if any(spills) else "no spills",
        *([f"with calls to {', '.join(unresolved)}, not there"] if unresolved else []),
    ]
    return f"{how}; {', '.join(parts)}"


def _vgprs(side: _Counted) -> str:
    values = sorted({numbers.vgprs for _, numbers in side})
    return "..".join(map(str, dict.fromkeys((*values[:1], *values[-1:]))))


def _change(before: str, after: str) -> str:
    return after if before in {"", after} else f"{before} -> {after}"


def details_of(
    entry: Compile,
    target: str,
    base: Compiled,
    patched: Compiled,
    judgement: ListingJudgement,
    *,
    toolchain: ToolchainRecord,
) -> CompileDetails:
    """Return the record of a `[[compile]]` entry for one target."""
    red = judgement.red if entry.expect == "fail-to-pass" else base.error
    patched_fault = judgement.patched_fault or patched.error
    rows = merged(_rows(entry, base, patched))
    left_out = rows[_ROWS:]
    changed = sum(row.kernels for row in left_out if row.changed)
    unchanged = sum(row.kernels for row in left_out) - changed
    return CompileDetails(
        kind=entry.kind,
        source=entry.source,
        expect=entry.expect,
        stated_reason=entry.reason,
        command=patched.command or base.command,
        base=_side(entry, target, base, base.crashed or base.missing or red),
        patched=_side(entry, target, patched, patched.crashed or patched.missing or patched_fault),
        table=ListingTable(
            rows=tuple(rows[:_ROWS]), left_out=LeftOut(changed=changed, unchanged=unchanged)
        ),
        toolchain=toolchain,
    )


def _side(entry: Compile, target: str, side: Compiled, wrong: str) -> CompileRecord:
    name, listing = f"{entry.name} [{target}]", side.listing
    record = CompileRecord(
        passed=() if wrong else (name,),
        failed=step_failures(name, "compile", [wrong] if wrong else []),
        seconds=round(side.seconds, 3),
        remembered=side.cached,
        absent=side.absent,
    )
    if listing is None:
        return record
    kernels = matching_kernels(entry, listing)
    figures = {
        "log_sha256": side.log,
        "kernels": len(kernels),
        "listed": len(listing.kernels),
        "instructions": sum(kernel.numbers.instructions for kernel in kernels),
        "classes": by_class(kernels),
        "named": {
            mnemonic: NamedCount(
                kernels=sum(mnemonic in kernel.mnemonics for kernel in kernels),
                times=sum(kernel.mnemonics.get(mnemonic, 0) for kernel in kernels),
            )
            for mnemonic in entry.instructions.get(target, ())
        },
        "not_inlined": dict([*listing.functions.items()][:_NAMES]),
        "unresolved": listing.unresolved[:_NAMES],
    }
    return record.model_copy(update=figures)


#: For each number of a kernel: a title, and 1 if more is worse, or -1 if less is worse.
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
    """Return a line for each figure, such as spills, that got worse, with the largest change."""
    pairs = [
        (row.kernels, row.base, row.patched)
        for row in rows
        # A kernel that is empty on the base cannot be compared.
        if row.base and row.patched and row.base.instructions > 1
    ]
    losses = []
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
            losses.append(
                f"{title} {old:,} → {new:,}{most} in {kernels} kernel{'s'[: kernels - 1]}"
            )
    return tuple(losses)
