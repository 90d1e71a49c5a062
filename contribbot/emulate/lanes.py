"""Which lane reads which: tables for DPP and ds_swizzle, by the vendor's documents."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from contribbot.emulate.pseudocode import NotModelledError

Table = tuple[NDArray[np.intp], NDArray[np.bool_]]
_ROW = 16


def _table(lanes: int, source: Callable[[int], int | None]) -> Table:
    found = [source(lane) for lane in range(lanes)]
    valid = np.array([place is not None and 0 <= place < lanes for place in found])
    return np.array(
        [place if ok else 0 for place, ok in zip(found, valid, strict=True)], np.intp
    ), valid


def dpp_table(control: int, lanes: int) -> Table:
    """Return the source of each lane under a DPP control, and whether it has one."""
    by = control & 15

    def source(lane: int) -> int | None:  # one case for each kind
        row, place = lane // _ROW * _ROW, lane % _ROW
        match control:
            case _ if control < 0x100:
                return lane // 4 * 4 + (control >> (lane % 4 * 2) & 3)
            case _ if 0x101 <= control <= 0x10F:
                return row + place + by if place + by < _ROW else None
            case _ if 0x111 <= control <= 0x11F:
                return row + place - by if place >= by else None
            case _ if 0x121 <= control <= 0x12F:
                return row + (place - by) % _ROW
            case 0x130:
                return lane + 1 if lane + 1 < lanes else None
            case 0x134:
                return (lane + 1) % lanes
            case 0x138:
                return lane - 1 if lane else None
            case 0x13C:
                return (lane - 1) % lanes
            case 0x140:
                return row + 15 - place
            case 0x141:
                return row + place // 8 * 8 + 7 - place % 8
            case 0x142:
                return row - 1 if row else None
            case 0x143:
                return 31 if lane >= 32 else None
            case _ if 0x150 <= control <= 0x15F:
                return row + by
            case _ if 0x160 <= control <= 0x16F:
                return row + (place ^ by)
        raise NotModelledError(f"the DPP control {control:#x}")

    return _table(lanes, source)


def dpp8_table(selected: Sequence[int], lanes: int) -> Table:
    """Return the source of each lane among its eight."""
    return _table(lanes, lambda lane: lane // 8 * 8 + selected[lane % 8])


def swizzle_table(offset: int, lanes: int) -> Table:
    """Return the source of each lane under the offset of a ds_swizzle."""

    def source(lane: int) -> int | None:
        group, place = lane // 32 * 32, lane % 32
        if offset & 0x8000 == 0:
            return group + (((place & offset) | (offset >> 5)) ^ (offset >> 10)) % 32
        if offset < 0xC000:  # four lanes
            return lane // 4 * 4 + (offset >> (lane % 4 * 2) & 3)
        if offset < 0xE000:  # rotate
            by, mask = offset >> 5 & 31, offset & 31
            moved = place - by if offset & 0x400 else place + by
            return group + ((place & mask) | (moved & 31 & ~mask))
        raise NotModelledError(f"the swizzle {offset:#x}")

    return _table(lanes, source)


def lanes_below(lanes: int) -> tuple[NDArray[np.uint32], NDArray[np.uint32]]:
    """Return for each lane the mask of those before it, in two words."""
    masks = np.array([(1 << lane) - 1 for lane in range(lanes)], np.uint64)[None, :]
    return masks.astype(np.uint32), (masks >> np.uint64(32)).astype(np.uint32)
