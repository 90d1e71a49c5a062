"""The test that the patch adds to vLLM runs without vllm, and passes.

Fail-to-pass: on the base there is no such file.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

TREE = Path(os.environ["CONTRIBBOT_TREE"])
ADDED = "tests/tools/test_rocm_sources.py"


def test_it_passes_under_plain_pytest(tmp_path: Path) -> None:
    path = TREE / ADDED
    assert path.is_file(), f"{ADDED} does not exist"
    blocked = tmp_path / "blocked" / "vllm.py"
    blocked.parent.mkdir()
    blocked.write_text("raise ImportError('vllm is not needed here')\n", encoding="utf-8")
    argv = ["-B", "-m", "pytest", "--noconftest", "-q", "-c", os.devnull, "--rootdir", tmp_path,
            "-p", "no:cacheprovider", "--basetemp", tmp_path / "base", path]  # fmt: skip
    ended = subprocess.run(  # noqa: S603  this interpreter, this file
        [sys.executable, *map(str, argv)],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(blocked.parent)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert "3 passed" in ended.stdout
