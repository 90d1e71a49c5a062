"""What a check launches on an emulated GPU, watched as in a sweep: its kernels' code and bits."""

from __future__ import annotations

from collections.abc import Callable, Generator

import pytest

from contribbot.emulate.code_object import Kernel
from contribbot.emulate.decode import decode
from contribbot.emulate.outcomes import RECORD
from contribbot.hardware.listing import KernelListing, Numbers
from contribbot.sweep.capture import LaunchObserver
from contribbot.sweep.findings import SweepRow
from contribbot.sweep.pytest_plugin import seed


class ObservedLaunches:
    """Reports what a test's kernels left, and at the end each kernel."""

    def __init__(self, target: str, report: Callable[..., None]) -> None:
        self._target, self._report = target, report
        self._observer = RECORD.observer = LaunchObserver()
        self._failed = False

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, object, object]:
        """Run a test from one state of chance."""
        self._observer.reset()
        self._failed = False
        seed()
        result = yield
        row = SweepRow(
            target=self._target, test=item.nodeid.rpartition("/")[2],
            outcome="failed" if self._failed else "passed", kernels=self._observer.uses(),
        )  # fmt: skip
        self._report(left=row.model_dump())
        return result

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Keep that a test failed."""
        self._failed |= report.failed

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self) -> None:
        """Report the kernels."""
        for kernel, code in zip(self._observer.known.values(), self._observer.code, strict=True):
            listing = KernelListing(
                symbol=f"{kernel.name} {code.variant}", title=kernel.name,
                numbers=numbers_of(kernel), mnemonics={},
            )  # fmt: skip
            self._report(code=listing.model_dump())


def numbers_of(kernel: Kernel) -> Numbers:
    """Return what is compared of a kernel, as it is loaded."""
    said, descriptor = kernel.metadata, kernel.descriptor
    place, instructions = descriptor.entry, 0
    while place < kernel.end:
        try:
            place += decode(kernel.image, place, kernel.target).size
        except ValueError:  # data between instructions
            place += 4
        instructions += 1
    return Numbers(
        vgprs=said.vgpr_count, agprs=said.agpr_count, sgprs=said.sgpr_count,
        lds=descriptor.group_segment + kernel.shared, scratch=descriptor.private_segment,
        spills=said.vgpr_spill_count + said.sgpr_spill_count, wavefront=said.wavefront_size,
        occupancy=None, code=kernel.end - descriptor.entry, instructions=instructions,
    )  # fmt: skip
