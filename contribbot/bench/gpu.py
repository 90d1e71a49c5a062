"""Measuring on a GPU, CUDA or HIP. Runs inside the measuring child."""

from __future__ import annotations

import importlib.util
import itertools
import statistics
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from contribbot.bench import Case

if TYPE_CHECKING:
    import torch

#: Milliseconds for which do_bench repeats a call in a round, and before it.
_ROUND = 50
_WARM_UP = 10
#: Calls that a round holds at least, however long one takes.
_CALLS = 3
#: Sets of inputs at most.
_SETS = 8
#: Bytes of the copy that is the ceiling; less where less is free.
_COPY = 2**30
#: Rows and columns of the matrices whose product is the ceiling.
_MATMUL = {"float16": 8192, "bfloat16": 8192, "float32": 4096, "float64": 4096}


class MissingError(Exception):
    """This machine lacks something; says what and the next step."""


def require_gpu() -> None:
    """See that torch has a GPU and triton is there."""
    if importlib.util.find_spec("triton") is None:
        raise MissingError("the Python module triton is not installed; GPUs are measured with it")
    import torch  # noqa: PLC0415  takes a second, and only a bench on a GPU comes here

    if not torch.cuda.is_available():
        raise MissingError(f"torch {torch.__version__} sees no GPU; install a build for it")


class GpuMeter:
    """Measures one case with triton's do_bench: events on the device, its caches cleared.

    do_bench overwrites a buffer as large as the caches between the calls. The inputs take
    turns on top of that, where one set would fit into the L2 cache twice.
    """

    def __init__(self, case: Case) -> None:
        import torch  # noqa: PLC0415  see require_gpu

        before = torch.cuda.memory_allocated()
        inputs = [case.inputs()]
        size = torch.cuda.memory_allocated() - before
        cache = torch.cuda.get_device_properties(torch.cuda.current_device()).L2_cache_size
        more = -(-2 * cache // size) - 1 if 0 < size < 2 * cache else 0
        inputs += [case.inputs() for _ in range(min(more, _SETS - 1))]
        self.sets = len(inputs)
        turn = itertools.cycle(inputs)
        self._call: Callable[[], object] = lambda: case.run(*next(turn))
        self._call()  # what is compiled or allocated once is not the call's
        torch.cuda.synchronize()
        self.memory = _peak(self._call)
        started = time.perf_counter()
        self._call()
        torch.cuda.synchronize()
        self._round = max(_ROUND, int(_CALLS * 1000 * (time.perf_counter() - started)))

    def round(self) -> tuple[float, int]:
        """Return the median seconds of a call, and how many calls that is of."""
        taken = _times(self._call, rep=self._round)
        return statistics.median(taken), len(taken)


def _times(call: Callable[[], object], *, rep: int) -> list[float]:
    """Return the seconds of each call."""
    from triton.testing import do_bench  # type: ignore[import-untyped]  # noqa: PLC0415  has no types; only on a GPU

    taken: list[float] = do_bench(call, warmup=_WARM_UP, rep=rep, return_mode="all")
    return [milliseconds / 1000 for milliseconds in taken]


def _peak(call: Callable[[], object]) -> int:
    """Return the bytes that one call allocates at its peak, its results among them."""
    import torch  # noqa: PLC0415  see require_gpu

    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    results = call()
    torch.cuda.synchronize()
    peak = torch.cuda.max_memory_allocated() - before
    del results
    return peak


def release_gpu() -> None:
    """Give back the memory that nothing uses, so that the other side can have it."""
    import torch  # noqa: PLC0415  see require_gpu

    torch.cuda.empty_cache()


def gpu_ceilings(matmul: list[str]) -> tuple[float, dict[str, float]]:
    """Measure a large copy on the device and large matrix multiplications.

    In bytes a second, read and written, and operations a second by element type.
    """
    import torch  # noqa: PLC0415  see require_gpu

    copy = _copy_rate()
    rates = {name: _matmul_rate(getattr(torch, name), _MATMUL[name]) for name in matmul}
    release_gpu()
    return copy, rates


def _copy_rate() -> float:
    import torch  # noqa: PLC0415  see require_gpu

    free, _ = torch.cuda.mem_get_info()
    size = min(_COPY, free // 8)
    source = torch.ones(size, dtype=torch.uint8, device="cuda")
    target = torch.empty_like(source)
    return 2 * size / statistics.median(_times(lambda: target.copy_(source), rep=_ROUND))


def _matmul_rate(dtype: torch.dtype, side: int) -> float:
    import torch  # noqa: PLC0415  see require_gpu

    left, right = (torch.randn(side, side, device="cuda").to(dtype) for _ in range(2))
    taken = _times(lambda: torch.mm(left, right), rep=2 * _ROUND)
    return 2 * side**3 / statistics.median(taken)


def gpu_name() -> str:
    """Return what the driver calls the device that is used."""
    import torch  # noqa: PLC0415  see require_gpu

    return torch.cuda.get_device_name()
