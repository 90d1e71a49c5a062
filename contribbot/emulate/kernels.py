"""What `contribbot verify` gives a check of `[[emulated]]`: the fixtures `kernels` and `target`."""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Callable, Generator, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Final

import pytest

from contribbot.compile.listing import function_of, title_of
from contribbot.emulate.code_object import Kernel, load
from contribbot.emulate.faults import UnmodelledError
from contribbot.emulate.outcomes import RECORD
from contribbot.errors import ContribbotError, MachineError, UsageError
from contribbot.model.base import Model

_MOST: Final = 8
_NAMES: Final = 20


class CompiledCode(Model):
    """What a compile for a target came to; the code object lies beside it."""

    target: str
    shared: int = 0  # bytes of LDS that a launch adds
    error: str = ""  # the compiler's first


class NoKernelError(UsageError):
    """A check asks for a kernel by a name that fits none or several: it is broken."""

    contribbot_broken = True


class NamedKernels(Mapping[str, Kernel]):
    """A code object's kernels by C++ name, by symbol, or by the bare name of just one."""

    def __init__(self, found: Mapping[str, Kernel], *, error: str = "") -> None:
        self._found = found
        self._titles = {symbol: title_of(symbol) for symbol in found}
        self._error = error

    def __contains__(self, name: object) -> bool:
        """Say whether a kernel has this symbol, or this C++ name with template arguments."""
        return name in self._found or name in self._titles.values()

    def __iter__(self) -> Iterator[str]:
        return iter(self._titles.values())

    def __len__(self) -> int:
        return len(self._found)

    def __getitem__(self, name: str) -> Kernel:
        """Return the kernel with a symbol or C++ name; NoKernelError: none or several have it."""
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
    """The kernels of the tree."""
    found = pytestconfig.stash[_CODE][1]
    if found is None:
        raise NoKernelError("no kernels: patch.toml names no `compile` for this check")
    return found


@pytest.fixture(scope="session")
def target(pytestconfig: pytest.Config) -> str:
    """The target that is emulated, such as `gfx942`."""
    return pytestconfig.stash[_CODE][0]


class _Gives:
    """Gives a check its target, and kernels where it has some."""

    code: tuple[str, NamedKernels | None]

    def pytest_configure(self, config: pytest.Config) -> None:
        """Leave them where the fixtures find them."""
        config.stash[_CODE] = self.code

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self) -> Generator[None, object, object]:
        """Fail a test that went on after what ended a launch: nothing it claims follows."""
        __tracebackhide__ = True
        try:
            result = yield
        except (Exception, pytest.fail.Exception) as error:
            unmodelled = [
                each for each in RECORD.newly_ended() if isinstance(each, UnmodelledError)
            ]
            if unmodelled and error not in unmodelled:
                raise unmodelled[0] from error
            raise
        if ended := RECORD.newly_ended():
            raise min(ended, key=lambda each: not isinstance(each, UnmodelledError))
        return result


class CodeFolder(_Gives):
    """Gives the code in a folder; calls `unstored` where kernels ran and none wrote to a tensor."""

    def __init__(self, folder: Path, unstored: Callable[[], None]) -> None:
        code = CompiledCode.model_validate_json((folder / "code.json").read_bytes())
        content = b"" if code.error else (folder / "code.o").read_bytes()
        # A line table is many objects that stay: no collection looks at them, now or later.
        gc.disable()
        found = load(content) if content else {}
        gc.freeze()
        gc.enable()
        each = {name: replace(kernel, shared=code.shared) for name, kernel in found.items()}
        self.code = code.target, NamedKernels(each, error=code.error)
        self._each, self._unstored = each, unstored

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self) -> None:
        """Report that kernels ran, and none wrote to a tensor."""
        if any(kernel.ran for kernel in self._each.values()) and not RECORD.stored:
            self._unstored()


class Device(_Gives):
    """Puts the emulated GPU in the place of `cuda`; reports what was not launched or stored."""

    def __init__(
        self, target: str, unlaunched: Callable[[], None], unstored: Callable[[], None]
    ) -> None:
        self.code = target, None
        self._unlaunched, self._unstored = unlaunched, unstored
        self._stack, self._error = contextlib.ExitStack(), ""
        try:
            from contribbot.emulate.device import device  # noqa: PLC0415  torch takes seconds

            self._stack.enter_context(device(target))
        except ContribbotError as error:
            self._error = error.message

    def pytest_unconfigure(self) -> None:
        """Take the GPU away."""
        self._stack.close()

    @pytest.hookimpl(tryfirst=True)
    def pytest_pycollect_makemodule(self) -> None:
        """Say why there is no GPU, before a file is imported that needs it."""
        if self._error:
            raise MachineError(self._error)

    def pytest_collection_finish(self) -> None:
        """Forget what was launched outside of tests."""
        RECORD.launches, RECORD.stored = 0, False

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Show how kernels were called, as a `[[compile]]` states it."""
        for call in RECORD.calls[:_MOST]:
            terminalreporter.write_sep("-", "launched; as [[compile]] states it")
            terminalreporter.write_line(call)

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self) -> None:
        """Report that no kernel was launched, or that none wrote to a tensor."""
        if not RECORD.launches:
            self._unlaunched()
        elif not RECORD.stored:
            self._unstored()
