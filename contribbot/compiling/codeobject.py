"""Reading the functions of a code object: an ELF file of 64 bits that is not linked."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Final, NamedTuple

_MAGIC: Final = b"\x7fELF\x02\x01"
_SYMBOL_TABLE: Final = 2
_FUNCTION: Final = 2
#: Places from here on are no sections: absolute, common, or local data share.
_RESERVED: Final = 0xFF00


@dataclass(frozen=True)
class CodeObject:
    """What a code object holds."""

    #: The bytes of each function.
    functions: dict[str, bytes]
    undefined: frozenset[str]


class _Section(NamedTuple):
    name: int
    kind: int
    flags: int
    address: int
    offset: int
    size: int
    link: int
    info: int
    alignment: int
    entry: int

    def within(self, content: bytes) -> bytes:
        """Return its bytes."""
        return content[self.offset : self.offset + self.size]


def read_object(content: bytes) -> CodeObject:
    """Read a code object; a damaged one is a ValueError."""
    if not content.startswith(_MAGIC):
        raise ValueError("no ELF file of 64 bits")
    try:
        return _read(content)
    except (struct.error, LookupError) as error:
        raise ValueError(f"a damaged ELF file: {error}") from error


def _read(content: bytes) -> CodeObject:
    (start,) = struct.unpack_from("<Q", content, 40)
    size, count = struct.unpack_from("<HH", content, 58)
    sections = [
        _Section(*struct.unpack_from("<IIQQQQIIQQ", content, start + size * number))
        for number in range(count)
    ]
    functions: dict[str, bytes] = {}
    undefined: set[str] = set()
    for table in (section for section in sections if section.kind == _SYMBOL_TABLE):
        names = sections[table.link].within(content)
        for name, info, _, place, start, length in struct.iter_unpack(
            "<IBBHQQ", table.within(content)
        ):
            symbol = names[name : names.index(b"\0", name)].decode("utf-8", "replace")
            # LLVM's assembler takes over what quotes a quote.
            symbol = symbol.replace('\\"', '"')
            if info & 15 == _FUNCTION and 0 < place < _RESERVED:
                functions[symbol] = sections[place].within(content)[start : start + length]
            elif symbol and not place:
                undefined.add(symbol)
    return CodeObject(functions, frozenset(undefined))
