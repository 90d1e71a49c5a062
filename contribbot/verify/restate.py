"""What a record says, said again from the facts that it holds, by the stages that said it."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping
from itertools import chain
from typing import Final

from pydantic import JsonValue, ValidationError

from contribbot.model.checks import is_emulated
from contribbot.model.evidence import ON_HARDWARE, RAN, SEEN, Details, Outcome, StageResult
from contribbot.model.patch import Patch, units_of
from contribbot.verify.pipeline import STAGES, obstacle_of
from contribbot.verify.stages.base import NEAR, RecordedResult, Stage, as_table

_STAGES: Final[Mapping[str, Stage]] = {stage.name: stage for stage in chain.from_iterable(STAGES)}
#: Seconds that rounding each side may cost in a sum.
_ROUNDED: Final = 0.01
#: What a result has of which something was seen.
_FACTS: Final = frozenset({"base", "files", "kernels", "problems", "from", "commits"})
#: Stages of which a patch states whether the base fails.
_CLAIMS: Final = frozenset({"hipify", "compile", "build", "reproduce", "numerics", "emulate"})


def contradiction(patch: Patch, details: Details) -> str:
    """Say where a record is not what its facts come to for a patch, or nothing."""
    return next(_contradictions(patch, details), "")


def _contradictions(patch: Patch, details: Details) -> Iterator[str]:
    by_stage = {
        name: [result for result in details.stages if result.stage == name] for name in _STAGES
    }
    if sum(map(len, by_stage.values())) != len(details.stages):
        yield "it has a stage that contribbot does not know"
    for stage in _STAGES.values():
        results = [RecordedResult(result, patch, details) for result in by_stage[stage.name]]
        if obstacle := obstacle_of(stage, by_stage):
            outcomes = [(kept.result.outcome, kept.result.reason) for kept in results]
            if outcomes != [(Outcome.SKIPPED, obstacle)]:
                yield f"{stage.name} was not skipped, and {obstacle}"
            continue
        stated = Counter(_entries(stage.name, patch, details))
        listed = Counter((kept.result.label, kept.result.target) for kept in results)
        # Whether there is anything to hipify only the trees can tell.
        if listed != stated and (listed or stage.name != "hipify"):
            more, less = listed - stated, stated - listed
            what = _name(stage.name, *next(iter(more or less)))
            if more:
                yield f"it has an outcome of {what} that the patch does not state"
            yield f"it leaves out {what}"
        for kept in results:
            if problem := _problem(kept):
                yield f"{_name(*kept.result.unit)}: {problem}"


def _name(*parts: str) -> str:
    return "/".join(filter(None, parts))


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
            if result.stage in RAN and result.outcome is Outcome.PASSED
        ]
        for target in dict.fromkeys(result.target for result in ran if "witness" in result.details):
            yield "", target
        for result in ran:
            if "kernels" in result.details:
                yield f"kernels of {result.stage}/{result.label}", result.target


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
    result, facts, machine = kept.result, kept.facts, kept.record.machine
    counts, files = result.outcome in SEEN, kept.patch.spec.files
    ran = counts and result.stage in ON_HARDWARE | {"witness", "build"}
    ran &= not is_emulated(result.target)
    threads, flight = facts.get("threads", 1), as_table(facts.get("preflight") or {})
    gpus = {gpu.target for gpu in machine.gpus}
    # A flight that failed before it saw the GPU names none.
    flown = not flight or (
        str(flight.get("arch", "")).partition(":")[0] in gpus
        and flight["passed"] is True
        and flight["target"] == result.target
    )
    named = [facts.get(key) or {} for key in ("executed", "witness", "files", "laid_over_base")]
    foreign = any(set(paths) - set(files) for paths in named if isinstance(paths, dict | list))
    # What is unavailable was not seen.
    seen = result.outcome is not Outcome.UNAVAILABLE
    elsewhere = f"it ran on {result.target}, which its machine does not have"
    fits = isinstance(threads, int) and 0 < threads <= max(machine.cores, _threads(kept))
    rules = (
        (("seen" in facts) is seen, "it does not say when it was seen"),
        (not ran or result.target in machine.targets, elsewhere),
        ("expect" not in facts or result.stage in _CLAIMS, "it claims what its stage does not"),
        (not counts or "runner_fault" not in facts, "it is put down to the runner, and counts"),
        (fits, f"{threads} threads of {machine.cores} cores"),
        (not counts or flown, "its pre-flight was not on its machine"),
        (not foreign, "it names a file that the patch does not have"),
    )
    return next((problem for holds, problem in rules if not holds), "")


def _threads(kept: RecordedResult) -> int:
    """Return how many threads an entry asks for by itself."""
    benches = kept.patch.spec.bench if kept.result.stage == "bench" else ()
    own = (bench.env for bench in benches if bench.name == kept.result.label)
    asked = (env.get("OMP_NUM_THREADS", "") for env in own)
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
        return "" if math.isclose(kept, again, rel_tol=NEAR) else key
    else:
        return "" if type(kept) is type(again) and kept == again else key
    differences = (unlike(value, other, name) for name, value, other in pairs)
    return next(filter(None, differences), "").removeprefix(".")


def restate(kept: RecordedResult) -> StageResult:
    """Return a result as its facts have it; one without facts may say that nothing was seen."""
    bare = not _FACTS & kept.facts.keys()
    if bare and kept.result.outcome is not Outcome.PASSED:
        return kept.result
    finding = _STAGES[kept.result.stage].restate(kept)
    reason = f"{kept.result.label}: {finding.reason}" if kept.result.label else finding.reason
    return kept.result.model_copy(
        update={
            "outcome": finding.outcome,
            "reason": reason,
            "details": {**kept.facts, **finding.details},
            "seconds": kept.result.seconds if finding.seconds is None else finding.seconds,
        }
    )
