"""Running one check on one tree in a child pytest, and reading what it reported."""

from __future__ import annotations

import hashlib
import json
import os
import signal
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from pydantic import JsonValue

from contribbot import process
from contribbot.files import write_atomically
from contribbot.model.patch import Check, PatchFile
from contribbot.workspace import cache_folder

#: What a record keeps of an output; the whole is in the log file.
_TAIL: Final = 2000
_REPORT: Final = "report.jsonl"
#: pytest's exit statuses for a session that ran to its end: all passed, some
#: failed, interrupted by errors of collection, nothing collected.
_PYTEST_ENDS: Final = frozenset({0, 1, 2, 5})


@dataclass(frozen=True)
class Failure:
    """One test that did not pass.

    Attributes:
        test: The test.
        when: `setup`, `call` or `teardown`.
        message: `ExceptionType: message`.
        broken: Whether the tree or the check could not even be imported.
    """

    test: str
    when: str
    message: str
    broken: bool


@dataclass
class CheckRun:
    """What one run of one check on one tree came to.

    Attributes:
        passed: Tests that passed.
        failed: Tests that failed.
        skipped: Tests that were skipped.
        trouble: Why the run as a whole cannot be believed, or empty.
        transient: Whether that may be different the next time (crash, time-out).
        command: What was run, with `<run>` for the folder of the run.
        seconds: Wall-clock time of the child.
        log: SHA-256 of the whole output.
        tail: The end of the output.
        statements: Executable lines of each witnessed file, by tree path.
        executed: Executed lines of each witnessed file, by tree path.
    """

    passed: list[str] = field(default_factory=list)
    failed: list[Failure] = field(default_factory=list)
    skipped: list[str] = field(default_factory=list)
    trouble: str = ""
    transient: bool = False
    command: str = ""
    seconds: float = 0.0
    log: str = ""
    tail: str = ""
    statements: dict[str, list[int]] = field(default_factory=dict)
    executed: dict[str, list[int]] = field(default_factory=dict)

    @property
    def ran(self) -> set[str]:
        """The tests that were executed."""
        return {*self.passed, *(failure.test for failure in self.failed)}

    def summary(self) -> dict[str, JsonValue]:
        """Return what the record keeps."""
        failures: list[JsonValue] = [
            {"test": one.test, "when": one.when, "message": one.message} for one in self.failed
        ]
        return {
            "passed": list(self.passed),
            "failed": failures,
            "skipped": list(self.skipped),
            "trouble": self.trouble,
            "command": self.command,
            "seconds": round(self.seconds, 3),
            "log_sha256": self.log,
            "log_tail": self.tail,
        }


def run_check(
    check: Check,
    support: Sequence[PatchFile],
    *,
    tree: Path,
    python_roots: Sequence[str],
    witness: Sequence[str],
    threads: int,
    folder: Path,
    logs: Path,
) -> CheckRun:
    """Run a check on an exported tree.

    Args:
        check: The check.
        support: The files of the patch's `checks/`; written afresh for each run.
        tree: The exported tree.
        python_roots: Folders of the tree that go on Python's path.
        witness: Paths in the tree whose executed lines are wanted.
        threads: Threads that numerical libraries may use.
        folder: An empty folder for this run.
        logs: Where the whole output is kept, named by its digest.

    Raises:
        MachineError: The child could not be started.
    """
    checks = folder / "checks"
    for file in support:
        target = checks / file.name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(file.content)
    for name in ("home", "tmp"):
        (folder / name).mkdir()
    (folder / "pytest.ini").write_text("[pytest]\n", encoding="utf-8")
    argv = [
        "-B", "-m", "pytest", "-p", "contribbot.verify.child", "-p", "no:cacheprovider",
        "-c", str(folder / "pytest.ini"), "--rootdir", str(checks),
        "-q", "--color=no", "--tb=native", check.file,
    ]  # fmt: skip
    done = process.supervise(
        [sys.executable, *argv],
        cwd=checks,
        env=_environment(
            check,
            tree=tree,
            python_roots=python_roots,
            witness=witness,
            threads=threads,
            folder=folder,
        ),
        timeout=check.timeout,
    )
    scrub = _Scrub(tree, folder)
    run = _read(folder / _REPORT, done, tree, limit=check.timeout, scrub=scrub)
    run.command = scrub(process.describe(["python", *argv]))
    _keep_log(run, scrub(done.output.decode("utf-8", "replace")), logs)
    return run


def _environment(
    check: Check,
    *,
    tree: Path,
    python_roots: Sequence[str],
    witness: Sequence[str],
    threads: int,
    folder: Path,
) -> dict[str, str]:
    return process.clean_environment(
        {
            # Checks run side by side: each gets its share of the cores.
            "OMP_NUM_THREADS": str(threads),
            **check.env,
            "CONTRIBBOT_TREE": str(tree),
            "CONTRIBBOT_REPORT": str(folder / _REPORT),
            "CONTRIBBOT_WITNESS": json.dumps([str(tree / path) for path in witness]),
            "HOME": str(folder / "home"),
            "TMPDIR": str(folder / "tmp"),
            "PYTHONPATH": os.pathsep.join(str(tree / root) for root in python_roots),
            "PYTHONDONTWRITEBYTECODE": "1",
            # What a check prints must be out before it crashes.
            "PYTHONUNBUFFERED": "1",
            # Only what contribbot depends on may take part, not what else is installed.
            "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
        }
    )


class _Scrub:
    """Takes the folders of this machine out of what a check wrote.

    Args:
        tree: The exported tree.
        folder: The folder of the run.
    """

    def __init__(self, tree: Path, folder: Path) -> None:
        named = [
            (str(tree), "<tree>"),
            (str(folder), "<run>"),
            (str(cache_folder()), "<cache>"),
            (sys.prefix, "<python>"),
            (sys.base_prefix, "<python>"),
            (str(Path(__file__).parents[2]), "<contribbot>"),
            (str(Path.home()), "<home>"),
        ]
        # The longest first: one may lie in another. `/` is no folder worth hiding.
        self._named = sorted(
            (pair for pair in named if len(pair[0]) > 1), key=lambda pair: -len(pair[0])
        )

    def __call__(self, text: str) -> str:
        """Return the text with a placeholder for each folder."""
        for folder, placeholder in self._named:
            text = text.replace(folder, placeholder)
        return text


def _read(
    report: Path, done: process.Supervised, tree: Path, *, limit: float, scrub: _Scrub
) -> CheckRun:
    """Turn the child's report and its end into a run."""
    run = CheckRun(seconds=done.seconds)
    told = _Told()
    text = report.read_text(encoding="utf-8", errors="replace") if report.is_file() else ""
    try:
        for row in text.splitlines():
            _take(run, told, json.loads(row), tree, scrub)
    except (ValueError, TypeError, KeyError):
        # The child died in the middle of a line, or a check wrote into the report.
        told.status = None
    run.passed = [test for test, outcome in told.outcomes.items() if outcome == "passed"]
    run.skipped = [test for test, outcome in told.outcomes.items() if outcome == "skipped"]
    run.trouble, run.transient = _trouble(run, done, told, limit=limit)
    return run


@dataclass
class _Told:
    """What the child has told of its session.

    Attributes:
        collected: The tests that there are.
        outcomes: What became of each test that has ended.
        current: The test that started last.
        uncollected: Why a file could not be collected, or empty.
        status: pytest's exit status, when the end was reached.
    """

    collected: list[str] = field(default_factory=list)
    outcomes: dict[str, str] = field(default_factory=dict)
    current: str = ""
    uncollected: str = ""
    status: int | None = None


def _take(
    run: CheckRun, told: _Told, event: dict[str, JsonValue], tree: Path, scrub: _Scrub
) -> None:
    """Take over one line of the report.

    Raises:
        KeyError: It lacks something.
        ValueError: It is no path of the tree.
    """
    kind, test = event["event"], str(event.get("test", ""))
    if kind == "collected":
        told.collected = [str(one) for one in _list(event["tests"])]
    elif kind == "start":
        told.current = test
    elif kind == "phase":
        outcome, when = str(event["outcome"]), str(event["when"])
        if outcome == "failed":
            message = scrub(str(event.get("message", "")))
            run.failed.append(Failure(test, when, message, event.get("broken") is True))
        # A failing teardown outweighs a passed call; nothing outweighs a failure.
        if told.outcomes.get(test) != "failed":
            told.outcomes[test] = outcome
    elif kind == "uncollected":
        last = scrub(str(event["message"])).strip().splitlines()[-1]
        told.uncollected = last.removeprefix("E ").strip()
    elif kind == "lines":
        path = Path(str(event["path"])).relative_to(tree).as_posix()
        run.statements[path] = [one for one in _list(event["statements"]) if isinstance(one, int)]
        run.executed[path] = [one for one in _list(event["executed"]) if isinstance(one, int)]
    elif kind == "end":
        told.status = int(str(event["status"]))


def _list(value: JsonValue) -> list[JsonValue]:
    if not isinstance(value, list):
        raise TypeError("not a list")
    return value


def _trouble(
    run: CheckRun, done: process.Supervised, told: _Told, *, limit: float
) -> tuple[str, bool]:
    """Say why a run cannot be believed, and whether that may pass."""
    during = f" in {told.current}" if told.current else ""
    unfinished = ""
    if done.timed_out:
        unfinished = f"hung{during}: killed after {limit:g} s"
    elif done.flooded:
        unfinished = f"wrote too much output{during}: killed"
    elif b"No space left on device" in done.output:
        unfinished = f"the disk is full{during}"
    elif done.returncode < 0:
        unfinished = f"crashed{during}: {_signal_name(-done.returncode)}"
    elif told.status != done.returncode or done.returncode not in _PYTEST_ENDS:
        unfinished = f"ended early{during} with exit status {done.returncode}"
    if unfinished:
        return unfinished, True
    return _unusable(run, told), False


def _unusable(run: CheckRun, told: _Told) -> str:
    """Say why a run that reached its end shows nothing, or nothing."""
    if told.uncollected:
        return f"could not be collected: {told.uncollected}"
    missed = [test for test in told.collected if test not in told.outcomes]
    if missed:
        return f"stopped before {missed[0]} had run"
    for failure in run.failed:
        if failure.when != "call":
            return f"error in {failure.when} of {failure.test}: {_first(failure.message)}"
    if not run.ran:
        skipped = f" ({len(run.skipped)} skipped)" if run.skipped else ""
        return f"executed no test{skipped}"
    return ""


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def _first(message: str) -> str:
    return message.partition("\n")[0]


def _keep_log(run: CheckRun, text: str, logs: Path) -> None:
    """Keep the whole output under its digest."""
    content = text.encode()
    run.log = hashlib.sha256(content).hexdigest()
    run.tail = text[-_TAIL:]
    write_atomically(logs / f"{run.log}.log", content)
