"""Collect what a patch's page shows: the patch, the records, and the outcome of every check."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import date
from typing import TYPE_CHECKING, Final, NamedTuple

from contribbot.contribute.figures import figure_of, headline
from contribbot.git.patch_format import parse, plain_path
from contribbot.model.base import Model
from contribbot.model.evidence import SEEN, Outcome, PatchReport, StageResult, Verdict
from contribbot.model.patch import Patch, units_of
from contribbot.model.record import FailureRecord
from contribbot.queue import history
from contribbot.queue.history import Event, superseded_words
from contribbot.queue.load import Queue
from contribbot.report.coverage import CellLine, TargetCell, cell_of, place_of, places_of
from contribbot.verify.evidence import Record, Source, State, refutations
from contribbot.verify.patch_verdict import (
    open_targets,
    refutation_line,
    refuted_words,
    too_noisy,
    verdict_rest,
    went_red_to_green,
)

if TYPE_CHECKING:
    from unidiff.patch import PatchedFile


#: The order of outcomes: if several records have an entry, the first outcome here wins.
_RANK: Final = (Outcome.FAILED, Outcome.PASSED, Outcome.UNAVAILABLE, Outcome.SKIPPED)
#: The order of verdicts: if several machines have a verdict, the first verdict here wins.
_VERDICTS: Final = (Verdict.REFUTED, Verdict.PROVED, Verdict.INCOMPLETE)
_UNSEEN: Final = "no fresh record"
_ROWS: Final = 8


class PatchSummary(Model):
    """A patch's row on the report's first page."""

    patch: str
    title: str
    upstream: str
    pin: str
    verdict: str
    #: Why nobody should propose the patch: what has the same change already; or empty.
    superseded: str = ""
    turned_down: bool = False
    #: The patch's pull request and its last known state.
    pull_request: str
    #: The strongest figure of a proved patch, else the rest of the verdict.
    headline: str
    #: The day of the newest fresh record.
    day: date | None
    places: tuple[CellLine, ...]
    cells: tuple[TargetCell, ...]


@dataclass(frozen=True)
class UnitResult:
    """The outcome of an entry on a target, with the labels of the fresh records that agree."""

    result: StageResult
    source: Source
    labels: tuple[str, ...]

    @property
    def name(self) -> str:
        """The name of the entry; for a stage without entries, the name of the stage."""
        return self.result.label or self.result.stage

    @property
    def failures(self) -> tuple[FailureRecord, ...]:
        """The tests that fail on the base."""
        return self.result.stated.base.failed if self.result.stated else ()

    @property
    def passed(self) -> tuple[str, ...]:
        """The tests that pass on the patched tree."""
        return self.result.stated.patched.passed if self.result.stated else ()

    @property
    def message(self) -> str:
        """The first failure's message on the base, up to an empty line, at most 8 lines."""
        text = self.failures[0].message.replace("<tree>/", "")
        return "\n".join([*itertools.takewhile(str.strip, text.splitlines())][:_ROWS])


class RecordRow(NamedTuple):
    """A record in a list of records; a readable record has a source, which has a label."""

    file: str
    record: Record
    source: Source | None

    @property
    def published(self) -> bool:
        """Whether the report publishes the record's file: only a fresh or stale record's."""
        return self.source is not None and self.record.state in {State.FRESH, State.STALE}


@dataclass(frozen=True)
class PatchStory:
    """All that the page of a patch shows."""

    patch: Patch
    below: tuple[Patch, ...]
    row: PatchSummary
    records: tuple[RecordRow, ...]
    entries: tuple[UnitResult, ...]
    events: tuple[Event, ...]
    #: The verdict in a word, and the rest of the sentence that begins with the verdict.
    verdict: str
    line: str
    #: The worst state of the records: tampered, foreign or stale; empty: all are fresh.
    trouble: str

    @property
    def urgency(self) -> tuple[bool, int, bool]:
        """The key to sort patches: tampered records first, proved patches last."""
        order = (Verdict.REFUTED, _UNSEEN, Verdict.INCOMPLETE, Verdict.PROVED)
        return self.trouble != "tampered", order.index(self.verdict), bool(self.row.superseded)

    @property
    def stated(self) -> list[TargetCell]:
        """The cells of the targets for which the patch states an entry."""
        return [cell for cell in self.row.cells if any(line.stated for line in cell.lines)]

    def among(self, title: str) -> list[UnitResult]:
        """Return the entries of a column of the first page; an empty title: of no column."""
        own = (place_of(entry.result.stage, entry.result.target) for entry in self.entries)
        return [entry for entry, place in zip(self.entries, own, strict=True) if place == title]

    def of(self, stage: str) -> list[UnitResult]:
        """Return the entries of a stage that passed, failed or were too noisy."""
        own = [entry for entry in self.entries if entry.result.stage == stage]
        return [entry for entry in own if entry.result.outcome in SEEN or too_noisy(entry.result)]

    @property
    def proofs(self) -> list[list[UnitResult]]:
        """Checks that fail only on the base, grouped by equal results on several targets."""
        groups: dict[tuple[object, ...], list[UnitResult]] = {}
        for entry in self.entries:
            if went_red_to_green(entry.result) and entry.failures:
                sides = len(entry.failures), len(entry.passed)
                key = (entry.result.stage, entry.name, entry.message, sides)
                groups.setdefault(key, []).append(entry)
        return [*groups.values()]

    @property
    def changes(self) -> Iterator[tuple[PatchedFile, str, str, bool]]:
        """Yield each file's diff, new and old path, and whether line numbers are the release's."""
        moved = {path for low in self.below for path in low.paths}
        for file in self.patch.files:
            parts = [
                (part, plain_path(part.target_file), plain_path(part.source_file))
                for part in parse(file.name, file.content)
            ]
            for part, new, old in parts:
                lines = not part.is_added_file and old not in moved
                yield part, old if part.is_removed_file else new, old, lines
            moved |= {new for _, new, _ in parts}


def tell(
    queue: Queue, patch: Patch, columns: Sequence[TargetCell], rows: Sequence[RecordRow]
) -> PatchStory:
    """Return all that a patch's page shows, from the patch's records and journal."""
    fresh, stale = sources_of(rows, State.FRESH), sources_of(rows, State.STALE)
    refuted = refutations(queue, patch.name, [row.record for row in rows])
    entries = entries_of(patch, fresh)
    report = _report(patch, entries, {source.details.verdict for source in fresh})
    verdict = str(report.verdict) if entries else _UNSEEN
    line = verdict_rest(report) if entries else f": contribbot verify {patch.name} makes one"
    if refuted and verdict != Verdict.REFUTED:
        verdict, line = str(Verdict.REFUTED), f": {'; '.join(map(refutation_line, refuted))}"
    events = history.read(queue.folder, patch.name)
    passed = [entry for entry in entries if entry.result.outcome is Outcome.PASSED]
    tells = headline(figure_of(entry.source, entry.result) for entry in passed)
    cells = tuple(cell_of(patch, column, fresh, stale, refuted) for column in columns)
    row = PatchSummary(
        patch=patch.name,
        title=patch.spec.title,
        upstream=patch.upstream.name,
        pin=patch.pin.tag,
        verdict=refuted_words(refuted) or verdict,
        superseded=superseded_words(queue, patch.name),
        turned_down=bool(patch.spec.turned_down),
        pull_request=history.pull_request_words(events) or "none",
        headline=tells if verdict == Verdict.PROVED else line.removeprefix(": "),
        day=max((entry.source.day for entry in entries), default=None),
        places=places_of(cells),
        cells=cells,
    )
    states = {row.record.state for row in rows}
    worst = (State.TAMPERED, State.FOREIGN, State.STALE)
    return PatchStory(
        patch=patch,
        below=tuple(queue.patch(name) for name in queue.below(patch.name)),
        row=row,
        records=tuple(rows),
        entries=tuple(entries),
        events=tuple(events),
        verdict=verdict,
        line=line,
        trouble=next((str(state) for state in worst if state in states), ""),
    )


def _report(patch: Patch, entries: Sequence[UnitResult], verdicts: set[Verdict]) -> PatchReport:
    """Return a report with the combined verdict of all fresh records."""
    results = tuple(entry.result for entry in entries)
    return PatchReport(
        patch=patch.name,
        upstream=patch.upstream.name,
        pin=patch.pin.tag,
        base_commit=None,
        patched_tree=None,
        stages=results,
        verdict=next((each for each in _VERDICTS if each in verdicts), Verdict.INCOMPLETE),
        open=tuple(open_targets(results)),
    )


def sources_of(rows: Iterable[RecordRow], state: State) -> list[Source]:
    """Return the readable records in a state."""
    return [row.source for row in rows if row.source and row.record.state is state]


def rows_of(queue: Queue, records: Iterable[Record]) -> list[RecordRow]:
    """Return the records as numbered rows of a list."""
    rows: list[RecordRow] = []
    for number, record in enumerate(records, start=1):
        file = record.path.relative_to(queue.folder).as_posix()
        file = file.encode("utf-8", "backslashreplace").decode()
        details = record.statement.predicate.contribbot if record.statement else None
        source = Source(f"R{number}", record, file, details, "") if details else None
        rows.append(RecordRow(file, record, source))
    return rows


def entries_of(patch: Patch, sources: Iterable[Source]) -> list[UnitResult]:
    """Return each entry once, with the outcome that comes first in the order of outcomes."""
    order = {unit: place for place, unit in enumerate(units_of(patch))}
    known: dict[tuple[str, str, str], UnitResult] = {}
    for source in sources:
        for result in source.stages:
            entry = UnitResult(result, source, (source.label,))
            best = known.setdefault(result.unit, entry)
            if _rank(result) < _rank(best.result):
                known[result.unit] = entry
            elif best is not entry and result.outcome is best.result.outcome is Outcome.PASSED:
                known[result.unit] = replace(best, labels=best.labels + entry.labels)
    return [known[key] for key in sorted(known, key=lambda key: order.get(key, len(order)))]


def _rank(result: StageResult) -> tuple[int, bool]:
    return _RANK.index(result.outcome), not too_noisy(result)
