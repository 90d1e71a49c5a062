"""`contribbot verify` on a small real queue: what is said, kept and remembered."""

from __future__ import annotations

import contextlib
import os
import pty
import re
import shutil
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from contribbot.files import log_path
from tests.conftest import dig
from tests.tools import kinds
from tests.toy import FAIL_TO_PASS, FIXED, git, one_check

if TYPE_CHECKING:
    from pathlib import Path

    from tests.conftest import Program
    from tests.toy import Toy

PATH = "src/toy/area.py"
TESTS = ["test_red.py::test_rectangle", "test_red.py::test_flat"]


def put(
    toy: Toy, text: str, *, reason: str = "AssertionError", more: str = "",
    change: dict[str, str | bytes] | None = None,
) -> None:  # fmt: skip
    """Make a queue of one patch with one check."""
    change = change or {PATH: FIXED}
    toy.put_area(
        patch=toy.format_patch(change),
        files=tuple(change),
        checks=one_check(reason=reason, more=more),
        check_files={"test_red.py": text},
    )


def test_a_right_patch_is_proved(area: Toy, program: Program) -> None:
    ran = program.ok("verify", "area", "--json")
    assert "area: proved on cpu" in ran.err
    document = ran.json()
    assert set(document) == {"patches"}
    report = dig(document, "patches", 0)
    assert isinstance(report, dict)
    assert set(report) == {
        "patch", "upstream", "pin", "base_commit", "patched_tree", "verdict", "stages", "open",
    }  # fmt: skip
    assert (ran.report().verdict, ran.report().open) == ("proved", ())
    assert ran.report().base_commit == area.commit
    seen = ran.stages()
    names = ("source", "apply", "style", "reproduce red", "reproduce same")
    assert {name: stage.outcome for name, stage in seen.items()} == dict.fromkeys(names, "passed")
    red = seen["reproduce red"].details
    assert [dig(red, "base", "failed", number, "test") for number in (0, 1)] == TESTS
    assert dig(red, "patched", "passed") == TESTS
    assert dig(red, "proof") is True


def repeated(program: Program, *args: str, **env: str) -> set[str]:
    """Verify again, and return what was not remembered."""
    program.env = env
    ran = program.ok("verify", "area", "--json", *args)
    return {name for name, stage in ran.stages().items() if not stage.cached}


@pytest.mark.usefixtures("outcome_cache")
def test_only_what_has_changed_is_done_again(area: Toy, program: Program) -> None:
    repeated(program)
    (record,) = (area.queue / "evidence/area").glob("*.json")
    before = record.read_bytes()
    # Without a pytest that could run, only what is remembered can answer.
    assert repeated(program, PYTEST_ADDOPTS="--no-such-option") == set()
    assert record.read_bytes() == before
    (mail,) = (area.queue / "patches/area").glob("*.patch")
    mail.write_text(mail.read_text().replace("\n---\n", "\n\nAnother word.\n---\n"))
    assert repeated(program) == {"apply", "style"}, "no check sees a message"
    text = area.queue / "patches/area/checks/test_red.py"
    text.write_text(FAIL_TO_PASS + "\n# another\n")
    again = repeated(program)
    assert "reproduce red" in again
    assert not {"apply", "reproduce same"} & again, "no check sees the file of another"


@pytest.mark.slow
@pytest.mark.usefixtures("outcome_cache")
def test_what_else_is_done_again(area: Toy, program: Program, tmp_path: Path) -> None:
    checks = {"reproduce red", "reproduce same"}
    repeated(program)
    # The pinned tree is in the store; there is nothing to repeat about it.
    assert repeated(program, "--force") == {"apply", "style", *checks}
    assert repeated(program, HSA_OVERRIDE_GFX_VERSION="9.4.2") >= checks
    # It sees the file of another where it names that, and what is no check's own.
    kept = area.queue / "patches/area/checks/test_same.py"
    kept.write_text("import test_red\n" + kept.read_text())
    assert checks & repeated(program) == {"reproduce same"}
    text = area.queue / "patches/area/checks/test_red.py"
    text.write_text(FAIL_TO_PASS + "\n# a third\n")
    assert repeated(program) >= checks
    area.put("patches/area/checks/table.json", "[]")
    assert repeated(program) >= checks
    # The outcomes are remembered, the objects that they speak of are gone; then neither is there.
    # A rename, since a removal of the cache meets `rm` of the scratch folders in the background.
    (tmp_path / "cache").rename(tmp_path / "gone")
    assert "reproduce red" not in repeated(program)
    (area.queue / ".contribbot/outcomes").unlink()
    shutil.rmtree(area.queue / ".contribbot")
    assert repeated(program) >= checks


#: What a test does, what is said of it, and what is stated beside. There is time enough to begin
#: the test and print, with other work on the machine.
BAD_ENDS = {
    "crash": ("os.kill(os.getpid(), 11)", "crashed in test_red.py::test_it: SIGSEGV", {}),
    "hang": ("time.sleep(600)", "hung in test_red.py::test_it: killed after 8 s",
             {"more": "timeout = 8\n"}),
    "exit": ("os._exit(0)", "ended early in test_red.py::test_it with exit status 0", {}),
    "flood": ("while True: os.write(1, b'x' * 65536)", "wrote too much output in test_red.py", {}),
    "reason": (f"raise ValueError({40 * 'a'!r} + '!')", "hung in test_red.py::test_it",
               {"more": "timeout = 8\n", "reason": "^ValueError: (a+)+$"}),
}  # fmt: skip


@pytest.mark.parametrize("name", kinds(BAD_ENDS, lambda name: name not in {"hang", "reason"}))
def test_the_output_of_a_bad_end_is_kept(toy: Toy, program: Program, name: str) -> None:
    body, said, stated = BAD_ENDS[name]
    text = (
        "import os, time\n\n\ndef test_it(capfd):\n  with capfd.disabled():\n"
        f"    print('last words', flush=True)\n    {body}\n"
    )
    toy.put_area(checks=one_check(**stated), check_files={"test_red.py": text})

    ran = program("verify", "area", "--json")

    assert ran.code == 3
    result = ran.stages()["reproduce red"]
    assert said in result.reason
    digest = str(dig(result.details, "base", "log_sha256"))
    log = log_path(toy.queue / ".contribbot/logs", digest).read_text()
    assert "last words" in log
    assert str(dig(result.details, "base", "log_tail")) in log
    if name == "crash":
        again = program("verify", "area", "--json")
        assert again.stages()["reproduce red"].cached is False, "a crash may not be remembered"


def test_a_check_cannot_tell_which_side_it_is_on(toy: Toy, program: Program) -> None:
    put(toy, (
        "import os, sys\n\n\ndef test_it():\n"
        "    raw = open('/proc/self/environ').read().split('\\0')\n"
        "    names = sorted(os.environ), sorted(row.split('=')[0] for row in raw)\n"
        "    raise ValueError(repr((names, 'coverage' in sys.modules)))\n"
    ), reason="ValueError")  # fmt: skip
    details = program("verify", "area", "--json").stages()["reproduce red"].details
    sides = [dig(details, side, "failed", 0, "message") for side in ("base", "patched")]
    assert sides[0] == sides[1]


@pytest.mark.usefixtures("unsandboxed")
def test_a_check_that_writes_into_the_tree_proves_nothing(toy: Toy, program: Program) -> None:
    put(toy, (
        "import os, pathlib\nfrom toy.area import rectangle\n\n\ndef test_it():\n"
        "    pathlib.Path(os.environ['CONTRIBBOT_TREE'], 'src/toy/area.py').write_text('')\n"
        "    assert rectangle(2, 3) == 6\n"
    ))  # fmt: skip
    ran = program("verify", "area")
    assert ran.code == 3
    said = "red: the check did not end well on the base: wrote into the tree: src/toy/area.py"
    assert said in ran.out


@pytest.mark.usefixtures("outcome_cache")
def test_one_invalid_patch_does_not_end_the_proof_of_another(area: Toy, program: Program) -> None:
    whole = area.format_patch({PATH: FIXED})
    area.put_patch("broken", patch=re.sub(rb"@@ -(\d+),\d+ ", rb"@@ -\1,80 ", whole))
    area.put_queue(["area", "broken"])
    ran = program("verify", "--all", "--json")
    assert (ran.code, ran.report(0).verdict) == (2, "proved")
    reason = ran.stages(1)["apply"].reason
    assert "patches/broken/0001-change.patch: " in reason
    assert "corrupt patch" in reason


def test_folders_with_odd_names(toy: Toy, program: Program, tmp_path: Path) -> None:
    put(toy, FAIL_TO_PASS, reason="^AssertionError: assert 5 == ")
    name = "with space [x] ünïcode a'b\"c *?"
    ran = program.ok("verify", "area", CONTRIBBOT_CACHE=str(tmp_path / name))
    assert "red again without the change" in ran.out
    refused = program("verify", "area", CONTRIBBOT_CACHE=str(tmp_path / "a:b"))
    assert refused.code == 2
    assert "CONTRIBBOT_CACHE" in refused.err


def test_no_secret_reaches_a_check(toy: Toy, program: Program) -> None:
    put(toy, (
        "import os\nfrom toy.area import rectangle\n\n\ndef test_it():\n"
        "    assert 'GITHUB_TOKEN' not in os.environ\n    assert 'SECRET' not in repr(os.environ)\n"
        "    assert rectangle(2, 3) == 6, 'red as stated'\n"
    ), reason="red as stated")  # fmt: skip
    program.env |= dict.fromkeys(("GITHUB_TOKEN", "AWS_KEY", "CUDA_KEY"), "SECRET")
    program.ok("verify", "area")


@pytest.mark.usefixtures("outcome_cache")
def test_what_this_machine_lacks_is_open_and_never_a_pass(toy: Toy, program: Program) -> None:
    gpu = one_check().replace('name = "red"', 'name = "gpu"').replace("red.py", "gpu.py")
    gpu += 'requires = ["gfx90c", "python:no_such_module"]\n'
    files = {"test_red.py": FAIL_TO_PASS, "test_gpu.py": FAIL_TO_PASS}
    toy.put_patch(checks=one_check() + gpu, check_files=files)
    toy.put_patch("gpu", checks=gpu, check_files=files)
    toy.put_queue(["area", "gpu"])

    ran = program("verify", "area", "--json")
    required = program("verify", "area", "--require", "gfx90c")
    alone = program("verify", "gpu", "--json")

    assert (ran.code, ran.report().open) == (0, ("gfx90c",))
    outcome = ran.stages()["reproduce gpu"]
    assert (outcome.outcome, outcome.reason) == ("unavailable", "gpu: no gfx90c on this machine")
    assert required.code == 1
    assert "required, and not proved here: gfx90c" in required.out
    assert "passes with it; not run: gfx90c" in required.out
    program.ok("verify", "area", "--require", "cpu")
    assert (alone.code, alone.report().verdict) == (3, "incomplete")
    told = " ".join(program("evidence", "check").out.split())
    assert "nothing could be proved there: no gfx90c on this machine" in told


def test_a_patch_is_verified_on_top_of_what_it_depends_on(toy: Toy, program: Program) -> None:
    toy.put_patch("first")
    toy.write(PATH, FIXED)
    git(toy.upstream, "commit", "-qam", "First")
    toy.write(PATH, FIXED.replace("base * height / 2", "base * height / 2.0"))
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


def test_a_conflict_shows_the_three_sides(area: Toy, program: Program) -> None:
    patch = area.queue / "patches/area/0001-change.patch"
    patch.write_text(patch.read_text().replace("-    return width + height", "-    return sum(x)"))
    ran = program("verify", "area")
    assert ran.code == 1
    assert "hunk 1 of src/toy/area.py does not apply to toy v1.0" in ran.out
    assert {
        "      the patch expects:",
        "        >     return sum(x)",
        "      the pin has, at line 7:",
        "        >     return width + height",
        "      the patch wants:",
        "        |     area = width * height",
    } <= {*ran.out.splitlines()}
    assert "area: refuted: apply failed" in ran.out


@pytest.mark.usefixtures("area")
def test_on_a_terminal_lines_and_progress_do_not_mix(program: Program) -> None:
    ours, theirs = pty.openpty()
    environment = {name: value for name, value in os.environ.items() if name != "CI"}
    with subprocess.Popen(
        [sys.executable, "-m", "contribbot", "verify", "area"],
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
    shown = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", written.decode())
    lines = [re.sub(r" +", " ", line).strip() for line in re.split(r"[\r\n]+", shown)]
    for stage in ("source", "apply", "style"):
        assert any(line.startswith(f"{stage} passed ") for line in lines), shown
    assert "area: proved on cpu: fails without the patch, passes with it" in lines
