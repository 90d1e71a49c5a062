"""The process that measures a bench file on one tree; `session.py` starts one for each tree.

`python -m contribbot.bench.child FILE` reads requests from standard input, a line of JSON each
(`{"do": …}`), and answers by lines on standard output. Output of the bench file goes to the log.
"""

from __future__ import annotations

import errno
import importlib.util
import itertools
import json
import math
import os
import pickle
import random
import re
import statistics
import sys
import time
import timeit
import traceback
from collections.abc import Callable, Iterator, ValuesView
from pathlib import Path

from contribbot.bench import Case, device
from contribbot.process import limit_files

#: The shortest round: seconds on a processor, milliseconds on a GPU.
_ROUND = 0.1
_GPU_ROUND = 50
#: Seconds for a batch of GPU calls without waiting in between; a longer call is not measured so,
#: as the host's time hardly counts.
_GPU_BATCH = 0.01
#: The fewest samples of a round, unless a call lasts `_LONG`; on a GPU, the fewest calls.
_FEWEST = 3
#: A round ends early after this many times `_ROUND`, as another program uses the processor.
_PATIENT = 3
#: The fewest seconds of a sample: a thousand times the cost of reading the clock.
_SAMPLE = 0.0005
#: A call of this many seconds or more needs no call before it to warm the caches.
_LONG = 0.1
#: Milliseconds for which triton's do_bench repeats a call before a round.
_WARM_UP = 10
#: The largest number of sets of inputs on a GPU.
_SETS = 8
#: The longest error text in an answer, in characters, as a message may print a whole tensor.
_LONGEST = 2000
_SEED = 20260408
#: Errors of the CUDA and HIP runtimes for which the code that ran is to blame; all other errors
#: of the runtimes count as trouble of the device or driver.
_FAULTS = re.compile(
    r"illegal memory access|illegal address|misaligned address|illegal instruction"
    r"|device-side assert\b|unspecified launch failure|invalid program counter"
    r"|invalid configuration argument|invalid argument|too many resources requested"
    r"|no kernel image|invalid device function|shared object|during capture",
    re.IGNORECASE,
)
_RUNTIME = re.compile(r"\b(CUDA|HIP|cuda|hip)(?: driver)? ?error\b", re.IGNORECASE)
_OUT_OF_MEMORY = re.compile(
    r"out of memory|can't allocate memory|CUBLAS_STATUS_ALLOC_FAILED|HIPBLAS_STATUS_ALLOC_FAILED",
    re.IGNORECASE,
)

Answer = dict[str, object]


class MissingError(Exception):
    """This machine lacks triton or a GPU; the message has the next step."""


class HostMeter:
    """A meter that times one case on the CPU.

    A round has as many samples as fit into `_ROUND` seconds, at least three, or one if a call
    lasts `_LONG`; a sample has as many calls as last `_SAMPLE` seconds. First calls decide both.
    Garbage collection is off while the clock runs.
    """

    sets = 1
    memory = None

    def __init__(self, case: Case) -> None:
        inputs = case.inputs()
        self._call: Callable[[], object] = lambda: case.run(*inputs)
        self._call()
        self._calls = 1
        seconds = self._best()
        while seconds * self._calls < _SAMPLE:
            enough = math.ceil(_SAMPLE / max(seconds, 1e-9))
            self._calls = max(self._calls + 1, min(10 * self._calls, enough))
            seconds = self._best()
        self._samples = max(_FEWEST, math.ceil(_ROUND / (seconds * self._calls)))
        if seconds >= _LONG:
            self._calls = self._samples = 1

    def _sample(self) -> float:
        return timeit.timeit(self._call, number=self._calls) / self._calls

    def _best(self) -> float:
        """Return a call's seconds: the least of three samples, as another program may interrupt."""
        first = self._sample()
        return first if first >= _LONG else min(first, self._sample(), self._sample())

    def called(self) -> None:
        """Return None: on the CPU, `round` already times the whole call."""

    def round(self) -> tuple[float, int]:
        """Return the median seconds of a call, and the number of samples."""
        if self._calls > 1 or self._samples > 1:
            # Warm the caches, which the other process has used in between.
            self._call()
        seconds: list[float] = []
        late = time.monotonic() + _PATIENT * _ROUND
        while len(seconds) < self._samples and (len(seconds) < _FEWEST or time.monotonic() < late):
            seconds.append(self._sample())
        return statistics.median(seconds), len(seconds)


class GpuMeter:
    """A meter that times one case on a GPU by triton's do_bench, which uses GPU events.

    Between calls, do_bench overwrites a buffer as large as the caches. In addition, a case whose
    inputs are smaller than twice the L2 cache uses more sets of inputs, in turns (at most `_SETS`).
    """

    def __init__(self, case: Case) -> None:
        import torch  # noqa: PLC0415  takes a second, and only a bench on a GPU comes here

        self._cuda = torch.cuda
        before = torch.cuda.memory_allocated()
        inputs = [case.inputs()]
        size = torch.cuda.memory_allocated() - before
        cache = torch.cuda.get_device_properties(torch.cuda.current_device()).L2_cache_size
        more = -(-2 * cache // size) - 1 if 0 < size < 2 * cache else 0
        inputs += [case.inputs() for _ in range(min(more, _SETS - 1))]
        self.sets = len(inputs)
        turn = itertools.cycle(inputs)
        self._call: Callable[[], object] = lambda: case.run(*next(turn))
        self._call()  # compiles and allocates what later calls reuse
        self.memory = self._peak()
        started = time.perf_counter()
        self._call()
        torch.cuda.synchronize()
        seconds = time.perf_counter() - started
        self._round = max(_GPU_ROUND, int(_FEWEST * 1000 * seconds))
        self._calls = int(_GPU_BATCH / seconds)
        self._timed = self._captured(case.run, inputs) if case.graph else self._call

    def _captured(
        self, run: Callable[..., object], inputs: list[tuple[object, ...]]
    ) -> Callable[[], None]:
        """Return a function that replays a CUDA (HIP) graph of the call, by turns of input sets."""
        graphs = [self._cuda.CUDAGraph() for _ in inputs]
        for graph, each in zip(graphs, inputs, strict=True):
            with self._cuda.graph(graph):
                run(*each)
        turn = itertools.cycle(graphs)
        return lambda: next(turn).replay()

    def _peak(self) -> int:
        """Return the peak number of bytes that one call allocates on the GPU, results included."""
        self._cuda.synchronize()
        self._cuda.reset_peak_memory_stats()
        before = self._cuda.memory_allocated()
        results = self._call()
        self._cuda.synchronize()
        peak = self._cuda.max_memory_allocated() - before
        del results
        return peak

    def called(self) -> float | None:
        """Return a call's seconds in a series, host time included; None: a call is too long."""
        if not self._calls:
            return None

        def batch() -> None:
            for _ in range(self._calls):
                self._call()
            self._cuda.synchronize()

        return statistics.median(timeit.repeat(batch, number=1, repeat=_FEWEST)) / self._calls

    def round(self) -> tuple[float, int]:
        """Return the median seconds of a call on the GPU, and the number of calls."""
        from triton.testing import do_bench  # noqa: PLC0415  only on a GPU

        milliseconds: list[float] = do_bench(
            self._timed, warmup=_WARM_UP, rep=self._round, return_mode="all"
        )
        return statistics.median(milliseconds) / 1000, len(milliseconds)


def _require_gpu() -> None:
    """Raise MissingError unless triton is installed and torch sees a GPU."""
    if importlib.util.find_spec("triton") is None:
        raise MissingError("the Python module triton is not installed; GPUs are measured with it")
    import torch  # noqa: PLC0415  see GpuMeter

    if not torch.cuda.is_available():
        raise MissingError(f"torch {torch.__version__} sees no GPU; install a build for it")


class BenchServer:
    """The cases of one bench file, and the methods that requests call by name."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._cases: dict[str, Case] = {}
        self._meter: HostMeter | GpuMeter | None = None

    def load(self) -> Answer:
        """Import the bench file and return its cases as data."""
        if device() == "cuda":
            _require_gpu()
        module = importlib.import_module(self._file.stem)  # in the current folder
        listed: Callable[[], Iterator[Case]] | None = getattr(module, "cases", None)
        if listed is None:
            raise AttributeError(f"{self._file.name} defines no function cases()")
        for case in listed():
            if not isinstance(case, Case):
                raise TypeError(f"cases() gave a {type(case).__name__}, not a bench.Case")
            if case.name in self._cases:
                raise ValueError(f"cases() gave two cases with the name {case.name}")
            self._cases[case.name] = case
        shown = ("name", "bytes_moved", "flops", "graph")
        cases = self._cases.values()
        return {"cases": [{name: getattr(case, name) for name in shown} for case in cases]}

    def prepare(self, case: str, seed: int, results: str) -> Answer:
        """Make a case's inputs, run the case, and return memory, input sets and `Results`."""
        self._meter = None
        if device() == "cuda":  # leave the memory to the other process
            sys.modules["torch"].cuda.empty_cache()
        _seed(seed)
        work = self._cases[case]
        found = _compare(work, Path(results)) if results else None
        _seed(seed)
        self._meter = GpuMeter(work) if device() == "cuda" else HostMeter(work)
        return {"memory": self._meter.memory, "sets": self._meter.sets, "results": found}

    def measure(self) -> Answer:
        """Time one round of the last prepared case; return seconds of a call, and samples."""
        if self._meter is None:
            raise RuntimeError("no case is prepared")
        seconds, samples = self._meter.round()
        return {"seconds": seconds, "samples": samples, "called": self._meter.called()}

    def answer(self, request: dict[str, object]) -> Answer:
        """Call the method that a request names; return its answer, or its exception as data."""
        do = request.pop("do")
        try:
            answer: Answer = getattr(self, str(do))(**request)
        except (Exception, SystemExit) as error:  # noqa: BLE001  the file and the tree may raise anything
            # The whole traceback goes to the log; the answer has only the message.
            traceback.print_exc()
            sys.stderr.flush()
            self._meter = None
            own = isinstance(error, MissingError)
            text = str(error) if own else f"{type(error).__name__}: {error}"
            shown = text[:_LONGEST].encode("utf-8", "backslashreplace").decode()
            return {"kind": kind_of(error), "error": shown}
        return answer


def _compare(work: Case, file: Path) -> str:
    """Run a case; write its results to a file or compare with the file; return one of `Results`."""
    inputs = work.inputs()
    results = work.run(*inputs)
    if is_input(results, inputs):
        return "inputs"
    try:
        if not file.exists():
            file.write_bytes(pickle.dumps(results))
            return "alike"
        others = pickle.loads(file.read_bytes())  # noqa: S301  contribbot's own, of this run
        return "alike" if alike(results, others) else "different"
    except (pickle.PickleError, AttributeError, TypeError):
        return "different"  # results that cannot be pickled cannot be compared


def is_input(value: object, inputs: tuple[object, ...]) -> bool:
    """Return whether a result is None or consists of nothing but inputs."""
    if value is None or any(value is each for each in (inputs, *inputs)):
        return True
    parts = value.values() if isinstance(value, dict) else value
    return isinstance(parts, list | tuple | ValuesView) and all(
        is_input(part, inputs) for part in parts
    )


def alike(value: object, other: object) -> bool:
    """Return whether results are close by torch's assert_close, or else equal in type and value."""
    try:
        sys.modules["torch"].testing.assert_close(value, other, equal_nan=True)
    except AssertionError:
        return False
    except (KeyError, TypeError, ValueError):
        return type(value) is type(other) and bool(value == other)
    return True


def kind_of(error: BaseException) -> str:
    """Return an error's kind, one of `session.RefusalKind`."""
    text = str(error)
    if isinstance(error, MissingError):
        return "missing"
    full = isinstance(error, OSError) and error.errno in {errno.ENOSPC, errno.EFBIG}
    no_memory = isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError"
    if full or no_memory or _OUT_OF_MEMORY.search(text):
        return "memory"
    if _RUNTIME.search(text):
        return "fault" if _FAULTS.search(text) else "lost"
    return "error"


def _seed(number: int) -> None:
    """Seed `random`, numpy and torch, so that both processes get the same random numbers."""
    seed = _SEED + number
    random.seed(seed)
    if "numpy" in sys.modules:
        sys.modules["numpy"].random.seed(seed)
    if "torch" in sys.modules:
        sys.modules["torch"].manual_seed(seed)


def main() -> None:
    """Answer requests until the parent process closes standard input."""
    limit_files()
    # Use copies of the descriptors: programs that the bench file starts do not inherit the copies.
    requests, answers = os.fdopen(os.dup(0)), os.fdopen(os.dup(1), "w")
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.dup2(2, 1)
    server = BenchServer(Path(sys.argv[1]))
    for line in requests:
        answers.write(json.dumps(server.answer(json.loads(line))) + "\n")
        answers.flush()


if __name__ == "__main__":
    main()
