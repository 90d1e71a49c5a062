"""One bench: base and patched tree, compared by a first pair of children, then timed by several."""

from __future__ import annotations

import contextlib
import itertools
import re
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeVar

from pydantic import BaseModel

from contribbot.bench.verdict import (
    LOOKS,
    CaseResult,
    Claim,
    Verdict,
    judge_case,
    judge_results,
)
from contribbot.bench.wire import (
    CaseInfo,
    Ceilings,
    Compared,
    Computed,
    Done,
    Loaded,
    Measured,
    Prepared,
)
from contribbot.bench.worker import Side, TroubleError, Worker, worker

#: After these a child can measure nothing more.
_FATAL: Final = frozenset({"gone", "fault", "lost", "missing"})
_TELLING: Final = frozenset({Verdict.PASSED, Verdict.UNDECIDED})

AnswerT = TypeVar("AnswerT", bound=BaseModel)


@dataclass
class BenchResult:
    """What a bench came to.

    `trouble` is what kept the bench as a whole from being done, `verdict` what that means, and
    `lasting` whether the same again would end in the same trouble.
    """

    cases: list[CaseResult] = field(default_factory=list)
    ceilings: Ceilings | None = None
    unmeasured: int = 0
    trouble: str = ""
    verdict: Verdict = Verdict.FAILED
    lasting: bool = True

    @property
    def failed(self) -> list[CaseResult]:
        """The cases that break the claim."""
        return [case for case in self.cases if case.verdict is Verdict.FAILED]

    @property
    def too_noisy(self) -> bool:
        """Whether all was measured, nothing fails the claim, and some case cannot tell."""
        verdicts = {case.verdict for case in self.cases}
        return not self.trouble and Verdict.UNDECIDED in verdicts <= _TELLING


def measure(
    file: str, cases: str, claim: Claim, sides: tuple[Side, Side], *, timeout: float, cores: int = 1
) -> BenchResult:
    """Compare the cases of a bench file whose name holds `cases`, time them, judge the claim.

    Children that are not measured load side by side, as many as there are cores.
    """
    session = _Session(file, claim, sides, deadline=time.monotonic() + timeout, cores=cores)
    result = BenchResult()
    try:
        session.compare(result, cases)
        if not result.failed:  # nothing else can save it
            session.time(_undecided(result.cases))
    except (_StopError, TroubleError) as error:
        stop = _stop("between cases", error) if isinstance(error, TroubleError) else error
        result.trouble, result.verdict, result.lasting = stop.text, stop.verdict, stop.lasting
    for case in result.cases:
        if case.verdict is Verdict.UNDECIDED and len(case.ratios) < LOOKS[0]:
            done = f"only {len(case.ratios)} of {LOOKS[0]} pairs of processes: raise `timeout`"
            stopped = result.trouble or result.failed
            text = "not measured" if stopped else f"the timeout left time for {done}"
            result.unmeasured += 1
            case.settle(Verdict.UNAVAILABLE, text, lasting=False)
    return result


class _StopError(Exception):
    """The bench as a whole cannot be done."""

    def __init__(self, verdict: Verdict, text: str, *, lasting: bool = True) -> None:
        super().__init__(text)
        self.verdict = verdict
        self.text = text
        self.lasting = lasting


@dataclass(frozen=True)
class _Pair:
    """A child on the base and one on the patched tree."""

    number: int
    base: Worker
    patched: Worker

    def loaded(self) -> tuple[Sequence[CaseInfo], Sequence[CaseInfo]]:
        """Wait until both have imported the file."""
        try:
            return self.base.hear(Loaded).cases, self.patched.hear(Loaded).cases
        except TroubleError as trouble:
            # That says something of the file, and nothing of the patch.
            raise _stop("cannot be loaded", trouble, Verdict.UNAVAILABLE) from trouble

    def ask(
        self, case: CaseResult, answer: type[AnswerT], do: str, **more: object
    ) -> tuple[AnswerT, AnswerT] | None:
        """Ask both for something; None where one or both cannot, which settles the case."""
        answers: list[AnswerT] = []
        troubles: list[TroubleError] = []
        for side in (self.base, self.patched):
            try:
                answers.append(side.ask(answer, do, case=case.info.name, **more))
            except TroubleError as trouble:
                if trouble.kind in _FATAL:
                    raise
                troubles.append(trouble)
        if not troubles:
            return answers[0], answers[1]
        last, both = troubles[-1], len(troubles) == 2  # noqa: PLR2004  the sides
        where = "both sides" if both else f"the {last.side} only"
        case.settle(Verdict.FAILED, f"fails on {where}: {last.text}")
        if all(trouble.kind == "memory" for trouble in troubles):
            what = "not enough memory on this machine" if both else ""
            if last.side == self.patched.side.name and not both:
                self.release()
                with contextlib.suppress(TroubleError):
                    self.patched.ask(answer, do, case=case.info.name, **more)
                    what = "the two sides do not fit into memory at the same time"
            if what:
                case.settle(Verdict.UNAVAILABLE, f"{what}: {last.text}", lasting=False)
        elif troubles[0].kind == "uncomparable" and troubles[0].side == self.base.side.name:
            case.settle(Verdict.UNAVAILABLE, troubles[0].text)
        return None

    def release(self) -> None:
        """Let the inputs of both go."""
        for side in (self.base, self.patched):
            side.ask(Done, "release")


class _Session:
    def __init__(
        self, file: str, claim: Claim, sides: tuple[Side, Side], *, deadline: float, cores: int
    ) -> None:
        self._file = file
        self._claim = claim
        self._sides = sides
        self._deadline = deadline
        # Two processes a pair.
        self._abreast = max(1, cores // 2)

    @contextlib.contextmanager
    def _pair(self, number: int) -> Iterator[_Pair]:
        """Start the children of a pair; who is started first changes from pair to pair."""
        with contextlib.ExitStack() as stack:
            order = self._sides if number % 2 == 0 else self._sides[::-1]
            workers = [
                stack.enter_context(
                    worker(side, self._file, number=number, deadline=self._deadline)
                )
                for side in order
            ]
            for child in workers:
                child.tell("load")
            base, patched = workers if number % 2 == 0 else workers[::-1]
            yield _Pair(number, base, patched)

    def compare(self, result: BenchResult, pattern: str) -> None:
        """List the cases and compare their results, by children that time nothing."""
        with self._pair(0) as pair:
            wanted = _wanted(pair.loaded(), pattern)
            result.cases = [CaseResult(info) for info in wanted]
            for case in result.cases:
                if not case.info.not_compared:
                    with _blame(case):
                        self._compare(pair, case)
                    pair.release()
            result.ceilings = _ceilings(pair.base, wanted)

    def _compare(self, pair: _Pair, case: CaseResult) -> None:
        computed = pair.ask(case, Computed, "compute")
        if computed is None:
            return
        file = pair.patched.side.log.with_name("results")
        try:
            pair.patched.ask(Done, "hand_over", file=str(file))
            compared = pair.base.ask(Compared, "compare", case=case.info.name, file=str(file))
        except TroubleError as trouble:
            if trouble.kind in _FATAL:
                raise
            text = f"its results cannot be compared: {trouble.text}"
            case.settle(Verdict.UNAVAILABLE, text, lasting=False)
        else:
            judge_results(case, (computed[0].unlike, computed[1].unlike), compared)
        finally:
            file.unlink(missing_ok=True)

    def time(self, cases: list[CaseResult]) -> None:
        """Measure by pair after pair of processes until the claim is decided, or often enough."""
        number, took = 0, 0.0
        while cases and number < LOOKS[-1] and self._deadline - time.monotonic() > took:
            started = time.monotonic()
            look = next(pairs for pairs in LOOKS if pairs > number)
            pairs = range(number, min(number + self._abreast, look))
            with contextlib.ExitStack() as stack:
                running = [stack.enter_context(self._pair(1 + pair)) for pair in pairs]
                for pair in running:
                    pair.loaded()
                for pair, case in itertools.product(running, cases):
                    if case.verdict is Verdict.UNDECIDED:
                        with _blame(case):
                            self._rounds(pair, case)
                        pair.release()
            number, took = pairs.stop, time.monotonic() - started
            cases = _undecided(cases)
            if number == look:
                for case in cases:
                    judge_case(case, self._claim)
                cases = _undecided(cases)

    def _rounds(self, pair: _Pair, case: CaseResult) -> None:
        """Measure in turns; who goes first changes from round to round and from pair to pair."""
        prepared = pair.ask(case, Prepared, "prepare", seed=pair.number)
        if prepared is None:
            return
        taken: tuple[list[float], list[float]] = ([], [])
        sides = [(pair.base, case.base, taken[0]), (pair.patched, case.patched, taken[1])]
        for turn in range(pair.number, pair.number + self._claim.rounds_a_pair):
            for child, side, seconds in sides if turn % 2 else sides[::-1]:
                measured = child.ask(Measured, "measure")
                seconds.append(measured.seconds)
                side.samples = measured.samples
        for (_, side, seconds), made in zip(sides, prepared, strict=True):
            side.seconds.append(seconds)
            side.memory, side.sets = made.memory, made.sets


def _undecided(cases: Sequence[CaseResult]) -> list[CaseResult]:
    return [case for case in cases if case.verdict is Verdict.UNDECIDED]


def _wanted(listed: tuple[Sequence[CaseInfo], Sequence[CaseInfo]], pattern: str) -> list[CaseInfo]:
    """Return the cases that were asked for; both sides must have the same."""
    base, patched = ([info for info in all_ if re.search(pattern, info.name)] for all_ in listed)
    for these, those, side in ((base, patched, "base"), (patched, base, "patched tree")):
        names = {info.name for info in those}
        alone = [info.name for info in these if info.name not in names]
        if alone:
            raise _StopError(
                Verdict.FAILED,
                f"the case {alone[0]} is there on the {side} only: a claim needs both sides",
            )
    other = {info.name: info for info in patched}
    for info in base:
        if info != other[info.name]:
            raise _StopError(
                Verdict.FAILED,
                f"the case {info.name} is described otherwise on the patched tree: "
                "only what differs in the trees may differ",
            )
    if not base:
        which = f"no case matches {pattern!r}" if pattern else "no case"
        all_names = ", ".join(info.name for info in listed[0]) or "none"
        raise _StopError(Verdict.FAILED, f"{which}: the file has {all_names}")
    return base


def _ceilings(child: Worker, cases: Sequence[CaseInfo]) -> Ceilings | None:
    """Measure what the machine can do at best, where some case can be set against it."""
    matmul = sorted({info.matmul for info in cases if info.flops and info.matmul})
    if not matmul and not any(info.bytes_moved for info in cases):
        return None
    try:
        return child.ask(Ceilings, "ceilings", matmul=matmul)
    except TroubleError as trouble:
        if trouble.kind in _FATAL:
            raise _stop("while the ceilings were measured", trouble) from trouble
        # Nothing is claimed about them.
        return None


@contextlib.contextmanager
def _blame(case: CaseResult) -> Iterator[None]:
    """Make trouble a case's verdict; what ends a child ends the bench."""
    try:
        yield
    except TroubleError as trouble:
        verdict, lasting = _meaning(trouble)
        case.settle(verdict, f"on the {trouble.side}: {trouble.text}", lasting=lasting)
        if trouble.kind in _FATAL:
            raise _StopError(
                verdict, f"{case.info.name}: {case.text}", lasting=lasting
            ) from trouble


def _meaning(trouble: TroubleError) -> tuple[Verdict, bool]:
    """Return what a trouble says of the claim, and whether the same again would say so."""
    if trouble.kind in {"memory", "lost", "missing"}:
        return Verdict.UNAVAILABLE, False
    return Verdict.FAILED, trouble.kind == "error"


def _stop(what: str, trouble: TroubleError, verdict: Verdict | None = None) -> _StopError:
    meant, lasting = _meaning(trouble)
    where = "" if trouble.kind == "missing" else f"{what} on the {trouble.side}: "
    return _StopError(verdict or meant, where + trouble.text, lasting=lasting)
