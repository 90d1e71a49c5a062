"""One side of a bench, as its parent sees it: a child that is asked, and that may crash or hang."""

from __future__ import annotations

import contextlib
import json
import os
import select
import socket
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal, TypeVar

from pydantic import BaseModel, ValidationError

from contribbot import process
from contribbot.bench.wire import Kind, Refused
from contribbot.process.children import kill_group, lifeline, start, tracked

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
