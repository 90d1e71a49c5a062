"""The bench of the first patch, on the real release: it sees a copy that should not be there."""

from __future__ import annotations

import shutil
import subprocess
import tarfile
from pathlib import Path

import pytest

from contribbot import process
from contribbot.bench.session import BenchSide, conclude, measure
from contribbot.bench.verdict import Claim
from contribbot.model.evidence import Outcome
from contribbot.queue.load import load_queue

ROOT = Path(__file__).parent.parent
LAYERNORM = "python/sglang/srt/layers/layernorm.py"


@pytest.fixture(scope="session")
def release(sglang_archive: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The release's files that the bench imports."""
    folder = tmp_path_factory.mktemp("release")
    with tarfile.open(sglang_archive) as archive:
        for member in archive:
            _, _, path = member.name.partition("/")
            if member.isfile() and path.startswith("sglang/") and path.endswith(".py"):
                content = archive.extractfile(member)
                assert content is not None
                target = folder / "python" / path
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_bytes(content.read())
    return folder


def patched(release: Path, folder: Path) -> Path:
    """A copy of the release with the patch."""
    shutil.copytree(release, folder)
    patch = next((ROOT / "patches/rmsnorm").glob("0001-*.patch"))
    subprocess.run(
        ["git", "apply", "--include", LAYERNORM, str(patch)],
        cwd=folder,
        check=True,
        env={**process.clean_environment(), "GIT_CEILING_DIRECTORIES": str(folder.parent)},
    )
    return folder


def compare(base: Path, tree: Path, at_least: float, folder: Path) -> tuple[Outcome, str]:
    (entry,) = [one for one in load_queue(ROOT).specs["rmsnorm"].bench if one.name == "contiguous"]
    sides = []
    for number, (name, where) in enumerate((("base", base), ("patched tree", tree))):
        root = folder / str(number)
        shutil.copytree(ROOT / "patches/rmsnorm/checks", root / "checks")
        env = {
            **entry.env,
            "CONTRIBBOT_TREE": str(where),
            "PYTHONPATH": str(where / "python"),
            "HOME": str(folder),
            "MALLOC_MMAP_MAX_": "0",
            "MALLOC_TRIM_THRESHOLD_": str(2**40),
        }
        sides.append(BenchSide(name, root / "checks", process.clean_environment(env), root / "log"))
    claim = Claim(at_least, None, entry.rounds)
    result = measure(entry.file, entry.cases, claim, (sides[0], sides[1]), timeout=entry.timeout)
    outcome, reason, _ = conclude(result, claim)
    return outcome, reason


@pytest.mark.slow
def test_the_patch_does_not_pay_for_what_it_need_not_do(release: Path, tmp_path: Path) -> None:
    tree = patched(release, tmp_path / "tree")

    outcome, reason = compare(release, tree, 0.4, tmp_path / "run")

    assert outcome is Outcome.PASSED, reason
    assert reason.startswith("2 cases: ")


@pytest.mark.slow
def test_a_patch_that_copies_what_needs_no_copy_fails(release: Path, tmp_path: Path) -> None:
    tree = patched(release, tmp_path / "tree")
    path = tree / LAYERNORM
    text = path.read_text()
    wasteful = ".clone()" * 6
    assert text.count("x.shape[-1]).contiguous()") == 1
    path.write_text(text.replace("x.shape[-1]).contiguous()", f"x.shape[-1]){wasteful}"))

    outcome, reason = compare(release, tree, 0.7, tmp_path / "run")

    assert outcome is Outcome.FAILED, reason
    assert "and at least 0.7 is claimed" in reason
