"""The story of a patch for readers: what is wrong, what changes, and how one knows."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final
from urllib.parse import quote

from pydantic import JsonValue, ValidationError

from contribbot.contribute.figures import Case, Facts, Source
from contribbot.git.patch_format import parse, plain_path
from contribbot.github.auth import find_server
from contribbot.hardware.compare import left_out_of, rows_in
from contribbot.model.evidence import (
    Outcome,
    PatchReport,
    StageResult,
    Verdict,
    open_targets,
    too_noisy,
    went_red_to_green,
)
from contribbot.model.history import Event
from contribbot.model.patch import Patch, PatchFile, PatchSpec, units_of
from contribbot.numerics.records import OutputRecord
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
    """One outcome, and the fresh records that say it."""

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
        if too_noisy(self.result):
            return "too noisy to tell"
        return {Outcome.UNAVAILABLE: "not run"}.get(self.result.outcome, str(self.result.outcome))

    @property
    def device(self) -> str:
        """What it ran on."""
        target = self.result.target
        return self.source.gpus if target not in {"any", "cpu"} and self.source.gpus else "CPU"


@dataclass(frozen=True)
class RedGreen:
    """Entries that fail for one reason without the patch, and pass with it."""

    entry: Entry
    targets: tuple[str, ...]
    message: str

    @property
    def counts(self) -> tuple[int, int]:
        """How many tests fail on the base, and pass on the patched tree."""
        return len(self.entry.facts.base.failed), len(self.entry.facts.patched.passed)


@dataclass(frozen=True)
class Kernels:
    """What a compiler made of an entry for a target, before and after."""

    entry: Entry
    #: Largest numbers of the listed kernels on each side; None: that side has none.
    vgprs: tuple[int | None, int | None]
    sgprs: tuple[int | None, int | None]
    spills: tuple[int | None, int | None]
    waves: tuple[int | None, int | None]
    #: Kernels that the record's table leaves out.
    unlisted: int

    @property
    def instructions(self) -> tuple[int, int]:
        """The instructions of all kernels."""
        return self.entry.facts.base.instructions, self.entry.facts.patched.instructions

    @property
    def kernels(self) -> tuple[int, int]:
        """How many kernels there are."""
        return self.entry.facts.base.kernels, self.entry.facts.patched.kernels


@dataclass(frozen=True)
class Errors:
    """The errors of one kind of result in a grid, as multiples of what decides."""

    name: str
    dtype: str
    base: tuple[float, ...]
    patched: tuple[float, ...]
    spoiled: int  # cells of the base with NaN or infinity


@dataclass(frozen=True)
class Change:
    """A file that the patch changes, with where each hunk lies in the pinned release."""

    path: str
    added: int
    removed: int
    new: bool
    hunks: tuple[tuple[str, str], ...]  # lines, address


@dataclass(frozen=True)
class RecordRow:
    """A record in a list: what it is worth, and where it was made."""

    file: str
    state: str
    why: str
    source: Source | None

    @property
    def published(self) -> bool:
        """Whether its file stands beside the pages: what was changed by somebody does not."""
        return self.source is not None and self.state in {State.FRESH, State.STALE}


@dataclass(frozen=True)
class PatchStory:
    """All that the page of a patch tells."""

    patch: Patch
    below: tuple[str, ...]
    moved: frozenset[str]  # files that those below change
    cells: tuple[TargetCell, ...]
    records: tuple[RecordRow, ...]
    entries: tuple[Entry, ...]
    events: tuple[Event, ...]

    @property
    def spec(self) -> PatchSpec:
        """What its `patch.toml` says."""
        return self.patch.spec

    @property
    def upstream(self) -> str:
        """Its upstream's address, at the pin."""
        return f"{find_server().web}/{self.patch.upstream.repository}/tree/{quote(self.spec.pin)}"

    @cached_property
    def report(self) -> PatchReport:
        """What all fresh records come to together."""
        verdicts = {row.source.details.verdict for row in self.records
                    if row.source is not None and row.state == State.FRESH}  # fmt: skip
        ranked = (Verdict.REFUTED, Verdict.PROVED, Verdict.INCOMPLETE)
        results = tuple(entry.result for entry in self.entries)
        return PatchReport(
            patch=self.patch.name, upstream=self.spec.upstream, pin=self.spec.pin,
            base_commit=None, patched_tree=None, stages=results,
            verdict=next((word for word in ranked if word in verdicts), Verdict.INCOMPLETE),
            open=tuple(open_targets(results)),
        )  # fmt: skip

    @property
    def verdict(self) -> str:
        """The verdict in a word."""
        return str(self.report.verdict) if self.entries else "no fresh record"

    @property
    def line(self) -> str:
        """The verdict in a sentence."""
        if not self.entries:
            return (
                f"no record holds for what the queue has now: contribbot verify {self.patch.name}"
            )
        return verdict_line(self.report).removeprefix(f"{self.patch.name}: {self.verdict}")

    def of(self, stage: str) -> list[Entry]:
        """Return what a stage saw."""
        seen = {Outcome.PASSED, Outcome.FAILED}
        return [entry for entry in self.entries if entry.result.stage == stage
                and (entry.result.outcome in seen or too_noisy(entry.result))]  # fmt: skip

    @cached_property
    def proofs(self) -> list[RedGreen]:
        """What goes from red to green; targets on which it is the same stand together."""
        groups: dict[tuple[object, ...], list[Entry]] = {}
        for entry in self.entries:
            if went_red_to_green(entry.result) and entry.facts.base.failed:
                counts = len(entry.facts.base.failed), len(entry.facts.patched.passed)
                key = (entry.result.stage, entry.name, _message(entry), counts)
                groups.setdefault(key, []).append(entry)
        return [
            RedGreen(group[0], tuple(entry.result.target for entry in group), _message(group[0]))
            for group in groups.values()
        ]

    @property
    def benches(self) -> list[tuple[Entry, float, tuple[Case, ...]]]:
        """Each bench with its claim and its cases."""
        claims = {bench.name: bench.at_least for bench in self.spec.bench}
        return [(entry, claims[entry.name], entry.facts.cases) for entry in self.of("bench")
                if entry.facts.cases]  # fmt: skip

    @property
    def grids(self) -> list[tuple[Entry, float, list[Errors]]]:
        """Each grid of numerics with what it allows and its errors."""
        allowed = {entry.name: entry.fudge for entry in self.spec.numerics}
        return [(entry, allowed[entry.name], _errors(entry.facts)) for entry in self.of("numerics")]

    @property
    def compiled(self) -> list[Kernels]:
        """What compilers made of it."""
        return [_kernels(entry) for entry in self.of("compile")]

    @cached_property
    def changes(self) -> list[Change]:
        """The files that it changes."""
        where = f"{find_server().web}/{self.patch.upstream.repository}/blob/{quote(self.spec.pin)}"
        # Lines of a release: of a file that nothing before has changed.
        moved = set(self.moved)
        changes: list[Change] = []
        for file in self.patch.files:
            changes += _changes(file, where, moved)
            moved |= {change.path for change in changes}
        return changes

    @property
    def diffs(self) -> list[tuple[str, str]]:
        """Each patch file's name, and its diff."""
        texts = ((file.name, file.content.decode("utf-8", "replace")) for file in self.patch.files)
        return [(name, text[max(text.find("diff --git "), 0) :]) for name, text in texts]


def tell(
    queue: Queue, patch: Patch, columns: Sequence[TargetColumn], records: Sequence[Record]
) -> PatchStory:
    """Read what is known of a patch."""
    own = [record for record in records if record.path.parent.name == patch.name]
    rows = rows_of(queue, own)
    below = tuple(queue.below(patch.name))
    moved = frozenset(path for low in below for path in queue.specs[low].files)
    fresh = [row.source for row in rows if row.source and row.state == State.FRESH]
    return PatchStory(
        patch, below, moved, tuple(cells_of(patch, columns, own)), tuple(rows),
        tuple(_entries(patch, fresh)), tuple(history.read(queue.folder, patch.name)),
    )  # fmt: skip


def rows_of(queue: Queue, records: Iterable[Record]) -> list[RecordRow]:
    """Return records as a list shows them, each with a label."""
    rows: list[RecordRow] = []
    for number, record in enumerate(records, start=1):
        details = record.statement.predicate.contribbot if record.statement else None
        file = record.path.relative_to(queue.folder).as_posix()
        shown = file.encode("utf-8", "backslashreplace").decode()
        source = Source(f"R{number}", record, shown, details, "") if details else None
        rows.append(RecordRow(shown, str(record.state), record.why, source))
    return rows


def _entries(patch: Patch, sources: Iterable[Source]) -> list[Entry]:
    """Return every unit of work once, as the record tells that saw most of it."""
    order = {unit: place for place, unit in enumerate(units_of(patch))}
    known: dict[tuple[str, str, str], Entry] = {}
    for source in sources:
        for result in source.stages:
            key = result.stage, str(result.details.get("check", "")), result.target
            entry = Entry(result, _facts(result.details), source, (source.label,))
            best = known.get(key)
            if best is None or _rank(result) < _rank(best.result):
                known[key] = entry
            elif result.outcome is best.result.outcome and result.outcome is Outcome.PASSED:
                labels = (*best.labels, source.label)
                known[key] = Entry(best.result, best.facts, best.source, labels)
    return [known[key] for key in sorted(known, key=lambda key: order.get(key, len(order)))]


def _rank(result: StageResult) -> tuple[int, bool]:
    return _RANK.index(result.outcome), not too_noisy(result)


def _facts(details: dict[str, JsonValue]) -> Facts:
    """Return what an outcome has for readers; of another contribbot's form, nothing."""
    try:
        return Facts.model_validate(details)
    except ValidationError:
        return Facts()


def _message(entry: Entry) -> str:
    """Return what the first failure on the base says; behind an empty line pytest explains it."""
    text = entry.facts.base.failed[0].message.replace("<tree>/", "")
    return "\n".join([*itertools.takewhile(str.strip, text.splitlines())][:_ROWS])


def _errors(facts: Facts) -> list[Errors]:
    """Return the errors of a grid by result and dtype."""
    sides: list[dict[tuple[str, str], list[OutputRecord]]] = [{}, {}]
    for groups, cells in zip(sides, (facts.cells.base, facts.cells.patched), strict=True):
        for cell in cells:
            for output in (output for output in cell.outputs if output.ratio is not None):
                # Of its input, where the grid has one.
                key = output.name, cell.axes.get("dtype", output.dtype)
                groups.setdefault(key, []).append(output)
    base, patched = sides
    return [
        Errors(
            *key,
            tuple(output.ratio or 0.0 for output in base.get(key, ())),
            tuple(output.ratio or 0.0 for output in patched.get(key, ())),
            sum(output.non_finite > 0 for output in base.get(key, ())),
        )
        for key in dict.fromkeys((*patched, *base))
    ]


def _kernels(entry: Entry) -> Kernels:
    rows = rows_in(entry.result.details)
    sides = [row.base for row in rows if row.base], [row.patched for row in rows if row.patched]

    def both(column: str, *, least: bool = False) -> tuple[int | None, int | None]:
        before, after = ([value for numbers in side
                          if (value := numbers._asdict()[column]) is not None]
                         for side in sides)  # fmt: skip
        pick = min if least else max
        return pick(before, default=None), pick(after, default=None)

    return Kernels(
        entry, both("vgprs"), both("sgprs"), both("spills"), both("occupancy", least=True),
        sum(left_out_of(entry.result.details)),
    )  # fmt: skip


def _changes(file: PatchFile, where: str, moved: Collection[str]) -> Iterator[Change]:
    """Yield the files of a diff, with addresses of the lines in the release."""
    for part in parse(file.name, file.content):
        path = plain_path(part.target_file if not part.is_removed_file else part.source_file)
        old, hunks = plain_path(part.source_file), []
        for hunk in part if not part.is_added_file and old not in moved else ():
            first, last = hunk.source_start, hunk.source_start + max(hunk.source_length - 1, 0)
            lines = f"{first}" if first == last else f"{first}-{last}"
            hunks.append((lines, f"{where}/{quote(old)}#L{first}-L{last}"))
        yield Change(path, part.added, part.removed, part.is_added_file, tuple(hunks))
