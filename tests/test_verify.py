"""`contribbot verify` on a small real queue: what is proved, refuted, remembered."""

from __future__ import annotations

import contextlib
import json
import os
import pty
import re
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING
from xml.etree import ElementTree as ET

import pytest

from tests.conftest import dig
from tests.toy import AREA, FAIL_TO_PASS, FIXED, one_check

if TYPE_CHECKING:
    from tests.conftest import Program
    from tests.toy import Toy


def test_a_right_patch_is_proved(toy: Toy, program: Program) -> None:
    toy.put_patch()
    toy.put_queue(["area"])

    ran = program("verify", "patches/area", "--json")

    assert ran.code == 0, ran.err
    assert ran.report().verdict == "proved"
    assert ran.report().base_commit == toy.commit
    assert ran.report().open == ()
    seen = ran.stages()
    assert {name: stage.outcome for name, stage in seen.items()} == {
        "source": "passed",
        "apply": "passed",
        "style": "passed",
        "reproduce red": "passed",
        "reproduce same": "passed",
        "witness": "passed",
    }
    red = seen["reproduce red"].details
    assert [dig(red, "base", "failed", n, "test") for n in (0, 1)] == [
        "test_red.py::test_rectangle",
        "test_red.py::test_flat",
    ]
    assert dig(red, "patched", "passed") == [
        "test_red.py::test_rectangle",
        "test_red.py::test_flat",
    ]
    witness = seen["witness"].details
    assert (witness["added"], witness["executed"]) == (2, 2)


@pytest.mark.usefixtures("outcome_cache")
def test_the_patched_tree_is_the_one_that_git_am_makes(toy: Toy, program: Program) -> None:
    from tests.toy import git

    toy.put_patch()
    toy.put_queue(["area"])
    ran = program("verify", "area", "--json")

    patch = toy.queue / "patches/area/0001-change.patch"
    git(toy.upstream, "am", "-q", str(patch))
    assert (
        ran.report().patched_tree == git(toy.upstream, "rev-parse", "HEAD^{tree}").decode().strip()
    )
    details = ran.stages()["apply"].details
    commit = details["patched_commit"]
    store = Path(toy.root.parent / "cache/stores/toy.git")
    ours = git(store, "log", "-1", "--format=%an <%ae> %ad%n%B", str(commit))
    assert ours == git(toy.upstream, "log", "-1", "--format=%an <%ae> %ad%n%B")


@pytest.mark.usefixtures("outcome_cache")
def test_a_second_run_repeats_nothing(toy: Toy, program: Program) -> None:
    toy.put_patch()
    toy.put_queue(["area"])
    program("verify", "area")
    record = next((toy.queue / "evidence/area").glob("*.json"))
    before = record.read_bytes()

    # Without a pytest that could run, only what is remembered can answer.
    ran = program("verify", "area", "--json", PYTEST_ADDOPTS="--no-such-option")

    assert ran.code == 0
    assert all(stage.cached for stage in ran.stages().values())
    assert record.read_bytes() == before


@pytest.mark.usefixtures("outcome_cache")
def test_force_repeats_everything(toy: Toy, program: Program) -> None:
    toy.put_patch()
    toy.put_queue(["area"])
    program("verify", "area")

    ran = program("verify", "area", "--json", "--force")

    repeated = {name for name, stage in ran.stages().items() if not stage.cached}
    # The pinned tree is in the store; there is nothing to repeat about it.
    assert repeated == {"apply", "style", "reproduce red", "reproduce same", "witness"}


@pytest.mark.usefixtures("outcome_cache")
def test_a_changed_check_is_run_again(toy: Toy, program: Program) -> None:
    folder = toy.put_patch()
    toy.put_queue(["area"])
    program("verify", "area")
    (folder / "checks/test_red.py").write_text(FAIL_TO_PASS + "\n# another\n")

    ran = program("verify", "area", "--json")

    assert ran.stages()["apply"].cached is True
    assert ran.stages()["reproduce red"].cached is False


@pytest.mark.usefixtures("outcome_cache")
def test_local_state_can_be_deleted(toy: Toy, program: Program) -> None:
    import shutil

    toy.put_patch()
    toy.put_queue(["area"])
    first = program("verify", "area", "--json")
    shutil.rmtree(toy.root.parent / "cache")

    # The outcomes are remembered, the objects that they speak of are gone.
    second = program("verify", "area", "--json")

    assert second.code == 0, second.err
    assert second.report().patched_tree == first.report().patched_tree
    shutil.rmtree(toy.queue / ".contribbot")
    assert program("verify", "area").code == 0


def test_an_import_error_is_never_red(toy: Toy, program: Program) -> None:
    broken = "def test_it():\n    import no_such_module_anywhere\n"
    toy.put_patch(
        checks=one_check(reason="ModuleNotFoundError"), check_files={"test_red.py": broken}
    )
    toy.put_queue(["area"])

    ran = program("verify", "area")

    assert ran.code == 3
    said = "the check is broken on the base: test_red.py::test_it: ModuleNotFoundError"
    assert said in ran.out


def test_a_file_that_cannot_be_collected_is_not_red(toy: Toy, program: Program) -> None:
    toy.put_patch(
        checks=one_check(reason="ModuleNotFoundError"),
        check_files={"test_red.py": "import no_such_module\n"},
    )
    toy.put_queue(["area"])

    ran = program("verify", "area")

    assert ran.code == 3
    assert "broken on the base: could not be collected" in ran.out
    assert "No module named 'no_such_module'" in ran.out


def test_skipping_everything_shows_nothing(toy: Toy, program: Program) -> None:
    skipping = "import pytest\n\n\n@pytest.mark.skip(reason='no')\ndef test_it(): assert False\n"
    toy.put_patch(checks=one_check(), check_files={"test_red.py": skipping})
    toy.put_queue(["area"])

    ran = program("verify", "area")

    assert ran.code == 3
    assert "on the base: executed no test (1 skipped)" in ran.out


def test_a_patch_that_does_not_help_is_refuted(toy: Toy, program: Program) -> None:
    useless = toy.format_patch(
        {"src/toy/area.py": FIXED.replace("width * height", "width - height")}
    )
    toy.put_patch(patch=useless)
    toy.put_queue(["area"])

    ran = program("verify", "area", "--json")

    assert ran.code == 1
    assert ran.report().verdict == "refuted"
    assert ran.stages()["reproduce red"].outcome == "failed"
    assert ran.stages()["witness"].outcome == "skipped"


def test_the_output_of_a_crash_a_hang_and_an_exit_is_kept(toy: Toy, program: Program) -> None:
    cases = {
        "crash": ("import os\n    print('last words')\n    os.kill(os.getpid(), 11)",
                  "crashed in test_red.py::test_it: SIGSEGV"),
        "hang": ("import time\n    print('last words')\n    time.sleep(600)",
                 "hung in test_red.py::test_it: killed after 8 s"),
        "exit": ("import os\n    print('last words')\n    os._exit(0)",
                 "ended early in test_red.py::test_it with exit status 0"),
        "flood": ("import os\n    while True: os.write(1, b'x' * 65536)",
                  "wrote too much output in test_red.py::test_it"),
    }  # fmt: skip
    for name, (body, _) in cases.items():
        toy.put_patch(
            name,
            # Time enough to begin the test and print, with other work on the machine.
            checks=one_check(more="timeout = 8\n" if name == "hang" else ""),
            check_files={
                "test_red.py": f"def test_it(capfd):\n  with capfd.disabled():\n    {body}\n"
            },
        )
    toy.put_queue(list(cases))

    ran = program("verify", "--all", "--json")

    assert ran.code == 3
    for number, (name, (body, reason)) in enumerate(cases.items()):
        result = ran.stages(number)["reproduce red"]
        assert reason in str(result.reason), name
        details = result.details
        log = toy.queue / ".contribbot/logs" / f"{dig(details, 'base', 'log_sha256')}.log"
        assert ("last words" if "last words" in body else "xxx") in log.read_text(), name
        assert str(dig(details, "base", "log_tail")) in log.read_text()
    again = program("verify", "crash", "--json")
    assert again.stages()["reproduce red"].cached is False, "a crash may not be remembered"


def test_a_reason_that_takes_for_ever_ends_with_the_run(toy: Toy, program: Program) -> None:
    text = f"def test_it():\n    raise ValueError({40 * 'a'!r} + '!')\n"
    checks = one_check(reason="^ValueError: (a+)+$", more="timeout = 8\n")
    toy.put_patch(checks=checks, check_files={"test_red.py": text})
    toy.put_queue(["area"])

    ran = program("verify", "area", "--json")

    assert ran.code == 3
    assert "hung in test_red.py::test_it" in ran.stages()["reproduce red"].reason


def test_children_of_a_check_do_not_outlive_it(toy: Toy, program: Program, tmp_path: Path) -> None:
    marker = tmp_path / "alive"
    body = (
        "import subprocess\nfrom toy.area import rectangle\n\n\ndef test_it():\n"
        f"    subprocess.Popen(['sh', '-c', 'sleep 4; touch {marker}'])\n"
        "    assert rectangle(2, 3) == 6\n"
    )
    toy.put_patch(checks=one_check(), check_files={"test_red.py": body})
    toy.put_queue(["area"])

    ran = program("verify", "area")

    assert ran.code == 0, ran.out
    import time

    time.sleep(4.5)
    assert not marker.exists()


def test_the_witness_counts_what_ran_and_not_what_was_imported(toy: Toy, program: Program) -> None:
    unused = "import os\n\n\ndef unused():\n    return os.sep\n"
    toy.put_patch(
        patch=toy.format_patch({"src/toy/area.py": FIXED, "src/toy/more.py": unused}),
        files=("src/toy/area.py", "src/toy/more.py"),
    )
    toy.put_queue(["area"])

    ran = program("verify", "area", "--json")

    details = ran.stages()["witness"].details
    assert dig(details, "files", "src/toy/more.py", "not_executed") == [5]
    assert (details["added"], details["executed"]) == (3, 2)


def test_checks_that_never_reach_the_change_prove_nothing(toy: Toy, program: Program) -> None:
    never = toy.format_patch({"src/toy/area.py": AREA + "\n\ndef never():\n    return 1\n"})
    exists = "import toy.area\n\n\ndef test_it():\n    assert hasattr(toy.area, 'never'), 'lacks'\n"
    toy.put_patch(
        patch=never, checks=one_check(reason="lacks"), check_files={"test_red.py": exists}
    )
    toy.put_queue(["area"])

    ran = program("verify", "area", "--json")

    assert ran.code == 3
    assert ran.stages()["reproduce red"].outcome == "passed"
    assert ran.stages()["witness"].outcome == "skipped"
    assert "0 of 1 added statements ran" in ran.stages()["witness"].reason


def test_what_only_reads_a_text_proves_nothing(toy: Toy, program: Program) -> None:
    reads = (
        "import os, pathlib\n\n\ndef test_it():\n"
        "    text = pathlib.Path(os.environ['CONTRIBBOT_TREE'], 'README').read_text()\n"
        "    assert text == 'better\\n', 'not better'\n"
    )
    toy.put_patch(
        patch=toy.format_patch({"README": "better\n"}),
        files=("README",),
        checks=one_check(reason="not better"),
        check_files={"test_red.py": reads},
    )
    toy.put_queue(["area"])

    ran = program("verify", "area", "--json")

    assert ran.code == 3, ran.err
    assert ran.report().verdict == "incomplete"
    assert ran.stages()["witness"].outcome == "skipped"


@pytest.mark.parametrize(
    "end",
    [
        "pytest.exit('bye', returncode=0)",
        pytest.param("raise KeyboardInterrupt", marks=pytest.mark.slow),
    ],
)
def test_a_check_that_stops_half_way_proves_nothing(toy: Toy, program: Program, end: str) -> None:
    stopping = (
        "import pytest\nfrom toy.area import rectangle\n\n\n"
        "def test_one():\n    assert rectangle(2, 3) == 6\n\n\n"
        f"def test_two():\n    {end}\n\n\n"
        "def test_three():\n    assert False, 'never seen'\n"
    )
    toy.put_patch(checks=one_check(), check_files={"test_red.py": stopping})
    toy.put_queue(["area"])

    ran = program("verify", "area")

    assert ran.code == 3, ran.out
    assert "area: nothing proved, nothing refuted" in ran.out


def test_a_check_cannot_tell_which_side_it_is_on(toy: Toy, program: Program) -> None:
    telling = (
        "import os, sys\n\n\ndef test_it():\n    named = {k for k in os.environ}\n"
        "    raw = open('/proc/self/environ').read().split('\\0')\n"
        "    raw = sorted(x.split('=')[0] for x in raw)\n"
        "    seen = (sorted(named), 'coverage' in sys.modules, raw)\n"
        "    raise ValueError(repr(seen))\n"
    )
    toy.put_patch(checks=one_check(reason="ValueError"), check_files={"test_red.py": telling})
    toy.put_queue(["area"])

    ran = program("verify", "area", "--json")

    details = ran.stages()["reproduce red"].details
    sides = [dig(details, side, "failed", 0, "message") for side in ("base", "patched")]
    assert sides[0] == sides[1]


@pytest.mark.usefixtures("unsandboxed")
def test_a_check_that_writes_into_the_tree_proves_nothing(toy: Toy, program: Program) -> None:
    meddling = (
        "import os, pathlib\nfrom toy.area import rectangle\n\n\ndef test_it():\n"
        "    pathlib.Path(os.environ['CONTRIBBOT_TREE'], 'src/toy/area.py').write_text('')\n"
        "    assert rectangle(2, 3) == 6\n"
    )
    toy.put_patch(checks=one_check(), check_files={"test_red.py": meddling})
    toy.put_queue(["area"])

    ran = program("verify", "area")

    assert ran.code == 3
    assert (
        "red: the check did not end well on the base: wrote into the tree: src/toy/area.py"
        in ran.out
    )


def test_a_patch_cannot_excuse_its_own_lines(toy: Toy, program: Program) -> None:
    excused = AREA + "\n\ndef never():  # pragma: no cover\n    return 1\n"
    exists = "import toy.area\n\n\ndef test_it():\n    assert hasattr(toy.area, 'never'), 'lacks'\n"
    toy.put_patch(
        patch=toy.format_patch({"src/toy/area.py": excused}),
        checks=one_check(reason="lacks"),
        check_files={"test_red.py": exists},
    )
    toy.put_queue(["area"])

    ran = program("verify", "area")

    assert ran.code == 3
    assert "0 of 1 added statements ran" in ran.out


@pytest.mark.usefixtures("outcome_cache")
def test_an_outcome_is_not_remembered_for_another_accelerator(toy: Toy, program: Program) -> None:
    toy.put_patch()
    toy.put_queue(["area"])
    program("verify", "area")

    ran = program("verify", "area", "--json", HSA_OVERRIDE_GFX_VERSION="9.4.2")

    red = ran.stages()["reproduce red"]
    assert red.cached is False
    assert dig(red.details, "accelerator", "HSA_OVERRIDE_GFX_VERSION") == "9.4.2"


@pytest.mark.usefixtures("outcome_cache")
def test_one_invalid_patch_does_not_end_the_proof_of_another(toy: Toy, program: Program) -> None:
    toy.put_patch("area")
    right = toy.format_patch({"src/toy/area.py": FIXED})
    corrupt = re.sub(rb"@@ -(\d+),\d+ ", rb"@@ -\1,80 ", right)
    toy.put_patch("broken", patch=corrupt)
    toy.put_queue(["area", "broken"])

    ran = program("verify", "--all", "--json")

    assert ran.code == 2
    assert ran.report(0).verdict == "proved"
    assert "patches/broken/0001-change.patch: " in ran.stages(1)["apply"].reason
    assert "corrupt patch" in ran.stages(1)["apply"].reason


def test_folders_with_odd_names(toy: Toy, program: Program, tmp_path: Path) -> None:
    toy.put_patch(checks=one_check(reason="^AssertionError: assert 5 == "))
    toy.put_queue(["area"])
    name = "with space [x] ünïcode a'b\"c *?"
    ran = program("verify", "area", CONTRIBBOT_CACHE=str(tmp_path / name))
    assert ran.code == 0, ran.out + ran.err
    assert "2 of 2 added statements ran" in ran.out
    refused = program("verify", "area", CONTRIBBOT_CACHE=str(tmp_path / "a:b"))
    assert refused.code == 2
    assert "CONTRIBBOT_CACHE" in refused.err


def test_no_secret_reaches_a_check(toy: Toy, program: Program) -> None:
    spying = (
        "import os\nfrom toy.area import rectangle\n\n\ndef test_it():\n"
        "    assert 'GITHUB_TOKEN' not in os.environ\n    assert 'SECRET' not in repr(os.environ)\n"
        "    assert rectangle(2, 3) == 6, 'red as stated'\n"
    )
    toy.put_patch(checks=one_check(reason="red as stated"), check_files={"test_red.py": spying})
    toy.put_queue(["area"])

    ran = program(
        "verify",
        "area",
        GITHUB_TOKEN="SECRET",  # noqa: S106  a secret for the test
        AWS_KEY="SECRET",
        CUDA_KEY="SECRET",
    )

    assert ran.code == 0, ran.out


def test_what_this_machine_lacks_is_open_and_never_a_pass(toy: Toy, program: Program) -> None:
    gpu = one_check().replace('name = "red"', 'name = "gpu"').replace("red.py", "gpu.py")
    both = one_check() + gpu + 'requires = ["gfx90c", "python:no_such_module"]\n'
    toy.put_patch(
        checks=both, check_files={"test_red.py": FAIL_TO_PASS, "test_gpu.py": FAIL_TO_PASS}
    )
    toy.put_queue(["area"])

    ran = program("verify", "area", "--json")
    required = program("verify", "area", "--require", "gfx90c")
    cpu = program("verify", "area", "--require", "cpu")

    assert ran.code == 0
    assert ran.report().open == ("gfx90c",)
    assert ran.stages()["reproduce gpu"].outcome == "unavailable"
    assert "no gfx90c on this machine" in str(ran.stages()["reproduce gpu"].reason)
    assert required.code == 1
    assert "required, and not proved here: gfx90c" in required.out
    assert "proved on cpu; not run: gfx90c" in required.out
    assert cpu.code == 0


def test_a_queue_with_only_gpu_checks_proves_nothing_here(toy: Toy, program: Program) -> None:
    toy.put_patch(checks=one_check(more='requires = ["gfx90c"]\n'))
    toy.put_queue(["area"])

    ran = program("verify", "area", "--json")

    assert ran.code == 3
    assert ran.report().verdict == "incomplete"


def test_a_patch_is_verified_on_top_of_what_it_depends_on(toy: Toy, program: Program) -> None:
    from tests.toy import git

    toy.put_patch("first")
    toy.write("src/toy/area.py", FIXED)
    git(toy.upstream, "commit", "-qam", "First")
    toy.write("src/toy/area.py", FIXED.replace("base * height / 2", "base * height / 2.0"))
    git(toy.upstream, "commit", "-qam", "Say halves as a float")
    second = git(toy.upstream, "format-patch", "-1", "--stdout", "--no-signature")
    git(toy.upstream, "reset", "-q", "--hard", toy.commit)
    toy.put_patch(
        "second",
        patch=second,
        extra='depends_on = ["first"]',
        checks=one_check("pass-to-pass", ""),
        check_files={"test_red.py": FAIL_TO_PASS},
    )
    toy.put_queue(["first", "second"])

    ran = program("verify", "second", "--json")

    # The check needs the dependency: without it below, the base would fail.
    assert ran.stages()["reproduce red"].outcome == "passed", ran.out
    assert ran.report().base_commit != toy.commit


def test_junit_and_step_summary(toy: Toy, program: Program, tmp_path: Path) -> None:
    toy.put_patch(
        checks=one_check(),
        check_files={
            "test_red.py": "def test_it():\n    raise AssertionError('<b>|x|</b> \\x1b[31m @you')\n"
        },
    )
    toy.put_queue(["area"])
    junit, summary = tmp_path / "out/junit.xml", tmp_path / "summary.md"

    ran = program("verify", "area", "--junit", junit, GITHUB_STEP_SUMMARY=str(summary))

    assert ran.code == 1
    assert "\x1b" not in ran.out
    suite = ET.fromstring(junit.read_text()).find("testsuite")  # noqa: S314  our own file
    assert suite is not None
    assert (suite.get("tests"), suite.get("failures"), suite.get("skipped")) == ("5", "1", "1")
    text = summary.read_text()
    assert "<b>" not in text
    assert "&lt;b&gt;\\|x\\|&lt;/b&gt;" in text
    assert "@you" not in text


@pytest.mark.usefixtures("outcome_cache")
def test_json_is_one_document_and_lines_go_to_standard_error(toy: Toy, program: Program) -> None:
    toy.put_patch()
    toy.put_queue(["area"])

    ran = program("verify", "area", "--json")

    assert set(json.loads(ran.out)) == {"patches"}
    report = dig(ran.json(), "patches", 0)
    assert isinstance(report, dict)
    assert set(report) == {
        "patch", "upstream", "pin", "base_commit", "patched_tree", "verdict", "stages", "open",
    }  # fmt: skip
    assert "area: proved on cpu" in ran.err


def test_a_conflict_shows_the_three_sides(toy: Toy, program: Program) -> None:
    folder = toy.put_patch()
    toy.put_queue(["area"])
    patch = folder / "0001-change.patch"
    patch.write_text(patch.read_text().replace("-    return width + height", "-    return sum(x)"))

    ran = program("verify", "area")

    assert ran.code == 1
    assert "hunk 1 of src/toy/area.py does not apply to toy v1.0" in ran.out
    for line in (
        "    the patch expects:",
        "      >     return sum(x)",
        "    the pin has, at line 7:",
        "      >     return width + height",
        "    the patch wants:",
        "      |     area = width * height",
    ):
        assert line in ran.out.splitlines()
    assert "area: refuted by apply" in ran.out


def test_on_a_terminal_lines_and_progress_do_not_mix(toy: Toy, program: Program) -> None:
    toy.put_patch()
    toy.put_queue(["area"])

    shown = on_terminal(program, "verify", "area")

    lines = [re.sub(r" +", " ", line).strip() for line in re.split(r"[\r\n]+", shown)]
    for stage in ("source any", "apply any", "style any", "witness cpu"):
        assert any(line.startswith(f"area {stage} passed ") for line in lines), shown
    assert "area: proved on cpu" in lines


def on_terminal(program: Program, *args: str) -> str:
    """Return what a run writes to a terminal, without its control sequences."""
    ours, theirs = pty.openpty()
    environment = {name: value for name, value in os.environ.items() if name != "CI"}
    with subprocess.Popen(
        [sys.executable, "-m", "contribbot", *args],
        cwd=program.cwd, env={**environment, "TERM": "xterm", "COLUMNS": "150"},
        stdin=subprocess.DEVNULL, stdout=theirs, stderr=theirs,
    ) as running:  # fmt: skip
        os.close(theirs)
        written = bytearray()
        # On Linux, the end of a terminal is an error.
        with contextlib.suppress(OSError):
            while chunk := os.read(ours, 65536):
                written += chunk
        os.close(ours)
    assert running.returncode == 0, written
    return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", written.decode())


def test_an_upstream_test_that_does_not_compile_is_a_matter_of_style(
    toy: Toy, program: Program
) -> None:
    toy.put_patch(
        patch=toy.format_patch({"src/toy/area.py": FIXED, "tests/test_new.py": "def f(:\n"}),
        files=("src/toy/area.py", "tests/test_new.py"),
    )
    toy.put_queue(["area"])

    ran = program("verify", "area", "--json")

    assert ran.code == 1, ran.err
    assert "tests/test_new.py:1: does not compile" in ran.stages()["style"].reason
    assert ran.stages()["witness"].outcome == "passed"
