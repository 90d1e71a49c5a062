"""What passed, as records say it: one figure each, and the record that it is from."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from pydantic import JsonValue

from contribbot.contribute.model import Rules
from contribbot.contribute.publication import waits_for
from contribbot.errors import NotProvedError
from contribbot.model.evidence import HOST_TARGETS, Outcome, StageResult, Verdict
from contribbot.model.patch import Patch
from contribbot.queue.load import Queue
from contribbot.verify.evidence import Record, State, read_records

#: What an outcome's one line begins with where it is red to green; the columns say it already.
_SAID: Final = (
    "fails on the base as stated; ",
    "fails on the base as stated, compiles on the patched tree; ",
    "fails on the base as stated, as expected on the patched tree; ",
    "compiles on both; ",
)


@dataclass(frozen=True)
class Source:
    """A fresh record.

    Attributes:
        label: How the text names it: `R1`.
        record: The record.
        file: Where it lies, seen from the queue.
    """

    label: str
    record: Record
    file: str

    @property
    def stages(self) -> tuple[StageResult, ...]:
        """What it saw."""
        statement = self.record.statement
        return statement.predicate.contribbot.stages if statement else ()


@dataclass(frozen=True)
class Seen:
    """One thing that passed, and every record that says so in the same words.

    Attributes:
        result: The outcome, as one of the records has it.
        sources: The records.
    """

    result: StageResult
    sources: tuple[Source, ...]

    @property
    def name(self) -> str:
        """What `patch.toml` calls it; a stage without entries has its own name."""
        return str(self.result.details.get("check") or self.result.stage)

    @property
    def labels(self) -> str:
        """The records, as a reader looks them up."""
        return ", ".join(one.label for one in self.sources)

    @property
    def source(self) -> Source:
        """The record that `result` is from."""
        return next(one for one in self.sources if any(each is self.result for each in one.stages))

    @property
    def over(self) -> str:
        """The installed release that the tree's files ran over, where it is not the pin's."""
        return other_release(self.result)

    @property
    def red(self) -> bool:
        """Whether it failed on the base, as it should."""
        return self.result.details.get("expect") == "fail-to-pass"

    @property
    def summary(self) -> str:
        """The figures of its one line."""
        text = self.result.reason.removeprefix(f"{self.name}: ")
        text = text.removesuffix(_note(self.result))
        for said in _SAID:
            text = text.removeprefix(said)
        return text

    def count(self, side: str, kind: str) -> int:
        """Return how many tests of a run ended in a way."""
        return len(_list(_table(self.result.details, side), kind))

    def messages(self) -> Iterator[str]:
        """Yield what the failures on the base say, in the order of the tests."""
        for one in _list(_table(self.result.details, "base"), "failed"):
            if isinstance(one, dict):
                # What follows is pytest's view of the assertion.
                yield next(iter(str(one.get("message", "")).splitlines()), "")

    def table(self, *keys: str) -> dict[str, JsonValue]:
        """Return a table within the details; an empty one where there is none."""
        found = self.result.details
        for key in keys:
            found = _table(found, key)
        return found

    def rows(self, key: str) -> list[dict[str, JsonValue]]:
        """Return the tables of a list within the details."""
        return [one for one in _list(self.result.details, key) if isinstance(one, dict)]


def merged(sources: Iterable[Source]) -> tuple[Seen, ...]:
    """Return what passed; the same said by two records is there once."""
    found: dict[tuple[Hashable, ...], Seen] = {}
    for source in sources:
        for result in source.stages:
            if result.outcome is not Outcome.PASSED:
                continue
            one = Seen(result, (source,))
            key = (result.stage, one.name, result.target, one.summary, *_quoted(one))
            known = found.get(key)
            # What ran on the pin's own release is shown rather than what ran over another.
            first = one if known is None or (known.over and not one.over) else known
            found[key] = Seen(first.result, (*(known.sources if known else ()), source))
    return tuple(found.values())


def _quoted(one: Seen) -> Iterator[Hashable]:
    """Yield what a text quotes beside the one line: who says other things says another figure."""
    yield next(one.messages(), "")
    for side in ("base", "patched"):
        yield tuple(one.count(side, kind) for kind in ("passed", "failed", "skipped"))
    tool = one.table("toolchain")
    yield str(tool.get("name", "")), str(tool.get("headers", ""))
    # A time is one machine's, whatever another measured.
    yield one.labels if one.result.stage == "bench" else ""


def other_release(result: StageResult) -> str:
    """Return the installed release that something ran over, where it is not the pin's."""
    # The stage compares it with the pin, and says so at the end of its line.
    return str(result.details["over"]) if result.reason.endswith(_note(result) or "\0") else ""


def _note(result: StageResult) -> str:
    over = result.details.get("over")
    return f" (over {over}, not the pin's)" if over else ""


def _table(value: dict[str, JsonValue], key: str) -> dict[str, JsonValue]:
    inner = value.get(key)
    return inner if isinstance(inner, dict) else {}


def _list(value: dict[str, JsonValue], key: str) -> list[JsonValue]:
    inner = value.get(key)
    return inner if isinstance(inner, list) else []


@dataclass(frozen=True)
class Figures:
    """All that fresh evidence says of a patch.

    Attributes:
        patch: The patch.
        below: Patches that it stands on, lowest first.
        waits: Their pull requests that are not merged, or that are to be opened first.
        sources: The fresh records.
        seen: What passed.
        stale: Targets on which only an earlier version of the patch is known to have run.
    """

    patch: Patch
    below: tuple[str, ...]
    waits: tuple[str, ...]
    sources: tuple[Source, ...]
    seen: tuple[Seen, ...]
    stale: frozenset[str]

    def of(self, *stages: str, target: str = "") -> list[Seen]:
        """Return what passed in some stages."""
        return [
            one
            for one in self.seen
            if one.result.stage in stages and target in {"", one.result.target}
        ]


def gather(queue: Queue, name: str) -> Figures:
    """Read the records of a patch."""
    patch = queue.patch(name)
    _finished(patch)
    records = read_records(queue, queue.evidence, name)
    for record in records:
        if record.state is State.TAMPERED:
            raise NotProvedError(
                f"{name}: {_inside(queue, record)}: {record.why}",
                hint=f"remove the file and run `contribbot verify {name}`",
            )
    fresh = [one for one in records if one.state is State.FRESH and one.statement is not None]
    sources = tuple(
        Source(f"R{number}", record, _inside(queue, record))
        for number, record in enumerate(fresh, start=1)
    )
    if not sources:
        old = next((f": {_inside(queue, one)}: {one.why}" for one in records), "")
        raise NotProvedError(
            f"{name}: no fresh evidence{old}", hint=f"run `contribbot verify {name}`"
        )
    _nothing_failed(name, sources)
    seen = merged(sources)
    _all_there(patch, seen)
    if not any(_verdict(one) is Verdict.PROVED for one in sources):
        raise NotProvedError(
            f"{name}: no fresh record proves it: {sources[0].file} is "
            f"{_verdict(sources[0]) or 'no record'}",
            hint=f"run `contribbot verify {name}` where it can be proved",
        )
    ran = {one.result.target for one in seen}
    stale = {
        result.target
        for record in records
        if record.state is State.STALE and record.statement is not None
        for result in record.statement.predicate.contribbot.stages
        if result.outcome is Outcome.PASSED
    }
    below, waits = tuple(queue.below(name)), waits_for(queue, name)
    return Figures(patch, below, waits, sources, seen, frozenset(stale - ran))


def _finished(patch: Patch) -> None:
    if patch.spec.unwritten:
        raise NotProvedError(
            f"{patch.name}: {', '.join(patch.spec.unwritten)} of {patch.folder / 'patch.toml'} "
            "not written yet",
            hint="write it; it becomes the text of the pull request",
        )
    if patch.spec.unproved or not patch.files:
        lacks = "states nothing that proves it" if patch.files else "has no commit"
        raise NotProvedError(
            f"{patch.name}: the patch {lacks}",
            hint=f"see docs/queue.md, then run `contribbot verify {patch.name}`",
        )


def _nothing_failed(name: str, sources: Iterable[Source]) -> None:
    for source in sources:
        for one in source.stages:
            if one.outcome is Outcome.FAILED:
                what = one.details.get("check") or one.stage
                raise NotProvedError(
                    f"{name}: {what} failed on {one.target}, says {source.file}: {one.reason}",
                    hint=f"mend it and run `contribbot verify {name}`",
                )


def _all_there(patch: Patch, seen: Iterable[Seen]) -> None:
    """Refuse when something that every machine can run is not in evidence."""
    there = {(one.result.stage, one.name, one.result.target) for one in seen}
    spec = patch.spec
    asked = [
        *(("reproduce", one.name, one.target) for one in spec.checks),
        *(("numerics", one.name, one.target) for one in spec.numerics),
        *(("bench", one.name, one.target) for one in spec.bench),
        *([("hipify", "hipify", "any")] if spec.hipify else []),
    ]
    for stage, name, target in asked:
        if target in HOST_TARGETS and (stage, name, target) not in there:
            raise NotProvedError(
                f"{patch.name}: no fresh evidence of the check {name} on {target}",
                hint=f"run `contribbot verify {patch.name}`",
            )


def _verdict(source: Source) -> Verdict | None:
    statement = source.record.statement
    return statement.predicate.contribbot.verdict if statement else None


def _inside(queue: Queue, record: Record) -> str:
    path = record.path
    return (
        path.relative_to(queue.folder) if path.is_relative_to(queue.folder) else path
    ).as_posix()


#: Columns of the grid: their title, the stage, and the word for what is open.
COLUMNS: Final = (
    ("tests", "reproduce", "not run"),
    ("numerics", "numerics", "not run"),
    ("speed", "bench", "not measured"),
    ("compiled", "compile", "not compiled"),
    ("built", "build", "not built"),
)
NOT_RUN: Final = "not run"


@dataclass(frozen=True)
class Cell:
    """One stage on one target.

    Attributes:
        passed: How many of the patch's entries passed there.
        stated: How many it has for the target.
        labels: The records that say so.
        open: What is written when not all of it passed.
    """

    passed: int
    stated: int
    labels: tuple[str, ...]
    open: str

    @property
    def text(self) -> str:
        """What the grid shows (Markdown)."""
        if not self.stated:
            return ""
        if not self.passed:
            return f"**{self.open}**"
        part = "passed" if self.passed == self.stated else f"{self.passed} of {self.stated}"
        rest = "" if self.passed == self.stated else f", the rest **{self.open}**"
        return f"{part} ({', '.join(self.labels)}){rest}"


@dataclass(frozen=True)
class GridRow:
    """A target, or several of which the same is true.

    Attributes:
        targets: The targets.
        cells: One for each of `COLUMNS`.
    """

    targets: tuple[str, ...]
    cells: tuple[Cell, ...]

    @property
    def ran(self) -> bool:
        """Whether something ran on the hardware."""
        return any(cell.passed for cell in self.cells[:3])


def grid_of(figures: Figures, rules: Rules) -> list[GridRow]:
    """Return what ran on each target that the patch or the upstream's rules name.

    On hardware for which the patch states no test nothing ran either: it is said.
    """
    spec = figures.patch.spec
    stated: list[tuple[str, str, str]] = [
        *(("reproduce", one.target, one.name) for one in spec.checks),
        *(("numerics", one.target, one.name) for one in spec.numerics),
        *(("bench", one.target, one.name) for one in spec.bench),
        *(("compile", target, one.name) for one in spec.compile for target in one.targets),
        *(("build", target, one.name) for one in spec.build for target in one.targets),
    ]
    named = [target.rpartition(":")[2] for target in (*rules.require, *rules.targets)]
    targets = sorted({*(target for _, target, _ in stated), *named}, key=_order)
    rows: dict[tuple[Cell, ...], list[str]] = {}
    for target in targets:
        cells = tuple(_cell(figures, stated, stage, target, word) for _, stage, word in COLUMNS)
        rows.setdefault(cells, []).append(target)
    return [GridRow(tuple(names), cells) for cells, names in rows.items()]


def _order(target: str) -> tuple[int, int]:
    """Order processors, then CUDA, then AMD's targets by their number."""
    first = ("cpu", "cuda").index(target) if target in {"cpu", "cuda"} else 2
    return (first, int(target[3:], 16) if first == 2 else 0)  # noqa: PLR2004  the place after both


def _cell(
    figures: Figures, stated: Iterable[tuple[str, str, str]], stage: str, target: str, word: str
) -> Cell:
    names = {name for one, where, name in stated if (one, where) == (stage, target)}
    seen = [one for one in figures.of(stage, target=target) if one.name in names]
    passed = {one.name for one in seen}
    labels = tuple(
        source.label for source in figures.sources if any(source in one.sources for one in seen)
    )
    if not passed and target in figures.stale:
        word += " on this version"
    # Where the patch states nothing for hardware, `not run` is the truth all the same.
    least = 1 if stage == "reproduce" and target != "cpu" else 0
    return Cell(len(passed), max(len(names), least), labels, word)


def not_run(rows: Sequence[GridRow]) -> tuple[str, ...]:
    """Return the targets on whose hardware nothing ran."""
    return tuple(target for row in rows if not row.ran for target in row.targets)
