"""C++ names as people write them."""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable

#: The C++ runtimes that know how: GCC's, on which clang and torch stand, then LLVM's.
_RUNTIMES = ("libstdc++.so.6", "libc++abi.so.1")


@functools.cache
def _demangler() -> tuple[Callable[..., int | None], Callable[[int], None]] | None:
    """Return `__cxa_demangle` (Itanium C++ ABI, 3.4) and what frees its result."""
    for name in _RUNTIMES:
        try:
            library = ctypes.CDLL(name)
            kind = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_char_p, *[ctypes.c_void_p] * 3)
            call = kind(("__cxa_demangle", library))
            free = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(("free", library))
        except (OSError, AttributeError):
            continue
        return call, free
    return None


def demangle(symbol: str) -> str:
    """Return the C++ name behind a symbol; the symbol itself where there is none."""
    found = _demangler() if symbol.startswith("_Z") else None
    if found is None:
        return symbol
    call, free = found
    address = call(symbol.encode(), None, None, None)
    if not address:
        return symbol
    try:
        return ctypes.string_at(address).decode("utf-8", "replace")
    finally:
        free(address)


def title_of(symbol: str) -> str:
    """Return the name of a function with its template arguments, without its parameters."""
    name = demangle(symbol)
    if name == symbol:
        return symbol
    # Only the name of a template has its result's type in front; a kernel's is void.
    return _without_last(name, "()").removeprefix("void ")


def function_of(title: str) -> str:
    """Return the name of a function without its template arguments."""
    return _without_last(title, "<>")


def _without_last(name: str, brackets: str) -> str:
    """Return a name without the brackets that it ends with, and what is in them."""
    depth = 0
    for place in range(len(name) - 1, -1, -1):
        depth += {brackets[1]: 1, brackets[0]: -1}.get(name[place], 0)
        if depth == 0:
            return name[:place] if name.endswith(brackets[1]) else name
    return name
