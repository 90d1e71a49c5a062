"""Kernels of one code object, found by what the source calls them; and pytest's fixtures for them.

`contribbot verify` gives a check of `[[emulated]]` the fixtures `kernels` and `target`.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Generator, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Final

import pytest

from contribbot.emulate.code_object import Kernel, load
from contribbot.errors import UsageError
from contribbot.hardware.listing import function_of, title_of
from contribbot.model.base import Model

#: Kernels that are named where none fits.
_MOST: Final = 8


class CompiledCode(Model):
    """What a compile for a target came to; the code object lies beside it."""

    target: str
    shared: int = 0  # bytes of LDS that a launch adds
    error: str = ""  # the compiler's first


class NoKernelError(UsageError):
    """A check asks for a kernel by a name that fits none or several: it is broken."""

    contribbot_broken = True


class NamedKernels(Mapping[str, Kernel]):
    """The kernels of a code object, each by its symbol.

    A lookup also takes the C++ name with template arguments (`scale<float>`), and without them
    (`scale`) where that names one kernel.
    """

    def __init__(self, found: Mapping[str, Kernel], *, error: str = "") -> None:
        self._found = found
        self._titles = {symbol: title_of(symbol) for symbol in found}
        self._error = error

    def __contains__(self, name: object) -> bool:
        """Say whether a kernel has this symbol, or this C++ name with template arguments."""
        return name in self._found or name in self._titles.values()

    def __iter__(self) -> Iterator[str]:
        return iter(self._found)

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
        more = f" and {len(shown) - _MOST} more" if len(shown) > _MOST else ""
        listed = ", ".join(shown[:_MOST]) + more
        if fits:
            raise NoKernelError(f"{name} names {len(fits)} kernels: {listed}")
        raise NoKernelError(f"no kernel {name}: there is {listed or 'none'}")


_CODE: Final = pytest.StashKey[tuple[str, NamedKernels]]()


@pytest.fixture(scope="session")
def kernels(pytestconfig: pytest.Config) -> NamedKernels:
    """The kernels of the tree."""
    return pytestconfig.stash[_CODE][1]


@pytest.fixture(scope="session")
def target(pytestconfig: pytest.Config) -> str:
    """The target that they were compiled for, such as `gfx942`."""
    return pytestconfig.stash[_CODE][0]


class CodeFolder:
    """Gives the fixtures the code in a folder; `saw` gets each line that ran, at the end."""

    def __init__(self, folder: Path, saw: Callable[[str, int], None]) -> None:
        code = CompiledCode.model_validate_json((folder / "code.json").read_bytes())
        content = b"" if code.error else (folder / "code.o").read_bytes()
        # A line table is many objects that stay: no collection looks at them, now or later.
        gc.disable()
        found = load(content) if content else {}
        gc.freeze()
        gc.enable()
        each = {name: replace(kernel, shared=code.shared) for name, kernel in found.items()}
        self._target, self._kernels = code.target, NamedKernels(each, error=code.error)
        self._saw = saw

    def pytest_configure(self, config: pytest.Config) -> None:
        """Leave the code where the fixtures find it."""
        config.stash[_CODE] = self._target, self._kernels

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self) -> Generator[None, object, object]:
        """Fail a test that went on after what cannot be told: nothing it claims follows."""
        __tracebackhide__ = True
        result = yield
        for kernel in self._kernels.values():
            if kernel.untold:
                raise kernel.untold[0]
        return result

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self) -> None:
        """Report the lines that ran."""
        for place in sorted({place for name in self._kernels for place in self._kernels[name].ran}):
            path, _, line = place.rpartition(":")
            self._saw(path, int(line))
