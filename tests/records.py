"""Records of machines that are not here, with the facts that `verify` would have written."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime

from pydantic import JsonValue

from contribbot.model.checks import Build, Check, Compile
from contribbot.model.evidence import (
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
from contribbot.verify.stages.base import stated_facts

Facts = dict[str, JsonValue]
NONE, OTHER = "0" * 40, "1" * 40


def made_up(
    queue: Queue,
    name: str,
    machine: Machine,
    *,
    outcomes: Mapping[str, Outcome],
    seconds: float,
    commit: str,
) -> Statement:
    """Return a record in which all that the machine has the hardware for has passed."""
    patch, now = queue.patch(name), datetime.now(UTC)
    details = Details(
        tool="0", tool_sha256="0" * 64, command="", started=now, finished=now, patch=name,
        patch_sha256=patch.digest, checks_sha256=patch.checks_digest, upstream=patch.upstream.name,
        below={low: queue.patch(low).digest for low in queue.below(name)}, pin=patch.pin.tag,
        pin_sha256=pin_digest(patch.pin, patch.upstream), base_commit=commit, machine=machine,
        verdict=Verdict.INCOMPLETE, open=(), stages=(),
    )  # fmt: skip
    for stage, label, where in units_of(patch):
        here = stage == "compile" or where in machine.targets
        outcome = outcomes.get(stage) or (Outcome.PASSED if here else Outcome.UNAVAILABLE)
        facts: Facts = {"check": label} if label else {}
        if outcome is not Outcome.UNAVAILABLE:
            reds = [
                check.reason for check in patch.spec.checks if check.name == label and check.reason
            ]
            said = reds[0].strip("^$") if stage == "reproduce" and reds else ""
            facts |= facts_of(patch, stage, outcome, seconds=seconds, commit=commit, red=said)
            facts |= {"seen": now.isoformat(), **stated_of(patch, stage, label)}
        reason = f"{label}: made up" if label else "made up"
        result = StageResult(stage=stage, target=where, outcome=outcome, reason=reason,
                             seconds=seconds, details=facts)  # fmt: skip
        details = details.model_copy(update={"stages": (*details.stages, result)})
    return statement_of(details)


def stated_of(patch: Patch, stage: str, label: str) -> Facts:
    """Return what a record keeps of what the patch states of an entry."""
    spec = patch.spec
    stages: dict[str, tuple[Check | Compile | Build, ...]] = {
        "reproduce": spec.checks, "numerics": spec.numerics, "compile": spec.compile,
        "build": spec.build,
    }  # fmt: skip
    stated = [stated_facts(entry) for entry in stages.get(stage, ()) if entry.name == label]
    return stated[0] if stated else {}


def facts_of(
    patch: Patch, stage: str, outcome: Outcome, *, seconds: float, commit: str, red: str
) -> Facts:
    """Return what a stage keeps of what it saw; `red`: how a base failed that had to."""
    passed: JsonValue = ["it"] if outcome is Outcome.PASSED else []
    failure: JsonValue = [{"test": "it", "when": "call", "message": "made up"}]
    side: Facts = {"passed": ["it"], "failed": [], "seconds": seconds / 2}
    after: Facts = {**side, "passed": passed, "failed": [] if passed else failure}
    if stage == "source":
        return {"kind": "git", "commit": commit, "tree": NONE, "from": "made up"}
    if stage == "apply":
        commits: JsonValue = [
            {"file": file.name, "commit": OTHER, "subject": "made up"} for file in patch.files
        ]
        return {
            "base_commit": commit, "base_tree": NONE, "tested_tree": NONE, "adjustments": [],
            "patched_commit": OTHER, "patched_tree": OTHER, "commits": commits,
        }  # fmt: skip
    if stage == "style":
        return {"problems": []}
    if stage == "compile":
        numbers: JsonValue = [8, 0, 16, 0, 0, 0, 64, 8, 128, 20]
        listed: Facts = {"kernels": 1, "listed": 1, "instructions": 20}
        columns: JsonValue = ["vgprs", "agprs", "sgprs", "lds", "scratch", "spills", "wavefront",
                              "occupancy", "code", "instructions"]  # fmt: skip
        table: Facts = {"columns": columns, "rows": [["kernel", 1, numbers, numbers]]}
        return {"base": {**side, **listed}, "patched": {**after, **listed}, "table": table}
    run: Facts = {"skipped": [], "trouble": "", "command": "", "log_sha256": "", "log_tail": ""}
    base: Facts = {**side, **run}
    if red:
        base |= {"passed": [], "failed": [{"test": "it", "when": "call", "message": red}]}
    twice: Facts = {**(base if red else after), **run, "seconds": 0.0}
    again: Facts = {"again": twice} if red or not passed else {}
    back: Facts = {"proof": True} if red else {}
    return {"base": base, "patched": {**after, **run}, **back, **again}
