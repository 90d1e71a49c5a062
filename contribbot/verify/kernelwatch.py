"""A part of the child's plugin: which kernels really ran, from torch's profiler.

It is loaded where a check states `kernels`, on both trees. Each test is profiled with its
fixtures; what a file launches when it is imported, and what other processes launch, is not
seen. torch has one profiler a process: a test that starts it as well keeps it, and what runs
in that test is not seen here. Where something can have run unseen, the report says so: then a
kernel that is not among the seen ones may have run all the same.
"""

from __future__ import annotations

import collections
import os
import sys
import warnings
from collections.abc import Callable, Generator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    import torch

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
