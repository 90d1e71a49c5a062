"""Running one check on one tree in a child pytest."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import sqlite3
import sys
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from pydantic import JsonValue

from contribbot import process
from contribbot.files import write_atomically
from contribbot.hardware.machine import is_full
from contribbot.model.checks import Check
from contribbot.model.evidence import HOST_TARGETS
from contribbot.model.patch import PatchFile
from contribbot.numerics.records import CellRecord
from contribbot.verify.broken import Broken
from contribbot.verify.missing import missing_modules
from contribbot.verify.placement import Place
from contribbot.verify.run_result import (
    CheckRun,
    Failure,
    Kernels,
    Scrub,
    Trouble,
    Witnessed,
)
from contribbot.verify.runner_fault import suspicion

#: What the system says of a full disk (ENOSPC).
_NO_SPACE: Final = "No space left on device"
#: pytest's exit statuses for a session that ran to its end: all passed, some
#: failed, interrupted, nothing collected.
_PYTEST_ENDS: Final = frozenset({0, 1, 2, 5})
_INTERRUPTED: Final = 2
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
    """Turn the child's report and its end into a run."""
    run = CheckRun(seconds=done.seconds, limit=limit)
    told = _Told()
    if report.is_file() and report.stat().st_size > _LARGEST:
        run.trouble, run.told = Trouble.UNREADABLE, "reported too much"
        return run
    text = report.read_text(encoding="utf-8", errors="replace") if report.is_file() else ""
    try:
        for row in text.splitlines():
            _take(run, told, json.loads(row), scrub)
    except (ValueError, TypeError, LookupError, AttributeError, RecursionError):
        # The child died in the middle of a line, or a check wrote into the report.
        told.status = None
    run.passed = [test for test, outcome in told.outcomes.items() if outcome == "passed"]
    run.skipped = [test for test, outcome in told.outcomes.items() if outcome == "skipped"]
    run.status = told.status
    filled = _filled(run, done, told, report.parent)
    run.trouble, run.told = _trouble(run, done, told, limit=limit, filled=filled) or (None, "")
    run.executed = executed_lines(report.parent, witnessed, told.compiled)
    return run


def executed_lines(
    folder: Path, witnessed: Mapping[str, Witnessed], compiled: Collection[tuple[str, int]] = ()
) -> dict[str, list[int]]:
    """Return the lines that a patch adds and that ran under the tests of a run, by tree path."""
    from coverage import CoverageData  # noqa: PLC0415  start-up time
    from coverage.exceptions import CoverageException  # noqa: PLC0415  start-up time

    found: dict[str, set[int]] = {file.path: set() for file in witnessed.values()}
    for runs, line in compiled:
        if runs in witnessed and line in witnessed[runs].lines:
            found[witnessed[runs].path].add(witnessed[runs].lines[line])
    for path in folder.glob("lines.*"):
        # A process that was killed leaves half a file, or none.
        with contextlib.suppress(CoverageException, sqlite3.Error):
            data = CoverageData(str(path))
            data.read()
            for runs, file in witnessed.items():
                ran = set(data.lines(runs) or ())
                found[file.path] |= {line for there, line in file.lines.items() if there in ran}
    return {path: sorted(lines) for path, lines in found.items()}


@dataclass
class _Told:
    """What the child has told of its session."""

    collected: list[str] = field(default_factory=list)  # the tests that there are
    #: What became of each test that has ended.
    outcomes: dict[str, str] = field(default_factory=dict)
    current: str = ""  # the test that started last
    uncollected: Failure | None = None  # why a file could not be collected
    stopped: bool = False  # whether the session was stopped from inside
    #: Lines that a compiler took over, by the file that runs.
    compiled: set[tuple[str, int]] = field(default_factory=set)
    status: int | None = None  # pytest's exit status, when the end was reached

    def ended(self, done: process.Supervised) -> bool:
        """Say whether the session ran to its end."""
        return self.status == done.returncode and done.returncode in _PYTEST_ENDS


def _take(run: CheckRun, told: _Told, event: dict[str, JsonValue], scrub: Scrub) -> None:
    """Take over one line of the report; raise KeyError where it lacks something."""
    kind, test = event["event"], str(event.get("test", ""))
    if kind == "collected":
        told.collected = [str(one) for one in _list(event["tests"])]
    elif kind == "start":
        told.current = test
    elif kind == "phase":
        _take_phase(run, told, event, scrub)
    elif kind == "uncollected":
        told.uncollected = _failure(test, event, "collect", scrub)
    elif kind in {"cell", "kernels"}:
        _take_seen(run, {name: value for name, value in event.items() if name != "event"}, scrub)
    elif kind == "line":
        told.compiled.add((str(event["file"]), int(str(event["line"]))))
    elif kind == "stopped":
        told.stopped = True
    elif kind == "end":
        told.status = int(str(event["status"]))


def _take_phase(run: CheckRun, told: _Told, event: dict[str, JsonValue], scrub: Scrub) -> None:
    """Take over what became of a phase of a test, or of a part of it (a subtest)."""
    test, outcome = str(event.get("test", "")), str(event["outcome"])
    if outcome == "failed":
        run.failed.append(_failure(test, event, str(event["when"]), scrub))
    if told.outcomes.get(test) == "skipped" and outcome == "passed":
        run.partly.append(test)
    # A failing teardown outweighs a passed call; nothing outweighs a failure.
    if told.outcomes.get(test) != "failed":
        told.outcomes[test] = outcome


def _failure(test: str, event: dict[str, JsonValue], when: str, scrub: Scrub) -> Failure:
    broken = Broken(str(event["broken"])) if event.get("broken") else None
    message = scrub(str(event.get("message", "")))
    return Failure(test, when, message, broken, str(event.get("fault", "")))


def _take_seen(run: CheckRun, seen: dict[str, JsonValue], scrub: Scrub) -> None:
    """Take over what the child saw beside outcomes: a cell of a grid, or the kernels."""
    if "failed" in seen:
        run.cells.append(CellRecord.model_validate({**seen, "failed": scrub(str(seen["failed"]))}))
    else:
        run.kernels = Kernels.model_validate({**seen, "blind": scrub(str(seen["blind"]))})


def _list(value: JsonValue) -> list[JsonValue]:
    if not isinstance(value, list):
        raise TypeError("not a list")
    return value


def _filled(run: CheckRun, done: process.Supervised, told: _Told, folder: Path) -> bool:
    """Say whether a run met a full disk: a check may print such words and mean nothing by it."""
    if _NO_SPACE.encode() not in done.output:
        return False
    failed = [*run.failed, *filter(None, [told.uncollected])]
    said = any(_NO_SPACE in failure.message for failure in failed)
    return said or not told.ended(done) or is_full(folder)


def _trouble(
    run: CheckRun, done: process.Supervised, told: _Told, *, limit: float, filled: bool
) -> tuple[Trouble, str] | None:
    """Say why a run as a whole shows nothing; None: it does show something."""
    during = f" in {told.current}" if told.current else ""
    held = ", and it has not ended: the kernel holds it" if done.stuck else ""
    signal = process.signal_name(-done.returncode)
    ends = (
        (done.timed_out, Trouble.TIMED_OUT, f"hung{during}: killed after {limit:g} s{held}"),
        (done.flooded, Trouble.FLOODED, f"wrote too much output{during}: killed"),
        (filled, Trouble.DISK_FULL, f"the disk is full{during}"),
        (done.starved, Trouble.NO_MEMORY, f"out of memory{during}: killed by the kernel"),
        (done.returncode < 0, Trouble.CRASHED, f"crashed{during}: {signal}"),
        (
            not told.ended(done),
            Trouble.ENDED_EARLY,
            f"ended early{during} with exit status {done.returncode}",
        ),
    )
    met = next(((trouble, text) for holds, trouble, text in ends if holds), None)
    return met or _unusable(run, told)


def _unusable(run: CheckRun, told: _Told) -> tuple[Trouble, str] | None:
    """Say why a run that reached its end shows nothing, or None."""
    if told.uncollected:
        run.broken = told.uncollected.broken
        return Trouble.UNCOLLECTED, f"could not be collected: {told.uncollected.first}"
    missed = [test for test in told.collected if test not in told.outcomes]
    if missed:
        return Trouble.STOPPED, f"stopped before {missed[0]} had run"
    if told.stopped or told.status == _INTERRUPTED:
        return Trouble.STOPPED, "its session was stopped"
    for failure in run.failed:
        if failure.when != "call" and not failure.fault and not failure.broken:
            return Trouble.FIXTURE, f"error in {failure.when} of {failure.test}: {failure.first}"
    if not run.ran:
        skipped = f" ({len(run.skipped)} skipped)" if run.skipped else ""
        return Trouble.EMPTY, f"executed no test{skipped}"
    return None


#: What a record keeps of an output; the whole is in the log file.
_TAIL: Final = 2000
_REPORT: Final = "report.jsonl"
#: Starts the child: nothing of the tree is on Python's path yet.
_START: Final = "from contribbot.verify.pytest_plugin import main; main()"


def run_check(
    check: Check,
    support: Sequence[PatchFile],
    *,
    place: Place,
    env: Mapping[str, str],
    threads: int,
    folder: Path,
    logs: Path,
) -> CheckRun:
    """Run a check on a tree."""
    on_host = check.target in HOST_TARGETS
    checks = lay_out(folder, support)
    (folder / "pytest.ini").write_text("[pytest]\n", encoding="utf-8")
    sandbox = None if process.no_sandbox() else folder
    lines = folder / "coverage.ini"
    lines.write_text(_coverage(folder, place.witnessed), encoding="utf-8")
    argv = [
        "-p", "no:cacheprovider", "-c", str(folder / "pytest.ini"), "--rootdir", str(checks),
        "-q", "--color=no", "--tb=native",
        # An assertion that fails in a thread fails the test.
        "-W", "error::pytest.PytestUnhandledThreadExceptionWarning",
        # What a GPU's runtime writes before it aborts must be out, and not in pytest's keeping.
        *([] if on_host else ["--capture=sys"]), check.file,
    ]  # fmt: skip
    done = process.supervise(
        [sys.executable, "-B", "-P", "-c", _START, *argv],
        cwd=checks,
        env=child_environment(
            place,
            {**check.env, **env},
            threads=threads,
            folder=folder,
            more={
                "CONTRIBBOT_PATH": place.python_path,
                "PYTHONPATH": process.own_path(),
                "CONTRIBBOT_REPORT": str(folder / _REPORT),
                "CONTRIBBOT_REASON": check.reason,
                "CONTRIBBOT_WITNESS": str(lines) if place.witnessed else "",
                "CONTRIBBOT_KERNELS": ("cpu" if on_host else "cuda") if check.kernels else "",
                # Only what contribbot depends on may take part, not what else is installed.
                "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
            },
        ),
        timeout=check.timeout,
        sandbox=sandbox,
    )
    scrub = Scrub(place.tree, folder, *place.python)
    run = read_report(folder / _REPORT, done, place.witnessed, limit=check.timeout, scrub=scrub)
    run.command = scrub(process.describe(["python", "-m", "pytest", *argv]))
    text = scrub(done.output.decode("utf-8", "replace"))
    run.suspicion = suspicion(run, text)
    if run.trouble is Trouble.UNCOLLECTED or any(failure.broken for failure in run.failed):
        env = child_environment(
            place, {**check.env, **env}, threads=threads, folder=folder, more={}
        )
        run.missing = missing_modules(check.file, cwd=checks, env=env, sandbox=sandbox)
    _keep_log(run, text, logs)
    return run


def _coverage(folder: Path, files: Iterable[str]) -> str:
    """Return coverage's configuration: these files alone, in all processes of a run."""
    # coverage takes patterns and knows no escapes: `?` stands for what would be one.
    include = "\n    ".join(re.sub(r"[][*!{}%$]", "?", path) for path in files)
    return (
        f"[run]\ndata_file = {folder / 'lines'}\nparallel = true\n"
        f"patch = subprocess, fork, _exit\nsigterm = true\ninclude =\n    {include}\n"
    )


def lay_out(folder: Path, support: Sequence[PatchFile]) -> Path:
    """Write what a run may use into its folder, and return the folder of the checks."""
    checks = folder / "checks"
    for file in support:
        target = checks / file.name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(file.content)
    for name in ("home", "tmp"):
        (folder / name).mkdir()
    return checks


def child_environment(
    place: Place,
    stated: Mapping[str, str],
    *,
    threads: int,
    folder: Path,
    more: Mapping[str, str],
) -> dict[str, str]:
    """Return the whole environment of something that runs on a tree."""
    return process.clean_environment(
        {
            # Checks run side by side: each gets its share of the cores.
            "OMP_NUM_THREADS": str(threads),
            **stated,
            **place.env,
            "CONTRIBBOT_TREE": str(place.tree),
            "HOME": str(folder / "home"),
            "TMPDIR": str(folder / "tmp"),
            "PYTHONPATH": os.pathsep.join(filter(None, [place.python_path, process.own_path()])),
            "PYTHONDONTWRITEBYTECODE": "1",
            # What a check prints must be out before it crashes.
            "PYTHONUNBUFFERED": "1",
            **more,
        }
    )


def _keep_log(run: CheckRun, text: str, logs: Path) -> None:
    """Keep the whole output under its digest."""
    content = text.encode()
    run.log = hashlib.sha256(content).hexdigest()
    run.tail = text[-_TAIL:]
    write_atomically(logs / f"{run.log}.log", content)
