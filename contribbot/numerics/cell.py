"""One combination of the values of a grid's axes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Cell:
    """One combination of the values of a grid's axes.

    Attributes:
        name: The values as text, such as `float16 7x64 packed scale=100.0`.
        values: The values, by axis.
        texts: The values as text, by axis.
    """

    name: str
    values: Mapping[str, object]
    texts: Mapping[str, str]
