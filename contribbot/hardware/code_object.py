"""Reading the functions of a code object: an ELF file of 64 bits that is not linked."""

from __future__ import annotations

import struct
from typing import Final, NamedTuple

_SYMBOL_TABLE: Final = 2
_FUNCTION: Final = 2
#: Places from here on are no sections: absolute, common, or local data share.
_RESERVED: Final = 0xFF00


class CodeObject(NamedTuple):
    """What a code object holds."""

    #: The bytes of each function.
    functions: dict[str, bytes]
    undefined: set[str]


def read_object(content: bytes) -> CodeObject:
    """Read a code object."""
    (start,) = struct.unpack_from("<Q", content, 40)
    (count,) = struct.unpack_from("<H", content, 60)
    # Of each section: kind, offset, size, and the section that its names are in.
    headers = content[start : start + 64 * count]
    sections = list(struct.iter_unpack("<4xI16xQQI20x", headers))
    bodies = [content[offset : offset + size] for _, offset, size, _ in sections]
    found = CodeObject({}, set())
    for (kind, _, _, link), body in zip(sections, bodies, strict=True):
        for name, info, section, value, size in struct.iter_unpack(
            "<IBxHQQ", body if kind == _SYMBOL_TABLE else b""
        ):
            symbol = bodies[link][name : bodies[link].index(b"\0", name)].decode("utf-8", "replace")
            # LLVM's assembler takes over what quotes a quote.
            symbol = symbol.replace('\\"', '"')
            if info & 15 == _FUNCTION and 0 < section < _RESERVED:
                found.functions[symbol] = bodies[section][value : value + size]
            elif symbol and not section:
                found.undefined.add(symbol)
    return found
