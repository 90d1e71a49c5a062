"""One bench: base and patched tree, timed in turns by several pairs of children.

A child is asked by lines of JSON (`{"do": …}`) on its standard input, and answers each by a line on
its standard output: one of the models below, or a `Refusal`.
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
from typing import IO, Annotated, Final, Literal, TypeVar

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
from contribbot.model.base import Model
from contribbot.model.record import CaseVerdict

#: Characters of an error that are shown; the log has all.
_SHOWN: Final = 240
#: Seconds between two looks at a child that has not answered yet.
_LOOK: Final = 0.25
#: After these a child can measure nothing more.
_FATAL: Final = frozenset({"gone", "hung", "fault", "lost", "missing"})
_LOADING: Final = "cannot be loaded"

#: Why a child could not do what it was asked.
#: `error`: the file or the tree's code raised. `memory`: there is not enough memory.
#: `fault`: the tree's code broke the GPU's context. `lost`: the GPU went away.
#: `missing`: the machine lacks something.
RefusalKind = Literal["error", "memory", "fault", "lost", "missing"]


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
    results: Results | None
    sets: Annotated[int, Field(ge=1)]


class MeasuredRound(Model):
    """To `measure`: the median time of a call in one round, over so many samples."""

    seconds: Positive
    samples: Annotated[int, Field(ge=1)]
    #: The same of calls that follow each other on a GPU, with the host's part.
    called: Positive | None


AnswerT = TypeVar("AnswerT", bound=Model)


@dataclass(frozen=True)
class BenchSide:
    """The start of the children of one side; `name` is `base` or `patched tree`."""

    name: str
    checks: Path  # holds the bench file; a child works in it
    env: Mapping[str, str]
    log: Path  # gets what they print


class _TroubleError(Exception):
    """A child did not do what it was asked, or (`side` is empty) its file cannot be measured.

    `gone`: it crashed, hung or was killed, and can be asked nothing more.
    """

    def __init__(
        self, kind: RefusalKind | Literal["gone", "hung"], text: str, side: str = ""
    ) -> None:
        super().__init__(text)
        self.side, self.kind, self.text = side, kind, text
        #: The verdict on the claim, and whether the same again would give the same.
        elsewhere = kind in {"memory", "lost", "missing"}
        self.verdict = CaseVerdict.UNAVAILABLE if elsewhere else CaseVerdict.FAILED
        self.lasting = kind == "error"
        self.fatal = kind in _FATAL


@dataclass
class _Worker:
    """A running child; `log` is a descriptor, since the file may be gone."""

    side: str
    child: Popen[bytes]
    log: int
    deadline: float
    received: bytes = b""

    def ask(self, answer: type[AnswerT], do: str, **more: object) -> AnswerT:
        """Ask for something and wait for the answer."""
        self.tell(do, **more)
        return self.hear(answer)

    def tell(self, do: str, **more: object) -> None:
        """Ask for something; `hear` waits for the answer."""
        # A child that is gone is noticed when its answer is waited for.
        with contextlib.suppress(BrokenPipeError):
            os.write(_descriptor(self.child.stdin), json.dumps({"do": do, **more}).encode() + b"\n")

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
        answers = _descriptor(self.child.stdout)
        while b"\n" not in self.received:
            if time.monotonic() >= self.deadline:
                text = "hung, or the bench's timeout is too short: no answer in time"
                raise self._gone(text, "hung")
            ready = select.select([answers], [], [], _LOOK)[0]
            chunk = os.read(answers, 65536) if ready else b""
            # Programs that the child has started may hold its end of the pipe open.
            if not chunk and (ready or self.child.poll() is not None):
                raise self._gone(self._ended())
            self.received += chunk
        line, _, self.received = self.received.partition(b"\n")
        return line

    def _ended(self) -> str:
        """Say how a child ended that closed its channel."""
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
    """Start the child of a numbered pair; after the block it and all that it started are gone."""
    with process.lifeline() as end, side.log.open("a+b") as log:
        child = process.start(
            [sys.executable, *arguments(file)],
            cwd=side.checks,
            # Alike on both sides: sets and dicts of strings are in the same order.
            env={"PYTHONHASHSEED": str(pair), **side.env, "CONTRIBBOT_LIFELINE": str(end)},
            stdin=PIPE,
            stdout=PIPE,
            stderr=log,
            pass_fds=(end,),
        )
        with process.tracked(child):
            try:
                yield _Worker(side.name, child, log.fileno(), deadline)
            finally:
                # Also after a good end: programs that the child left running are of no use.
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
    """Two child processes of a bench: one of the base, one of the patched tree."""

    number: int
    base: _Worker
    patched: _Worker

    def listed(self) -> tuple[Sequence[CaseInfo], Sequence[CaseInfo]]:
        """Wait until both have imported the file."""
        return self.base.hear(ListedCases).cases, self.patched.hear(ListedCases).cases

    def prepare(self, case: CaseResult, results: str) -> tuple[PreparedCase, PreparedCase] | None:
        """Let both make their inputs; None where one or both cannot, which settles the case."""
        more = {"case": case.info.name, "seed": self.number, "results": results}
        answers: list[PreparedCase] = []
        troubles: list[_TroubleError] = []
        for side in (self.base, self.patched):
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

    def end(self) -> None:
        """End both children, so that the next pair has the machine's memory."""
        for side in (self.base, self.patched):
            process.kill_group(side.child)


def measure(
    file: str,
    cases: str,
    claim: Claim,
    sides: tuple[BenchSide, BenchSide],
    *,
    timeout: float,
    cores: int = 1,
) -> BenchResult:
    """Time the cases of a bench file whose name holds `cases`, and judge the claim.

    Children that are not measured load side by side, as many as there are cores.
    """
    # Two processes a pair.
    deadline = time.monotonic() + timeout
    session = _BenchSession(file, cases, claim, sides, deadline, max(1, cores // 2))
    result = session.result
    try:
        session.time()
    except _TroubleError as trouble:
        # A lack of the machine and a mistake of the file are the same on both sides.
        somewhere = trouble.side and trouble.kind != "missing"
        where = f"{session.doing} on the {trouble.side}: " if somewhere else ""
        result.trouble, result.lasting = where + trouble.text, trouble.lasting
        result.hung = trouble.kind == "hung"
        result.errors.append(trouble.text)
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
    pattern: str
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

    def time(self) -> None:
        """Measure by pair after pair of processes until the claim is decided, or often enough."""
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
                listed = [pair.listed() for pair in pairs]
                if not measured:
                    self.result.cases = [*map(CaseResult, _matching(listed[0], self.pattern))]
                for pair in pairs:
                    for case in self.result.of(CaseVerdict.UNDECIDED):
                        self._measure(pair, case)
                    pair.end()
            measured, spent = numbers[-1], time.monotonic() - started
            if measured == look:
                for case in self.result.of(CaseVerdict.UNDECIDED):
                    judge_case(case, self.claim)
            elif self.result.of(CaseVerdict.FAILED):
                return  # nothing else can save the claim

    def _measure(self, pair: _Pair, case: CaseResult) -> None:
        """Measure in turns; trouble is the verdict of the case, and ends the bench with a child."""
        self.doing = f"{case.info.name}:"
        try:
            number = self.result.cases.index(case)
            compared = self.claim.at_least > 1 and pair.number == 1
            results = self.sides[0].log.with_name(f"results{number}") if compared else ""
            if prepared := pair.prepare(case, str(results)):
                self._rounds(pair, case, prepared)
        except _TroubleError as trouble:
            text = f"on the {trouble.side}: {trouble.text}"
            case.settle(trouble.verdict, text, lasting=trouble.lasting)
            if trouble.fatal:
                raise

    def _rounds(
        self, pair: _Pair, case: CaseResult, prepared: tuple[PreparedCase, PreparedCase]
    ) -> None:
        """Measure rounds; who goes first changes from round to round and from pair to pair."""
        rounds: tuple[list[MeasuredRound], list[MeasuredRound]] = [], []
        sides = [*zip((pair.base, pair.patched), rounds, strict=True)]
        for turn in range(pair.number, pair.number + self.claim.rounds_a_pair):
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
    """Return the cases that were asked for; both sides must have the same."""
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
