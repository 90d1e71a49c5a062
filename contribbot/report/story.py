"""The story of a patch for readers: what is wrong, what changes, and how one knows."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Final, NamedTuple
from urllib.parse import quote

from pydantic import ValidationError

from contribbot.contribute.figures import Facts, Source
from contribbot.git.patch_format import parse, plain_path
from contribbot.github.auth import find_server
from contribbot.hardware.compare import rows_in
from contribbot.hardware.listing import Numbers
from contribbot.model.evidence import (
    SEEN,
    Outcome,
    PatchReport,
    StageResult,
    Verdict,
    open_targets,
    too_noisy,
    went_red_to_green,
)
from contribbot.model.history import Event
from contribbot.model.patch import Patch, PatchFile, units_of
from contribbot.queue import history
from contribbot.queue.load import Queue
from contribbot.report.grid import TargetCell, TargetColumn, cells_of
from contribbot.verify.evidence import Record, State
from contribbot.verify.words import verdict_line

#: Of several records that tell of the same work, what each says counts in this order.
_RANK: Final = (Outcome.FAILED, Outcome.PASSED, Outcome.UNAVAILABLE, Outcome.SKIPPED)
#: Lines of a failure that are shown.
_ROWS: Final = 8


@dataclass(frozen=True)
class Entry:
    """One outcome, and the labels of the fresh records that say it."""

    result: StageResult
    facts: Facts
    source: Source
    labels: tuple[str, ...]

    @property
    def name(self) -> str:
        """What people call it; a stage without entries has its own name."""
        return str(self.result.details.get("check") or self.result.stage)

    @property
    def reason(self) -> str:
        """Its sentence, without its name."""
        return self.result.reason.removeprefix(f"{self.name}: ")

    @property
    def word(self) -> str:
        """Its outcome for readers: what could not run is plainly not run."""
        if self.result.outcome is not Outcome.UNAVAILABLE:
            return str(self.result.outcome)
        return "too noisy to tell" if too_noisy(self.result) else "not run"

    @property
    def device(self) -> str:
        """What it ran on."""
        return (self.source.gpus if self.result.target not in {"any", "cpu"} else "") or "CPU"

    @property
    def message(self) -> str:
        """What the first failure on the base says; behind an empty line pytest explains it."""
        text = self.facts.base.failed[0].message.replace("<tree>/", "")
        return "\n".join([*itertools.takewhile(str.strip, text.splitlines())][:_ROWS])


class Errors(NamedTuple):
    """The errors of one kind of result in a grid, as multiples of what decides."""

    name: str
    dtype: str
    base: list[float]
    patched: list[float]


#: A number of the kernels on the base and on the patched tree; None: that side has no kernel.
Pair = tuple[int | None, int | None]


class Kernels(NamedTuple):
    """What a compiler made of an entry: the largest numbers of its kernels, and least waves."""

    entry: Entry
    vgprs: Pair
    sgprs: Pair
    spills: Pair
    waves: Pair


class Change(NamedTuple):
    """A file that the patch changes, and the lines of the release that hunks are about."""

    path: str
    added: int
    removed: int
    new: bool
    hunks: list[tuple[str, str]]  # lines, address


class RecordRow(NamedTuple):
    """A record in a list, with its label where it can be read."""

    file: str
    record: Record
    source: Source | None

    @property
    def published(self) -> bool:
        """Whether its file stands beside the pages: what somebody has changed does not."""
        return self.source is not None and self.record.state in {State.FRESH, State.STALE}


@dataclass(frozen=True)
class PatchStory:
    """All that the page of a patch tells."""

    patch: Patch
    below: tuple[Patch, ...]
    cells: tuple[TargetCell, ...]
    records: tuple[RecordRow, ...]
    entries: tuple[Entry, ...]
    events: tuple[Event, ...]

    @property
    def verdict(self) -> str:
        """The verdict in a word."""
        return str(self._report.verdict) if self.entries else "no fresh record"

    @property
    def line(self) -> str:
        """The rest of the sentence that the verdict begins."""
        if not self.entries:
            return f": contribbot verify {self.patch.name} makes one"
        return verdict_line(self._report).removeprefix(f"{self.patch.name}: {self.verdict}")

    @cached_property
    def _report(self) -> PatchReport:
        """What all fresh records come to together."""
        verdicts = {row.source.details.verdict for row in self.records
                    if row.source is not None and row.record.state is State.FRESH}  # fmt: skip
        ranked = (Verdict.REFUTED, Verdict.PROVED, Verdict.INCOMPLETE)
        results = tuple(entry.result for entry in self.entries)
        return PatchReport(
            patch=self.patch.name, upstream=self.patch.upstream.name, pin=self.patch.pin.tag,
            base_commit=None, patched_tree=None, stages=results,
            verdict=next(verdict for verdict in ranked if verdict in verdicts),
            open=tuple(open_targets(results)),
        )  # fmt: skip

    def of(self, stage: str) -> list[Entry]:
        """Return what a stage saw."""
        return [entry for entry in self.entries if entry.result.stage == stage
                and (entry.result.outcome in SEEN or too_noisy(entry.result))]  # fmt: skip

    @property
    def proofs(self) -> list[list[Entry]]:
        """What goes from red to green; targets on which it is the same stand together."""
        groups: dict[tuple[object, ...], list[Entry]] = {}
        for entry in self.entries:
            if went_red_to_green(entry.result) and entry.facts.base.failed:
                sides = len(entry.facts.base.failed), len(entry.facts.patched.passed)
                key = (entry.result.stage, entry.name, entry.message, sides)
                groups.setdefault(key, []).append(entry)
        return [*groups.values()]

    @property
    def web(self) -> str:
        """Its upstream's pages."""
        return f"{find_server().web}/{self.patch.upstream.repository}"

    @property
    def changes(self) -> list[Change]:
        """The files that it changes, with lines where no patch before has moved them."""
        moved = {path for low in self.below for path in low.spec.files}
        changes: list[Change] = []
        for file in self.patch.files:
            changes += _changes(file, f"{self.web}/blob/{quote(self.patch.pin.tag)}", moved)
            moved |= {change.path for change in changes}
        return changes

    @property
    def diffs(self) -> list[tuple[str, str]]:
        """Each patch file's name, and its diff."""
        texts = ((file.name, file.content.decode("utf-8", "replace")) for file in self.patch.files)
        return [(name, text[text.find("diff --git ") :]) for name, text in texts]


def tell(
    queue: Queue, patch: Patch, columns: Sequence[TargetColumn], records: Sequence[Record]
) -> PatchStory:
    """Read what is known of a patch."""
    own = [record for record in records if record.path.parent.name == patch.name]
    rows = rows_of(queue, own)
    fresh = [row.source for row in rows if row.source and row.record.state is State.FRESH]
    return PatchStory(
        patch, tuple(queue.patch(name) for name in queue.below(patch.name)),
        cells_of(patch, columns, own), tuple(rows), tuple(_entries(patch, fresh)),
        tuple(history.read(queue.folder, patch.name)),
    )  # fmt: skip


def rows_of(queue: Queue, records: Iterable[Record]) -> list[RecordRow]:
    """Return records as a list shows them."""
    rows: list[RecordRow] = []
    for number, record in enumerate(records, start=1):
        file = record.path.relative_to(queue.folder).as_posix()
        file = file.encode("utf-8", "backslashreplace").decode()
        details = record.statement.predicate.contribbot if record.statement else None
        source = Source(f"R{number}", record, file, details, "") if details else None
        rows.append(RecordRow(file, record, source))
    return rows


def _entries(patch: Patch, sources: Iterable[Source]) -> list[Entry]:
    """Return every unit of work once, as the fresh record tells that saw most of it."""
    order = {unit: place for place, unit in enumerate(units_of(patch))}
    known: dict[tuple[str, str, str], Entry] = {}
    for source in sources:
        for result in source.stages:
            key = result.stage, str(result.details.get("check", "")), result.target
            entry = Entry(result, _facts(result), source, (source.label,))
            best = known.setdefault(key, entry)
            if _rank(result) < _rank(best.result):
                known[key] = entry
            elif best is not entry and result.outcome is best.result.outcome is Outcome.PASSED:
                known[key] = replace(best, labels=best.labels + entry.labels)
    return [known[key] for key in sorted(known, key=lambda key: order.get(key, len(order)))]


def _rank(result: StageResult) -> tuple[int, bool]:
    return _RANK.index(result.outcome), not too_noisy(result)


def _facts(result: StageResult) -> Facts:
    """Return what an outcome has for readers; of another contribbot's form, nothing."""
    try:
        return Facts.model_validate(result.details)
    except ValidationError:
        return Facts()


def errors_of(entry: Entry) -> list[Errors]:
    """Return the errors of a grid by result and dtype: its input's, where the grid has one."""
    groups: dict[tuple[str, str], Errors] = {}
    both = entry.facts.cells
    for side, cells in (("patched", both.patched), ("base", both.base)):
        for cell in cells:
            for output in (output for output in cell.outputs if output.ratio is not None):
                key = output.name, cell.axes.get("dtype", output.dtype)
                getattr(groups.setdefault(key, Errors(*key, [], [])), side).append(output.ratio)
    return [*groups.values()]


def kernels_of(entry: Entry) -> Kernels:
    """Return the registers of an entry's kernels before and after, as far as its table has them."""
    rows = rows_in(entry.result.details)
    before = [row.base for row in rows if row.base is not None]
    after = [row.patched for row in rows if row.patched is not None]

    def largest(column: str) -> Pair:
        place = Numbers._fields.index(column)
        old, new = (max((numbers[place] or 0 for numbers in side), default=None)
                    for side in (before, after))  # fmt: skip
        return old, new

    old, new = (min((numbers.occupancy for numbers in side if numbers.occupancy), default=None)
                for side in (before, after))  # fmt: skip
    return Kernels(entry, largest("vgprs"), largest("sgprs"), largest("spills"), (old, new))


def _changes(file: PatchFile, where: str, moved: set[str]) -> Iterator[Change]:
    """Yield the files of a diff."""
    for part in parse(file.name, file.content):
        old = plain_path(part.source_file)
        path = old if part.is_removed_file else plain_path(part.target_file)
        spans = [
            (hunk.source_start, hunk.source_start + max(hunk.source_length - 1, 0))
            for hunk in (part if not part.is_added_file and old not in moved else ())
        ]
        hunks = [(f"{first}-{last}", f"{where}/{quote(old)}#L{first}-L{last}")
                 for first, last in spans]  # fmt: skip
        yield Change(path, part.added, part.removed, part.is_added_file, hunks)
