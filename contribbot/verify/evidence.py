"""Writing evidence: the statement of what one verification saw."""

from __future__ import annotations

import enum
import json
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from pydantic import JsonValue, ValidationError

import contribbot
from contribbot.errors import ContribbotError
from contribbot.files import write_atomically
from contribbot.hardware.machine import container_of, run_of, this_machine
from contribbot.model.evidence import (
    ON_HARDWARE,
    RESULTS,
    SEEN,
    TEST_RESULT,
    Details,
    DigestSet,
    Machine,
    Outcome,
    Resource,
    StageResult,
    Statement,
    TestResult,
    judge,
    names_of,
    open_targets,
    pin_digest,
    seal_of,
    went_red_to_green,
)
from contribbot.model.history import RetiredEvent
from contribbot.model.patch import units_of
from contribbot.queue import history
from contribbot.queue.load import Queue
from contribbot.verify.pipeline import Verified, tool_digest


class State(enum.StrEnum):
    """What a record is worth now."""

    #: It is about the patch, the checks and the base that the queue has now.
    FRESH = "fresh"
    #: It was true of an earlier state of the patch, its checks or its base.
    STALE = "stale"
    #: It was changed after it was written, or contradicts itself.
    TAMPERED = "tampered"
    #: It is about a patch that left the queue.
    RETIRED = "retired"
    #: It is not about a patch of this queue, or not contribbot's.
    FOREIGN = "foreign"


@dataclass(frozen=True)
class Record:
    """A file of evidence and what it is worth.

    Attributes:
        path: The file.
        state: What it is worth.
        why: One line.
        statement: Its content, where it can be read.
    """

    path: Path
    state: State
    why: str
    statement: Statement | None = None


def record_path(folder: Path, patch: str, machine: Machine) -> Path:
    """Return the file for a patch's record on a machine: one each."""
    return folder / patch / f"{machine.slug}.json"


def read_records(queue: Queue, folder: Path, patch: str = "") -> list[Record]:
    """Read the records of a folder and judge each."""
    return [judge_record(queue, path) for path in sorted(folder.glob(f"{patch or '*'}/*.json"))]


def judge_record(queue: Queue, path: Path) -> Record:
    """Read one record and tell what it is worth."""
    if not path.is_file():
        return Record(path, State.FOREIGN, "not a file")
    try:
        document = json.loads(path.read_bytes())
        # Also what JSON can say and UTF-8 or this reader cannot.
        seal = seal_of(document if isinstance(document, dict) else {})
    except (ValueError, RecursionError) as error:
        return Record(path, State.TAMPERED, f"not JSON: {error}")
    predicate = document.get("predicate") if isinstance(document, dict) else None
    ours = isinstance(predicate, dict) and "contribbot" in predicate
    if not ours or document.get("predicateType") != TEST_RESULT:
        return Record(path, State.FOREIGN, "not a record that contribbot writes")
    try:
        statement = Statement.model_validate(document)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        return Record(path, State.TAMPERED, f"not valid: {where}: {first['msg']}")
    state, why = _worth(queue, path, statement, seal)
    return Record(path, state, why, statement)


def _worth(queue: Queue, path: Path, statement: Statement, seal: str) -> tuple[State, str]:
    """Tell what a readable record is worth, and why, from the seal that it should have."""
    details = statement.predicate.contribbot
    if problem := _contradiction(statement, seal):
        return State.TAMPERED, problem
    if details.patch not in queue.specs:
        return _of_no_patch(queue, path, details.patch)
    if (path.parent.name, path.stem) != (details.patch, details.machine.slug):
        return State.FOREIGN, f"its place is {details.patch}/{details.machine.slug}.json"
    if details.upstream != queue.specs[details.patch].upstream:
        return State.FOREIGN, f"about a patch for {details.upstream}"
    return _compared(queue, details)


def _of_no_patch(queue: Queue, path: Path, name: str) -> tuple[State, str]:
    """Tell what a record is worth whose patch the queue does not have."""
    # The folder's name first: what a record says may be no name that a path can hold.
    if path.parent.name == name and any(
        isinstance(event, RetiredEvent) for event in history.read(queue.folder, name)
    ):
        return State.RETIRED, f"about {name}, which left the queue"
    return State.FOREIGN, f"about {name}, which is no patch of this queue"


def _contradiction(statement: Statement, seal: str) -> str:
    """Say where a record was changed or contradicts itself, or nothing."""
    if statement.seal != seal:
        return "its content does not match its seal"
    predicate, details = statement.predicate, statement.predicate.contribbot
    apply = [one for one in details.stages if one.stage == "apply"]
    passed = [
        one for one in details.stages if one.outcome is Outcome.PASSED and "expect" in one.details
    ]
    told = (
        (
            all(_runs_say_so(one) for one in passed if went_red_to_green(one)),
            "a check that went from red to green did not fail on the base",
        ),
        (not any(map(_failed_all_the_same, passed)), "a check that passed did fail"),
        (details.started <= details.finished, "it ended before it started"),
        (
            all(
                one.target in details.machine.targets
                for one in details.stages
                if one.stage in ON_HARDWARE and one.outcome in SEEN
            ),
            "something ran on hardware that its machine does not have",
        ),
        (
            all(
                one.outcome is Outcome.UNAVAILABLE
                for one in details.stages
                if "runner_fault" in one.details
            ),
            "an outcome that is put down to the runner counts",
        ),
        (
            judge(details.stages, details.machine.targets) is details.verdict,
            "the verdict is not what its stages say",
        ),
        (tuple(open_targets(details.stages)) == details.open, "the open targets are not its own"),
        (RESULTS[details.verdict] == predicate.result, "the result is not the verdict"),
        (
            names_of(details.stages, Outcome.PASSED) == predicate.passedTests,
            "the passed tests differ",
        ),
        (
            names_of(details.stages, Outcome.FAILED) == predicate.failedTests,
            "the failed tests differ",
        ),
        (
            statement.subject[0].digest.sha256 == details.patch_sha256,
            "the subject is not the patch that the details name",
        ),
        (
            len(apply) == 1
            and apply[0].details.get("patched_tree") == statement.subject[1].digest.gitTree,
            "the subject is not the tree that was made",
        ),
    )
    return next((problem for holds, problem in told if not holds), "")


def _runs_say_so(result: StageResult) -> bool:
    """Say whether the runs of a passed fail-to-pass check are what that means."""
    base, patched = result.details.get("base"), result.details.get("patched")
    if not isinstance(base, dict) or not isinstance(patched, dict):
        return False
    return bool(base.get("failed") and patched.get("passed")) and not (
        base.get("passed") or patched.get("failed")
    )


def _failed_all_the_same(result: StageResult) -> bool:
    """Say whether the runs of something that passed hold a failure that it rules out."""
    base, patched = (
        isinstance(side, dict) and bool(side.get("failed"))
        for side in (result.details.get("base"), result.details.get("patched"))
    )
    # What a hipify step or a compile mends without a claim may be wrong on the base.
    stays = result.details["expect"] == "pass-to-pass" and result.stage in ON_HARDWARE
    return patched or (base and stays)


def _compared(queue: Queue, details: Details) -> tuple[State, str]:
    """Tell what a record is worth by what the queue says of its patch now."""
    try:
        patch = queue.patch(details.patch)
        below = {name: queue.patch(name).digest for name in queue.below(patch.name)}
    except ContribbotError as error:
        return State.STALE, f"the patch cannot be read now: {error.message}"
    told = (
        (details.pin == patch.spec.pin, f"the patch stands on {patch.spec.pin} now"),
        (
            details.pin_sha256 == pin_digest(patch.pin, patch.upstream),
            "the pin or the upstream's description has changed since",
        ),
        (details.patch_sha256 == patch.digest, "the patch has changed since"),
        (details.checks_sha256 == patch.checks_digest, "the checks have changed since"),
        (details.below == below, "what it depends on has changed since"),
    )
    if changed := next((problem for holds, problem in told if not holds), ""):
        return State.STALE, changed
    stated = {(stage, label) for stage, label, _ in units_of(patch)}
    named = [one for one in details.stages if "check" in one.details and one.stage != "witness"]
    if not stated.issuperset((one.stage, str(one.details["check"])) for one in named):
        return State.TAMPERED, "it has entries that the patch does not state"
    return State.FRESH, f"{details.verdict} on {details.machine.slug}"


def missing(queue: Queue, records: list[Record]) -> list[str]:
    """Return the patches of a queue that have no fresh record."""
    fresh = {
        record.statement.predicate.contribbot.patch
        for record in records
        if record.state is State.FRESH and record.statement is not None
    }
    return [name for name in queue.specs if name not in fresh]


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
