"""The child that runs a check: it reports, it witnesses, it dies with its parent.

Everything that judges is imported before the tree is on Python's path. Variables tell it what
to do; it takes them away, so that the check does not see them:

- `CONTRIBBOT_PATH`: the tree's folders, which become `PYTHONPATH`.
- `CONTRIBBOT_REPORT`: the file that gets one JSON document a line, as things
  happen, so that a crash leaves what came before it.
- `CONTRIBBOT_REASON`: the expression that will be searched in each failure.
- `CONTRIBBOT_WITNESS`: coverage's configuration, or nothing.
- `CONTRIBBOT_KERNELS`: the device whose kernels are counted, or nothing.
- `CONTRIBBOT_LIFELINE`: a file descriptor; its end of file means that the parent
  is gone.
"""

from __future__ import annotations

import collections
import errno
import fnmatch
import importlib.abc
import importlib.machinery
import importlib.util
import json
import logging
import os
import re
import sqlite3
import sys
import warnings
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import TYPE_CHECKING, Final

import pytest

from contribbot.lifeline import guard_group, limit_files
from contribbot.verify.broken import machine_fault, why_broken

if TYPE_CHECKING:
    import coverage
    import torch


_DYNAMO: Final = "torch._dynamo.symbolic_convert.__trace_source"
_STARTS: Final = re.compile(r"TRACE starts_line (.+):([0-9]+) in ")
_TRITON: Final = "triton.runtime.jit"

Saw = Callable[[str, int], None]


def watch(saw: Saw) -> None:
    """Call `saw` with the file and number of each line that is taken over from now on."""
    log = logging.getLogger(_DYNAMO)
    log.setLevel(logging.DEBUG)
    log.propagate = False
    log.addHandler(_Dynamo(saw))
    sys.meta_path.insert(0, _Triton(saw))


class _Dynamo(logging.Handler):
    def __init__(self, saw: Saw) -> None:
        super().__init__()
        self._saw = saw

    def emit(self, record: logging.LogRecord) -> None:
        if found := _STARTS.match(record.getMessage()):
            self._saw(found[1], int(found[2]))


class _Triton(importlib.abc.MetaPathFinder):
    """Waits for Triton to be imported, and wraps what launches a kernel."""

    def __init__(self, saw: Saw) -> None:
        self._saw = saw

    def find_spec(
        self, fullname: str, _path: Sequence[str] | None, _target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname != _TRITON:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(fullname)
        if spec is not None and spec.loader is not None:
            load = spec.loader.exec_module

            def exec_module(module: ModuleType) -> None:
                load(module)
                self._wrap(module.JITFunction)

            # Typeshed has it as a method; a loader is an object like others.
            spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec

    def _wrap(self, kernel: type) -> None:
        run = kernel.run  # type: ignore[attr-defined]  # Triton's; without it there is no launch

        def launch(self_: object, *arguments: object, **options: object) -> object:
            result: object = run(self_, *arguments, **options)
            if not options.get("warmup"):
                for code in _codes(self_, set()):
                    for _, _, line in code.co_lines():
                        if line is not None:
                            self._saw(code.co_filename, line)
            return result

        kernel.run = launch  # type: ignore[attr-defined]


def _codes(kernel: object, known: set[object]) -> Iterator[CodeType]:
    """Yield the code of a kernel and of what it calls."""
    function = getattr(kernel, "fn", None)
    if not isinstance(function, FunctionType) or function in known:
        return
    known.add(function)
    yield function.__code__
    for name in function.__code__.co_names:
        yield from _codes(function.__globals__.get(name), known)


#: Characters of a name, and names, that are reported.
_LONGEST = 2000
_MOST = 5000
#: What the device's timeline holds beside kernels: copies and fills (CUPTI, roctracer).
_NO_KERNELS = ("Memcpy", "Memset", "Copy", "Fill")
#: Programs that libraries start, which run no kernel.
_TOOLS = frozenset({
    "as", "c++", "cc", "clang", "clang++", "g++", "gcc", "hipcc", "ld", "ld.lld", "ldconfig",
    "ninja", "nvcc", "offload-arch", "ptxas", "rocm_agent_enumerator", "uname", "which",
})  # fmt: skip
#: What is imported when multiprocessing starts an interpreter, which it announces nowhere.
_SPAWNED = ("multiprocessing.popen_spawn_posix", "multiprocessing.popen_forkserver")


class KernelWatch:
    """Counts the kernels of all tests and reports them at the end."""

    def __init__(self, device: str, write: Callable[..., None]) -> None:
        self._device = device
        self._write = write
        self._seen: collections.Counter[str] = collections.Counter()
        self._blind = ""
        self._away = ""
        sys.addaudithook(self._audit)

    def _audit(self, event: str, arguments: tuple[object, ...]) -> None:
        """See what is started beside this process (PEP 578)."""
        module, _, name = event.partition(".")
        if module == "os" and name in {"fork", "forkpty"}:
            self._away = "a fork"
        elif (module == "os" and name in {"posix_spawn", "system"}) or event == "subprocess.Popen":
            program = str(arguments[0]).partition(" ")[0]
            if os.path.basename(program) not in _TOOLS:  # noqa: PTH119  a word, which need be no path
                self._away = program

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self) -> Generator[None, object, object]:
        """Profile a test with its fixtures."""
        profiler = self._start()
        try:
            return (yield)
        finally:
            if profiler is not None:
                self._take(profiler)

    def _start(self) -> torch.profiler.profile | None:
        from torch.profiler import ProfilerActivity, profile  # noqa: PLC0415  takes seconds

        activity = ProfilerActivity.CUDA if self._device == "cuda" else ProfilerActivity.CPU
        try:
            with warnings.catch_warnings():
                # What torch has to say of its profiler is no warning of the check's.
                warnings.simplefilter("ignore")
                profiler = profile(activities=[activity])
                profiler.start()
        except (RuntimeError, ValueError, AssertionError) as error:
            self._blind = f"{type(error).__name__}: {error}"[:_LONGEST]
            return None
        return profiler

    def _take(self, profiler: torch.profiler.profile) -> None:
        import torch  # noqa: PLC0415  it is imported by now

        if self._device == "cuda":
            try:
                torch.cuda.synchronize()
            except RuntimeError as error:
                # The context is broken; the test has said so, or the next one will.
                self._blind = f"{type(error).__name__}: {error}"[:_LONGEST]
                return
        if not torch.autograd._profiler_enabled():  # type: ignore[attr-defined]  # noqa: SLF001  nothing public tells
            self._blind = "a test has a profiler of its own, which ended this one"
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                profiler.stop()
            events = profiler.events() or ()  # type: ignore[no-untyped-call]  # torch has no types there
        except (RuntimeError, AssertionError) as error:
            self._blind = f"{type(error).__name__}: {error}"[:_LONGEST]
            return
        for event in events:
            on_gpu = str(event.device_type) != "DeviceType.CPU"
            # A range that somebody named is shown on the device too, and ran nothing.
            named = getattr(event, "is_user_annotation", False)
            if on_gpu == (self._device == "cuda") and not named:
                name = str(event.name)
                if not (on_gpu and name.startswith(_NO_KERNELS)):
                    self._seen[name[:_LONGEST]] += 1

    def _sees(self) -> bool:
        """Say whether a kernel that surely runs is seen."""
        import torch  # noqa: PLC0415  it is imported by now

        before = self._seen.copy()
        profiler = self._start()
        if profiler is None:
            return False
        try:
            torch.ones(8, device=self._device).sum()
        except (RuntimeError, AssertionError) as error:
            self._blind = f"{type(error).__name__}: {error}"[:_LONGEST]
        self._take(profiler)
        seen, self._seen = self._seen, before
        return bool(seen)

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self) -> None:
        """Report what ran, and why more may have run unseen."""
        if any(name in sys.modules for name in _SPAWNED):
            self._away = self._away or "another interpreter"
        if not self._seen and not self._sees():
            self._blind = self._blind or "it does not see a kernel that surely ran either"
        if self._away and not self._blind:
            self._blind = f"it does not see into other processes, and this started {self._away}"
        seen = dict(self._seen.most_common(_MOST))
        self._write("kernels", seen=seen, blind=self._blind[:_LONGEST])


#: An error message may hold a tensor; a report need not.
_LONGEST_MESSAGE = 4000


class Reporter:
    """Writes what happens to the report file, and which lines ran beside it.

    `folders` are the tree's; `contribbot.numerics` asks for them.
    """

    def __init__(self, path: Path, folders: Sequence[str], reason: str) -> None:
        self.folders = folders
        self._reason = reason
        self._checks = str(Path.cwd())
        self._file = path.open("a", encoding="utf-8")
        self._coverage: coverage.Coverage | None = None
        self._testing = False

    def write(self, event: str, **fields: object) -> None:
        """Add one line, and make sure that it is out."""
        self._file.write(json.dumps({"event": event, **fields}) + "\n")
        self._file.flush()

    def measure(self, configuration: str) -> None:
        """See which lines run under tests, here and in processes that the check starts."""
        import coverage  # noqa: PLC0415  only where lines are wanted

        self._coverage = coverage.Coverage(config_file=configuration, messages=False)
        # A patch may not excuse its own lines with a comment.
        self._coverage.clear_exclude()
        included = self._coverage.get_option("run:include")
        assert isinstance(included, list)  # noqa: S101  the parent wrote it
        files = re.compile("|".join(map(fnmatch.translate, included)))
        known: set[tuple[str, int]] = set()

        def saw(file: str, line: int) -> None:
            if self._testing and files.match(file) and (file, line) not in known:
                known.add((file, line))
                self.write("line", file=file, line=line)

        watch(saw)

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """Say which tests there are, so that one that never ran is missed."""
        self.write("collected", tests=[_short(item.nodeid) for item in session.items])

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        """Say which test starts, so that a crash has a name; from the first one on lines count."""
        if self._coverage is not None and not self._testing:
            self._coverage.start()
        self._testing = True
        self.write("start", test=_short(nodeid))

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item, call: pytest.CallInfo[None]
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        """Report each phase that decides something: every call, and other phases that go wrong."""
        report = yield
        if call.when == "call" or report.outcome != "passed":
            fields: dict[str, object] = {
                "test": _short(item.nodeid),
                "when": call.when,
                "outcome": report.outcome,
                "seconds": round(call.duration, 6),
            }
            if call.excinfo is not None:
                fields |= self._told(call.excinfo.value)
            self.write("phase", **fields)
        return report

    def pytest_exception_interact(
        self, call: pytest.CallInfo[None], report: pytest.CollectReport | pytest.TestReport
    ) -> None:
        """Report a file that cannot be collected."""
        if isinstance(report, pytest.CollectReport) and call.excinfo is not None:
            error = call.excinfo.value
            # pytest puts an error of its own around what it quotes.
            origin = error.__cause__ if isinstance(error, pytest.Collector.CollectError) else None
            self.write("uncollected", test=_short(report.nodeid), **self._told(origin or error))

    def _told(self, error: BaseException) -> dict[str, object]:
        message = f"{type(error).__name__}: {error}"[:_LONGEST_MESSAGE]
        # An expression that takes for ever does so here, within the run's time limit.
        re.search(self._reason, message)
        return {
            "message": _plain(message),
            "broken": why_broken(error, self._checks, self.folders),
            "fault": machine_fault(error),
        }

    def cell(self, nodeid: str, record: Mapping[str, object]) -> None:
        """Take what a cell of a grid came to; `contribbot.numerics` calls it."""
        self.write("cell", **{**record, "test": _short(nodeid)})

    def pytest_keyboard_interrupt(self) -> None:
        """Say that the session was stopped (Ctrl-C, `pytest.exit`), whatever its status will be."""
        self.write("stopped")

    def pytest_sessionfinish(self, exitstatus: int) -> None:
        """Write down which lines ran, then that the end was reached."""
        if self._coverage is not None and self._testing:
            self._coverage.stop()
            try:
                self._coverage.save()
            except sqlite3.OperationalError as error:
                # It has no other word for a full disk.
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)) from error
        self.write("end", status=int(exitstatus))

    def pytest_unconfigure(self) -> None:
        """Close the report file, so that no warning about it can hit a check."""
        self._file.close()


class _Named:
    """Registers the reporter by the name under which `contribbot.numerics` asks for it."""

    def __init__(self, reporter: Reporter) -> None:
        self._reporter = reporter

    def pytest_configure(self, config: pytest.Config) -> None:
        """Register it."""
        config.pluginmanager.register(self._reporter, "contribbot-reporter")


def _short(nodeid: str) -> str:
    """Leave out the folder, which differs from run to run."""
    path, separator, rest = nodeid.partition("::")
    return _plain(Path(path).name + separator + rest)


def _plain(text: str) -> str:
    """Spell out lone surrogates, which JSON readers refuse."""
    return text.encode("utf-8", "backslashreplace").decode()


def main() -> None:
    """Run pytest on the tree, and end with its status."""
    guard_group(int(os.environ.pop("CONTRIBBOT_LIFELINE")))
    limit_files()
    path = list(filter(None, os.environ.pop("CONTRIBBOT_PATH").split(os.pathsep)))
    built = filter(None, [os.path.dirname(os.environ.get("CONTRIBBOT_EXTENSION", ""))])  # noqa: PTH120  nothing is no folder
    folders = (os.environ["CONTRIBBOT_TREE"], *path, *built)
    report, reason = (os.environ.pop(f"CONTRIBBOT_{name}") for name in ("REPORT", "REASON"))
    reporter = Reporter(Path(report), folders, reason)
    plugins: list[object] = [_Named(reporter)]
    if kernels := os.environ.pop("CONTRIBBOT_KERNELS", ""):
        plugins.append(KernelWatch(kernels, reporter.write))
    if configuration := os.environ.pop("CONTRIBBOT_WITNESS", ""):
        reporter.measure(configuration)
    own = filter(None, [os.environ.get("PYTHONPATH")])
    os.environ["PYTHONPATH"] = os.pathsep.join([*path, *own])
    sys.path[:0] = path
    sys.exit(pytest.main(sys.argv[1:], plugins=plugins))
