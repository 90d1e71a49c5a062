"""What this machine is said to be."""

from __future__ import annotations

from pathlib import Path

import pytest

from contribbot import process
from contribbot.errors import CommandError, CommandTimeoutError, MachineError
from contribbot.machine import HIDING, amd_gpus, nvidia_gpus, this_machine, visible
from contribbot.model.evidence import Gpu, Machine


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


def test_run_says_how_a_program_failed() -> None:
    with pytest.raises(CommandError, match=r"^sh -c .*: exit status 3: oh no$") as caught:
        process.run(["sh", "-c", "echo first >&2; echo oh no >&2; exit 3"])
    assert caught.value.returncode == 3
    with pytest.raises(CommandError, match="killed by signal 9"):
        process.run(["sh", "-c", "kill -9 $$"])
    with pytest.raises(CommandTimeoutError, match=r"not finished after 0\.2 s"):
        process.run(["sleep", "5"], timeout=0.2)
    with pytest.raises(MachineError, match="no-such-program: program not found"):
        process.run(["no-such-program"])


def test_feed_reports_what_the_program_said(tmp_path: Path) -> None:
    out = tmp_path / "out"
    with process.feed(["sh", "-c", f"cat > {out}"]) as stdin:
        stdin.write(b"x" * 100_000)
    assert out.stat().st_size == 100_000
    with pytest.raises(CommandError, match="enough"), process.feed(
        ["sh", "-c", "echo enough >&2; exit 1"]
    ) as stdin:  # fmt: skip
        stdin.write(b"x" * 1_000_000)
    with pytest.raises(ZeroDivisionError), process.feed(["sh", "-c", f"cat > {out}.2; sleep 9"]):
        raise ZeroDivisionError


def test_supervise_ends_a_program_that_closes_its_output_and_stays(tmp_path: Path) -> None:
    ended = process.supervise(
        ["sh", "-c", "exec >&- 2>&-; sleep 9"],
        cwd=tmp_path, env=process.clean_environment(), timeout=0.5,
    )  # fmt: skip
    assert ended.timed_out
    assert ended.seconds < 5


def test_what_stands_for_a_users_program_gets_no_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        for name in ("VLLM_API_KEY", "HF_TOKEN", "VLLM_USE_V1"):
            patch.setenv(name, "1")
        given = process.user_environment()
    assert "VLLM_USE_V1" in given
    assert not {"VLLM_API_KEY", "HF_TOKEN"} & given.keys()
