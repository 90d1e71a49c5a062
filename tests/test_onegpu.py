"""Of several GPUs, what runs for a target sees the one that a known-good kernel ran on."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from contribbot.errors import MachineError
from contribbot.files import log_path
from contribbot.machine.machine import one_gpu
from contribbot.model.evidence import Machine
from contribbot.model.failure import RunFailure
from contribbot.verify.check import CheckRunner, check_unit, run_one
from contribbot.verify.runner_fault import (
    Preflight,
    Preflights,
    RunnerFaultError,
    fly,
    runner_fault,
)
from contribbot.verify.stages.bench import BenchStage
from contribbot.verify.verdict import RunSide
from tests.conftest import dig
from tests.gputoy import TARGET, folders, gpu_job, machine
from tests.toy import Toy

#: The real torch, which says that this machine has these GPUs, and works on the processor.
#: It counts them as HIP does: within what the variable leaves.
CARDS = """\
import os, sys
sys.path = [path for path in sys.path if path not in ("", os.getcwd())]
del sys.modules["torch"]
import torch

cards = {cards}
given = os.environ.get("HIP_VISIBLE_DEVICES") or os.environ.get("CUDA_VISIBLE_DEVICES")
if given:
    cards = [cards[int(index)] for index in given.split(",")]


class Properties:
    def __init__(self, index):
        self.gcnArchName, self.name = cards[index] + ":xnack-", "card"


torch.version.hip = "6.4"
torch.cuda.is_available = lambda: bool(cards)
torch.cuda.device_count = lambda: len(cards)
torch.cuda.get_device_properties = Properties
torch.cuda.mem_get_info = lambda device: (1, 2)
real = torch.device
torch.device = lambda kind, index=0: real("cpu")
"""


@pytest.fixture(autouse=True)
def all_visible() -> Iterator[None]:
    """Take away what the user's environment leaves of this machine's own GPUs."""
    with pytest.MonkeyPatch.context() as patch:
        for runtime in ("ROCR", "HIP", "CUDA"):
            patch.delenv(f"{runtime}_VISIBLE_DEVICES", raising=False)
        yield


class Cards(Preflights):
    """Known-good kernels on a machine that has these GPUs.

    Attributes:
        cards: The GPUs; a test takes one away.
    """

    def __init__(self, *cards: str) -> None:
        super().__init__()
        self.cards = [*cards]

    def _fly(self, target: str, machine: Machine, folder: Callable[[], Path]) -> Preflight:
        def with_cards() -> Path:
            made = folder()
            (made / "torch.py").write_text(CARDS.format(cards=self.cards))
            return made

        return super()._fly(target, machine, with_cards)


@pytest.mark.parametrize(
    ("index", "count", "hip", "given", "shown"),
    [
        # One GPU that nothing was said of: as before.
        (0, 1, True, {}, {}),
        (0, 1, False, {}, {}),
        (1, 2, True, {}, {"HIP": "1", "CUDA": "1"}),
        (1, 2, False, {}, {"CUDA": "1"}),
        # torch counts within what is visible.
        (1, 2, True, {"HIP": "3, 2"}, {"HIP": "2", "CUDA": "2"}),
        (0, 1, True, {"HIP": "1"}, {"HIP": "1", "CUDA": "1"}),
        (1, 2, True, {"CUDA": "3,2"}, {"HIP": "2", "CUDA": "2"}),
        (1, 2, True, {"HIP": "", "CUDA": "3,2"}, {"HIP": "2", "CUDA": "2"}),
        (1, 2, True, {"HIP": "5,4", "CUDA": "3,2"}, {"HIP": "4", "CUDA": "4"}),
        # What HIP counts is what ROCR leaves; that one stays as it is.
        (1, 2, True, {"ROCR": "7,6"}, {"HIP": "1", "CUDA": "1"}),
        (0, 2, True, {"ROCR": "7,6,5", "HIP": "2,0"}, {"HIP": "2", "CUDA": "2"}),
        (0, 2, False, {"CUDA": "GPU-5e,GPU-7f"}, {"CUDA": "GPU-5e"}),
        # HIP's variable says nothing to CUDA.
        (1, 2, False, {"HIP": "7", "CUDA": "3,2"}, {"CUDA": "2"}),
        # CUDA ends its list where it does not understand it, and so does HIP.
        (0, 1, False, {"CUDA": "2,-1,3"}, {"CUDA": "2"}),
    ],
)
def test_one_gpu_is_named_within_what_was_visible(
    index: int, count: int, *, hip: bool, given: dict[str, str], shown: dict[str, str]
) -> None:
    def named(some: dict[str, str]) -> dict[str, str]:
        return {f"{name}_VISIBLE_DEVICES": value for name, value in some.items()}

    assert one_gpu(index, count, hip=hip, environment=named(given)) == named(shown)


def test_a_gpu_that_no_variable_names_is_not_guessed() -> None:
    with pytest.raises(MachineError, match="HIP_VISIBLE_DEVICES=3: torch sees 2 GPUs"):
        one_gpu(1, 2, hip=True, environment={"HIP_VISIBLE_DEVICES": "3"})


@pytest.mark.slow
def test_a_known_good_kernel_runs_where_its_gpu_alone_is_visible(tmp_path: Path) -> None:
    (tmp_path / "torch.py").write_text(CARDS.format(cards=["gfx1036", TARGET]))
    found = fly(TARGET, machine(), tmp_path)
    assert found.fault is None, found
    assert found.record.arch == TARGET
    assert found.record.devices == 1
    assert found.shown == {"HIP_VISIBLE_DEVICES": "1", "CUDA_VISIBLE_DEVICES": "1"}
    assert found.record.visible == found.shown


SEES = """\
import os
from toy.area import rectangle


def test_red():
    told = [os.environ.get(f"{name}_VISIBLE_DEVICES") for name in ("HIP", "CUDA")]
    os.write(1, f"sees {told[0]} {told[1]}\\n".encode())
    assert rectangle(2, 3) == 6
"""


@pytest.mark.slow
def test_a_check_sees_the_gpu_of_its_target_alone(
    toy: Toy, monkeypatch: pytest.MonkeyPatch
) -> None:
    # What the check states cannot choose another one.
    stated = 'env = {HIP_VISIBLE_DEVICES = "0", CUDA_VISIBLE_DEVICES = "0"}'
    with (
        gpu_job(toy, SEES, Cards("gfx1036", TARGET, "gfx1100"), stated) as job,
        monkeypatch.context() as patched,
    ):
        patched.setenv("HIP_VISIBLE_DEVICES", "2,0,1")
        check = job.patch.spec.checks[0]
        found = check_unit(job, check, CheckRunner()).work()
        alone = run_one(job, check, CheckRunner(), RunSide.PATCHED)
        on_host = check.model_copy(update={"requires": ("cpu",)})
        host = run_one(job, on_host, CheckRunner(), RunSide.BASE)
    assert found.outcome == "passed", found
    assert dig(found.preflight, "visible", "HIP_VISIBLE_DEVICES") == "1"
    logs = [str(dig(found.details, side, "log_sha256")) for side in ("base", "patched")]
    for log in (*logs, alone.log):
        assert "sees 1 1\n" in log_path(toy.root / "logs", log).read_text()
    # No GPU is looked for there, and what was stated stands.
    assert "sees 0 0\n" in log_path(toy.root / "logs", host.log).read_text()


@pytest.mark.slow
def test_after_a_fault_the_same_gpu_is_asked_and_no_other(tmp_path: Path) -> None:
    cards, suspect = Cards(TARGET, TARGET), runner_fault(RunFailure.HIP_ERROR, "HIP error: x")
    folder = folders(tmp_path)
    cards.before(TARGET, machine(), folder)
    cards.after(suspect, TARGET, machine(), folder)
    # The first has fallen off the bus in all but name; the other would still do.
    cards.cards[0] = "gfx1036"
    with pytest.raises(RunnerFaultError, match=f"sees gfx1036, not {TARGET}"):
        cards.after(suspect, TARGET, machine(), folder)


#: What a bench on a GPU imports first.
SEEN_BY_TORCH = """\
import os

__version__ = "0"
print("sees", os.environ.get("HIP_VISIBLE_DEVICES"), flush=True)


class cuda:
    is_available = staticmethod(lambda: False)
"""


@pytest.mark.slow
def test_a_bench_sees_the_gpu_of_its_target_alone(toy: Toy) -> None:
    more = (
        '\n[[bench]]\nname = "fast"\nfile = "bench_area.py"\nat_least = 0.1\n'
        f'requires = ["{TARGET}"]\n'
    )
    for name, text in {"bench_area": "", "triton": "", "torch": SEEN_BY_TORCH}.items():
        toy.put(f"patches/area/checks/{name}.py", text)
    with gpu_job(toy, SEES, Cards("gfx1036", TARGET), more) as job:
        (unit,) = BenchStage().units(job)
        found = unit.work()
    assert dig(found.preflight, "visible", "HIP_VISIBLE_DEVICES") == "1", found
    # There is no GPU for the rest of it: as the base says so, the other side may be ended.
    assert str(dig(found.details, "base", "log_tail")).startswith("sees 1\n")
