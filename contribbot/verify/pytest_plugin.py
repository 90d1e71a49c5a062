"""The child process that runs a check: reports each test, and dies with its parent."""

from __future__ import annotations

import errno
import functools
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

from contribbot.lifeline import guard_group, limit_files
from contribbot.model.failure import RunFailure, sign_in

if TYPE_CHECKING:
    from contribbot.numerics.imports import ImportWatch

#: A shell's exit status for a missing program.
_NOT_FOUND: Final = 127
#: Messages of Python, a shell and the loader of shared libraries on a missing module or library,
#: also in the quoted output of a child process.
_NOT_LOADED: Final = re.compile(
    r"(?:^|\\n|^AssertionError: )(?:ModuleNotFoundError|ImportError|SyntaxError): "
    r"|cannot open shared object file|undefined symbol: |invalid ELF header"
    r"|version `\S+' not found|Exec format error"
    r"|where (?:127 = CompletedProcess\(|32512 = <built-in function system>)",
    re.MULTILINE,
)
#: Fewer words than in `SIGNATURES`: the patch may mend an error that a library raises.
_NO_MEMORY: Final = re.compile(
    r"(?:CUDA|HIP)(?: error:)? out of memory|hipErrorOutOfMemory"
    r"|Triton Error \[(?:CUDA|HIP)\]: .*out of memory|(?:CU|HIP)BLAS_STATUS_ALLOC_FAILED"
    r"|\[Errno 12\] Cannot allocate memory|out of shared memory"
    r"|DefaultCPUAllocator: (?:not enough|can't allocate) memory"
)
#: Messages of the CUDA and HIP runtimes on a broken GPU, beside `SIGNATURES`.
_BROKEN_GPU: Final = re.compile(
    r"uncorrectable ECC error|driver initialization failed|device is unavailable"
)
#: pytest's words for a coroutine that no plugin runs.
_ASYNC: Final = "async def functions are not natively supported"


def machine_fault(error: BaseException) -> RunFailure | None:
    """Return the failure of the machine behind an exception; None: the code is to blame."""
    # torch reports a lack of memory by a type and by words, and a lack of a device by the words of
    # the runtime (CUDA, HIP) alone.
    names = {base.__name__ for base in type(error).__mro__}
    if names & {"MemoryError", "OutOfMemoryError"} or _NO_MEMORY.search(str(error)):
        return RunFailure.NO_MEMORY
    if _BROKEN_GPU.search(str(error)):
        return RunFailure.NOT_VISIBLE
    kind, _ = sign_in([str(error)]) or (None, "")
    return kind if kind in {RunFailure.NOT_VISIBLE, RunFailure.DRIVER} else None


def why_broken(error: BaseException, checks: str, trees: Sequence[str]) -> RunFailure | None:
    """Return why an exception or its causes show nothing of the tree; None: it shows the result."""
    origins = [*_origins(error)]
    # A library for checks marks an operation that it does not model.
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
        # The handler itself raised this error in place of the caught error. An error in a fallback
        # that the handler calls has the same context, and is judged by itself.
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


#: An error message may hold a tensor; a report need not.
_LONGEST_MESSAGE = 4000


@dataclass(frozen=True)
class Orders:
    """The orders of a child beside pytest's arguments, as one JSON file."""

    report: str  # the file of events
    tree: str  # the folder of the tree
    python: tuple[str, ...]  # folders for Python's path
    tools: tuple[str, ...] = ()  # folders before `python`, also for contribbot's own imports
    reason: str = ""  # the reason that the patch states
    extension: str = ""  # the folder of the check's build
    code: str = ""  # the folder of an emulated check's compiled code
    device: str = ""  # the emulated target in place of `cuda`
    modules: str = ""  # the index of modules that are executed in place of files
    numbers: bool = False  # whether the check judges numbers
    attached: bool = False  # whether pytest runs in a user's terminal
    launches: str = ""  # when the terminal shows launches: `always`, on `failure`, or never

    @classmethod
    def taken_from(cls, file: Path) -> Orders:
        """Read the orders, and remove the file, so that no check sees it."""
        fields = json.loads(file.read_bytes())
        file.unlink()
        return cls(**fields)

    @property
    def folders(self) -> tuple[str, ...]:
        """The folders that hold the tree's own files."""
        return (self.tree, *self.python, *filter(None, [self.extension]))


class _Imports(importlib.abc.MetaPathFinder):
    """Records missing modules, and whether a started program may import further modules."""

    # Attributes, since Python audits events after it has emptied the module.
    #: Programs that may import Python modules, or start a program that does.
    _interpreter: Final = re.compile(
        r"python|pytest|\b(?:ba|da|z)?sh\b|\benv\b|torchrun|make|ninja"
    )
    #: Audit events for the start of a process, beside `subprocess.Popen`.
    _starts: Final = re.compile(r"(?:os|pty)\.(?:fork|forkpty|exec|posix_spawn|spawn|system)")

    def __init__(self) -> None:
        self._absent = set[str]()
        self.programs = False
        sys.meta_path.append(self)
        sys.addaudithook(self._audit)

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, _target: ModuleType | None = None
    ) -> None:
        """Find nothing: all other finders have found nothing."""
        if path is None:
            self._absent.add(fullname)

    def _audit(self, event: str, arguments: tuple[object, ...]) -> None:
        if event == "subprocess.Popen":
            # A compiler imports nothing.
            self.programs |= bool(self._interpreter.search(f"{arguments[0]} {arguments[1]}"))
        elif self._starts.fullmatch(event):
            self.programs = True

    def report(self) -> dict[str, object]:
        """Return the fields of the last line of a report."""
        libraries = re.findall(r"/site-packages/(\w+)", Path("/proc/self/maps").read_text())
        tops = {name.partition(".")[0] for name in sys.modules}
        spawned = sys.modules.keys() & _SPAWNS
        return {
            "imported": sorted(map(_plain, {*tops, *libraries})),
            "absent": sorted(map(_plain, self._absent)),
            "programs": self.programs or bool(spawned),
        }


#: Modules of multiprocessing that start programs without an event.
_SPAWNS: Final = frozenset(
    {"multiprocessing.popen_spawn_posix", "multiprocessing.popen_forkserver"}
)
_IMPORTS: Final = _Imports()


class Reporter:
    """Writes each event of the session to the report file, as it happens."""

    def __init__(self, orders: Orders) -> None:
        self.__name__ = "contribbot-reporter"  # the plug-in's name for `contribbot.numerics`
        self.folders = orders.folders
        self.imports: ImportWatch | None = None
        self._reason, self._numbers = orders.reason, orders.numbers
        self._checks = str(Path.cwd())
        self._file = Path(orders.report).open("a", encoding="utf-8")  # noqa: SIM115  until the session ends
        self._stopped = False

    def write(self, **line: object) -> None:
        """Write one line in the form of `pytest_run.ReportLine`, and flush the file."""
        self._file.write(json.dumps(line) + "\n")
        self._file.flush()

    @pytest.hookimpl(wrapper=True)
    def pytest_make_collect_report(
        self, collector: pytest.Collector
    ) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
        """Record the tensors and numbers that a numerics check imports from the tree."""
        if not self._numbers or not isinstance(collector, pytest.Module):
            return (yield)
        from contribbot.numerics.imports import ImportWatch  # noqa: PLC0415  start-up time

        self.imports = ImportWatch(self.folders)
        with self.imports.importing():
            return (yield)

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """Report the collected tests, so that a test that never ran is missed."""
        self.write(collected=[_short(item.nodeid) for item in session.items])

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        """Report which test starts, so that a crash has a name."""
        self.write(begun=_short(nodeid))

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item, call: pytest.CallInfo[None]
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        """Report each call of a test, and each other phase that does not pass."""
        report = yield
        if call.when == "call" or report.outcome != "passed":
            line: dict[str, object] = {"ended": (_short(item.nodeid), report.outcome)}
            if report.outcome == "failed":
                # A test that was expected to fail and passed has no exception.
                error = call.excinfo.value if call.excinfo is not None else None
                line["failed"] = self._explained(item.nodeid, call.when, error)
            self.write(**line)
        return report

    def pytest_exception_interact(
        self, call: pytest.CallInfo[None], report: pytest.CollectReport | pytest.TestReport
    ) -> None:
        """Report a file that cannot be collected."""
        if isinstance(report, pytest.CollectReport) and call.excinfo is not None:
            error = call.excinfo.value
            # pytest wraps the original error in its own error.
            origin = error.__cause__ if isinstance(error, pytest.Collector.CollectError) else None
            self.write(uncollected=self._explained(report.nodeid, "collect", origin or error))

    def _explained(self, nodeid: str, when: str, error: BaseException | None) -> dict[str, object]:
        test = {"test": _short(nodeid), "when": when}
        if error is None:
            return {**test, "message": ""}
        message = f"{type(error).__name__}: {error}"[:_LONGEST_MESSAGE]
        # An expression that never ends is stopped here by the run's time limit.
        stated = re.search(self._reason, message) and type(error).__name__ in self._reason
        files = [frame.f_code.co_filename for frame in _frames(error)]
        line: dict[str, object] = {**test, "message": _plain(message)}
        if stated and any(_is_inside(file, self.folders) for file in files):
            return line  # the exception is the bug
        kind = machine_fault(error) or why_broken(error, self._checks, self.folders)
        return {**line, "kind": kind}

    def cell(self, nodeid: str, record: Mapping[str, object]) -> None:
        """Report the record of a grid's cell; called by `contribbot.numerics`."""
        self.write(cell={**record, "test": _short(nodeid)})

    def pytest_keyboard_interrupt(self) -> None:
        """Note that the session was stopped (Ctrl-C, `pytest.exit`), whatever its status."""
        self._stopped = True

    def pytest_sessionfinish(self, exitstatus: int) -> None:
        """Report that the end was reached."""
        self.write(status=int(exitstatus), stopped=self._stopped, **_IMPORTS.report())

    def pytest_unconfigure(self) -> None:
        """Close the report file, so that no warning about it can hit a check."""
        self._file.close()


def _short(nodeid: str) -> str:
    """Leave out the folder, which differs from run to run."""
    path, separator, rest = nodeid.partition("::")
    return _plain(Path(path).name + separator + rest)


def _plain(text: str) -> str:
    """Spell out lone surrogates, which JSON readers refuse."""
    return text.encode("utf-8", "backslashreplace").decode()


def main() -> NoReturn:
    """Run pytest as a separate program: `main ORDERS [PYTEST ARGS]`."""
    if descriptor := os.environ.pop("CONTRIBBOT_LIFELINE", ""):
        guard_group(int(descriptor))
    run()


def run() -> NoReturn:
    """Run pytest on the tree, and end with its status."""
    limit_files()
    _IMPORTS.programs = False  # the forks so far were contribbot's own
    del os.environ["CONTRIBBOT_PATH"]
    orders = Orders.taken_from(Path(sys.argv.pop(1)))
    if orders.attached:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    reporter = Reporter(orders)
    plugins: list[object] = [reporter]
    sys.path[:0] = orders.tools
    if orders.code or orders.device:
        from contribbot.verify import emulated_kernels as emulated  # noqa: PLC0415  few checks need it

        plugins.append(emulated)
        unstored = functools.partial(reporter.write, stored=False)
        if orders.code:
            plugins.append(emulated.CodeFolder(Path(orders.code), unstored))
        else:
            unlaunched = functools.partial(reporter.write, launched=False)
            device = emulated.Device(orders.device, unlaunched, unstored, orders.launches)
            plugins.append(device)
    own = list(filter(None, [os.environ.get("PYTHONPATH")]))
    if orders.modules:
        from contribbot.verify.without_change import install  # noqa: PLC0415  one run needs it

        install(orders.modules, str(Path.cwd()))
        own.insert(0, str(Path(orders.modules).parent))  # for the processes that the check starts
    os.environ["PYTHONPATH"] = os.pathsep.join([*orders.tools, *orders.python, *own])
    sys.path[:0] = [*orders.tools, *orders.python]
    sys.exit(pytest.main(sys.argv[1:], plugins=plugins))
