"""Run one bench: several pairs of child processes time the base and the patched tree in turns.

A child process reads requests, lines of JSON (`{"do": …}`), and answers each by a line on
standard output: one of the models below, or a `Refusal`.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import select
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from subprocess import PIPE, Popen, TimeoutExpired
from typing import IO, Annotated, Final, Literal, NamedTuple, TypeVar

from pydantic import Field, ValidationError

from contribbot import process
from contribbot.bench.verdict import (
    LOOKS,
    BenchResult,
    CaseInfo,
    CaseResult,
    Claim,
    Positive,
    Results,
    judge_case,
    short,
)
from contribbot.errors import check_stopping
from contribbot.markdown import shortened
from contribbot.model.base import Model
from contribbot.model.record import CaseVerdict

#: The longest part of an error that is shown, in characters; the log has the whole error.
_SHOWN: Final = 240
#: Seconds between two checks of a child process that has not answered yet.
_LOOK: Final = 0.25
#: Kinds of trouble after which a child process cannot measure any more.
_FATAL: Final = frozenset({"gone", "hung", "fault", "lost", "missing"})
_LOADING: Final = "cannot be loaded"

#: Why a child process could not do what a request asked.
#: `error`: the file or the tree's code raised. `memory`: there is not enough memory.
#: `fault`: the tree's code broke the GPU's context. `lost`: the GPU went away.
#: `missing`: the machine lacks something.
RefusalKind = Literal["error", "memory", "fault", "lost", "missing"]


class Refusal(Model):
    """The answer to a request that failed; `error` is `ExceptionType: message`."""

    kind: RefusalKind
    error: str


class ListedCases(Model):
    """The answer to `load`: the cases of the imported file, in the file's order."""

    cases: Annotated[tuple[CaseInfo, ...], Field(strict=False)]


class PreparedCase(Model):
    """The answer to `prepare`: a case has run once, and has `sets` sets of inputs, used in turns.

    `memory` is the peak of a run in bytes on the GPU, without the inputs; None: on the CPU.
    """

    memory: Annotated[int, Field(ge=0)] | None
    results: Results | None
    sets: Annotated[int, Field(ge=1)]


class MeasuredRound(Model):
    """The answer to `measure`: the median seconds of a call in one round of `samples` samples."""

    seconds: Positive
    samples: Annotated[int, Field(ge=1)]
    #: A call's seconds in a series of calls on a GPU, host time included; None: not measured.
    called: Positive | None


AnswerT = TypeVar("AnswerT", bound=Model)


@dataclass(frozen=True)
class BenchSide:
    """How to start child processes on one tree; `name` is `base` or `patched tree`."""

    name: str
    checks: Path  # the folder of the bench file; a child process runs in this folder
    env: Mapping[str, str]
    log: Path  # gets the output of the child processes


class _TroubleError(Exception):
    """A child process failed at a request, or (`side` is empty) the file cannot be measured.

    `gone`: the process crashed or was killed; `hung`: the process did not answer in time.
    """

    def __init__(
        self, kind: RefusalKind | Literal["gone", "hung"], text: str, side: str = ""
    ) -> None:
        super().__init__(text)
        self.side, self.kind, self.text = side, kind, text
        #: `verdict`: on the patch's claim; `lasting`: whether another run would end the same way.
        elsewhere = kind in {"memory", "lost", "missing"}
        self.verdict = CaseVerdict.UNAVAILABLE if elsewhere else CaseVerdict.FAILED
        self.lasting = kind == "error"
        self.fatal = kind in _FATAL


@dataclass
class _Worker:
    """A running child process of a bench, with the open descriptor of its log."""

    side: str
    child: Popen[bytes]
    log: int
    deadline: float
    received: bytes = b""

    def ask(self, answer: type[AnswerT], do: str, **more: object) -> AnswerT:
        """Send a request and return the answer; raise _TroubleError on a refusal."""
        self.tell(do, **more)
        return self.hear(answer)

    def tell(self, do: str, **more: object) -> None:
        """Send a request; `hear` waits for the answer."""
        # `hear` notices that the process has ended.
        with contextlib.suppress(BrokenPipeError):
            os.write(_descriptor(self.child.stdin), json.dumps({"do": do, **more}).encode() + b"\n")

    def hear(self, answer: type[AnswerT]) -> AnswerT:
        """Wait for the answer to the last request; return a model, or raise _TroubleError."""
        answered = self._line()
        with contextlib.suppress(ValidationError):
            refusal = Refusal.model_validate_json(answered)
            line = refusal.error.strip().partition("\n")[0]
            raise _TroubleError(refusal.kind, shortened(line, _SHOWN), self.side)
        try:
            return answer.model_validate_json(answered)
        except ValidationError as error:
            first = error.errors()[0]
            where = ".".join(map(str, first["loc"]))
            raise self._gone(f"its answer makes no sense: {where}: {first['msg']}") from error

    def _line(self) -> bytes:
        answers = _descriptor(self.child.stdout)
        while b"\n" not in self.received:
            if time.monotonic() >= self.deadline:
                text = "hung, or the bench's timeout is too short: no answer in time"
                raise self._gone(text, "hung")
            ready = select.select([answers], [], [], _LOOK)[0]
            chunk = os.read(answers, 65536) if ready else b""
            # Programs that the child process started may keep the pipe open after its end.
            if not chunk and (ready or self.child.poll() is not None):
                raise self._gone(self._ended())
            self.received += chunk
        line, _, self.received = self.received.partition(b"\n")
        return line

    def _ended(self) -> str:
        """Return how a child process without an answer ended, such as `crashed: SIGSEGV`."""
        try:
            code = self.child.wait(1)
        except TimeoutExpired:
            return "closed its standard output"
        if code < 0:
            return f"crashed: {process.signal_name(-code)}"
        size = os.fstat(self.log).st_size
        tail = os.pread(self.log, _SHOWN, max(0, size - _SHOWN)).decode(errors="replace")
        said = tail.rstrip().rpartition("\n")[2]
        return f"ended early with exit status {code}" + (f": {said}" if said else "")

    def _gone(self, text: str, kind: Literal["gone", "hung"] = "gone") -> _TroubleError:
        check_stopping()
        process.kill_group(self.child)
        return _TroubleError(kind, text, self.side)


def _descriptor(pipe: IO[bytes] | None) -> int:
    assert pipe is not None  # noqa: S101  each child is started with both pipes
    return pipe.fileno()


@contextlib.contextmanager
def _worker(side: BenchSide, file: str, *, pair: int, deadline: float) -> Iterator[_Worker]:
    """Start a child process of a pair; kill it and its descendants after the `with` block."""
    with (
        side.log.open("a+b") as log,
        process.started(
            [sys.executable, *arguments(file)],
            cwd=side.checks,
            # The same seed on both trees, so that sets of strings have the same order.
            env={"PYTHONHASHSEED": str(pair), **side.env},
            stdin=PIPE,
            stdout=PIPE,
            stderr=log,
        ) as child,
    ):
        try:
            yield _Worker(side.name, child, log.fileno(), deadline)
        finally:
            # Also after success: programs that the child process started may still run.
            process.kill_group(child)
            child.wait()


def arguments(file: str) -> list[str]:
    """Return Python's arguments to start a process that measures a bench file."""
    return ["-B", "-m", "contribbot.bench.child", file]


class _Pair(NamedTuple):
    """Two child processes of a bench: one of the base, one of the patched tree."""

    number: int
    base: _Worker
    patched: _Worker


def _prepare(
    pair: _Pair, case: CaseResult, results: str
) -> tuple[PreparedCase, PreparedCase] | None:
    """Let both processes prepare a case; return their answers, or None and set the verdict."""
    more = {"case": case.info.name, "seed": pair.number, "results": results}
    answers: list[PreparedCase] = []
    troubles: list[_TroubleError] = []
    for side in (pair.base, pair.patched):
        try:
            answers.append(side.ask(PreparedCase, "prepare", **more))
        except _TroubleError as trouble:
            if trouble.fatal:
                raise
            troubles.append(trouble)
    if not troubles:
        base, patched = answers
        case.results = patched.results or case.results
        if (base.results == "inputs") is (patched.results == "inputs"):
            return base, patched
        where = "base" if base.results == "inputs" else "patched tree"
        case.settle(CaseVerdict.FAILED, f"returns its inputs or nothing on the {where} only")
        return None
    last = troubles[-1]
    case.errors += [trouble.text for trouble in troubles]
    if any(trouble.kind == "memory" for trouble in troubles):
        text = f"not enough memory on this machine: {last.text}"
        case.settle(CaseVerdict.UNAVAILABLE, text, lasting=False)
    else:
        where = f"the {last.side} only" if answers else "both sides"
        case.settle(CaseVerdict.FAILED, f"fails on {where}: {last.text}")
    return None


def measure(
    file: str,
    cases: str,
    claim: Claim,
    sides: tuple[BenchSide, BenchSide],
    *,
    timeout: float,
    cores: int = 1,
) -> BenchResult:
    """Time the cases of a bench file whose names match the regex `cases`, and judge the claim.

    Up to `cores` child processes, at least two, load the file at the same time; only one measures.
    """
    # A pair has two processes.
    deadline = time.monotonic() + timeout
    session = _BenchSession(file, cases, claim, sides, deadline, max(1, cores // 2))
    result = session.result
    try:
        session.time()
    except _TroubleError as trouble:
        # A lack of the machine or a mistake of the file is the same on both trees.
        somewhere = trouble.side and trouble.kind != "missing"
        where = f"{session.doing} on the {trouble.side}: " if somewhere else ""
        result.trouble, result.lasting = where + trouble.text, trouble.lasting
        result.hung = trouble.kind == "hung"
        result.errors.append(trouble.text)
        # A file that cannot be loaded says nothing about the patch.
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
    pattern: str
    claim: Claim
    sides: tuple[BenchSide, BenchSide]
    deadline: float
    abreast: int  # the number of pairs that are loaded at the same time
    doing: str = _LOADING
    result: BenchResult = field(default_factory=BenchResult)

    @contextlib.contextmanager
    def _pair(self, number: int) -> Iterator[_Pair]:
        """Start a pair's two child processes; the base is started first in every second pair."""
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

    def time(self) -> None:
        """Measure pair after pair, until each case has a verdict or no time or pair is left."""
        measured, spent = 0, 0.0
        while measured < LOOKS[-1] and (not measured or self.result.of(CaseVerdict.UNDECIDED)):
            started = time.monotonic()
            if self.deadline - started <= spent:
                break
            look = next(pairs for pairs in LOOKS if pairs > measured)
            numbers = range(measured + 1, min(measured + self.abreast, look) + 1)
            with contextlib.ExitStack() as stack:
                self.doing = _LOADING
                pairs = [stack.enter_context(self._pair(number)) for number in numbers]
                # All pairs have to be loaded before the first is measured.
                listed = [
                    (pair.base.hear(ListedCases).cases, pair.patched.hear(ListedCases).cases)
                    for pair in pairs
                ]
                if not measured:
                    self.result.cases = [*map(CaseResult, _matching(listed[0], self.pattern))]
                for pair in pairs:
                    for case in self.result.of(CaseVerdict.UNDECIDED):
                        self._measure(pair, case)
                    # The next pair can use the memory of both processes.
                    for worker in (pair.base, pair.patched):
                        process.kill_group(worker.child)
            measured, spent = numbers[-1], time.monotonic() - started
            if measured == look:
                for case in self.result.of(CaseVerdict.UNDECIDED):
                    judge_case(case, self.claim)
            elif self.result.of(CaseVerdict.FAILED):
                return  # one failed case decides the claim

    def _measure(self, pair: _Pair, case: CaseResult) -> None:
        """Measure a case with a pair; fatal trouble of a process ends the whole bench."""
        self.doing = f"{case.info.name}:"
        try:
            number = self.result.cases.index(case)
            compared = self.claim.at_least > 1 and pair.number == 1
            results = self.sides[0].log.with_name(f"results{number}") if compared else ""
            if prepared := _prepare(pair, case, str(results)):
                self._rounds(pair, case, prepared)
        except _TroubleError as trouble:
            text = f"on the {trouble.side}: {trouble.text}"
            case.settle(trouble.verdict, text, lasting=trouble.lasting)
            if trouble.fatal:
                raise

    def _rounds(
        self, pair: _Pair, case: CaseResult, prepared: tuple[PreparedCase, PreparedCase]
    ) -> None:
        """Measure rounds on both trees; the tree that goes first alternates."""
        rounds: tuple[list[MeasuredRound], list[MeasuredRound]] = [], []
        sides = [*zip((pair.base, pair.patched), rounds, strict=True)]
        many = max(1, round(self.claim.rounds / LOOKS[0]))
        for turn in range(pair.number, pair.number + many):
            # The first pair has the number 1, and begins with the base.
            for child, measured in sides if turn % 2 else sides[::-1]:
                measured.append(child.ask(MeasuredRound, "measure"))
        for side, inputs, measured in zip((case.base, case.patched), prepared, rounds, strict=True):
            side.seconds.append([short(each.seconds) for each in measured])
            side.called.append([short(each.called) for each in measured if each.called])
            side.memory, side.sets, side.samples = inputs.memory, inputs.sets, measured[-1].samples


def _matching(
    listed: tuple[Sequence[CaseInfo], Sequence[CaseInfo]], pattern: str
) -> list[CaseInfo]:
    """Return the cases whose names match; _TroubleError: no cases, or other cases on one tree."""
    base, patched = (
        {info.name: info for info in infos if re.search(pattern, info.name)} for infos in listed
    )
    for name in {**base, **patched}:
        if base.get(name) != patched.get(name):
            how = "described otherwise" if name in base and name in patched else "not there"
            side = "base" if name not in base else "patched tree"
            raise _TroubleError("error", f"the case {name} is {how} on the {side}")
    if not base:
        which = f"no case matches {pattern!r}" if pattern else "no case"
        names = ", ".join(info.name for info in listed[0]) or "none"
        raise _TroubleError("error", f"{which}: the file has {names}")
    return [*base.values()]
