"""The measuring child: one on the base tree, one on the patched tree. Started by `worker.py`.

`python -m contribbot.bench.child FILE` reads requests from a socket that it inherits
(`CONTRIBBOT_BENCH_CHANNEL` is its descriptor) and answers each with one line of JSON;
`wire.py` has the forms. Standard output and error are free for the bench file. Between
two requests it waits and uses no processor.
"""

from __future__ import annotations

import errno
import gc
import importlib.util
import itertools
import json
import math
import os
import random
import re
import socket
import statistics
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING

from contribbot.bench import Case, device
from contribbot.bench.results import Leaves, UncomparableError, compare, compute, read, write
from contribbot.lifeline import guard_group, limit_files

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


#: Milliseconds for which do_bench repeats a call in a round, and before it.
_GPU_ROUND = 50
_WARM_UP = 10
#: Calls that a round holds at least, however long one takes.
_CALLS = 3
#: Sets of inputs at most.
_SETS = 8
#: Bytes of the copy that is the ceiling; less where less is free.
_GPU_COPY = 2**30
#: Rows and columns of the matrices whose product is the ceiling.
_GPU_MATMUL = {"float16": 8192, "bfloat16": 8192, "float32": 4096, "float64": 4096}


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
        self._round = max(_GPU_ROUND, int(_CALLS * 1000 * (time.perf_counter() - started)))

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
    rates = {name: _gpu_matmul_rate(getattr(torch, name), _GPU_MATMUL[name]) for name in matmul}
    release_gpu()
    return copy, rates


def _copy_rate() -> float:
    import torch  # noqa: PLC0415  see require_gpu

    free, _ = torch.cuda.mem_get_info()
    size = min(_GPU_COPY, free // 8)
    source = torch.ones(size, dtype=torch.uint8, device="cuda")
    target = torch.empty_like(source)
    return 2 * size / statistics.median(_times(lambda: target.copy_(source), rep=_GPU_ROUND))


def _gpu_matmul_rate(dtype: torch.dtype, side: int) -> float:
    import torch  # noqa: PLC0415  see require_gpu

    left, right = (torch.randn(side, side, device="cuda").to(dtype) for _ in range(2))
    taken = _times(lambda: torch.mm(left, right), rep=2 * _GPU_ROUND)
    return 2 * side**3 / statistics.median(taken)


def gpu_name() -> str:
    """Return what the driver calls the device that is used."""
    import torch  # noqa: PLC0415  see require_gpu

    return torch.cuda.get_device_name()


#: An error message may hold a tensor; an answer need not.
_LONGEST = 2000
_SEED = 20260408
#: Cases of one file; what lists them may never end.
_MOST = 1000
#: What the CUDA and HIP runtimes say of the code that they ran; anything else that they
#: complain of is the device's or the driver's trouble.
_FAULTS = re.compile(
    r"illegal memory access|illegal address|misaligned address|illegal instruction"
    r"|device-side assert|unspecified launch failure|invalid program counter"
    r"|invalid configuration argument|invalid argument|too many resources requested"
    r"|no kernel image|invalid device function|shared object",
    re.IGNORECASE,
)
_RUNTIME = re.compile(r"\b(CUDA|HIP|cuda|hip)(?: driver)? ?error\b", re.IGNORECASE)
_OUT_OF_MEMORY = re.compile(
    r"out of memory|can't allocate memory|CUBLAS_STATUS_ALLOC_FAILED|HIPBLAS_STATUS_ALLOC_FAILED",
    re.IGNORECASE,
)

Answer = dict[str, object]


class Server:
    """Holds the cases of one bench file and does what it is asked with them."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._cases: dict[str, Case] = {}
        self._results: list[Leaves] = []
        self._meter: HostMeter | GpuMeter | None = None

    def load(self) -> Answer:
        """Import the file and list its cases."""
        if device() == "cuda":
            require_gpu()
        spec = importlib.util.spec_from_file_location(self._file.stem, self._file)
        if spec is None or spec.loader is None:
            raise ImportError(f"{self._file.name} cannot be imported")
        module = importlib.util.module_from_spec(spec)
        sys.modules[self._file.stem] = module
        spec.loader.exec_module(module)
        listed: Callable[[], Iterator[Case]] | None = getattr(module, "cases", None)
        if listed is None:
            raise AttributeError(f"{self._file.name} defines no function cases()")
        for case in listed():
            if len(self._cases) == _MOST:
                raise ValueError(f"cases() gave more than {_MOST} cases")
            if not isinstance(case, Case):
                raise TypeError(f"cases() gave a {type(case).__name__}, not a bench.Case")
            if case.name in self._cases:
                raise ValueError(f"cases() gave two cases with the name {case.name}")
            self._cases[case.name] = case
        told = [one.name for one in fields(Case) if one.name not in {"prepare", "run"}]
        return {
            "cases": [{key: getattr(case, key) for key in told} for case in self._cases.values()]
        }

    def _case(self, name: str) -> Case:
        case = self._cases[name]
        if case.device != device():
            raise ValueError(f"it computes on {case.device}, and the bench is for {device()}")
        return case

    def compute(self, case: str) -> Answer:
        """Compute the results of a case, to be compared."""
        self._results, unlike = compute(self._case(case), _seed)
        if device() == "cuda":
            release_gpu()
        return {"unlike": _shown(unlike)}

    def hand_over(self, file: str) -> Answer:
        """Write what was computed into a file, for the other side."""
        write(self._results, Path(file))
        return {}

    def compare(self, case: str, file: str) -> Answer:
        """Compare what was computed with what the other side has handed over."""
        finding, text = compare(self._results, read(Path(file)), self._case(case))
        return {"finding": finding, "text": _shown(text)}

    def prepare(self, case: str, seed: int) -> Answer:
        """Make the inputs of a case and run it."""
        wanted = self._case(case)
        _seed(seed)
        self._meter = GpuMeter(wanted) if wanted.device == "cuda" else HostMeter(wanted)
        return {"memory": self._meter.memory, "sets": self._meter.sets}

    def measure(self) -> Answer:
        """Measure one round of the case that was prepared last."""
        if self._meter is None:
            raise RuntimeError("no case is prepared")
        seconds, samples = self._meter.round()
        return {"seconds": seconds, "samples": samples}

    def release(self) -> Answer:
        """Let the inputs go."""
        self._meter, self._results = None, []
        if device() == "cuda":
            release_gpu()
        return {}

    def ceilings(self, matmul: list[str]) -> Answer:
        """Measure what this machine can do at best."""
        on_gpu = device() == "cuda"
        copy, rates = gpu_ceilings(matmul) if on_gpu else host_ceilings(matmul)
        name = gpu_name() if on_gpu else host_name()
        return {"device": name, "copy_rate": copy, "matmul_rate": rates}

    def answer(self, request: dict[str, object]) -> Answer:
        """Do what a request asks; an exception becomes an answer too."""
        do = request.pop("do")
        try:
            answer: Answer = getattr(self, str(do))(**request)
        except (Exception, SystemExit) as error:  # noqa: BLE001  the file and the tree may raise anything
            # To the log, with all frames; the answer holds what a person reads first.
            traceback.print_exc()
            sys.stderr.flush()
            self._meter = None
            return {"kind": kind_of(error), "error": _said(error)}
        return answer


def kind_of(error: BaseException) -> str:
    """Tell what kind of thing went wrong; `wire.Kind` has the words."""
    text = str(error)
    if isinstance(error, MissingError | UncomparableError):
        return "missing" if isinstance(error, MissingError) else "uncomparable"
    full = isinstance(error, OSError) and error.errno in {errno.ENOSPC, errno.EFBIG}
    if full or isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError":
        return "memory"
    if _RUNTIME.search(text):
        if _OUT_OF_MEMORY.search(text):
            return "memory"
        return "fault" if _FAULTS.search(text) else "lost"
    return "memory" if _OUT_OF_MEMORY.search(text) else "error"


def _said(error: BaseException) -> str:
    own = isinstance(error, MissingError | UncomparableError)
    return _shown(str(error) if own else f"{type(error).__name__}: {error}")


def _shown(text: str) -> str:
    return text[:_LONGEST].encode("utf-8", "backslashreplace").decode()


def _seed(number: int) -> None:
    """Give both sides the same random numbers."""
    seed = _SEED + number
    random.seed(seed)
    if "numpy" in sys.modules:
        sys.modules["numpy"].random.seed(seed)
    if "torch" in sys.modules:
        sys.modules["torch"].manual_seed(seed)


def main() -> None:
    """Answer until the parent closes the channel."""
    guard_group(int(os.environ.pop("CONTRIBBOT_LIFELINE")))
    limit_files()
    descriptor = int(os.environ.pop("CONTRIBBOT_BENCH_CHANNEL"))
    # What the bench file starts must not hold it: the parent waits for its end.
    os.set_inheritable(descriptor, False)  # noqa: FBT003  os has no name for it
    server = Server(Path(sys.argv[1]))
    with socket.socket(fileno=descriptor) as channel, channel.makefile("rw") as lines:
        for line in lines:
            lines.write(json.dumps(server.answer(json.loads(line))) + "\n")
            lines.flush()


if __name__ == "__main__":
    main()
