"""A patch as its page shows it: the patch, its records, and the outcome of every unit."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import date
from functools import cached_property
from typing import TYPE_CHECKING, Final, NamedTuple

from contribbot.contribute.figures import figure_of, headline
from contribbot.git.patch_format import parse, plain_path
from contribbot.model.evidence import (
    SEEN,
    Outcome,
    PatchReport,
    StageResult,
    Verdict,
)
from contribbot.model.history import Event, PullRequestEvent
from contribbot.model.patch import Patch, units_of
from contribbot.model.record import FailureRecord
from contribbot.queue import history
from contribbot.queue.history import Refutation
from contribbot.queue.load import Queue
from contribbot.queue.superseded import superseded_words
from contribbot.report.coverage import (
    Mark,
    PlaceCell,
    TargetCell,
    TargetColumn,
    cell_of,
    place_of,
    places_of,
)
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


#: Of several records that tell of the same work, what each says counts in this order.
_RANK: Final = (Outcome.FAILED, Outcome.PASSED, Outcome.UNAVAILABLE, Outcome.SKIPPED)
#: Of verdicts of several machines the first counts.
_VERDICTS: Final = (Verdict.REFUTED, Verdict.PROVED, Verdict.INCOMPLETE)
_ROWS: Final = 8


@dataclass(frozen=True)
class UnitResult:
    """One outcome, and the labels of the fresh records that say it."""

    result: StageResult
    source: Source
    labels: tuple[str, ...]

    @property
    def name(self) -> str:
        """The name of the entry; a stage without entries has its own name."""
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
        """The first failure on the base, without pytest's explanation behind an empty line."""
        text = self.failures[0].message.replace("<tree>/", "")
        return "\n".join([*itertools.takewhile(str.strip, text.splitlines())][:_ROWS])


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
    entries: tuple[UnitResult, ...]
    events: tuple[Event, ...]
    #: The units that failed and have not passed on that target since.
    refuted: tuple[Refutation, ...]
    #: Why nobody is to propose it, and what has its change; or empty.
    superseded: str = ""

    @property
    def verdict(self) -> str:
        """The verdict in a word."""
        if self.refuted:
            return str(Verdict.REFUTED)
        return str(self._report.verdict) if self.entries else "no fresh record"

    @property
    def verdict_words(self) -> str:
        """The verdict, and where the patch is refuted."""
        return refuted_words(self.refuted) or self.verdict

    @property
    def trouble(self) -> str:
        """The worst state of its records: tampered before stale."""
        states = {row.record.state for row in self.records}
        order = (State.TAMPERED, State.FOREIGN, State.STALE)
        return next((str(state) for state in order if state in states), "")

    @property
    def labels(self) -> tuple[str, ...]:
        """Words by which a list of patches is narrowed; empty words are left out."""
        amd = self.places[2].asked and self.places[2].mark is Mark.OPEN
        return (
            self.verdict,
            self.trouble,
            "superseded" * bool(self.superseded),
            "not run on AMD" * amd,
            self.patch.upstream.name,
        )

    @property
    def urgency(self) -> tuple[bool, int, bool]:
        """The order of patches: failures first, patches that nobody is to propose last."""
        order = (Verdict.REFUTED, "no fresh record", Verdict.INCOMPLETE, Verdict.PROVED)
        return self.trouble != "tampered", order.index(self.verdict), bool(self.superseded)

    @cached_property
    def places(self) -> tuple[PlaceCell, ...]:
        """The row of the first page: stages by target."""
        return places_of(self.cells)

    @property
    def stated(self) -> list[TargetCell]:
        """Its targets: those of which it states something."""
        return [cell for cell in self.cells if any(line.stated for line in cell.lines)]

    @cached_property
    def headline(self) -> str:
        """The figure that tells most, or why nothing is proved."""
        proved = self.verdict == Verdict.PROVED
        return headline_of(self.entries) if proved else self.line.removeprefix(": ")

    @property
    def day(self) -> date | None:
        """When the newest fresh record was made."""
        return max((entry.source.day for entry in self.entries), default=None)

    @property
    def pull_request(self) -> str:
        """Its pull request and the last that is known of it."""
        said = [
            f"{event.reference} {event.state}"
            for event in self.events
            if isinstance(event, PullRequestEvent)
        ]
        return said[-1] if said else "none"

    def among(self, title: str) -> list[UnitResult]:
        """Return what was asked in a column of the first page; the rest has no title."""
        return [
            entry
            for entry in self.entries
            if title == place_of(entry.result.stage, entry.result.target)
        ]

    @property
    def line(self) -> str:
        """The rest of the sentence that the verdict begins."""
        fresh = self.entries and self._report.verdict is Verdict.REFUTED
        if self.refuted and not fresh:
            return f": {'; '.join(map(refutation_line, self.refuted))}"
        if not self.entries:
            return f": contribbot verify {self.patch.name} makes one"
        return verdict_rest(self._report)

    @cached_property
    def _report(self) -> PatchReport:
        """The verdict of all fresh records together."""
        verdicts = {source.details.verdict for source in sources_of(self.records, State.FRESH)}
        results = tuple(entry.result for entry in self.entries)
        return PatchReport(
            patch=self.patch.name,
            upstream=self.patch.upstream.name,
            pin=self.patch.pin.tag,
            base_commit=None,
            patched_tree=None,
            stages=results,
            verdict=next(verdict for verdict in _VERDICTS if verdict in verdicts),
            open=tuple(open_targets(results)),
        )

    def of(self, stage: str) -> list[UnitResult]:
        """Return what a stage saw."""
        return [
            entry
            for entry in self.entries
            if entry.result.stage == stage
            and (entry.result.outcome in SEEN or too_noisy(entry.result))
        ]

    @property
    def proofs(self) -> list[list[UnitResult]]:
        """Checks that go from red to green; targets with the same checks stand together."""
        groups: dict[tuple[object, ...], list[UnitResult]] = {}
        for entry in self.entries:
            if went_red_to_green(entry.result) and entry.failures:
                sides = len(entry.failures), len(entry.passed)
                key = (entry.result.stage, entry.name, entry.message, sides)
                groups.setdefault(key, []).append(entry)
        return [*groups.values()]

    @property
    def changes(self) -> Iterator[tuple[PatchedFile, str, str, bool]]:
        """Yield files of its diffs: path, path in the release, and if the lines are those."""
        moved = {path for low in self.below for path in low.spec.files}
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
    queue: Queue, patch: Patch, columns: Sequence[TargetColumn], rows: Sequence[RecordRow]
) -> PatchStory:
    """Read what is known of a patch."""
    fresh, stale = sources_of(rows, State.FRESH), sources_of(rows, State.STALE)
    refuted = refutations(queue, patch.name, [row.record for row in rows])
    return PatchStory(
        patch,
        tuple(queue.patch(name) for name in queue.below(patch.name)),
        tuple(cell_of(patch, column, fresh, stale, refuted) for column in columns),
        tuple(rows),
        tuple(entries_of(patch, fresh)),
        tuple(history.read(queue.folder, patch.name)),
        refuted,
        superseded_words(queue, patch.name),
    )


def sources_of(rows: Iterable[RecordRow], state: State) -> list[Source]:
    """Return what can be read of the records in a state."""
    return [row.source for row in rows if row.source and row.record.state is state]


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


def entries_of(patch: Patch, sources: Iterable[Source]) -> list[UnitResult]:
    """Return every unit of work once, as the fresh record tells that saw most of it."""
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


def headline_of(entries: Iterable[UnitResult]) -> str:
    """Return the figure that tells most of what passed."""
    return headline(
        figure_of(entry.source, entry.result)
        for entry in entries
        if entry.result.outcome is Outcome.PASSED
    )


def _rank(result: StageResult) -> tuple[int, bool]:
    return _RANK.index(result.outcome), not too_noisy(result)
