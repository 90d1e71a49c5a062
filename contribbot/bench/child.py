"""The measuring child: one on the base tree, one on the patched tree. Started by `worker.py`.

`python -m contribbot.bench.child FILE` reads requests from a socket that it inherits
(`CONTRIBBOT_BENCH_CHANNEL` is its descriptor) and answers each with one line of JSON;
`wire.py` has the forms. Standard output and error are free for the bench file. Between
two requests it waits and uses no processor.
"""

from __future__ import annotations

import errno
import importlib.util
import json
import os
import random
import re
import socket
import sys
import traceback
from collections.abc import Callable, Iterator
from dataclasses import fields
from pathlib import Path

from contribbot.bench import Case, device
from contribbot.bench.gpu import (
    GpuMeter,
    MissingError,
    gpu_ceilings,
    gpu_name,
    release_gpu,
    require_gpu,
)
from contribbot.bench.host import HostMeter, host_ceilings, host_name
from contribbot.bench.results import Leaves, UncomparableError, compare, compute, read, write
from contribbot.process.lifeline import guard_group

#: An error message may hold a tensor; an answer need not.
_LONGEST = 2000
#: Bytes that one file may grow to, the log among them.
_LARGEST = 2 * 2**30
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


def _set_limits() -> None:
    """Bound what this process may do to its machine."""
    import resource  # noqa: PLC0415  not on every platform

    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    if soft == resource.RLIM_INFINITY or soft > _LARGEST:
        resource.setrlimit(resource.RLIMIT_FSIZE, (_LARGEST, hard))


def main() -> None:
    """Answer until the parent closes the channel."""
    guard_group(int(os.environ.pop("CONTRIBBOT_LIFELINE")))
    _set_limits()
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
