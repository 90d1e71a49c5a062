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
            "CONTRIBBOT_WITNESS": os.pathsep.join(str(tree / path) for path in witness),
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
    current, ended, uncollected = "", False, ""
    outcomes: dict[str, str] = {}
    collected: list[str] = []
    text = report.read_text(encoding="utf-8") if report.is_file() else ""
    for row in text.splitlines():
        try:
            event = json.loads(row)
        except json.JSONDecodeError:
            break  # the child died in the middle of this line
        kind = event["event"]
        if kind == "collected":
            collected = event["tests"]
        elif kind == "start":
            current = event["test"]
        elif kind == "phase":
            _phase(run, event, outcomes, scrub)
        elif kind == "uncollected":
            uncollected = (
                scrub(event["message"]).strip().splitlines()[-1].removeprefix("E ").strip()
            )
        elif kind == "lines":
            path = Path(event["path"]).relative_to(tree).as_posix()
            run.statements[path], run.executed[path] = event["statements"], event["executed"]
        elif kind == "end":
            ended = True
    run.passed = [test for test, outcome in outcomes.items() if outcome == "passed"]
    run.skipped = [test for test, outcome in outcomes.items() if outcome == "skipped"]
    run.trouble, run.transient = _trouble(
        run, done, current=current, ended=ended, uncollected=uncollected, limit=limit
    )
    missed = [test for test in collected if test not in outcomes]
    if missed and not run.trouble:
        run.trouble = f"stopped before {missed[0]} had run"
    return run


def _phase(run: CheckRun, event: dict[str, str], outcomes: dict[str, str], scrub: _Scrub) -> None:
    test, outcome = event["test"], event["outcome"]
    if outcome == "failed":
        run.failed.append(
            Failure(test, event["when"], scrub(event.get("message", "")), bool(event.get("broken")))
        )
    # A failing teardown outweighs a passed call; nothing outweighs a failure.
    if outcomes.get(test) != "failed":
        outcomes[test] = outcome


def _trouble(
    run: CheckRun,
    done: process.Supervised,
    *,
    current: str,
    ended: bool,
    uncollected: str,
    limit: float,
) -> tuple[str, bool]:
    """Say why a run cannot be believed, and whether that may pass."""
    during = f" in {current}" if current else ""
    unfinished = ""
    if done.timed_out:
        unfinished = f"hung{during}: killed after {limit:g} s"
    elif done.flooded:
        unfinished = f"wrote too much output{during}: killed"
    elif not ended and done.returncode < 0:
        unfinished = f"crashed{during}: {_signal_name(-done.returncode)}"
    elif not ended or done.returncode not in _PYTEST_ENDS:
        unfinished = f"ended early{during} with exit status {done.returncode}"
    elif b"No space left on device" in done.output:
        unfinished = f"the disk is full{during}"
    if unfinished:
        return unfinished, True
    return _unusable(run, uncollected), False


def _unusable(run: CheckRun, uncollected: str) -> str:
    """Say why a run that reached its end shows nothing, or nothing."""
    if uncollected:
        return f"could not be collected: {uncollected}"
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
