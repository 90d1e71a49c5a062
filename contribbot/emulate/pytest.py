"""pytest's plug-in for an emulated GPU: `-p contribbot.emulate.pytest --emulate gfx942`.

The plug-in records the outcome of each test. Under `contribbot emulate`, the GPU is in place
already, and the outcomes go to that command.
"""

from __future__ import annotations

import contextlib
import faulthandler
import os
import random
import re
import signal
from collections import Counter
from collections.abc import Generator
from types import FrameType
from typing import Final, NoReturn

import pytest

from contribbot.emulate import outcomes
from contribbot.emulate.decode import TABLES
from contribbot.emulate.emulation import device
from contribbot.emulate.errors import EmulatorError, NoResultError
from contribbot.emulate.gpu import active_gpu
from contribbot.emulate.outcomes import OUTCOMES, TestRow, write_event

PROPERTY: Final = "contribbot.emulate"
#: torch's message on a missing operator of an extension.
_OPERATOR: Final = re.compile(r"'_OpNamespace' '(\w+)' object has no attribute '(\w+)'")


class TestTooLongError(BaseException):
    """A test exceeds `--emulate-seconds`; no `except Exception` catches this error."""

    __test__ = False


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options --emulate, --emulate-cases and --emulate-seconds."""
    parser.addoption(
        "--emulate",
        metavar="TARGET",
        choices=sorted(TABLES),
        help="an AMD GPU that is emulated in the place of cuda, such as gfx942",
    )
    for name, default, text in (
        ("--emulate-cases", 0, "at most so many cases of each function, by a fixed choice"),
        ("--emulate-seconds", 120, "how long a test may take (120); 0: no limit"),
    ):
        parser.addoption(name, type=int, default=default, metavar="N", help=text)


@pytest.hookimpl(tryfirst=True)
def pytest_load_initial_conftests(early_config: pytest.Config) -> None:
    """Put the emulated GPU in place before pytest imports the tests."""
    if target := early_config.known_args_namespace.emulate:
        if outcomes.FOLDER in os.environ:
            raise pytest.UsageError("a GPU is in place already: omit --emulate")
        try:
            stack = contextlib.ExitStack()
            stack.enter_context(device(target))
        except EmulatorError as error:
            raise pytest.UsageError(f"contribbot: {error}") from error
        early_config.add_cleanup(stack.close)


def pytest_configure(config: pytest.Config) -> None:
    """Register the plug-in; a file that cannot be imported does not end the run."""
    if config.getoption("emulate") or outcomes.FOLDER in os.environ:
        config.option.continue_on_collection_errors = True
    config.pluginmanager.register(_Watch(config), "contribbot-emulated")


class _Watch:
    def __init__(self, config: pytest.Config) -> None:
        self._target: str | None = config.getoption("emulate")
        self._rows = dict[str, TestRow]()
        #: Whether this process is a worker of pytest-xdist, whose rows go to the main process.
        self._worker = hasattr(config, "workerinput")
        self._whole = True
        self._most: int = config.option.emulate_cases
        self._seconds: int = config.option.emulate_seconds
        self._late = False
        if not self._worker:
            write_event(kind="session")

    def pytest_keyboard_interrupt(self, excinfo: pytest.ExceptionInfo[BaseException]) -> None:
        """Record that not all tests have run: a person or `pytest.exit` ended the session."""
        self._whole = False
        if excinfo.errisinstance(KeyboardInterrupt):
            write_event(kind="interrupted")

    def pytest_sessionfinish(self) -> None:
        """Record that all tests have run, which an exit status of 0 does not tell."""
        if self._whole and not self._worker:
            write_event(kind="finished")

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Reduce the cases of each function to a fixed sample of `--emulate-cases`."""
        functions = dict[str, list[pytest.Item]]()
        for item in items if self._most else ():
            functions.setdefault(item.nodeid.partition("[")[0], []).append(item)
        for name, cases in functions.items():
            chance = random.Random(f"contribbot {name}")  # noqa: S311  the choice need not be safe
            # Cases are sorted by name: a parametrisation by a set differs in each process.
            cases.sort(key=lambda case: case.nodeid)
            functions[name] = chance.sample(cases, min(self._most, len(cases)))
        if functions:
            items[:] = [case for cases in functions.values() for case in cases]

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """Record a file that cannot be imported as failed."""
        if report.failed and not self._worker:
            lines = [each[4:] for each in str(report.longrepr).splitlines() if each[:2] == "E "]
            said = outcomes.line_of((lines or [str(report.longrepr)])[-1])
            row = TestRow(test=report.nodeid, outcome="failed", said=said)
            self._rows[row.test] = row
            write_event(kind="test", row=row.model_dump())

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self) -> Generator[None, object, object]:
        """Run a test; after `--emulate-seconds`, SIGALRM raises TestTooLongError in the test."""
        self._late = False
        before = signal.signal(signal.SIGALRM, self._too_long)
        signal.alarm(self._seconds)
        if self._seconds:  # if no signal reaches the test, this ends the process
            faulthandler.dump_traceback_later(2 * self._seconds + 60, exit=True)
        try:
            return (yield)
        finally:
            signal.alarm(0)
            signal.signal(signal.SIGALRM, before)
            faulthandler.cancel_dump_traceback_later()

    def _too_long(self, _number: int, _frame: FrameType | None) -> NoReturn:
        self._late = True
        raise TestTooLongError(f"it took longer than {self._seconds} s")

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item, call: pytest.CallInfo[None]
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        """Add the test's row to a report, from the errors on the GPU and the test's outcome."""
        left = signal.alarm(0)  # no alarm during the following code
        report = yield
        active = active_gpu()
        errors = active.record.drain() if active else []
        row = None
        if errors:
            # An error counts even if the test has caught it: the test's claim does not follow.
            worst = next((each for each in errors if isinstance(each, NoResultError)), errors[0])
            row = outcomes.row_of(item.nodeid, worst, call.duration)
            if report.outcome != "failed":
                report.outcome, report.longrepr = "failed", f"{row.outcome}: {row.said}"
        elif report.failed and call.excinfo and isinstance(call.excinfo.value, NoResultError):
            row = outcomes.row_of(item.nodeid, call.excinfo.value, call.duration)
        elif report.failed:
            said = call.excinfo.exconly() if call.excinfo else str(report.longrepr)
            missing = _OPERATOR.search(said)
            if missing:
                said = f"the operator {missing[1]}::{missing[2]} of an extension is not there"
            row = TestRow(
                test=item.nodeid,
                outcome="not modelled" if missing else "failed",
                seconds=call.duration,
                said=outcomes.line_of(said),
            )
        elif report.skipped or report.when == "call":
            row = TestRow(test=item.nodeid, outcome=report.outcome, seconds=call.duration)
        if self._late and row is not None and row.outcome == "failed":
            row = row.model_copy(update={"outcome": "too long"})
        signal.alarm(left and max(left, 1))
        if row is not None:
            report.user_properties.append((PROPERTY, row.model_dump_json()))
        return report

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Record a test's row in the main process, also for pytest-xdist's workers."""
        if self._worker:
            return
        rows = [
            TestRow.model_validate_json(str(value))
            for name, value in report.user_properties
            if name == PROPERTY
        ]
        if not rows and report.failed:  # another plug-in's report: a worker has crashed
            said = outcomes.line_of(str(report.longrepr))
            rows = [TestRow(test=report.nodeid, outcome="failed", said=said)]
        for row in rows:
            before = self._rows.get(row.test)
            if before is None or before.outcome in {"passed", "skipped"}:
                self._rows[row.test] = row
                write_event(kind="test", row=row.model_dump())

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Show the number of each outcome, unless `contribbot emulate` shows the outcomes."""
        if self._target and outcomes.FOLDER not in os.environ:
            rows = self._rows.values()
            counts = Counter(row.outcome for row in rows)
            told = ", ".join(f"{counts[name]} {name}" for name in OUTCOMES if counts[name])
            terminalreporter.write_sep("=", f"emulated {self._target}: {told or 'no test'}")
            for row in rows:
                if row.outcome in {"fault", "not modelled", "too long"}:
                    terminalreporter.write_line(f"{row.outcome}: {row.test}: {row.said}")
