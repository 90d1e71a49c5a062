"""The noise floor of a computation: how far orders of summation move its result."""

from __future__ import annotations

import torch

from contribbot.errors import UsageError
from contribbot.numerics.explanation import ArithmeticSearch, difference, one_thread, ordered
from contribbot.numerics.recordings import Recording
from contribbot.numerics.tolerances import ErrorSpread, NoiseFloor


@one_thread()
def noise_floor(made: Recording) -> NoiseFloor:
    """Measure how far a recorded computation's results lie apart by arithmetic alone.

    Args:
        made: A record that keeps its inputs; its result is one of those compared.

    Raises:
        UsageError: It keeps no inputs, or is NaN or infinite.
    """
    search = ArithmeticSearch.of(made, made)
    usual = search.usual
    # Fewer arithmetics are tried here, and the largest error is wanted: on more units.
    units = search.sample(min(1024, max(32, 2**18 // search.terms)))
    recorded = search.a[units]
    if not bool(recorded.float().isfinite().all()):
        raise UsageError(f"the result of {made.header.computation} is NaN or infinite")
    others = search.computation.arithmetics(search.dtype, search.inputs)
    single = {choice: choice.unlike(usual) for choice in others}
    orders = [usual, *(choice for choice, names in single.items() if names == ("order",))]
    results = torch.stack([recorded, *(search.result(choice, units) for choice in orders)])
    wide = results.float()
    low, high = (side.to(recorded.dtype) for side in (wide.amin(0), wide.amax(0)))
    centre, moved = search.result(usual, units), {}
    for choice, names in single.items():
        if len(names) == 1 and names != ("order",):
            other = search.result(choice, units)
            if bool(other.float().isfinite().all()):
                moved[choice.words(names)] = _spread(centre, other)
    return NoiseFloor(
        computation=made.header.computation, dtype=made.header.result.dtype,
        shapes={name: facts.shape for name, facts in made.header.inputs.items()},
        device=made.header.device, versions=made.header.versions,
        largest=float(recorded.double().abs().max()), orders=len(orders),
        floor=_spread(low, high), arithmetics=moved,
    )  # fmt: skip


def _spread(a: torch.Tensor, b: torch.Tensor) -> ErrorSpread:
    seen = difference(a, b)
    steps = int((ordered(a) - ordered(b)).abs().max())
    return ErrorSpread(max_abs=seen.max_abs, max_rel=seen.max_rel, max_ulps=steps)
