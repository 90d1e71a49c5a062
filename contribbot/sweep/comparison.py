"""Two sweeps beside each other, such as of two releases of an upstream, or of Triton."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from contribbot.emulate.outcomes import Text
from contribbot.model.base import Many, Model
from contribbot.sweep.findings import KernelCode, Sweep, SweepFinding, SweepRow

_NEEDS: Final = ("registers", "spills", "lds", "scratch")


class GrownKernel(Model):
    """A kernel that needs more than before, with the same constants and types."""

    target: str
    kernel: str
    variant: str
    needs: str  # registers, spills, lds or scratch
    before: int
    now: int


class ChangedTest(Model):
    """A test that came to something else, or whose kernels left other bits."""

    target: str
    test: Text
    before: str = ""  # outcomes, where they differ
    now: str = ""
    kernels: Many[str] = ()  # that left other bits


class SweepComparison(Model):
    """What is new in a sweep, what is gone, and what has changed."""

    versions: dict[str, tuple[str, str]]
    new: Many[SweepFinding]
    gone: Many[SweepFinding]  # of tests that the later one has run, too
    grown: Many[GrownKernel]
    outcomes: Many[ChangedTest]
    bits: Many[ChangedTest]
    alike: int  # tests whose kernels left the same bits in both
    uncompared: int  # tests that only one of them has run to a digest


def compare(before: Sweep, now: Sweep) -> SweepComparison:
    """Compare an earlier sweep with a later one."""
    keys = [{finding.key for finding in sweep.findings} for sweep in (before, now)]
    old, new = ({(row.target, row.test): row for row in sweep.tests} for sweep in (before, now))
    both = [(old[key], new[key]) for key in old if key in new]
    digests = [(a, b) for a, b in both if _bits(a) and _bits(b)]
    names = {*before.versions, *now.versions}
    pairs = {name: (before.versions.get(name, ""), now.versions.get(name, "")) for name in names}
    changed = [each for each in (_changed_bits(a, b) for a, b in digests) if each]
    return SweepComparison(
        versions={name: pair for name, pair in sorted(pairs.items()) if pair[0] != pair[1]},
        new=tuple(each for each in now.findings if each.key not in keys[0]),
        gone=tuple(
            each for each in before.findings
            if each.key not in keys[1]
            and any((target, test) in new for target in each.targets for test in each.tests)
        ),
        grown=tuple(_grown(before, now)),
        outcomes=tuple(
            ChangedTest(target=a.target, test=a.test, before=a.outcome, now=b.outcome)
            for a, b in both if a.outcome != b.outcome
        ),
        bits=tuple(changed), alike=len(digests) - len(changed),
        uncompared=len(old) + len(new) - len(both) - len(digests),
    )  # fmt: skip


def _bits(row: SweepRow) -> dict[str, str]:
    return {use.kernel: use.bits for use in row.kernels if use.bits}


def _changed_bits(before: SweepRow, now: SweepRow) -> ChangedTest | None:
    """Return the kernels of both whose digests differ."""
    old, new = _bits(before), _bits(now)
    kernels = tuple(name for name in old if name in new and old[name] != new[name])
    return ChangedTest(target=now.target, test=now.test, kernels=kernels) if kernels else None


def _grown(before: Sweep, now: Sweep) -> Iterator[GrownKernel]:
    def key(code: KernelCode) -> tuple[str, str, str]:
        return code.target, code.kernel, code.variant

    old = {key(code): code for code in before.code}
    for code in now.code:
        if was := old.get(key(code)):
            for needs in _NEEDS:
                a, b = int(getattr(was, needs)), int(getattr(code, needs))
                if b > a:
                    yield GrownKernel(target=code.target, kernel=code.kernel, needs=needs,
                                      variant=code.variant, before=a, now=b)  # fmt: skip
