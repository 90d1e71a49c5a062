"""pytest's plug-in of a sweep: choose the tests, and write the outcome of each test."""

from __future__ import annotations

import contextlib
import importlib.metadata
import linecache
import os
import random
import re
import signal
import sys
import traceback
import zlib
from collections import Counter
from collections.abc import Callable, Generator, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final, NoReturn
from unittest import mock

import pytest

from contribbot.emulate import outcomes
from contribbot.emulate.gpu import active_gpu
from contribbot.emulate.outcomes import TestRow
from contribbot.emulate.pytest import PROPERTY
from contribbot.sweep.findings import (
    KIND_OF_FAULT,
    UNWRITABLE,
    FindingKind,
    KernelCode,
    SweepEvent,
    SweepOutcome,
    SweepRow,
    SweepSession,
    events_file,
    write_event,
)

if TYPE_CHECKING:
    from contribbot.sweep.capture import LaunchObserver

_ROW: Final = "contribbot.sweep.row"
_CODE: Final = "contribbot.sweep.code"
_ROCM: Final = re.compile(r"\b(rocm|hip|amd|cuda|nvidia)", re.IGNORECASE)
_SKIP: Final = re.compile(r"\bskip(if)?\b|pytestmark")
_VERSIONS: Final = ("contribbot", "torch", "triton", "tinygrad", "pytest")


def pytest_configure(config: pytest.Config) -> None:
    """Register the plug-in if pytest runs in a sweep."""
    if (session := SweepSession.current()) is not None:
        config.pluginmanager.register(_Sweep(config, session), "contribbot-sweep")


class _OtherShard(pytest.Module):
    """A file that is not imported: of another shard, or all tests of the file have run."""

    def collect(self) -> list[pytest.Item]:
        """Return no tests."""
        return []


class _Sweep:
    def __init__(self, config: pytest.Config, session: SweepSession) -> None:
        self._config, self._session = config, session
        self._done, self._done_files = {*session.done}, {*session.done_files}
        #: Workers of pytest-xdist run the tests, and the main process writes the outcomes.
        self._worker = hasattr(config, "workerinput")
        self._events = events_file(Path(session.folder), session.target)
        self._lifted = dict[str, str]()
        self._skip = ""  # the line at which the running test would have been skipped
        self._row: SweepRow | None = None
        self._observer: LaunchObserver | None = None
        self._captured = set[tuple[str, str, str]]()
        self._told = set[str]()
        self._file = ""  # the file of the last test

    def _write(self, event: SweepEvent) -> None:
        try:
            write_event(self._events, event)
        except OSError as error:
            pytest.exit(f"{error.filename}: {error.strerror}", returncode=UNWRITABLE)

    # --- The choice of tests -----------------------------------------------------------------

    @pytest.hookimpl(tryfirst=True)
    def pytest_pycollect_makemodule(
        self, module_path: Path, parent: pytest.Collector
    ) -> pytest.Module | None:
        """Return `_OtherShard` for a file without tests to run here; None: pytest goes on."""
        name = os.path.relpath(module_path, self._config.rootpath)
        number, shards = self._session.shard
        elsewhere = zlib.crc32(os.fsencode(name)) % shards != number - 1
        if elsewhere or outcomes.as_utf8(name) in self._done_files:
            return _OtherShard.from_parent(parent, path=module_path)
        return None

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection(self) -> None:
        """Write the versions of packages, and replace `pytest.skip` by `_lift`'s function."""
        if not self._worker:
            found = {}
            for name in _VERSIONS:
                try:
                    found[name] = importlib.metadata.version(name)
                except importlib.metadata.PackageNotFoundError:
                    continue
            self._write(SweepEvent(versions=found))
        skip = mock.patch.object(pytest, "skip", self._lift(pytest.skip))
        skip.start()
        self._config.add_cleanup(skip.stop)

    @pytest.hookimpl(wrapper=True)
    def pytest_collection_modifyitems(
        self, items: list[pytest.Item]
    ) -> Generator[None, object, object]:
        """Leave out tests that have run; remove skip marks whose reason matches `_ROCM`."""
        result = yield
        if not self._worker:
            self._collected([item.nodeid for item in items])
        items[:] = [item for item in items if outcomes.as_utf8(item.nodeid) not in self._done]
        self._lift_marks(items)
        return result

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_node_collection_finished(self, ids: Sequence[str]) -> None:
        """Write each file's number of tests, from the ids that a pytest-xdist worker collected."""
        self._collected([*{*ids, *self._done}])

    def _collected(self, names: Sequence[str]) -> None:
        for file, count in Counter(name.partition("::")[0] for name in names).items():
            if file not in self._told:
                self._told.add(file)
                self._write(SweepEvent(file=file, count=count))

    # --- Skips -------------------------------------------------------------------------------

    def _lift(self, skip: Callable[..., NoReturn]) -> Callable[..., None]:
        """Return a `pytest.skip` that skips no running test if the reason matches `_ROCM`."""

        def lifted(reason: str = "", *, allow_module_level: bool = False, **more: object) -> None:
            __tracebackhide__ = True
            if self._row is not None and _ROCM.search(reason):
                frame = sys._getframe(1)  # noqa: SLF001  the caller of `pytest.skip`
                place = f"{os.path.relpath(frame.f_code.co_filename)}:{frame.f_lineno}"
                self._skip = self._skip or f"{place}: {reason}"
                return
            skip(reason, allow_module_level=allow_module_level, **more)

        lifted.Exception = skip.Exception  # type: ignore[attr-defined]  # pytest's own has it
        return lifted

    def _lift_marks(self, items: Sequence[pytest.Item]) -> None:
        """Record and remove the marks `skip` and `skipif` whose reason matches `_ROCM`."""
        for item in items:
            for mark in [*item.iter_markers("skipif"), *item.iter_markers("skip")]:
                holds = mark.name == "skip" or any(each is True for each in mark.args)
                last = mark.args[:1] if mark.name == "skip" else ()
                reason = str(mark.kwargs.get("reason", "") or "".join(map(str, last)))
                if holds and _ROCM.search(reason):
                    self._lifted[item.nodeid] = f"{_skip_line(item)}: {reason}"
        for node in {node for item in items for node in item.listchain()}:
            node.own_markers[:] = [
                mark
                for mark in node.own_markers
                if mark.name not in {"skip", "skipif"}
                or not _ROCM.search(str(mark.kwargs.get("reason", "") or mark.args[:1]))
            ]

    # --- A test ------------------------------------------------------------------------------

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        """Write the name of the test that starts, because a test may end its process."""
        if not self._worker:
            self._write(SweepEvent(begun=nodeid))

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, object, object]:
        """Run a test with fixed random seeds, a new row and no recorded launches."""
        observer = self._observe()
        observer.reset()
        seed()
        if item.location[0] != self._file:
            self._file = item.location[0]
            _restore_defaults()
        self._skip = self._lifted.get(item.nodeid, "")
        self._row = SweepRow(target=self._session.target, test=item.nodeid, outcome="passed")
        try:
            return (yield)
        finally:
            self._row = None

    def _observe(self) -> LaunchObserver:
        if self._observer is None:
            from contribbot.sweep.capture import LaunchObserver, watched_comparisons  # noqa: PLC0415  once torch is there

            self._observer = LaunchObserver()
            if (gpu := active_gpu()) is not None:
                gpu.observer = self._observer
            stack = contextlib.ExitStack()
            stack.enter_context(watched_comparisons(self._observer))
            self._config.add_cleanup(stack.close)
        return self._observer

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_makereport(
        self, call: pytest.CallInfo[None]
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        """Add the row of a test to the test's last report."""
        left = signal.alarm(0)  # no alarm during the following code
        report = yield
        row, observer = self._row, self._observer
        if row is None or observer is None:
            return report
        told = [
            TestRow.model_validate_json(str(value))
            for name, value in report.user_properties
            if name == PROPERTY
        ]
        if told and row.outcome == "passed":
            row = self._judged(row, told[0], call)
        row = row.model_copy(update={"seconds": row.seconds + call.duration})
        if report.when == "teardown":
            row = row.model_copy(update={"kernels": observer.uses()})
            if self._skip:
                passed = row.outcome == "passed" and bool(row.kernels)
                kind: FindingKind | str = "skipped, passes here" if passed else ""
                row = row.model_copy(
                    update={
                        "outcome": "skipped",
                        "kind": kind,
                        "skip": self._skip,
                        "capture": "",
                        "line": self._skip.partition(": ")[0] if passed else row.line,
                        "kernel": ", ".join(sorted(observer.launches)) if passed else row.kernel,
                    }
                )
            report.user_properties += [
                (_ROW, row.model_dump_json()),
                *((_CODE, code.model_dump_json()) for code in observer.new_code()),
            ]
        self._row = row
        signal.alarm(left and max(left, 1))
        return report

    def _judged(self, row: SweepRow, told: TestRow, call: pytest.CallInfo[None]) -> SweepRow:
        """Return a test's row with a phase's outcome and finding; capture the finding's launch."""
        observer = self._observer
        assert observer is not None  # noqa: S101  for mypy
        outcome: SweepOutcome = told.outcome
        kind: FindingKind | str = ""
        kernel, line, said, taken = told.kernel, told.line, told.said, observer.faulty
        error = call.excinfo.value if call.excinfo else None
        if told.fault:
            kind = KIND_OF_FAULT[told.fault]
        elif outcome == "failed" and error is not None:
            found = _uncompiled(error)
            if found:
                kind, kernel, line = found
            elif isinstance(error, AssertionError) and observer.launches:
                taken = observer.suspect()
                kind, kernel = "wrong numbers", taken.launch.kernel.name if taken else ""
                line = _test_line(error, item_path=told.test.partition("::")[0])
        name, why = "", ""
        key = (kind, kernel, line)
        if kind in KINDS_CAPTURED and not self._skip and key not in self._captured:
            name, why = observer.kept(Path(self._session.folder), taken, said, line)
            self._captured.add(key)
        return row.model_copy(
            update={
                "outcome": outcome,
                "kind": kind,
                "kernel": kernel,
                "line": line,
                "said": said,
                "capture": name,
                "uncaptured": why,
            }
        )

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Write the outcome of a test, and the resources of its kernels."""
        if self._worker:
            return
        for name, value in report.user_properties:
            if name == _ROW and report.when == "teardown":
                self._write(SweepEvent(row=SweepRow.model_validate_json(str(value))))
            elif name == _CODE:
                self._write(SweepEvent(code=KernelCode.model_validate_json(str(value))))
        if report.when not in {"setup", "call", "teardown"} and report.failed:  # of a lost worker
            self._write(
                SweepEvent(
                    row=SweepRow(
                        target=self._session.target,
                        test=report.nodeid,
                        outcome="crashed",
                        said=outcomes.line_of(str(report.longrepr)),
                    )
                )
            )

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """Write the outcome of a file that cannot be imported, or that is skipped as a whole."""
        if self._worker or report.passed or "::" in report.nodeid or not report.nodeid:
            return
        where = report.longrepr
        if report.skipped and isinstance(where, tuple):
            path, line, said = where
            skip = f"{os.path.relpath(path)}:{line}: {said}"
            row = SweepRow(
                target=self._session.target,
                test=report.nodeid,
                outcome="skipped",
                skip=outcomes.line_of(skip),
            )
        else:
            lines = [each[4:] for each in str(where).splitlines() if each.startswith("E  ")]
            row = SweepRow(
                target=self._session.target,
                test=report.nodeid,
                outcome="failed",
                said=outcomes.line_of((lines or [str(where)])[-1]),
            )
        self._write(SweepEvent(row=row))

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, exitstatus: int) -> None:
        """Write the event `finished`, because no test is left to run."""
        if not self._worker and exitstatus in {0, 1, 5}:
            self._write(SweepEvent(finished=True))


KINDS_CAPTURED: Final = frozenset({*KIND_OF_FAULT.values(), "wrong numbers"})


def seed() -> None:
    """Seed `random`, NumPy and torch with 0, so that results of different runs can be compared."""
    random.seed(0)
    for name, seed in (("numpy", "random.seed"), ("torch", "manual_seed")):
        found: object = sys.modules.get(name)
        for part in seed.split("."):
            found = getattr(found, part, None)
        if callable(found):
            found(0)


def _restore_defaults() -> None:
    """Reset torch's default dtype and device, which tests of another file may have changed."""
    import torch  # noqa: PLC0415  the emulated GPU must come first

    torch.set_default_dtype(torch.float32)
    if torch.get_default_device() != torch.device("cpu"):
        torch.set_default_device(None)


def _skip_line(item: pytest.Item) -> str:
    path, first, _ = item.location
    number = (first or 0) + 1
    lines = linecache.getlines(str(item.path))
    near = next(
        (n for n in range(number, min(number + 60, len(lines) + 1)) if _SKIP.search(lines[n - 1])),
        0,
    )
    top = next((n for n, line in enumerate(lines, start=1) if "pytestmark" in line), number)
    return f"{path}:{near or top}"


def _uncompiled(error: BaseException) -> tuple[FindingKind, str, str] | None:
    """Return kind, kernel and line of a failed Triton compilation; None: another error."""
    modules = {type(each).__module__ for each in _chain(error)}
    resources = type(error).__name__ == "OutOfResources"
    passes = isinstance(error, RuntimeError) and "PassManager" in str(error)
    if not (resources or passes or "triton.compiler.errors" in modules):
        return None
    kind: FindingKind = "does not compile"
    if resources:
        if getattr(error, "name", "") != "shared memory":
            return None
        kind = "too much LDS"
    for frame, _ in traceback.walk_tb(error.__traceback__):
        function = frame.f_locals.get("self")
        if type(function).__name__ == "JITFunction" and frame.f_code.co_name == "run":
            code = function.fn.__code__  # type: ignore[union-attr]  # triton has no types
            number = code.co_firstlineno
            if (node := getattr(error, "node", None)) is not None and hasattr(node, "lineno"):
                decorators = next(
                    (
                        n
                        for n, line in enumerate(function.raw_src)  # type: ignore[union-attr]
                        if line.lstrip().startswith("def ")
                    ),
                    0,
                )
                number += decorators + node.lineno - 1
            return kind, str(code.co_name), f"{Path(code.co_filename).name}:{number}"
    return kind, "", ""


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__


def _test_line(error: BaseException, *, item_path: str) -> str:
    frames = traceback.walk_tb(error.__traceback__)
    lines = [line for frame, line in frames if frame.f_code.co_filename.endswith(item_path)]
    return f"{Path(item_path).name}:{lines[-1]}" if lines else item_path
