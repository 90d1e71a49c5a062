"""The grid of `rmsnorm` on the real layer: it says no to a layer that rounds once more."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.tools import unpack

PATCH = Path(__file__).parent.parent / "patches/rmsnorm"
LAYER = "python/sglang/srt/layers/layernorm.py"
#: What the patched layer does with a residual, and one rounding of the sum more.
ONE_KERNEL = """\
                fused_add_rms_norm(
                    output,
                    x,
                    residual,
                    residual_out,
                    self.weight.data,
                    self.variance_epsilon,
                )
            return output.view(shape)"""
TWO_STEPS = """\
                residual_out.copy_(x + residual)
                output.copy_(rms_norm(residual_out, self.weight.data, self.variance_epsilon))
            return output.view(shape)"""


@pytest.fixture
def tree(tmp_path: Path, sglang_archive: Path) -> Path:
    """The released layer with the patch on it, in the upstream's paths."""
    root = tmp_path / "tree"
    unpack(sglang_archive, tmp_path / "all")
    (unpacked,) = (tmp_path / "all").iterdir()
    (root / "python").mkdir(parents=True)
    shutil.move(unpacked / "sglang", root / "python/sglang")
    (file,) = PATCH.glob("*.patch")
    subprocess.run(["git", "apply", str(file)], cwd=root, check=True)
    return root


def judged(tree: Path, *args: str) -> subprocess.CompletedProcess[str]:
    """Run the check on a tree, with the limits of its patch.toml."""
    (tree / "pytest.ini").write_text("[pytest]\n")
    shutil.copytree(PATCH / "checks", tree / "patch/checks")
    shutil.copy(PATCH / "patch.toml", tree / "patch")
    environment = {
        **os.environ,
        "CONTRIBBOT_TREE": str(tree),
        "OMP_NUM_THREADS": "1",
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONPATH": str(tree / "python"),
        "SGLANG_USE_AITER": "1",
    }
    command = ["-m", "pytest", "-q", "-p", "no:cacheprovider", "-c", "pytest.ini", "--color=no"]
    return subprocess.run(
        [sys.executable, *command, "patch/checks/test_numerics.py", *args],
        cwd=tree, env=environment, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip


def test_the_layer_makes_the_error_of_its_own_torch_code(tree: Path) -> None:
    done = judged(tree)
    assert done.returncode == 0, done.stdout
    assert "153 passed" in done.stdout


def test_one_rounding_more_is_refused(tree: Path) -> None:
    text = (tree / LAYER).read_text()
    assert ONE_KERNEL in text
    (tree / LAYER).write_text(text.replace(ONE_KERNEL, TWO_STEPS))

    done = judged(tree, "-k", "same and contiguous")

    assert done.returncode == 1, done.stdout
    assert "float16 4x32x128 contiguous residual=same layout seed " in done.stdout
    assert "times the same-precision reference's" in done.stdout
    assert "allowed 1.5 times" in done.stdout
