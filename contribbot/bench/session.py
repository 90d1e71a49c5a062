"""One bench: base and patched tree, compared by a first pair of children, then timed by several."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import re
import socket
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal, TypeVar

from pydantic import BaseModel, JsonValue, ValidationError

from contribbot import process
from contribbot.bench.verdict import (
    LOOKS,
    Acknowledged,
    CaseInfo,
    CaseResult,
    CaseVerdict,
    Ceilings,
    Claim,
    ComparedResults,
    ComputedCase,
    ListedCases,
    MeasuredRound,
    Measurements,
    PreparedCase,
    Refusal,
    RefusalKind,
    judge_case,
    judge_results,
    number,
    short,
)
from contribbot.model.evidence import Outcome
from contribbot.process import kill_group, lifeline, start, tracked

if TYPE_CHECKING:
    from subprocess import Popen

#: Bytes of output after which a child is killed.
FLOOD: Final = 16 * 2**20
#: Bytes of one answer at most: a thousand cases fit.
_LONGEST: Final = 2**20
#: Characters of an error that are shown; the log has all.
_SHOWN: Final = 240
#: Seconds between two looks at a child that has not answered yet.
_LOOK: Final = 0.25
#: After these a child can measure nothing more.
_FATAL: Final = frozenset({"gone", "fault", "lost", "missing"})

AnswerT = TypeVar("AnswerT", bound=BaseModel)


@dataclass(frozen=True)
class BenchSide:
    """What one side's children are started with; `name` is `base` or `patched tree`."""

    name: str
    checks: Path  # holds the bench file; a child works in it
    env: Mapping[str, str]
    log: Path  # gets what they print


class _TroubleError(Exception):
    """A child did not do what it was asked.

    `gone`: it crashed, hung or was killed, and can be asked nothing more.
    """

    def __init__(self, side: str, kind: RefusalKind | Literal["gone"], text: str) -> None:
        super().__init__(f"{side}: {text}")
        self.side = side
        self.kind = kind
        self.text = text
        #: What it says of the claim, and whether the same again would say so.
        elsewhere = kind in {"memory", "lost", "missing"}
        self.verdict = CaseVerdict.UNAVAILABLE if elsewhere else CaseVerdict.FAILED
        self.lasting = kind == "error"


class _StopError(Exception):
    """The bench as a whole cannot be done."""

    def __init__(self, verdict: CaseVerdict, text: str, *, lasting: bool = True) -> None:
        super().__init__(text)
        self.verdict = verdict
        self.text = text
        self.lasting = lasting

    @classmethod
    def at(
        cls, what: str, trouble: _TroubleError, verdict: CaseVerdict | None = None
    ) -> _StopError:
        where = "" if trouble.kind == "missing" else f"{what} on the {trouble.side}: "
        return cls(verdict or trouble.verdict, where + trouble.text, lasting=trouble.lasting)


class _Worker:
    """A running child; `log` is a descriptor, since the file may be gone."""

    def __init__(
        self, side: str, child: Popen[bytes], channel: socket.socket, *, log: int, deadline: float
    ) -> None:
        self.side = side
        self._child = child
        self._channel = channel
        self._log = log
        self._deadline = deadline
        self._received = b""

    def ask(self, answer: type[AnswerT], do: str, **more: object) -> AnswerT:
        """Ask for something and wait for the answer."""
        self.tell(do, **more)
        return self.hear(answer)

    def tell(self, do: str, **more: object) -> None:
        """Ask for something; `hear` waits for the answer."""
        # One that is gone is noticed when its answer is waited for.
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            self._channel.sendall(json.dumps({"do": do, **more}).encode() + b"\n")

    def hear(self, answer: type[AnswerT]) -> AnswerT:
        """Wait for the answer to what was asked."""
        line = self._line()
        try:
            document = json.loads(line)
            if isinstance(document, dict) and "error" in document:
                refusal = Refusal.model_validate(document)
                raise _TroubleError(self.side, refusal.kind, _one_line(refusal.error))
            return answer.model_validate(document)
        except ValidationError as error:
            first = error.errors()[0]
            where = ".".join(map(str, first["loc"]))
            raise self._gone(f"its answer makes no sense: {where}: {first['msg']}") from error
        except ValueError as error:
            raise self._gone("its answer is no JSON") from error

    def _line(self) -> bytes:
        while b"\n" not in self._received:
            if time.monotonic() >= self._deadline:
                raise self._gone("hung, or the bench's timeout is too short: no answer in time")
            if os.fstat(self._log).st_size > FLOOD:
                raise self._gone("wrote too much output")
            if len(self._received) > _LONGEST:
                raise self._gone("its answer is too long")
            try:
                chunk = self._channel.recv(65536)
            except TimeoutError:
                # What it has started may hold its end of the channel open.
                if self._child.poll() is None:
                    continue
                chunk = b""
            except ConnectionResetError:
                chunk = b""
            if not chunk:
                raise self._ended()
            self._received += chunk
        line, _, self._received = self._received.partition(b"\n")
        return line

    def _ended(self) -> _TroubleError:
        """Say how a child ended that closed its channel."""
        for _ in range(100):
            if self._child.poll() is not None:
                break
            time.sleep(0.01)
        process.check_stopping()
        code = self._child.poll()
        if code is None:
            return self._gone("closed its channel")
        if code < 0:
            return self._gone(f"crashed: {process.signal_name(-code)}")
        return self._gone(f"ended early with exit status {code}")

    def _gone(self, text: str) -> _TroubleError:
        process.check_stopping()
        kill_group(self._child)
        return _TroubleError(self.side, "gone", text)


@contextlib.contextmanager
def _worker(side: BenchSide, file: str, *, pair: int, deadline: float) -> Iterator[_Worker]:
    """Start the child of a numbered pair; after the block it and all that it started are gone."""
    ours, theirs = socket.socketpair()
    ours.settimeout(_LOOK)
    with (
        ours, theirs, lifeline() as end, side.log.open("ab") as log,
        Path(os.devnull).open("rb") as nothing,
    ):  # fmt: skip
        child = start(
            [sys.executable, *arguments(file)],
            cwd=side.checks,
            env={
                # Alike on both sides: sets and dicts of strings are in the same order.
                "PYTHONHASHSEED": str(pair),
                **side.env,
                "CONTRIBBOT_LIFELINE": str(end),
                "CONTRIBBOT_BENCH_CHANNEL": str(theirs.fileno()),
            },
            stdin=nothing,
            stdout=log,
            stderr=log,
            pass_fds=(end, theirs.fileno()),
        )
        theirs.close()
        with tracked(child):
            try:
                yield _Worker(side.name, child, ours, log=log.fileno(), deadline=deadline)
            finally:
                # Also after a good end: what it left running is of no use to anyone.
                kill_group(child)
                child.wait()


def arguments(file: str) -> list[str]:
    """Return what Python is given to measure a bench file."""
    return ["-B", "-m", "contribbot.bench.child", file]


def _one_line(text: str) -> str:
    """Return the first line that says something, if need be its beginning."""
    line = next((line.strip() for line in text.splitlines() if line.strip()), "it said nothing")
    return line if len(line) <= _SHOWN else f"{line[:_SHOWN]}…"


@dataclass
class BenchResult:
    """What a bench came to."""

    cases: list[CaseResult] = field(default_factory=list)
    ceilings: Ceilings | None = None
    unmeasured: int = 0
    #: What kept the bench as a whole from being done, what that means, and whether the same
    #: again would end in it.
    trouble: str = ""
    verdict: CaseVerdict = CaseVerdict.FAILED
    lasting: bool = True

    def of(self, verdict: CaseVerdict) -> list[CaseResult]:
        """Return the cases with a verdict."""
        return [case for case in self.cases if case.verdict is verdict]

    @property
    def too_noisy(self) -> bool:
        """Whether all was measured, nothing fails the claim, and some case cannot tell."""
        undecided = self.of(CaseVerdict.UNDECIDED)
        all_tell = len(undecided) + len(self.of(CaseVerdict.PASSED)) == len(self.cases)
        return not self.trouble and bool(undecided) and all_tell


def measure(
    file: str,
    cases: str,
    claim: Claim,
    sides: tuple[BenchSide, BenchSide],
    *,
    timeout: float,
    cores: int = 1,
) -> BenchResult:
    """Compare the cases of a bench file whose name holds `cases`, time them, judge the claim.

    Children that are not measured load side by side, as many as there are cores.
    """
    # Two processes a pair.
    session = _BenchSession(file, claim, sides, time.monotonic() + timeout, max(1, cores // 2))
    result = BenchResult()
    try:
        session.compare(result, cases)
        if not result.of(CaseVerdict.FAILED):  # nothing else can save it
            session.time(result)
    except (_StopError, _TroubleError) as error:
        stop = _StopError.at("between cases", error) if isinstance(error, _TroubleError) else error
        result.trouble, result.verdict, result.lasting = stop.text, stop.verdict, stop.lasting
    for case in result.of(CaseVerdict.UNDECIDED):
        if len(case.ratios) < LOOKS[0]:
            done = f"only {len(case.ratios)} of {LOOKS[0]} pairs of processes: raise `timeout`"
            stopped = result.trouble or result.of(CaseVerdict.FAILED)
            text = "not measured" if stopped else f"the timeout left time for {done}"
            result.unmeasured += 1
            case.settle(CaseVerdict.UNAVAILABLE, text, lasting=False)
    return result


@dataclass(frozen=True)
class _Pair:
    """A child on the base and one on the patched tree."""

    number: int
    base: _Worker
    patched: _Worker

    def listed(self) -> tuple[Sequence[CaseInfo], Sequence[CaseInfo]]:
        """Wait until both have imported the file."""
        try:
            return self.base.hear(ListedCases).cases, self.patched.hear(ListedCases).cases
        except _TroubleError as trouble:
            # That says something of the file, and nothing of the patch.
            raise _StopError.at("cannot be loaded", trouble, CaseVerdict.UNAVAILABLE) from trouble

    def ask(
        self, case: CaseResult, answer: type[AnswerT], do: str, **more: object
    ) -> tuple[AnswerT, AnswerT] | None:
        """Ask both for something; None where one or both cannot, which settles the case."""
        answers: list[AnswerT] = []
        troubles: list[_TroubleError] = []
        for side in (self.base, self.patched):
            try:
                answers.append(side.ask(answer, do, case=case.info.name, **more))
            except _TroubleError as trouble:
                if trouble.kind in _FATAL:
                    raise
                troubles.append(trouble)
        if not troubles:
            return answers[0], answers[1]
        last, both = troubles[-1], not answers
        where = "both sides" if both else f"the {last.side} only"
        case.settle(CaseVerdict.FAILED, f"fails on {where}: {last.text}")
        if all(trouble.kind == "memory" for trouble in troubles):
            what = "not enough memory on this machine" if both else ""
            if last.side == self.patched.side and not both:
                self.release()
                with contextlib.suppress(_TroubleError):
                    self.patched.ask(answer, do, case=case.info.name, **more)
                    what = "the two sides do not fit into memory at the same time"
            if what:
                case.settle(CaseVerdict.UNAVAILABLE, f"{what}: {last.text}", lasting=False)
        elif troubles[0].kind == "uncomparable" and troubles[0].side == self.base.side:
            case.settle(CaseVerdict.UNAVAILABLE, troubles[0].text)
        return None

    def release(self) -> None:
        """Let the inputs of both go."""
        for side in (self.base, self.patched):
            side.ask(Acknowledged, "release")

    @contextlib.contextmanager
    def turn(self, case: CaseResult) -> Iterator[None]:
        """Make trouble a case's verdict; what ends a child ends the bench."""
        try:
            yield
        except _TroubleError as trouble:
            text = f"on the {trouble.side}: {trouble.text}"
            case.settle(trouble.verdict, text, lasting=trouble.lasting)
            if trouble.kind in _FATAL:
                raise _StopError(
                    trouble.verdict, f"{case.info.name}: {text}", lasting=trouble.lasting
                ) from trouble
        self.release()


@dataclass(frozen=True)
class _BenchSession:
    file: str
    claim: Claim
    sides: tuple[BenchSide, BenchSide]
    deadline: float
    abreast: int  # pairs that are loaded at the same time

    @contextlib.contextmanager
    def _pair(self, number: int) -> Iterator[_Pair]:
        """Start the children of a pair; who is started first changes from pair to pair."""
        with contextlib.ExitStack() as stack:
            order = self.sides if number % 2 == 0 else self.sides[::-1]
            children = (
                _worker(side, self.file, pair=number, deadline=self.deadline) for side in order
            )
            workers = [stack.enter_context(child) for child in children]
            for child in workers:
                child.tell("load")
            base, patched = workers if number % 2 == 0 else workers[::-1]
            yield _Pair(number, base, patched)

    def compare(self, result: BenchResult, pattern: str) -> None:
        """List the cases and compare their results, by children that time nothing."""
        with self._pair(0) as pair:
            cases = _matching(pair.listed(), pattern)
            result.cases = [CaseResult(info) for info in cases]
            for case in result.cases:
                if not case.info.not_compared:
                    with pair.turn(case):
                        _compare(pair, case, self.sides[1].log.with_name("results"))
            result.ceilings = _ceilings(pair.base, cases)

    def time(self, result: BenchResult) -> None:
        """Measure by pair after pair of processes until the claim is decided, or often enough."""
        measured, spent = 0, 0.0
        while result.of(CaseVerdict.UNDECIDED) and measured < LOOKS[-1]:
            started = time.monotonic()
            if self.deadline - started <= spent:
                break
            look = next(pairs for pairs in LOOKS if pairs > measured)
            numbers = range(measured + 1, min(measured + self.abreast, look) + 1)
            with contextlib.ExitStack() as stack:
                pairs = [stack.enter_context(self._pair(number)) for number in numbers]
                for pair in pairs:
                    pair.listed()
                cases = result.of(CaseVerdict.UNDECIDED)
                for pair, case in itertools.product(pairs, cases):
                    if case.verdict is CaseVerdict.UNDECIDED:
                        with pair.turn(case):
                            self._rounds(pair, case)
            measured, spent = numbers[-1], time.monotonic() - started
            if measured == look:
                for case in result.of(CaseVerdict.UNDECIDED):
                    judge_case(case, self.claim)

    def _rounds(self, pair: _Pair, case: CaseResult) -> None:
        """Measure in turns; who goes first changes from round to round and from pair to pair."""
        prepared = pair.ask(case, PreparedCase, "prepare", seed=pair.number)
        if prepared is None:
            return
        seconds: tuple[list[float], list[float]] = ([], [])
        sides = [(pair.base, case.base, seconds[0]), (pair.patched, case.patched, seconds[1])]
        for turn in range(pair.number, pair.number + self.claim.rounds_a_pair):
            # The first pair has the number 1, and begins with the base.
            for child, side, rounds in sides if turn % 2 else sides[::-1]:
                measured = child.ask(MeasuredRound, "measure")
                rounds.append(short(measured.seconds))
                side.samples = measured.samples
        for (_, side, rounds), inputs in zip(sides, prepared, strict=True):
            side.seconds.append(rounds)
            side.memory, side.sets = inputs.memory, inputs.sets


def _compare(pair: _Pair, case: CaseResult, file: Path) -> None:
    """Compare what both sides compute, over a file."""
    computed = pair.ask(case, ComputedCase, "compute")
    if computed is None:
        return
    try:
        pair.patched.ask(Acknowledged, "hand_over", file=str(file))
        compared = pair.base.ask(ComparedResults, "compare", case=case.info.name, file=str(file))
    except _TroubleError as trouble:
        if trouble.kind in _FATAL:
            raise
        text = f"its results cannot be compared: {trouble.text}"
        case.settle(CaseVerdict.UNAVAILABLE, text, lasting=False)
    else:
        judge_results(case, (computed[0].unlike, computed[1].unlike), compared)
    finally:
        file.unlink(missing_ok=True)


def _matching(
    listed: tuple[Sequence[CaseInfo], Sequence[CaseInfo]], pattern: str
) -> list[CaseInfo]:
    """Return the cases that were asked for; both sides must have the same."""
    base, patched = (
        {info.name: info for info in infos if re.search(pattern, info.name)} for infos in listed
    )
    trouble = ""
    for name in (*base, *patched):
        if name not in base or name not in patched:
            side = "base" if name in base else "patched tree"
            trouble = f"the case {name} is there on the {side} only: a claim needs both sides"
        elif base[name] != patched[name]:
            trouble = (
                f"the case {name} is described otherwise on the patched tree: "
                "only what differs in the trees may differ"
            )
        if trouble:
            raise _StopError(CaseVerdict.FAILED, trouble)
    if not base:
        which = f"no case matches {pattern!r}" if pattern else "no case"
        names = ", ".join(info.name for info in listed[0]) or "none"
        raise _StopError(CaseVerdict.FAILED, f"{which}: the file has {names}")
    return [*base.values()]


def _ceilings(child: _Worker, cases: Sequence[CaseInfo]) -> Ceilings | None:
    """Measure what the machine can do at best, where some case can be set against it."""
    matmul = sorted({info.matmul for info in cases if info.flops and info.matmul})
    if not matmul and not any(info.bytes_moved for info in cases):
        return None
    try:
        best = child.ask(Ceilings, "ceilings", matmul=matmul)
    except _TroubleError as trouble:
        if trouble.kind in _FATAL:
            raise _StopError.at("while the ceilings were measured", trouble) from trouble
        return None  # nothing is claimed about them
    rates = {name: short(rate) for name, rate in best.matmul_rate.items()}
    return best.model_copy(update={"copy_rate": short(best.copy_rate), "matmul_rate": rates})


def conclude(result: BenchResult, claim: Claim) -> tuple[Outcome, str, bool]:
    """Return outcome, reason and whether the same again would give the same."""
    failed = result.of(CaseVerdict.FAILED)
    lasting = result.lasting and all(case.lasting for case in failed)
    if result.trouble and (result.verdict is CaseVerdict.FAILED or not failed):
        more = f" ({_cases(result.unmeasured)} not measured)" if result.unmeasured else ""
        broken = result.verdict is CaseVerdict.FAILED
        outcome = Outcome.FAILED if broken else Outcome.UNAVAILABLE
        return outcome, result.trouble + more, lasting and broken
    if failed:
        return Outcome.FAILED, _first(failed), lasting
    unclear = [*result.of(CaseVerdict.UNAVAILABLE), *result.of(CaseVerdict.UNDECIDED)]
    if unclear:
        return Outcome.UNAVAILABLE, _first(unclear), False
    ratios = [case.ratio for case in result.cases if case.ratio is not None]
    if len(ratios) == 1:
        speed = str(ratios[0])
        noise = ""
    else:
        medians = [ratio.median for ratio in ratios]
        speed = f"{number(min(medians))}x to {number(max(medians))}x"
        noise = ", all of it noise" if all(ratio.is_noise for ratio in ratios) else ""
    claimed = f"at least {claim.at_least:g} is claimed{_not_compared(result)}"
    reason = f"{_cases(len(ratios))}: {speed} the base's speed{noise}; {claimed}"
    return Outcome.PASSED, reason, True


def _not_compared(result: BenchResult) -> str:
    """Say of how many cases the results were not compared, and why."""
    whys = [case.info.not_compared for case in result.cases if case.info.not_compared]
    if not whys:
        return ""
    some = "" if len(whys) == len(result.cases) else f" in {_cases(len(whys))}"
    return f"; results not compared{some}: {'; '.join(dict.fromkeys(whys))}"


def _first(cases: list[CaseResult]) -> str:
    more = f" (and {_cases(len(cases) - 1)} more)" if len(cases) > 1 else ""
    return f"{cases[0].info.name}: {cases[0].text}{more}"


def _cases(count: int) -> str:
    return f"{count} case{'s' if count != 1 else ''}"


def case_details(case: CaseResult, ceilings: Ceilings | None) -> dict[str, JsonValue]:
    """Return what the record keeps of a case: seconds, bytes, and what follows from them."""
    info, ratio = case.info, case.ratio
    details: dict[str, JsonValue] = {
        "case": info.name,
        "verdict": str(case.verdict),
        "text": case.text,
        "bytes_moved": info.bytes_moved,
        "flops": info.flops,
        **({"matmul": info.matmul} if info.matmul else {}),
        "results": str(case.results.finding) if case.results else None,
        "not_compared": info.not_compared,
        "rtol": info.rtol,
        "atol": info.atol,
        "base": _side_details(case.base, info, ceilings),
        "patched": _side_details(case.patched, info, ceilings),
    }
    if ratio is not None:
        details["rounds"] = sum(len(rounds) for rounds in case.patched.seconds)
        details["pairs"] = [*case.ratios]
        details["ratio"] = {**vars(ratio), "noise": ratio.is_noise}
    if case.memory_ratio is not None and case.base.memory:
        details["memory_ratio"] = case.memory_ratio
    return details


def _side_details(
    measured: Measurements, info: CaseInfo, ceilings: Ceilings | None
) -> dict[str, JsonValue]:
    details: dict[str, JsonValue] = {"peak_bytes": measured.memory, "input_sets": measured.sets}
    if not measured.seconds:
        return details
    time = measured.time
    details |= {
        "seconds": time.median,
        "low": time.low,
        "high": time.high,
        "rounds": [*itertools.chain(*measured.seconds)],
        "samples": measured.samples,
    }
    best = ceilings.matmul_rate.get(info.matmul or "") if ceilings else None
    for amount, rate, part, ceiling in (
        (info.bytes_moved, "bytes_per_second", "of_copy", ceilings and ceilings.copy_rate),
        (info.flops, "flops_per_second", "of_matmul", best),
    ):
        if amount:
            details[rate] = short(amount / time.median)
            if ceiling:
                details[part] = short(amount / time.median / ceiling)
    return details


def ceiling_details(ceilings: Ceilings | None) -> JsonValue:
    """Return what the record keeps of what the machine can do at best."""
    if ceilings is None:
        return None
    return {
        "device": ceilings.device,
        "copy_bytes_per_second": ceilings.copy_rate,
        "matmul_flops_per_second": {**ceilings.matmul_rate},
    }
