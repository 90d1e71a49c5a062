"""Figures of a patch from fresh evidence, each with the records that hold the figure."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Final
from urllib.parse import quote

from contribbot.compile.compare import worse_in
from contribbot.contribute.model import RecordRef, Rules
from contribbot.contribute.publication import waits_for
from contribbot.errors import NotProvedError, UnwrittenError
from contribbot.markdown import cell, plain, seconds, times
from contribbot.model.checks import EMULATED, is_emulated, stated_line
from contribbot.model.evidence import (
    HOST_TARGETS,
    Outcome,
    StageResult,
    Statement,
    target_order,
)
from contribbot.model.patch import Patch
from contribbot.model.record import (
    BenchDetails,
    CodeRecord,
    CompileDetails,
    CompileRecord,
    EmulateDetails,
    NumericsDetails,
    RunRecord,
    SideRecord,
    StageDetails,
    StatedDetails,
    StyleDetails,
)
from contribbot.queue.load import Queue
from contribbot.verify.evidence import (
    Record,
    Source,
    State,
    compare_with_remote,
    placed,
    read_records,
    refutations,
    triton_of,
)
from contribbot.verify.verdict import refutation_line, refuted_words, went_red_to_green


@dataclass
class Figure:
    """A passed outcome of a check, with all records that show the same outcome."""

    stage: str
    name: str
    target: str
    red: bool
    facts: StageDetails
    #: The record of the facts, and all records with the same facts.
    source: Source
    sources: tuple[Source, ...]
    worse: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        #: The facts under the name of their kind; None: facts of another kind.
        self.stated = self.facts if isinstance(self.facts, StatedDetails) else None
        self.bench = self.facts if isinstance(self.facts, BenchDetails) else None
        facts = self.facts
        numeric = facts if isinstance(facts, NumericsDetails | EmulateDetails) else None
        self.numerics = judged = numeric.numerics if numeric else None
        #: The tests that fail without the change; the stated reason; how many fail, how many pass.
        self.failures = self.stated.base.failed if self.stated else ()
        self.reason = self.stated.stated_reason if self.stated else ""
        self.failed = len(self.failures)
        self.passed = len(self.stated.patched.passed) if self.stated else 0
        # The stated reason may be in a later line, in pytest's view of the assertion.
        lines = (
            stated_line(self.reason, failure.message).replace("<tree>/", "")
            for failure in self.failures
        )
        self.message = next((line for line in lines if line), "")
        #: The cells of a grid: how many were judged; whether results were compared bit by bit, and
        #: none differs on either tree; the largest error with and without the change, as a multiple
        #: of the reference's error; whether a floor replaced a smaller reference error in some
        #: cell; in how many cells the base gives NaN or infinity; whether it gives no result.
        base, patched = (judged.cells.base, judged.cells.patched) if judged else ((), ())
        kinds = {output.kind for cell in (*base, *patched) for output in cell.outputs}
        totals = (judged.totals.base, judged.totals.patched) if judged else ()
        self.cells = totals[-1].cells if totals else 0
        self.exact = "exact" in kinds and not any(side.mismatches for side in totals)
        self.worst, self.worst_before = (
            max((output.ratio or 0.0 for cell in cells for output in cell.outputs), default=0.0)
            for cells in (patched, base)
        )
        self.by_floor = any(
            output.by_floor and output.ratio is not None
            for cell in patched
            for output in cell.outputs
        )
        self.spoiled = sum(cell.non_finite > 0 for cell in base)
        self.silent = not any(cell.outputs for cell in base)
        #: The measured cases; whether no case differs by more than its noise; the largest ratio of
        #: peak memory, 0 if the memory was not measured.
        self.claimed = self.bench.measured if self.bench else ()
        cases = sorted(self.claimed, key=lambda case: case.ratio.median)
        self.noise = all(case.ratio.noise for case in cases)
        self.memory = max((case.memory_ratio or 0.0 for case in cases), default=0.0)
        self.slowest = cases[0] if cases else None
        self.fastest = cases[-1] if cases else None

    @property
    def tells(self) -> bool:
        """Whether the figure shows a repaired failure, judged numerics or a measured speed."""
        return self.red or self.stage in {"numerics", "bench"}

    @property
    def speed(self) -> str:
        """The change of speed in words, with the peak memory if the memory grows."""
        if self.slowest is None or self.fastest is None:
            return ""
        memory = f"; peak memory up to {self.memory:.2f}x" if self.memory > _MORE else ""
        ratios = [case.ratio for case in self.claimed]
        # If some case differs, the cases within noise count as no difference.
        medians = [1.0 if each.noise and not self.noise else each.median for each in ratios]
        said = pace(min(medians), max(medians))
        return f"{said}{', within noise' if self.noise else ''}{memory}"

    @property
    def device(self) -> str:
        """The machine or target of the figure in words, for templates."""
        return self.on()

    def on(self, targets: Iterable[str] = ()) -> str:
        """Return the figure's machine or targets in words, such as `gfx942 (compiled: not run)`."""
        machine = self.source.details.machine
        bare = (target.removeprefix(EMULATED) for target in (*targets, self.target))
        names = ", ".join(dict.fromkeys(bare))
        if is_emulated(self.target):
            # The emulator executes compiled code; no GPU takes part.
            place, kind = names, "emulated: not run on a GPU"
        elif self.stage == "compile":
            place, kind = names, "compiled: not run"
        elif self.target in HOST_TARGETS:
            place, kind = "CPU", ""
        else:
            kind = "CUDA" if self.target == "cuda" else names
            place = machine.gpus[0].name if machine.gpus else kind
        return f"{place} ({kind})" if kind not in {"", place} else place

    @property
    def quoted(self) -> tuple[object, ...]:
        """The values that a pull request's text shows; records with equal values share a figure."""
        sides = (self.stated.base, self.stated.patched) if self.stated else ()
        return (
            *(self.stage, self.name, self.target, self.message, self.worse, self.spoiled),
            *((len(side.passed), len(side.failed), skipped(side)) for side in sides),
            *((side.instructions for side in self.compiled) if self.compiled else ()),
            *(toolchain_of(self.facts), triton_of(self.facts)),
            *(times(self.worst), times(self.worst_before)),
            self.numerics.totals.model_dump_json() if self.numerics else "",
            # Times of two machines never make one figure.
            self.source.file if self.bench and self.bench.measured else "",
        )

    @property
    def compiled(self) -> tuple[CompileRecord, CompileRecord] | None:
        """The compiles of the base and of the patched tree; None for another stage."""
        facts = self.facts
        return (facts.base, facts.patched) if isinstance(facts, CompileDetails) else None


def skipped(side: SideRecord) -> int:
    """Return the number of tests that a run on one tree skipped."""
    return len(side.skipped) if isinstance(side, RunRecord) else 0


def toolchain_of(details: StageDetails) -> tuple[str, str]:
    """Return the names of the compiler and of its headers; empty: no compiled code."""
    code = details.code if isinstance(details, EmulateDetails) else details
    if isinstance(code, CompileDetails | CodeRecord):
        return code.toolchain.name, code.toolchain.headers
    return "", ""


def other_tritons(evidence: Evidence) -> tuple[str, ...]:
    """Return the Triton releases of compiles that no record made with the stated release."""
    patch, spec = evidence.patch, evidence.patch.spec
    compiled = {entry.name: patch.triton_for(entry) for entry in spec.compile}
    stated = {("compile", name): release for name, release in compiled.items()}
    for check in (check for entry in spec.emulated for check in entry.checks):
        own = compiled[check.compile] if check.compile else patch.triton_for(check)
        stated["emulate", check.name] = own
    made: dict[tuple[str, ...], set[str]] = {}
    for figure in evidence.of("compile", "emulate"):
        if release := stated.get((figure.stage, figure.name)):
            unit = figure.stage, figure.name, figure.target, f"triton {release}"
            made.setdefault(unit, set()).add(triton_of(figure.facts))
    others = (names for unit, names in made.items() if unit[-1] not in names)
    return tuple(sorted(set[str]().union(*others)))


@dataclass(frozen=True)
class Evidence:
    """The fresh records of a patch, and the figures from these records."""

    patch: Patch
    #: The patch's dependencies, lowest first; the pull requests that must be merged before.
    below: tuple[str, ...]
    waits: tuple[str, ...]
    sources: tuple[Source, ...]
    figures: tuple[Figure, ...]

    @property
    def records(self) -> tuple[RecordRef, ...]:
        """The label, file and seal of each record."""
        return tuple(RecordRef(label=s.label, file=s.file, seal=s.seal) for s in self.sources)

    @cached_property
    def minded(self) -> tuple[str, ...]:
        """The remarks of the style stage on the patch, each once."""
        details = (row.details for each in self.sources for row in each.stages)
        styles = (each.minded for each in details if isinstance(each, StyleDetails))
        return tuple(dict.fromkeys(itertools.chain(*styles)))

    def of(self, *stages: str, target: str = "") -> list[Figure]:
        """Return the figures of the given stages; with a target, only this target's figures."""
        passed = (figure for figure in self.figures if figure.stage in stages)
        return [figure for figure in passed if target in {"", figure.target}]


def gather(queue: Queue, name: str, *, prose: bool = True) -> Evidence:
    """Return a patch's evidence; raise NotProvedError for a failed, unproved or unwritten patch."""
    patch = queue.patch(name)
    verify = f"run `contribbot verify {name}`"
    complete = patch.files or patch.spec.reproduces
    if patch.spec.unproved or not complete:
        lacks = "states nothing that proves it" if complete else "has no commit"
        hint = f"see docs/queue.md, then {verify}"
        raise NotProvedError(f"{name}: the patch {lacks}", hint=hint)
    kept = read_records(queue, queue.evidence, name)
    records = [compare_with_remote(queue, record) for record in kept]
    for record in records:
        if record.state is State.TAMPERED:
            why = f"{_inside(queue, record)}: {record.why}"
            raise NotProvedError(f"{name}: {why}", hint=f"remove the file and {verify}")
    fresh = [
        (record, record.statement)
        for record in records
        if record.state is State.FRESH and record.statement is not None
    ]
    # A figure quotes its first record: records that prove the patch come first.
    fresh.sort(key=lambda it: it[1].predicate.contribbot.verdict.settled, reverse=True)
    sources = tuple(
        # A single record needs no label.
        _source(patch, f"R{number}" if fresh[1:] else "", record, _inside(queue, record), statement)
        for number, (record, statement) in enumerate(fresh, start=1)
    )
    for source in sources:
        for result in source.stages:
            if result.outcome is Outcome.FAILED:
                what = f"{result.label or result.stage} failed on {result.target}"
                why = f"{name}: {what}, says {source.file}: {result.reason}"
                raise NotProvedError(why, hint=f"mend it and {verify}")
    if standing := refutations(queue, name, records):
        why = f"{refuted_words(standing)}: {refutation_line(standing[0])}, and has not passed since"
        hint = f"{verify} there until it passes, or contribbot queue retire {name}"
        raise NotProvedError(f"{name}: {why}", hint=hint)
    if not sources:
        old = next((f": {_inside(queue, record)}: {record.why}" for record in records), "")
        raise NotProvedError(f"{name}: no fresh evidence{old}", hint=verify)
    figures = _figures(sources)
    _refuse_gaps(patch, sources, figures, verify)
    if prose and patch.spec.unwritten:
        what = f"{', '.join(patch.spec.unwritten)} of {patch.folder / 'patch.toml'}"
        hint = "write it; it becomes the text of the pull request"
        raise UnwrittenError(f"{name}: {what} not written yet", hint=hint)
    return Evidence(patch, tuple(queue.below(name)), waits_for(queue, name), sources, figures)


def _refuse_gaps(
    patch: Patch, sources: Sequence[Source], figures: Iterable[Figure], verify: str
) -> None:
    """Raise NotProvedError if a CPU check lacks evidence, or no record proves the patch."""
    known = {(figure.stage, figure.target, figure.name) for figure in figures}
    tried = {
        (result.stage, result.target, result.label or result.stage): result.reason
        for source in sources
        for result in source.stages
        if result.outcome is Outcome.UNAVAILABLE
    }
    hipify = [("hipify", "any", "hipify")] if patch.spec.hipify else []
    for stage, target, name in (*_stated(patch), *hipify):
        runs_here = stage not in {"compile", "build", "emulate"} and target in HOST_TARGETS
        if runs_here and (stage, target, name) not in known:
            what, hint = f"no fresh evidence of the check {name} on {target}", verify
            if why := tried.get((stage, target, name)):
                what += f": it could not run: {why}"
                hint = f"mend the check, or give it what it needs, then {verify}"
            raise NotProvedError(f"{patch.name}: {what}", hint=hint)
    if not any(source.details.verdict.settled for source in sources):
        why = f"no fresh record proves it: {sources[0].file} is {sources[0].details.verdict}"
        raise NotProvedError(f"{patch.name}: {why}", hint=f"{verify} where it can be proved")


def _inside(queue: Queue, record: Record) -> str:
    path, folder = record.path, queue.folder
    return (path.relative_to(folder) if path.is_relative_to(folder) else path).as_posix()


def _source(patch: Patch, label: str, record: Record, file: str, statement: Statement) -> Source:
    details = statement.predicate.contribbot
    pin = patch.pin.tag.removeprefix("v")
    over = {ran.over for ran in placed(details.stages) if ran.over}
    # A local label names a build of the release: `+cpu`, `+rocm6.4`.
    others = [name for name in sorted(over) if name.rpartition(" ")[2].partition("+")[0] != pin]
    return Source(label, record, file, details, ", ".join(others))


def _figures(sources: Iterable[Source]) -> tuple[Figure, ...]:
    """Return the passed outcomes of all records; equal outcomes become one figure."""
    figures: dict[tuple[object, ...], Figure] = {}
    for source in sources:
        for result in (stage for stage in source.stages if stage.outcome is Outcome.PASSED):
            figure = figure_of(source, result)
            known = figures.get(figure.quoted)
            if known is not None:
                # A run on the pin's own release is shown before a run over another release.
                first = figure if known.source.over and not source.over else known
                figure = replace(first, sources=(*known.sources, source))
            figures[figure.quoted] = figure
    return tuple(figures.values())


def figure_of(source: Source, result: StageResult) -> Figure:
    """Return the figure of a stage's result, with the record that the result comes from."""
    details = result.details or StageDetails()
    name, red = result.label or result.stage, went_red_to_green(result)
    worse = worse_in(details.table.rows) if isinstance(details, CompileDetails) else ()
    return Figure(result.stage, name, result.target, red, details, source, (source,), worse)


#: The most rows of the table of facts; most characters of a failure; the order of stages.
_ROWS: Final = 6
_QUOTED: Final = 70
_ORDER: Final = ("reproduce", "hipify", "build", "numerics", "bench", "compile", "emulate")
#: Differences of speed that count as small, and as none; the memory ratio that counts as more.
_NEAR: Final = 0.02
_SAME: Final = 0.005
_MORE: Final = 1.005
_ARROW: Final = "\N{RIGHTWARDS ARROW}"


@dataclass(frozen=True)
class Fact:
    """A row of the pull request's table; `on`: machines, or the targets of compiled code."""

    what: str
    on: str
    before: str
    after: str


def facts_of(evidence: Evidence) -> list[Fact]:
    """Return rows of the pull request's table, without checks whose file readers cannot open."""
    patch = evidence.patch
    rows = [some for some in _rows(evidence) if not _closed(patch, some[0])]
    return [
        Fact(_what(patch, some), plain(some[0].on([row.target for row in some])), *_cells(some))
        for some in rows[:_ROWS]
    ]


def closed_files(evidence: Evidence) -> tuple[str, ...]:
    """Return check files that readers cannot open: neither linked nor among upstream's tests."""
    files = (_closed(evidence.patch, some[0]) for some in _rows(evidence))
    return tuple(dict.fromkeys(file for file in files if file))


def _closed(patch: Patch, figure: Figure) -> str:
    """Return a figure's check file if readers cannot open the file, else an empty text."""
    contribution = patch.spec.contribution
    linked = contribution.records or figure.name in contribution.tests
    return "" if linked else _file(patch, figure)


def _rows(evidence: Evidence) -> list[list[Figure]]:
    """Return repaired failures, numerics and speeds, grouped by the pull request table's rows."""
    groups: dict[tuple[str, ...], list[Figure]] = {}
    for figure in evidence.of(*_ORDER):
        key: tuple[str, ...] = (figure.stage, figure.name)
        if figure.stage != "compile":
            made = str(figure.target) if figure.bench else ""
            key += (made, *_sides(figure))
            files = tuple(source.file for source in figure.sources)
            key += files if figure.target not in HOST_TARGETS else ()
        groups.setdefault(key, []).append(figure)
    return sorted(
        (some for some in groups.values() if some[0].tells),
        key=lambda some: (
            not some[0].red,
            _ORDER.index(some[0].stage),
            some[0].target in HOST_TARGETS,
        ),
    )


def _file(patch: Patch, figure: Figure) -> str:
    """Return the path in the queue of the check file behind a figure; empty: no such file."""
    files = (run.file for run in patch.spec.runs() if run.name == figure.name)
    kinds = {"reproduce", "numerics", "bench", "emulate"}
    file = next(files, "") if figure.stage in kinds else ""
    return f"patches/{patch.name}/checks/{file}" if file else ""


def _what(patch: Patch, some: list[Figure]) -> str:
    """Return a table row's title: test, source or check file, and number of cases or kernels."""
    first, contribution = some[0], patch.spec.contribution
    file, own = _file(patch, first), contribution.tests.get(first.name, "")
    sources = (entry.source for entry in patch.spec.compile if entry.name == first.name)
    if own:
        what = cell(own.rpartition("::")[2])
    elif file and contribution.records:
        name = cell(file.rpartition("/")[2])
        what = f"[{name}]({contribution.records.rstrip('/')}/{quote(file)})"
    elif source := next(sources, "") if first.stage == "compile" else "":
        what = cell(source.rpartition("/")[2])
    else:
        what = cell(file.rpartition("/")[2] or first.name)
    if first.stage == "bench":
        only = first.claimed[0].case if len(first.claimed) == 1 else ""
        what += f", {plain(only) or count_of(len(first.claimed), 'case')}"
    elif first.stage == "numerics":
        what += f", {count_of(first.cells, 'case')}"
    elif kernels := [figure.compiled[1].kernels for figure in some if figure.compiled]:
        what += f", {_range(kernels)} kernel{'s' if max(kernels) != 1 else ''}"
    return what


def _cells(some: list[Figure], *, short: bool = False) -> tuple[str, str]:
    """Return a table row's result in words, without the change and with the change."""
    before, after = _sides(some[0], short=short)
    sides = [figure.compiled for figure in some if figure.compiled]
    if sides:
        old = [side.instructions for side, _ in sides]
        new = [side.instructions for _, side in sides]
        if all(old):
            before, after = (f"{_range(each)} instructions" for each in (old, new))
        worse = dict.fromkeys(
            f"{figure.target}: {', '.join(figure.worse)}" for figure in some if figure.worse
        )
        after += f"; worse: {'; '.join(worse)}" if worse else ""
    return before, after


@dataclass(frozen=True)
class CommentRow:
    """A row of the pull request's comment: a check, targets with equal results, the compiler."""

    targets: tuple[str, ...]
    test: str
    before: str
    after: str
    compiler: str


def comment_rows(evidence: Evidence) -> list[CommentRow]:
    """Return a row for each check and result, without compiles that pass without the change."""
    rows: dict[tuple[str, str, str, str], list[str]] = {}
    for figure in sorted(evidence.of(*_ORDER), key=lambda figure: not figure.red):
        if figure.stage == "compile" and not figure.red:
            continue  # this compile only made the code that a check executes
        before, after = _sides(figure)
        after = "no change" if evidence.patch.spec.reproduces else after
        compiler = toolchain_of(figure.facts)[0]
        target = figure.target.replace(":", " ")
        if any(b"compile_hip" in file.content for file in evidence.patch.support):
            compiler = compiler or "clang, called by the check"
            target = "emulated by the check" if figure.target in HOST_TARGETS else target
        elif isinstance(figure.facts, EmulateDetails):
            compiler = compiler or figure.facts.triton
        key = (plain(figure.name.replace("-", " ")), before, after, plain(compiler) or "-")
        place = "compiled for " if figure.stage == "compile" else ""
        rows.setdefault(key, []).append(f"{place}{target}")
    return [CommentRow(tuple(targets), *key) for key, targets in rows.items()]


def headline(figures: Iterable[Figure]) -> str:
    """Return the best result in words: a claimed speed, a smaller error, or a repaired failure."""
    known = [figure for figure in figures if figure.tells]
    claimed = [
        figure for figure in known if figure.bench and figure.slowest and figure.bench.at_least > 1
    ]
    shrunk = [figure for figure in known if figure.red and figure.worst < figure.worst_before]
    if claimed:
        best = claimed[0]
        said = best.speed
    elif shrunk:
        best = max(shrunk, key=lambda figure: figure.worst_before)
        said = f"error {times(best.worst_before)}x {_ARROW} {times(best.worst)}x"
    elif red := [figure for figure in known if figure.red]:
        best = min(red, key=lambda figure: _ORDER.index(figure.stage))
        said = f" {_ARROW} ".join(_cells([best], short=True))
    else:
        return ""
    place = {"cpu": "CPU", "any": "CPU", "cuda": "CUDA"}.get(best.target, best.target)
    how = {"compile": "compiled", "emulate": "emulated"}.get(best.stage, "")
    proved = any(source.details.verdict.settled for source in best.sources)
    mark = "" if proved else "other checks not run there"
    return f"{said} ({', '.join(filter(None, (place.removeprefix(EMULATED), how, mark)))})"


def count_of(number: int, noun: str) -> str:
    """Return a number with a noun, in the plural unless the number is 1."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def _range(numbers: list[int]) -> str:
    low, high = min(numbers), max(numbers)
    return f"{low:,}" if low == high else f"{low:,} to {high:,}"


def _sides(figure: Figure, *, short: bool = False) -> tuple[str, str]:
    """Return a figure's result in words, without the change and with the change."""
    if figure.stage == "numerics":
        return _error(figure, before=True), _error(figure)
    if figure.stage == "bench" and figure.slowest and figure.fastest:
        only = figure.claimed[0] if len(figure.claimed) == 1 else None
        if only is None:
            return "", figure.speed
        return seconds(only.base.seconds), f"{seconds(only.patched.seconds)}: {figure.speed}"
    said = f": {_quoted(figure)}" if figure.message and not short else ""
    counted = figure.stage in {"reproduce", "emulate"}
    if figure.stage == "compile":
        return (f"fails{said}" if figure.red else "compiles"), "compiles"
    good = "builds" if figure.stage == "build" else "passes"
    after = f"{figure.passed} pass" if counted else good
    left_out = skipped(figure.stated.patched) if figure.stated else 0
    after += f", {left_out} skipped" if left_out else ""
    if figure.red:
        fails = f"{figure.failed} fail" if counted and figure.failed > 1 else "fails"
        return f"{fails}{said}", after
    before = len(figure.stated.base.passed) if figure.stated else 0
    return (f"{before} pass" if counted else good), after


def _quoted(figure: Figure) -> str:
    """Return a failure's message, shortened; a long message begins at the stated reason."""
    message, reason = figure.message, figure.reason
    found = re.search(reason, message) if reason else None
    if message.startswith("KernelError: ") and len(message) > _QUOTED:
        # The fault comes last in such a message, after the place and the instruction.
        message = f"KernelError: … {': '.join(message.split(': ')[-2:])}"
    elif found and found.start() and found.end() > _QUOTED:
        message = f"{message.partition(': ')[0]}: … {message[found.start() :]}"
    return cell(message, limit=_QUOTED)


def _error(figure: Figure, *, before: bool = False) -> str:
    worst = figure.worst_before if before else figure.worst
    if before and figure.silent:
        return "no result"
    if figure.exact and worst <= 1:
        return "the same bits as the reference"
    if before:
        spoiled = f"NaN or infinite in {figure.spoiled}, " if figure.spoiled else ""
        return f"{spoiled}error up to {times(worst)}x"
    fudge = figure.numerics.fudge if figure.numerics else 0.0
    return f"error at most {times(worst)}x ({times(fudge)}x allowed)"


def pace(slowest: float, fastest: float) -> str:
    """Return a range of speeds in words, such as `1.10x to 1.30x the speed`."""
    low, high = (f"{(1 / ratio - 1) * 100:.0f}" for ratio in (fastest, slowest))
    if fastest < 1 - _SAME:
        return f"slower by {low} %" if low == high else f"slower by {low} to {high} %"
    if slowest < 1 - _SAME:
        if fastest == 1:
            return f"up to {high} % slower"
        return f"from {high} % slower to {factor(fastest)} the speed"
    slow, fast = factor(slowest), factor(fastest)
    if slow == fast:
        return f"{fast} the speed"
    return f"{'no difference' if slowest == 1 else slow} to {fast} the speed"


def factor(ratio: float) -> str:
    """Return a speed as a multiple, such as 1.25x; near 1, with three decimals."""
    return f"{ratio:.{3 if abs(ratio - 1) < _NEAR else 2}f}x"


def not_run(evidence: Evidence, rules: Rules) -> tuple[str, ...]:
    """Return targets of the patch or the upstream's rules on whose hardware no check passed."""
    stated = (target for _, target, _ in _stated(evidence.patch))
    asked = (target.rpartition(":")[2] for target in (*rules.require, *rules.targets))
    targets = {*stated, *asked}
    return tuple(sorted(targets - hardware_of(evidence), key=target_order))


def hardware_of(evidence: Evidence) -> set[str]:
    """Return the targets on whose hardware a check, numerics or bench passed."""
    return {figure.target for figure in evidence.of("reproduce", "numerics", "bench")}


def _stated(patch: Patch) -> list[tuple[str, str, str]]:
    """Return the stage, target and name of each check that patch.toml states."""
    units = patch.spec.units
    return [(stage, target.removeprefix(EMULATED), name) for stage, name, target in units]
