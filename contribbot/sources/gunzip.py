"""Reading forward through a gzip file, with limits on what it may swell to."""

from __future__ import annotations

import io
import zlib
from collections.abc import Callable, Iterator
from typing import IO, Final, Protocol

from contribbot.errors import IntegrityError

#: How much content is handed on at a time.
PIECE: Final = 2**20
#: How much of the compressed file is read at a time. Deflate packs at most 1,032 to
#: one, so that one read gives 64 MiB at worst.
_READ: Final = 2**16
#: What tarfile may step back over: the header it has just read.
_KEEP: Final = 1024


class Readable(Protocol):
    """What content can be read from."""

    def read(self, size: int, /) -> bytes:
        """Return the next bytes; none only at the end."""


def in_pieces(content: Readable, size: int) -> Iterator[bytes]:
    """Yield the next bytes of a file, exactly as many as were announced."""
    while size > 0:
        piece = content.read(min(size, PIECE))
        if not piece:
            raise EOFError("a member is cut short")
        size -= len(piece)
        yield piece


class Gunzip(io.RawIOBase):
    """The content of a gzip file, as a file that is read forward only.

    tarfile can work on it: it steps back by one header at most.
    """

    def __init__(
        self, file: IO[bytes], name: str, *, limit: int, advance: Callable[[int], None]
    ) -> None:
        super().__init__()
        self._file = file
        self._name = name
        self._limit = limit
        self._advance = advance
        self._inflater = _inflater()
        #: Content that was inflated and may still be asked for, and where it begins.
        self._buffer = b""
        self._start = 0
        self._position = 0
        self._total = 0

    def readable(self) -> bool:
        """Say yes."""
        return True

    def tell(self) -> int:
        """Return the position in the content."""
        return self._position

    def seek(self, offset: int, whence: int = io.SEEK_SET, /) -> int:
        """Go to a position in the content, forward or a little back."""
        if whence != io.SEEK_SET or offset < self._start:
            raise ValueError(f"{self._name}: cannot go to {offset} ({whence})")
        self._position = offset
        return offset

    def read(self, size: int = -1, /) -> bytes:
        """Return the next bytes; fewer only at the end."""
        if not 0 <= size <= PIECE:
            raise IntegrityError(f"{self._name}: a header of {size} bytes, which is not sane")
        self._fill(self._position + size)
        begin = self._position - self._start
        content = self._buffer[begin : begin + size]
        self._position += len(content)
        return content

    def pieces(self, size: int) -> Iterator[bytes]:
        """Return the next bytes in pieces."""
        return in_pieces(self, size)

    def drain(self) -> None:
        """Read to the end of the gzip file, which holds its check sum."""
        while self._inflate() is not None:
            pass

    def _fill(self, end: int) -> None:
        """Have the content up to a position, and a little before the present one."""
        have = self._start + len(self._buffer)
        if end <= have:
            return
        wanted = self._position - _KEEP
        keep = min(max(wanted, self._start), have)
        parts = [self._buffer[keep - self._start :]]
        self._start = keep
        while have < end and (piece := self._inflate()) is not None:
            if have < wanted:  # skipping: what came before is of no use
                parts.clear()
                self._start = have
            parts.append(piece)
            have += len(piece)
        self._buffer = b"".join(parts)

    def _inflate(self) -> bytes | None:
        """Return some more content, or None at the end."""
        packed = self._file.read(_READ)
        if not packed:
            if not self._inflater.eof:
                raise EOFError("the end is missing")
            return None
        self._advance(len(packed))
        content = b""
        # A gzip file may be several, one after the other, then filled up with zeros.
        while packed:
            if self._inflater.eof:
                if not packed.strip(b"\0"):
                    break
                self._inflater = _inflater()
            content += self._inflater.decompress(packed)
            packed = self._inflater.unused_data
        self._total += len(content)
        if self._total > self._limit:
            raise IntegrityError(f"{self._name}: unpacks to more than {self._limit} bytes")
        return content


def _inflater() -> zlib._Decompress:
    """Return a decompressor that reads a gzip header and checks its sum."""
    return zlib.decompressobj(wbits=16 + zlib.MAX_WBITS)
