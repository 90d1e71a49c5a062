"""What speed-ups can be measured of nothing: the same product of matrices on both sides.

Each row is a way of timing that is met in published speed-ups, with its factor; the last rows are
contribbot's own A/B on the same two sides. docs/speedup.md tells what they are about. Needs a GPU.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import torch
from torch import Tensor

from contribbot import process
from contribbot.bench import DEVICE_VARIABLE
from contribbot.bench.session import BenchSide, measure
from contribbot.bench.verdict import Claim, conclude
from contribbot.verify.stages.bench import STEADY

#: The sizes of the published rows: https://github.com/Painter3000/amd-gpu-torch-runtime-patch
SMALL, LARGE = 2048, 4096
#: Their milliseconds: without the patch at both sizes, with it on a first call and on later ones.
SMALL_MS, LARGE_MS, FIRST_MS, LATER_MS = 164.76, 112.43, 113.71, 9.08
#: Calls of a side where its time is a mean, as there.
CALLS: Final = 5
#: Operations of the product of two matrices grow with the third power of their size.
GROWTH: Final = (LARGE // SMALL) ** 3
#: Seconds that the GPU rests, so that its clocks fall.
REST: Final = 5

BENCH = """\
import torch
from contribbot import bench
from work import setting

setting()

def cases():
    for size in (2048, 4096):
        def prepare(size=size):
            return (torch.randn(size, size, device=bench.device()),)
        yield bench.Case(f"float32 {size}", prepare, lambda x: torch.mm(x, x.T),
                         flops=2 * size**3)
"""
NOTHING = "def setting():\n    pass\n"
TF32 = 'import torch\n\ndef setting():\n    torch.set_float32_matmul_precision("high")\n'


def draw(size: int) -> Tensor:
    """Return a matrix that lies on the GPU when this returns."""
    x = torch.randn(size, size, device="cuda")
    torch.cuda.synchronize()
    return x


def milliseconds(call: Callable[[], object], *, wait: bool = True) -> float:
    """Time one call by the host's clock; without `wait`, until it is merely launched."""
    started = time.perf_counter()
    call()
    if wait:
        torch.cuda.synchronize()
    passed = (time.perf_counter() - started) * 1000
    torch.cuda.synchronize()
    return passed


def mean(call: Callable[[], object], calls: int = CALLS) -> float:
    """Return the mean of some calls."""
    return statistics.fmean(milliseconds(call) for _ in range(calls))


def warm(call: Callable[[], object], seconds: float = 0.3) -> Callable[[], object]:
    """Call for a while; returns what it called."""
    late = time.monotonic() + seconds
    while time.monotonic() < late:
        call()
        torch.cuda.synchronize()
    return call


def product(size: int) -> Callable[[], object]:
    """Return the work of both sides."""
    x = draw(size)
    return lambda: torch.mm(x, x.T)


def published() -> tuple[float, float]:
    """First call at the small size, eight times; then the mean of five, warm, at the large."""
    before = milliseconds(product(SMALL)) * GROWTH
    small = draw(SMALL // 2)
    torch.mm(small, small.T)
    return before, statistics.fmean(milliseconds(product(LARGE)) for _ in range(CALLS))


def first_call() -> tuple[float, float]:
    """The first call of the process; then the same again: the library's handle, its kernels."""
    call = product(LARGE)
    return milliseconds(call), mean(warm(call))


def order() -> tuple[float, float]:
    """Five calls of one side, then five of the other, with nothing before them."""
    call = product(LARGE)
    return mean(call), mean(call)


def scaled() -> tuple[float, float]:
    """A warm call at the small size, eight times; then one at the large."""
    before = mean(warm(product(SMALL))) * GROWTH
    return before, mean(warm(product(LARGE)))


def unsynchronized() -> tuple[float, float]:
    """Until the GPU is done; then only until it is told what to do."""
    call = warm(product(LARGE))
    return mean(call), statistics.fmean(milliseconds(call, wait=False) for _ in range(CALLS))


def cold_clocks() -> tuple[float, float]:
    """One call after the GPU has rested; then one after it has worked."""
    call = warm(product(LARGE))
    time.sleep(REST)
    return milliseconds(call), milliseconds(warm(call, 1))


def allocator() -> tuple[float, float]:
    """Memory for the result from the driver each time; then from torch's cache."""
    call = warm(product(SMALL))
    cold = []
    for _ in range(CALLS):
        torch.cuda.empty_cache()
        cold.append(milliseconds(call))
    return statistics.fmean(cold), mean(warm(call))


def contents() -> tuple[float, float]:
    """Random numbers; then zeros, for which the chip needs less power."""
    x = draw(4 * LARGE).bfloat16()
    before = mean(warm(lambda: torch.mm(x, x), 1))
    x.zero_()
    return before, mean(warm(lambda: torch.mm(x, x), 1))


def precision() -> tuple[float, float]:
    """float32; then after anything in the process has allowed TF32."""
    call = product(LARGE)
    before = mean(warm(call))
    torch.set_float32_matmul_precision("high")
    after = mean(warm(call))
    torch.set_float32_matmul_precision("highest")
    return before, after


@dataclass(frozen=True)
class Trap:
    """A way of timing, by its function; `fresh`: each time in a process of its own."""

    name: str
    run: Callable[[], tuple[float, float]]
    fresh: bool


TRAPS: Final = (
    Trap("as published: first call at 2048, times 8, by warm 4096", published, fresh=True),
    Trap("first call of the process, by a warm one", first_call, fresh=True),
    Trap("five calls of one side, then five of the other", order, fresh=True),
    Trap("warm, but 2048 times 8 by 4096", scaled, fresh=False),
    Trap("one side synchronised, the other not", unsynchronized, fresh=False),
    Trap(f"after {REST} s of rest, by after 1 s of work", cold_clocks, fresh=False),
    Trap("memory from the driver, by memory from the cache", allocator, fresh=False),
    Trap("random numbers, by zeros (bfloat16, 16384)", contents, fresh=False),
    Trap("float32, by the same where TF32 was allowed", precision, fresh=False),
)


def child(names: list[str], rounds: int) -> list[list[tuple[float, float]]]:
    """Run some traps in a process of their own; for each, milliseconds before and after."""
    command = [sys.executable, __file__, "--rounds", str(rounds), "--run", *names]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{' '.join(names)} did not run:\n{done.stderr}")
    result: list[list[tuple[float, float]]] = json.loads(done.stdout.splitlines()[-1])
    return result


def print_trap(name: str, pairs: list[tuple[float, float]]) -> None:
    """Print the factor: the median, and the lowest to the highest."""
    factors = sorted(before / after for before, after in pairs)
    before, after = (statistics.median(side) for side in zip(*pairs, strict=True))
    spread = f"{factors[0]:.3g} to {factors[-1]:.3g}"
    factor = f"{statistics.median(factors):.3g}x ({spread})"
    print(f"  {name:56} {before:9.3f}  {after:9.3f}  {factor}", flush=True)


def own_ab(base: str, patched: str, at_least: float) -> str:
    """Say what contribbot's own A/B finds of two trees of one file each."""
    with tempfile.TemporaryDirectory() as folder:
        sides = []
        for name, work in (("base", base), ("patched tree", patched)):
            root = Path(folder, name)
            for part in ("checks", "tree", "home"):
                (root / part).mkdir(parents=True)
            (root / "checks/bench_it.py").write_text(BENCH, encoding="utf-8")
            (root / "tree/work.py").write_text(work, encoding="utf-8")
            path = os.pathsep.join([str(root / "tree"), *filter(None, sys.path)])
            env = {**STEADY, "PYTHONPATH": path, "HOME": str(root / "home")}
            env = process.clean_environment({**env, DEVICE_VARIABLE: "cuda"})
            sides.append(BenchSide(name, root / "checks", env, root / "log"))
        claim = Claim(at_least, None, rounds=9)
        cores = len(os.sched_getaffinity(0))
        both = sides[0], sides[1]
        result = measure("bench_it.py", "", claim, both, timeout=240, cores=cores)
        said = [f"{case.info.name}: {case.ratio or case.text}" for case in result.cases]
        return "; ".join([*said, str(conclude(result, claim)[0]), result.trouble])


def quotients() -> dict[str, float]:
    """Divide the published times by each other, as published and otherwise."""
    return {
        "2048, no patch, times 8, by 4096, patch, later calls": SMALL_MS * GROWTH / LATER_MS,
        "2048, no patch, times 8, by 4096, patch, first call": SMALL_MS * GROWTH / FIRST_MS,
        "4096, no patch, by 4096, patch, later calls": LARGE_MS / LATER_MS,
        "4096, patch, first call, by 4096, patch, later calls": FIRST_MS / LATER_MS,
        "4096, no patch, by 4096, patch, first call": LARGE_MS / FIRST_MS,
    }


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5, help="how often each row is measured")
    parser.add_argument("--run", nargs="+", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.rounds < 1:
        parser.error("--rounds is at least 1")
    if not arguments.run:
        print("the published times, divided")
        for name, quotient in quotients().items():
            print(f"  {name:56} {quotient:.3g}x")
    if not torch.cuda.is_available():
        raise SystemExit(f"torch {torch.__version__} sees no GPU here: nothing to measure")
    if arguments.run:
        traps = {trap.run.__name__: trap.run for trap in TRAPS}
        rounds = range(arguments.rounds)
        print(json.dumps([[traps[name]() for _ in rounds] for name in arguments.run]))
        return
    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}; the same code on both sides")
    print(f"  {'timed':56} {'before ms':>9}  {'after ms':>9}  speed-up (lowest to highest)")
    shared = [trap for trap in TRAPS if not trap.fresh]
    found = child([trap.run.__name__ for trap in shared], arguments.rounds)
    for trap, pairs in zip(shared, found, strict=True):
        print_trap(trap.name, pairs)
    for trap in TRAPS:
        if trap.fresh:
            pairs = [child([trap.run.__name__], 1)[0][0] for _ in range(arguments.rounds)]
            print_trap(trap.name, pairs)
    print("contribbot's A/B, the same code on both sides, 1.3 claimed:")
    print(f"  {own_ab(NOTHING, NOTHING, 1.3)}", flush=True)
    print("contribbot's A/B, one side allows TF32, 1.3 claimed:")
    print(f"  {own_ab(NOTHING, TF32, 1.3)}", flush=True)


if __name__ == "__main__":
    main()
