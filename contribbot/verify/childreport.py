"""What a child pytest reported, and whether it can be believed."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from pydantic import JsonValue

from contribbot import process
from contribbot.numerics.records import CellRecord
from contribbot.verify.witnessed import Witnessed
from contribbot.workspace import cache_folder

#: pytest's exit statuses for a session that ran to its end: all passed, some
#: failed, interrupted by errors of collection, nothing collected.
_PYTEST_ENDS: Final = frozenset({0, 1, 2, 5})
#: Bytes of a report that is read: a hundred thousand tests fit.
_LARGEST: Final = 64 * 2**20
#: Failures of one run that a record holds in full, and characters of the others.
_IN_FULL: Final = 20
_SHORT: Final = 200


@dataclass(frozen=True)
class Failure:
    """One test that did not pass.

    Attributes:
        test: The test.
        when: `setup`, `call` or `teardown`.
        message: `ExceptionType: message`.
        broken: Whether something could not be imported or found.
        fault: What this machine could not do (`memory`, `device`), or empty.
    """

    test: str
    when: str
    message: str
    broken: bool
    fault: str = ""


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
        statements: The lines with statements among those that the patch adds, by tree path.
        executed: Those of them that ran.
        cells: The cells of grids that were judged.
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
    cells: list[CellRecord] = field(default_factory=list)

    @property
    def ran(self) -> set[str]:
        """The tests that were executed."""
        return {*self.passed, *(failure.test for failure in self.failed)}

    def summary(self) -> dict[str, JsonValue]:
        """Return what the record keeps."""
        failures: list[JsonValue] = [
            {
                "test": one.test,
                "when": one.when,
                "message": one.message if place < _IN_FULL else _first(one.message)[:_SHORT],
            }
            for place, one in enumerate(self.failed)
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


#: A folder's name that is no part of a longer one: `/root` is neither in `/rootfs` nor in
#: `src/root`, but in `-I/root/x` and behind the `\\n` of a string that was printed quoted.
_BEFORE_FOLDER: Final = r"(?:(?<![\w.-])|(?<=-[A-Za-z])|(?<=\\[nrt]))"
_AFTER_FOLDER: Final = r"(?![\w-]|\.\w)"


class Scrub:
    """Takes the folders of this machine out of what a check wrote.

    Args:
        tree: The exported tree.
        folder: The folder of the run.
        more: Other folders that stand for the tree.
    """

    def __init__(self, tree: Path, folder: Path, *more: Path) -> None:
        named = [
            *((str(one), "<tree>") for one in more),
            (str(tree), "<tree>"),
            (str(folder), "<run>"),
            (str(cache_folder()), "<cache>"),
            (sys.prefix, "<python>"),
            (sys.base_prefix, "<python>"),
            (str(Path(__file__).parents[2]), "<contribbot>"),
            (str(Path.home()), "<home>"),
        ]
        # `/` is no folder worth hiding. Of a folder with two names the first counts.
        self._named = {name: text for name, text in reversed(named) if len(name) > 1}
        # The longest first: one may lie in another.
        names = "|".join(re.escape(name) for name in sorted(self._named, key=len, reverse=True))
        self._pattern = re.compile(f"{_BEFORE_FOLDER}(?:{names}){_AFTER_FOLDER}")

    def __call__(self, text: str) -> str:
        """Return the text with a placeholder for each folder."""
        return self._pattern.sub(lambda found: self._named[found[0]], text)


def read_report(
    report: Path,
    done: process.Supervised,
    witnessed: Mapping[str, Witnessed],
    *,
    limit: float,
    scrub: Scrub,
) -> CheckRun:
    """Turn the child's report and its end into a run.

    Args:
        report: The file that the child wrote; need not be there.
        done: How the child ended.
        witnessed: The files of which executed lines are wanted, by where each lies.
        limit: Seconds that it had.
        scrub: Takes folders out of messages.
    """
    run = CheckRun(seconds=done.seconds)
    told = _Told()
    if report.is_file() and report.stat().st_size > _LARGEST:
        run.trouble, run.transient = "reported too much", True
        return run
    text = report.read_text(encoding="utf-8", errors="replace") if report.is_file() else ""
    try:
        for row in text.splitlines():
            _take(run, told, json.loads(row), witnessed, scrub)
    except (ValueError, TypeError, LookupError, AttributeError, RecursionError):
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
    run: CheckRun,
    told: _Told,
    event: dict[str, JsonValue],
    witnessed: Mapping[str, Witnessed],
    scrub: Scrub,
) -> None:
    """Take over one line of the report.

    Raises:
        KeyError: It lacks something, or is about a file that nobody asked about.
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
            broken, fault = event.get("broken") is True, str(event.get("fault", ""))
            run.failed.append(Failure(test, when, message, broken, fault))
        # A failing teardown outweighs a passed call; nothing outweighs a failure.
        if told.outcomes.get(test) != "failed":
            told.outcomes[test] = outcome
    elif kind == "uncollected":
        last = scrub(str(event["message"])).strip().splitlines()[-1]
        told.uncollected = last.removeprefix("E ").strip()
    elif kind == "lines":
        file = witnessed[str(event["path"])]
        run.statements[file.path] = _lines(event["statements"], file)
        run.executed[file.path] = _lines(event["executed"], file)
    elif kind == "cell":
        told_cell = {name: value for name, value in event.items() if name != "event"}
        told_cell["failed"] = scrub(str(event["failed"]))
        run.cells.append(CellRecord.model_validate(told_cell))
    elif kind == "end":
        told.status = int(str(event["status"]))


def _lines(value: JsonValue, file: Witnessed) -> list[int]:
    """Return the lines of the tree that are meant, of those that the patch adds."""
    numbers = {one for one in _list(value) if isinstance(one, int)}
    return sorted(line for there, line in file.lines.items() if there in numbers)


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
        unfinished = f"crashed{during}: {process.signal_name(-done.returncode)}"
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
        if failure.when != "call" and not failure.fault:
            return f"error in {failure.when} of {failure.test}: {_first(failure.message)}"
    if not run.ran:
        skipped = f" ({len(run.skipped)} skipped)" if run.skipped else ""
        return f"executed no test{skipped}"
    return ""


def _first(message: str) -> str:
    return message.partition("\n")[0]
