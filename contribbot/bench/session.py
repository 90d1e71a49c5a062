"""One bench: two children, base and patched tree, measured in turns."""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from contribbot.bench.verdict import LOOKS, CaseResult, Claim, Measurements, Verdict, judge_case
from contribbot.bench.wire import CaseInfo, Ceilings, Done, Loaded, Measured, Prepared
from contribbot.bench.worker import Side, TroubleError, Worker, worker

#: After these a child can measure nothing more.
_FATAL: Final = frozenset({"gone", "fault", "lost", "missing"})
_TELLING: Final = frozenset({Verdict.PASSED, Verdict.UNDECIDED})


@dataclass
class BenchResult:
    """What a bench came to.

    Attributes:
        cases: The cases that were asked for, in the file's order.
        ceilings: What the machine can do at best; None where no case asks.
        trouble: What kept the bench as a whole from being done, or empty.
        verdict: What that trouble means.
        lasting: Whether the same again would end in the same trouble.
    """

    cases: list[CaseResult] = field(default_factory=list)
    ceilings: Ceilings | None = None
    trouble: str = ""
    verdict: Verdict = Verdict.FAILED
    lasting: bool = True

    @property
    def too_noisy(self) -> bool:
        """Whether all was measured, nothing fails the claim, and some case cannot tell."""
        verdicts = {case.verdict for case in self.cases}
        return not self.trouble and Verdict.UNDECIDED in verdicts <= _TELLING


def measure(
    file: str, cases: str, claim: Claim, sides: tuple[Side, Side], *, timeout: float
) -> BenchResult:
    """Measure a bench file on two sides in turns and judge the claim.

    Args:
        file: The bench file, in each side's folder of checks.
        cases: A regular expression; cases whose name it is found in are measured. Empty: all.
        claim: What is claimed of each.
        sides: The base's side and the patched tree's.
        timeout: Seconds that all of it may take.

    Raises:
        MachineError: A child could not be started, or this process is ending.
    """
    deadline = time.monotonic() + timeout
    result = BenchResult()
    with (
        worker(sides[0], file, deadline=deadline) as base,
        worker(sides[1], file, deadline=deadline) as patched,
    ):
        session = _Session(base, patched, claim, deadline)
        try:
            wanted = session.wanted(cases)
            result.cases = [CaseResult(info) for info in wanted]
            result.ceilings = session.ceilings(wanted)
            for case in result.cases:
                session.measure(case)
        except (_StopError, TroubleError) as error:
            stop = _stop("between cases", error) if isinstance(error, TroubleError) else error
            result.trouble, result.verdict = stop.text, stop.verdict
            result.lasting = stop.lasting
    return result


class _StopError(Exception):
    """The bench as a whole cannot be done."""

    def __init__(self, verdict: Verdict, text: str, *, lasting: bool = True) -> None:
        super().__init__(text)
        self.verdict = verdict
        self.text = text
        self.lasting = lasting


class _Session:
    def __init__(self, base: Worker, patched: Worker, claim: Claim, deadline: float) -> None:
        self._base = base
        self._patched = patched
        self._claim = claim
        self._deadline = deadline

    def wanted(self, pattern: str) -> list[CaseInfo]:
        """Load the file on both sides and return the cases that were asked for."""
        sides = (self._base, self._patched)
        for side in sides:
            side.tell("load")
        listed: list[list[CaseInfo]] = []
        for side in sides:
            try:
                listed.append(list(side.hear(Loaded).cases))
            except TroubleError as trouble:
                # That says something of the file, and nothing of the patch.
                raise _stop("cannot be loaded", trouble, Verdict.UNAVAILABLE) from trouble
        found = [[info for info in one if re.search(pattern, info.name)] for one in listed]
        _same(*found)
        if not found[0]:
            names = ", ".join(info.name for info in listed[0]) or "none"
            which = f"no case matches {pattern!r}" if pattern else "no case"
            raise _StopError(Verdict.FAILED, f"{which}: the file has {names}")
        return found[0]

    def ceilings(self, cases: Sequence[CaseInfo]) -> Ceilings | None:
        """Measure what the machine can do at best, where some case can be set against it."""
        matmul = sorted({one.matmul for one in cases if one.flops and one.matmul})
        if not matmul and not any(one.bytes_moved for one in cases):
            return None
        try:
            return self._base.ask(Ceilings, "ceilings", matmul=matmul)
        except TroubleError as trouble:
            if trouble.kind in _FATAL:
                raise _stop("while the ceilings were measured", trouble) from trouble
            # Nothing is claimed about them.
            return None

    def measure(self, case: CaseResult) -> None:
        """Measure one case and judge it; trouble that is the case's own is its verdict."""
        try:
            if self._prepare(case):
                self._decide(case)
        except TroubleError as trouble:
            self._case_trouble(case, trouble)
        self._release()

    def _decide(self, case: CaseResult) -> None:
        """Measure until the claim is decided, or it was looked at often enough."""
        for look in range(1, LOOKS + 1):
            started = time.monotonic()
            self._rounds(case, until=look * self._claim.rounds)
            judge_case(case, self._claim)
            left, took = self._deadline - time.monotonic(), time.monotonic() - started
            if case.verdict is not Verdict.UNDECIDED or left < 2 * took:
                return

    def _release(self) -> None:
        for side in (self._base, self._patched):
            side.ask(Done, "release")

    def _rounds(self, case: CaseResult, *, until: int) -> None:
        """Measure in turns; who goes first changes from round to round."""
        sides = [(self._base, case.base), (self._patched, case.patched)]
        for number in range(len(case.patched.seconds), until):
            for side, taken in sides if number % 2 == 0 else sides[::-1]:
                measured = side.ask(Measured, "measure")
                taken.seconds.append(measured.seconds)
                taken.samples = measured.samples

    def _prepare(self, case: CaseResult) -> bool:
        """Make the inputs on both sides; say whether that went well."""
        troubles = [
            trouble
            for side, taken in ((self._base, case.base), (self._patched, case.patched))
            if (trouble := self._prepared(case, side, taken)) is not None
        ]
        if not troubles:
            return True
        last = troubles[-1]
        if last.side == self._patched.side.name and last.kind == "memory" and len(troubles) == 1:
            # Without the base's inputs beside it, it may fit.
            self._release()
            again = self._prepared(case, self._patched, case.patched)
            if again is None:
                case.verdict, case.lasting = Verdict.UNAVAILABLE, False
                case.text = f"the two sides do not fit into memory at the same time: {last.text}"
                return False
        case.verdict = Verdict.FAILED
        if len(troubles) == 1:
            case.text = f"fails on the {last.side} only: {last.text}"
        else:
            case.text = f"fails on both sides: {last.text}"
            if all(trouble.kind == "memory" for trouble in troubles):
                case.verdict, case.lasting = Verdict.UNAVAILABLE, False
                case.text = f"not enough memory on this machine: {last.text}"
        return False

    def _prepared(self, case: CaseResult, side: Worker, taken: Measurements) -> TroubleError | None:
        """Make the inputs on one side; return what went wrong, if it can go on."""
        try:
            prepared = side.ask(Prepared, "prepare", case=case.info.name)
        except TroubleError as trouble:
            if trouble.kind in _FATAL:
                raise
            return trouble
        taken.memory, taken.sets = prepared.memory, prepared.sets
        return None

    def _case_trouble(self, case: CaseResult, trouble: TroubleError) -> None:
        """Take over what went wrong while a case was measured."""
        case.verdict, case.lasting = _meaning(trouble)
        case.text = f"on the {trouble.side}: {trouble.text}"
        if trouble.kind in _FATAL:
            raise _StopError(
                case.verdict, f"{case.info.name}: {case.text}", lasting=case.lasting
            ) from trouble


def _same(base: list[CaseInfo], patched: list[CaseInfo]) -> None:
    """See that both sides have the same cases."""
    for these, those, side in ((base, patched, "base"), (patched, base, "patched tree")):
        names = {info.name for info in those}
        alone = [info.name for info in these if info.name not in names]
        if alone:
            raise _StopError(
                Verdict.FAILED,
                f"the case {alone[0]} is there on the {side} only: a claim needs both sides",
            )
    other = {info.name: info for info in patched}
    for one in base:
        if one != other[one.name]:
            raise _StopError(
                Verdict.FAILED,
                f"the case {one.name} is described otherwise on the patched tree: "
                "only what differs in the trees may differ",
            )


def _meaning(trouble: TroubleError) -> tuple[Verdict, bool]:
    """Return what a trouble says of the claim, and whether the same again would say so."""
    if trouble.kind in {"memory", "lost", "missing"}:
        return Verdict.UNAVAILABLE, False
    return Verdict.FAILED, trouble.kind == "error"


def _stop(what: str, trouble: TroubleError, verdict: Verdict | None = None) -> _StopError:
    meant, lasting = _meaning(trouble)
    where = "" if trouble.kind == "missing" else f"{what} on the {trouble.side}: "
    return _StopError(verdict or meant, where + trouble.text, lasting=lasting)
