"""Triton kernels of SGLang and torchao, called through their own functions, on emulated GPUs."""

from __future__ import annotations

import json
import os
import sys
import zipfile
from pathlib import Path

import pytest

from contribbot import process
from contribbot.git.package_index import obtain
from contribbot.git.source import Silent
from contribbot.model.pin import WheelSource
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
