"""What a run of a check came to, as data."""

from __future__ import annotations

import difflib
import enum
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Final, Literal

from pydantic import Field, JsonValue

from contribbot.files import cache_folder
from contribbot.model.base import Model, Sha256
from contribbot.model.evidence import RunnerFault
from contribbot.numerics.records import CellRecord
from contribbot.verify.broken import Broken

_Count = Annotated[int, Field(ge=1)]


class Kernels(Model):
    """The kernels that ran under one check on one tree."""

    seen: dict[str, _Count] = Field(default_factory=dict)  # how often each ran, by name
    blind: str = ""  # why none, or not all, could be seen; or empty


#: A folder's name that is no part of a longer one: `/root` is neither in `/rootfs` nor in
#: `src/root`, but in `-I/root/x`, in `../../root/x` and behind the `\\n` of a string that was
#: printed quoted.
_BEFORE_FOLDER: Final = r"(?:(?<![\w.-])|(?<=-[A-Za-z])|(?<=\\[nrt])|(?<=\.\.))"
_AFTER_FOLDER: Final = r"(?![\w-]|\.\w)"


class Scrub:
    """Takes the folders of this machine out of what a check wrote."""

    def __init__(self, tree: Path, folder: Path, *more: Path) -> None:
        named = [
            *((str(one), "<tree>") for one in more),
            (str(tree), "<tree>"),
            (str(folder), "<run>"),
            (str(cache_folder()), "<cache>"),
            (sys.prefix, "<python>"),
            (sys.base_prefix, "<python>"),
            (str(Path(__file__).parents[2]), "<contribbot>"),
            (str(Path.home()), "<home>"),
        ]
        # `/` is no folder worth hiding. Of a folder with two names the first counts.
        self._named = {name: text for name, text in reversed(named) if len(name) > 1}
        # The longest first: one may lie in another.
        names = "|".join(re.escape(name) for name in sorted(self._named, key=len, reverse=True))
        self._pattern = re.compile(f"{_BEFORE_FOLDER}(?:{names}){_AFTER_FOLDER}")

    def __call__(self, text: str) -> str:
        """Return the text with a placeholder for each folder."""
        lines = text.split("\n")
        for number, line in enumerate(lines):
            # A flood of output may be one long line without any folder.
            if "/" in line:
                lines[number] = self._pattern.sub(lambda found: self._named[found[0]], line)
        return "\n".join(lines)


@dataclass(frozen=True)
class Witnessed:
    """A file of which the executed lines are wanted."""

    path: str  # its path in the tree
    #: The lines that the patch adds to it: the number of each in the file that runs, and in the
    #: tree's. They differ where the change was merged onto another release's file.
    lines: Mapping[int, int]


def find_again(wanted: Sequence[int], file: Path, runs: Path) -> dict[int, int]:
    """Return the numbers of a tree's lines in the file that runs in its place, and their own."""
    there, here = (one.read_bytes().splitlines() if wanted else [] for one in (runs, file))
    if there == here:
        return {line: line for line in wanted}
    same = difflib.SequenceMatcher(None, there, here, autojunk=False).get_matching_blocks()
    again = {b + step + 1: a + step + 1 for a, b, size in same for step in range(size)}
    return {again[line]: line for line in wanted if line in again}


#: Failures of one run that a record holds in full, and characters of the others.
_IN_FULL: Final = 20
_SHORT: Final = 200
#: Characters of a message that a reason quotes.
_LINE: Final = 300


class Trouble(enum.StrEnum):
    """Why a run as a whole shows nothing."""

    #: It did not end by itself.
    TIMED_OUT = "timed out"
    FLOODED = "flooded"
    #: The machine had no room.
    DISK_FULL = "disk full"
    NO_MEMORY = "no memory"
    #: It ended, and not as pytest does.
    CRASHED = "crashed"
    ENDED_EARLY = "ended early"
    #: The check is broken.
    UNCOLLECTED = "uncollected"
    STOPPED = "stopped"
    FIXTURE = "fixture"
    EMPTY = "empty"
    MEDDLED = "meddled"
    UNREADABLE = "unreadable"


#: What may be different the next time.
PASSING: Final = frozenset({
    Trouble.TIMED_OUT, Trouble.FLOODED, Trouble.DISK_FULL, Trouble.NO_MEMORY, Trouble.CRASHED,
    Trouble.ENDED_EARLY, Trouble.MEDDLED, Trouble.UNREADABLE, Trouble.UNCOLLECTED,
})  # fmt: skip


@dataclass(frozen=True)
class Failure:
    """One test that did not pass: when, `ExceptionType: message`, and what it may be put down to.

    `broken`: why it shows nothing. `fault`: what this machine could not do (`memory`, `device`),
    or empty.
    """

    test: str
    when: str
    message: str
    broken: Broken | None = None
    fault: str = ""

    @property
    def first(self) -> str:
        """The first line of the message; the log has all of it."""
        line = self.message.partition("\n")[0]
        return line if len(line) <= _LINE else f"{line[:_LINE]}…"


@dataclass
class CheckRun:
    """What one run of one check on one tree came to.

    `partly` are tests of which a part was skipped. `trouble` says why the run as a whole shows
    nothing, `told` puts it into words, `broken` says what its file could not be collected for.
    `executed` are the lines that ran under tests, by tree
    path, of those that the patch adds. `missing` are the modules that a broken check lacks.
    `suspicion` is what could be the runner's doing; `cleared`: a known-good kernel ran well after
    that, so that it is not.
    """

    passed: list[str] = field(default_factory=list)
    failed: list[Failure] = field(default_factory=list)
    skipped: list[str] = field(default_factory=list)
    partly: list[str] = field(default_factory=list)
    status: int | None = None
    trouble: Trouble | None = None
    told: str = ""
    broken: Broken | None = None
    command: str = ""
    seconds: float = 0.0
    limit: float = 0.0
    log: str = ""
    tail: str = ""
    executed: dict[str, list[int]] = field(default_factory=dict)
    cells: list[CellRecord] = field(default_factory=list)
    kernels: Kernels = field(default_factory=Kernels)
    missing: tuple[str, ...] = ()
    suspicion: RunnerFault | None = None
    cleared: bool = False

    @property
    def transient(self) -> bool:
        """Whether it may be different the next time."""
        return self.trouble in PASSING or any(failure.fault for failure in self.failed)

    @property
    def starved(self) -> bool:
        """Whether it wanted more memory than there was."""
        return self.trouble is Trouble.NO_MEMORY or any(
            failure.fault == "memory" for failure in self.failed
        )

    @property
    def ran(self) -> set[str]:
        """The tests that were executed."""
        return {*self.passed, *(failure.test for failure in self.failed)}

    @property
    def outcomes(self) -> dict[str, str]:
        """What became of each test: what two runs on one tree must agree on."""
        found = dict.fromkeys(self.passed, "passed") | dict.fromkeys(self.skipped, "skipped")
        return found | {failure.test: "failed" for failure in self.failed}

    def summary(self, reason: str) -> dict[str, JsonValue]:
        """Return what the record keeps: enough for `recorded` to be judged as this is."""
        failures: list[JsonValue] = [
            {
                "test": one.test,
                "when": one.when,
                "message": one.message if place < _IN_FULL else _shortened(one, reason),
                **({"broken": str(one.broken)} if one.broken else {}),
                **({"fault": one.fault} if one.fault else {}),
            }
            for place, one in enumerate(self.failed)
        ]
        return {
            "passed": list(self.passed),
            "failed": failures,
            "skipped": list(self.skipped),
            **({"partly": list(self.partly)} if self.partly else {}),
            **({"status": self.status} if self.status else {}),
            "trouble": self.told,
            **({"kind": self.trouble} if self.trouble else {}),
            **({"broken": str(self.broken)} if self.broken else {}),
            **({"cleared": True} if self.cleared else {}),
            "command": self.command,
            "seconds": round(self.seconds, 3),
            "log_sha256": self.log,
            "log_tail": self.tail,
            **({"missing": list(self.missing)} if self.missing else {}),
            **({"suspected": self.suspicion.model_dump()} if self.suspicion else {}),
        }

    @classmethod
    def recorded(cls, summary: JsonValue, limit: float) -> CheckRun:
        """Return a run as far as a record's summary tells it."""
        kept = _Summary.model_validate(summary)
        return cls(
            passed=kept.passed,
            failed=[
                Failure(one.test, one.when, one.message, one.broken, one.fault)
                for one in kept.failed
            ],
            skipped=kept.skipped,
            partly=kept.partly,
            status=kept.status,
            trouble=kept.kind,
            told=kept.trouble,
            broken=kept.broken,
            seconds=kept.seconds,
            limit=limit,
            missing=kept.missing,
            suspicion=kept.suspected,
            cleared=kept.cleared,
        )


def _shortened(failure: Failure, reason: str) -> str:
    """Return the start of a message, where the stated reason is found in it as in the whole."""
    short = failure.first[:_SHORT]
    alike = bool(re.search(reason, short)) is bool(re.search(reason, failure.message))
    return short if alike else failure.message


class _Failed(Model):
    """A failure as a record keeps it."""

    test: str
    when: str
    message: str
    broken: Annotated[Broken | None, Field(strict=False)] = None
    fault: str = ""


class _Summary(Model):
    """A run as a record keeps it."""

    passed: list[str]
    failed: list[_Failed]
    skipped: list[str]
    partly: list[str] = Field(default_factory=list)
    status: int | None = None
    trouble: str
    kind: Annotated[Trouble | None, Field(strict=False)] = None
    broken: Annotated[Broken | None, Field(strict=False)] = None
    cleared: bool = False
    command: str
    seconds: Annotated[float, Field(ge=0, strict=False, allow_inf_nan=False)]
    log_sha256: Sha256 | Literal[""]
    log_tail: str
    missing: Annotated[tuple[str, ...], Field(strict=False)] = ()
    suspected: RunnerFault | None = None
