"""Killing commands that write, just before each change of a file of the queue."""

from __future__ import annotations

import random
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.conftest import Program
from tests.toy import Toy

#: Runs the program, or a text after `-c`, and kills it just before a change of a file of the
#: queue (0: never); prints how many changes there were. Python announces each (sys.audit).
KILLED = """
import os, signal, sys

queue, kill_at, changes = os.getcwd(), int(sys.argv[1]), 0
named = {"os.rename", "os.link", "os.symlink", "os.mkdir", "os.rmdir", "os.remove", "os.chmod",
         "os.chown", "os.truncate", "open"}
writes = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC


def hook(event, args):
    global changes
    if event not in named or event == "open" and not (args[2] or 0) & writes:
        return
    paths = [os.fsdecode(arg) for arg in args if isinstance(arg, str | bytes | os.PathLike)]
    # A name alone is one in a folder that is open, which may be the queue's.
    if any(path.startswith(queue) or not path.startswith("/") for path in paths[:2]):
        changes += 1
        if changes == kill_at:
            os.kill(os.getpid(), signal.SIGKILL)


sys.argv = sys.argv[2:]
if sys.argv[0] != "-c":
    from contribbot.cli.main import main
sys.addaudithook(hook)
try:
    if sys.argv[0] == "-c":
        exec(sys.argv.pop(1), {})
    else:
        sys.argv.insert(0, "contribbot")
        main()
finally:
    os.write(1, b"\\n%d" % changes)
"""


TORN: list[str] = []


@dataclass(frozen=True)
class Case:
    """A command that writes."""

    name: str
    prepare: Callable[[Toy], list[str]]  # makes the queue, and returns the command
    again: frozenset[int] = frozenset({0})  # what it may say when it had its effect already
    changes: bool = True  # whether it changes the queue; else it must leave it alone


def run(queue: Path, argv: list[str], kill_at: int = 0) -> tuple[int, int]:
    """Run a command; return its exit status and how many files it changed."""
    done = subprocess.run(
        [sys.executable, "-B", "-c", KILLED, str(kill_at), *argv],
        cwd=queue, capture_output=True, check=False, timeout=120,
    )  # fmt: skip
    return done.returncode, int(done.stdout.splitlines()[-1]) if done.stdout else 0


def state_of(queue: Path) -> dict[str, tuple[int, bytes]]:
    """Return what a change is to make as a whole: patches, and which versions and events there are.

    Events have their time, so that of journals the kinds are compared.
    """
    state = {}
    for path in sorted((*(queue / "patches").rglob("*"), *(queue / "history").rglob("*"))):
        content = path.read_bytes() if path.is_file() else b""
        if path.name == "journal.jsonl":
            continue
        if path.is_file() or path.is_relative_to(queue / "patches"):
            state[str(path.relative_to(queue))] = path.lstat().st_mode, content
    return state


@dataclass(frozen=True)
class Seen:
    """What was left after a kill."""

    step: int  # before which change it was killed
    killed: bool  # whether it was; else it had ended
    state: str  # `before`, `after` or `torn`
    listed: int  # what `contribbot queue list` said then
    again: int  # what the command said when it was run again
    final: str  # the state then


def at_each_step(
    case: Case, toy: Toy, place: Path, *, most: int = 10**6, seed: int = 0
) -> Iterator[Seen]:
    """Kill the command before each of its changes of the queue, or before some of them."""
    argv = case.prepare(toy)
    whole = shutil.copytree(toy.queue, place / "whole", symlinks=True)
    before = state_of(whole)
    # The first run also fills and sweeps the cache, by names that could be the queue's.
    run(shutil.copytree(toy.queue, place / "first", symlinks=True), argv)
    code, count = run(whole, argv)
    after = state_of(whole)
    assert (code, after != before) == (0, case.changes)

    def state(queue: Path) -> str:
        now = state_of(queue)
        return "after" if now == after else "before" if now == before else "torn"

    steps = [*range(1, count + 2)]  # one more than there are: it is not killed
    if len(steps) > most:
        chosen = random.Random(seed).sample(steps[1:-1], most - 2)  # noqa: S311  no secrets
        steps = [*range(count - most + 2, count + 2)]
    for step in steps:
        queue = shutil.copytree(toy.queue, place / f"step-{step}", symlinks=True)
        killed = run(queue, argv, step)[0] == -signal.SIGKILL
        # The next command finishes what was begun.
        first = state(queue)
        if first == "torn":
            done = Program(queue)("undo")
            assert done.code == 0, (step, done.err)
            assert state(queue) == "before", (step, done.out)
        listed = Program(queue)("queue", "list").code
        left = state(queue)
        TORN.append(first)
        again = run(queue, argv)[0] if argv[0] == "-c" else Program(queue)(*argv).code
        yield Seen(step, killed, left, listed, again, state(queue))
        shutil.rmtree(queue)
