"""One bench: base and patched tree, compared by a first pair of children, then timed by several.

A child is asked by lines of JSON (`{"do": …}`) over a socket, and answers each by another: one of
the models below, or a `Refusal`.
"""

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
from subprocess import Popen, TimeoutExpired
from typing import Annotated, Final, Literal, TypeVar

from pydantic import Field, ValidationError

from contribbot import process
from contribbot.bench.verdict import (
    LOOKS,
    BenchResult,
    CaseInfo,
    CaseResult,
    CaseVerdict,
    Ceilings,
    Claim,
    ComparedResults,
    Positive,
    judge_case,
    judge_results,
    short,
)
from contribbot.errors import check_stopping
from contribbot.model.base import Model

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
#: What goes wrong before the first case.
_LOADING: Final = "cannot be loaded"

#: Why a child could not do what it was asked.
#: `error`: the file or the tree's code raised. `memory`: there is not enough memory.
#: `fault`: the tree's code broke the GPU's context. `lost`: the GPU went away.
#: `missing`: the machine lacks something. `uncomparable`: the result cannot be compared.
RefusalKind = Literal["error", "memory", "fault", "lost", "missing", "uncomparable"]


class Refusal(Model):
    """The child could not do what it was asked; `error` is `ExceptionType: message`."""

    kind: RefusalKind
    error: str


class ListedCases(Model):
    """To `load`: the file is imported, and these are its cases, in its order."""

    cases: Annotated[tuple[CaseInfo, ...], Field(strict=False)]


class PreparedCase(Model):
    """To `prepare`: a case has its inputs (so many sets, which take turns) and has run once.

    `memory` is the peak of a run in bytes on the device, without the inputs.
    """

    memory: Annotated[int, Field(ge=0)] | None
    sets: Annotated[int, Field(ge=1)]


class MeasuredRound(Model):
    """To `measure`: the median time of a call in one round, over so many samples."""

    seconds: Positive
    samples: Annotated[int, Field(ge=1)]
    #: The same of calls that follow each other on a GPU, with the host's part.
    called: Positive | None


class ComputedCase(Model):
    """To `compute`: a case has its results; `unlike` says how they differ when it runs again."""

    unlike: str


class Acknowledged(Model):
    """To `hand_over` and `release`: it is done."""


AnswerT = TypeVar("AnswerT", bound=Model)


@dataclass(frozen=True)
class BenchSide:
    """What one side's children are started with; `name` is `base` or `patched tree`."""

    name: str
    checks: Path  # holds the bench file; a child works in it
    env: Mapping[str, str]
    log: Path  # gets what they print


class _TroubleError(Exception):
    """A child did not do what it was asked, or (`side` is empty) its file cannot be measured.

    `gone`: it crashed, hung or was killed, and can be asked nothing more.
    """

    def __init__(self, kind: RefusalKind | Literal["gone"], text: str, side: str = "") -> None:
        super().__init__(text)
        self.side, self.kind, self.text = side, kind, text
        #: What it says of the claim, and whether the same again would say so.
        elsewhere = kind in {"memory", "lost", "missing"}
        self.verdict = CaseVerdict.UNAVAILABLE if elsewhere else CaseVerdict.FAILED
        self.lasting = kind == "error"
        self.fatal = kind in _FATAL


@dataclass
class _Worker:
    """A running child; `log` is a descriptor, since the file may be gone."""

    side: str
    child: Popen[bytes]
    channel: socket.socket
    log: int
    deadline: float
    received: bytes = b""

    def ask(self, answer: type[AnswerT], do: str, **more: object) -> AnswerT:
        """Ask for something and wait for the answer."""
        self.tell(do, **more)
        return self.hear(answer)

    def tell(self, do: str, **more: object) -> None:
        """Ask for something; `hear` waits for the answer."""
        # One that is gone is noticed when its answer is waited for.
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            self.channel.sendall(json.dumps({"do": do, **more}).encode() + b"\n")

    def hear(self, answer: type[AnswerT]) -> AnswerT:
        """Wait for the answer to what was asked."""
        line = self._line()
        with contextlib.suppress(ValidationError):
            refusal = Refusal.model_validate_json(line)
            raise _TroubleError(refusal.kind, _one_line(refusal.error), self.side)
        try:
            return answer.model_validate_json(line)
        except ValidationError as error:
            first = error.errors()[0]
            where = ".".join(map(str, first["loc"]))
            raise self._gone(f"its answer makes no sense: {where}: {first['msg']}") from error

    def _line(self) -> bytes:
        while b"\n" not in self.received:
            if time.monotonic() >= self.deadline:
                raise self._gone("hung, or the bench's timeout is too short: no answer in time")
            if os.fstat(self.log).st_size > FLOOD:
                raise self._gone("wrote too much output")
            if len(self.received) > _LONGEST:
                raise self._gone("its answer is too long")
            chunk = b""
            try:
                chunk = self.channel.recv(65536)
            except TimeoutError:
                # What it has started may hold its end of the channel open.
                if self.child.poll() is None:
                    continue
            except ConnectionResetError:
                pass
            if not chunk:
                raise self._gone(self._ended())
            self.received += chunk
        line, _, self.received = self.received.partition(b"\n")
        return line

    def _ended(self) -> str:
        """Say how a child ended that closed its channel."""
        try:
            code = self.child.wait(1)
        except TimeoutExpired:
            return "closed its channel"
        if code < 0:
            return f"crashed: {process.signal_name(-code)}"
        size = os.fstat(self.log).st_size
        tail = os.pread(self.log, _SHOWN, max(0, size - _SHOWN)).decode(errors="replace")
        said = tail.rstrip().rpartition("\n")[2]
        return f"ended early with exit status {code}" + (f": {said}" if said else "")

    def _gone(self, text: str) -> _TroubleError:
        check_stopping()
        process.kill_group(self.child)
        return _TroubleError("gone", text, self.side)


@contextlib.contextmanager
def _worker(side: BenchSide, file: str, *, pair: int, deadline: float) -> Iterator[_Worker]:
    """Start the child of a numbered pair; after the block it and all that it started are gone."""
    ours, theirs = socket.socketpair()
    ours.settimeout(_LOOK)
    with (
        ours, theirs, process.lifeline() as end, side.log.open("a+b") as log,
        Path(os.devnull).open("rb") as nothing,
    ):  # fmt: skip
        child = process.start(
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
        with process.tracked(child):
            try:
                yield _Worker(side.name, child, ours, log.fileno(), deadline)
            finally:
                # Also after a good end: what it left running is of no use to anyone.
                process.kill_group(child)
                child.wait()


def arguments(file: str) -> list[str]:
    """Return what Python is given to measure a bench file."""
    return ["-B", "-m", "contribbot.bench.child", file]


def _one_line(text: str) -> str:
    """Return the first line that says something, if need be its beginning."""
    line = next((line.strip() for line in text.splitlines() if line.strip()), "it said nothing")
    return line if len(line) <= _SHOWN else f"{line[:_SHOWN]}…"


@dataclass(frozen=True)
class _Pair:
    """A child on the base and one on the patched tree."""

    number: int
    base: _Worker
    patched: _Worker

    def listed(self) -> tuple[Sequence[CaseInfo], Sequence[CaseInfo]]:
        """Wait until both have imported the file."""
        return self.base.hear(ListedCases).cases, self.patched.hear(ListedCases).cases

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
                if trouble.fatal:
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
    result = session.result
    try:
        session.compare(cases)
        if not result.of(CaseVerdict.FAILED):  # nothing else can save it
            session.time()
    except _TroubleError as trouble:
        # What lacks lacks everywhere, and what is wrong with the file is so on both sides.
        somewhere = trouble.side and trouble.kind != "missing"
        where = f"{session.doing} on the {trouble.side}: " if somewhere else ""
        result.trouble, result.lasting = where + trouble.text, trouble.lasting
        # That a file cannot be loaded says nothing of the patch.
        loading = trouble.side and session.doing == _LOADING
        result.verdict = CaseVerdict.UNAVAILABLE if loading else trouble.verdict
    for case in result.of(CaseVerdict.UNDECIDED):
        if len(case.ratios) < LOOKS[0]:
            done = f"only {len(case.ratios)} of {LOOKS[0]} pairs of processes: raise `timeout`"
            stopped = result.trouble or result.of(CaseVerdict.FAILED)
            text = "not measured" if stopped else f"the timeout left time for {done}"
            result.unmeasured += 1
            case.settle(CaseVerdict.UNAVAILABLE, text, lasting=False)
    return result


@dataclass
class _BenchSession:
    file: str
    claim: Claim
    sides: tuple[BenchSide, BenchSide]
    deadline: float
    abreast: int  # pairs that are loaded at the same time
    doing: str = _LOADING
    result: BenchResult = field(default_factory=BenchResult)

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

    @contextlib.contextmanager
    def _turn(self, pair: _Pair, case: CaseResult) -> Iterator[None]:
        """Make trouble a case's verdict; what ends a child ends the bench."""
        self.doing = f"{case.info.name}:"
        try:
            yield
        except _TroubleError as trouble:
            text = f"on the {trouble.side}: {trouble.text}"
            case.settle(trouble.verdict, text, lasting=trouble.lasting)
            if trouble.fatal:
                raise
        self.doing = "between cases"
        pair.release()

    def compare(self, pattern: str) -> None:
        """List the cases and compare their results, by children that time nothing."""
        with self._pair(0) as pair:
            cases = _matching(pair.listed(), pattern)
            self.result.cases = [CaseResult(info) for info in cases]
            for case in self.result.cases:
                with self._turn(pair, case):
                    _compare(pair, case, self.sides[1].log.with_name("results"))
            self.doing = "while the ceilings were measured"
            self.result.ceilings = _ceilings(pair.base, cases)

    def time(self) -> None:
        """Measure by pair after pair of processes until the claim is decided, or often enough."""
        measured, spent = 0, 0.0
        while (cases := self.result.of(CaseVerdict.UNDECIDED)) and measured < LOOKS[-1]:
            started = time.monotonic()
            if self.deadline - started <= spent:
                break
            look = next(pairs for pairs in LOOKS if pairs > measured)
            numbers = range(measured + 1, min(measured + self.abreast, look) + 1)
            with contextlib.ExitStack() as stack:
                self.doing = _LOADING
                pairs = [stack.enter_context(self._pair(number)) for number in numbers]
                for pair in pairs:
                    pair.listed()
                for pair, case in itertools.product(pairs, cases):
                    if case.verdict is CaseVerdict.UNDECIDED:
                        with self._turn(pair, case):
                            self._rounds(pair, case)
            measured, spent = numbers[-1], time.monotonic() - started
            if measured == look:
                for case in self.result.of(CaseVerdict.UNDECIDED):
                    judge_case(case, self.claim)

    def _rounds(self, pair: _Pair, case: CaseResult) -> None:
        """Measure in turns; who goes first changes from round to round and from pair to pair."""
        prepared = pair.ask(case, PreparedCase, "prepare", seed=pair.number)
        if prepared is None:
            return
        sides = [(pair.base, case.base, _Rounds()), (pair.patched, case.patched, _Rounds())]
        for turn in range(pair.number, pair.number + self.claim.rounds_a_pair):
            # The first pair has the number 1, and begins with the base.
            for child, side, rounds in sides if turn % 2 else sides[::-1]:
                measured = child.ask(MeasuredRound, "measure")
                rounds.seconds.append(short(measured.seconds))
                if measured.called is not None:
                    rounds.called.append(short(measured.called))
                side.samples = measured.samples
        for (_, side, rounds), inputs in zip(sides, prepared, strict=True):
            side.seconds.append(rounds.seconds)
            side.called.append(rounds.called)
            side.memory, side.sets = inputs.memory, inputs.sets


@dataclass
class _Rounds:
    """What one process measures of one case; see `Measurements`."""

    seconds: list[float] = field(default_factory=list)
    called: list[float] = field(default_factory=list)


def _compare(pair: _Pair, case: CaseResult, file: Path) -> None:
    """Compare what both sides compute, over a file."""
    computed = pair.ask(case, ComputedCase, "compute")
    if computed is None:
        return
    try:
        pair.patched.ask(Acknowledged, "hand_over", file=str(file))
        compared = pair.base.ask(ComparedResults, "compare", case=case.info.name, file=str(file))
    except _TroubleError as trouble:
        if trouble.fatal:
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
    for name in {**base, **patched}:
        if name not in base or name not in patched:
            side = "base" if name in base else "patched tree"
            lacking = f"is there on the {side} only: a claim needs both sides"
            raise _TroubleError("error", f"the case {name} {lacking}")
        if base[name] != patched[name]:
            raise _TroubleError(
                "error",
                f"the case {name} is described otherwise on the patched tree: "
                "only what differs in the trees may differ",
            )
    if base and all(info.control for info in base.values()):
        raise _TroubleError("error", "all its cases are controls: the claim is about none")
    if not base:
        which = f"no case matches {pattern!r}" if pattern else "no case"
        names = ", ".join(info.name for info in listed[0]) or "none"
        raise _TroubleError("error", f"{which}: the file has {names}")
    return [*base.values()]


def _ceilings(child: _Worker, cases: Sequence[CaseInfo]) -> Ceilings | None:
    """Measure what the machine can do at best, where some case can be set against it."""
    matmul = sorted({info.matmul for info in cases if info.flops and info.matmul})
    if not matmul and not any(info.bytes_moved for info in cases):
        return None
    try:
        best = child.ask(Ceilings, "ceilings", matmul=matmul)
    except _TroubleError as trouble:
        if trouble.fatal:
            raise
        return None  # nothing is claimed about them
    rates = {name: short(rate) for name, rate in best.matmul_rate.items()}
    return best.model_copy(update={"copy_rate": short(best.copy_rate), "matmul_rate": rates})
