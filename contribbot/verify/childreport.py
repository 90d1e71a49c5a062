"""What a child pytest reported, and whether it can be believed."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from pydantic import JsonValue

from contribbot import process
from contribbot.hardware.disk import is_full
from contribbot.numerics.records import CellRecord
from contribbot.verify.childrun import FULL, STARVED, CheckRun, Failure
from contribbot.verify.kernels import Kernels
from contribbot.verify.scrub import Scrub
from contribbot.verify.witnessed import Witnessed

#: What the system says of a full disk (ENOSPC).
_NO_SPACE: Final = "No space left on device"
#: pytest's exit statuses for a session that ran to its end: all passed, some
#: failed, interrupted by errors of collection, nothing collected.
_PYTEST_ENDS: Final = frozenset({0, 1, 2, 5})
#: Bytes of a report that is read: a hundred thousand tests fit.
_LARGEST: Final = 64 * 2**20


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
    filled = _filled(run, done, told, report.parent)
    run.trouble, run.transient = _trouble(run, done, told, limit=limit, filled=filled)
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

    def ended(self, done: process.Supervised) -> bool:
        """Say whether the session ran to its end."""
        return self.status == done.returncode and done.returncode in _PYTEST_ENDS


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
    elif kind in {"cell", "kernels"}:
        _take_seen(run, {name: value for name, value in event.items() if name != "event"}, scrub)
    elif kind == "end":
        told.status = int(str(event["status"]))


def _take_seen(run: CheckRun, seen: dict[str, JsonValue], scrub: Scrub) -> None:
    """Take over what the child saw beside outcomes: a cell of a grid, or the kernels."""
    if "failed" in seen:
        run.cells.append(CellRecord.model_validate({**seen, "failed": scrub(str(seen["failed"]))}))
    else:
        run.kernels = Kernels.model_validate({**seen, "blind": scrub(str(seen["blind"]))})


def _lines(value: JsonValue, file: Witnessed) -> list[int]:
    """Return the lines of the tree that are meant, of those that the patch adds."""
    numbers = {one for one in _list(value) if isinstance(one, int)}
    return sorted(line for there, line in file.lines.items() if there in numbers)


def _list(value: JsonValue) -> list[JsonValue]:
    if not isinstance(value, list):
        raise TypeError("not a list")
    return value


def _filled(run: CheckRun, done: process.Supervised, told: _Told, folder: Path) -> bool:
    """Say whether a run met a full disk: a check may print such words and mean nothing by it."""
    if _NO_SPACE.encode() not in done.output:
        return False
    said = (told.uncollected, *(one.message for one in run.failed))
    return not told.ended(done) or any(_NO_SPACE in one for one in said) or is_full(folder)


def _trouble(
    run: CheckRun, done: process.Supervised, told: _Told, *, limit: float, filled: bool
) -> tuple[str, bool]:
    """Say why a run cannot be believed, and whether that may pass."""
    during = f" in {told.current}" if told.current else ""
    unfinished = ""
    if done.timed_out:
        unfinished = f"hung{during}: killed after {limit:g} s"
        if done.stuck:
            unfinished += ", and it has not ended: the kernel holds it"
    elif done.flooded:
        unfinished = f"wrote too much output{during}: killed"
    elif filled:
        unfinished = f"{FULL}{during}"
    elif done.starved:
        unfinished = f"{STARVED}{during}: killed by the kernel"
    elif done.returncode < 0:
        unfinished = f"crashed{during}: {process.signal_name(-done.returncode)}"
    elif not told.ended(done):
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
            return f"error in {failure.when} of {failure.test}: {failure.first}"
    if not run.ran:
        skipped = f" ({len(run.skipped)} skipped)" if run.skipped else ""
        return f"executed no test{skipped}"
    return ""
