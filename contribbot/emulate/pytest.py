"""pytest's plug-in: `-p contribbot.emulate.pytest --emulate gfx942`, and each test's outcome.

Under `contribbot emulate` the GPU is in place already, and results go to that command.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections import Counter
from collections.abc import Generator
from typing import Final

import pytest

from contribbot.emulate import outcomes
from contribbot.emulate.decode import TABLES
from contribbot.emulate.emulation import device
from contribbot.emulate.errors import EmulatorError, NoResultError
from contribbot.emulate.gpu import active_gpu
from contribbot.emulate.outcomes import OUTCOMES, TestRow, write_event

PROPERTY: Final = "contribbot.emulate"
#: torch's message for an operator of an extension that is not there.
_OPERATOR: Final = re.compile(r"'_OpNamespace' '(\w+)' object has no attribute '(\w+)'")


def pytest_addoption(parser: pytest.Parser) -> None:
    """Take the target."""
    parser.addoption(
        "--emulate", metavar="TARGET", choices=sorted(TABLES),
        help="an AMD GPU that is emulated in the place of cuda, such as gfx942",
    )  # fmt: skip


@pytest.hookimpl(tryfirst=True)
def pytest_load_initial_conftests(early_config: pytest.Config) -> None:
    """Put the GPU in place, before anything of the tests is imported."""
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
    """Watch the tests."""
    config.pluginmanager.register(_Watch(config), "contribbot-emulated")


class _Watch:
    def __init__(self, config: pytest.Config) -> None:
        self._target: str | None = config.getoption("emulate")
        self._rows = dict[str, TestRow]()
        #: One of pytest-xdist's workers: its findings go to the process that asked.
        self._worker = hasattr(config, "workerinput")
        self._whole = True
        if not self._worker:
            write_event(kind="session")

    def pytest_keyboard_interrupt(self, excinfo: pytest.ExceptionInfo[BaseException]) -> None:
        """Note that not all tests have run: a person interrupted pytest, or pytest.exit did."""
        self._whole = False
        if excinfo.errisinstance(KeyboardInterrupt):
            write_event(kind="interrupted")

    def pytest_sessionfinish(self) -> None:
        """Tell that all tests have run, which an exit status of 0 does not."""
        if self._whole and not self._worker:
            write_event(kind="finished")

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item, call: pytest.CallInfo[None]
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        """Add to a report the errors on the emulated GPU since the last report."""
        report = yield
        active = active_gpu()
        errors = active.record.drain() if active else []
        row = None
        if errors:
            # Also where the test has caught an error: the test's claim does not follow.
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
                test=item.nodeid, outcome="not modelled" if missing else "failed",
                seconds=call.duration, said=outcomes.line_of(said),
            )  # fmt: skip
        elif report.skipped or report.when == "call":
            row = TestRow(test=item.nodeid, outcome=report.outcome, seconds=call.duration)
        if row is not None:
            report.user_properties.append((PROPERTY, row.model_dump_json()))
        return report

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Take a test's outcome; of pytest-xdist's workers, in the process that asked."""
        if self._worker:
            return
        rows = [
            TestRow.model_validate_json(str(value))
            for name, value in report.user_properties if name == PROPERTY
        ]  # fmt: skip
        if not rows and report.failed:  # another plug-in's: a worker has crashed
            said = outcomes.line_of(str(report.longrepr))
            rows = [TestRow(test=report.nodeid, outcome="failed", said=said)]
        for row in rows:
            before = self._rows.get(row.test)
            if before is None or before.outcome in {"passed", "skipped"}:
                self._rows[row.test] = row
                write_event(kind="test", row=row.model_dump())

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Show the table, unless `contribbot emulate` does."""
        if self._target and outcomes.FOLDER not in os.environ:
            rows = self._rows.values()
            counts = Counter(row.outcome for row in rows)
            told = ", ".join(f"{counts[name]} {name}" for name in OUTCOMES if counts[name])
            terminalreporter.write_sep("=", f"emulated {self._target}: {told or 'no test'}")
            for row in rows:
                if row.outcome in {"fault", "not modelled"}:
                    terminalreporter.write_line(f"{row.outcome}: {row.test}: {row.said}")
