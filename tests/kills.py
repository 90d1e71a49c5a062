"""Killing commands that write, and looking at what is left of the queue.

Two ways. `at_each_step`: in a process that has imported everything, each run is a fork
that kills itself just before its first, second, third … change of a file of the queue,
so that no moment is left out. `at_random`: the real program, killed from outside.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import shutil
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from tests.toy import Toy

ROOT = Path(__file__).parent.parent
Tree = dict[str, tuple[int, str]]
#: What Python announces before it changes a file (sys.audit); `open` only where it writes.
CHANGES = frozenset({
    "os.rename", "os.link", "os.symlink", "os.mkdir", "os.rmdir", "os.remove", "os.chmod",
    "os.chown", "os.truncate", "open",
})  # fmt: skip


@dataclass(frozen=True)
class Case:
    """A command that writes.

    Attributes:
        name: How the test calls it.
        prepare: Makes the queue, and returns the command's arguments. `-c` and a text:
            that is run as Python.
        again: What the same command may say when it had its effect already.
        changes: Whether it changes the queue; else it must leave it alone.
    """

    name: str
    prepare: Callable[[Toy], list[str]]
    again: frozenset[int] = frozenset({0})
    changes: bool = True


@dataclass(frozen=True)
class Seen:
    """What was left after a kill.

    Attributes:
        step: Before which change, or after which time, it was killed.
        killed: Whether it was; else it had ended.
        state: `before`, `after` or `torn`.
        listed: What `contribbot list` said then.
        again: What the command said when it was run again.
        final: The state then.
    """

    step: str
    killed: bool
    state: str
    listed: int
    again: int
    final: str


def tree(folder: Path) -> Tree:
    """Return all that is in a folder: kinds, permissions, contents."""
    found: Tree = {}
    for path in sorted(folder.rglob("*")):
        inside = path.relative_to(folder).as_posix()
        mode = stat.S_IFMT(path.lstat().st_mode) | stat.S_IMODE(path.lstat().st_mode)
        if path.is_symlink():
            found[inside] = mode, str(path.readlink())
        else:
            found[inside] = mode, path.read_bytes().hex() if path.is_file() else ""
    return found


def state_of(queue: Path) -> Tree:
    """Return what a change is to make as a whole: patches, and which versions and events there are.

    Events have their time, so that of journals the kinds are compared.
    """
    found = tree(queue / "patches")
    for path in sorted((queue / "history").rglob("*")):
        if path.name == "journal.jsonl":
            rows = path.read_text().splitlines()
            found[f"journal of {path.parent.name}"] = 0, str([json.loads(r)["event"] for r in rows])
        elif path.is_file():
            found[f"history {path.name}"] = 0, path.read_bytes().hex()
    return found


@dataclass
class Bench:
    """A queue before a command, and after it.

    Attributes:
        template: The queue before it; never touched.
        argv: The command.
        before: What it holds.
        after: What the command makes of it.
    """

    template: Path
    argv: list[str]
    before: Tree
    after: Tree

    def state(self, queue: Path) -> str:
        """Return which of the two a queue is in."""
        now = state_of(queue)
        return "after" if now == self.after else "before" if now == self.before else "torn"

    def fresh(self, place: Path) -> Path:
        """Copy the queue before the command."""
        shutil.copytree(self.template, place, symlinks=True)
        return place


def run(queue: Path, argv: list[str]) -> subprocess.Popen[bytes]:
    """Start the real program in a queue."""
    command = argv if argv[0] == "-c" else ["-m", "contribbot", *argv]
    return subprocess.Popen(
        [sys.executable, *command], cwd=queue, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
    )


def bench_of(case: Case, toy: Toy, place: Path) -> tuple[Bench, float]:
    """Prepare a case and run it once to its end, twice to know how long that takes warm."""
    argv = case.prepare(toy)
    bench = Bench(toy.queue, argv, state_of(toy.queue), {})
    took = 0.0
    for number in range(2):
        queue = bench.fresh(place / f"whole-{number}")
        start = time.monotonic()
        child = run(queue, argv)
        _, said = child.communicate(timeout=120)
        took = time.monotonic() - start
        assert child.returncode == 0, said.decode()
        after = state_of(queue)
        assert case.changes == (after != bench.before)
        assert number == 0 or after == bench.after, "the command does not do the same twice"
        bench.after = after
    return bench, took


def at_random(case: Case, toy: Toy, place: Path, *, rounds: int, seed: int) -> Iterator[Seen]:
    """Kill the real program after random times.

    Half of the kills are spread over its whole run, half over the moments after it began
    to write, which are few.
    """
    bench, took = bench_of(case, toy, place)
    draw = random.Random(seed)  # noqa: S311  times to kill at, no secrets
    for number in range(rounds):
        queue = bench.fresh(place / f"random-{number}")
        child = run(queue, bench.argv)
        begun = number % 2 == 1
        delay = draw.uniform(0, 0.03 if begun else took * 1.1)
        if begun:
            while child.poll() is None and not list(queue.glob(".contribbot/txn-*")):
                time.sleep(0.0002)
        time.sleep(delay)
        child.kill()
        child.communicate()
        killed = child.returncode == -signal.SIGKILL
        listed = run(queue, ["list"])
        listed.communicate(timeout=60)
        state = bench.state(queue)
        second = run(queue, bench.argv)
        second.communicate(timeout=120)
        step = f"{'begun + ' if begun else ''}{delay:.4f} s"
        yield Seen(step, killed, state, listed.returncode, second.returncode, bench.state(queue))


def at_each_step(
    case: Case, toy: Toy, place: Path, *, most: int = 10**6, seed: int = 0
) -> Iterator[Seen]:
    """Kill the command before each of its changes of the queue, or before some of them."""
    bench, _ = bench_of(case, toy, place)
    given = place / "bench.json"
    given.write_text(
        json.dumps([str(bench.template), bench.argv, bench.before, bench.after, most, seed])
    )
    done = subprocess.run(
        [sys.executable, "-m", "tests.kills", str(given), str(place)],
        cwd=ROOT, capture_output=True, check=False, timeout=600,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr.decode()
    for line in done.stdout.splitlines():
        if line.startswith(b"SEEN "):
            yield Seen(**json.loads(line.removeprefix(b"SEEN ")))


def _changes(queue: Path, event: str, args: tuple[object, ...]) -> bool:
    """Say whether an announced event changes a file of a queue."""
    if event not in CHANGES:
        return False
    paths = [os.fsdecode(one) for one in args if isinstance(one, str | bytes | os.PathLike)]
    # A name alone is one in a folder that is open, which may be the queue's.
    if not any(path.startswith(str(queue)) or not path.startswith("/") for path in paths[:2]):
        return False
    flags = args[2] if event == "open" and isinstance(args[2], int) else os.O_CREAT
    return bool(flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC))


def _in_fork(queue: Path, argv: list[str], kill_at: int = 0) -> tuple[int, int]:
    """Run a command in a fork, which kills itself before a change (0: never).

    Returns:
        How it ended, and how many changes it made.
    """
    reading, writing = os.pipe()
    child = os.fork()
    if child:
        os.close(writing)
        with os.fdopen(reading) as pipe:
            said = pipe.read()
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), int(said or "0")
    seen = 0

    def hook(event: str, args: tuple[object, ...]) -> None:
        nonlocal seen
        if _changes(queue, event, args):
            seen += 1
            if seen == kill_at:
                os.kill(os.getpid(), signal.SIGKILL)

    code = 1
    try:
        os.chdir(queue)
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        sys.addaudithook(hook)
        code = _run_here(argv)
        os.write(writing, b"%d" % seen)
    finally:
        os._exit(code)


def _run_here(argv: list[str]) -> int:
    from contribbot.cli.main import app

    try:
        if argv[0] == "-c":
            sys.argv = ["-c", *argv[2:]]
            exec(argv[1], {})  # noqa: S102  the text is the test's own
        else:
            app(argv)
    except SystemExit as error:
        return error.code if isinstance(error.code, int) else 1
    return 0


def main() -> None:
    """Serve `at_each_step`, in a process of its own."""
    from contribbot import files

    template, argv, before, after, most, seed = json.loads(Path(sys.argv[1]).read_text())
    place = Path(sys.argv[2])
    bench = Bench(
        Path(template), argv,
        {name: (mode, content) for name, (mode, content) in before.items()},
        {name: (mode, content) for name, (mode, content) in after.items()},
    )  # fmt: skip
    # What is imported here need not be imported in each fork; its bytecode is no change.
    sys.dont_write_bytecode = True
    with files.lock(place / "warm.lock", "imports"):
        os.chdir(bench.fresh(place / "warm"))
        _run_here(["list"])
        _run_here(argv)
    _, count = _in_fork(bench.fresh(place / "counted"), argv)
    # One more than there are: it is not killed.
    steps = list(range(1, count + 2))
    if len(steps) > most:
        chosen = random.Random(seed).sample(steps[1:-1], most - 2)  # noqa: S311  no secrets
        steps = sorted({steps[0], *chosen, steps[-1]})
    for step in steps:
        queue = bench.fresh(place / f"step-{step}")
        killed = _in_fork(queue, argv, step)[0] == -signal.SIGKILL
        # The next command finishes what was begun.
        listed, _ = _in_fork(queue, ["list"])
        state = bench.state(queue)
        again, _ = _in_fork(queue, argv)
        seen = Seen(str(step), killed, state, listed, again, bench.state(queue))
        print("SEEN", json.dumps(asdict(seen)), flush=True)  # noqa: T201  read by at_each_step
        with contextlib.suppress(OSError):
            shutil.rmtree(queue)


if __name__ == "__main__":
    main()
