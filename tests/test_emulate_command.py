"""`contribbot emulate` and pytest's plug-in: what they say of programs, and when it is no pass."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest
import torch

from contribbot import process
from contribbot.cli.emulate import report_lines
from contribbot.cli.render import lines_of
from contribbot.emulate import (
    EmulationReport,
    EmulatorError,
    KernelError,
    LaunchRecord,
    NoResultError,
    NotEmulatedError,
    SourceLocation,
    TargetRun,
    TestRow,
    UnmodelledError,
    exit_code,
    outcomes,
    run,
)
from contribbot.emulate.emulated_tensor import OutOfRoomError
from contribbot.emulate.emulation import with_events
from contribbot.emulate.outcomes import TestOutcome
from contribbot.errors import ExitCode

PLACE = SourceLocation("k", "s_endpgm", 8, "k.py:3")
FAULT = KernelError("out of bounds", "4 bytes", PLACE)
UNKNOWN = UnmodelledError("not known", PLACE)
BEGAN = [{"kind": "started"}, {"kind": "launched"}]
TESTS = [*BEGAN, {"kind": "session"}]
WHOLE = [*TESTS, {"kind": "finished"}]


def told(outcome: TestOutcome, test: str = "t.py::t") -> dict[str, object]:
    """Return what the plug-in writes of a test."""
    return {"kind": "test", "row": TestRow(test=test, outcome=outcome).model_dump()}


def ended(error: KernelError | NoResultError, test: str = "") -> dict[str, object]:
    """Return what a process writes of what ended a launch."""
    return {"kind": "untold", "row": outcomes.row_of(test, error).model_dump()}


def run_of(folder: Path, events: Sequence[Mapping[str, object]], status: int) -> TargetRun:
    """Return what is read of events and an exit status."""
    text = "".join(json.dumps(event) + "\n" for event in events)
    (folder / "events").write_text(text, encoding="utf-8")
    return with_events(TargetRun(target="gfx942", exit_code=status), folder / "events", "x.py")


@pytest.mark.parametrize(
    ("events", "status", "outcomes", "error", "code"),
    [
        # Programs without tests.
        (BEGAN, 0, ["passed"], "", 0),
        (BEGAN, 1, ["failed"], "", 1),
        (BEGAN, 255, ["failed"], "", 1),
        ([*BEGAN, ended(FAULT)], 0, ["fault"], "", 1),
        ([*BEGAN, ended(UNKNOWN)], 1, ["not modelled"], "", 3),
        ([*BEGAN, ended(NoResultError("no tinygrad"))], 1, ["not modelled"], "", 3),
        (BEGAN, 137, [], "signal 9 ended it, as where memory runs out", 3),
        (BEGAN, 139, [], "signal 11 ended it", 3),
        (BEGAN, 130, [], "signal 2 ended it", 130),
        (BEGAN, 143, [], "signal 15 ended it", 130),
        ([], 0, [], "it ended with status 0, and no Python began that has the emulated GPU", 3),
        (BEGAN[:1], 0, [], "it ended with status 0 and launched no Triton kernel", 3),
        (BEGAN[:1], 1, [], "it ended with status 1 and launched no Triton kernel", 3),
        ([BEGAN[0], {"kind": "error", "error": "no triton"}], 3, [], "no triton", 3),
        # Tests.
        ([*WHOLE, told("passed")], 0, ["passed"], "", 0),
        ([*WHOLE, told("passed"), told("skipped", "b")], 0, ["passed", "skipped"], "", 0),
        ([*WHOLE, told("failed")], 1, ["failed"], "", 1),
        ([*WHOLE, told("fault"), told("not modelled", "b")], 1, ["fault", "not modelled"], "", 1),
        ([*WHOLE, told("passed"), told("not modelled", "b")], 1, ["passed", "not modelled"], "", 3),
        ([*WHOLE, told("passed")], 1, ["passed"], "", 1),  # coverage, say
        ([*WHOLE[:1], *WHOLE[2:], told("passed")], 0, ["passed"], "launched no Triton kernel", 3),
        ([*TESTS, told("passed")], 0, ["passed"], "status 0: not all of its tests have run", 3),
        ([*TESTS, told("failed")], 139, ["failed"], "signal 11 ended it: not all of its", 1),
        ([*WHOLE, told("passed")], 2, ["passed"], "status 2: not all of its tests have run", 3),
        ([*TESTS, {"kind": "interrupted"}, told("passed")], 2, ["passed"], "signal 2", 130),
        (TESTS, 0, [], "status 0: not all of its tests have run", 3),
        ([*TESTS, ended(FAULT)], 2, ["fault"], "status 2: not all of its tests have run", 1),
        # A process that a test started, whatever the test made of it.
        ([*WHOLE, told("passed"), ended(FAULT, "t.py::t")], 0, ["fault"], "", 1),
        ([*WHOLE, ended(UNKNOWN, "t.py::t"), told("failed")], 1, ["not modelled"], "", 3),
        ([*WHOLE, told("not modelled"), ended(FAULT, "t.py::t")], 1, ["not modelled"], "", 3),
    ],
)  # fmt: skip
def test_what_events_and_exit_status_come_to(
    *, events: Sequence[Mapping[str, object]], status: int, outcomes: list[str], error: str,
    code: int, tmp_path: Path,
) -> None:  # fmt: skip
    run = run_of(tmp_path, events, status)
    assert [row.outcome for row in run.tests] == outcomes
    assert error in run.error
    assert bool(run.error) == bool(error)
    assert exit_code([run]) == code


def test_exit_code_of_two_targets() -> None:
    good = TargetRun(target="gfx942", launches=1, tests=(TestRow(test="t", outcome="passed"),))
    bad = good.model_copy(update={"tests": (TestRow(test="t", outcome="fault"),)})
    short = good.model_copy(update={"error": "signal 9 ended it"})
    stopped = good.model_copy(update={"exit_code": 143})
    assert exit_code([good, good]) == ExitCode.OK
    assert exit_code([good, bad]) == exit_code([short, bad]) == ExitCode.NO
    assert exit_code([good, short]) == ExitCode.MACHINE
    assert exit_code([bad, stopped]) == ExitCode.INTERRUPTED


def test_text_that_is_no_utf8_can_be_reported() -> None:
    row = TestRow(test="t\udcff.py", outcome="failed", said="\udcff \x1b[31m")
    assert TestRow.model_validate_json(row.model_dump_json()) == row
    assert row.test == "t\\udcff.py"
    assert EmulationReport(program=("\udcff",)).program == ("\\udcff",)


def test_report_lines() -> None:
    rows = [outcomes.row_of(f"t{i}", UnmodelledError(f"no {i} \x1b[31m\n")) for i in range(12)]
    run = TargetRun(target="gfx942", tests=(*rows, outcomes.row_of("a", FAULT),
                    outcomes.row_of("b", FAULT)), seconds=3.4, launches=1)  # fmt: skip
    lines = [*lines_of(report_lines(EmulationReport(program=("x.py",), targets=(run,))))]
    assert lines[1].split("  ")[0] == "target"
    assert lines[2].split() == ["gfx942", "0", "0", "2", "12", "0", "0", "3"]
    assert lines[3] == "gfx942: fault in 2 tests: k.py:3: k+0x8: s_endpgm: out of bounds: 4 bytes"
    assert lines[-2] == "gfx942: and 3 other places (--json has them all)"
    assert lines[-1] == "emulated from AMD's instruction reference; not run on a GPU"
    assert "\x1b" not in "".join(lines)


# --- The plug-in, in this process --------------------------------------------------------------

_CASES = {
    "test_pass": "pass",
    "test_fail": "assert 0, 'why'",
    "test_fault": "launch()",
    "test_caught": "\n    with pytest.raises(Exception): launch()",
    "test_unknown": "launch(UNKNOWN)",
    "test_both": "\n    for error in (FAULT, UNKNOWN):\n"
                 "        with pytest.raises(Exception): launch(error)",
    "test_graph": "raise NotEmulatedError('CUDA graphs are not emulated')",
    "test_missing": "raise NoResultError('tinygrad is not installed')",
    "test_operator": "torch.ops.not_there.silu(1)",
    "test_skip": "pytest.skip('no')",
    "test_message": "raise Odd",
    "test_surrogate": "raise Exception('\\udcff')",
    "test_setup(bad)": "pass",
    "test_teardown(bad_after)": "pass",
}  # fmt: skip
_MARKED = {"test_xfail": "xfail", "test_strict": "xfail(strict=True)"}
_SUITE = (
    "import pytest, torch\n"
    "from contribbot.emulate import NoResultError, NotEmulatedError, device\n"
    "from tests.test_emulate_command import FAULT, UNKNOWN\n"
    "block = device('gfx942')\ngpu = block.__enter__()\n"
    "def launch(error=FAULT):\n    gpu.record.add(error)\n    raise error\n"
    "class Odd(Exception):\n    def __str__(self): raise RuntimeError\n"
    "@pytest.fixture\ndef bad(): launch()\n"
    "@pytest.fixture\ndef bad_after():\n    yield\n    launch()\n"
    "@pytest.mark.parametrize('x', ['a\\nb', '[c]', '\\x1b[31m', '\\u202e'])\n"
    "def test_names(x): pass\n"
    "@pytest.mark.xfail(strict=True)\ndef test_strict_pass(): pass\n"
    "@pytest.mark.xfail\ndef test_expected(): assert 0\n"
    "def test_subtests(subtests):\n    with subtests.test(i=0): launch()\n"
    + "".join(f"@pytest.mark.{mark}\ndef {name}(): launch()\n" for name, mark in _MARKED.items())
    + "".join(f"def {name if '(' in name else name + '()'}: {body}\n"
              for name, body in _CASES.items())
)  # fmt: skip
_EXPECTED = {
    "test_pass": "passed", "test_fail": "failed", "test_fault": "fault", "test_caught": "fault",
    "test_unknown": "not modelled", "test_both": "not modelled", "test_graph": "not modelled",
    "test_missing": "not modelled", "test_operator": "not modelled", "test_skip": "skipped",
    "test_message": "failed", "test_surrogate": "failed", "test_setup": "fault",
    "test_teardown": "fault", "test_strict_pass": "failed", "test_expected": "skipped",
    "test_xfail": "fault", "test_strict": "fault", "test_subtests": "fault",
    "test_names[a\\nb]": "passed", "test_names[[c]]": "passed", "test_names[\\x1b[31m]": "passed",
    "test_names[\\u202e]": "passed",
}  # fmt: skip


@pytest.fixture(scope="module")
def suite(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[str], int]:
    """Run the suite with the plug-in, and give its folder, the lines that it printed, its code."""
    folder = tmp_path_factory.mktemp("suite")
    (folder / "test_suite.py").write_text(_SUITE, encoding="utf-8")
    ran = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "contribbot.emulate.pytest", "-q", "-c", os.devnull,
         "--rootdir", str(folder), "-p", "no:cacheprovider", str(folder)],
        capture_output=True, encoding="utf-8", errors="replace", check=False, cwd=folder,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[1]),
             outcomes.FOLDER: str(folder)},
    )  # fmt: skip
    return folder, ran.stdout.splitlines(), ran.returncode


class TestPlugin:
    def test_outcome_of_each_test(self, suite: tuple[Path, list[str], int]) -> None:
        folder, lines, status = suite
        run = with_events(TargetRun(target="gfx942", exit_code=status), folder / "events", "pytest")
        got = {row.test.removeprefix("test_suite.py::"): row.outcome for row in run.tests}
        assert got == _EXPECTED, "\n".join(lines)

    def test_messages(self, suite: tuple[Path, list[str], int]) -> None:
        folder, _, status = suite
        run = with_events(TargetRun(target="gfx942", exit_code=status), folder / "events", "pytest")
        said = {row.test.removeprefix("test_suite.py::"): row.said for row in run.tests}
        assert said["test_fail"] == "AssertionError: why assert 0"
        assert said["test_strict_pass"] == "[XPASS(strict)]"
        assert said["test_message"] == "test_suite.Odd: <exception str() failed>"
        assert said["test_operator"] == (
            "the operator not_there::silu of an extension is not there"
        )
        assert said["test_missing"] == "tinygrad is not installed"

    def test_all_that_did_not_pass_fails_in_pytest_too(
        self, suite: tuple[Path, list[str], int]
    ) -> None:
        _, lines, status = suite
        assert status == 1
        assert re.match(r"15 failed, 6 passed, 1 skipped, 1 xfailed.* 2 errors", lines[-1])


def test_a_process_tells_which_test_started_it(tmp_path: Path) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(outcomes.FOLDER, str(tmp_path))
        patch.setenv("PYTEST_CURRENT_TEST", "t.py::t[a b] (call)")
        LaunchRecord().add(FAULT)
    [line] = (tmp_path / "events").read_text(encoding="utf-8").splitlines()
    assert json.loads(line)["row"]["test"] == "t.py::t[a b]"


def test_errors_are_what_programs_catch() -> None:
    assert issubclass(OutOfRoomError, torch.OutOfMemoryError)
    assert issubclass(NotEmulatedError, NotImplementedError)


@pytest.mark.parametrize(
    ("program", "targets", "message"),
    [
        ([], ["gfx942"], "no program is given"),
        (["x.py"], ["gfx942", "gfx941"], "gfx941 is not modelled: gfx90a, gfx942, gfx950"),
        (["not-there"], ["gfx942"], "not-there: cannot be run"),
        ([""], ["gfx942"], "cannot be run"),
        (["/"], ["gfx942"], "/: cannot be run"),
    ],
)
def test_what_cannot_be_run(program: list[str], targets: list[str], message: str) -> None:
    with pytest.raises(EmulatorError, match=message):
        run(program, targets)


NO_FILE = "nope.py: no such file; give its path from the current folder"
PYTEST = ["--", "pytest", "--version"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--", "x.py"], "x.py is no target: gfx90a, gfx942, gfx950, gfx1100, gfx1150, gfx1151, "),
        (["mi300x", "--", "x.py"], "mi300x is no target"),
        (["gfx942", "pytest", "-q"], "no such option: -q; see `contribbot emulate -h`"),
        (["gfx942", "--", "nope.py"], NO_FILE),
        (["gfx942", "--", "python", "nope.py"], NO_FILE),
        (["gfx942", "--", "pytest", "nope.py"], NO_FILE),
        (["gfx942", "--report", "new", "--", "pytest", "nope.py"], NO_FILE),
        (["gfx942", "--report", "new", "--compare", "nope", *PYTEST], "nope: no sweep in it; "),
        (["gfx942", "--report", "new", "--report", "nope", *PYTEST], "nope: no sweep in it; "),
    ],
)
def test_how_it_is_called(words: list[str], message: str, tmp_path: Path) -> None:
    ran = emulated(tmp_path, {}, *words)
    assert ran.returncode == ExitCode.USAGE
    assert ran.stderr.decode().startswith(f"contribbot: {message}")
    assert ran.stderr.count(b"\n") == 1
    assert not (tmp_path / "new").exists()


# --- Whole runs ----------------------------------------------------------------------------------

KERNELS = """\
import torch, triton, triton.language as tl
@triton.jit
def add(x, out, n, size: tl.constexpr):
    place = tl.arange(0, size)
    tl.store(out + place, tl.load(x + place) + n)
@triton.jit
def spin(x, out, n, size: tl.constexpr):
    value = tl.load(x)
    while value < 1e9:
        value = tl.load(x)
        for i in range(n): value = value * 0.5
    tl.store(out, value)
def run(kernel=add, size=64, n=1):
    x, out = torch.zeros(64, device="cuda"), torch.zeros(64, device="cuda")
    kernel[(1,)](x, out, n, size=size)
    return out.sum().item()
"""


def emulated(
    folder: Path, files: Mapping[str, str], *words: str, path: Sequence[str] = ()
) -> process.Completed:
    """Run the command in a folder with kernels and files."""
    (folder / "kernels.py").write_text(KERNELS, encoding="utf-8")
    for name, text in files.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(text, encoding="utf-8")
    paths = [str(Path(__file__).parents[1]), str(folder), *(str(folder / name) for name in path)]
    return process.run(
        [sys.executable, "-m", "contribbot", "emulate", *words],
        cwd=folder, accept=range(256), timeout=300,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(paths), "TMPDIR": str(folder),
             "TRITON_CACHE_DIR": str(folder / "triton")},
    )  # fmt: skip


QUIET = ("pytest", "-q", "-p", "no:cacheprovider", "-c", os.devnull, "--rootdir", ".", "test_x.py")


def report_of(ran: process.Completed) -> tuple[int, dict[str, str], str]:
    """Return exit code, outcome of each test, and error of the one target of a document."""
    [run] = EmulationReport.model_validate_json(ran.stdout).targets
    return (ran.returncode, {row.test.rpartition("::")[2]: row.outcome for row in run.tests},
            run.error)  # fmt: skip


@pytest.mark.slow
def test_tests_that_start_processes(tmp_path: Path) -> None:
    text = """\
import subprocess, sys
import kernels
def test_ok(): assert kernels.run() == 64
def test_child(): subprocess.run([sys.executable, "-c", "import kernels; kernels.run(size=128)"])
def test_rocm():
    names = "rocminfo", "rocm-smi", "hipconfig"
    told = [subprocess.check_output([name], text=True) for name in names]
    assert "Device Type: GPU\\n  Compute Unit: 304" in told[0]
    assert "gfx942" in told[0] and "gfx942" in told[1] and told[2] == "7.2.0\\n"
"""
    other = "import sys; sys.stderr.write('another sitecustomize\\n')"
    ran = emulated(
        tmp_path, {"test_x.py": text, "site/sitecustomize.py": other}, "--json", "gfx942", "--",
        *QUIET, path=["site"],
    )  # fmt: skip
    outcomes = {"test_ok": "passed", "test_child": "fault", "test_rocm": "passed"}
    assert report_of(ran) == (1, outcomes, "")
    assert b"3 passed" in ran.stderr
    assert ran.stderr.count(b"another sitecustomize") == 2  # of the command, and of pytest


@pytest.mark.parametrize(
    ("program", "error"),
    [
        ([sys.executable, "-I", "-c", ""], "no Python began that has the emulated GPU"),
        (["true"], "no Python began that has the emulated GPU"),
        ([sys.executable, "-c", ""], "launched no Triton kernel: nothing was emulated"),
    ],
)
def test_programs_that_are_not_emulated(program: list[str], error: str, tmp_path: Path) -> None:
    code, outcomes, said = report_of(emulated(tmp_path, {}, "--json", "gfx942", "--", *program))
    assert (code, outcomes) == (ExitCode.MACHINE, {})
    assert error in said


@pytest.mark.parametrize(
    "number", [signal.SIGINT, pytest.param(signal.SIGTERM, marks=pytest.mark.slow)]
)
def test_interrupted_in_a_launch(number: signal.Signals, tmp_path: Path) -> None:
    (tmp_path / "kernels.py").write_text(KERNELS, encoding="utf-8")
    text = "import kernels; kernels.run(); open('ready', 'w').close()\nwhile True: kernels.run()"
    (tmp_path / "x.py").write_text(text, encoding="utf-8")
    with subprocess.Popen(
        [sys.executable, "-m", "contribbot", "emulate", "gfx942", "gfx1201", "--", "x.py"],
        cwd=tmp_path, stderr=subprocess.PIPE, start_new_session=True,
        env={**os.environ, "TMPDIR": str(tmp_path), "TRITON_CACHE_DIR": str(tmp_path / "triton"),
             "PYTHONPATH": os.pathsep.join([str(Path(__file__).parents[1]), str(tmp_path)])},
    ) as command:  # fmt: skip
        end = time.monotonic() + 60
        while not (tmp_path / "ready").exists() and time.monotonic() < end:
            time.sleep(0.05)
        if number == signal.SIGINT:  # a terminal's goes to all that run in it
            os.killpg(command.pid, number)
        else:
            command.send_signal(number)
        _, said = command.communicate(timeout=60)
    assert command.returncode == ExitCode.INTERRUPTED
    assert f"gfx942: signal {int(number)} ended it".encode() in said
    assert b"gfx1201" not in said
    assert not [*tmp_path.glob("contribbot-*")]
    with pytest.raises(ProcessLookupError):
        os.killpg(command.pid, 0)


def test_a_programs_own_threshold_of_garbage_collection_stays(tmp_path: Path) -> None:
    text = "import gc\ngc.set_threshold(5000)\nimport torch\nassert gc.get_threshold()[0] == 5000\n"
    (tmp_path / "x.py").write_text(text, encoding="utf-8")
    _, _, said = report_of(emulated(tmp_path, {}, "--json", "gfx942", "--", "x.py"))
    assert "ended with status 0" in said


def test_a_program_that_does_not_heed_an_interruption_is_ended(tmp_path: Path) -> None:
    text = ("import signal, time\nsignal.signal(signal.SIGINT, signal.SIG_IGN)\n"
            "open('ready', 'w').close()\ntime.sleep(60)\n")  # fmt: skip
    (tmp_path / "x.py").write_text(text, encoding="utf-8")
    with subprocess.Popen(
        [sys.executable, "-m", "contribbot", "emulate", "gfx942", "gfx1201", "--", "x.py"],
        cwd=tmp_path, stderr=subprocess.PIPE, start_new_session=True,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])},
    ) as command:  # fmt: skip
        end = time.monotonic() + 60
        while not (tmp_path / "ready").exists() and time.monotonic() < end:
            time.sleep(0.05)
        began = time.monotonic()
        os.killpg(command.pid, signal.SIGINT)
        _, said = command.communicate(timeout=60)
    assert time.monotonic() - began < 10  # 3 s, on a machine that does much else
    assert command.returncode == ExitCode.INTERRUPTED
    assert b"gfx942: signal 2 ended it" in said
    assert b"gfx1201" not in said


@pytest.mark.slow
@pytest.mark.parametrize(
    ("files", "words", "code", "outcomes", "error"),
    [
        pytest.param(
            {"test_x.py": "import os, kernels\ndef test_a(): kernels.run()\n"
                          "def test_b(): os._exit(0)\n"},
            QUIET, 3, {"test_a": "passed"}, "it ended with status 0: not all of its tests have run",
            id="os-exit",
        ),
        pytest.param(
            {"test_x.py": "import os, kernels\ndef test_a(): kernels.run()\n"
                          "def test_b(): os.kill(os.getpid(), 9)\ndef test_c(): kernels.run()\n"},
            (*QUIET, "-p", "xdist", "-n", "1"), 1,
            {"test_a": "passed", "test_b": "failed", "test_c": "passed"},
            "", id="xdist",
        ),
        pytest.param(
            {"test_x.py": "import time, kernels, pytest\ndef test_a(): kernels.run()\n"
                          "def test_b(): time.sleep(90)\n"
                          "@pytest.mark.parametrize('x', [1, 1])\ndef test_c(x): pass\n",
             "test_y.py": "import nothing_here\n"},
            (*QUIET, "test_y.py", "--emulate-seconds=40", "--emulate-cases=1"), 1,
            {"test_a": "passed", "test_b": "too long", "test_c[1_0]": "passed",
             "test_y.py": "failed"}, "", id="file-that-does-not-import",
        ),
        pytest.param(
            {"x.py": "import kernels, torch\nkernels.run()\n"
                     "torch.zeros(1, device='cuda').expand(1 << 42).clone()\n"},
            ("x.py",), 3, {"x.py": "not modelled"}, "", id="room",
        ),
        pytest.param(
            {"x.py": "import kernels\nkernels.run()\n",
             "tinygrad/__init__.py": "raise ModuleNotFoundError(name='tinygrad')"},
            ("x.py",), 3, {"x.py": "not modelled"}, "", id="tinygrad",
        ),
        pytest.param(
            {"x.py": "import kernels\nkernels.run(kernels.spin)\n"}, ("x.py",), 1,
            {"x.py": "fault"}, "", id="endless",
        ),
    ],
)  # fmt: skip
def test_whole_runs(
    *, files: Mapping[str, str], words: Sequence[str], code: int, outcomes: Mapping[str, str],
    error: str, tmp_path: Path,
) -> None:  # fmt: skip
    got, came, said = report_of(emulated(tmp_path, files, "--json", "gfx942", "--", *words))
    assert (got, said) == (code, error)
    assert {name.rpartition("/")[2].rpartition(" ")[2]: x for name, x in came.items()} == outcomes
