"""Bench against itself: how often the intervals of sessions agree, in one run of this script.

A session is a whole `measure`, with processes of its own. Its cases `same` run the same code on
both sides, so the true ratio is 1; in `other` the base does work of another kind, too (matrix
products beside memory), which is what a session's clocks and heat change. Wanted: of the intervals
of `same` at most 1 in 20 exclude 1, and in 19 of 20 cases two sessions that follow each other
touch. With `--keep FILE` the sessions of earlier runs count, too: hours or a restart lie between.
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import os
import statistics
import tempfile
import time
from pathlib import Path

from contribbot import process
from contribbot.bench import DEVICE_VARIABLE
from contribbot.bench.session import BenchSide, measure
from contribbot.bench.verdict import SESSIONS, Claim, pair_ratios, spread
from contribbot.verify.stages.bench import STEADY

BENCH = """\
import torch
from contribbot import bench
from kernel import norm, other

GPU = bench.device() == "cuda"
SHAPES = ((16, 4096), (2048, 4096), (16384, 4096)) if GPU else ((16, 256), (64, 1024))

def cases():
    for rows, width in SHAPES:
        def prepare(rows=rows, width=width):
            x = torch.randn(rows, width, device=bench.device())
            return x, torch.randn(width, width, device=bench.device())
        yield bench.Case(f"same {rows}", prepare, norm)
        yield bench.Case(f"other {rows}", prepare, other)
"""
NORM = """\
def norm(x, weight):
    return x * (x.square().mean(-1, keepdim=True) + 1e-6).rsqrt() * weight[0]

"""
PATCHED = NORM + "other = norm\n"
BASE = NORM + "def other(x, weight):\n    x @ weight\n    return norm(x, weight)\n"
#: Of each case the ratios of the pairs of one session.
Session = dict[str, list[float]]


def session(device: str) -> Session:
    """Measure the two trees, which hold one module each."""
    with tempfile.TemporaryDirectory() as folder:
        sides = []
        for name, kernel in (("base", BASE), ("patched tree", PATCHED)):
            root = Path(folder, name)
            for part in ("checks", "tree", "home"):
                (root / part).mkdir(parents=True)
            (root / "checks/bench_it.py").write_text(BENCH, encoding="utf-8")
            (root / "tree/kernel.py").write_text(kernel, encoding="utf-8")
            python = os.pathsep.join(filter(None, (str(root / "tree"), process.own_path())))
            env = {"PYTHONPATH": python, "HOME": str(root / "home"), DEVICE_VARIABLE: device}
            env |= {**STEADY, "OMP_NUM_THREADS": "1"}
            checks, log = root / "checks", root / "log"
            sides.append(BenchSide(name, checks, process.clean_environment(env), log))
        cores = len(os.sched_getaffinity(0))
        claim = Claim(at_least=0.1, memory_at_most=None, rounds=9)
        result = measure("bench_it.py", "", claim, (sides[0], sides[1]), timeout=600, cores=cores)
        if result.trouble:
            raise SystemExit(f"{result.trouble}\n{sides[0].log.read_text()[-2000:]}")
        found = {case.info.name: case.ratios for case in result.cases}
        for case in result.cases:
            if case.base.called and all(case.base.called + case.patched.called):
                called = pair_ratios(case.base.called, case.patched.called)
                found[f"{case.info.name} as a program calls it"] = called
        return found


def show(sessions: list[Session]) -> None:
    """Print how often intervals touch and hold 1, as they are and without what sessions add."""
    names = [name for name in sessions[0] if all(name in each for each in sessions)]
    for what, widen in (("with", True), ("without", False)):
        near = held = same = pairs = 0
        for name in names:
            found = [spread(each[name]) for each in sessions]
            found = [each.over_sessions() for each in found] if widen else found
            touch = [a.low <= b.high and b.low <= a.high for a, b in itertools.pairwise(found)]
            near, pairs = near + sum(touch), pairs + len(touch)
            if name.startswith("same"):
                held, same = held + sum(each.is_noise for each in found), same + len(found)
        print(
            f"  {what} the {SESSIONS:.0%} for sessions: {near} of {pairs} neighbours touch; "
            f"of the same code {same - held} of {same} exclude 1"
        )
    for name in names:
        logs = [[math.log(ratio) for ratio in each[name]] for each in sessions]
        # The variance of a median of normal values is pi / 2 times that of their mean.
        within = [math.pi / 2 * statistics.variance(each) / len(each) for each in logs]
        between = statistics.variance([statistics.median(each) for each in logs])
        more = math.sqrt(max(0.0, between - statistics.mean(within)))
        noise = math.sqrt(statistics.mean(within))
        print(f"  {name}: sessions' medians differ by {more:.2%} beyond their noise of {noise:.2%}")


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--seconds", type=float, default=math.inf, help="begin no session later")
    parser.add_argument("--keep", type=Path, help="sessions as lines of JSON, read and added to")
    arguments = parser.parse_args()
    sessions: list[Session] = []
    if arguments.keep and arguments.keep.exists():
        sessions += map(json.loads, arguments.keep.read_text().splitlines())
    started = time.monotonic()
    print(f"load {os.getloadavg()[0]:.1f} on {len(os.sched_getaffinity(0))} cores")
    for number in range(1, arguments.runs + 1):
        sessions.append(session(arguments.device))
        if arguments.keep:
            with arguments.keep.open("a") as file:
                file.write(json.dumps(sessions[-1]) + "\n")
        medians = [f"{name} {spread(ratios)}" for name, ratios in sessions[-1].items()]
        spent = time.monotonic() - started
        print(f"  {spent:.0f} s: {'; '.join(medians)}", flush=True)
        if spent * (number + 1) / number > arguments.seconds:
            break
    if len(sessions) > 1:
        show(sessions)


if __name__ == "__main__":
    main()
