"""The file compiles for sm_100, for which the packed kernel has a branch of its own.

Pass-to-pass: compiled by CUDA's own compiler as the extension is, and not run.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from torch.utils import cpp_extension

SOURCE = "csrc/quantization/w8a8/fp8/per_token_group_quant.cu"
#: As in [[build]] of patch.toml.
FLAGS = [
    "-DUSE_CUDA",
    "-DTORCH_TARGET_VERSION=0x020B000000000000ULL",
    "-std=c++20",
    "--extended-lambda",
]


def _run(*command: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(  # noqa: S603  CUDA's compiler, on the tree that is proved
        command, check=False, capture_output=True, text=True
    )


def test_it_compiles_without_spills(tmp_path: Path) -> None:
    assert cpp_extension.CUDA_HOME, "torch finds no CUDA toolkit"
    nvcc = Path(cpp_extension.CUDA_HOME, "bin", "nvcc")
    if "sm_100" not in _run(nvcc, "--list-gpu-code").stdout.split():
        pytest.skip(f"{nvcc} does not know sm_100")
    tree = Path(os.environ["CONTRIBBOT_TREE"])
    roots = [str(tree / "csrc"), *cpp_extension.include_paths("cuda")]
    options = [*FLAGS, *(f"-I{root}" for root in roots), "-Xptxas", "-v"]
    done = _run(
        nvcc, "-cubin", "-arch=sm_100a", *options, tree / SOURCE, "-o", tmp_path / "code.cubin"
    )
    assert done.returncode == 0, done.stderr[-2000:]
    spills = [line for line in done.stderr.splitlines() if "bytes spill stores" in line]
    assert spills, "ptxas named no kernel"
    assert all(" 0 bytes spill stores" in line for line in spills)
