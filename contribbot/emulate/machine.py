"""Waves of workgroups that run together, and what an instruction asks of more than one lane.

All waves at the same place go on together; of several places, the lowest is first, so that
waves that parted meet again.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

import numpy as np
from numpy.typing import NDArray

from contribbot.emulate.arithmetic import U32, U64, Array, Bools
from contribbot.emulate.errors import Fault, KernelError, UnmodelledError
from contribbot.emulate.lanes import swizzle_table
from contribbot.emulate.memory import Buffer, Memory, Shared, gather, reached, scatter
from contribbot.emulate.memory_ops import CODE, PRIVATE_WINDOW, SHARED_WINDOW
from contribbot.errors import ContribbotError

if TYPE_CHECKING:
    from contribbot.emulate.matrix import Multiplier, Shape
    from contribbot.emulate.program import Program

_REGISTERS: Final = 512
_SCALARS: Final = 256
_EXEC: Final = 126
_SCC: Final = 253
_ZERO: Final = np.zeros((1, 1), np.uint32)
#: Blocks that one group of waves may run before it counts as endless.
_LONGEST: Final = 2_000_000


def put(mask: Bools | None, new: U32, old: U32) -> U32:
    """Return the new value in active lanes, and the old one elsewhere."""
    return new if mask is None else np.where(mask, new, old)


def within(mask: Bools | None, lanes: Bools) -> Bools:
    """Return those of some lanes that are active."""
    return lanes if mask is None else lanes & mask


def join(low_word: U32, high_word: U32) -> U64:
    """Return 64 bits of two words."""
    return low_word.astype(np.uint64) | (high_word.astype(np.uint64) << np.uint64(32))


def low(wide: U64) -> U32:
    """Return the lower word."""
    return wide.astype(np.uint32)


def high(wide: U64) -> U32:
    """Return the higher word."""
    return (wide >> np.uint64(32)).astype(np.uint32)


class Executor:
    """The waves of some workgroups, and their memory."""

    def __init__(
        self, program: Program, memory: Memory, groups: int, waves: int, shared: int
    ) -> None:
        self.program = program
        self.memory = memory
        self.lanes_of_wave = program.mode.lanes
        self.waves = groups * waves
        self.group = np.repeat(np.arange(groups), waves)
        self.wave = np.tile(np.arange(waves), groups)
        self.vector: list[Array] = [_ZERO] * _REGISTERS
        self.scalar: list[Array] = [_ZERO] * _SCALARS
        self.scalar[_SCC] = np.zeros((1, 1), np.bool_)
        self.shared = Shared.of(self.fail, groups, shared)
        self.private = program.kernel.descriptor.private_segment
        self._scratch = Buffer.of(
            "scratch",
            np.zeros(self.waves * self.lanes_of_wave * self.private, np.uint8),
            written=False,
        )
        self._epoch = np.zeros(groups, np.int64)
        self._waits = False
        #: Which waves the block runs on: their numbers; None: all.
        self._rows: NDArray[np.intp] | None = None
        self.lane_instructions = 0
        self.ran = set[int]()  # where the blocks begin that ran

    def fail(self, at: int, fault: Fault, message: str) -> Exception:
        """Return the error for a fault of the kernel."""
        return KernelError(fault, message, self.program.place(at))

    def unmodelled(self, at: int, message: str) -> None:
        """End the run: what stands there is not modelled."""
        raise UnmodelledError(f"not modelled: {message}", self.program.place(at))

    # Execution

    def run(self) -> None:
        """Run all waves to their end."""
        places = np.full(self.waves, self.program.kernel.descriptor.entry, np.int64)
        waiting = np.zeros(self.waves, np.bool_)
        with np.errstate(all="ignore"):
            for _ in range(_LONGEST):
                ready = (places >= 0) & ~waiting
                if not ready.any():
                    if not waiting.any():
                        return
                    waiting[:] = False  # all that live have come to a barrier
                    self._epoch += 1
                    continue
                start = int(places[ready].min())
                here = ready & (places == start)
                self._rows = None if here.all() else np.flatnonzero(here)
                self._waits = False
                try:
                    following = self._step(start)
                except ContribbotError:
                    raise
                except Exception as error:
                    raise self.program.own_fault(start, error) from error
                places[here] = following
                if self._waits:
                    waiting[here] = True
                    self._release(places, waiting)
        raise self.fail(start, "endless", f"it still runs after {_LONGEST} blocks")

    def _release(self, places: NDArray[np.int64], waiting: Bools) -> None:
        """Let the waves of each workgroup go on that have all come to a barrier."""
        missing = np.zeros(self._epoch.size, np.bool_)
        missing[self.group[(places >= 0) & ~waiting]] = True
        free = waiting & ~missing[self.group]
        waiting[free] = False
        self._epoch[np.unique(self.group[free])] += 1

    def _step(self, start: int) -> NDArray[np.int64]:
        block = self.program.block(start)
        self.ran.add(start)
        rows = self._rows
        count = self.waves if rows is None else rows.size
        self.lane_instructions += len(block.instructions) * count * self.lanes_of_wave
        if rows is None:
            following = block.run(self, self.vector, self.scalar)
        else:
            vector, scalar = dict[int, Array](), dict[int, Array]()
            files: dict[str, tuple[list[Array], dict[int, Array]]]
            files = {"v": (self.vector, vector), "s": (self.scalar, scalar)}
            for file, number in block.touched:
                whole, part = files[file]
                part[number] = whole[number] if whole[number].shape[0] == 1 else whole[number][rows]
            following = block.run(self, vector, scalar)
            for file, number in block.written:
                whole, part = files[file]
                self._merge(whole, number, part[number], rows)
        return np.broadcast_to(np.asarray(following, np.int64).ravel(), (count,))

    def _merge(
        self, registers: list[Array], number: int, part: Array, rows: NDArray[np.intp]
    ) -> None:
        old = registers[number]
        width = max(old.shape[1], part.shape[1])
        merged = np.broadcast_to(old, (self.waves, width)).copy()
        merged[rows] = part
        registers[number] = merged

    @property
    def _count(self) -> int:
        return self.waves if self._rows is None else self._rows.size

    def wait(self, following: int) -> int:
        """Have the waves wait for the rest of their workgroups."""
        self._waits = True
        return following

    def jump(self, address: U64) -> NDArray[np.int64]:
        """Return the place in the image of an address."""
        return (np.broadcast_to(address, (self._count, 1)) - np.uint64(CODE)).astype(np.int64)

    # Masks

    def lanes(self, low_word: U32, high_word: U32) -> Bools | None:
        """Return the active lanes, or None if all are."""
        mask = self.bits(low_word, high_word)
        return None if mask.all() else mask

    def bits(self, low_word: U32, high_word: U32) -> Bools:
        """Return the lanes whose bits are set."""
        if self.lanes_of_wave == 64:
            low_word, high_word = np.broadcast_arrays(low_word, high_word)
            words = np.concatenate([low_word, high_word], axis=1)
        else:
            words = np.ascontiguousarray(low_word)
        return np.unpackbits(words.view(np.uint8), axis=1, bitorder="little").view(np.bool_)

    def pack(self, mask: Bools) -> tuple[U32, U32]:
        """Return the bits of lanes, in two words."""
        full = np.broadcast_to(mask, (mask.shape[0], self.lanes_of_wave))
        words = np.packbits(full, axis=1, bitorder="little").view(np.uint32)
        return words[:, :1], words[:, 1:]

    @staticmethod
    def zero(*words: U32) -> Bools:
        """Say for each wave whether all bits are 0."""
        total = words[0]
        for word in words[1:]:
            total = total | word
        empty: Bools = total == 0
        return empty

    # Lanes

    def _full(self, x: U32) -> U32:
        return np.broadcast_to(x, (self._count, self.lanes_of_wave))

    def first(self, x: U32, mask: Bools | None) -> U32:
        """Return the first active lane's value of each wave."""
        if x.shape[1] == 1:
            return x
        if mask is None:
            return x[:, :1]
        lane = np.broadcast_to(mask, (self._count, self.lanes_of_wave)).argmax(axis=1)[:, None]
        return np.take_along_axis(self._full(x), lane, axis=1)

    def read_lane(self, x: U32, lane: U32) -> U32:
        """Return one lane's value of each wave."""
        places = np.broadcast_to(lane, (self._count, 1)).astype(np.intp) % self.lanes_of_wave
        return np.take_along_axis(self._full(x), places, axis=1)

    def write_lane(self, old: U32, new: U32, lane: U32) -> U32:
        """Return a register with one lane changed, active or not."""
        lanes = np.arange(self.lanes_of_wave)[None, :]
        return np.where(lanes == lane.astype(np.int64) % self.lanes_of_wave, new, old)

    def _active(self, mask: Bools | None) -> Bools:
        shape = (self._count, self.lanes_of_wave)
        return np.ones(shape, np.bool_) if mask is None else np.broadcast_to(mask, shape)

    def dpp(
        self, mask: Bools | None, x: U32, source: NDArray[np.intp], valid: Bools,
        fetch: bool, zero: bool, banks: tuple[int, int],
    ) -> tuple[U32, Bools | None]:  # fmt: skip
        """Return what lanes read from others, and which lanes are written."""
        moved = self._full(x)[:, source]
        usable = (
            valid[None, :]
            if fetch or mask is None
            else valid[None, :] & self._active(mask)[:, source]
        )
        lanes = np.arange(self.lanes_of_wave)
        writes = ((banks[0] >> lanes // 16 % 4 & 1) & (banks[1] >> lanes // 4 % 4 & 1)).astype(
            np.bool_
        )[None, :]
        if zero:
            moved = np.where(usable, moved, np.uint32(0))
        elif not usable.all():
            writes = writes & usable
        if writes.all():
            return moved, mask
        return moved, writes if mask is None else writes & mask

    def _shuffled(self, mask: Bools | None, x: U32, lane: NDArray[np.intp]) -> U32:
        """Return what lanes read from others; a lane that is not active gives 0."""
        lane = np.broadcast_to(lane, (self._count, self.lanes_of_wave))
        full = self._full(x)
        if mask is not None:
            full = np.where(mask, full, np.uint32(0))
        return np.take_along_axis(full, lane, axis=1)

    def gather(self, mask: Bools | None, address: U32, data: U32, offset: int) -> U32:
        """Return ds_bpermute: each lane reads the lane that its address names."""
        lane = ((address + np.uint32(offset)) >> np.uint32(2)) & np.uint32(self.lanes_of_wave - 1)
        return self._shuffled(mask, data, lane.astype(np.intp))

    def scatter(self, mask: Bools | None, address: U32, data: U32, offset: int) -> U32:
        """Return ds_permute: each lane writes the lane that its address names."""
        active = self._active(mask)
        lane = ((self._full(address) + np.uint32(offset)) >> np.uint32(2)) & np.uint32(
            self.lanes_of_wave - 1
        )
        result = np.zeros((self._count, self.lanes_of_wave), np.uint32)
        wave, place = np.nonzero(active)
        result[wave, lane[wave, place]] = self._full(data)[wave, place]
        return result

    def swizzle(self, mask: Bools | None, x: U32, offset: int) -> U32:
        """Return ds_swizzle."""
        source, _ = swizzle_table(offset, self.lanes_of_wave)
        return self._shuffled(mask, x, source[None, :])

    def turn(self, x: U32, by: int) -> U32:
        """Return each lane's value from `by` lanes further."""
        return np.roll(self._full(x), by, axis=1)

    def swap(self, first: U32, second: U32, size: int) -> tuple[U32, U32]:
        """Return two registers after they exchange odd blocks of the first, even of the second."""
        odd = (np.arange(self.lanes_of_wave) // size % 2).astype(np.bool_)[None, :]
        left, right = self._full(first), self._full(second)
        return np.where(odd, np.roll(right, size, axis=1), left), np.where(
            odd, right, np.roll(left, -size, axis=1)
        )

    def matrix(self, multiply: Multiplier, shape: Shape, *operands: Sequence[U32]) -> list[U32]:
        """Return the registers of a matrix product."""
        a, b, c = ([self._full(register) for register in registers] for registers in operands)
        return multiply(shape, a, b, c)

    def transposed(self, at: int, mask: Bools | None, words: Sequence[U32], bits: int) -> list[U32]:
        """Return what ds_read_b64_tr leaves: the columns of what 16 lanes read as rows of 16."""
        if mask is not None:
            self.unmodelled(at, "a transposing load that not all lanes take part in")
        full = np.stack([self._full(word) for word in words], axis=2)
        each = 64 // bits  # elements of a lane
        rows = full.view(f"u{bits // 8}").reshape(self._count, -1, each, 16)
        turned = np.ascontiguousarray(rows.swapaxes(2, 3)).reshape(self._count, -1, each)
        pair = turned.view(np.uint32)
        return [pair[:, :, 0], pair[:, :, 1]]

    def permlane(
        self,
        mask: Bools | None,
        x: U32,
        low_sel: U32,
        high_sel: U32,
        old: U32,
        other: bool,
        fetch: bool,
        zero: bool,
    ) -> U32:
        """Return what lanes read within rows of 16, or from the row beside (`other`)."""
        lanes = np.arange(self.lanes_of_wave)
        selected = join(low_sel, high_sel)
        place = (selected >> (lanes % 16 * 4).astype(np.uint64)[None, :]) & np.uint64(15)
        row = lanes // 16 ^ 1 if other else lanes // 16
        source = np.broadcast_to(
            row[None, :] * 16 + place.astype(np.intp), (self._count, self.lanes_of_wave)
        )
        moved = np.take_along_axis(self._full(x), source, axis=1)
        if fetch or mask is None:
            return moved
        usable = np.take_along_axis(self._active(mask), source, axis=1)
        return np.where(usable, moved, np.uint32(0) if zero else old)

    # Memory

    def load(
        self, at: int, mask: Bools | None, address: U64, size: int, extends: bool, space: str
    ) -> list[U32]:
        """Return the words that lanes read."""
        words = max(1, size // 4)
        if space in {"shared", "scratch"} or (space == "flat" and self._windowed(mask, address)):
            return self._near(at, mask, address, size, None, extends, space)
        result: list[U32] | None = None
        if space == "scalar":
            address = address & np.uint64(2**64 - 4)
        for buffer, lanes, offsets in self.memory.parts(at, mask, address, size):
            self._aligned(at, lanes, offsets, size)
            if buffer.written is not None:
                self._known(at, buffer, lanes, offsets, size)
            found = gather(buffer.data, offsets, size, extends=extends)
            if result is not None and lanes is not None:
                found = [np.where(lanes, *pair) for pair in zip(found, result, strict=True)]
            result = found
        return result or [_ZERO] * words

    def store(
        self, at: int, mask: Bools | None, address: U64, size: int, words: Sequence[U32], space: str
    ) -> None:
        """Write words of lanes."""
        if space in {"shared", "scratch"} or (space == "flat" and self._windowed(mask, address)):
            self._near(at, mask, address, size, words, False, space)
            return
        address = np.broadcast_to(address, (self._count, self.lanes_of_wave))
        for buffer, lanes, offsets in self.memory.parts(at, mask, address, size):
            if not buffer.writable:
                raise self.fail(
                    at, "out of bounds", f"a write to {buffer.name}, which may only be read"
                )
            self._aligned(at, lanes, offsets, size)
            buffer.changed = True
            scatter(buffer.data, lanes, offsets, size, words)
            if buffer.written is not None:
                places = reached(offsets, lanes)
                for byte in range(size):
                    buffer.written[places + byte] = True

    def _aligned(self, at: int, mask: Bools | None, offsets: NDArray[np.int64], size: int) -> None:
        """Check that words lie at multiples of 4 bytes, and halves at even ones."""
        unit = min(size, 4) - 1
        if unit and (offsets & unit).any():
            active = reached(offsets, mask)
            odd = active[(active & unit) != 0]
            if odd.size:
                raise self.fail(
                    at,
                    "misaligned",
                    f"{size} bytes at offset {int(odd[0])}, no multiple of {unit + 1}",
                )

    def _known(
        self, at: int, buffer: Buffer, mask: Bools | None, offsets: NDArray[np.int64], size: int
    ) -> None:
        marks = buffer.written
        places = reached(offsets, mask)
        for byte in range(size):
            if marks is not None and not marks[places + byte].all():
                first = places[~marks[places + byte]].ravel()[0]
                raise self.fail(
                    at,
                    "unwritten",
                    f"byte {int(first) + byte} of {buffer.name}, which nobody wrote",
                )

    @staticmethod
    def _windowed(mask: Bools | None, address: U64) -> bool:
        """Say whether flat addresses lie in the windows of LDS and scratch."""
        active = reached(address, mask)
        return bool(active.size) and int(active.max()) >= SHARED_WINDOW

    def _near(
        self, at: int, mask: Bools | None, address: U64, size: int,
        words: Sequence[U32] | None, extends: bool, space: str,
    ) -> list[U32]:  # fmt: skip
        """Read or write LDS or scratch."""
        shape = (self._count, self.lanes_of_wave)
        address = np.broadcast_to(address, shape)
        active = self._active(mask)
        if not active.any():
            return [_ZERO] * max(1, size // 4)
        if space == "flat":
            window = int(address[active].min()) // SHARED_WINDOW
            if not (address[active] // np.uint64(SHARED_WINDOW) == window).all() or window not in {
                1,
                2,
            }:
                raise UnmodelledError(
                    "not modelled: flat addresses of several memories at once",
                    self.program.place(at),
                )
            space = "shared" if window * SHARED_WINDOW == SHARED_WINDOW else "scratch"
            address = address - np.uint64(PRIVATE_WINDOW if space == "scratch" else SHARED_WINDOW)
        elif space == "scratch":
            address = address & np.uint64(0xFFFFFFFF)
        limit = self.shared.size if space == "shared" else self.private
        places = np.where(active, address, np.uint64(0)).astype(np.int64)
        if int(places.max()) + size > limit:
            name = "LDS" if space == "shared" else "scratch"
            raise self.fail(
                at,
                "out of bounds",
                f"{size} bytes at offset {int(places.max())} of {name} ({limit} bytes)",
            )
        self._aligned(at, active, places, size)
        rows = np.arange(self.waves) if self._rows is None else self._rows
        if space == "shared":
            offsets = places + (self.group[rows] * self.shared.stride)[:, None]
            stamps = (self._epoch[self.group[rows]] * 64 + self.wave[rows])[:, None]
            stamp = np.broadcast_to(stamps, shape)[active]
            self.shared.touch(at, offsets[active], size, stamp, writes=words is not None)
            data = self.shared.data
        else:
            lane = rows[:, None] * self.lanes_of_wave + np.arange(self.lanes_of_wave)[None, :]
            offsets = places + lane * self.private
            data = self._scratch.data
            if words is None:
                self._known(at, self._scratch, active, offsets, size)
            elif self._scratch.written is not None:
                for byte in range(size):
                    self._scratch.written[offsets[active] + byte] = True
        if words is None:
            return gather(data, offsets, size, extends=extends)
        scatter(data, active, offsets, size, words)
        return []

    def atomic(
        self, at: int, mask: Bools | None, address: U64, kind: str, action: str,
        words: Sequence[U32], others: Sequence[U32], space: str, returns: bool,
    ) -> list[U32]:  # fmt: skip
        """Change memory one lane after the other; return what each found there."""
        shape = (self._count, self.lanes_of_wave)
        active = self._active(mask)
        size = int(kind[1:]) // 8
        address = np.broadcast_to(address, shape)
        values = self._wide(words, kind, shape)
        compared = self._wide(others, kind, shape) if others else values
        before = np.zeros(shape, np.dtype(f"{kind[0]}{size}"))
        for data, lanes, offsets in self._atomic_parts(at, active, address, size, space):
            target = data.view(before.dtype)
            places = offsets[lanes] // size
            if not returns and action not in {"swap", "compare"}:
                getattr(np, action).at(target, places, values[lanes])
                continue
            found = []
            for place, value, test in zip(places, values[lanes], compared[lanes], strict=True):
                old = target[place]
                found.append(old)
                if action == "swap" or (action == "compare" and old == test):
                    target[place] = value
                elif action != "compare":
                    target[place] = getattr(np, action)(old, value)
            before[lanes] = found
        raw = before.view(f"u{size}")
        return [raw] if size == 4 else [low(raw), high(raw)]

    def _wide(self, words: Sequence[U32], kind: str, shape: tuple[int, int]) -> Array:
        full = [np.broadcast_to(word, shape) for word in words]
        raw = full[0] if len(full) == 1 else join(full[0], full[1])
        return np.ascontiguousarray(raw).view(f"{kind[0]}{int(kind[1:]) // 8}")

    def _atomic_parts(
        self, at: int, active: Bools, address: U64, size: int, space: str
    ) -> list[tuple[Array, Bools, NDArray[np.int64]]]:
        if space == "flat" and self._windowed(active, address):
            raise UnmodelledError(
                "not modelled: flat atomic operations on LDS", self.program.place(at)
            )
        if space == "shared":
            places = np.where(active, address, np.uint64(0)).astype(np.int64)
            if active.any() and int(places.max()) + size > self.shared.size:
                raise self.fail(
                    at,
                    "out of bounds",
                    f"{size} bytes at offset {int(places.max())} of LDS ({self.shared.size} bytes)",
                )
            rows = np.arange(self.waves) if self._rows is None else self._rows
            offsets = places + (self.group[rows] * self.shared.stride)[:, None]
            for byte in range(size):
                if not self.shared.written[offsets[active] + byte].all():
                    raise self.fail(
                        at, "unwritten", "an atomic operation on LDS that no wave wrote"
                    )
            return [(self.shared.data, active, offsets)]
        parts: list[tuple[Array, Bools, NDArray[np.int64]]] = []
        for buffer, lanes, offsets in self.memory.parts(at, active, address, size):
            self._aligned(at, lanes, offsets, size)
            buffer.changed = True
            parts.append((buffer.data, active if lanes is None else lanes, offsets))
        return parts

    def buffer(self, mask: Bools | None, offset: U64, extra: U64, *words: U32) -> tuple[U64, Bools]:
        """Return the addresses that a buffer resource means, and the lanes that lie within it."""
        base = join(words[0], words[1] & np.uint32(0xFFFF))
        inside = offset < words[2].astype(np.uint64)
        return base + offset + extra, inside if mask is None else inside & mask
