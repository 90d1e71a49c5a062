"""The process that runs a check: it runs pytest, and reports each test into a file."""

from __future__ import annotations

import errno
import importlib.abc
import importlib.machinery
import json
import os
import re
import signal
import socket
import sys
import traceback
from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FrameType, ModuleType
from typing import TYPE_CHECKING, Final, NoReturn

import pytest

from contribbot.model.failure import RunFailure, sign_in
from contribbot.process import limit_files

if TYPE_CHECKING:
    from contribbot.numerics.tree_watch import TreeWatch

#: A shell's exit status for a missing program.
_NOT_FOUND: Final = 127
#: Messages of Python, shells and the loader about a missing module, library or program, also if
#: they are quoted from the output of a process.
_NOT_LOADED: Final = re.compile(
    r"(?:^|\\n|^AssertionError: )(?:ModuleNotFoundError|ImportError|SyntaxError): "
    r"|cannot open shared object file|undefined symbol: |invalid ELF header"
    r"|version `\S+' not found|Exec format error"
    r"|where (?:127 = CompletedProcess\(|32512 = <built-in function system>)",
    re.MULTILINE,
)
#: Messages about a lack of memory: fewer than in `SIGNATURES`, because the patch may mend an error
#: that a library raises.
_NO_MEMORY: Final = re.compile(
    r"(?:CUDA|HIP)(?: error:)? out of memory|hipErrorOutOfMemory"
    r"|Triton Error \[(?:CUDA|HIP)\]: .*out of memory|(?:CU|HIP)BLAS_STATUS_ALLOC_FAILED"
    r"|\[Errno 12\] Cannot allocate memory|out of shared memory"
    r"|DefaultCPUAllocator: (?:not enough|can't allocate) memory"
)
#: Further messages of CUDA and HIP about a broken GPU, which `SIGNATURES` lacks.
_BROKEN_GPU: Final = re.compile(
    r"uncorrectable ECC error|driver initialization failed|device is unavailable"
)
#: pytest's message on a coroutine that no plug-in runs.
_ASYNC: Final = "async def functions are not natively supported"


def machine_fault(error: BaseException) -> RunFailure | None:
    """Return the fault of the machine that an exception reports; None: the code is to blame."""
    # torch reports a lack of memory by the type and the message of the exception, and a lost
    # device only by a message of CUDA or HIP.
    names = {base.__name__ for base in type(error).__mro__}
    if names & {"MemoryError", "OutOfMemoryError"} or _NO_MEMORY.search(str(error)):
        return RunFailure.NO_MEMORY
    if _BROKEN_GPU.search(str(error)):
        return RunFailure.NOT_VISIBLE
    kind, _ = sign_in([str(error)]) or (None, "")
    return kind if kind in {RunFailure.NOT_VISIBLE, RunFailure.DRIVER} else None


def why_broken(error: BaseException, checks: str, trees: Sequence[str]) -> RunFailure | None:
    """Return why an exception shows nothing of the tree; None: the exception shows a result."""
    origins = [*_origins(error)]
    # A library for checks marks its errors about operations that the library does not model.
    if any(getattr(origin, "contribbot_broken", None) == "unmodelled" for origin in origins):
        return RunFailure.UNMODELLED
    kinds = (_kind(origin, checks, trees) for origin in origins)
    return next((kind for kind in kinds if kind), None)


def _origins(error: BaseException) -> Iterator[BaseException]:
    yield error
    for inner in error.exceptions if isinstance(error, BaseExceptionGroup) else ():
        yield from _origins(inner)
    caught = error.__context__
    if error.__cause__ is not None:
        yield from _origins(error.__cause__)
    elif caught is not None and caught.__traceback__ and not isinstance(error, AssertionError):
        # The handler itself raised this error in place of the caught error. An error in a
        # fallback that the handler calls has the same context, but is judged by itself.
        raised = [frame for frame in _frames(error) if not frame.f_locals.get("__tracebackhide__")]
        if raised[-1:] == [caught.__traceback__.tb_frame]:
            yield from _origins(caught)


def _kind(error: BaseException, checks: str, trees: Sequence[str]) -> RunFailure | None:
    files = [frame.f_code.co_filename for frame in reversed(_frames(error))]
    if isinstance(error, ImportError):
        importer = next((file for file in files if _is_inside(file, [checks, *trees])), "")
        own = type(error) is ImportError and _is_inside(error.path or "", trees)
        by_tree = RunFailure.OWN_IMPORT if own else RunFailure.IMPORTS
        return by_tree if _is_inside(importer, trees) else RunFailure.MISTAKE
    if isinstance(error, SyntaxError) and _is_inside(error.filename or "", trees):
        return RunFailure.OWN_IMPORT
    number = error.errno if isinstance(error, OSError) else None
    if isinstance(error, socket.gaierror) or number in {errno.ENETUNREACH, errno.EHOSTUNREACH}:
        return RunFailure.NETWORK
    if number == errno.EROFS:
        return RunFailure.READ_ONLY
    if isinstance(error, PermissionError):
        name = error.filename if isinstance(error.filename, str | bytes) else ""
        if not _is_inside(str(Path.cwd() / os.fsdecode(name)), [str(Path(checks).parent)]):
            return RunFailure.READ_ONLY
    own_mistake = (
        isinstance(error, SyntaxError | FileNotFoundError)
        or (isinstance(error, NameError) and _is_inside(next(iter(files), ""), [checks]))
        or type(error).__name__ == "FixtureLookupError"
        or _ASYNC in str(error)
        or getattr(error, "contribbot_broken", False) is True  # set by libraries for checks
    )
    return RunFailure.MISTAKE if own_mistake or _not_loaded(error) else None


def _frames(error: BaseException) -> list[FrameType]:
    return [frame for frame, _ in traceback.walk_tb(error.__traceback__)]


def _is_inside(path: str, folders: Sequence[str]) -> bool:
    return any(Path(path).is_relative_to(folder) for folder in folders)


def _not_loaded(error: BaseException) -> bool:
    """Return whether an error reports a missing program, module or shared library."""
    text: object = f"{type(error).__name__}: {error}"
    if type(error).__name__ == "CalledProcessError":
        if getattr(error, "returncode", 0) == _NOT_FOUND:
            return True
        text = getattr(error, "stderr", None) or getattr(error, "output", None) or ""
    plain = text.decode("utf-8", "replace") if isinstance(text, bytes) else str(text)
    return bool(_NOT_LOADED.search(plain))


#: The largest number of characters of a reported message, which may quote a whole tensor.
_LONGEST_MESSAGE = 4000


@dataclass(frozen=True)
class Orders:
    """The settings of a run besides pytest's arguments, stored in one JSON file."""

    report: str  # the file for the report
    tree: str  # the folder of the tree
    python: tuple[str, ...]  # the folders for Python's path
    tools: tuple[str, ...] = ()  # folders in front of `python`, also for contribbot's own imports
    reason: str = ""  # the reason that the patch states
    extension: str = ""  # the folder of the build that the check loads
    code: str = ""  # the folder with the compiled code of an emulated check
    device: str = ""  # the target that is emulated in place of `cuda`
    modules: str = ""  # the index of the modules that run in place of files
    numbers: bool = False  # whether the check is a numerics check
    attached: bool = False  # whether pytest runs in the user's terminal
    launches: str = ""  # when to show launches: `always`, on `failure`, or never

    @property
    def folders(self) -> tuple[str, ...]:
        """The folders with the tree's files."""
        return (self.tree, *self.python, *filter(None, [self.extension]))


class _Imports(importlib.abc.MetaPathFinder):
    """Records missing modules, and whether a started program may import further modules."""

    # Class attributes: Python still calls the audit hook after it has emptied the module.
    #: Programs that may import Python modules, or that start such a program.
    _interpreter: Final = re.compile(
        r"python|pytest|\b(?:ba|da|z)?sh\b|\benv\b|torchrun|make|ninja"
    )
    #: Audit events for the start of a process, besides `subprocess.Popen`.
    _starts: Final = re.compile(r"(?:os|pty)\.(?:fork|forkpty|exec|posix_spawn|spawn|system)")

    def __init__(self) -> None:
        self._absent = set[str]()
        self.programs = False
        sys.meta_path.append(self)
        sys.addaudithook(self._audit)

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, _target: ModuleType | None = None
    ) -> None:
        """Record a missing module: all other finders have found nothing."""
        if path is None:
            self._absent.add(fullname)

    def _audit(self, event: str, arguments: tuple[object, ...]) -> None:
        if event == "subprocess.Popen":
            # A compiler imports no Python module.
            self.programs |= bool(self._interpreter.search(f"{arguments[0]} {arguments[1]}"))
        elif self._starts.fullmatch(event):
            self.programs = True

    def report(self) -> dict[str, object]:
        """Return the fields on imports for the last line of the report."""
        libraries = re.findall(r"/site-packages/(\w+)", Path("/proc/self/maps").read_text())
        tops = {name.partition(".")[0] for name in sys.modules}
        # These modules start programs without an audit event.
        names = (f"multiprocessing.popen_{name}" for name in ("spawn_posix", "forkserver"))
        return {
            "imported": sorted(map(_plain, {*tops, *libraries})),
            "absent": sorted(map(_plain, self._absent)),
            "programs": self.programs or not sys.modules.keys().isdisjoint(names),
        }


_IMPORTS: Final = _Imports()


class Reporter:
    """Writes the events of pytest's session to the report file, as they happen."""

    def __init__(self, orders: Orders) -> None:
        self.__name__ = "contribbot-reporter"  # as `contribbot.numerics` asks
        self.folders = orders.folders
        self.imports: TreeWatch | None = None
        self._reason, self._numbers = orders.reason, orders.numbers
        self._checks = str(Path.cwd())
        self._file = Path(orders.report).open("a", encoding="utf-8")  # noqa: SIM115  until the session ends
        self._stopped = False

    def write(self, **line: object) -> None:
        """Write one line of the form of `pytest_run.ReportLine` to the file."""
        self._file.write(json.dumps(line) + "\n")
        self._file.flush()

    @pytest.hookimpl(wrapper=True)
    def pytest_make_collect_report(
        self, collector: pytest.Collector
    ) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
        """Note the tensors and numbers that the tree gives to a numerics check at import."""
        if not self._numbers or not isinstance(collector, pytest.Module):
            return (yield)
        from contribbot.numerics.tree_watch import TreeWatch  # noqa: PLC0415  start-up time

        self.imports = TreeWatch(self.folders)
        with self.imports.importing():
            return (yield)

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """Report the collected tests, so that a test that never ran is noticed."""
        self.write(collected=[_short(item.nodeid) for item in session.items])

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        """Report the test that starts, so that a crash can be traced to a test."""
        self.write(begun=_short(nodeid))

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item, call: pytest.CallInfo[None]
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        """Report the call of each test, and every other phase that does not pass."""
        report = yield
        if call.when == "call" or report.outcome != "passed":
            line: dict[str, object] = {"ended": (_short(item.nodeid), report.outcome)}
            if report.outcome == "failed":
                # A test that passes although it was expected to fail has no exception.
                error = call.excinfo.value if call.excinfo is not None else None
                line["failed"] = self._explained(item.nodeid, call.when, error)
            self.write(**line)
        return report

    def pytest_exception_interact(
        self, call: pytest.CallInfo[None], report: pytest.CollectReport | pytest.TestReport
    ) -> None:
        """Report a file that pytest cannot collect."""
        if isinstance(report, pytest.CollectReport) and call.excinfo is not None:
            error = call.excinfo.value
            # pytest wraps the original error in a CollectError.
            origin = error.__cause__ if isinstance(error, pytest.Collector.CollectError) else None
            self.write(uncollected=self._explained(report.nodeid, "collect", origin or error))

    def _explained(self, nodeid: str, when: str, error: BaseException | None) -> dict[str, object]:
        test = {"test": _short(nodeid), "when": when}
        if error is None:
            return {**test, "message": ""}
        message = f"{type(error).__name__}: {error}"[:_LONGEST_MESSAGE]
        # The run's time limit also ends a search for the stated reason that never ends.
        stated = re.search(self._reason, message) and type(error).__name__ in self._reason
        files = [frame.f_code.co_filename for frame in _frames(error)]
        line: dict[str, object] = {**test, "message": _plain(message)}
        if stated and any(_is_inside(file, self.folders) for file in files):
            return line  # the exception is the bug
        kind = machine_fault(error) or why_broken(error, self._checks, self.folders)
        return {**line, "kind": kind}

    def cell(self, nodeid: str, record: Mapping[str, object]) -> None:
        """Report the record of a cell of a grid; `contribbot.numerics` calls this method."""
        self.write(cell={**record, "test": _short(nodeid)})

    def pytest_keyboard_interrupt(self) -> None:
        """Note that Ctrl-C or `pytest.exit` stopped the session, whatever the exit status."""
        self._stopped = True

    def pytest_sessionfinish(self, exitstatus: int) -> None:
        """Report pytest's exit status and the imports: the session has reached its end."""
        self.write(status=int(exitstatus), stopped=self._stopped, **_IMPORTS.report())

    def pytest_unconfigure(self) -> None:
        """Close the report file, so that no check gets a warning about an open file."""
        self._file.close()


def _short(nodeid: str) -> str:
    """Return a test's id without its folder, which differs from run to run."""
    path, separator, rest = nodeid.partition("::")
    return _plain(Path(path).name + separator + rest)


def _plain(text: str) -> str:
    """Return a text with lone surrogates as escapes, because JSON readers refuse them."""
    return text.encode("utf-8", "backslashreplace").decode()


def run() -> NoReturn:
    """Run pytest on the tree, and end with pytest's exit status: `run ORDERS [PYTEST ARGS]`."""
    limit_files()
    _IMPORTS.programs = False  # all forks so far were contribbot's own
    del os.environ["CONTRIBBOT_PATH"]
    file = Path(sys.argv.pop(1))
    orders = Orders(**json.loads(file.read_bytes()))
    file.unlink()  # no check sees the orders
    if orders.attached:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    reporter = Reporter(orders)
    plugins: list[object] = [reporter]
    sys.path[:0] = orders.tools
    if orders.code or orders.device:
        from contribbot.verify import emulated_kernels as emulated  # noqa: PLC0415  few checks need it

        plugins.append(emulated)
        if orders.code:
            plugins.append(emulated.CodeFolder(Path(orders.code), reporter.write))
        else:
            plugins.append(emulated.Device(orders.device, reporter.write, orders.launches))
    own = list(filter(None, [os.environ.get("PYTHONPATH")]))
    if orders.modules:
        from contribbot.verify.without_change import install  # noqa: PLC0415  one run needs it

        install(orders.modules, str(Path.cwd()))
        own.insert(0, str(Path(orders.modules).parent))  # for the processes that the check starts
    os.environ["PYTHONPATH"] = os.pathsep.join([*orders.tools, *orders.python, *own])
    sys.path[:0] = [*orders.tools, *orders.python]
    sys.exit(pytest.main(sys.argv[1:], plugins=plugins))
