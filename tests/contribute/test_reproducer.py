from __future__ import annotations

import os
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from contribbot.contribute.reproducer import Reproducer, make_reproducer, write_reproducer
from contribbot.errors import UsageError
from contribbot.queue.load import load_queue
from tests.conftest import Program
from tests.contribute.gatetoy import verify
from tests.contribute.snapshots import assert_snapshot
from tests.contribute.tracked import tracked_queue
from tests.tools import kinds, unpack
from tests.toy import FAIL_TO_PASS, FIXED, Toy, git, one_check

LOWER = """\
import importlib.util


def test_it():
    assert importlib.util.find_spec("toy.low")
    assert importlib.import_module("toy.low").LOW == 5
"""


def run(folder: Path, *args: str) -> tuple[int, str]:
    """Run the script as a stranger would: with nothing of contribbot on the path."""
    env = {name: os.environ[name] for name in ("PATH", "HOME")}
    done = subprocess.run(
        ["sh", "reproduce.sh", *args], cwd=folder, capture_output=True, text=True, timeout=120,
        env={**env, "PYTHON": sys.executable, "PYTHONDONTWRITEBYTECODE": "1"}, check=False,
    )  # fmt: skip
    return done.returncode, done.stdout + done.stderr


def prove(root: Path, **files: str) -> Toy:
    """Prove a toy patch whose one check has these files."""
    toy = Toy(root / "toy")
    changes: dict[str, str | bytes] = {"src/toy/area.py": FIXED, "tests/test_area.py": FAIL_TO_PASS}
    toy.put_patch(
        patch=toy.format_patch(changes), files=tuple(changes),
        checks=one_check(more='env = { SIDE = "it\'s 1" }'),
        check_files={"test_red.py": FAIL_TO_PASS, **files},
    )  # fmt: skip
    toy.put_queue(["area"])
    return verify(toy, root).toy


@pytest.fixture(scope="module")
def proved(tmp_path_factory: pytest.TempPathFactory) -> Toy:
    """A toy patch that is proved; nothing writes to it."""
    return prove(tmp_path_factory.mktemp("reproducible"))


@pytest.fixture
def made(proved: Toy) -> Reproducer:
    return make_reproducer(load_queue(proved.queue), "area")


def test_the_script_gets_the_base_and_shows_the_fault(
    proved: Toy, made: Reproducer, tmp_path: Path
) -> None:
    assert (made.check, made.test) == ("red", "test_red.py::test_rectangle")
    folder = tmp_path / "out"
    write_reproducer(made, folder)
    code, said = run(folder)
    assert code == 1
    assert "assert 5 == 6" in said
    assert "1 failed" in said
    assert git(folder / "tree", "rev-parse", "HEAD").decode().strip() == proved.commit
    # A second run, and one in somebody's own checkout with the fix.
    assert run(folder)[0] == 1
    own = tmp_path / "own"
    git(tmp_path, "clone", "-q", str(proved.upstream), str(own))
    (own / "src/toy/area.py").write_text(FIXED)
    code, said = run(folder, str(own))
    assert (code, "1 passed" in said) == (0, True)


def test_the_report_says_what_is_seen_and_how(made: Reproducer) -> None:
    report = made.report
    assert report.startswith(
        "## What happens\n\nAreas are sums.\n\nSeen with example/toy at `v1.0`"
    )
    for part in (
        "on cpu: 2 of 2 tests of `test_red.py` fail",
        "```\nAssertionError: assert 5 == 6\n```",
        "python -m pip install pytest\nsh reproduce.sh\n",
        "SIDE='it'\"'\"'s 1' python -m pytest test_red.py",
        "no GPU",
    ):
        assert part in report


def test_only_what_the_check_imports_comes_along(tmp_path: Path) -> None:
    files = {
        "test_red.py": FAIL_TO_PASS.replace("from toy", "from helper import SIX\nfrom toy").replace(
            "== 6", "== SIX"
        ),
        "helper.py": '"""The number."""\nfrom inner.part import SIX\n',
        "inner/__init__.py": "",
        "inner/part.py": "SIX = 6\n",
        "unused.py": "",
        "data.json": "{}",
    }
    made = make_reproducer(load_queue(prove(tmp_path, **files).queue), "area")
    assert sorted(made.files) == sorted(
        ["REPORT.md", "reproduce.sh", "checks/pytest.ini", "checks/data.json", "checks/helper.py",
         "checks/inner/__init__.py", "checks/inner/part.py", "checks/test_red.py"]
    )  # fmt: skip
    assert "- `checks/helper.py`: The number.\n" in made.report


def test_patches_below_are_applied_first(toy: Toy, program: Program, tmp_path: Path) -> None:
    toy.put_patch(
        "lower",
        patch=toy.format_patch({"src/toy/low.py": "LOW = int(5)\n"}, "Add low"),
        files=("src/toy/low.py",),
        checks=one_check(),
        check_files={"test_red.py": LOWER},
    )
    red = "from toy.area import rectangle\n\n\ndef test_it():\n    from toy.low import LOW\n"
    toy.put_patch(
        "area",
        extra='depends_on = ["lower"]',
        checks=one_check(),
        check_files={"test_red.py": red + "\n    assert rectangle(2, 3) == LOW + 1\n"},
    )
    toy.put_queue(["lower", "area"])
    assert program("verify", "area").code == 0
    write_reproducer(make_reproducer(load_queue(toy.queue), "area"), tmp_path / "out")
    script = (tmp_path / "out/reproduce.sh").read_text()
    assert "# A CHECKOUT must have below/*.patch applied." in script
    code, said = run(tmp_path / "out")
    assert code == 1
    assert "assert 5 == (5 + 1)" in said


OWN = "import os, runpy\n" + FAIL_TO_PASS.replace(
    "def test_flat", "def test_own():\n    runpy.run_path(os.environ['CONTRIBBOT_TREE'] + "
    "'/tests/test_area.py')['test_rectangle']()\n\n\ndef test_flat",
)  # fmt: skip


@pytest.mark.parametrize(
    "text", kinds(["import contribbot.errors\n" + FAIL_TO_PASS, OWN], lambda text: text != OWN)
)
def test_what_needs_contribbot_or_the_own_test_is_no_reproducer(tmp_path: Path, text: str) -> None:
    queue = load_queue(prove(tmp_path, **{"test_red.py": text}).queue)
    with pytest.raises(UsageError, match="no check fails on the base in plain pytest") as caught:
        make_reproducer(queue, "area")
    needs = "the patch's own test" if text == OWN else "contribbot, which it imports"
    way = "state one that needs neither, or write the issue by hand"
    assert caught.value.hint == f"red needs {needs}; {way}"


def test_without_evidence_nothing_is_written(toy: Toy, program: Program, tmp_path: Path) -> None:
    toy.put_patch()
    toy.put_queue(["area"])
    ran = program("reproducer", "area", tmp_path / "out")
    assert ran.code == 1
    assert "no fresh evidence; run `contribbot verify area`" in ran.err
    assert not (tmp_path / "out").exists()


def test_somebody_elses_folder_and_tree_are_left_alone(made: Reproducer, tmp_path: Path) -> None:
    own = tmp_path / "mine"
    own.mkdir()
    (own / "thesis.txt").write_text("years of work")
    with pytest.raises(UsageError, match="not empty"):
        write_reproducer(made, own)
    assert [path.name for path in own.iterdir()] == ["thesis.txt"]
    folder = tmp_path / "out"
    write_reproducer(made, folder)
    write_reproducer(made, folder)
    assert run(folder)[0] == 1  # it has its tree now, of this base
    script = made.files["reproduce.sh"]
    for other in (
        {"reproduce.sh": script.replace(b"v1.0", b"v1.1")},
        {"below/01-lower.patch": b"another\n"},
    ):
        with pytest.raises(UsageError, match="not empty") as caught:
            write_reproducer(replace(made, files={**made.files, **other}), folder)
        assert "another" in caught.value.hint
    assert (folder / "reproduce.sh").read_bytes() == script
    assert not (folder / "below").exists()


@pytest.mark.parametrize("name", ["rmsnorm", "stable-softmax", "hipify-path"])
def test_a_real_report_reads_as_it_was_approved(name: str) -> None:
    made = make_reproducer(load_queue(tracked_queue()), name)
    assert_snapshot(f"{name}.report.md", made.report)
    assert_snapshot(f"{name}.sh", made.files["reproduce.sh"].decode())


@pytest.mark.slow
def test_rmsnorm_is_seen_in_the_release_itself(sglang_archive: Path, tmp_path: Path) -> None:
    made = make_reproducer(load_queue(tracked_queue()), "rmsnorm")
    write_reproducer(made, tmp_path / "out")
    unpack(sglang_archive, tmp_path / "unpacked")
    (tmp_path / "tree").mkdir()
    next((tmp_path / "unpacked").iterdir()).rename(tmp_path / "tree/python")
    code, said = run(tmp_path / "out", str(tmp_path / "tree"))
    assert code == 1
    assert "AiterContractError: rmsnorm2d_fwd: input must be 2-D (shape (256, 32, 128)" in said


#: What the lines that a maintainer pastes print where the patch is not.
PASTED = {
    "stable-softmax": r"torch.bfloat16 1 True 0\.4\d%\ntorch.bfloat16 1 False 0\.2\d%\n"
    r"torch.bfloat16 2 True 0\.9\d%\ntorch.bfloat16 2 False 0\.1\d%\n"
    r"torch.float16 256 True nan%\ntorch.float16 256 False 0\.00%\n",
}


@pytest.mark.slow
@pytest.mark.parametrize("name", PASTED)
def test_the_lines_that_a_maintainer_pastes_show_the_fault(name: str) -> None:
    lines = load_queue(tracked_queue()).specs[name].contribution.reproducer
    ran = subprocess.run([sys.executable, "-c", lines], text=True, check=True, capture_output=True)
    assert re.fullmatch(PASTED[name], ran.stdout)


def test_each_fault_that_needs_no_harness_has_lines_to_paste() -> None:
    specs = load_queue(tracked_queue()).specs
    assert {name for name, spec in specs.items() if spec.contribution.reproducer} == {*PASTED}
