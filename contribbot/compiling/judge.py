"""Judging a compile: red for the stated reason on the base, and what the listings must show."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from contribbot.compiling.cache import Compiled
from contribbot.compiling.listing import Kernel, Listing
from contribbot.compiling.pairs import Pair, pair_kernels
from contribbot.model.outcome import Outcome
from contribbot.model.proofs import Compile


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
    """Say what was seen, for a pass."""
    before, after = counted(entry, base.listing), counted(entry, patched.listing)
    how = "compiles on the patched tree, new there" if base.absent else "compiles on both"
    if entry.expect == "fail-to-pass":
        how = "fails on the base as stated, " + (
            "compiles on the patched tree" if base.error else "as expected on the patched tree"
        )
    total = len(patched.listing.kernels) if patched.listing is not None else 0
    some = f"{len(after)} of {total}" if len(after) < total else f"{total}"
    fewer = f"{len(before)} -> " if len(before) > len(after) else ""
    emptied = sum(pair.emptied for pair in _pairs(entry, base.listing, patched.listing))
    parts = [
        f"{fewer}{some} kernel{'s' if total != 1 else ''}",
        *([f"{emptied} of them now empty"] if emptied else []),
        f"instructions {_change(*(_sum(side) for side in (before, after)))}",
        f"VGPRs {_change(*(_range(side) for side in (before, after)))}",
        f"spills {_change(*(_spills(side) for side in (before, after)))}"
        if any(one.spills for one in (*before, *after))
        else "no spills",
    ]
    if patched.listing is not None and patched.listing.unresolved:
        parts.append(f"with calls to {', '.join(patched.listing.unresolved)}, not there")
    return f"{how}; {', '.join(parts)}"


def _sum(kernels: Sequence[Kernel]) -> str:
    return f"{sum(one.instructions for one in kernels):,}" if kernels else ""


def _spills(kernels: Sequence[Kernel]) -> str:
    return str(sum(one.spills for one in kernels))


def _range(kernels: Sequence[Kernel]) -> str:
    if not kernels:
        return ""
    values = sorted({one.vgprs for one in kernels})
    return f"{values[0]}..{values[-1]}" if len(values) > 1 else f"{values[0]}"


def _change(before: str, after: str) -> str:
    return after if before in {"", after} else f"{before} -> {after}"
