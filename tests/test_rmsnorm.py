"""The first patch, on the real release: proved as it is, refuted when it is broken."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from contribbot.model.evidence import Verdict
from contribbot.queue.load import load_queue
from tests.conftest import REAL_CACHE, Program, dig

ROOT = Path(__file__).parent.parent


@pytest.fixture
def queue(tmp_path: Path) -> Path:
    """A copy of this project's queue, with nothing remembered and no bench on the processor.

    How fast this machine is must not decide a test; tests/test_bench_rmsnorm.py has the bench.
    """
    shutil.copytree(ROOT / "patches", tmp_path / "queue/patches")
    stated = tmp_path / "queue/patches/rmsnorm/patch.toml"
    text = stated.read_text(encoding="utf-8")
    start = text.index('[[bench]]\nname = "contiguous"\n')
    stated.write_text(text[:start] + text[text.index("[[bench]]", start + 1) :], encoding="utf-8")
    return tmp_path / "queue"


def transcript(text: str) -> list[str]:
    """Return the lines of a verification, without what differs from run to run."""
    bench = re.compile(r"rmsnorm +bench +cpu ")
    lines = [
        line for line in text.splitlines() if line.startswith("rmsnorm") and not bench.match(line)
    ]
    return sorted(re.sub(r"\d+\.\d s |cached |[\w-]+\.json| +", " ", line) for line in lines)


@pytest.mark.usefixtures("sglang_archive")
@pytest.mark.slow  # `make verify` is the same
def test_it_is_proved_on_a_cpu_and_open_on_gfx942(queue: Path) -> None:
    program = Program(queue, {"CONTRIBBOT_CACHE": str(REAL_CACHE)})

    # As `make verify` does.
    ran = program("verify", "patches/rmsnorm", "--json", "--evidence", ".contribbot/evidence")

    assert ran.code == 0, ran.err
    report = ran.report()
    assert (report.verdict, report.open) == (Verdict.PROVED, ("gfx942",))
    seen = ran.stages()
    assert {name: str(one.outcome) for name, one in seen.items()} == {
        "source": "passed",
        "apply": "passed",
        "style": "passed",
        "reproduce layout": "passed",
        "reproduce unchanged": "passed",
        "reproduce added-test": "passed",
        "reproduce registered": "passed",
        "reproduce aiter-gfx942": "unavailable",
        "numerics grid": "passed",
        "witness": "passed",
        "bench contiguous-gfx942": "unavailable",
    }
    layout = seen["reproduce layout"].details
    failed, passed = dig(layout, "base", "failed"), dig(layout, "patched", "passed")
    assert isinstance(failed, list)
    assert isinstance(passed, list)
    assert len(failed) == len(passed) > 100
    witness = seen["witness"].details
    assert witness["executed"] == witness["added"] == 10
    assert transcript(ran.err) == transcript((ROOT / "README.md").read_text())
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


def test_the_evidence_that_is_kept_is_fresh(tmp_path: Path) -> None:
    # Only what git tracks: this checkout may hold a user's own records.
    names = ["git", "ls-files", "-z", "patches", "evidence", "history"]
    listed = subprocess.run(names, cwd=ROOT, capture_output=True, text=True, check=False)
    if listed.returncode:
        pytest.skip("not a checkout: git does not say what is tracked")
    for name in filter(None, listed.stdout.split("\0")):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(ROOT / name, tmp_path / name)
    ran = Program(tmp_path)("evidence", "check")
    assert ran.code == 0, ran.out


def test_every_patch_of_the_queue_is_valid() -> None:
    queue = load_queue(ROOT)
    assert [queue.patch(name).name for name in queue.specs] == list(queue.spec.order)
