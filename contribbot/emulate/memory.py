"""Memory as kernels see it: buffers with guarded ends, LDS and scratch.

Every access is checked against the buffer that its address lies in. Buffers lie far from
each other, so that an index which runs out of one does not end in another.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeVar

import numpy as np
from numpy.typing import NDArray

from contribbot.emulate.arithmetic import U8, U32, U64, Array, Bools
from contribbot.emulate.errors import Fault

#: Address bits within a buffer: 64 GiB apart.
_APART: Final = 36
_PAD: Final = 64
_Number = TypeVar("_Number", bound=np.generic)
#: A fault at an instruction's offset.
Fail = Callable[[int, Fault, str], Exception]


@dataclass
class Buffer:
    """Bytes that a kernel may reach, and what people call them."""

    name: str
    size: int
    data: U8  # padded
    base: int = 0
    writable: bool = True
    #: Which bytes anybody wrote; None: all.
    written: Bools | None = None
    changed: bool = False

    @classmethod
    def of(cls, name: str, content: U8, *, writable: bool = True, written: bool = True) -> Buffer:
        """Return a buffer that holds a copy."""
        data = np.zeros(-(-content.size // _PAD) * _PAD + _PAD, np.uint8)
        data[: content.size] = content
        marks = None if written else np.zeros(data.size, np.bool_)
        return cls(name, content.size, data, 0, writable, marks)


def reached(places: NDArray[_Number], mask: Bools | None) -> NDArray[_Number]:
    """Return the places of active lanes; a place, or the mask, may stand for a whole wave."""
    if mask is None:
        return places
    places, mask = np.broadcast_arrays(places, mask)
    return places[mask]


@dataclass
class Memory:
    """Global memory: buffers by address."""

    fail: Fail
    buffers: dict[int, Buffer] = field(default_factory=dict)

    def add(self, buffer: Buffer, place: int | None = None) -> int:
        """Place a buffer, and return its address."""
        key = len(self.buffers) + 16 if place is None else place >> _APART
        buffer.base = key << _APART if place is None else place
        self.buffers[key] = buffer
        return buffer.base

    def parts(
        self, at: int, mask: Bools | None, address: U64, size: int
    ) -> list[tuple[Buffer, Bools | None, NDArray[np.int64]]]:
        """Return the buffers that lanes reach, which lanes, and their offsets; check all."""
        active = reached(address, mask)
        if not active.size:
            return []
        low, high = int(active.min()), int(active.max())
        if low >> _APART == high >> _APART:
            buffer = self._at(at, low, size)
            if high + size > buffer.base + buffer.size or low < buffer.base:
                raise self._outside(at, buffer, low if low < buffer.base else high, size)
            offsets = (address - np.uint64(buffer.base)).view(np.int64)
            return [(buffer, mask, offsets if mask is None else np.where(mask, offsets, 0))]
        parts = []
        keys = address >> np.uint64(_APART)
        for key in np.unique(active >> np.uint64(_APART)):
            chosen = keys == key
            parts += self.parts(at, chosen if mask is None else chosen & mask, address, size)
        return parts

    def _at(self, at: int, address: int, size: int) -> Buffer:
        buffer = self.buffers.get(address >> _APART)
        if buffer is None:
            raise self.fail(
                at, "out of bounds", f"{size} bytes at {address:#x}, where nothing lies"
            )
        return buffer

    def _outside(self, at: int, buffer: Buffer, address: int, size: int) -> Exception:
        offset = address - buffer.base
        beyond = (
            f"{offset + size - buffer.size} bytes past its end"
            if offset >= 0
            else f"{-offset} bytes before its start"
        )
        return self.fail(
            at,
            "out of bounds",
            f"{size} bytes at offset {offset} of {buffer.name} ({buffer.size} bytes), {beyond}",
        )


def gather(data: U8, offsets: NDArray[np.int64], size: int, *, extends: bool) -> list[U32]:
    """Return the words at offsets; a byte or half is extended to a word."""
    if size == 1:
        narrow: Array = data[offsets]
    elif size == 2:
        narrow = (
            data.view(np.uint16)[offsets >> 1]
            if not (offsets & 1).any()
            else _unaligned(data, offsets, 2)
        )
    else:
        if not (offsets & 3).any():
            words, first = data.view(np.uint32), offsets >> 2
            return [words[first + place] if place else words[first] for place in range(size // 4)]
        return [_unaligned(data, offsets + 4 * place, 4) for place in range(size // 4)]
    if extends:
        return [narrow.view(f"i{size}").astype(np.int32).view(np.uint32)]
    return [narrow.astype(np.uint32)]


def _unaligned(data: U8, offsets: NDArray[np.int64], size: int) -> U32:
    total = sum(
        data[offsets + place].astype(np.uint32) << np.uint32(8 * place) for place in range(size)
    )
    return np.asarray(total, f"u{size}")


def scatter(
    data: U8, mask: Bools | None, offsets: NDArray[np.int64], size: int, words: Sequence[U32]
) -> None:
    """Write words at offsets; of lanes that write to the same place, the last one wins."""
    shape = np.broadcast_shapes(
        offsets.shape, *(word.shape for word in words), (1,) if mask is None else mask.shape
    )
    offsets = np.broadcast_to(offsets, shape)
    lanes = None if mask is None else np.broadcast_to(mask, shape)
    places = offsets.ravel() if lanes is None else offsets[lanes]
    for number, word in enumerate(words):
        full = np.broadcast_to(word, shape)
        values = full.ravel() if lanes is None else full[lanes]
        if size == 1:
            data[places] = values.astype(np.uint8)
        elif size == 2:
            if (places & 1).any():
                for byte in range(2):
                    data[places + byte] = (values >> np.uint32(8 * byte)).astype(np.uint8)
            else:
                data.view(np.uint16)[places >> 1] = values.astype(np.uint16)
        elif (places & 3).any():
            for byte in range(4):
                data[places + 4 * number + byte] = (values >> np.uint32(8 * byte)).astype(np.uint8)
        else:
            data.view(np.uint32)[(places >> 2) + number] = values


@dataclass
class Shared:
    """The LDS of the workgroups that run together, with who touched which byte since a barrier."""

    fail: Fail
    size: int  # bytes of one workgroup
    data: U8
    written: Bools
    #: The last barrier's number and the wave, of the last write and the last read of each byte.
    writer: NDArray[np.int64]
    reader: NDArray[np.int64]

    @classmethod
    def of(cls, fail: Fail, groups: int, size: int) -> Shared:
        """Return LDS that nobody wrote."""
        stride = -(-size // _PAD) * _PAD + _PAD
        total = groups * stride
        marks = [np.full(total, -1, np.int64) for _ in range(2)]
        return cls(fail, size, np.zeros(total, np.uint8), np.zeros(total, np.bool_), *marks)

    @property
    def stride(self) -> int:
        """Bytes from one workgroup's LDS to the next one's."""
        return -(-self.size // _PAD) * _PAD + _PAD

    def touch(
        self,
        at: int,
        offsets: NDArray[np.int64],
        size: int,
        stamp: NDArray[np.int64],
        *,
        writes: bool,
    ) -> None:
        """Check an access against those of other waves since the last barrier, and note it.

        A stamp is the barrier's number times 64, plus the wave's number in its workgroup; a byte
        that several waves read is noted with 63.
        """
        for byte in range(size):
            place = offsets + byte
            last = self.writer[place]
            clash = (last >> 6 == stamp >> 6) & (last != stamp)
            if writes:
                read = self.reader[place]
                clash |= (read >> 6 == stamp >> 6) & (read != stamp)
            elif not self.written[place].all():
                where = int(place[~self.written[place]][0]) % self.stride
                raise self.fail(at, "unwritten", f"byte {where} of LDS, which no wave wrote")
            if clash.any():
                first = int(np.flatnonzero(clash)[0])
                other = (
                    last
                    if last[first] >> 6 == stamp[first] >> 6 and last[first] != stamp[first]
                    else read
                )
                what = "wrote" if other is last else "read"
                wave = int(other[first]) & 63
                who = "other waves" if wave == 63 else f"wave {wave}"
                raise self.fail(
                    at, "race",
                    f"wave {int(stamp[first]) & 63} {'writes' if writes else 'reads'} byte "
                    f"{int(place[first]) % self.stride} of LDS, which {who} {what} "
                    "since the last barrier",
                )  # fmt: skip
            if writes:
                self.writer[place] = stamp
                self.written[place] = True
            else:
                before = self.reader[place]
                several = (before >> 6 == stamp >> 6) & (before != stamp)
                self.reader[place] = np.where(several, stamp | 63, stamp)
