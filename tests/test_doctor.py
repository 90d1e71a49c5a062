"""`contribbot doctor`: this machine, and what patches lack here."""

from __future__ import annotations

from pathlib import Path

import pytest

from contribbot.cli.diagnosis import doctor_blocks
from contribbot.cli.render import lines_of
from contribbot.git.pins import Silent
from contribbot.machine import doctor as diagnosis
from contribbot.machine import this_machine
from contribbot.machine.doctor import DoctorReport, examine, silent_switches
from contribbot.model.evidence import Gpu
from contribbot.queue.load import load_queue
from contribbot.queue.stack import fetch_pin
from tests.conftest import Program
from tests.toy import Toy


def printed(report: DoctorReport) -> str:
    return "\n".join(lines_of(doctor_blocks(report)))


def test_a_gpu_that_torch_does_not_use_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    gpu = Gpu(vendor="amd", target="gfx942", name="MI300X", driver="6.16")
    machine = this_machine().model_copy(update={"gpus": (gpu,)})
    monkeypatch.setattr(diagnosis, "this_machine", lambda: machine)
    for build, problems in (
        ({"hip": "7.1"}, ()),
        ({"cuda": "13.0"}, ("torch is built for CUDA 13.0 and does not use the MI300X",)),
    ):
        monkeypatch.setattr(diagnosis, "torch_build", lambda build=build: build)
        report = examine({})
        assert report.problems == problems
        assert report.patches is None
        text = printed(report)
        assert "GPUs          MI300X, gfx942, driver amdgpu 6.16\n" in text
        assert "runs on       cpu, gfx942\n" in text


def test_a_variable_that_hides_every_gpu_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    gpu = Gpu(vendor="nvidia", target="sm_90", name="H200", driver="580")
    monkeypatch.setattr(diagnosis, "nvidia_gpus", lambda: (gpu,))
    machine = this_machine().model_copy(update={"gpus": ()})
    monkeypatch.setattr(diagnosis, "this_machine", lambda: machine)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CUDA_VISIBLE_DEVICES", "7")
        problems = examine({}).problems
    assert problems == ("CUDA_VISIBLE_DEVICES=7 hides every GPU of this machine",)


def test_a_switch_that_nothing_reads_is_named(toy: Toy, monkeypatch: pytest.MonkeyPatch) -> None:
    reads = "import os\n\nFAST = os.environ.get('VLLM_TOY_FAST')\nALL = 'VLLM_TOY_ALL_'\n"
    toy.put_area(patch=toy.format_patch({"src/toy/area.py": reads}))
    monkeypatch.setitem(diagnosis._PACKAGES, "toy", "vllm")
    names = ("VLLM_TOY_FAST", "VLLM_TOY_FASTER", "VLLM_TOY_ALL_OF_IT", "VLLM_OTHER", "AITER_TOY",
             "PYTORCH_CUDA_ALLOC_CONF", "HOME")  # fmt: skip
    environment = dict.fromkeys(names, "1")
    queue = load_queue(toy.queue)
    patches = [queue.patch("area")]
    # Neither vLLM nor its pin is here to be searched.
    assert not list(silent_switches(environment, patches))
    fetch_pin(queue, queue.pin_of("area"), progress=Silent())
    silent = silent_switches(environment, patches)
    assert [(each.name, each.nearest) for each in silent] == [
        ("VLLM_OTHER", ""),
        ("VLLM_TOY_FASTER", "VLLM_TOY_FAST"),
    ]


def test_the_command_in_a_queue_and_outside(toy: Toy, program: Program, tmp_path: Path) -> None:
    assert program("doctor", "--queue", "nowhere", cwd=tmp_path).code == 2
    assert "patches" not in program("doctor", cwd=tmp_path).out
    toy.put_area()
    answer = program("doctor", "--json", PYTORCH_NVML_BASED_CUDA_CHEK="1")
    assert answer.code == 0, answer.err
    text = printed(DoctorReport.model_validate_json(answer.out))
    assert text.endswith("\n\narea  cpu")
    assert "  PYTORCH_NVML_BASED_CUDA_CHEK\n" in text
    gone = program("doctor", "--import", "boost")
    assert gone.code == 2
    assert "--import is gone" in gone.err
