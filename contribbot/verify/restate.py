"""What a record says, said again from the facts that it holds, by what said it the first time."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Annotated, Final, TypeVar

from pydantic import ConfigDict, Field, JsonValue, ValidationError

from contribbot.bench.results import Finding as Comparison
from contribbot.bench.session import BenchResult, case_details, conclude
from contribbot.bench.verdict import (
    CaseInfo,
    CaseResult,
    Ceilings,
    Claim,
    Measurements,
    judge_case,
)
from contribbot.bench.verdict import (
    ComparedResults as Compared,
)
from contribbot.hardware.compare import Row, left_out_of, rows_in, seen
from contribbot.model.base import Model
from contribbot.model.checks import Bench, Build, Check, Compile, Hipify, Numerics
from contribbot.model.evidence import ON_HARDWARE, SEEN, Details, Outcome, StageResult
from contribbot.model.patch import Patch, units_of
from contribbot.numerics.records import CellRecord
from contribbot.verify import builds
from contribbot.verify.check import judge_kernels, reason_of
from contribbot.verify.includes import Left
from contribbot.verify.job import Finding, Hipified
from contribbot.verify.pipeline import obstacle_of, tool_digest
from contribbot.verify.placement import overlay_note
from contribbot.verify.pytest_run import CheckRun
from contribbot.verify.stages import STAGES
from contribbot.verify.stages.apply import applied
from contribbot.verify.stages.hipify import Side, judge_sides
from contribbot.verify.stages.numerics import MOST_OUTPUTS, Totals, not_shown, summary
from contribbot.verify.stages.source import provided
from contribbot.verify.stages.style import concluded
from contribbot.verify.stages.witness import add_up
from contribbot.verify.verdict import Cause, judge_check, side_to_repeat

#: How far a number may be from what it is when it is computed again on another machine.
_NEAR: Final = 1e-4
#: Seconds that rounding each side may cost in a sum.
_ROUNDED: Final = 0.01
ModelT = TypeVar("ModelT", bound=Model)


@dataclass(frozen=True)
class Told:
    """A result of a record, with what it is held against."""

    result: StageResult
    patch: Patch
    details: Details

    @property
    def label(self) -> str:
        """What people call it; empty where its stage has one."""
        return str(self.result.details.get("check", ""))

    @property
    def older(self) -> bool:
        """Whether another contribbot made it, which may have kept less."""
        return self.details.tool_sha256 != tool_digest()

    @property
    def facts(self) -> dict[str, JsonValue]:
        """What was seen."""
        return self.result.details

    def part(self, model: type[ModelT], name: str) -> ModelT:
        """Return a part of what was seen."""
        return model.model_validate(self.facts[name])

    def entry(self, kind: type[ModelT]) -> ModelT:
        """Return what the patch states of it."""
        spec = self.patch.spec
        every: tuple[Check | Compile | Build | Bench, ...] = (
            *spec.checks, *spec.compile, *spec.build, *spec.numerics, *spec.bench,
        )  # fmt: skip
        return next(
            one
            for one in every
            if type(one) is kind and isinstance(one, kind) and one.name == self.label
        )

    def found(self, finding: Finding) -> StageResult:
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

    @property
    def as_told(self) -> str:
        """The sentence of the record, where what it is made from is not in it."""
        return self.result.reason.removeprefix(f"{self.label}: " if self.label else "")


def contradiction(patch: Patch, details: Details) -> str:
    """Say where a record is not what its facts come to for a patch, or nothing."""
    return next(_contradictions(patch, details), "")


def _contradictions(patch: Patch, details: Details) -> Iterator[str]:
    stages = [*chain.from_iterable(STAGES)]
    by_stage = {stage.name: [*_of(details, stage.name)] for stage in stages}
    if sum(map(len, by_stage.values())) != len(details.stages):
        yield "it has a stage that contribbot does not know"
    for stage in stages:
        results = by_stage[stage.name]
        if obstacle := obstacle_of(stage, by_stage):
            if [(one.outcome, one.reason) for one in results] != [(Outcome.SKIPPED, obstacle)]:
                yield f"{stage.name} was not skipped, and {obstacle}"
            continue
        stated = Counter(_entries(stage.name, patch, details))
        told = Counter((str(one.details.get("check", "")), one.target) for one in results)
        # Whether there is anything to hipify only the trees can tell.
        if told != stated and (told or stage.name != "hipify"):
            label, target = next(iter((told - stated) or (stated - told)))
            what = "/".join(filter(None, (stage.name, label, target)))
            if told - stated:
                yield f"it has an outcome of {what} that the patch does not state"
            yield f"it leaves out {what}"
        for result in results:
            if problem := _problem(Told(result, patch, details)):
                label = str(result.details.get("check", ""))
                name = "/".join(filter(None, (stage.name, label, result.target)))
                yield f"{name}: {problem}"


def _problem(told: Told) -> str:
    """Say what of a result cannot be, or nothing."""
    try:
        return _impossible(told) or _difference(told.result, restate(told))
    except ValidationError as error:
        first = error.errors()[0]
        return f"not valid: {'.'.join(map(str, first['loc']))}: {first['msg']}"
    except KeyError as error:
        return f"it lacks {error}"
    except (TypeError, ValueError, IndexError, StopIteration) as error:
        return str(error) or "it is about nothing that the patch states"


def _entries(stage: str, patch: Patch, details: Details) -> Iterator[tuple[str, str]]:
    """Yield the label and the target of all that a stage has to say something of."""
    if stage == "witness":
        yield from _watched(details)
    elif stage == "reproduce" and patch.spec.unproved:
        yield "", "any"
    else:
        yield from ((label, target) for name, label, target in units_of(patch) if name == stage)


def _of(details: Details, *stages: str) -> Iterator[StageResult]:
    return (one for one in details.stages if one.stage in stages)


def _watched(details: Details) -> Iterator[tuple[str, str]]:
    """Yield what the witness stage looks at after the checks of a record."""
    ran = [one for one in _of(details, "reproduce", "numerics") if one.outcome is Outcome.PASSED]
    for target in dict.fromkeys(one.target for one in ran if "witness" in one.details):
        yield "", target
    for one in ran:
        if "kernels" in one.details:
            yield f"kernels of {one.stage}/{one.details['check']}", one.target


#: Stages of which a patch states whether the base fails.
_CLAIMS: Final = frozenset({"hipify", "compile", "build", "reproduce", "numerics"})


def _impossible(told: Told) -> str:
    """Say what in a result no machine could have come to, or nothing."""
    result, facts, machine = told.result, told.facts, told.details.machine
    counts, files = result.outcome in SEEN, told.patch.spec.files
    ran = counts and result.stage in ON_HARDWARE | {"witness", "build"}
    threads, flight = facts.get("threads", 1), facts.get("preflight") or {}
    named = [facts.get(key) or {} for key in ("executed", "witness", "files", "laid_over_base")]
    said = (
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
            isinstance(threads, int) and 0 < threads <= max(machine.cores, _threads(told)),
            f"{threads} threads of {machine.cores} cores",
        ),
        (
            not counts or not flight or _flew(told, _table(flight)),
            "its pre-flight was not on its machine",
        ),
        (
            all(set(some) <= set(files) for some in named if isinstance(some, dict | list)),
            "it names a file that the patch does not have",
        ),
    )
    return next((problem for holds, problem in said if not holds), "")


def _flew(told: Told, flight: Mapping[str, JsonValue]) -> bool:
    """Say whether a known-good kernel ran well on a GPU of the record's machine."""
    there = {gpu.target for gpu in told.details.machine.gpus}
    same = str(flight["arch"]).partition(":")[0] in there
    return same and flight["passed"] is True and flight["target"] == told.result.target


def _threads(told: Told) -> int:
    """Return how many threads an entry asks for by itself."""
    benches = told.patch.spec.bench if told.result.stage == "bench" else ()
    asked = (one.env.get("OMP_NUM_THREADS", "") for one in benches if one.name == told.label)
    return next((int(one) for one in asked if one.isdecimal()), 0)


def _difference(told: StageResult, made: StageResult) -> str:
    """Say where a result differs from what its facts come to, or nothing."""
    if not math.isclose(told.seconds, made.seconds, abs_tol=_ROUNDED):
        return f"its parts took {made.seconds:g} s, and it {told.seconds:g} s"
    if told.outcome is not made.outcome:
        return f"it says {told.outcome}, and its facts say {made.outcome}: {made.reason}"
    if told.reason != made.reason:
        return f"it says {told.reason!r}, and its facts say {made.reason!r}"
    key = _unlike(told.details, made.details)
    return f"{key} is not what its facts say" if key else ""


def _unlike(told: JsonValue, made: JsonValue, key: str = "") -> str:
    """Return where two values differ by more than rounding, or nothing."""
    if isinstance(told, dict) and isinstance(made, dict) and told.keys() == made.keys():
        unlike = (_unlike(told[name], made[name], f"{key}.{name}") for name in made)
        return next(filter(None, unlike), "").removeprefix(".")
    if isinstance(told, list) and isinstance(made, list) and len(told) == len(made):
        unlike = (
            _unlike(*pair, f"{key}.{at}") for at, pair in enumerate(zip(told, made, strict=True))
        )
        return next(filter(None, unlike), "").removeprefix(".")
    if isinstance(told, float) and isinstance(made, float):
        return "" if math.isclose(told, made, rel_tol=_NEAR) else key
    return "" if type(told) is type(made) and told == made else key


def restate(told: Told) -> StageResult:
    """Return a result as its facts have it; one without facts may say that nothing was seen."""
    bare = not _FACTS & told.facts.keys()
    if bare and told.result.outcome is not Outcome.PASSED:
        return told.result
    return told.found(_RESTATE[told.result.stage](told))


#: What a result has of which something was seen.
_FACTS: Final = frozenset({"base", "files", "kernels", "problems", "from", "commits"})


def _source(told: Told) -> Finding:
    kinds = {source.kind for source in told.patch.pin.sources}
    if told.facts["kind"] not in kinds:
        raise ValueError("the pin has no such source")
    return Finding(Outcome.PASSED, provided(told.patch.pin, str(told.facts["from"])))


class _Commit(Model):
    file: str
    commit: str
    subject: str


def _apply(told: Told) -> Finding:
    facts, (source,) = told.facts, _of(told.details, "source")
    commits = [_Commit.model_validate(one) for one in _list(facts["commits"])]
    if [one.file for one in commits] != [one.name for one in told.patch.files]:
        raise ValueError("its commits are not of the files of the patch")
    if commits[-1].commit != facts["patched_commit"]:
        raise ValueError("the last commit is not the patched one")
    if facts["base_commit"] != told.details.base_commit:
        raise ValueError("it was applied on another commit")
    pinned = {"base_commit": source.details["commit"], "base_tree": source.details["tree"]}
    if facts["base_tree"] == facts["patched_tree"]:
        return Finding(Outcome.FAILED, told.as_told)
    said = applied(len(commits), [str(one) for one in _list(facts["adjustments"])])
    return Finding(Outcome.PASSED, said, {} if told.details.below else pinned)


def _style(told: Told) -> Finding:
    return concluded([str(one) for one in _list(told.facts["problems"])])


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


def _sides(told: Told) -> tuple[_Side, _Side]:
    return told.part(_Side, "base"), told.part(_Side, "patched")


def _stated(entry: Check | Compile | Build | Hipify) -> dict[str, JsonValue]:
    return {"expect": entry.expect, "stated_reason": entry.reason}


def _hipify(told: Told) -> Finding:
    entry = told.patch.spec.hipify or Hipify(expect="pass-to-pass")
    base, patched = map(_hipified, _sides(told))
    return Finding(*judge_sides(entry, base, patched), _stated(entry))


def _hipified(side: _Side) -> Side:
    outputs = {source: Path(path) for source, path in side.outputs.items()}
    left = tuple(
        Left(str(one["file"]), int(one["line"]), str(one["header"])) for one in side.cuda_only
    )
    problems = [one.message for one in side.failed]
    made = Side(Hipified(Path(), outputs, side.missing, transient=side.transient), left)
    if side.wrong and made.problems != problems:
        return Side(Hipified(Path(), outputs, side.missing, problems[0]), left)
    if made.problems != problems:
        raise ValueError("a side whose failures are not its own")
    return made


def _build(told: Told) -> Finding:
    entry = told.entry(Build)
    base, patched = _sides(told)
    if told.result.outcome is Outcome.PASSED and not patched.product:
        raise ValueError("it made no product")
    sides = [builds.Side(error=side.wrong, crash=side.trouble) for side in (base, patched)]
    if told.result.outcome is Outcome.UNAVAILABLE or base.trouble or patched.trouble:
        return Finding(told.result.outcome, told.as_told, _stated(entry))
    outcome, reason = builds.judge_build(entry, *sides)
    # Which side was built before says the end of the line.
    again = [name for name, side in (("base", base), ("patched tree", patched)) if side.reused]
    note = f" (built before: {' and '.join(again)})" if again else ""
    return Finding(
        outcome, told.as_told if outcome is Outcome.FAILED else reason + note, _stated(entry)
    )


def _compile(told: Told) -> Finding:
    entry = told.entry(Compile)
    base, patched = _sides(told)
    facts = {**_stated(entry), "kind": entry.kind, "source": entry.source}
    if told.result.outcome is not Outcome.PASSED:
        return Finding(told.result.outcome, told.as_told, facts)
    rows, cut = rows_in(told.facts), any(left_out_of(told.facts))
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
    if wrong := _claims(told, base, patched, rows):
        return Finding(Outcome.FAILED, wrong)
    if cut or (told.older and patched.listed is None):
        return Finding(Outcome.PASSED, told.as_told, facts)
    how = "absent" if base.absent else "error" if base.kernels is None else ""
    said = seen(entry, rows, on_base=how, listed=patched.listed or 0, unresolved=patched.unresolved)
    return Finding(Outcome.PASSED, said, facts)


def _claims(told: Told, base: _Side, patched: _Side, rows: Sequence[Row]) -> str:
    """Say what of a compile's numbers is not as the patch states, or nothing."""
    entry, target = told.entry(Compile), told.result.target
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


def _check(told: Told) -> Finding:
    entry = told.entry(Numerics if told.result.stage == "numerics" else Check)
    runs = [
        CheckRun.recorded(told.facts[side], entry.timeout)
        for side in ("base", "patched", "again")
        if side in told.facts
    ]
    base, patched = runs[:2]
    judgement = judge_check(entry, base, patched)
    facts = {**_stated(entry), "file": entry.file}
    if isinstance(entry, Numerics):
        facts |= {"fudge": entry.fudge, "why": entry.why}
        _cells(told)
        if told.facts.get("cause") in {Cause.REFERENCES_DIFFER, Cause.SHOWS_NOTHING}:
            return Finding(Outcome.UNAVAILABLE, told.as_told, facts)
        if judgement.outcome is Outcome.PASSED:
            cells = [CellRecord.model_validate(one) for one in _kept(told, "patched")]
            judgement = not_shown(entry, cells) or judgement
    if bool(side_to_repeat(judgement)) is not (len(runs) > len(("base", "patched"))):
        raise ValueError("the run that decides was not done twice")
    if len(runs) > len(("base", "patched")):
        judgement = judge_check(entry, *runs)
    over = overlay_note(str(told.facts.get("over", "")), told.patch.pin)
    laid = bool(told.facts.get("laid_over_base"))
    reason = reason_of(judgement, runs, laid=laid, over=over)
    if isinstance(entry, Numerics) and judgement.outcome is Outcome.PASSED:
        reason = _of_cells(told, entry, patched) or told.as_told
    if entry.kernels:
        facts["kernels"] = _kernels(told, entry)
    if judgement.outcome is Outcome.PASSED and entry.build:
        built = (one for one in _of(told.details, "build") if one.target == entry.target)
        if not any(one.details.get("check") == entry.build for one in built):
            raise ValueError("what it loads was not built")
    _lines_ran(told)
    seconds = sum(run.seconds for run in runs)
    facts["cause"] = str(judgement.cause)
    return Finding(judgement.outcome, reason, facts, seconds=seconds)


def _lines_ran(told: Told) -> None:
    """Refuse statements that were witnessed in a file of which no line ran."""
    executed, witness = (_table(told.facts[name]) for name in ("executed", "witness"))
    for path, lines in witness.items():
        if not executed.get(path) or not lines or told.patch.upstream.is_test(path):
            raise ValueError(f"{path}: no line of it ran")


def _kernels(told: Told, entry: Check) -> JsonValue:
    kept = _table(told.facts["kernels"])
    names = _table(kept["patched"])
    never: list[JsonValue] = [
        one for one in entry.kernels if not any(re.search(one, name) for name in names)
    ]
    return {**kept, "stated": [*entry.kernels], "never_ran": never}


def _kept(told: Told, side: str) -> list[JsonValue]:
    return _list(_table(told.facts["cells"])[side])


def _cells(told: Told) -> None:
    """Refuse numbers that no comparison gives, and totals that are not those of the cells."""
    for side in ("base", "patched"):
        cells = [CellRecord.model_validate(one) for one in _kept(told, side)]
        for output in (output for cell in cells for output in cell.outputs):
            good = output.mismatches <= output.elements and output.non_finite <= output.elements
            if output.kind == "error" and output.elements:
                yardstick = max(output.reference_abs, output.floor)
                good &= math.isclose(output.ratio or 0.0, output.max_abs / yardstick, rel_tol=_NEAR)
                good &= bool(output.complaint) or output.max_abs <= output.allowed
            if not good:
                raise ValueError(f"{output.name}: numbers that no comparison gives")
        said, made = _table(_table(told.facts["totals"])[side]), Totals.of(cells).model_dump()
        # What an older contribbot did not add up is not there.
        made = {name: made[name] for name in said}
        whole = said["cells"] == len(cells) and all(
            len(cell.outputs) < MOST_OUTPUTS for cell in cells
        )
        unlike = _unlike(made, said) if whole else _exceeds(made, said)
        if unlike:
            raise ValueError(f"totals of {unlike} that are not those of its cells")


def _exceeds(part: Mapping[str, float | None], said: Mapping[str, JsonValue]) -> str:
    """Return what of some cells is more than a record says of all, or nothing."""
    return next(
        (
            name
            for name, value in part.items()
            if value is not None
            and not (isinstance(all_ := said[name], int | float) and value <= all_)
        ),
        "",
    )


def _of_cells(told: Told, entry: Numerics, patched: CheckRun) -> str:
    totals = _table(told.facts["totals"])
    if told.older and "exact" not in _table(totals["patched"]):
        return ""
    base, now = (Totals.model_validate(totals[side]) for side in ("base", "patched"))
    return summary(entry.fudge, base, now, len(patched.skipped))


def _witness(told: Told) -> Finding:
    checks = [
        one
        for one in _of(told.details, "reproduce", "numerics")
        if one.outcome is Outcome.PASSED and one.target == told.result.target
    ]
    if told.label:
        own = next(
            one for one in checks if told.label == f"kernels of {one.stage}/{one.details['check']}"
        )
        return judge_kernels(_table(own.details["kernels"]))
    files = _table(told.facts["files"])
    statements = {path: _lines(lines) for path, lines in files.items()}
    witnessed = [one.details["witness"] for one in checks if "witness" in one.details]
    return add_up(statements, witnessed, deleted=told.facts.get("deleted") is True)


def _lines(told: JsonValue) -> list[int]:
    ran = _Ran.model_validate(told)
    return sorted({*ran.executed, *ran.not_executed})


Line = Annotated[int, Field(ge=1)]


class _Ran(Model):
    executed: list[Line]
    not_executed: list[Line]


class _Times(Model):
    """What a record keeps of the measurements of one side."""

    model_config = ConfigDict(extra="ignore")

    rounds: list[Annotated[float, Field(gt=0)]]
    samples: Line
    peak_bytes: int | None
    input_sets: Line


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


class _Ceilings(Model):
    device: str
    copy_bytes_per_second: float
    matmul_flops_per_second: dict[str, float]


def _bench(told: Told) -> Finding:
    entry = told.entry(Bench)
    facts: dict[str, JsonValue] = {
        "file": entry.file, "at_least": entry.at_least, "memory_at_most": entry.memory_at_most,
    }  # fmt: skip
    if told.result.outcome is not Outcome.PASSED:
        return Finding(told.result.outcome, told.as_told, facts)
    ceilings = None
    if told.facts["ceilings"] is not None:
        best = told.part(_Ceilings, "ceilings")
        ceilings = Ceilings(
            device=best.device,
            copy_rate=best.copy_bytes_per_second,
            matmul_rate=best.matmul_flops_per_second,
        )
    claim = Claim(entry.at_least, entry.memory_at_most, entry.rounds)
    cases = [_case(_Case.model_validate(one), claim) for one in _list(told.facts["cases"])]
    outcome, reason, _ = conclude(BenchResult(cases, ceilings), claim)
    note = overlay_note(str(told.facts.get("over", "")), told.patch.pin)
    facts["cases"] = [case_details(one, ceilings) for one in cases]
    return Finding(
        outcome if cases else Outcome.FAILED, f"{reason} ({note})" if note else reason, facts
    )


def _case(kept: _Case, claim: Claim) -> CaseResult:
    info = CaseInfo.model_validate(
        {
            "name": kept.case, "device": "cpu", "bytes_moved": kept.bytes_moved,
            "flops": kept.flops, "matmul": kept.matmul, "rtol": kept.rtol, "atol": kept.atol,
            "not_compared": kept.not_compared,
        }
    )  # fmt: skip
    base, patched = (_measured(side, len(kept.pairs)) for side in (kept.base, kept.patched))
    case = CaseResult(info, base, patched)
    if kept.results is not None:
        case.results = Compared(finding=Comparison(kept.results), text="")
    if kept.results not in {Comparison.SAME, Comparison.WITHIN} and not kept.not_compared:
        raise ValueError("its results were not compared, or differ")
    judge_case(case, claim)
    return case


def _measured(side: _Times, pairs: int) -> Measurements:
    each, rest = divmod(len(side.rounds), pairs)
    if rest or not each:
        raise ValueError("its rounds are not of its pairs of processes")
    seconds = [side.rounds[at : at + each] for at in range(0, len(side.rounds), each)]
    return Measurements(seconds, side.samples, side.peak_bytes, side.input_sets)


def _table(value: JsonValue) -> dict[str, JsonValue]:
    if not isinstance(value, dict):
        raise TypeError("a table is expected")
    return value


def _list(value: JsonValue) -> list[JsonValue]:
    if not isinstance(value, list):
        raise TypeError("a list is expected")
    return value


_RESTATE: Final[Mapping[str, Callable[[Told], Finding]]] = {
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
