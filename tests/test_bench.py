"""Measuring two sides in turns: real children, real work, and everything that can go wrong."""

from __future__ import annotations

import itertools
import re
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

import pytest
import torch

from contribbot import process
from contribbot.bench.child import alike, is_input
from contribbot.bench.session import BenchSide, measure
from contribbot.bench.verdict import BenchResult, CaseResult, Claim, conclude
from contribbot.errors import MachineError
from contribbot.model.evidence import Outcome
from contribbot.model.record import CaseVerdict
from tests.conftest import until

#: Work takes time in proportion; which side this is stands in `tree`.
HEAD = """\
import os
import time

import tree  # the trees differ in it
from contribbot import bench


def work(amount):
    total = 0
    for number in range(amount):
        total += number * number
    return total > 0


"""
#: Far apart: other programs may take most of the machine while these tests run.
LIGHT, HEAVY = 4_000, 120_000
ONE = """\
def cases():
    yield bench.Case("work", prepare=tuple, run=lambda: work(tree.AMOUNT))
"""


@dataclass
class Sides:
    root: Path

    def put(self, body: str, *, base: str = "", patched: str = "") -> None:
        for name, text in (("base", base), ("patched", patched)):
            for folder in ("tree", "checks", "home"):
                (self.root / name / folder).mkdir(parents=True, exist_ok=True)
            module = f"SIDE = {name!r}\nAMOUNT = {LIGHT}\n{text}\n"
            (self.root / name / "tree/tree.py").write_text(module)
            (self.root / name / "checks/bench_it.py").write_text(HEAD + textwrap.dedent(body))

    def run(self, run: str, before: str = "", **sides: str) -> None:
        self.put(
            f"{before}\ndef cases():\n    yield bench.Case('it', tuple, lambda: {run})", **sides
        )

    def side(self, title: str, more: Mapping[str, str]) -> BenchSide:
        root = self.root / title.split(maxsplit=1)[0]
        variables = {"PYTHONPATH": f"{root}/tree", "HOME": f"{root}/home", "MARK": str(self.root)}
        env = process.clean_environment({**variables, "PYTHONUNBUFFERED": "1", **more})
        return BenchSide(title, root / "checks", env, root / "log")

    def measure(
        self, claim: float = 0.1, *, cases: str = "", rounds: int = 6,
        memory: float | None = None, timeout: float = 60, cores: int = 1,
        env: Mapping[str, str] = MappingProxyType({}),
    ) -> tuple[BenchResult, Outcome, str, bool]:  # fmt: skip
        stated = Claim(claim, memory, rounds)
        both = self.side("base", env), self.side("patched tree", env)
        result = measure("bench_it.py", cases, stated, both, timeout=timeout, cores=cores)
        return (result, *conclude(result, stated))


@pytest.fixture
def sides(tmp_path: Path) -> Sides:
    return Sides(tmp_path / "it")


def only(result: BenchResult) -> CaseResult:
    (case,) = result.cases
    return case


def assert_gone(pid: int) -> None:
    assert until(lambda: not running(pid), 10), f"{pid} is still there"


def running(pid: int) -> bool:
    """Tell whether a process is there, and not merely waits for its parent to notice its end."""
    try:
        status = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False
    return status.rpartition(")")[2].split()[0] not in {"Z", "X"}


X, Y = torch.arange(6.0), [3, 1, 2]


@pytest.mark.parametrize(
    ("value", "inputs", "again"),
    [
        (None, (X,), True),
        (X, (X, 2), True),
        ([X, {"x": X, "y": Y}], (X, Y), True),
        ((X, Y), (X, Y), True),
        (sorted(Y), (Y,), False),
        (X.clone(), (X, 2), False),
        (X * 2, (X,), False),
        ([X, X.sum()], (X,), False),
        ("text", (X, "other"), False),
        (True, (X, Y), False),
    ],
)
def test_an_input_is_no_result(value: object, inputs: tuple[object, ...], *, again: bool) -> None:
    assert is_input(value, inputs) is again


@pytest.mark.parametrize(
    ("value", "other", "same"),
    [
        (X, X + 1e-7, True),
        (X, X + 1e-2, False),
        ({"x": [X, 1]}, {"x": [X.clone(), 1]}, True),
        (X, X.double(), False),
        (X[:2], X, False),
        ("text", "text", True),
        (X, "text", False),
        (float("nan"), float("nan"), True),
    ],
)
def test_results_are_compared_as_torch_does(value: object, other: object, *, same: bool) -> None:
    assert alike(value, other) is same


@pytest.mark.parametrize(
    ("claim", "work", "outcome", "said"),
    [
        pytest.param(
            2.0, {"base": f"AMOUNT = {HEAVY}"}, Outcome.PASSED,
            r"1 case: [\d.]+x \([\d.]+ to [\d.]+\) the base's speed; at least 2 is claimed"
            ", with the same results",
            marks=pytest.mark.slow),
        (0.5, {"patched": f"AMOUNT = {HEAVY}"}, Outcome.FAILED,
         r"work: 0\.0.* the base's speed, and at least 0\.5 is claimed"),
    ],
)  # fmt: skip
def test_less_work_meets_a_claim_and_more_work_breaks_one(
    sides: Sides, claim: float, work: dict[str, str], outcome: Outcome, said: str
) -> None:
    sides.put(ONE, **work)
    result, actual, reason, lasting = sides.measure(claim)
    assert (actual, lasting) == (outcome, True), reason
    assert re.fullmatch(said, reason), reason
    ratio = only(result).ratio
    assert ratio is not None
    assert (ratio.low > claim) is (outcome is Outcome.PASSED)
    assert ratio.low <= ratio.median <= ratio.high
    assert ratio.confidence >= 0.95
    # Fewer pairs have no interval.
    assert len(only(result).ratios) == 6


@pytest.mark.slow
def test_the_sides_take_turns_and_change_who_goes_first(sides: Sides) -> None:
    body = """
        from pathlib import Path
        last = 0.0
        pair = os.environ["PYTHONHASHSEED"]

        def run(amount):
            global last
            if time.monotonic() - last > 0.03:  # the other side has measured since
                with Path(os.environ["MARK"], pair).open("a") as file:
                    file.write(tree.SIDE[0])
            last = time.monotonic()
            result = work(amount)
            last = time.monotonic()
            return result

        def cases():
            yield bench.Case("work", prepare=lambda: (4_000,), run=run)
    """
    sides.put(body)

    result, _, _, _ = sides.measure(0.01, rounds=24)

    assert [len(rounds) for rounds in only(result).base.seconds] == [4] * 6
    for pair in range(1, 7):
        turns = re.sub(r"(.)\1+", r"\1", (sides.root / f"{pair}").read_text())
        # base patched | patched base | base patched | …; two turns of one side are one here, so
        # four rounds are five turns, and up to two come before them, when the inputs are made.
        # Always the same first would be eight turns.
        assert 5 <= len(turns) <= 7, (pair, turns)
    assert sorted(path.name for path in sides.root.glob("[0-9]*")) == [f"{n}" for n in range(1, 7)]


@pytest.mark.slow
def test_a_spread_that_exceeds_the_claim_is_no_verdict(sides: Sides) -> None:
    # Which side has more to do changes from pair to pair.
    sides.run(
        "[work(100_000) for _ in range(4 if odd == (tree.SIDE == 'base') else 1)][0]",
        "odd = int(os.environ['PYTHONHASHSEED']) % 2 == 1",
    )
    result, outcome, reason, lasting = sides.measure(1.0, rounds=6)
    assert (outcome, lasting) == (Outcome.UNAVAILABLE, False), reason
    assert re.match(
        r"it: too noisy to tell: 0\.\d+ to [\d.]+ against a claim of 1 after 18 pairs of "
        r"processes; run it again with nothing else running here", reason,
    ), reason  # fmt: skip
    assert only(result).verdict is CaseVerdict.UNDECIDED
    assert len(only(result).base.seconds) == len(only(result).patched.seconds) == 18


def test_a_crash_fails_and_names_case_and_side(sides: Sides) -> None:
    sides.put(
        """
        def run(amount):
            if tree.SIDE == "patched" and os.environ["PYTHONHASHSEED"] == "2":
                os.kill(os.getpid(), 11)
            return work(amount)

        def cases():
            yield bench.Case("fine", prepare=lambda: (4_000,), run=work)
            yield bench.Case("crashing", prepare=lambda: (4_000,), run=run)
            yield bench.Case("later", prepare=lambda: (4_000,), run=work)
        """
    )

    result, outcome, reason, lasting = sides.measure()

    assert (outcome, lasting) == (Outcome.FAILED, False)
    assert reason == "crashing: on the patched tree: crashed: SIGSEGV (2 cases not measured)"
    assert [case.verdict for case in result.cases] == [
        CaseVerdict.UNAVAILABLE, CaseVerdict.FAILED, CaseVerdict.UNAVAILABLE,
    ]  # fmt: skip
    # What was measured before stands in the record.
    assert len(result.cases[0].ratios) == 2


@pytest.mark.parametrize(
    ("run", "said"),
    [
        # A program that it has started may keep its pipe open.
        ("os.fork() and os.kill(os.getpid(), 11) or time.sleep(600)", "crashed: SIGSEGV"),
        ("os._exit(0)", "ended early with exit status 0"),
        (r"os.write(2, b'a\nno\n') and os._exit(1)", "ended early with exit status 1: no"),
        ("time.sleep(600)", "hung, or the bench's timeout is too short: no answer in time"),
    ],
)
def test_a_child_that_ends_leaves_nothing_behind(sides: Sides, run: str, said: str) -> None:
    note = "open(os.environ['MARK'] + '/pids', 'w').write(f'{os.getpid()} {helper.pid}')"
    sides.run(
        f"{note} and {run} if tree.SIDE == 'patched' else 1",
        "import subprocess\nhelper = subprocess.Popen(['sleep', '600'])",
    )
    started = time.monotonic()
    _, outcome, reason, lasting = sides.measure(timeout=5 if said.startswith("hung") else 60)
    assert (outcome, reason) == (Outcome.FAILED, f"it: on the patched tree: {said}")
    assert not lasting
    assert time.monotonic() - started < 40
    for pid in (sides.root / "pids").read_text().split():
        assert_gone(int(pid))


def test_what_a_file_prints_goes_to_the_log_and_disturbs_nothing(sides: Sides) -> None:
    sides.run(
        r"os.write(1, b'\xff{}\n') and os.write(2, b'loud\n') and work(tree.AMOUNT)",
        """print('{"error": "not from me", "kind": "error"}')""",
    )
    _, outcome, reason, _ = sides.measure()
    assert outcome is Outcome.PASSED, reason
    written = (sides.root / "base/log").read_bytes()
    assert b"not from me" in written
    assert b"loud" in written


RAISING = """
    class OutOfMemoryError(RuntimeError):
        "Named as torch's is."

    def run():
        if tree.SIDE in {sides!r}:
            raise {error}
        return work(4_000)

    def cases():
        yield bench.Case("first", prepare=lambda: (4_000,), run=work)
        yield bench.Case("raising", prepare=tuple, run=run)
        yield bench.Case("third", prepare=lambda: (4_000,), run=work)
"""
BOTH = ("base", "patched")
FULL = "OutOfMemoryError('CUDA out of memory. Tried')"
GONE = "RuntimeError('HIP error: no ROCm-capable device is detected')"
FAULT = "RuntimeError('HIP error: an illegal memory access was encountered')"
SLOW = pytest.mark.slow


@pytest.mark.parametrize(
    ("where", "error", "outcome", "said"),
    [
        (BOTH[1:], "ValueError('no')", "failed", "fails on the patched tree only: ValueError: no"),
        pytest.param(BOTH[:1], "SystemExit(3)", "failed",
                     "fails on the base only: SystemExit: 3", marks=SLOW),
        pytest.param(BOTH[1:], FULL, "unavailable", "not enough memory on this machine: "
                     "OutOfMemoryError: CUDA out of memory. Tried", marks=SLOW),
        pytest.param(BOTH, FULL, "unavailable", "not enough memory on this machine: "
                     "OutOfMemoryError: CUDA out of memory. Tried", marks=SLOW),
        # What ends a child ends the bench.
        (BOTH[:1], GONE, "unavailable", "on the base: RuntimeError: HIP error: no ROCm-capable"),
        (BOTH[1:], FAULT, "failed", "on the patched tree: RuntimeError: HIP error: an illegal"),
    ],
)  # fmt: skip
def test_what_raises_is_the_cases_own_trouble(
    sides: Sides, where: tuple[str, ...], error: str, outcome: str, said: str
) -> None:
    sides.put(RAISING.format(sides=where, error=error))
    result, actual, reason, lasting = sides.measure()
    ends = error in {GONE, FAULT}
    assert reason.startswith(f"raising: {said}")
    assert reason.endswith(" (2 cases not measured)") is ends
    assert str(actual) == outcome
    assert lasting is (outcome == "failed" and not ends)
    # What this machine lacks leaves the other cases.
    pairs = 6 if error == FULL else 1
    assert len(result.cases[0].ratios) == pairs


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("import tree.deep", "cannot be loaded on the base: ModuleNotFoundError"),
        ("def cases():\n    yield 3", "cannot be loaded on the base: TypeError: cases() gave a"),
        ("def cases():\n    return iter(())", "no case: the file has none"),
        ("def cases():\n    for _ in range(2):\n        yield bench.Case('a', tuple, work)",
         "cannot be loaded on the base: ValueError: cases() gave two cases with the name a"),
        ("def cases():\n    yield bench.Case(tree.SIDE, tuple, work)",
         "the case base is not there on the patched tree"),
        ("def cases():\n    yield bench.Case('a', tuple, work, bytes_moved=1 + len(tree.SIDE))",
         "the case a is described otherwise on the patched tree"),
        ("def cases():\n    yield bench.Case('a', tuple, work, flops=10**400)",
         "cannot be loaded on the base: its answer makes no sense: cases.0.flops"),
        ("def cases():\n    yield bench.Case('a', lambda: [1], work)",
         "a: fails on both sides: TypeError: prepare() gave a list, not a tuple"),
        ("def cases():\n    yield bench.Case('b', tuple, work)",
         "no case matches '^a': the file has b"),
        ("def cases():\n    yield bench.Case('a', tuple, lambda: work(9))",
         "a: memory_at_most: memory is measured on a GPU only"),
    ],
)  # fmt: skip
def test_a_file_that_cannot_be_compared_fails(sides: Sides, body: str, said: str) -> None:
    sides.put(body)
    _, outcome, reason, _ = sides.measure(cases="^a" if "'b'" in body else "", memory=2.0)
    # What cannot be loaded says nothing of the patch.
    broken = said.startswith("cannot be loaded")
    assert outcome is (Outcome.UNAVAILABLE if broken else Outcome.FAILED)
    assert reason.startswith(said), reason


def test_nothing_outlives_a_killed_parent(sides: Sides) -> None:
    sides.run(
        "note.write_text(f'{os.getpid()} {helper.pid}') and tree.SIDE == 'base' or time.sleep(600)",
        "import subprocess, pathlib\nhelper = subprocess.Popen(['sleep', '600'])\n"
        "note = pathlib.Path(os.environ['MARK'], tree.SIDE + '.pid')",
    )
    script = (
        "import sys; from pathlib import Path; from tests.test_bench import Sides; "
        "Sides(Path(sys.argv[1])).measure()"
    )
    parent = subprocess.Popen(
        [sys.executable, "-c", script, str(sides.root)], cwd=Path(__file__).parent.parent
    )
    pids = [sides.root / "base.pid", sides.root / "patched.pid"]
    assert until(lambda: all(path.is_file() and path.read_text() for path in pids))
    parent.kill()
    parent.wait()

    for path in pids:
        for pid in path.read_text().split():
            assert_gone(int(pid))


def test_an_interruption_ends_the_children_at_once(sides: Sides) -> None:
    sides.run("time.sleep(600)")
    timer = threading.Timer(2, process.stop)
    timer.start()
    started = time.monotonic()
    try:
        with pytest.raises(MachineError, match="interrupted"):
            sides.measure()
    finally:
        timer.join()
        process.resume()
    assert time.monotonic() - started < 20


def test_a_timeout_between_pairs_leaves_it_open(sides: Sides) -> None:
    sides.run("1", "time.sleep(2.5)")
    result, outcome, reason, lasting = sides.measure(timeout=10)
    assert (outcome, lasting, result.too_noisy) == (Outcome.UNAVAILABLE, False, False)
    assert re.fullmatch(
        r"it: the timeout left time for only [1-5] of 6 pairs of processes: raise `timeout`", reason
    ), reason


def test_pairs_load_side_by_side_and_are_measured_in_turns(sides: Sides) -> None:
    before = """
        from pathlib import Path
        def note(what):
            with Path(os.environ["MARK"], "notes").open("a") as file:
                return file.write(f"{what}{os.environ['PYTHONHASHSEED']} ")

        note("load")
    """
    sides.run("note('run') and work(200_000)", textwrap.dedent(before))
    result, *_ = sides.measure(0.01, cores=12)
    assert len(only(result).ratios) == 6
    notes = (sides.root / "notes").read_text().split()
    assert "load7" not in notes  # nothing is left to be measured
    order = [name for name, _ in itertools.groupby(notes)]
    assert set(order[: order.index("run1")]) == {f"load{n}" for n in range(1, 7)}
    assert [name for name in order if name.startswith("run")] == [f"run{n}" for n in range(1, 7)]
