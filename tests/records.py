"""Records of machines that are not here, with the facts that `verify` would have written."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime

from contribbot.model.checks import Hipify, Stated
from contribbot.model.evidence import (
    RESULT,
    Details,
    Machine,
    Outcome,
    StageResult,
    Statement,
    Verdict,
    pin_digest,
)
from contribbot.model.patch import Patch, units_of
from contribbot.queue.load import Queue
from contribbot.verify.evidence import statement_of

Facts = dict[str, object]
NONE, OTHER = "0" * 40, "1" * 40


def made_up(
    queue: Queue, name: str, machine: Machine, *,
    outcomes: Mapping[str, Outcome], seconds: float, commit: str,
) -> Statement:  # fmt: skip
    """Return a record in which all that the machine has the hardware for has passed."""
    patch, now = queue.patch(name), datetime.now(UTC)
    details = Details(
        tool="0", tool_sha256="0" * 64, command="", started=now, finished=now, patch=name,
        patch_sha256=patch.digest, checks_sha256=patch.checks_digest, upstream=patch.upstream.name,
        below={low: queue.patch(low).digest for low in queue.below(name)}, pin=patch.pin.tag,
        pin_sha256=pin_digest(patch.pin, patch.upstream), base_commit=commit, machine=machine,
        verdict=Verdict.INCOMPLETE, open=(), stages=(),
    )  # fmt: skip
    stages = []
    for stage, label, where in units_of(patch):
        here = stage == "compile" or where in machine.targets
        outcome = outcomes.get(stage) or (Outcome.PASSED if here else Outcome.UNAVAILABLE)
        reason = f"{label}: made up" if label else "made up"
        row: Facts = {"stage": stage, "target": where, "label": label, "outcome": outcome,
                      "reason": reason, "seconds": seconds}  # fmt: skip
        if outcome is not Outcome.UNAVAILABLE:
            reds = [
                check.reason for check in patch.spec.checks if check.name == label and check.reason
            ]
            said = reds[0].strip("^$") if stage == "reproduce" and reds else ""
            facts = facts_of(patch, stage, outcome, seconds=seconds, commit=commit, red=said)
            row |= {"seen": now, "details": facts | stated_of(patch, stage, label)}
        stages.append(RESULT.validate_python(row))
    return statement_of(details.model_copy(update={"stages": tuple(stages)}))


def stated_of(patch: Patch, stage: str, label: str) -> Facts:
    spec = patch.spec
    entries: dict[str, tuple[Stated, ...]] = {
        "reproduce": spec.checks, "numerics": spec.numerics, "compile": spec.compile,
        "build": spec.build,
    }  # fmt: skip
    if stage not in {*entries, "hipify", "emulate"}:
        return {}
    found = [entry for entry in entries.get(stage, ()) if getattr(entry, "name", "") == label]
    entry = found[0] if found else Hipify(expect="pass-to-pass")
    return {"expect": entry.expect, "stated_reason": entry.reason}


#: Numbers of a kernel, in their order.
NUMBERS = (8, 0, 16, 0, 0, 0, 64, 8, 128, 20)
TOTALS = dict.fromkeys(
    ("cells", "failed", "silent", "spoiled", "odd", "elements", "mismatches", "non_finite",
     "exact", "differing"), 0,
)  # fmt: skip
NUMERICS: Facts = {
    "fudge": 2.0, "floor": 0.0, "why": "", "judged_by_sha256": "",
    "cells": {"base": [], "patched": []}, "totals": {"base": TOTALS, "patched": TOTALS},
}  # fmt: skip
#: The facts of a stage beside its two sides, and of each side.
FACTS: dict[str, Facts] = {
    "hipify": {"modules": {}},
    "compile": {
        "kind": "hip", "source": "k.hip", "command": "", "toolchain": {},
        "table": {"rows": [["kernel", 1, NUMBERS, NUMBERS]]},
    },
    "build": {"way": "extension", "compilers": []},
    "bench": {"file": "bench.py", "at_least": 1.0, "too_noisy": False, "cases": []},
    "numerics": {"numerics": NUMERICS},
    "emulate": {"emulator": "none"},
}  # fmt: skip
RUN: Facts = {"command": "", "log_tail": "", "seconds": 0.0}
SIDES: dict[str, Facts] = {
    "hipify": {"outputs": {}, "missing": {}, "command": "", "log_tail": ""},
    "compile": {
        "remembered": False, "seconds": 0.0, "kernels": 1, "listed": 1, "instructions": 20,
    },
    "build": {
        "trouble": "", "seconds": 0.0, "reused": False, "product": "", "sha256": "", "log_tail": "",
    },
}  # fmt: skip


def facts_of(
    patch: Patch, stage: str, outcome: Outcome, *, seconds: float, commit: str, red: str
) -> Facts:
    """Return the record of a stage; `red`: how a base failed that had to."""
    if stage == "source":
        return {"kind": "git", "commit": commit, "tree": NONE, "origin": "made up"}
    if stage == "apply":
        commits = [
            {"file": file.name, "commit": OTHER, "subject": "made up"} for file in patch.files
        ]
        trees = {"base_commit": commit, "base_tree": NONE, "tested_tree": NONE,
                 "patched_commit": OTHER, "patched_tree": OTHER}  # fmt: skip
        return {"trees": trees, "commits": commits}
    if stage == "style":
        return {"problems": [], "minded": []}
    return two_sides(stage, seconds=seconds / 2, red=red, patched_fault=outcome is Outcome.FAILED)


def two_sides(
    stage: str, *, seconds: float = 0.0, red: str = "", patched_fault: bool = False
) -> Facts:
    if stage == "bench":
        log = {"command": "", "log_sha256": "", "log_tail": ""}
        return {**FACTS["bench"], "base": log, "patched": log}
    side = SIDES.get(stage, RUN)
    side = {**side, "seconds": seconds} if "seconds" in side else side
    green: Facts = {**side, "passed": ["it"]}

    def failing(message: str) -> Facts:
        return {**side, "failed": [{"test": "it", "when": "call", "message": message}]}

    sides: Facts = {
        "base": failing(red) if red else green,
        "patched": failing("made up") if patched_fault else green,
    }
    if stage not in SIDES:
        sides |= {"file": "test_it.py", "cause": "made up", "sandbox": "none"}
    sides |= {"proof": bool(red)}
    return {**FACTS.get(stage, {}), **sides}


def seen(
    stage: str, target: str = "cpu", outcome: Outcome = Outcome.PASSED, *,
    label: str = "", reason: str = "", red: str = "", **details: object,
) -> StageResult:  # fmt: skip
    """Return an outcome of a stage that looks at both trees."""
    stated: Facts = {"expect": "fail-to-pass" if red else "pass-to-pass", "stated_reason": red}
    made = two_sides(stage, red=red) | ({} if stage == "bench" else stated) | details
    return RESULT.validate_python(
        {"stage": stage, "target": target, "outcome": outcome, "label": label, "reason": reason,
         "seconds": 1.0, "details": made},
    )  # fmt: skip
