"""Runs of checks that are forks of a warmed process: as a child of its own, but for the time."""

from __future__ import annotations

import contextlib
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from contribbot import process
from contribbot.files import log_path
from contribbot.model.checks import Check
from contribbot.model.failure import RunFailure
from contribbot.model.patch import PatchFile
from contribbot.verify.job import RunLayout
from contribbot.verify.pytest_run import CheckProcess, CheckRun, run_check
from contribbot.verify.warm import WarmProcesses
from tests.conftest import until
from tests.test_interrupts import at_work

#: Stands for torch: tells which processes import it. No variable of a run is in a warmed process.
TORCH = """\
import os, sys
sys.modules["torch.part"] = sys.modules[__name__]
WARMED = "CONTRIBBOT_TREE" not in os.environ
if WARMED:
    with open({log!r}, "a") as file:
        print(os.getpid(), file=file)
    {warmed}
"""
#: Passes in a fork of a process that has imported torch.
FORKED = "import torch\n\n\ndef test_it():\n    assert torch.WARMED\n"
FRESH = "import torch\n\n\ndef test_it():\n    assert not torch.WARMED\n"


class Room:
    """Runs texts as checks."""

    def __init__(self, folder: Path, warm: WarmProcesses, library: Path) -> None:
        self.folder, self.warm, self._library = folder, warm, library
        self.imports = folder / "imports"
        self.torch()

    def torch(self, warmed: str = "pass") -> None:
        """Say what the stand-in for torch does as a warmed process imports it."""
        text = TORCH.format(log=str(self.imports), warmed=warmed)
        (self._library / "torch.py").write_text(text, encoding="utf-8")

    def __call__(
        self, text: str, *, timeout: float = 60, env: dict[str, str] | None = None, tree: str = ""
    ) -> CheckRun:
        """Run a text."""
        check = Check.model_validate(
            {"name": "red", "file": "test_red.py", "expect": "pass-to-pass", "timeout": timeout}
        )
        folder = self.folder / "runs" / str(time.monotonic_ns())
        folder.mkdir(parents=True)
        roots = (self.folder / tree,) if tree else ()
        child = CheckProcess(check, RunLayout(self.folder, roots, {}), env or {}, 1, folder)
        files = [PatchFile("test_red.py", text.encode())]
        return run_check(child, files, logs=self.folder, warm=self.warm)

    def output(self, run: CheckRun) -> str:
        """Return all that a run wrote."""
        return log_path(self.folder, run.log_sha256).read_text(encoding="utf-8")


@pytest.fixture(params=["bubblewrap", "off"])
def room(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Room]:
    """Give a room, in a sandbox and without."""
    if request.param == "off":
        request.getfixturevalue("unsandboxed")
    elif why := process.no_sandbox():
        pytest.skip(why)
    library = tmp_path / "library"
    library.mkdir()
    monkeypatch.syspath_prepend(str(library))
    with contextlib.closing(WarmProcesses(tmp_path / "warm")) as warm:
        yield Room(tmp_path, warm, library)


def test_runs_are_forks_with_folders_and_variables_of_their_own(room: Room) -> None:
    text = (
        f"{FORKED}\n\ndef test_own():\n    import os, pathlib, tempfile\n"
        "    for name in ('HOME', 'TMPDIR'):\n"
        "        assert pathlib.Path(os.environ[name]).parent == pathlib.Path.cwd().parent\n"
        "    assert tempfile.gettempdir() == os.environ['TMPDIR']\n"
        "    open('left', 'x').close()\n"
    )
    for _ in range(2):
        run = room(text)
        assert (run.kind, run.failed, len(run.passed)) == (None, [], 2)
        assert "not forked" not in room.output(run)
    assert len(room.imports.read_text().split()) == 1


def test_a_check_with_other_variables_has_a_process_of_its_own(room: Room) -> None:
    for value in ("1", "2", "1"):
        text = f"import os, torch\n{FORKED}    assert os.environ['FLAG'] == {value!r}\n"
        assert room(text, env={"FLAG": value}).passed
    assert len(room.imports.read_text().split()) == 2


def test_a_check_that_imports_a_part_of_torch_is_forked(room: Room) -> None:
    assert room(FORKED.replace("torch", "torch.part", 1)).passed


@pytest.mark.parametrize(
    "text",
    [
        f"import os\nos.environ['FLAG'] = '1'\n{FRESH}",
        "import sys\n\n\ndef test_it():\n    assert 'torch' not in sys.modules\n",
    ],
    ids=["sets a variable first", "does not import it"],
)
def test_where_torch_is_not_imported_beforehand(room: Room, text: str) -> None:
    assert room(FORKED).passed
    assert room(text).passed


def test_a_tree_with_a_torch_of_its_own_is_imported_in_the_sandbox_alone(room: Room) -> None:
    (room.folder / "tree/torch").mkdir(parents=True)
    (room.folder / "tree/torch/__init__.py").write_text("WARMED = OWN = False\n")
    assert room(f"{FRESH}    assert not torch.OWN\n", tree="tree").passed
    assert not room.imports.exists()


@pytest.mark.parametrize(
    ("warmed", "said"),
    [
        (
            "import threading as t; t.Thread(target=t.Event().wait, daemon=True).start()",
            "1 threads run after the imports",
        ),
        ("os._exit(0)", "the warmed process has ended"),
        ("raise SystemExit(0)", "import torch: SystemExit"),
        ("raise ImportError('x')", "import torch: ImportError"),
        (
            "import contribbot.verify.warm as w; w._DEVICES = '/dev/zero'; f = open(w._DEVICES)",
            "the imports open /dev/zero",
        ),
    ],
    ids=["thread", "_exit", "SystemExit", "ImportError", "device"],
)
def test_no_run_is_forked_from_what_cannot_be_forked(room: Room, warmed: str, said: str) -> None:
    room.torch(warmed)
    for _ in range(2):
        run = room(FRESH)
        assert run.passed, run.trouble
        lines = room.output(run).splitlines()
        assert lines[0] == f"contribbot: not forked from a warmed process: {said}"


@pytest.mark.parametrize(
    ("text", "kind", "said"),
    [
        ("os._exit(7)", RunFailure.CRASHED, "ended early in {test} with exit status 7"),
        ("os.kill(os.getpid(), 9)", RunFailure.CRASHED, "crashed in {test}: SIGKILL"),
        ("os.kill(os.getpid(), 15)", RunFailure.CRASHED, "crashed in {test}: SIGTERM"),
        ("ctypes.string_at(0)", RunFailure.CRASHED, "crashed in {test}: SIGSEGV"),
        ("os.abort()", RunFailure.CRASHED, "crashed in {test}: SIGABRT"),
        ("time.sleep(60)", RunFailure.TIMED_OUT, "hung in {test}: killed after 4 s"),
        (
            "re.match(r'(a+)+$', 'a' * 60 + 'b')",
            RunFailure.TIMED_OUT,
            "hung in {test}: killed after 4 s",
        ),
        ("open('large', 'wb').truncate(2**40)", None, ""),
        ("[bytes(2**50)]", None, ""),
    ],
)
def test_a_fork_dies_alone(room: Room, text: str, kind: RunFailure | None, said: str) -> None:
    head = "import ctypes, os, re, sys, time\nimport torch\n\n\ndef test_it():\n"
    run = room(f"{head}    {text}\n", timeout=4)
    assert run.kind is kind, run.trouble
    assert run.trouble == said.format(test="test_red.py::test_it")
    assert bool(run.failed) is (kind is None)
    assert room(FORKED).passed


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (
            "torch.STATE = sys.modules['json'] = os.environ.__setitem__('FLAG', '1')",
            "import json; assert not hasattr(torch, 'STATE') and 'FLAG' not in os.environ",
        ),
        ("t = threading.Thread(target=time.sleep, args=(600,), daemon=True); t.start()", "pass"),
        ("globals()['leak'] = bytearray(2**28)", "assert 'leak' not in globals()"),
        (
            "assert multiprocessing.get_context('spawn').Pool(1).map(abs, [-1]) == [1]",
            "assert multiprocessing.active_children() == []",
        ),
        ("os.kill(os.getppid(), 0); os.setsid() if not os.fork() else 0", "pass"),
    ],
    ids=["state", "thread", "memory", "spawn", "session"],
)
def test_what_a_check_does_stays_in_its_fork(room: Room, first: str, second: str) -> None:
    head = (
        "import multiprocessing, os, sys, threading, time\nimport torch\n\n\n"
        "def test_it():\n    assert torch.WARMED\n    "
    )
    for line in (first, second):
        run = room(f"{head}{line}\n")
        assert run.passed, (run.trouble, run.failed)
    assert len(room.imports.read_text().split()) == 1


def test_what_dies_as_a_file_is_imported_is_told_as_ever(room: Room) -> None:
    run = room("import torch, os\nimport torch\nos._exit(0)\n")
    assert (run.kind, run.trouble) == (RunFailure.CRASHED, "ended early with exit status 0")
    assert room(FORKED).passed


@pytest.mark.parametrize("end", ["pass", "os._exit(3)", "time.sleep(60)"])
def test_what_a_fork_leaves_running_ends_with_it(room: Room, end: str) -> None:
    text = (
        "import os, pathlib, time\nimport torch\n\n\ndef test_it():\n"
        "    if not os.fork():\n        os.setsid()\n        time.sleep(600)\n"
        f"    {end}\n"
    )
    room(text, timeout=4)
    assert until(lambda: not at_work(room.folder / "runs"), 10)


def test_who_ends_the_process_beside_a_fork_has_ended_the_fork(room: Room) -> None:
    text = "import os, time\nimport torch\n\n\ndef test_it():\n"
    run = room(f"{text}    os.kill(os.getppid(), 9)\n    time.sleep(60)\n", timeout=4)
    assert (run.kind, run.trouble[-9:]) == (RunFailure.CRASHED, ": SIGKILL")
    assert room(FORKED).passed


def test_an_event_at_the_end_of_python_prints_nothing() -> None:
    # Python empties the modules that something holds, the newest first.
    code = (
        "import sys, types\nolder = sys.modules['older'] = types.ModuleType('older')\n"
        "import contribbot.verify.pytest_plugin as plugin\n"
        "class Late:\n    def __del__(self, audit=sys.audit):\n        audit('late')\n"
        "older.late = Late()\nsys.kept = [older, plugin]\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == ("", "")
