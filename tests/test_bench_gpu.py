"""Measuring on a real GPU, where there is one."""

from __future__ import annotations

import functools
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from contribbot import process
from contribbot.bench import DEVICE_VARIABLE
from contribbot.bench.session import BenchSide, measure
from contribbot.bench.verdict import BenchResult, Claim, case_record, conclude
from contribbot.model.evidence import Outcome
from tests.conftest import dig

BENCH = """\
import torch
from contribbot import bench
import tree

ROWS = 2**26


def inputs(count):
    return lambda: (torch.randn(count, device=bench.device()),)


def copies(x):
    for _ in range(tree.TIMES):
        y = x.clone()
    return y


def keeps(x):
    kept = [x.clone() for _ in range(tree.TIMES)]
    return kept[-1]


def many(x):
    for _ in range(8 * tree.TIMES**4):
        x = x + 1
    return x


def faulty(x):
    place = torch.full((1,), 2**40 if tree.TIMES == 1 else 0, device="cuda")
    return x[place]


def cases():
    yield bench.Case("large copy", inputs(ROWS), copies, bytes_moved=2 * 4 * ROWS)
    yield bench.Case("small copy", inputs(2**16), copies, bytes_moved=2 * 4 * 2**16)
    yield bench.Case("kept", inputs(ROWS), keeps)
    yield bench.Case("faulty", inputs(1), faulty)
    yield bench.Case("captured", inputs(2**16), many, graph=True)
    yield bench.Case("waiting", inputs(2**16), lambda x: x * x.sum().item(), graph=True)
"""


@functools.cache
def torch_sees_a_gpu() -> bool:
    """Ask in another process: a driver writes into HOME where it is used."""
    if shutil.which("nvidia-smi") is None and shutil.which("rocminfo") is None:
        return False
    code = "import sys, torch; sys.exit(not torch.cuda.is_available())"
    with tempfile.TemporaryDirectory() as home:
        env = {**os.environ, "HOME": home}
        return subprocess.run([sys.executable, "-c", code], env=env, check=False).returncode == 0


@pytest.fixture(autouse=True)
def _gpu() -> None:
    """Skip without a GPU that torch sees."""
    if not torch_sees_a_gpu():
        pytest.skip("no GPU that torch sees on this machine")


def run(
    folder: Path,
    cases: str,
    *,
    at_least: float = 0.01,
    memory: float | None = None,
) -> tuple[BenchResult, Outcome, str]:
    """Measure; the base does everything twice, the patched tree once."""
    sides = []
    for name, times in (("base", 2), ("patched tree", 1)):
        root = folder / name.partition(" ")[0]
        for part in ("checks", "tree", "home"):
            (root / part).mkdir(parents=True)
        (root / "tree/tree.py").write_text(f"TIMES = {times}\n")
        (root / "checks/bench_it.py").write_text(BENCH)
        env = {
            "PYTHONPATH": f"{root / 'tree'}",
            DEVICE_VARIABLE: "cuda",
            "HOME": str(root / "home"),
        }
        sides.append(BenchSide(name, root / "checks", process.clean_environment(env), root / "log"))
    claim = Claim(at_least, memory, 6)
    result = measure("bench_it.py", cases, claim, (sides[0], sides[1]), timeout=300)
    outcome, reason, _ = conclude(result, claim)
    return result, outcome, reason


def test_bytes_a_second_of_copies(tmp_path: Path) -> None:
    result, outcome, reason = run(tmp_path, "copy", at_least=0.9)

    assert outcome is Outcome.PASSED, reason
    twice = result.cases[0].ratio
    assert twice is not None
    assert 1.5 < twice.low <= twice.high < 2.5
    large, small = (case_record(case) for case in result.cases)
    rate = dig(large, "patched", "bytes_per_second")
    assert isinstance(rate, float)
    assert 1e10 < rate < 1e14
    assert dig(large, "patched", "input_sets") == 1
    sets = dig(small, "patched", "input_sets")
    assert isinstance(sets, int)
    assert sets > 1
    # A launch takes longer than so small a copy does.
    assert result.cases[1].called is not None
    assert dig(small, "called_ratio", "low")
    assert dig(large, "called_ratio") is None


def test_what_is_captured_is_measured_without_its_launches(tmp_path: Path) -> None:
    result, outcome, reason = run(tmp_path, "captured")
    assert outcome is Outcome.PASSED, reason
    (case,) = result.cases
    assert case.ratio is not None
    assert case.ratio.low > 4
    base = dig(case_record(case), "base")
    assert dig(base, "called_seconds") > 1.5 * dig(base, "seconds")  # type: ignore[operator]  # numbers


def test_peak_memory_is_measured_without_the_inputs(tmp_path: Path) -> None:
    result, outcome, reason = run(tmp_path, "kept", memory=0.5)
    assert outcome is Outcome.PASSED, reason
    (case,) = result.cases
    assert (case.base.memory, case.patched.memory) == (2 * 2**28, 2**28)
    assert run(tmp_path / "again", "kept", memory=0.4)[1] is Outcome.FAILED


@pytest.mark.parametrize(
    ("case", "said"),
    [
        ("faulty", "faulty: on the patched tree: "),
        ("waiting", "waiting: on the base: AcceleratorError: CUDA error: operation failed due "),
    ],
)
def test_what_is_wrong_on_the_device_is_the_trees(tmp_path: Path, case: str, said: str) -> None:
    result, outcome, reason = run(tmp_path, case)
    assert outcome is Outcome.FAILED
    assert reason.startswith(said)
    assert not result.cases[0].ratios
