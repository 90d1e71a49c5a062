"""The fixtures `kernels` and `target` of emulated checks, and the records of their launches."""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Callable, Generator, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Final

import pytest

from contribbot.compile.listing import function_of, title_of
from contribbot.emulate import (
    EmulatedGpu,
    EmulatorError,
    Kernel,
    LaunchRecord,
    UnmodelledError,
    device,
    load,
)
from contribbot.errors import MachineError, UsageError
from contribbot.model.base import Model

#: The largest number of launches that are shown, and of kernels that a message names.
_MOST: Final = 8
_NAMES: Final = 20


class CompiledCode(Model):
    """The result of a compile for a target, stored as JSON next to the code object."""

    target: str
    shared: int = 0  # bytes of LDS that a launch adds
    error: str = ""  # the compiler's first message


class NoKernelError(UsageError):
    """A name in a check fits no kernel or several kernels: the check is broken."""

    contribbot_broken = True


class NamedKernels(Mapping[str, Kernel]):
    """The kernels of a code object, by C++ name, by symbol, or by the bare name of one kernel."""

    def __init__(self, found: Mapping[str, Kernel], *, error: str = "") -> None:
        self._found = found
        self._titles = {symbol: title_of(symbol) for symbol in found}
        self._error = error

    def __contains__(self, name: object) -> bool:
        """Return whether a kernel has this symbol, or this C++ name with template arguments."""
        return name in self._found or name in self._titles.values()

    def __iter__(self) -> Iterator[str]:
        return iter(self._titles.values())

    def __len__(self) -> int:
        return len(self._found)

    def __getitem__(self, name: str) -> Kernel:
        """Return the kernel of a symbol or C++ name; UsageError: no kernel, or several kernels."""
        if self._error:
            raise UsageError(f"does not compile: {self._error}")
        if name in self._found:
            return self._found[name]
        titles = self._titles.items()
        fits = [symbol for symbol, title in titles if title == name] or [
            symbol for symbol, title in titles if function_of(title) == name
        ]
        if len(fits) == 1:
            return self._found[fits[0]]
        shown = [self._titles[symbol] for symbol in fits or self._found]
        more = f" and {len(shown) - _NAMES} more" if len(shown) > _NAMES else ""
        listed = ", ".join(shown[:_NAMES]) + more
        if fits:
            raise NoKernelError(f"{name} names {len(fits)} kernels: {listed}")
        raise NoKernelError(f"no kernel {name}: there is {listed or 'none'}")


_CODE: Final = pytest.StashKey[tuple[str, NamedKernels | None]]()


@pytest.fixture(scope="session")
def kernels(pytestconfig: pytest.Config) -> NamedKernels:
    """The kernels that were compiled from the tree under test."""
    found = pytestconfig.stash[_CODE][1]
    if found is None:
        raise NoKernelError("no kernels: patch.toml names no `compile` for this check")
    return found


@pytest.fixture(scope="session")
def target(pytestconfig: pytest.Config) -> str:
    """The emulated target, such as `gfx942`."""
    return pytestconfig.stash[_CODE][0]


class _Fixtures:
    """A plug-in of pytest with the values of a check's fixtures and the record of its launches."""

    code: tuple[str, NamedKernels | None]
    record: LaunchRecord

    def pytest_configure(self, config: pytest.Config) -> None:
        """Store target and kernels in pytest's stash for the fixtures."""
        config.stash[_CODE] = self.code

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self) -> Generator[None, object, object]:
        """Raise a launch's error in a test that passes, and an unmodelled operation in any test."""
        __tracebackhide__ = True
        try:
            result = yield
        except (Exception, pytest.fail.Exception) as error:
            unmodelled = [each for each in self.record.drain() if isinstance(each, UnmodelledError)]
            if unmodelled and error not in unmodelled:
                raise unmodelled[0] from error
            raise
        if errors := self.record.drain():
            raise min(errors, key=lambda each: not isinstance(each, UnmodelledError))
        return result


class CodeFolder(_Fixtures):
    """Loads the code in a folder; reports if no kernel that ran wrote to a tensor."""

    def __init__(self, folder: Path, report: Callable[..., None]) -> None:
        code = CompiledCode.model_validate_json((folder / "code.json").read_bytes())
        content = b"" if code.error else (folder / "code.o").read_bytes()
        # A line table has many objects that stay: the garbage collector need not visit them.
        gc.disable()
        found = load(content) if content else {}
        gc.freeze()
        gc.enable()
        self.record = LaunchRecord()
        each = {
            name: replace(kernel, shared=code.shared, ran=set(), record=self.record)
            for name, kernel in found.items()
        }
        self.code = code.target, NamedKernels(each, error=code.error)
        self._each, self._report = each, report

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self) -> None:
        """Report kernels that ran without a write to a tensor."""
        if any(kernel.ran for kernel in self._each.values()) and not self.record.stored:
            self._report(stored=False)


class Device(_Fixtures):
    """Puts the emulated GPU in place of `cuda`; reports a session without launch or store."""

    def __init__(self, target: str, report: Callable[..., None], launches: str) -> None:
        self.code, self._launches, self._report = (target, None), launches, report
        self._stack, self._error, self._gpu = contextlib.ExitStack(), "", EmulatedGpu(target)
        try:
            self._gpu = self._stack.enter_context(device(target))
        except EmulatorError as error:
            self._error = error.message
        self.record = self._gpu.record

    def pytest_unconfigure(self) -> None:
        """Remove the emulated GPU."""
        self._stack.close()

    @pytest.hookimpl(tryfirst=True)
    def pytest_pycollect_makemodule(self) -> None:
        """Raise MachineError before an import of test files, if the emulated GPU did not start."""
        if self._error:
            raise MachineError(self._error)

    def pytest_collection_finish(self) -> None:
        """Forget the launches and writes at import, outside of tests."""
        self._gpu.launches, self.record.stored = 0, False

    def pytest_terminal_summary(
        self, terminalreporter: pytest.TerminalReporter, exitstatus: int
    ) -> None:
        """Show launches as `[[compile]]` entries, always or after a failure, as `launches` says."""
        shown = self._launches == "always" or (self._launches == "failure" and exitstatus)
        for call in self._gpu.calls[:_MOST] if shown else ():
            terminalreporter.write_sep("-", "launched; as [[compile]] states it")
            terminalreporter.write_line(call)

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self) -> None:
        """Report that no kernel was launched, or that no kernel wrote to a tensor."""
        if not self._gpu.launches:
            self._report(launched=False)
        elif not self.record.stored:
            self._report(stored=False)
