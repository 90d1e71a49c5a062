"""The account of a machine, from what real machines and tools said."""

from __future__ import annotations

import os
import tomllib
from collections.abc import Mapping
from pathlib import Path

import pytest
from pydantic import Field

from contribbot.cli.doctor import doctor_lines
from contribbot.cli.text import fold
from contribbot.git.source import Silent
from contribbot.hardware import diagnosis, gpus
from contribbot.hardware.diagnosis import DoctorReport, examine, silent_switches
from contribbot.hardware.gpus import GpuFacts, TorchAccount, ask_torch
from contribbot.model.base import Model
from contribbot.queue.load import load_queue
from contribbot.queue.stack import fetch_pin, own_pin
from tests.conftest import Program
from tests.tools import kinds
from tests.toy import Toy

MACHINES = Path(__file__).parent / "machines"
#: What FADE v1.1+ claims of a Radeon RX 6800 XT, and whatever asks it (see docs/doctor.md).
CLAIMS = {"multi_processor_count": 72, "warp_size": 64}
PLANTED = f"""
import types
import torch

def claimed(device=None):
    return types.SimpleNamespace(name="AMD Radeon RX 6800 XT", gcnArchName="gfx1030", major=10,
                                 minor=3, total_memory=2**34, **{CLAIMS})

def apply():
    torch.cuda.get_device_properties = claimed
    torch.cuda.device_count = lambda: 1
"""


class Record(Model):
    """What a file of `machines/` holds: what was said there, and what is to be told."""

    node: int
    properties: str = ""
    rocminfo: str = ""
    memory: int = 0
    watts: int | None = None
    torch: dict[str, str | int] = Field(default_factory=dict)
    says: dict[str, str | int]


class Place:
    """A machine of files and small tools, put together from a record."""

    def __init__(self, root: Path) -> None:
        self.root = root
        (root / "bin").mkdir(parents=True)
        (root / "dev").mkdir()
        (root / "dev/kfd").touch()

    def node(self, number: int, properties: str | None, memory: int = 0) -> None:
        folder = self.root / gpus.KFD / str(number)
        (folder / "mem_banks/0").mkdir(parents=True)
        if properties is not None:
            (folder / "properties").write_text(properties)
        if memory:
            bank = f"heap_type 1\nsize_in_bytes {memory}\n"
            (folder / "mem_banks/0/properties").write_text(bank)

    def tool(self, name: str, script: str) -> None:
        path = self.root / "bin" / name
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(0o755)

    def prints(self, name: str, text: str) -> None:
        (self.root / f"{name}.txt").write_text(text)
        self.tool(name, f"cat {self.root / name}.txt")

    def report(self, torch: TorchAccount, **environment: str) -> DoctorReport:
        path = f"{self.root / 'bin'}:/usr/bin:/bin"
        return examine({"PATH": path, **environment}, root=self.root, torch=torch)


def torch_of(record: Mapping[str, object]) -> TorchAccount:
    """Return what torch said, by a record; of a ROCm build."""
    facts = GpuFacts.model_validate({"source": "torch device 0", "vendor": "amd", **record})
    return TorchAccount(version="2.9.0", hip="7.1.0", devices=(facts,))


def machine(root: Path, name: str) -> tuple[Place, Record, TorchAccount]:
    """Return a recorded machine, its record, and what torch said there."""
    record = Record.model_validate(tomllib.loads((MACHINES / f"{name}.toml").read_text()))
    place = Place(root)
    if record.properties:
        place.node(0, "cpu_cores_count 96\nsimd_count 0\ngfx_target_version 0\n")
        place.node(record.node, record.properties.lstrip(), record.memory)
        (root / gpus.KFD / str(record.node) / "name").write_text("ip discovery\n")
    if record.rocminfo:
        place.prints("rocminfo", record.rocminfo.lstrip())
    if record.watts:
        sensors = root / "sys/class/drm/renderD128/device/hwmon/hwmon3"
        sensors.mkdir(parents=True)
        (sensors / "power1_cap").write_text(f"{record.watts}000000\n")
    torch = torch_of(record.torch) if record.torch else TorchAccount(version="2.9.0")
    return place, record, torch


@pytest.mark.parametrize("name", sorted(path.stem for path in MACHINES.glob("*.toml")))
def test_a_recorded_machine_is_told_as_it_is_and_contradicts_nothing(
    tmp_path: Path, name: str
) -> None:
    place, record, torch = machine(tmp_path, name)
    report = place.report(torch, HIP_VISIBLE_DEVICES="0")

    gpu = report.gpus[0]
    driver, runtime = gpu.said[0], gpu.said[-2 if gpu.torch else -1]
    says = dict(record.says)
    assert (gpu.counts or "") == says.pop("counts", "")
    named = says.pop("name", "ip discovery")
    assert runtime.name == named
    assert {key: getattr(driver, key) for key in says} == says
    assert driver.power_cap == record.watts
    assert not report.contradictions
    text = "\n".join(doctor_lines(report))
    assert text.startswith("machine       ")
    assert "\n\nno contradiction\n\nGPUs\n" in text
    assert f": {named if named != 'ip discovery' else 'no name'}, " in text
    assert ("HIP counts pairs of them, workgroup processors" in text) == (
        gpu.counts == "workgroup processors"
    )
    assert max(map(len, text.splitlines())) <= 100


def spoof(**claims: object) -> dict[str, object]:
    """Return what a claim makes of what torch said on the Radeon RX 6800 XT."""
    return {"target": "gfx1030", "units": 36, "wavefront": 32, **claims}


WGP = {"GPU_ENABLE_WGP_MODE": "0"}
OVERRIDE = {"HSA_OVERRIDE_GFX_VERSION": "11.0.0"}


@pytest.mark.parametrize(
    ("claims", "environment", "found"),
    [
        ({}, {}, []),
        # With the variable HIP counts compute units, and so they are right.
        ({"units": 72}, WGP, []),
        ({"units": 72}, {}, [
            ("multiprocessors", "torch device 0 says 72",
             "rocminfo says 72, of which HIP counts 36 pairs", "GPU_ENABLE_WGP_MODE is not 0"),
        ]),
        ({}, WGP, [("multiprocessors", "torch device 0 says 36", "rocminfo says 72",
                    "GPU_ENABLE_WGP_MODE is set")]),
        ({"units": 30}, {"HSA_CU_MASK": "0:0-29"}, []),
        ({"wavefront": 64}, {}, [("wavefront", "torch device 0 says 64", "rocminfo says 32", "")]),
        ({"target": "gfx1100"}, OVERRIDE, [
            ("target", "torch device 0 says gfx1100", "rocminfo says gfx1030",
             "HSA_OVERRIDE_GFX_VERSION is set"),
        ]),
        # Less is a setting, more cannot be.
        ({"lds": 32768}, {}, []),
        ({"lds": 163840}, {}, [("LDS", "torch device 0 says 163840", "rocminfo says 65536", "")]),
    ],
)  # fmt: skip
def test_what_torch_says_is_held_against_the_driver(
    tmp_path: Path,
    claims: dict[str, object],
    environment: dict[str, str],
    found: list[tuple[str, str, str, str]],
) -> None:
    place, _, _ = machine(tmp_path, "rx6800xt")
    report = place.report(torch_of(spoof(**claims)), **environment)
    assert [(each.about, each.said, each.against, each.why)
            for each in report.contradictions] == found  # fmt: skip
    lines = doctor_lines(report)
    assert ("1 contradiction:" if found else "no contradiction") in lines


@pytest.mark.parametrize(
    ("kernels", "target", "runs"),
    [
        (("gfx1030", "gfx1100"), "gfx1030", True),
        (("gfx942:sramecc+:xnack-",), "gfx942", True),
        (("gfx10-3-generic",), "gfx1030", True),
        (("gfx1100", "gfx1031"), "gfx1030", False),
    ],
)
def test_a_gpu_without_kernels_is_no_gpu_for_torch(
    tmp_path: Path, kernels: tuple[str, ...], target: str, runs: bool
) -> None:
    place, _, _ = machine(tmp_path, "rx6800xt")
    torch = torch_of(spoof(target=target)).model_copy(update={"kernels": kernels})
    about = [each.about for each in place.report(torch).contradictions]
    assert ("kernels" in about) is not runs


def test_a_gpu_that_torch_does_not_see_and_one_that_is_not_there(tmp_path: Path) -> None:
    place, _, seen = machine(tmp_path, "rx6800xt")
    blind, two = seen.model_copy(update={"devices": ()}), seen.devices * 2
    for torch, said in (
        (blind, "torch says 0"),
        (TorchAccount(hip="7", devices=two), "torch says 2"),
    ):
        found = place.report(torch).contradictions
        assert [(each.about, each.said) for each in found] == [("number of GPUs", said)]
    assert not place.report(blind, ROCR_VISIBLE_DEVICES="").contradictions
    # A build for processors uses none, and says so.
    alone = place.report(TorchAccount(version="2.9.0+cpu"))
    assert not alone.contradictions
    assert "          it uses none of these GPUs" in doctor_lines(alone)


def test_the_page_shows_what_is_printed(tmp_path: Path) -> None:
    place, _, _ = machine(tmp_path, "rx6800xt")
    lines = doctor_lines(place.report(torch_of(spoof(units=72, wavefront=64))))
    shown = "\n".join(part for line in lines for part in fold(line, 100))
    page = (Path(__file__).parent.parent / "docs/doctor.md").read_text(encoding="utf-8")
    # What comes before differs from machine to machine.
    assert shown[shown.index("2 contradictions:") :].partition("\n\nsoftware")[0] in page


@pytest.mark.parametrize("how", kinds(["sitecustomize", "--import"], "--import".__eq__))
def test_a_patched_torch_is_found_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    module = "sitecustomize" if how == "sitecustomize" else "boost"
    folder = tmp_path / "planted"
    folder.mkdir()
    call = "apply()\n" if module == "sitecustomize" else ""
    (folder / f"{module}.py").write_text(PLANTED + call)
    place, _, _ = machine(tmp_path / "machine", "rx6800xt")
    monkeypatch.chdir(folder)
    torch = ask_torch(
        {**os.environ, "PYTHONPATH": str(folder) if call else ""},
        first="" if call else f"{module}:apply",
    )
    assert torch.error == ""
    assert set(torch.foreign) == {
        "get_device_properties", "device_count", "get_device_properties(0)",
    }  # fmt: skip
    assert torch.foreign["get_device_properties"] == f"{folder / module}.py:5"
    assert torch.foreign["get_device_properties(0)"] == "types.SimpleNamespace"
    # As the same patch would show on the machine that it was made for.
    device = torch.devices[0].model_copy(update={"vendor": "amd", "target": "gfx1030"})
    # A torch for CUDA has kernels, which no AMD GPU runs.
    as_there = {"hip": "7.1", "devices": (device,), "kernels": ()}
    report = place.report(torch.model_copy(update=as_there))
    found = [(each.about, each.place) for each in report.contradictions]
    assert found == [
        *(("function", f"torch.cuda.{name}") for name in torch.foreign),
        ("wavefront", "rocminfo"),
        ("multiprocessors", "rocminfo"),
    ]


def test_torch_as_it_is_installed_is_torchs_own(tmp_path: Path) -> None:
    torch = ask_torch(dict(os.environ))
    assert (torch.error, torch.foreign) == ("", {})
    assert torch.version
    broken = ask_torch(dict(os.environ), first="no_such_module")
    assert broken.error == "ModuleNotFoundError: No module named 'no_such_module'"
    (tmp_path / "sitecustomize.py").write_text("import time\ntime.sleep(60)\n")
    late = ask_torch({**os.environ, "PYTHONPATH": str(tmp_path)}, seconds=0.5)
    assert late.error == "not finished after 0.5 s"


@pytest.mark.parametrize(
    ("script", "said"),
    [
        ("sleep 60", "rocminfo: not finished after 0.3 s"),
        ("echo 'ROCk module is NOT loaded, possibly no GPU devices' >&2; exit 1",
         "rocminfo: exit status 1: ROCk module is NOT loaded, possibly no GPU devices"),
        ("echo '{\"agents\": []}'", "rocminfo: it prints no agent"),
        ("printf 'Agent 1\\n  Name: \\377\\033[31m\\n  Device Type: GPU\\n'", None),
        ("kill -9 $$", "rocminfo: killed by signal 9: it said nothing"),
        ("printf 'Agent 2\\n  Name: gfx1030\\n  Device Type: GPU\\n  Compute Unit: many\\n'", None),
    ],
)  # fmt: skip
def test_a_tool_that_does_not_answer_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str, said: str | None
) -> None:
    monkeypatch.setattr(gpus, "SECONDS", 0.3)
    place = Place(tmp_path)
    place.tool("rocminfo", script)
    place.tool("nvidia-smi", "echo No devices were found")
    report = place.report(TorchAccount(version="2.9.0"))
    assert [*report.unknown] == ([] if said is None else [said])
    assert not report.contradictions
    assert len(report.gpus) == (said is None)
    assert all(gpu.said[0].units is None for gpu in report.gpus)


WHOLE = "simd_count 192\nsimd_per_cu 2\nwave_front_size 32\nlds_size_in_kb 64\n"


@pytest.mark.parametrize(
    ("properties", "unknown", "target"),
    [
        (None, "No such file or directory", None),
        ("", "its properties are empty or cut off", None),
        ("simd_co", "its properties are empty or cut off", None),
        # Half a number is no number.
        (f"{WHOLE}gfx_target_version 11", "no gfx_target_version in its properties", ""),
        ("simd_count 192\nsimd_per_cu 2\ngfx_target_version 110000\n",
         "no wave_front_size, lds_size_in_kb in its properties", "gfx1100"),
    ],
)  # fmt: skip
def test_files_that_are_cut_off_are_not_guessed_at(
    tmp_path: Path, properties: str | None, unknown: str, target: str | None
) -> None:
    place = Place(tmp_path)
    place.node(1, properties)
    (place.root / gpus.KFD / "generation_id").touch()
    report = place.report(TorchAccount(version="2.9.0"))
    assert [*report.unknown] == [f"KFD node 1: {unknown}"]
    assert [gpu.said[0].target for gpu in report.gpus] == ([] if target is None else [target])


def test_what_cudas_driver_says_is_held_against_torch(tmp_path: Path) -> None:
    place = Place(tmp_path)
    # nvidia-smi's answer on one NVIDIA H200; of the second GPU the address is made up.
    row = "9.0, 580.159.04, 00000000:00:06.0, 143771, 1980, 345, 700.00, NVIDIA H200"
    place.prints("nvidia-smi", f"{row}\n{row.replace('06', '07').replace('700.00', '[N/A]')}\n")
    direct = GpuFacts(source="libcuda", vendor="nvidia", target="sm_90", address="0000:00:07",
                      units=132, wavefront=32, lds=232448)  # fmt: skip
    claim = direct.model_copy(update={"source": "torch device 0", "units": 264, "wavefront": 64})
    report = place.report(TorchAccount(cuda="13.0", direct=(direct,), devices=(claim,)))
    assert [len(gpu.said) for gpu in report.gpus] == [1, 3]
    first, second = (gpu.said[0] for gpu in report.gpus)
    assert (first.clock, first.clock_now, first.power_cap) == (1980, 345, 700)
    assert (second.memory, second.power_cap) == (143771 * 2**20, None)
    assert [(each.said, each.against) for each in report.contradictions] == [
        ("torch device 0 says 64", "libcuda says 32"),
        ("torch device 0 says 264", "libcuda says 132"),
        ("torch says 1", "the driver says 2"),
    ]
    assert "    power cap        not known" in doctor_lines(report)


def test_a_switch_that_nothing_reads_is_named(toy: Toy, monkeypatch: pytest.MonkeyPatch) -> None:
    reads = "import os\n\nFAST = os.environ.get('VLLM_TOY_FAST')\nALL = 'VLLM_TOY_ALL_'\n"
    toy.put_patch(patch=toy.format_patch({"src/toy/area.py": reads}))
    toy.put_queue(["area"])
    monkeypatch.setitem(diagnosis._PACKAGES, "toy", "vllm")
    names = ("VLLM_TOY_FAST", "VLLM_TOY_FASTER", "VLLM_TOY_FAST_PATH", "VLLM_TOY_ALL_OF_IT",
             "VLLM_OTHER", "AITER_TOY", "PYTORCH_CUDA_ALLOC_CONF", "HOME")  # fmt: skip
    environment = dict.fromkeys(names, "1")
    queue = load_queue(toy.queue)
    patches = [queue.patch("area")]
    silent, unknown = silent_switches(environment, patches)
    assert not silent
    assert unknown == [
        "AITER_TOY: whether aiter reads it, which is not here to look at",
        *(f"{name}: whether toy v1.0 reads it, which is not here to look at"
          for name in ("VLLM_OTHER", "VLLM_TOY_FASTER", "VLLM_TOY_FAST_PATH")),
    ]  # fmt: skip
    fetch_pin(queue, own_pin(queue, "area"), progress=Silent())
    silent, unknown = silent_switches(environment, patches)
    assert [(each.name, each.nearest) for each in silent] == [
        ("VLLM_OTHER", ""),
        ("VLLM_TOY_FASTER", "VLLM_TOY_FAST"),
        ("VLLM_TOY_FAST_PATH", "VLLM_TOY_FAST"),
    ]
    assert {each.looked_at for each in silent} == {("toy v1.0",)}
    assert len(unknown) == 1


def test_the_command_in_a_queue_and_outside(toy: Toy, program: Program, tmp_path: Path) -> None:
    assert program("doctor", "--queue", "nowhere", cwd=tmp_path).code == 2
    toy.put_patch()
    toy.put_queue(["area"])
    asked = program("doctor", "--json", PYTORCH_NVML_BASED_CUDA_CHEK="1")
    assert asked.code == 0, asked.err
    told = "\n".join(doctor_lines(DoctorReport.model_validate_json(asked.out)))
    assert told.endswith("\n\npatches\n  area (toy v1.0)\n    here      cpu: reproduce")
    assert "  PYTORCH_NVML_BASED_CUDA_CHEK: not in the installed torch\n" in told


@pytest.mark.slow
def test_the_command_says_what_is_planted(program: Program, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "boost.py").write_text(PLANTED)
    planted = program("doctor", "--import", "boost:apply", cwd=outside)
    assert planted.code == 1
    # A torch for no GPU that says it has one is the fourth.
    count = 3 if ask_torch(dict(os.environ)).vendor else 4
    said = f"\n\n{count} contradictions:\n  torch.cuda.get_device_properties: function: "
    assert said in planted.out
    assert "patches" not in planted.out
    absent = program("doctor", "--import", "boost:aply", cwd=outside)
    assert absent.code == 2
    assert (
        "--import boost:aply: AttributeError: module 'boost' has no attribute 'aply'; "
        in absent.err
    )
