"""Triton's own language tests on emulated AMD GPUs: how many pass, and what stops the others.

    python -m benchmarks.triton_tests CHECKOUT [TARGET ...] [--cases 6] [--json FILE]

CHECKOUT is Triton's repository at the tag of the installed version. Of each test function at most
so many cases run; each stands for its share of those that were collected. What takes longer than
40 s is ended and counted apart: some tests try all 2^32 inputs.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import tempfile
from collections import Counter, defaultdict
from pathlib import Path

from contribbot.emulate import OUTCOMES, TARGETS, TargetRun, obstacles, run

FILES = (
    "core", "standard", "libdevice", "conversions", "random", "tuple", "block_pointer",
    "annotations", "mxfp", "matmul", "tensor_descriptor", "pipeliner",
)  # fmt: skip
FOLDER = "python/test/unit/language"


def sampled(
    files: list[str], target: str, *, cases: int, folder: Path, workers: int = 2
) -> tuple[TargetRun, dict[str, int]]:
    """Run a sample of the cases of test files; return what came of it, and how many there are."""
    with tempfile.TemporaryDirectory() as name:
        counts = Path(name) / "counts.json"
        here = str(Path(__file__).parent.parent)
        os.environ.update({
            "SAMPLED_CASES": str(cases), "SAMPLED_COUNTS": str(counts), "SAMPLED_SECONDS": "40",
            "PYTHONPATH": os.pathsep.join([here, os.environ.get("PYTHONPATH", "")]).strip(":"),
        })  # fmt: skip
        before = Path.cwd()
        os.chdir(folder)
        try:
            program = ["pytest", "-q", "-p", "benchmarks.sampled", "-p", "no:cacheprovider"]
            program += ["-n", str(workers), "--tb=no", "--no-header", "-W", "ignore", *files]
            target_run = run(program, [target], quiet=True).targets[0]
        finally:
            os.chdir(before)
        return target_run, json.loads(counts.read_text()) if counts.is_file() else {}


def function(test: str) -> str:
    """Return the function of a case."""
    return test.partition("[")[0]


def shown(run: TargetRun, counts: dict[str, int]) -> dict[str, object]:
    """Print a table by file, and what stopped tests; return both."""
    ran = Counter(function(row.test) for row in run.tests)
    weights = {name: counts.get(name, 1) / number for name, number in ran.items()}
    files = defaultdict[str, defaultdict[str, float]](lambda: defaultdict(float))
    for row in run.tests:
        name = Path(row.test.partition("::")[0]).name
        came_to: str = "too long" if row.said.startswith("TimeoutError") else row.outcome
        weight = weights[function(row.test)]
        for key in (name, "all"):
            files[key][came_to] += 1
            files[key][f"weighted {came_to}"] += weight
            files[key]["collected"] += weight
    print(f"\n{run.target}: {run.seconds:.0f} s")
    print(f"{'file':28}{'collected':>10}" + "".join(f"{name:>13}" for name in OUTCOMES) + "  share")
    table = dict[str, dict[str, float]]()
    for name, found in files.items():
        tried = sum(found[f"weighted {each}"] for each in OUTCOMES
                    if each not in {"skipped", "too long"})  # fmt: skip
        share = found["weighted passed"] / tried if tried else 1.0
        cells = "".join(f"{found[each]:13.0f}" for each in OUTCOMES)
        print(f"{name:28}{found['collected']:10.0f}{cells}  {share:.2%}")
        table[name] = {**{each: found[each] for each in OUTCOMES},
                       "collected": round(found["collected"]), "share": share}  # fmt: skip
    times = sorted(row.seconds for row in run.tests if row.outcome == "passed")
    if times:
        print(f"seconds of a test: median {statistics.median(times):.2f}, "
              f"90th percentile {times[len(times) * 9 // 10]:.2f}")  # fmt: skip
    stops = [*obstacles(run)]
    for outcome, said, number in stops:
        print(f"  {number:4} {outcome}: {said}")
    failed = [(row.test, row.said) for row in run.tests if row.outcome == "failed"]
    for test, said in failed:
        print(f"       failed: {test}: {said[:150]}")
    return {"table": table, "stops": stops, "failed": failed,
            "median": statistics.median(times) if times else None}  # fmt: skip


def main() -> None:
    """Run the files on each target."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("checkout", type=Path)
    parser.add_argument("targets", nargs="*", default=[*TARGETS])
    parser.add_argument("--cases", type=int, default=6)
    parser.add_argument("--files", default=",".join(FILES))
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    files = [f"{FOLDER}/test_{name}.py" for name in options.files.split(",")]
    results = {}
    for target in options.targets:
        run, counts = sampled(files, target, cases=options.cases, folder=options.checkout)
        results[target] = shown(run, counts)
        if run.error:
            print(run.error)
    if options.json:
        options.json.write_text(json.dumps(results, indent=1), encoding="utf-8")


if __name__ == "__main__":
    main()
