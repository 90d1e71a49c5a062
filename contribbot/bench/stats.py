"""Medians, and how far they can be trusted, without a guess about how times are distributed."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

#: How often the interval must hold the true median.
CONFIDENCE: Final = 0.95


@dataclass(frozen=True)
class Spread:
    """The median of some numbers and an interval for the median that they were drawn around.

    Attributes:
        median: The median.
        low: The interval's lower end.
        high: Its upper end.
        confidence: How often an interval made like this holds the true median; below
            `CONFIDENCE` only where there are too few numbers for more.
    """

    median: float
    low: float
    high: float
    confidence: float


def spread(values: Sequence[float]) -> Spread:
    """Return the median and its confidence interval by order statistics.

    Each value lies below the true median with probability 1/2, however the values are
    distributed (all they must be is independent). So the number of them that do is
    binomial, and the interval from the k-th smallest to the k-th largest misses the
    median with probability 2 P(Binomial(n, 1/2) < k). The largest k that keeps
    `CONFIDENCE` is taken; it exists from six values on. For nine it is the second.

    Args:
        values: At least one number.
    """
    ordered = sorted(values)
    count = len(ordered)
    depth, missed = 1, _missed(count, 1)
    while depth < (count + 1) // 2 and _missed(count, depth + 1) <= 1 - CONFIDENCE:
        depth += 1
        missed = _missed(count, depth)
    return Spread(statistics.median(ordered), ordered[depth - 1], ordered[-depth], 1 - missed)


def _missed(count: int, depth: int) -> float:
    """Return how often the interval between the depth-th values of both ends misses."""
    below: int = sum(math.comb(count, number) for number in range(depth))
    return min(1.0, 2 * below / math.ldexp(1, count))
