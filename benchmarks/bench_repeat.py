"""Bench against itself: how often the intervals of two runs agree, in one run of this script.

The same tree stands on both sides, so the true ratio is 1. Wanted on a quiet machine: the
intervals of two runs that follow each other overlap in 19 of 20 cases, and as many hold 1.
Beside it: the interval of the rounds of a single pair of processes. Then a patch that returns
zeros, which is never measured, and one that does less work, which is found to be faster.
"""

from __future__ import annotations

import argparse
import itertools
import os
import tempfile
import time
from pathlib import Path

from contribbot import process
from contribbot.bench.session import BenchSide, measure
from contribbot.bench.verdict import BenchResult, Claim, Spread, conclude, spread
from contribbot.verify.stages.bench import STEADY

PLAIN = """\
import random
from contribbot import bench

def prepare():
    return ([random.random() for _ in range(20_000)],)

def cases():
    yield bench.Case("sort", prepare, lambda values: sorted(values))
"""
TORCH = """\
import torch
from contribbot import bench
from kernel import run

def cases():
    def prepare():
        return torch.randn(256, 4096), torch.randn(4096)
    yield bench.Case("norm", prepare, run)
"""
SAME = """\
def run(x, weight):
    return x * (x.square().mean(-1, keepdim=True) + 1e-6).rsqrt() * weight
"""
ZEROS = "def run(x, weight):\n    return x.new_zeros(x.shape)\n"
#: The same result by more work.
SLOW = SAME.replace(
    "    return", "    x.square().mean(-1, keepdim=True), x * x * weight\n    return"
)


def run(
    bench: str, base: str, patched: str, *, at_least: float = 0.1, rounds: int = 9
) -> tuple[BenchResult, str]:
    """Measure two trees that hold one module each."""
    with tempfile.TemporaryDirectory() as folder:
        sides = []
        for name, kernel in (("base", base), ("patched tree", patched)):
            root = Path(folder, name)
            for part in ("checks", "tree", "home"):
                (root / part).mkdir(parents=True)
            (root / "checks/bench_it.py").write_text(bench, encoding="utf-8")
            (root / "tree/kernel.py").write_text(kernel, encoding="utf-8")
            env = {"PYTHONPATH": str(root / "tree"), "HOME": str(root / "home")}
            env |= {**STEADY, "OMP_NUM_THREADS": "1"}
            checks, log = root / "checks", root / "log"
            sides.append(BenchSide(name, checks, process.clean_environment(env), log))
        claim = Claim(at_least, None, rounds)
        result = measure("bench_it.py", "", claim, (sides[0], sides[1]), timeout=600)
        return result, conclude(result, claim)[1]


def agree(name: str, found: list[Spread]) -> None:
    """Print how many neighbours overlap and how many hold 1."""
    near = sum(
        one.low <= two.high and two.low <= one.high for one, two in itertools.pairwise(found)
    )
    held = sum(one.low <= 1 <= one.high for one in found)
    width = sorted(one.high - one.low for one in found)[len(found) // 2]
    print(
        f"  {name}: {near} of {len(found) - 1} neighbours overlap, "
        f"{held} of {len(found)} hold 1, median width {width:.3f}"
    )


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--bench", choices=("plain", "torch"), default="torch")
    parser.add_argument("--rounds", type=int, default=9, help="54: nine in each pair")
    arguments = parser.parse_args()
    bench = PLAIN if arguments.bench == "plain" else TORCH
    pairs, single = [], []
    started = time.monotonic()
    print(f"load {os.getloadavg()[0]:.1f} on {len(os.sched_getaffinity(0))} cores")
    for number in range(arguments.runs):
        (case,) = run(bench, SAME, SAME, rounds=arguments.rounds)[0].cases
        assert case.ratio is not None  # noqa: S101  measured
        pairs.append(case.ratio)
        rounds = zip(case.base.seconds[number % 6], case.patched.seconds[number % 6], strict=True)
        single.append(spread([base / patched for base, patched in rounds]))
        ratio = case.ratio
        print(f"  {ratio.median:.3f} ({ratio.low:.3f} to {ratio.high:.3f})", flush=True)
    seconds = (time.monotonic() - started) / arguments.runs
    agree(f"{seconds:.1f} s a run, pairs of processes", pairs)
    alone = len(case.base.seconds[0])
    agree(f"the {alone} rounds of one pair of processes alone", single)
    print(f"  zeros: {run(TORCH, SAME, ZEROS)[1]}")
    print(f"  less work, 1.3 claimed: {run(TORCH, SLOW, SAME, at_least=1.3)[1]}")


if __name__ == "__main__":
    main()
