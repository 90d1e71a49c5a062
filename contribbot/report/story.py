"""The content of a patch's page: records, outcomes of checks, and results on each target."""

from __future__ import annotations

import enum
import itertools
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import date
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

from contribbot.contribute.figures import figure_of, headline
from contribbot.git.patch_format import parse, plain_path
from contribbot.model import evidence
from contribbot.model.base import Model
from contribbot.model.checks import is_emulated
from contribbot.model.evidence import Outcome, PatchReport, StageResult, Verdict, first_verdict
from contribbot.model.patch import Patch, units_of
from contribbot.model.record import FailureRecord
from contribbot.queue import history
from contribbot.queue.history import Event, Refutation, superseded_words
from contribbot.queue.load import Queue
from contribbot.verify import verdict as judge
from contribbot.verify.evidence import Record, Source, State, refutations

if TYPE_CHECKING:
    from unidiff.patch import PatchedFile

#: Stages on hardware share one line of a cell; every other stage has a separate line.
RUN: Final = "run"
#: The words for a pass, and for an entry that was not run, by stage.
_WORDS: Final = {
    RUN: ("passed", "not run"),
    "compile": ("compiled", "not compiled"),
    "build": ("built", "not built"),
    "emulate": ("emulated", "not emulated"),
}
#: The titles and descriptions of targets that are not AMD GPUs.
_OTHERS: Final = {"cpu": ("CPU", "a processor"), "cuda": ("CUDA", "NVIDIA, not AMD")}


class Mark(enum.StrEnum):
    """The combined result of checks, builds or other entries of a patch.toml."""

    PASSED = "passed"
    FAILED = "failed"
    #: Some entries passed, and none failed; the other entries were not run.
    PART = "part"
    NOISY = "noisy"
    #: Only an earlier version of the patch, the checks or the base passed.
    STALE = "stale"
    OPEN = "open"


class CellLine(Model):
    """The combined result of a stage on a target, or of a column of the report's first page."""

    title: str
    mark: Mark
    text: str
    passed: int
    stated: int
    #: Whether the patch states an entry here; for AMD's GPUs, an entry for any AMD target counts.
    asked: bool = True


class TargetCell(Model):
    """The results of a patch on a target, by stage: a cell of the report's table."""

    target: str
    title: str
    kind: str
    lines: tuple[CellLine, ...] = ()


#: The first page's columns, each with words for entries not run, and for no entries.
PLACES: Final = {
    "CPU": ("not run", "not run"),
    "CUDA": ("not run", "not run"),
    "AMD": ("not run", "not run"),
    "compiled": ("not compiled", "-"),
    "emulated": ("not emulated", "-"),
}
#: A column takes the first of these marks that one of its lines has; each mark with a word.
_DECIDES: Final = {
    Mark.FAILED: "failed",
    Mark.PART: "partly",
    Mark.PASSED: "passed",
    Mark.NOISY: "too noisy",
    Mark.STALE: "stale",
}


def place_of(stage: str, target: str) -> str:
    """Return the title of the first page's column for a stage on a target; empty for `any`."""
    if target == "any" or is_emulated(target):
        return "" if target == "any" else "emulated"
    return "compiled" if stage in {"compile", "build"} else _OTHERS.get(target, ("AMD",))[0]


def places_of(cells: Iterable[TargetCell]) -> tuple[CellLine, ...]:
    """Return the combined result of each column of the report's first page."""
    found: dict[str, list[tuple[str, CellLine]]] = {title: [] for title in PLACES}
    for target, line in ((cell.target, line) for cell in cells for line in cell.lines):
        if line.stated:
            found[place_of(line.title, target)].append((target, line))
    on_amd = any("gfx" in target for lines in found.values() for target, _ in lines)
    places = []
    for title, own in found.items():
        targets, lines = len({target for target, _ in own}), [line for _, line in own]
        asked, marks = bool(own) or (on_amd and title == "AMD"), {line.mark for line in lines}
        mark = next((mark for mark in _DECIDES if mark in marks), Mark.OPEN)
        mark = Mark.PART if mark is Mark.PASSED and len(marks) > 1 else mark
        text = _DECIDES.get(mark) or PLACES[title][not asked]
        if mark is Mark.PASSED and title not in {"CPU", "CUDA"}:
            text = f"{targets} target{'s' if targets > 1 else ''}"
        passed, stated = sum(line.passed for line in lines), sum(line.stated for line in lines)
        places.append(
            CellLine(title=title, mark=mark, text=text, passed=passed, stated=stated, asked=asked)
        )
    return tuple(places)


def columns_of(patches: Iterable[Patch]) -> list[TargetCell]:
    """Return a column without results for each target that a patch.toml names, and for `cpu`."""
    stated = {"cpu", *(target for patch in patches for _, _, target in patch.spec.units)}
    return [column(target) for target in sorted(stated, key=evidence.target_order)]


def column(target: str) -> TargetCell:
    """Return a target's column with title and kind, without results."""
    how, _, name = target.rpartition(":")
    title, kind = _OTHERS.get(name, (name, "AMD"))
    if how:
        title, kind = f"{title}, {how}", "not the hardware itself"
    return TargetCell(target=target, title=title, kind=kind)


#: The stage and the label of an entry.
_Entry: TypeAlias = tuple[str, str]


def cell_of(
    patch: Patch,
    empty: TargetCell,
    fresh: Iterable[Source],
    stale: Iterable[Source],
    refuted: Iterable[Refutation] = (),
) -> TargetCell:
    """Return a patch's results on a column's target, from records and valid refutations."""
    entries: dict[str, list[_Entry]] = {
        "emulate" if is_emulated(empty.target) else RUN: []  # shown even without an entry
    }
    for stage, label, target in units_of(patch):
        if target == empty.target:
            entries.setdefault(RUN if stage in evidence.ON_HARDWARE else stage, []).append(
                (stage, label)
            )
    now = defaultdict[_Entry, list[StageResult]](list)
    then = defaultdict[_Entry, list[StageResult]](list)
    for found, sources in ((now, fresh), (then, stale)):
        for result in (each for source in sources for each in source.stages):
            if result.target == empty.target:
                found[result.stage, result.label].append(result)
    failed = {(each.stage, each.entry) for each in refuted if each.target == empty.target}
    lines = (
        _line(
            stage,
            [now[entry] for entry in own],
            [result for entry in own for result in then[entry]],
            failed=not failed.isdisjoint(own),
        )
        for stage, own in entries.items()
    )
    return empty.model_copy(update={"lines": (*lines,)})


def _line(
    stage: str, entries: Sequence[list[StageResult]], before: Iterable[StageResult], *, failed: bool
) -> CellLine:
    """Return a stage's combined result from outcomes in fresh records, else in stale records."""
    outcomes = [{result.outcome for result in now} for now in entries]
    passed = sum(Outcome.PASSED in each and Outcome.FAILED not in each for each in outcomes)
    done, undone = _WORDS.get(stage, (f"{stage} passed", f"{stage} not run"))
    if failed or any(Outcome.FAILED in each for each in outcomes):
        mark, text = Mark.FAILED, "failed"
    elif passed:
        whole = passed == len(entries)
        mark, text = (Mark.PASSED, done) if whole else (Mark.PART, f"partly {done}")
    elif any(judge.too_noisy(result) for now in entries for result in now):
        mark, text = Mark.NOISY, "too noisy to tell"
    elif any(result.outcome is Outcome.PASSED for result in before):
        mark, text = Mark.STALE, f"stale: {done} before a change"
    else:
        mark, text = Mark.OPEN, undone
    return CellLine(title=stage, mark=mark, text=text, passed=passed, stated=len(entries))


#: The order of outcomes: if several records have an entry, the first outcome here wins.
_RANK: Final = (Outcome.FAILED, Outcome.PASSED, Outcome.UNAVAILABLE, Outcome.SKIPPED)
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
    """The outcome of a check or other stage on a target, and labels of the records that agree."""

    result: StageResult
    source: Source
    labels: tuple[str, ...]

    @property
    def name(self) -> str:
        """The name that patch.toml gives the check; for a stage without names, the stage's name."""
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
    """An evidence record in a list; `source`: its label and details, None if unreadable."""

    file: str
    record: Record
    source: Source | None

    @property
    def published(self) -> bool:
        """Whether the report publishes the record's file: only a fresh or stale record's."""
        return self.source is not None and self.record.state in {State.FRESH, State.STALE}


@dataclass(frozen=True)
class PatchStory:
    """The content of a patch's page."""

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
        """The results on each target that an entry of patch.toml names."""
        return [cell for cell in self.row.cells if any(line.stated for line in cell.lines)]

    def among(self, title: str) -> list[UnitResult]:
        """Return the outcomes in the first page's column of a title; empty title: in no column."""
        rows = ((entry, entry.result) for entry in self.entries)
        return [entry for entry, row in rows if place_of(row.stage, row.target) == title]

    def of(self, stage: str) -> list[UnitResult]:
        """Return the outcomes of a stage that are passed, failed or too noisy."""
        own = ((entry, entry.result) for entry in self.entries if entry.result.stage == stage)
        return [each for each, row in own if row.outcome in evidence.SEEN or judge.too_noisy(row)]

    @property
    def proofs(self) -> list[list[UnitResult]]:
        """The checks that fail only on the base, grouped by equal results on several targets."""
        groups: dict[tuple[object, ...], list[UnitResult]] = {}
        for entry in self.entries:
            if judge.went_red_to_green(entry.result) and entry.failures:
                sides = len(entry.failures), len(entry.passed)
                key = (entry.result.stage, entry.name, entry.message, sides)
                groups.setdefault(key, []).append(entry)
        return [*groups.values()]

    @property
    def changes(self) -> Iterator[tuple[PatchedFile, str, str, bool]]:
        """Yield each diff, new and old path, and whether line numbers hold in the release."""
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


def patch_story(
    queue: Queue, patch: Patch, columns: Sequence[TargetCell], records: Sequence[Record]
) -> PatchStory:
    """Return the content of a patch's page, from the patch's records and journal."""
    rows, states = rows_of(queue, records), {record.state for record in records}
    fresh, stale = (
        [row.source for row in rows if row.source and row.record.state is state]
        for state in (State.FRESH, State.STALE)
    )
    refuted = refutations(queue, patch.name, records)
    entries = entries_of(patch, fresh)
    verdict, line = _UNSEEN, f": contribbot verify {patch.name} makes one"
    if entries:
        found = {source.details.verdict for source in fresh}
        combined = first_verdict(found) or Verdict.INCOMPLETE
        results = tuple(each.result for each in entries)
        facts = {
            "stages": results,
            "verdict": combined,
            "open": (*judge.open_targets(results),),
        }
        report = PatchReport.of_record(fresh[0].details).model_copy(update=facts)
        verdict, line = str(combined), judge.verdict_rest(report)
    if refuted and verdict != Verdict.REFUTED:
        verdict, line = (
            str(Verdict.REFUTED),
            f": {'; '.join(map(judge.refutation_line, refuted))}",
        )
    events = history.read(queue.folder, patch.name)
    passed = [entry for entry in entries if entry.result.outcome is Outcome.PASSED]
    tells = headline(figure_of(entry.source, entry.result) for entry in passed)
    cells = tuple(cell_of(patch, column, fresh, stale, refuted) for column in columns)
    row = PatchSummary(
        patch=patch.name,
        title=patch.spec.title,
        upstream=patch.upstream.name,
        pin=patch.pin.tag,
        verdict=judge.refuted_words(refuted) or verdict,
        superseded=superseded_words(queue, patch.name),
        turned_down=bool(patch.spec.turned_down),
        pull_request=history.pull_request_words(events) or "none",
        headline=tells if verdict == Verdict.PROVED else line.removeprefix(": "),
        day=max((entry.source.day for entry in entries), default=None),
        places=places_of(cells),
        cells=cells,
    )
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


def rows_of(queue: Queue, records: Iterable[Record]) -> list[RecordRow]:
    """Return records for a list, labelled R1, R2 and so on."""
    rows: list[RecordRow] = []
    for number, record in enumerate(records, start=1):
        name, details = record.path.relative_to(queue.folder).as_posix(), record.details
        file = name.encode("utf-8", "backslashreplace").decode()
        source = Source(f"R{number}", record, file, details, "") if details else None
        rows.append(RecordRow(file, record, source))
    return rows


def entries_of(patch: Patch, sources: Iterable[Source]) -> list[UnitResult]:
    """Return one outcome for each check and target: failed before passed, passed before not run."""
    order = {unit: place for place, unit in enumerate(units_of(patch))}

    def rank(result: StageResult) -> tuple[int, bool]:
        return _RANK.index(result.outcome), not judge.too_noisy(result)

    known: dict[tuple[str, str, str], UnitResult] = {}
    for source in sources:
        for result in source.stages:
            entry = UnitResult(result, source, (source.label,))
            best = known.setdefault(result.unit, entry)
            if rank(result) < rank(best.result):
                known[result.unit] = entry
            elif best is not entry and result.outcome is best.result.outcome is Outcome.PASSED:
                known[result.unit] = replace(best, labels=best.labels + entry.labels)
    return [known[key] for key in sorted(known, key=lambda key: order.get(key, len(order)))]
