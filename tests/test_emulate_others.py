"""Triton kernels of SGLang and torchao, called through their own functions, on emulated GPUs."""

from __future__ import annotations

import json
import os
import re
import sys
import zipfile
from pathlib import Path

import pytest
import torch

from contribbot import process
from contribbot.git.pins import Silent
from contribbot.git.pins.index import obtain
from contribbot.model.patch import WheelSource
from tests.conftest import REAL_CACHE

HERE = Path(__file__).parent
#: The wheels whose Python files are read; those that the queue pins serve other tests.
WHEELS = {
    "sglang": WheelSource(
        kind="wheel", distribution="sglang", version="0.5.23", packages=("sglang",),
        sha256="2d538a89a6e7b1b0707e2ab7f8edef4af6a7beb5da661f9a231cddcdf5308417",
        tags="cp312-cp312-manylinux_2_34_aarch64",
    ),
    "torchao": WheelSource(
        kind="wheel", distribution="torchao", version="0.18.0", packages=("torchao",),
        sha256="6540b148e40ba81cbd4de86392225a076a1591146e9cebb099b3b234ba9feebe",
        tags="cp310-abi3-manylinux_2_24_x86_64.manylinux_2_28_x86_64",
    ),
}  # fmt: skip
#: Tests of each that must pass: none may go missing in silence.
NUMBER = {"sglang": 14, "torchao": 24}


@pytest.fixture(scope="session")
def unpacked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Give a folder with the packages' Python files."""
    folder = tmp_path_factory.mktemp("others")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CONTRIBBOT_CACHE", str(REAL_CACHE))
        archives = [obtain(wheel, progress=Silent()) for wheel in WHEELS.values()]
    for archive in archives:
        with zipfile.ZipFile(archive) as wheel:
            wheel.extractall(folder, [name for name in wheel.namelist() if name.endswith(".py")])
    return folder


@pytest.mark.slow
@pytest.mark.parametrize(
    ("package", "target"),
    [
        *(("sglang", target) for target in ("gfx90a", "gfx942", "gfx950", "gfx1100", "gfx1201")),
        ("torchao", "gfx942"),
        ("torchao", "gfx1201"),
    ],
)
def test_kernels_of(package: str, target: str, unpacked: Path, tmp_path: Path) -> None:
    ran = process.run(
        [sys.executable, "-m", "contribbot", "emulate", "--json", target, "--", "pytest", "-q",
         "-c", os.devnull, "--rootdir", str(tmp_path), "-p", "no:cacheprovider",
         str(HERE / "others" / f"{package}_kernels.py")],
        cwd=tmp_path, accept=(0, 1, 3), timeout=600,
        env={**os.environ, "SGLANG": str(unpacked), "TRITON_CACHE_DIR": str(tmp_path / "triton"),
             "PYTHONPATH": os.pathsep.join([str(HERE.parent), str(unpacked)])},
    )  # fmt: skip
    assert ran.stdout, ran.stderr
    [report] = json.loads(ran.stdout)["targets"]
    assert not report["error"]
    wrong = {row["test"]: row["said"] for row in report["tests"] if row["outcome"] not in
             {"passed", "skipped"}}  # fmt: skip
    assert not wrong
    assert sum(row["outcome"] == "passed" for row in report["tests"]) == NUMBER[package]


@pytest.mark.slow
def test_the_page_of_tied_experts_has_its_figures(unpacked: Path, tmp_path: Path) -> None:
    page = (HERE.parent / "docs/tied-experts.md").read_text("utf-8")
    example = HERE.parent / "docs/examples/test_tied_experts.py"
    env = {**os.environ, "SGLANG": str(unpacked), "RECORDS": str(tmp_path),
           "TRITON_CACHE_DIR": str(tmp_path / "triton")}  # fmt: skip
    command = [sys.executable, "-m", "contribbot"]
    ran = process.run(
        [*command, "emulate", "gfx942", "gfx1201", "--", "pytest", "-q", "-s", "-c", os.devnull,
         "--rootdir", str(tmp_path), "-p", "no:cacheprovider", str(example)],
        cwd=tmp_path, env=env, timeout=600,
    )  # fmt: skip
    said = ran.stdout.decode()
    assert said.count("6 passed") == len(("gfx942", "gfx1201"))
    for figure in (r"relative error: (\S+ times 2\^-23)", r"in the other order: (\S+), in 2 of 32",
                   r"in the same order: (\S+)", r"documented bound: (\d+),"):  # fmt: skip
        found = re.findall(figure, said)
        assert len(found) == len(("gfx942", "gfx1201")), figure
        assert all(value in page for value in found), found
    records = [tmp_path / f"{name}.safetensors" for name in ("kernel", "torch")]
    told = process.run([*command, "numerics", "explain", *records], cwd=tmp_path, env=env)
    block = page.partition("1:\n\n```\n")[2].partition("```")[0]
    assert block
    assert {*block.splitlines()} <= {*told.stdout.decode().splitlines()}
    ties = [ties_of(seed) for seed in range(1000)]
    assert f"{sum(map(bool, ties))} have a tie" in page
    assert f"in {sum('choice' in tie for tie in ties)} it decides" in page


def ties_of(seed: int) -> set[str]:
    """Return what ties among the logits of a draw can change of the best 8: order, choice."""
    drawn = torch.randn(4, 128, generator=torch.Generator().manual_seed(seed)).bfloat16().float()
    best = drawn.sort(dim=-1, descending=True).values
    same = best[:, :8] == best[:, 1:9]
    return {what for what, tied in (("order", same[:, :7]), ("choice", same[:, 7])) if tied.any()}
