"""What this machine is said to be, and `contribbot doctor`: what patches lack here."""

from __future__ import annotations

from pathlib import Path

import pytest

from contribbot.cli.diagnosis import doctor_blocks
from contribbot.cli.render import lines_of
from contribbot.git.pins import Silent
from contribbot.machine import HIDING, amd_gpus, nvidia_gpus, this_machine, visible
from contribbot.machine import doctor as diagnosis
from contribbot.machine.doctor import DoctorReport, examine, silent_switches
from contribbot.model.evidence import Gpu, Machine
from contribbot.queue.load import load_queue
from contribbot.queue.stack import fetch_pin
from tests.conftest import Program
from tests.toy import Toy


def node(folder: Path, number: int, version: int, name: str) -> None:
    """Write a node as the amdkfd driver shows it in sysfs."""
    path = folder / str(number)
    path.mkdir(parents=True)
    (path / "properties").write_text(
        f"cpu_cores_count 0\ngfx_target_version {version}\nsimd_count 4\n"
    )
    (path / "name").write_text(f"{name}\n")


def test_amd_targets_are_read_from_the_driver(tmp_path: Path) -> None:
    node(tmp_path, 0, 0, "")
    for number, version in enumerate((90402, 90010, 90500, 100300, 110000, 120001), start=1):
        node(tmp_path, number, version, f"gpu{number}")
    node(tmp_path, 10, 90402, "tenth")
    gpus = amd_gpus(tmp_path)
    assert [gpu.target for gpu in gpus] == [
        "gfx942", "gfx90a", "gfx950", "gfx1030", "gfx1100", "gfx1201", "gfx942",
    ]  # fmt: skip
    assert gpus[-1].name == "tenth"
    assert amd_gpus(tmp_path / "none") == ()


def test_what_nvidias_driver_lists(tmp_path: Path) -> None:
    tool = tmp_path / "nvidia-smi"
    for script, gpus in (
        ("echo '9.0, 580.159.04, NVIDIA H200, 141 GB'",
         (Gpu(vendor="nvidia", target="sm_90", name="NVIDIA H200, 141 GB", driver="580.159.04"),)),
        ("echo No devices were found", ()),
        ("exit 9", ()),
    ):  # fmt: skip
        tool.write_text(f"#!/bin/sh\n{script}\n")
        tool.chmod(0o755)
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
            assert nvidia_gpus() == gpus


@pytest.mark.parametrize(
    ("variables", "names"),
    [
        ({}, "ab"),
        ({"CUDA_VISIBLE_DEVICES": ""}, "ab"),
        ({"CUDA_VISIBLE_DEVICES": "1"}, "b"),
        ({"CUDA_VISIBLE_DEVICES": "1, 0"}, "ba"),
        ({"CUDA_VISIBLE_DEVICES": "7"}, ""),
        ({"CUDA_VISIBLE_DEVICES": "0,-1,1"}, "a"),
        ({"CUDA_VISIBLE_DEVICES": "GPU-1f2e"}, "ab"),
        ({"HIP_VISIBLE_DEVICES": "0", "CUDA_VISIBLE_DEVICES": "7"}, "a"),
    ],
)
def test_gpus_that_a_variable_hides(variables: dict[str, str], names: str) -> None:
    found = tuple(Gpu(vendor="amd", target="gfx942", name=name, driver="1") for name in "ab")
    with pytest.MonkeyPatch.context() as patch:
        for name in HIDING:
            patch.delenv(name, raising=False)
        for name, value in variables.items():
            patch.setenv(name, value)
        assert "".join(gpu.name for gpu in visible(found, HIDING)) == names


def test_targets_and_names() -> None:
    gpus = (
        Gpu(vendor="nvidia", target="sm_90", name="H200", driver="1"),
        Gpu(vendor="amd", target="gfx942", name="MI300X", driver="2"),
    )
    machine = this_machine().model_copy(update={"gpus": gpus})
    assert machine.targets == {"any", "cpu", "cuda", "gfx942"}
    assert machine.slug.split("-")[1:3] == ["sm_90", "gfx942"]
    assert machine.fingerprint != this_machine().fingerprint
    assert Machine.model_validate_json(machine.model_dump_json()) == machine


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
    answer = program.ok("doctor", "--json", PYTORCH_NVML_BASED_CUDA_CHEK="1")
    text = printed(DoctorReport.model_validate_json(answer.out))
    assert text.endswith("\n\narea  cpu")
    assert "  PYTORCH_NVML_BASED_CUDA_CHEK\n" in text
    gone = program("doctor", "--import", "boost")
    assert gone.code == 2
    assert "--import is gone" in gone.err
