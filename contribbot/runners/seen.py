"""What the kept records say of cells, and how long things took.

A record is read and judged once: the facts of it that a plan needs are remembered in
`.contribbot/`, for as long as neither the file nor what it is about has changed.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Annotated, Final, Literal, NamedTuple

from pydantic import Field, ValidationError

from contribbot.errors import ContribbotError
from contribbot.files import write_atomically
from contribbot.model.base import Model
from contribbot.model.evidence import Details, Outcome, pin_digest
from contribbot.model.patch import Patch
from contribbot.model.runners import COMPILING, Kind, is_version
from contribbot.queue.load import Queue
from contribbot.verify.evidence import State, judge_record
from contribbot.verify.pipeline import tool_digest

_MEMORY: Final = "matrix.json"

Stamp = Annotated[tuple[int, int, int, int], Field(strict=False)]


class Seen(NamedTuple):
    """An outcome of a record that a plan asks about: thousands are read for one plan.

    Attributes:
        stage: The stage.
        label: What people call the unit; empty where the stage has one.
        target: The target.
        outcome: `passed` or `failed`, or that nothing was seen.
        seconds: How long it took.
    """

    stage: str
    label: str
    target: str
    outcome: str
    seconds: float


class Facts(Model):
    """What a plan needs to know of a record.

    Attributes:
        path: The record, seen from the queue's folder.
        patch: The patch that it is about.
        fresh: Whether it is about what the queue has now.
        asked: The kind of the job that sent it; empty: it was made by hand.
        rocm: The ROCm version of its machine, as that calls it.
        seen: Its outcomes.
    """

    path: str
    patch: str
    fresh: bool
    asked: Kind | Literal[""]
    rocm: str
    seen: Annotated[tuple[Seen, ...], Field(strict=False)]

    def says(self, require: Iterable[str], rocm: str) -> Literal["passed", "failed", ""]:
        """Return what it says of a cell, or nothing.

        What a job with a GPU compiled besides, in its own image, answers no cell: nobody asked it.
        """
        needs = [need.partition(":") for need in require]
        if not self.fresh or not is_version(rocm, self.rocm):
            return ""
        if self.asked == "gpu" and any(stage == "compile" for stage, _, _ in needs):
            return ""
        outcomes: list[set[str]] = [
            {one.outcome for one in self.seen if (one.stage, one.target) == (stage, target)}
            for stage, _, target in needs
        ]
        if any(Outcome.FAILED in each for each in outcomes):
            return "failed"
        return "passed" if all(each == {Outcome.PASSED} for each in outcomes) else ""


class _Remembered(Model):
    """A record as it was, what it was judged against, and what was found; None: nothing."""

    stamp: Stamp
    against: str
    facts: Facts | None


class _Memory(Model):
    """What `.contribbot/matrix.json` holds."""

    tool: str
    records: dict[str, _Remembered] = Field(default_factory=dict)


class _Steady(Queue):
    """A queue whose patches are read once: hundreds of records are about each."""

    def patch(self, name: str) -> Patch:
        kept: dict[str, Patch] = self.__dict__.setdefault("_read", {})
        if name not in kept:
            kept[name] = super().patch(name)
        return kept[name]


def read_facts(queue: Queue, names: Sequence[str]) -> dict[str, tuple[Facts, ...]]:
    """Return what the records in a queue say, by patch.

    A record that was changed after it was written, or is no record of this queue, says
    nothing.
    """
    steady = _Steady(queue.folder, queue.spec, queue.specs, queue.upstreams)
    memory = _recall(queue)
    kept: dict[str, _Remembered] = {}
    found: dict[str, tuple[Facts, ...]] = {}
    for name in names:
        against = _basis(steady, name)
        facts = []
        for path in sorted((queue.evidence / name).glob("*.json")):
            inside = path.relative_to(queue.folder).as_posix()
            known = memory.records.get(inside)
            stamp = _stamp(path)
            if known is None or (known.stamp, known.against) != (stamp, against):
                known = _Remembered(
                    stamp=stamp, against=against, facts=_facts(steady, path, inside)
                )
            kept[inside] = known
            if known.facts is not None:
                facts.append(known.facts)
        found[name] = tuple(facts)
    if any(memory.records.get(inside) is not one for inside, one in kept.items()):
        _remember(queue, _Memory(tool=memory.tool, records={**memory.records, **kept}))
    return found


def _facts(queue: Queue, path: Path, inside: str) -> Facts | None:
    record = judge_record(queue, path)
    if record.statement is None or record.state not in {State.FRESH, State.STALE}:
        return None
    details: Details = record.statement.predicate.contribbot
    return Facts(
        path=inside,
        patch=details.patch,
        fresh=record.state is State.FRESH,
        asked=_asked(details),
        rocm=details.machine.rocm,
        seen=tuple(
            Seen(
                stage=one.stage,
                label=str(one.details.get("check", "")),
                target=one.target,
                outcome=str(one.outcome),
                seconds=one.seconds,
            )
            for one in details.stages
        ),
    )


def _asked(details: Details) -> Kind | Literal[""]:
    """Return the kind of the job that sent a record, which the job's id begins with."""
    if details.run is None:
        return ""
    return "compile" if details.run.job.startswith(f"{COMPILING}-") else "gpu"


def _basis(queue: Queue, name: str) -> str:
    """Return the digest of all that makes a record of a patch fresh or stale."""
    patch = queue.patch(name)
    parts = [
        patch.digest,
        patch.checks_digest,
        pin_digest(patch.pin, patch.upstream),
        *(f"{low} {queue.patch(low).digest}" for low in queue.below(name)),
    ]
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()


def _stamp(path: Path) -> tuple[int, int, int, int]:
    """Return what changes with a file: as git's index, it is not asked for its content."""
    told = path.stat()
    return told.st_size, told.st_mtime_ns, told.st_ctime_ns, told.st_ino


def _recall(queue: Queue) -> _Memory:
    tool = tool_digest()
    try:
        memory = _Memory.model_validate_json((queue.local / _MEMORY).read_bytes())
    except (OSError, ValidationError):
        return _Memory(tool=tool)
    return memory if memory.tool == tool else _Memory(tool=tool)


def _remember(queue: Queue, memory: _Memory) -> None:
    """Keep what was found; that it cannot be kept costs time and nothing else."""
    there = {
        inside: one for inside, one in memory.records.items() if (queue.folder / inside).is_file()
    }
    text = memory.model_copy(update={"records": there}).model_dump_json()
    try:
        queue.local.mkdir(parents=True, exist_ok=True)
        write_atomically(queue.local / _MEMORY, text.encode())
    except (OSError, ContribbotError):
        return
