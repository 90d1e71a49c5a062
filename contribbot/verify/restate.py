"""What a record says, said again from the facts that it holds, by what said it the first time."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Annotated, Final, TypeVar

from pydantic import ConfigDict, Field, JsonValue, ValidationError

from contribbot.bench.results import ResultFinding as Comparison
from contribbot.bench.session import BenchResult, case_details, conclude
from contribbot.bench.verdict import (
    CaseInfo,
    CaseResult,
    Ceilings,
    Claim,
    ComparedResults,
    Measurements,
    judge_case,
)
from contribbot.files import tool_digest
from contribbot.hardware.compare import ListingRow, left_out_of, rows_in, seen
from contribbot.model.base import Model
from contribbot.model.checks import Bench, Build, Check, Compile, Hipify, Numerics
from contribbot.model.evidence import ON_HARDWARE, SEEN, Details, Outcome, StageResult
from contribbot.model.patch import Patch, units_of
from contribbot.numerics.records import CellRecord
from contribbot.verify import builds
from contribbot.verify.check import judge_kernels, reason_of
from contribbot.verify.includes import Left
from contribbot.verify.job import Finding
from contribbot.verify.pipeline import STAGES, obstacle_of
from contribbot.verify.placement import overlay_note
from contribbot.verify.pytest_run import CheckRun
from contribbot.verify.stages.apply import how_applied
from contribbot.verify.stages.hipify import Hipified, judge_sides
from contribbot.verify.stages.numerics import MOST_OUTPUTS, Totals, not_shown, summary
from contribbot.verify.stages.source import origin
from contribbot.verify.stages.style import concluded
from contribbot.verify.stages.witness import add_up
from contribbot.verify.verdict import Cause, judge_check, side_to_repeat

#: How far a number may be from what it is when it is computed again on another machine.
_NEAR: Final = 1e-4
#: Seconds that rounding each side may cost in a sum.
_ROUNDED: Final = 0.01
#: What a result has of which something was seen.
_FACTS: Final = frozenset({"base", "files", "kernels", "problems", "from", "commits"})
#: Stages of which a patch states whether the base fails.
_CLAIMS: Final = frozenset({"hipify", "compile", "build", "reproduce", "numerics"})
Facts = dict[str, JsonValue]
ModelT = TypeVar("ModelT", bound=Model)


@dataclass(frozen=True)
class RecordedResult:
    """A result of a record, with what it is held against."""

    result: StageResult
    patch: Patch
    details: Details

    @property
    def facts(self) -> Facts:
        """What was seen."""
        return self.result.details

    @property
    def label(self) -> str:
        """What people call it; empty where its stage has one."""
        return str(self.facts.get("check", ""))

    @property
    def name(self) -> str:
        """Stage, label and target."""
        return "/".join(filter(None, (self.result.stage, self.label, self.result.target)))

    @property
    def older(self) -> bool:
        """Whether another contribbot made it, which may have kept less."""
        return self.details.tool_sha256 != tool_digest()

    @property
    def sentence(self) -> str:
        """The sentence of the record, where what it is made from is not in it."""
        return self.result.reason.removeprefix(f"{self.label}: " if self.label else "")

    def part(self, model: type[ModelT], name: str) -> ModelT:
        """Return a part of what was seen."""
        return model.model_validate(self.facts[name])

    def entry(self, kind: type[ModelT]) -> ModelT:
        """Return what the patch states of it."""
        spec = self.patch.spec
        entries: tuple[Check | Compile | Build | Bench, ...] = (
            *spec.checks, *spec.compile, *spec.build, *spec.numerics, *spec.bench,
        )  # fmt: skip
        return next(
            entry
            for entry in entries
            if type(entry) is kind and isinstance(entry, kind) and entry.name == self.label
        )

    def of_stages(self, *stages: str) -> list[StageResult]:
        """Return the record's results of some stages."""
        return [result for result in self.details.stages if result.stage in stages]

    def recorded(self, finding: Finding) -> StageResult:
        """Return the result that a finding would have been recorded as."""
        reason = f"{self.label}: {finding.reason}" if self.label else finding.reason
        return self.result.model_copy(
            update={
                "outcome": finding.outcome,
                "reason": reason,
                "details": {**self.facts, **finding.details},
                "seconds": self.result.seconds if finding.seconds is None else finding.seconds,
            }
        )


def contradiction(patch: Patch, details: Details) -> str:
    """Say where a record is not what its facts come to for a patch, or nothing."""
    return next(_contradictions(patch, details), "")


def _contradictions(patch: Patch, details: Details) -> Iterator[str]:
    stages = [*chain.from_iterable(STAGES)]
    by_stage = {
        stage.name: [result for result in details.stages if result.stage == stage.name]
        for stage in stages
    }
    if sum(map(len, by_stage.values())) != len(details.stages):
        yield "it has a stage that contribbot does not know"
    for stage in stages:
        results = [RecordedResult(result, patch, details) for result in by_stage[stage.name]]
        if obstacle := obstacle_of(stage, by_stage):
            outcomes = [(kept.result.outcome, kept.result.reason) for kept in results]
            if outcomes != [(Outcome.SKIPPED, obstacle)]:
                yield f"{stage.name} was not skipped, and {obstacle}"
            continue
        stated = Counter(_entries(stage.name, patch, details))
        listed = Counter((kept.label, kept.result.target) for kept in results)
        # Whether there is anything to hipify only the trees can tell.
        if listed != stated and (listed or stage.name != "hipify"):
            more, less = listed - stated, stated - listed
            what = "/".join(filter(None, (stage.name, *next(iter(more or less)))))
            if more:
                yield f"it has an outcome of {what} that the patch does not state"
            yield f"it leaves out {what}"
        for kept in results:
            if problem := _problem(kept):
                yield f"{kept.name}: {problem}"


def _entries(stage: str, patch: Patch, details: Details) -> Iterator[tuple[str, str]]:
    """Yield the label and the target of all that a stage has to say something of."""
    if stage == "reproduce" and patch.spec.unproved:
        yield "", "any"
    elif stage != "witness":
        yield from ((label, target) for name, label, target in units_of(patch) if name == stage)
    else:
        ran = [
            result
            for result in details.stages
            if result.stage in {"reproduce", "numerics"} and result.outcome is Outcome.PASSED
        ]
        for target in dict.fromkeys(result.target for result in ran if "witness" in result.details):
            yield "", target
        for result in ran:
            if "kernels" in result.details:
                yield f"kernels of {result.stage}/{result.details['check']}", result.target


def _problem(kept: RecordedResult) -> str:
    """Say what of a result cannot be, or nothing."""
    try:
        return _impossible(kept) or _difference(kept.result, restate(kept))
    except ValidationError as error:
        first = error.errors()[0]
        return f"not valid: {'.'.join(map(str, first['loc']))}: {first['msg']}"
    except KeyError as error:
        return f"it lacks {error}"
    except (TypeError, ValueError, IndexError, StopIteration) as error:
        return str(error) or "it is about nothing that the patch states"


def _impossible(kept: RecordedResult) -> str:
    """Say what in a result no machine could have come to, or nothing."""
    result, facts, machine = kept.result, kept.facts, kept.details.machine
    counts, files = result.outcome in SEEN, kept.patch.spec.files
    ran = counts and result.stage in ON_HARDWARE | {"witness", "build"}
    threads, flight = facts.get("threads", 1), _table(facts.get("preflight") or {})
    gpus = {gpu.target for gpu in machine.gpus}
    # A flight that failed before it saw the GPU names none.
    flown = not flight or (
        str(flight.get("arch", "")).partition(":")[0] in gpus
        and flight["passed"] is True
        and flight["target"] == result.target
    )
    named = [facts.get(key) or {} for key in ("executed", "witness", "files", "laid_over_base")]
    rules = (
        (
            # What is unavailable was not seen.
            ("seen" in facts) is (result.outcome is not Outcome.UNAVAILABLE),
            "it does not say when it was seen",
        ),
        (
            not ran or result.target in machine.targets,
            f"it ran on {result.target}, which its machine does not have",
        ),
        ("expect" not in facts or result.stage in _CLAIMS, "it claims what its stage does not"),
        (not counts or "runner_fault" not in facts, "it is put down to the runner, and counts"),
        (
            isinstance(threads, int) and 0 < threads <= max(machine.cores, _threads(kept)),
            f"{threads} threads of {machine.cores} cores",
        ),
        (not counts or flown, "its pre-flight was not on its machine"),
        (
            all(set(paths) <= set(files) for paths in named if isinstance(paths, dict | list)),
            "it names a file that the patch does not have",
        ),
    )
    return next((problem for holds, problem in rules if not holds), "")


def _threads(kept: RecordedResult) -> int:
    """Return how many threads an entry asks for by itself."""
    benches = kept.patch.spec.bench if kept.result.stage == "bench" else ()
    asked = (bench.env.get("OMP_NUM_THREADS", "") for bench in benches if bench.name == kept.label)
    return next((int(threads) for threads in asked if threads.isdecimal()), 0)


def _difference(kept: StageResult, again: StageResult) -> str:
    """Say where a result differs from what its facts come to, or nothing."""
    if not math.isclose(kept.seconds, again.seconds, abs_tol=_ROUNDED):
        return f"its parts took {again.seconds:g} s, and it {kept.seconds:g} s"
    if kept.outcome is not again.outcome:
        return f"it says {kept.outcome}, and its facts say {again.outcome}: {again.reason}"
    if kept.reason != again.reason:
        return f"it says {kept.reason!r}, and its facts say {again.reason!r}"
    key = unlike(kept.details, again.details)
    return f"{key} is not what its facts say" if key else ""


def unlike(kept: JsonValue, again: JsonValue, key: str = "") -> str:
    """Return where two values differ by more than rounding, or nothing."""
    pairs: list[tuple[str, JsonValue, JsonValue]]
    if isinstance(kept, dict) and isinstance(again, dict):
        for name in {**again, **kept}:
            if name not in kept or name not in again:
                return f"{key}.{name}".removeprefix(".")
        pairs = [(f"{key}.{name}", kept[name], again[name]) for name in again]
    elif isinstance(kept, list) and isinstance(again, list) and len(kept) == len(again):
        both = zip(kept, again, strict=True)
        pairs = [(f"{key}.{number}", *pair) for number, pair in enumerate(both)]
    elif isinstance(kept, float) and isinstance(again, float):
        return "" if math.isclose(kept, again, rel_tol=_NEAR) else key
    else:
        return "" if type(kept) is type(again) and kept == again else key
    differences = (unlike(value, other, name) for name, value, other in pairs)
    return next(filter(None, differences), "").removeprefix(".")


def restate(kept: RecordedResult) -> StageResult:
    """Return a result as its facts have it; one without facts may say that nothing was seen."""
    bare = not _FACTS & kept.facts.keys()
    if bare and kept.result.outcome is not Outcome.PASSED:
        return kept.result
    return kept.recorded(_RESTATE[kept.result.stage](kept))


def _source(kept: RecordedResult) -> Finding:
    if kept.facts["kind"] not in {source.kind for source in kept.patch.pin.sources}:
        raise ValueError("the pin has no such source")
    return Finding(Outcome.PASSED, origin(kept.patch.pin, str(kept.facts["from"])))


class _RecordedCommit(Model):
    file: str
    commit: str
    subject: str


def _apply(kept: RecordedResult) -> Finding:
    facts, (source,) = kept.facts, kept.of_stages("source")
    commits = [_RecordedCommit.model_validate(commit) for commit in _list(facts["commits"])]
    if [commit.file for commit in commits] != [file.name for file in kept.patch.files]:
        raise ValueError("its commits are not of the files of the patch")
    if commits[-1].commit != facts["patched_commit"]:
        raise ValueError("the last commit is not the patched one")
    if facts["base_commit"] != kept.details.base_commit:
        raise ValueError("it was applied on another commit")
    if facts["base_tree"] == facts["patched_tree"]:
        return Finding(Outcome.FAILED, kept.sentence)
    pinned = {"base_commit": source.details["commit"], "base_tree": source.details["tree"]}
    how = how_applied(len(commits), [str(moved) for moved in _list(facts["adjustments"])])
    return Finding(Outcome.PASSED, how, {} if kept.details.below else pinned)


def _style(kept: RecordedResult) -> Finding:
    return concluded([str(problem) for problem in _list(kept.facts["problems"])])


class _Message(Model):
    test: str
    when: str
    message: str


class _Side(Model):
    """What a record keeps of one tree that was hipified, compiled or built."""

    model_config = ConfigDict(extra="ignore")

    passed: list[str]
    failed: list[_Message]
    seconds: float = 0.0
    reused: bool = False
    remembered: bool = False
    trouble: str = ""
    product: str = ""
    absent: bool = False
    transient: bool = False
    outputs: dict[str, str] = Field(default_factory=dict)
    missing: dict[str, str] = Field(default_factory=dict)
    cuda_only: list[dict[str, str | int]] = Field(default_factory=list)
    kernels: int | None = None
    listed: int | None = None
    instructions: int | None = None
    named: dict[str, dict[str, int]] = Field(default_factory=dict)
    not_inlined: dict[str, int] = Field(default_factory=dict)
    unresolved: list[str] = Field(default_factory=list)

    @property
    def wrong(self) -> str:
        """What is wrong with it; it has passed or failed, not both."""
        if bool(self.failed) is bool(self.passed) and not self.trouble:
            raise ValueError("a side that both passed and failed, or neither")
        return self.failed[0].message if self.failed else ""


def _sides(kept: RecordedResult) -> tuple[_Side, _Side]:
    return kept.part(_Side, "base"), kept.part(_Side, "patched")


def _stated(entry: Check | Compile | Build | Hipify) -> Facts:
    return {"expect": entry.expect, "stated_reason": entry.reason}


def _hipify(kept: RecordedResult) -> Finding:
    entry = kept.patch.spec.hipify or Hipify(expect="pass-to-pass")
    base, patched = map(_hipified, _sides(kept))
    return Finding(*judge_sides(entry, base, patched), _stated(entry))


def _hipified(side: _Side) -> Hipified:
    outputs = {source: Path(path) for source, path in side.outputs.items()}
    left = tuple(
        Left(str(row["file"]), int(row["line"]), str(row["header"])) for row in side.cuda_only
    )
    wrong, problems = side.wrong, [failure.message for failure in side.failed]
    whole = Hipified(Path(), outputs, side.missing, left, transient=side.transient)
    if whole.problems == problems:
        return whole
    if not wrong:
        raise ValueError("a side whose failures are not its own")
    return replace(whole, trouble=problems[0], transient=False)


def _build(kept: RecordedResult) -> Finding:
    entry, outcome = kept.entry(Build), kept.result.outcome
    base, patched = _sides(kept)
    if outcome is Outcome.PASSED and not patched.product:
        raise ValueError("it made no product")
    sides = [builds.BuildSide(error=side.wrong, crash=side.trouble) for side in (base, patched)]
    if outcome is Outcome.UNAVAILABLE or base.trouble or patched.trouble:
        return Finding(outcome, kept.sentence, _stated(entry))
    outcome, reason = builds.judge_build(entry, *sides)
    reason += builds.built_before(base=base.reused, patched=patched.reused)
    failed = outcome is Outcome.FAILED
    return Finding(outcome, kept.sentence if failed else reason, _stated(entry))


def _compile(kept: RecordedResult) -> Finding:
    entry = kept.entry(Compile)
    base, patched = _sides(kept)
    facts = {**_stated(entry), "kind": entry.kind, "source": entry.source}
    if kept.result.outcome is not Outcome.PASSED:
        return Finding(kept.result.outcome, kept.sentence, facts)
    rows, cut = rows_in(kept.facts), any(left_out_of(kept.facts))
    red = base.wrong
    if entry.expect == "pass-to-pass":
        fits = not red or base.absent
    else:
        fits = not base.absent and bool(re.search(entry.reason, red))
    if patched.wrong or not fits:
        return Finding(Outcome.FAILED, patched.wrong or red or "it compiles on the base")
    mine = [(row.count, row.patched[-1] or 0) for row in rows if row.patched is not None]
    counted = sum(count for count, _ in mine), sum(count * code for count, code in mine)
    if not cut and counted != (patched.kernels, patched.instructions):
        raise ValueError("its table is not of its kernels")
    if wrong := _claims(entry, kept.result.target, base, patched, rows):
        return Finding(Outcome.FAILED, wrong)
    if cut or (kept.older and patched.listed is None):
        return Finding(Outcome.PASSED, kept.sentence, facts)
    how = "absent" if base.absent else "error" if base.kernels is None else ""
    listed, unresolved = patched.listed or 0, patched.unresolved
    sentence = seen(entry, rows, on_base=how, listed=listed, unresolved=unresolved)
    return Finding(Outcome.PASSED, sentence, facts)


def _claims(
    entry: Compile, target: str, base: _Side, patched: _Side, rows: Sequence[ListingRow]
) -> str:
    """Say what of a compile's numbers is not as the patch states, or nothing."""
    working = sum(row.count for row in rows if row.patched and (row.patched[-1] or 0) > 1)
    for name in entry.instructions.get(target, ()):
        if patched.named[name]["kernels"] < max(working, 1):
            return f"not every kernel holds {name}"
    if target in entry.fewer_instructions:
        before, after = (
            (side.instructions or 0) + sum(side.not_inlined.values()) for side in (base, patched)
        )
        if after >= before:
            return f"not fewer instructions: {before:,} -> {after:,}"
    return ""


def _check(kept: RecordedResult) -> Finding:
    entry = kept.entry(Numerics if kept.result.stage == "numerics" else Check)
    sides = [side for side in ("base", "patched", "again") if side in kept.facts]
    runs = [CheckRun.recorded(kept.facts[side], entry.timeout) for side in sides]
    twice = "again" in sides
    base, patched = runs[:2]
    judgement = judge_check(entry, base, patched)
    facts = {**_stated(entry), "file": entry.file}
    if isinstance(entry, Numerics):
        facts |= {"fudge": entry.fudge, "why": entry.why}
        _refuse_cells(kept)
        if kept.facts.get("cause") in {Cause.REFERENCES_DIFFER, Cause.SHOWS_NOTHING}:
            return Finding(Outcome.UNAVAILABLE, kept.sentence, facts)
        if judgement.outcome is Outcome.PASSED:
            judgement = not_shown(entry, _cells(kept, "patched")) or judgement
    if bool(side_to_repeat(judgement)) is not twice:
        raise ValueError("the run that decides was not done twice")
    if twice:
        judgement = judge_check(entry, *runs)
    over = overlay_note(str(kept.facts.get("over", "")), kept.patch.pin)
    reason = reason_of(judgement, laid=bool(kept.facts.get("laid_over_base")), over=over)
    passed = judgement.outcome is Outcome.PASSED
    if isinstance(entry, Numerics) and passed:
        reason = _of_cells(kept, entry, patched) or kept.sentence
    if entry.kernels:
        facts["kernels"] = _kernels(kept, entry)
    if passed and entry.build:
        built = (result for result in kept.of_stages("build") if result.target == entry.target)
        if not any(result.details.get("check") == entry.build for result in built):
            raise ValueError("what it loads was not built")
    _refuse_lines(kept)
    facts["cause"] = str(judgement.cause)
    return Finding(judgement.outcome, reason, facts, seconds=sum(run.seconds for run in runs))


def _refuse_lines(kept: RecordedResult) -> None:
    """Refuse statements that were witnessed in a file of which no line ran."""
    executed, witness = (_table(kept.facts[name]) for name in ("executed", "witness"))
    for path, lines in witness.items():
        if not executed.get(path) or not lines or kept.patch.upstream.is_test(path):
            raise ValueError(f"{path}: no line of it ran")


def _kernels(kept: RecordedResult, entry: Check) -> JsonValue:
    kernels = _table(kept.facts["kernels"])
    names = _table(kernels["patched"])
    never: list[JsonValue] = [
        stated for stated in entry.kernels if not any(re.search(stated, name) for name in names)
    ]
    return {**kernels, "stated": [*entry.kernels], "never_ran": never}


def _cells(kept: RecordedResult, side: str) -> list[CellRecord]:
    return list(map(CellRecord.model_validate, _list(_table(kept.facts["cells"])[side])))


def _refuse_cells(kept: RecordedResult) -> None:
    """Refuse numbers that no comparison gives, and totals that are not those of the cells."""
    for side in ("base", "patched"):
        cells = _cells(kept, side)
        for output in (output for cell in cells for output in cell.outputs):
            good = output.mismatches <= output.elements and output.non_finite <= output.elements
            if output.kind == "error" and output.elements:
                yardstick = max(output.reference_abs, output.floor)
                good &= math.isclose(output.ratio or 0.0, output.max_abs / yardstick, rel_tol=_NEAR)
                good &= bool(output.complaint) or output.max_abs <= output.allowed
            if not good:
                raise ValueError(f"{output.name}: numbers that no comparison gives")
        totals, sums = _table(_table(kept.facts["totals"])[side]), Totals.of(cells).model_dump()
        # What an older contribbot did not add up is not there.
        sums = {name: sums[name] for name in totals}
        whole = totals["cells"] == len(cells) and all(
            len(cell.outputs) < MOST_OUTPUTS for cell in cells
        )
        wrong = unlike(sums, totals) if whole else _exceeding(sums, totals)
        if wrong:
            raise ValueError(f"totals of {wrong} that are not those of its cells")


def _exceeding(part: Mapping[str, float | None], totals: Facts) -> str:
    """Return what of some cells is more than a record says of all, or nothing."""
    for name, value in part.items():
        total = totals[name]
        if value is not None and not (isinstance(total, int | float) and value <= total):
            return name
    return ""


def _of_cells(kept: RecordedResult, entry: Numerics, patched: CheckRun) -> str:
    totals = _table(kept.facts["totals"])
    if kept.older and "exact" not in _table(totals["patched"]):
        return ""
    before, after = (Totals.model_validate(totals[side]) for side in ("base", "patched"))
    return summary(entry.fudge, before, after, len(patched.skipped))


Line = Annotated[int, Field(ge=1)]


class _Ran(Model):
    executed: list[Line]
    not_executed: list[Line]


def _witness(kept: RecordedResult) -> Finding:
    checks = [
        result
        for result in kept.of_stages("reproduce", "numerics")
        if result.outcome is Outcome.PASSED and result.target == kept.result.target
    ]
    if kept.label:
        own = next(
            result
            for result in checks
            if kept.label == f"kernels of {result.stage}/{result.details['check']}"
        )
        return judge_kernels(_table(own.details["kernels"]))
    statements = {}
    for path, lines in _table(kept.facts["files"]).items():
        ran = _Ran.model_validate(lines)
        statements[path] = sorted({*ran.executed, *ran.not_executed})
    witnessed = [result.details["witness"] for result in checks if "witness" in result.details]
    return add_up(statements, witnessed, deleted=kept.facts.get("deleted") is True)


class _Times(Model):
    """What a record keeps of the measurements of one side."""

    model_config = ConfigDict(extra="ignore")

    rounds: list[Annotated[float, Field(gt=0)]]
    samples: Line
    peak_bytes: int | None
    input_sets: Line

    def measured(self, pairs: int) -> Measurements:
        """Return them by pairs of processes."""
        each, rest = divmod(len(self.rounds), pairs)
        if rest or not each:
            raise ValueError("its rounds are not of its pairs of processes")
        seconds = [self.rounds[at : at + each] for at in range(0, len(self.rounds), each)]
        return Measurements(seconds, self.samples, self.peak_bytes, self.input_sets)


class _Case(Model):
    """What a record keeps of a case that passed."""

    model_config = ConfigDict(extra="ignore")

    case: str
    bytes_moved: int | None
    flops: int | None
    matmul: str | None = None
    results: str | None
    not_compared: str
    rtol: float | None
    atol: float | None
    pairs: list[float]
    base: _Times
    patched: _Times

    def judged(self, claim: Claim) -> CaseResult:
        """Return the case, judged again."""
        compared = {"bytes_moved", "flops", "matmul", "rtol", "atol", "not_compared"}
        stated = self.model_dump(include=compared)
        info = CaseInfo.model_validate({**stated, "name": self.case, "device": "cpu"})
        base, patched = (side.measured(len(self.pairs)) for side in (self.base, self.patched))
        case = CaseResult(info, base, patched)
        if self.results is not None:
            case.results = ComparedResults(finding=Comparison(self.results), text="")
        if self.results not in {Comparison.SAME, Comparison.WITHIN} and not self.not_compared:
            raise ValueError("its results were not compared, or differ")
        judge_case(case, claim)
        return case


class _Ceilings(Model):
    device: str
    copy_bytes_per_second: float
    matmul_flops_per_second: dict[str, float]


def _bench(kept: RecordedResult) -> Finding:
    entry = kept.entry(Bench)
    facts: Facts = {
        "file": entry.file, "at_least": entry.at_least, "memory_at_most": entry.memory_at_most,
    }  # fmt: skip
    if kept.result.outcome is not Outcome.PASSED:
        return Finding(kept.result.outcome, kept.sentence, facts)
    ceilings = None
    if kept.facts["ceilings"] is not None:
        best = kept.part(_Ceilings, "ceilings")
        ceilings = Ceilings(
            device=best.device,
            copy_rate=best.copy_bytes_per_second,
            matmul_rate=best.matmul_flops_per_second,
        )
    claim = Claim(entry.at_least, entry.memory_at_most, entry.rounds)
    cases = [_Case.model_validate(case).judged(claim) for case in _list(kept.facts["cases"])]
    outcome, reason, _ = conclude(BenchResult(cases, ceilings), claim)
    note = overlay_note(str(kept.facts.get("over", "")), kept.patch.pin)
    facts["cases"] = [case_details(case, ceilings) for case in cases]
    reason = f"{reason} ({note})" if note else reason
    return Finding(outcome if cases else Outcome.FAILED, reason, facts)


def _table(value: JsonValue) -> Facts:
    if not isinstance(value, dict):
        raise TypeError("a table is expected")
    return value


def _list(value: JsonValue) -> list[JsonValue]:
    if not isinstance(value, list):
        raise TypeError("a list is expected")
    return value


_RESTATE: Final[Mapping[str, Callable[[RecordedResult], Finding]]] = {
    "source": _source,
    "apply": _apply,
    "style": _style,
    "hipify": _hipify,
    "compile": _compile,
    "build": _build,
    "reproduce": _check,
    "numerics": _check,
    "witness": _witness,
    "bench": _bench,
}
