"""Running the commands of a build, and telling how they ended."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from contribbot import process
from contribbot.building import recipe_child

#: A build may say much; the whole is kept in a log.
_MAX_OUTPUT: Final = 64 * 2**20
#: What compilers, linkers, CMake and make say of what is wrong, the plainest first.
_COMPLAINTS: Final = (
    re.compile(
        r"\berror\b\s*(?:#\d+\s*)?:|^nvcc fatal\b|\bundefined reference to\b|\bcannot find -l"
        r"|\bmultiple definition of\b|^CMake Error\b"
    ),
    re.compile(r"^(?:[A-Za-z_]\w*\.)*[A-Z]\w*(?:Error|Exception)\b(?::|$)"),
    re.compile(r"\*\*\* .*(?:Error \d+|No rule|Stop)"),
    re.compile(r"^FAILED:"),
)
#: What is passed over: warnings, the lines of source that compilers quote, what linkers
#: say after what is wrong, and the commands themselves.
_PASSED_OVER: Final = re.compile(
    r"\bwarning\b\s*(?:#\d+[-\w]*\s*)?:|^\d* *\| |^\+ "
    r"|ld returned \d+ exit status|linker command failed"
)
#: The driver's words when the kernel killed a compiler, and those of one without memory.
_NO_MEMORY: Final = re.compile(
    r"Killed signal terminated program|virtual memory exhausted|std::bad_alloc"
    r"|[Cc]annot allocate memory|out of memory allocating"
)
_CRASHED: Final = re.compile(
    r"internal compiler error|Segmentation fault|PLEASE submit a (?:full )?bug report"
    r"|Internal error|signal \d+ received|died due to signal"
)
_NO_SPACE: Final = re.compile(r"No space left on device", re.IGNORECASE)
#: Exit statuses of a program that a signal ended begin here (POSIX shells).
_SIGNALLED: Final = 128
_KILLED: Final = 128 + 9


@dataclass(frozen=True)
class Ran:
    """How the commands of a build ended. At most one of the three complaints is there.

    Attributes:
        output: What they wrote, without the folders of this machine.
        seconds: Wall-clock time.
        error: What is wrong with what was built, in one line.
        lacking: What this machine could not do: time, memory, disk.
        crash: How a compiler crashed; that says neither.
    """

    output: str
    seconds: float
    error: str = ""
    lacking: str = ""
    crash: str = ""


def run_commands(
    commands: Sequence[Sequence[str]],
    *,
    cwd: Path,
    env: Mapping[str, str],
    timeout: float,
    script: Path,
    scrub: Callable[[str], str],
) -> Ran:
    """Run commands one after the other, until one fails; none of them outlives contribbot."""
    script.write_text(json.dumps([list(argv) for argv in commands]), encoding="utf-8")
    done = process.supervise(
        [sys.executable, "-I", "-S", recipe_child.__file__, str(script)],
        cwd=cwd,
        env=env,
        timeout=timeout,
        max_output=_MAX_OUTPUT,
        # Compilers know nothing of contribbot, and may run for hours.
        tethered=True,
    )
    # Killed because this process ends: that is no outcome.
    process.check_stopping()
    return _judge(done, scrub(done.output.decode("utf-8", "replace")), timeout)


def _judge(done: process.Supervised, output: str, timeout: float) -> Ran:
    status = done.returncode if done.returncode >= 0 else _SIGNALLED - done.returncode
    lacking = crash = error = ""
    if done.timed_out:
        lacking = f"not finished after {timeout:g} s"
    elif done.flooded:
        crash = f"it wrote more than {_MAX_OUTPUT >> 20} MiB"
    elif status == 0:
        pass
    elif _NO_SPACE.search(output):
        lacking = "the disk is full"
    elif status == _KILLED or _NO_MEMORY.search(output):
        lacking = "killed, or out of memory"
    elif crashed := _line_with(_CRASHED, output):
        crash = f"the compiler crashed: {crashed}"
    elif status > _SIGNALLED:
        crash = f"it was ended by signal {status - _SIGNALLED}"
    else:
        error = complaint(output) or f"exit status {status}"
    return Ran(output, done.seconds, error=error, lacking=lacking, crash=crash)


def _line_with(pattern: re.Pattern[str], output: str) -> str:
    return next((row.strip() for row in output.splitlines() if pattern.search(row)), "")


def complaint(output: str) -> str:
    """Return the line that says what is wrong: the first error, or else the last line."""
    rows = [row.strip() for row in output.splitlines() if row.strip()]
    told = [row for row in rows if not _PASSED_OVER.search(row)]
    for pattern in _COMPLAINTS:
        for row in told:
            if pattern.search(row):
                return row
    return told[-1] if told else ""
