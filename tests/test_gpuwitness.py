"""Whether the kernels that a check is about ran at all."""

from __future__ import annotations

from pathlib import Path

import pytest
from pydantic import ValidationError

from contribbot.model.checks import Check
from contribbot.model.evidence import Outcome
from contribbot.model.patch import PatchFile
from contribbot.queue.load import load_queue
from contribbot.verify.check import judge_kernels, kernel_details
from contribbot.verify.job import RunLayout
from contribbot.verify.pytest_run import CheckRun, run_check
from contribbot.verify.stages.base import Finding
from tests.conftest import Program
from tests.test_bench_gpu import torch_sees_a_gpu
from tests.toy import Toy, one_check

OPERATOR = """\
import pytest
import torch


@torch.library.custom_op("toy::area", mutates_args=())
def area(sides: torch.Tensor) -> torch.Tensor:
    return sides.sum().reshape(1)


@pytest.fixture
def sides():
    return torch.tensor([2.0, 3.0]).{move}


@pytest.mark.parametrize("times", [1, 2])
def test_area(sides, times):
    for _ in range(times):
        assert area(sides).item() == 5
"""
NO_TORCH = "def test_area():\n    assert True\n"
TOOL = "import subprocess\n\n\ndef test_area():\n    subprocess.run(['uname'], check=True)\n"
#: torch has one profiler a process.
OWN_PROFILER = """\
import torch
from torch.profiler import ProfilerActivity, profile


def test_area():
    with profile(activities=[ProfilerActivity.CPU]) as taken:
        torch.ones(3).sum()
    assert taken.events()


def test_after():
    torch.ones(3).prod()
"""
DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.skipif(
    not torch_sees_a_gpu(), reason="needs a GPU that torch can use"
))]  # fmt: skip


def run(folder: Path, text: str, kernels: tuple[str, ...], target: str = "cpu") -> CheckRun:
    """Run a check with its kernels counted; on a processor these are torch's operators."""
    check = Check(
        name="area", file="test_area.py", expect="pass-to-pass", requires=(target,)
    ).model_copy(update={"kernels": kernels})
    folder.mkdir(exist_ok=True)
    where = RunLayout(tree=folder, python=(), witnessed={}, env={})
    return run_check(
        check, [PatchFile("test_area.py", text.encode())], place=where, env={}, threads=1,
        folder=folder, logs=folder.parent / "logs",
    )  # fmt: skip


def judged(seen: CheckRun, kernels: tuple[str, ...]) -> Finding:
    """Return what the witness finds when a run was the one on the patched tree."""
    check = Check(name="area", file="test_area.py", expect="pass-to-pass")
    stated = check.model_copy(update={"kernels": kernels})
    told = kernel_details(stated, seen, seen)["kernels"]
    assert isinstance(told, dict)
    return judge_kernels(told)


@pytest.mark.parametrize("device", DEVICES)
def test_what_ran_is_seen_by_name_and_counted(tmp_path: Path, device: str) -> None:
    name = "toy::area" if device == "cpu" else "reduce_kernel"
    done = run(tmp_path / "run", OPERATOR.format(move=f"to('{device}')"), (name,), device)
    assert not done.kind, done.tail
    assert len(done.passed) == 2
    assert sum(count for kernel, count in done.kernels.seen.items() if name in kernel) == 3

    found = judged(done, (name,))
    assert found.outcome is Outcome.PASSED
    assert name in found.reason

    never = judged(done, (name, "per_token_group_quant"))
    assert never.outcome is Outcome.FAILED
    assert never.reason.startswith(
        "the patched kernel never ran: no name holds 'per_token_group_quant'; "
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    ("text", "kernel", "target", "outcome", "said"),
    [
        (NO_TORCH, "toy::area", "cpu", "failed", "no name holds 'toy::area'; none did"),
        # A compiler that a check starts runs no kernel.
        (TOOL, "toy::area", "cpu", "failed", "no name holds 'toy::area'; none did"),
        pytest.param(
            NO_TORCH, "quant", "cuda", "unavailable", "torch's profiler sees no kernel here: ",
            marks=pytest.mark.skipif(torch_sees_a_gpu(), reason="needs a torch that sees no GPU"),
        ),
        # What ran while a check used its own profiler was the check's to see, so nobody can say
        # that it never ran; what ran after it is seen.
        (OWN_PROFILER, "aten::sum", "cpu", "unavailable", "a test has a profiler of its own"),
        (OWN_PROFILER, "aten::prod", "cpu", "passed", "ran as stated: aten::prod"),
    ],
)  # fmt: skip
def test_what_no_run_has_shown(
    tmp_path: Path, text: str, kernel: str, target: str, *, outcome: str, said: str
) -> None:
    done = run(tmp_path / "run", text, (kernel,), target)
    assert not done.kind, done.tail
    finding = judged(done, (kernel,))
    assert (finding.outcome, said in finding.reason) == (outcome, True), finding.reason
    assert finding.lasting is (outcome != "unavailable")


@pytest.mark.slow
@pytest.mark.parametrize(
    "start",
    [
        "subprocess.run([sys.executable, '-c', ''], check=True)",
        "os.waitpid(os.posix_spawn('/bin/true', ['true'], {}), 0)",
        "os.waitpid(os.fork() or os._exit(0), 0)",
        "spawned()",
    ],
)
def test_what_may_have_run_in_another_process_is_neither_passed_nor_failed(
    tmp_path: Path, start: str
) -> None:
    text = (
        "import multiprocessing, os, subprocess, sys\nimport torch\n\n\n"
        "def spawned():\n"
        "    child = multiprocessing.get_context('spawn').Process(target=print)\n"
        "    child.start()\n    child.join()\n\n\n"
        f"def test_area():\n    torch.ones(3).sum()\n    {start}\n"
    )
    done = run(tmp_path / "run", text, ("toy::area",))
    assert done.passed == ["test_area.py::test_area"], done.tail
    found = judged(done, ("toy::area",))
    assert (found.outcome, found.lasting) == (Outcome.UNAVAILABLE, False)
    assert "sees no kernel 'toy::area' here: it does not see into other processes" in found.reason
    # What was seen was seen.
    assert judged(done, ("aten::sum",)).outcome is Outcome.PASSED


def test_kernels_are_part_of_what_is_stated_and_nothing_else_changes(toy: Toy) -> None:
    def digest(more: str) -> str:
        toy.put_patch(checks=one_check(more=f'requires = ["cuda"]\n{more}'))
        toy.put_queue(["area"])
        return load_queue(toy.queue).patch("area").checks_digest

    without = digest("")
    assert digest("kernels = []") == without
    assert digest('kernels = ["quant"]') != without
    check = load_queue(toy.queue).patch("area").spec.checks[0]
    assert check.kernels == ("quant",)
    assert Check.model_validate_json(check.model_dump_json()) == check
    assert "kernels" not in check.model_copy(update={"kernels": ()}).model_dump_json()


@pytest.mark.parametrize(
    "stated", ['requires = ["cpu"]\nkernels = ["quant"]', 'requires = ["cuda"]\nkernels = [".*"]']
)
def test_what_states_nothing_is_refused(toy: Toy, program: Program, stated: str) -> None:
    toy.put_patch(checks=one_check(more=stated))
    toy.put_queue(["area"])
    ran = program("verify", "area")
    assert ran.code == 2
    assert "kernels" in ran.err


def test_a_name_that_is_no_expression_is_refused() -> None:
    with pytest.raises(ValidationError, match="not a regular expression"):
        Check(name="a", file="test_a.py", expect="pass-to-pass", requires=("cuda",), kernels=("(",))
