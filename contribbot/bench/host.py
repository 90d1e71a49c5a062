"""Measuring on the processor. Runs inside the measuring child."""

from __future__ import annotations

import gc
import importlib.util
import math
import statistics
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from contribbot.bench import Case

if TYPE_CHECKING:
    import torch

#: Seconds that a round lasts at least.
_ROUND = 0.1
#: Samples of a round at least, except of calls that last `_LONG`.
_FEWEST = 3
#: After this many times `_ROUND` a round ends early: something else uses the processor.
_PATIENT = 3
#: Seconds that one sample lasts at least: a thousand times what reading the clock costs.
_SAMPLE = 0.0005
#: Seconds of a call after which another call before the round warms nothing more.
_LONG = 0.1
#: Bytes of the copy that is the ceiling: beyond every last-level cache.
_COPY = 256 * 2**20
#: Rows and columns of the matrices whose product is the ceiling.
_MATMUL = 1024
#: Seconds that measuring one ceiling may take.
_PATIENCE = 1.0


class HostMeter:
    """Measures one case on the processor.

    A round takes as many samples as fit into `_ROUND` seconds, at least one; a sample is
    as many calls as are needed to last `_SAMPLE` seconds. Both are settled once, from the
    first calls. Garbage collection is off while the clock runs.
    """

    sets = 1
    memory = None

    def __init__(self, case: Case) -> None:
        inputs = case.inputs()
        self._call: Callable[[], object] = lambda: case.run(*inputs)
        self._call()
        self._calls, self._samples = _plan(self._call)

    def round(self) -> tuple[float, int]:
        """Return the median seconds of a call, and how many samples that is of."""
        if self._calls > 1 or self._samples > 1:
            # The other side has used the caches since this one ran last.
            self._call()
        taken: list[float] = []
        late = time.monotonic() + _PATIENT * _ROUND
        while len(taken) < self._samples and (len(taken) < _FEWEST or time.monotonic() < late):
            taken.append(_sample(self._call, self._calls))
        return statistics.median(taken), len(taken)


def _plan(call: Callable[[], object]) -> tuple[int, int]:
    """Return the calls of a sample and the samples of a round."""
    calls = 1
    took = _best(call, calls)
    while took * calls < _SAMPLE:
        calls = max(calls + 1, min(10 * calls, math.ceil(_SAMPLE / max(took, 1e-9))))
        took = _best(call, calls)
    if took >= _LONG:
        return 1, 1
    return calls, max(_FEWEST, math.ceil(_ROUND / (took * calls)))


def _best(call: Callable[[], object], calls: int) -> float:
    """Return the seconds of a call: one interruption must not make all rounds short."""
    first = _sample(call, calls)
    return first if first >= _LONG else min(first, *(_sample(call, calls) for _ in range(2)))


def _sample(call: Callable[[], object], calls: int) -> float:
    """Return the seconds of one call, over several."""
    turns = range(calls)
    collecting = gc.isenabled()
    gc.disable()
    try:
        started = time.perf_counter()
        for _ in turns:
            call()
        return (time.perf_counter() - started) / calls
    finally:
        if collecting:
            gc.enable()


def host_ceilings(matmul: list[str]) -> tuple[float, dict[str, float]]:
    """Measure a large copy and large matrix multiplications with torch, on all threads.

    In bytes a second, read and written, and operations a second by element type.
    """
    import torch  # noqa: PLC0415  takes a second; a bench without ceilings needs none

    source = torch.ones(_COPY // 4)
    target = torch.empty_like(source)
    copy = _best_effort(lambda: target.copy_(source))
    return 2 * _COPY / copy, {name: _matmul_rate(getattr(torch, name)) for name in matmul}


def _matmul_rate(dtype: torch.dtype) -> float:
    import torch  # noqa: PLC0415  see above

    left, right = (torch.ones(_MATMUL, _MATMUL, dtype=dtype) for _ in range(2))
    return 2 * _MATMUL**3 / _best_effort(lambda: torch.mm(left, right))


def _best_effort(call: Callable[[], object]) -> float:
    """Return the median seconds of a call, over three to ten calls and not for long."""
    call()
    taken: list[float] = []
    deadline = time.monotonic() + _PATIENCE
    while len(taken) < 3 or (len(taken) < 10 and time.monotonic() < deadline):  # noqa: PLR2004  see the docstring
        taken.append(_sample(call, 1))
    return statistics.median(taken)


def host_name() -> str:
    """Return what the processor's threads are worth knowing by."""
    if importlib.util.find_spec("torch") is None:
        return "processor"
    import torch  # noqa: PLC0415  see above

    return f"processor, {torch.get_num_threads()} threads"
