"""What a bench came to, as the record and a person read it."""

from __future__ import annotations

from typing import Final

from pydantic import JsonValue

from contribbot.bench.session import BenchResult
from contribbot.bench.verdict import (
    CaseResult,
    Claim,
    Measurements,
    Verdict,
    is_noise,
    number,
    ratio_text,
)
from contribbot.bench.wire import CaseInfo, Ceilings
from contribbot.model.outcome import Outcome

#: Digits of a measured number that are kept; none is good to more.
_DIGITS: Final = 6


def conclude(result: BenchResult, claim: Claim) -> tuple[Outcome, str, bool]:
    """Return outcome, reason and whether the same again would give the same."""
    failed = result.failed
    lasting = result.lasting and all(case.lasting for case in failed)
    if result.trouble and (result.verdict is Verdict.FAILED or not failed):
        more = f" ({_cases(result.unmeasured)} not measured)" if result.unmeasured else ""
        outcome = Outcome.FAILED if result.verdict is Verdict.FAILED else Outcome.UNAVAILABLE
        return outcome, result.trouble + more, lasting and outcome is Outcome.FAILED
    if failed:
        return Outcome.FAILED, _first(failed), lasting
    unclear = [*_of(result, Verdict.UNAVAILABLE), *_of(result, Verdict.UNDECIDED)]
    if unclear:
        return Outcome.UNAVAILABLE, _first(unclear), False
    return Outcome.PASSED, _passed(result, claim), True


def _passed(result: BenchResult, claim: Claim) -> str:
    ratios = [case.ratio for case in result.cases if case.ratio is not None]
    claimed = f"at least {claim.at_least:g} is claimed{_not_compared(result)}"
    count = _cases(len(ratios))
    if len(ratios) == 1:
        return f"{count}: {ratio_text(ratios[0])} the base's speed; {claimed}"
    medians = [ratio.median for ratio in ratios]
    found = f"{number(min(medians))}x to {number(max(medians))}x the base's speed"
    noise = ", all of it noise" if all(is_noise(ratio) for ratio in ratios) else ""
    return f"{count}: {found}{noise}; {claimed}"


def _not_compared(result: BenchResult) -> str:
    """Say of how many cases the results were not compared, and why."""
    whys = [case.info.not_compared for case in result.cases if case.info.not_compared]
    if not whys:
        return ""
    some = "" if len(whys) == len(result.cases) else f" in {_cases(len(whys))}"
    return f"; results not compared{some}: {'; '.join(dict.fromkeys(whys))}"


def _of(result: BenchResult, verdict: Verdict) -> list[CaseResult]:
    return [case for case in result.cases if case.verdict is verdict]


def _first(cases: list[CaseResult]) -> str:
    more = f" (and {_cases(len(cases) - 1)} more)" if len(cases) > 1 else ""
    return f"{cases[0].info.name}: {cases[0].text}{more}"


def _cases(count: int) -> str:
    return f"{count} case{'s' if count != 1 else ''}"


def case_details(case: CaseResult, ceilings: Ceilings | None) -> dict[str, JsonValue]:
    """Return what the record keeps of a case: seconds, bytes, and what follows from them."""
    details: dict[str, JsonValue] = {
        "case": case.info.name,
        "verdict": str(case.verdict),
        "text": case.text,
        "bytes_moved": case.info.bytes_moved,
        "flops": case.info.flops,
        "results": str(case.results.finding) if case.results else None,
        "not_compared": case.info.not_compared,
        "rtol": case.info.rtol,
        "atol": case.info.atol,
        "base": _side(case.base, case.info, ceilings),
        "patched": _side(case.patched, case.info, ceilings),
    }
    if case.ratio is not None:
        details["rounds"] = sum(len(rounds) for rounds in case.patched.seconds)
        details["pairs"] = [_short(one) for one in case.ratios]
        details["ratio"] = {
            "median": _short(case.ratio.median),
            "low": _short(case.ratio.low),
            "high": _short(case.ratio.high),
            "confidence": _short(case.ratio.confidence),
            "noise": is_noise(case.ratio),
        }
    if case.memory_ratio is not None and case.base.memory:
        details["memory_ratio"] = _short(case.memory_ratio)
    return details


def _side(taken: Measurements, info: CaseInfo, ceilings: Ceilings | None) -> dict[str, JsonValue]:
    details: dict[str, JsonValue] = {"peak_bytes": taken.memory, "input_sets": taken.sets}
    if not taken.seconds:
        return details
    time = taken.time
    details |= {
        "seconds": _short(time.median),
        "low": _short(time.low),
        "high": _short(time.high),
        "rounds": [_short(one) for rounds in taken.seconds for one in rounds],
        "samples": taken.samples,
    }
    if info.bytes_moved:
        rate = info.bytes_moved / time.median
        details["bytes_per_second"] = _short(rate)
        if ceilings is not None:
            details["of_copy"] = _short(rate / ceilings.copy_rate)
    if info.flops:
        rate = info.flops / time.median
        details["flops_per_second"] = _short(rate)
        ceiling = ceilings.matmul_rate.get(info.matmul or "") if ceilings is not None else None
        if ceiling:
            details["of_matmul"] = _short(rate / ceiling)
    return details


def ceiling_details(ceilings: Ceilings | None) -> JsonValue:
    """Return what the record keeps of what the machine can do at best."""
    if ceilings is None:
        return None
    return {
        "device": ceilings.device,
        "copy_bytes_per_second": _short(ceilings.copy_rate),
        "matmul_flops_per_second": {
            name: _short(rate) for name, rate in ceilings.matmul_rate.items()
        },
    }


def _short(value: float) -> float:
    return float(f"{value:.{_DIGITS}g}")
