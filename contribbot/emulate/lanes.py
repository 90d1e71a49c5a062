"""Which lane reads which: tables for DPP and ds_swizzle, by the vendor's documents."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from contribbot.emulate.pseudocode import NotModelledError


def _table(lanes: int, source: Callable[[int, int, int], int | None]) -> list[int]:
    """Return for each lane its source, by its row's first lane and its place there; -1: none."""
    found = [source(lane, lane // 16 * 16, lane % 16) for lane in range(lanes)]
    return [place if place is not None and 0 <= place < lanes else -1 for place in found]


def dpp(control: int, lanes: int) -> list[int]:
    """Return the source of each lane under a DPP control; -1: it has none."""
    by = control & 15
    sources: dict[int, Callable[[int, int, int], int | None]] = {
        0x100: lambda _, row, place: row + place + by if place + by < 16 else None,
        0x110: lambda _, row, place: row + place - by if place >= by else None,
        0x120: lambda _, row, place: row + (place - by) % 16,
        0x130: lambda lane, *_: lane + 1,
        0x134: lambda lane, *_: (lane + 1) % lanes,
        0x138: lambda lane, *_: lane - 1,
        0x13C: lambda lane, *_: (lane - 1) % lanes,
        0x140: lambda _, row, place: row + 15 - place,
        0x141: lambda lane, *_: lane ^ 7,
        0x142: lambda _, row, __: row - 1,
        0x143: lambda lane, *_: 31 if lane >= 32 else None,
        0x150: lambda _, row, __: row + by,
        0x160: lambda _, row, place: row + (place ^ by),
    }
    if control < 0x100:
        return _table(lanes, lambda lane, *_: lane & ~3 | control >> lane % 4 * 2 & 3)
    known = sources.get(control if 0x130 <= control < 0x150 else control & ~15)
    if known is None:
        raise NotModelledError(f"the DPP control {control:#x}")
    return _table(lanes, known)


def dpp8(selected: Sequence[int], lanes: int) -> list[int]:
    """Return the source of each lane among its eight."""
    return _table(lanes, lambda lane, *_: lane & ~7 | selected[lane % 8])


def swizzle(offset: int, lanes: int) -> list[int]:
    """Return the source of each lane under the offset of a ds_swizzle."""

    def source(lane: int, *_: int) -> int:
        group, place = lane & ~31, lane % 32
        if offset & 0x8000 == 0:
            return group + (((place & offset) | (offset >> 5)) ^ (offset >> 10)) % 32
        if offset < 0xC000:  # four lanes
            return lane & ~3 | offset >> lane % 4 * 2 & 3
        if offset < 0xE000:  # rotate
            by, kept = offset >> 5 & 31, offset & 31
            moved = place - by if offset & 0x400 else place + by
            return group + ((place & kept) | (moved & 31 & ~kept))
        raise NotModelledError(f"the swizzle {offset:#x}")

    return _table(lanes, source)
