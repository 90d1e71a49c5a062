"""The memory of the emulated GPU: buffers in this process, with addresses of the GPU."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from contribbot.emulate.errors import NoResultError

U8: TypeAlias = NDArray[np.uint8]
#: Addresses have 48 bits, and are given out in pages of 4 GiB.
PAGE: Final = 32
_PAGES: Final = 1 << (48 - PAGE)
#: The addresses of the running kernel's code object and arguments; no buffer is at 0.
CODE, ARGUMENTS = 2 << PAGE, 4 << PAGE
#: The address for arguments that need a HIP runtime; no buffer has this address.
HOST: Final = 6 << PAGE
DISPATCH, QUEUE = HOST + (1 << 30), HOST + (2 << 30)
#: The feature that is not modelled, by the quarter of the page at HOST that a kernel reads.
ABSENT: Final = (
    "what the host does for printf, assert and malloc",
    "a read of the dispatch packet",
    "a read of the queue",
)
_FIRST: Final = 8  # the first page for all other buffers
#: The fields of `Buffer` in machine.hpp.
ROW: Final = (
    "base",
    "size",
    "data",
    "written",
    "writable",
    "changed",
    "writers",
    "touched",
    "known",
)
_CHANGED: Final = ROW.index("changed")


@dataclass(eq=False)
class Buffer:
    """A range of bytes that a kernel may access, with a name for messages."""

    name: str
    host: int  # the address in this process
    size: int
    writable: bool = True
    written: NDArray[np.bool_] | None = None  # marks written bytes; None: all bytes
    writers: NDArray[np.uint32] | None = None  # the instruction that wrote each byte last
    touched: NDArray[np.uint32] | None = None  # the last waves that wrote and read each byte
    known: NDArray[np.bool_] | None = None  # as `written`, but to note hazards
    base: int = 0
    row: int = 0

    @classmethod
    def of(cls, name: str, data: U8, *, writable: bool = True) -> Buffer:
        """Return the buffer of an array, which the caller must keep alive."""
        return cls(name, data.ctypes.data, data.size, writable)


class Memory:
    """Buffers at least a page (4 GiB) apart; a new buffer lies above the newest while it can."""

    def __init__(self) -> None:
        self.pages = np.zeros(_PAGES, np.uint16)  # the number of each page's buffer; 0: no buffer
        self.rows = np.zeros((_PAGES // 2, len(ROW)), np.uint64)
        self._buffers: dict[int, Buffer] = {}
        self._free = list(range(_PAGES // 2 - 1, 0, -1))
        self._next = _FIRST
        self._lock = threading.RLock()  # a finaliser may run in any thread

    def add(self, buffer: Buffer, base: int = 0) -> int:
        """Place a buffer at `base` (0: at a free address), and return the address."""
        with self._lock:
            first = base >> PAGE or self._place(1 + (buffer.size >> PAGE))
            buffer.base, buffer.row = first << PAGE, self._free.pop()
            self._buffers[buffer.row] = buffer
            self.rows[buffer.row] = (
                buffer.base,
                buffer.size,
                buffer.host,
                0 if buffer.written is None else buffer.written.ctypes.data,
                buffer.writable,
                0,
                0 if buffer.writers is None else buffer.writers.ctypes.data,
                0,
                0,
            )
            self.pages[first : first + 1 + (buffer.size >> PAGE)] = buffer.row
            return buffer.base

    def _place(self, pages: int) -> int:
        """Return the first page of a free range that has a free page on both sides."""
        start, wrapped = self._next, False
        while True:
            if start + pages >= _PAGES:
                if wrapped:
                    raise NoResultError(
                        f"the emulated GPU has no addresses left: {len(self._buffers)} tensors live"
                    )
                start, wrapped = _FIRST, True
            taken = np.flatnonzero(self.pages[start - 1 : start + pages + 1])
            if not taken.size:
                self._next = start + pages + 1
                return start
            start += int(taken[-1]) + 1

    def remove(self, buffer: Buffer) -> None:
        """Remove a buffer from memory."""
        with self._lock:
            first = buffer.base >> PAGE
            self.pages[first : first + 1 + (buffer.size >> PAGE)] = 0
            del self._buffers[buffer.row]
            self._free.append(buffer.row)

    def watch(self, buffer: Buffer, touched: NDArray[np.uint32] | None) -> None:
        """Record the waves' accesses to a buffer in an array; None: stop the record."""
        buffer.touched = touched
        row = self.rows[buffer.row]
        row[ROW.index("touched")] = 0 if touched is None else touched.ctypes.data
        row[ROW.index("known")] = 0 if buffer.known is None else buffer.known.ctypes.data

    def changed(self, buffer: Buffer | None = None) -> bool:
        """Return whether a kernel wrote to a buffer (None: any) since `forget_changes`."""
        return bool(self.rows[buffer.row if buffer else slice(None), _CHANGED].any())

    def forget_changes(self) -> None:
        """Mark all buffers as unchanged."""
        self.rows[:, _CHANGED] = 0

    def at(self, row: int) -> Buffer:
        """Return the buffer with a row number of `rows`."""
        return self._buffers[row]

    def find(self, address: int) -> Buffer | None:
        """Return the buffer whose pages contain an address; None: no buffer."""
        page = address >> PAGE
        return self._buffers.get(int(self.pages[page])) if 0 <= page < _PAGES else None


#: The memory of this process, in which the emulated GPU's tensors stay between launches.
MEMORY: Final = Memory()
