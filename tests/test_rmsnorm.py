"""The first patch, on the real release: proved as it is, refuted when it is broken."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from contribbot import process
from contribbot.model.evidence import Verdict
from tests.conftest import REAL_CACHE, Program, dig, once
from tests.contribute.tracked import tracked_queue
from tests.tools import unpack

ROOT = Path(__file__).parent.parent
PATCH = ROOT / "patches/rmsnorm"
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
def queue(tmp_path: Path) -> Path:
    """A copy of this project's queue, with nothing remembered."""
    shutil.copytree(ROOT / "patches", tmp_path / "queue/patches")
    return tmp_path / "queue"


@pytest.mark.usefixtures("sglang_archive")
@pytest.mark.slow  # `make verify` is the same
def test_it_is_proved_on_a_cpu_and_open_on_gfx942(queue: Path) -> None:
    program = Program(queue, {"CONTRIBBOT_CACHE": str(REAL_CACHE)})

    # As `make verify` does.
    ran = program.ok("verify", "rmsnorm", "--json", "--evidence", ".contribbot/evidence")
    report = ran.report()
    assert (report.verdict, report.open) == (Verdict.PROVED, ("gfx942",))
    seen = ran.stages()
    checks = ("layout", "unchanged", "added-test", "registered")
    assert {name: str(result.outcome) for name, result in seen.items()} == {
        **dict.fromkeys(("source", "apply", "style", "numerics grid"), "passed"),
        **{f"reproduce {name}": "passed" for name in checks},
        "reproduce aiter-gfx942": "unavailable",
        "bench contiguous-gfx942": "unavailable",
    }
    layout = seen["reproduce layout"].details
    failed, passed = dig(layout, "base", "failed"), dig(layout, "patched", "passed")
    assert isinstance(failed, list)
    assert isinstance(passed, list)
    assert len(failed) == len(passed) > 50
    (record,) = (queue / ".contribbot/evidence/rmsnorm").glob("*.json")
    assert "gfx942" not in str(json.loads(record.read_text())["predicate"]["passedTests"])


@pytest.mark.slow
@pytest.mark.usefixtures("sglang_archive")
def test_a_patch_that_forgets_the_residual_is_refuted(queue: Path) -> None:
    path = next((queue / "patches/rmsnorm").glob("*.patch"))
    text = path.read_text()
    line = "+            residual = _to_aiter_layout(residual)\n"
    assert line in text
    path.write_text(text.replace(line, line.replace("_to_aiter_layout(residual)", "residual")))
    program = Program(queue, {"CONTRIBBOT_CACHE": str(REAL_CACHE)})
    ran = program("verify", "rmsnorm")
    assert ran.code == 1
    assert "layout: fails on the patched tree" in ran.out
    assert "AiterContractError" in ran.out


def test_the_evidence_that_is_kept_is_fresh() -> None:
    ran = Program(tracked_queue())("evidence", "check")
    assert ran.code == 0, ran.out


@pytest.fixture(scope="session")
def release(sglang_archive: Path, shared: Path) -> Path:
    """The released package, in the upstream's paths."""

    def make(folder: Path) -> Path:
        unpack(sglang_archive, folder / "all")
        (unpacked,) = (folder / "all").iterdir()
        (folder / "tree/python").mkdir(parents=True)
        shutil.move(unpacked / "sglang", folder / "tree/python/sglang")
        return folder / "tree"

    return once(shared / "release", make)


@pytest.fixture
def tree(release: Path, tmp_path: Path) -> Path:
    """A copy of the release with the patch on it."""
    folder = Path(shutil.copytree(release, tmp_path / "tree"))
    (file,) = PATCH.glob("*.patch")
    env = {**process.clean_environment(), "GIT_CEILING_DIRECTORIES": str(tmp_path)}
    subprocess.run(["git", "apply", str(file)], cwd=folder, check=True, env=env)
    return folder


def replace_in(path: Path, old: str, new: str) -> None:
    """Change what a file has once."""
    text = path.read_text()
    assert text.count(old) == 1
    path.write_text(text.replace(old, new))


@pytest.mark.slow
def test_the_grid_refuses_one_rounding_more(tree: Path) -> None:
    replace_in(tree / LAYER, ONE_KERNEL, TWO_STEPS)
    (tree / "pytest.ini").write_text("[pytest]\n")
    shutil.copytree(PATCH / "checks", tree / "patch/checks")
    shutil.copy(PATCH / "patch.toml", tree / "patch")

    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-c", "pytest.ini",
         "--color=no", "patch/checks/test_numerics.py", "-k", "contiguous"],
        cwd=tree, capture_output=True, text=True, timeout=120, check=False,
        env={
            **os.environ,
            "CONTRIBBOT_TREE": str(tree),
            "OMP_NUM_THREADS": "1",
            "PYTHONDONTWRITEBYTECODE": "1",
            "PYTHONPATH": str(tree / "python"),
            "SGLANG_USE_AITER": "1",
        },
    )  # fmt: skip

    assert done.returncode == 1, done.stdout
    # Without a residual nothing was changed.
    assert re.search(r"\d+ failed, \d+ passed", done.stdout)
    assert "float16 4x32x128 contiguous residual=same layout seed " in done.stdout
    assert "times the same-precision reference's" in done.stdout
    assert "allowed 1.5 times" in done.stdout
