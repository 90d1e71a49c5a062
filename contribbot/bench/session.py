"""One bench: base and patched tree, compared by a first pair of children, then timed by several."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import re
import select
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
    CaseInfo,
    CaseResult,
    Ceilings,
    Claim,
    Compared,
    Computed,
    Done,
    Kind,
    Loaded,
    Measured,
    Measurements,
    Prepared,
    Refused,
    Verdict,
    is_noise,
    judge_case,
    judge_results,
    number,
    ratio_text,
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

AnswerT = TypeVar("AnswerT", bound=BaseModel)


@dataclass(frozen=True)
class Side:
    """What one side's children are started with; `name` is `base` or `patched tree`."""

    name: str
    checks: Path  # holds the bench file; a child works in it
    env: Mapping[str, str]
    log: Path  # gets what they print


class TroubleError(Exception):
    """A child did not do what it was asked.

    `gone`: it crashed, hung or was killed, and can be asked nothing more.
    """

    def __init__(self, side: str, kind: Kind | Literal["gone"], text: str) -> None:
        super().__init__(f"{side}: {text}")
        self.side = side
        self.kind = kind
        self.text = text


class Worker:
    """A running child. Made by `worker`; `log` is a descriptor, since the file may be gone."""

    def __init__(
        self, side: Side, child: Popen[bytes], channel: socket.socket, *, log: int, deadline: float
    ) -> None:
        self.side = side
        self._child = child
        self._channel = channel
        self._log = log
        self._deadline = deadline
        self._begun = b""

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
                refused = Refused.model_validate(document)
                raise TroubleError(self.side.name, refused.kind, _one_line(refused.error))
            return answer.model_validate(document)
        except ValidationError as error:
            first = error.errors()[0]
            where = ".".join(str(part) for part in first["loc"])
            said = f"its answer makes no sense: {where}: {first['msg']}"
            raise self._gone(said) from error
        except ValueError as error:
            raise self._gone("its answer is no JSON") from error

    def _line(self) -> bytes:
        while b"\n" not in self._begun:
            left = self._deadline - time.monotonic()
            if left <= 0:
                raise self._gone("hung, or the bench's timeout is too short: no answer in time")
            if os.fstat(self._log).st_size > FLOOD:
                raise self._gone("wrote too much output")
            if not select.select([self._channel], [], [], min(left, _LOOK))[0]:
                # What it has started may hold its end of the channel open.
                if self._child.poll() is not None:
                    raise self._ended()
                continue
            try:
                chunk = self._channel.recv(65536)
            except ConnectionResetError:
                chunk = b""
            if not chunk:
                raise self._ended()
            self._begun += chunk
            if len(self._begun) > _LONGEST:
                raise self._gone("its answer is too long")
        line, _, self._begun = self._begun.partition(b"\n")
        return line

    def _ended(self) -> TroubleError:
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

    def _gone(self, text: str) -> TroubleError:
        process.check_stopping()
        kill_group(self._child)
        return TroubleError(self.side.name, "gone", text)


@contextlib.contextmanager
def worker(side: Side, file: str, *, number: int, deadline: float) -> Iterator[Worker]:
    """Start the child of a numbered pair; after the block it and all that it started are gone."""
    ours, theirs = socket.socketpair()
    with (
        ours, theirs, lifeline() as end, side.log.open("ab") as log,
        Path(os.devnull).open("rb") as nothing,
    ):  # fmt: skip
        child = start(
            [sys.executable, *arguments(file)],
            cwd=side.checks,
            env={
                # Alike on both sides: sets and dicts of strings are in the same order.
                "PYTHONHASHSEED": str(number),
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
                yield Worker(side, child, ours, log=log.fileno(), deadline=deadline)
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


#: After these a child can measure nothing more.
_FATAL: Final = frozenset({"gone", "fault", "lost", "missing"})
_TELLING: Final = frozenset({Verdict.PASSED, Verdict.UNDECIDED})


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
                seconds.append(short(measured.seconds))
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
        return _shortened(child.ask(Ceilings, "ceilings", matmul=matmul))
    except TroubleError as trouble:
        if trouble.kind in _FATAL:
            raise _stop("while the ceilings were measured", trouble) from trouble
        # Nothing is claimed about them.
        return None


def _shortened(ceilings: Ceilings) -> Ceilings:
    rates = {name: short(rate) for name, rate in ceilings.matmul_rate.items()}
    return ceilings.model_copy(
        update={"copy_rate": short(ceilings.copy_rate), "matmul_rate": rates}
    )


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


def conclude(result: BenchResult, claim: Claim) -> tuple[Outcome, str, bool]:
    """Return outcome, reason and whether the same again would give the same."""
    failed = result.failed
    lasting = result.lasting and all(case.lasting for case in failed)
    if result.trouble and (result.verdict is Verdict.FAILED or not failed):
        more = f" ({_cases(result.unmeasured)} not measured)" if result.unmeasured else ""
        outcome = Outcome.FAILED if result.verdict is Verdict.FAILED else Outcome.UNAVAILABLE
        return outcome, result.trouble + more, lasting and outcome is Outcome.FAILED
    if failed:
        return Outcome.FAILED, _first(failed), lasting
    unclear = [*_of(result, Verdict.UNAVAILABLE), *_of(result, Verdict.UNDECIDED)]
    if unclear:
        return Outcome.UNAVAILABLE, _first(unclear), False
    return Outcome.PASSED, _passed(result, claim), True


def _passed(result: BenchResult, claim: Claim) -> str:
    ratios = [case.ratio for case in result.cases if case.ratio is not None]
    claimed = f"at least {claim.at_least:g} is claimed{_not_compared(result)}"
    count = _cases(len(ratios))
    if len(ratios) == 1:
        return f"{count}: {ratio_text(ratios[0])} the base's speed; {claimed}"
    medians = [ratio.median for ratio in ratios]
    found = f"{number(min(medians))}x to {number(max(medians))}x the base's speed"
    noise = ", all of it noise" if all(is_noise(ratio) for ratio in ratios) else ""
    return f"{count}: {found}{noise}; {claimed}"


def _not_compared(result: BenchResult) -> str:
    """Say of how many cases the results were not compared, and why."""
    whys = [case.info.not_compared for case in result.cases if case.info.not_compared]
    if not whys:
        return ""
    some = "" if len(whys) == len(result.cases) else f" in {_cases(len(whys))}"
    return f"; results not compared{some}: {'; '.join(dict.fromkeys(whys))}"


def _of(result: BenchResult, verdict: Verdict) -> list[CaseResult]:
    return [case for case in result.cases if case.verdict is verdict]


def _first(cases: list[CaseResult]) -> str:
    more = f" (and {_cases(len(cases) - 1)} more)" if len(cases) > 1 else ""
    return f"{cases[0].info.name}: {cases[0].text}{more}"


def _cases(count: int) -> str:
    return f"{count} case{'s' if count != 1 else ''}"


def case_details(case: CaseResult, ceilings: Ceilings | None) -> dict[str, JsonValue]:
    """Return what the record keeps of a case: seconds, bytes, and what follows from them."""
    details: dict[str, JsonValue] = {
        "case": case.info.name,
        "verdict": str(case.verdict),
        "text": case.text,
        "bytes_moved": case.info.bytes_moved,
        "flops": case.info.flops,
        **({"matmul": case.info.matmul} if case.info.matmul else {}),
        "results": str(case.results.finding) if case.results else None,
        "not_compared": case.info.not_compared,
        "rtol": case.info.rtol,
        "atol": case.info.atol,
        "base": _side(case.base, case.info, ceilings),
        "patched": _side(case.patched, case.info, ceilings),
    }
    if case.ratio is not None:
        details["rounds"] = sum(len(rounds) for rounds in case.patched.seconds)
        details["pairs"] = [*case.ratios]
        details["ratio"] = {
            "median": case.ratio.median,
            "low": case.ratio.low,
            "high": case.ratio.high,
            "confidence": case.ratio.confidence,
            "noise": is_noise(case.ratio),
        }
    if case.memory_ratio is not None and case.base.memory:
        details["memory_ratio"] = case.memory_ratio
    return details


def _side(taken: Measurements, info: CaseInfo, ceilings: Ceilings | None) -> dict[str, JsonValue]:
    details: dict[str, JsonValue] = {"peak_bytes": taken.memory, "input_sets": taken.sets}
    if not taken.seconds:
        return details
    time = taken.time
    details |= {
        "seconds": time.median,
        "low": time.low,
        "high": time.high,
        "rounds": [one for rounds in taken.seconds for one in rounds],
        "samples": taken.samples,
    }
    if info.bytes_moved:
        rate = info.bytes_moved / time.median
        details["bytes_per_second"] = short(rate)
        if ceilings is not None:
            details["of_copy"] = short(rate / ceilings.copy_rate)
    if info.flops:
        rate = info.flops / time.median
        details["flops_per_second"] = short(rate)
        ceiling = ceilings.matmul_rate.get(info.matmul or "") if ceilings is not None else None
        if ceiling:
            details["of_matmul"] = short(rate / ceiling)
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
