"""Format numbers for people."""

from __future__ import annotations

import re

#: From `_WHOLE` on, a factor is shown without decimals, from `_MANY` on with an exponent.
_WHOLE = 100
_MANY = 10**6
_UNITS = ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs"), (1e-9, "ns"))


def number(value: float) -> str:
    """Return a number with two digits, such as `1.9` or `1.1e-3`."""
    return re.sub(r"e([+-])0*", lambda found: f"e{found[1].strip('+')}", f"{value:.2g}")


def times(ratio: float) -> str:
    """Return a factor as text, such as `2`, `1.3`, `1,700` or `3e12`."""
    if ratio >= _MANY:
        return number(ratio)
    return f"{ratio:,.0f}" if ratio >= _WHOLE else f"{ratio:.3g}"


def multiple(ratio: float, reference_abs: float, floor: float) -> str:
    """Return an error as a multiple of the reference's error, or of the floor if it is larger."""
    if reference_abs >= floor:
        return f"{times(ratio)} times the same-precision reference's {number(reference_abs)}"
    reference = f"(same-precision reference: {number(reference_abs)})"
    return f"{times(ratio)} times the floor {number(floor)} {reference}"


def count(elements: int) -> str:
    """Return a count with thousands separators."""
    return f"{elements:,}"


def plain(text: str) -> str:
    """Return a text with lone surrogates escaped, as JSON readers refuse them."""
    return text.encode("utf-8", "backslashreplace").decode()


def place_of(index: tuple[int, ...]) -> str:
    """Return an index or a shape as text, such as `(3, 64)`."""
    return str(tuple(index))


def seconds(value: float) -> str:
    """Return seconds with three digits in a fitting unit, such as `1.25 ms`."""
    rounded = float(f"{value:.3g}")
    size, unit = next((pair for pair in _UNITS if rounded >= pair[0]), _UNITS[-1])
    return f"{value / size:.3g} {unit}"
