"""Writing evidence: the statement of what one verification saw."""

from __future__ import annotations

import json
from datetime import datetime
from pathlib import Path

from pydantic import JsonValue

import contribbot
from contribbot.files import write_atomically
from contribbot.hardware.probe import this_machine
from contribbot.hardware.runner import container_of, run_of
from contribbot.model.evidence import (
    RESULTS,
    Details,
    DigestSet,
    Resource,
    Statement,
    TestResult,
    names_of,
    pin_digest,
    seal_of,
)
from contribbot.model.outcome import Outcome
from contribbot.verify.cache import tool_digest
from contribbot.verify.pipeline import Verified
from contribbot.verify.records import record_path


def state_evidence(verified: Verified) -> Statement | None:
    """Make the statement of a verification; None when there was nothing to apply to."""
    report, patch = verified.report, verified.patch
    if report.base_commit is None or report.patched_tree is None:
        return None
    base_tree = next(str(one.details["base_tree"]) for one in report.stages if one.stage == "apply")
    predicate = TestResult(
        result=RESULTS[report.verdict],
        configuration=(
            Resource(
                name=patch.pin.title,
                digest=DigestSet(gitCommit=report.base_commit, gitTree=base_tree),
            ),
            Resource(name=f"{patch.name}/checks", digest=DigestSet(sha256=patch.checks_digest)),
        ),
        passedTests=names_of(report.stages, Outcome.PASSED),
        warnedTests=(),
        failedTests=names_of(report.stages, Outcome.FAILED),
        contribbot=_details(verified, report.base_commit),
    )
    statement = Statement(
        subject=(
            Resource(name=f"patches/{patch.name}", digest=DigestSet(sha256=patch.digest)),
            Resource(
                name=f"{patch.pin.title} with {patch.name}",
                digest=DigestSet(gitTree=report.patched_tree),
            ),
        ),
        predicate=predicate,
    )
    return statement.model_copy(update={"seal": seal_of(_document(statement))})


def _details(verified: Verified, base_commit: str) -> Details:
    """Return what in-toto's predicate has no place for: what was seen, where, when, by what."""
    report, patch = verified.report, verified.patch
    times = sorted(
        datetime.fromisoformat(str(one.details["seen"]))
        for one in report.stages
        if "seen" in one.details
    )
    return Details(
        tool=contribbot.__version__,
        tool_sha256=tool_digest(),
        command=f"contribbot verify {patch.name}",
        started=times[0],
        finished=times[-1],
        patch=patch.name,
        patch_sha256=patch.digest,
        checks_sha256=patch.checks_digest,
        below={lower.name: lower.digest for lower in verified.below},
        upstream=report.upstream,
        pin=report.pin,
        pin_sha256=pin_digest(patch.pin, patch.upstream),
        base_commit=base_commit,
        machine=this_machine(),
        verdict=report.verdict,
        open=report.open,
        stages=report.stages,
        run=run_of(),
        container=container_of(),
    )


def _document(statement: Statement) -> dict[str, JsonValue]:
    document: dict[str, JsonValue] = json.loads(
        statement.model_dump_json(by_alias=True, exclude_none=True)
    )
    return document


def write_evidence(folder: Path, statement: Statement) -> Path:
    """Write a statement as the record of its patch and machine, replacing the one before."""
    details = statement.predicate.contribbot
    path = record_path(folder, details.patch, details.machine)
    text = json.dumps(_document(statement), indent=2, ensure_ascii=False)
    write_atomically(path, text.encode() + b"\n")
    return path
