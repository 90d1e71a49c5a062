"""The work of `contribbot verify`: verify patches, write records, choose the exit code."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Final

from contribbot.errors import ExitCode, UsageError
from contribbot.machine.machine import actions_run, job_container, this_machine
from contribbot.model.checks import DEFAULT_TARGETS
from contribbot.model.evidence import (
    ON_HARDWARE,
    SEEN,
    Outcome,
    PatchFault,
    PatchReport,
    Verdict,
    need_of,
)
from contribbot.queue import history
from contribbot.queue.load import Queue, did_you_mean
from contribbot.verify.evidence import (
    Record,
    State,
    judge_record,
    record_path,
    state_evidence,
    write_evidence,
)
from contribbot.verify.patch_verdict import is_at_fault, unavailable_here, unmet
from contribbot.verify.pipeline import Options, Verified, Watcher, verify
from contribbot.verify.runner_fault import at_fault

#: The prefixes of a target in `--require`; emulated targets have the prefix `emulated`.
_STAGES: Final = {"", "build", "compile", *ON_HARDWARE}


@dataclass(frozen=True)
class Done:
    """The reports of a verification, and the paths of the records."""

    reports: list[PatchReport]  # the report of each patch
    records: dict[str, Path]  # the path of each patch's record, by the patch's name


def refuse_unknown(queue: Queue, names: Sequence[str], required: Sequence[str]) -> None:
    """Raise UsageError for a required target that is not usual and not in any entry."""
    stated = {target for name in names for _, _, target in queue.specs[name].units}
    known = sorted({*stated, "cpu", "cuda", *DEFAULT_TARGETS})
    for need in required:
        stage, target = need_of(need)
        if target not in known or stage not in _STAGES:
            like = did_you_mean(target if stage in _STAGES else need, known)
            raise UsageError(
                f"--require {need}: no entry of {', '.join(names)} is for it{like}",
                hint=f"they are for {', '.join(sorted(stated)) or 'no target yet'}",
            )


def verify_and_record(
    queue: Queue,
    names: Sequence[str],
    *,
    options: Options,
    folder: Path,
    watcher: Watcher,
) -> Done:
    """Verify patches, write their records, and add new outcomes to the patches' journals."""
    # Errors about the CI run or the container must come before hours of work, not after.
    actions_run(), job_container()
    with terminated_as_interrupted():
        verified = verify(queue, names, options=options, watcher=watcher)
        records = _record(queue, verified, folder)
    return Done([patch.report for patch in verified], records)


def _record(queue: Queue, verified: Sequence[Verified], folder: Path) -> dict[str, Path]:
    """Note the verdicts, write the records that are due; return each patch's record file."""
    records = {}
    for patch in verified:
        report, statement = patch.report, state_evidence(patch)
        if statement is None:
            continue
        remembered = all(row.cached for row in report.stages if row.outcome in SEEN)
        event = history.verified_event(
            report,
            this_machine(),
            digest=patch.patch.digest,
            checks=patch.patch.checks_digest,
            time=history.now(),
        )
        history.note_verified(queue.folder, report.patch, event, ran=not remembered)
        path = record_path(folder, report.patch, this_machine())
        known = judge_record(queue, path) if path.is_file() else None
        # A record has the time of its work: neither repeated outcomes nor a runner at fault
        # replace the record.
        if known and (remembered or at_fault(report.stages)) and _is_about(known, report):
            records[report.patch] = path
        elif known and report.verdict is Verdict.INCOMPLETE and _proved_before(known):
            continue
        else:
            records[report.patch] = write_evidence(folder, statement)
    return records


def _proved_before(known: Record) -> bool:
    """Return whether a stale record proved its patch; an incomplete report keeps such a record."""
    proved = known.statement and known.statement.predicate.contribbot.verdict is Verdict.PROVED
    return known.state is State.STALE and bool(proved)


def _is_about(known: Record, report: PatchReport) -> bool:
    """Return whether a fresh record has the trees and the verdict of a report."""
    if known.state is not State.FRESH or known.statement is None:
        return False
    tree, details = known.statement.subject[1].digest.gitTree, known.statement.predicate.contribbot
    same = (details.base_commit, tree) == (report.base_commit, report.patched_tree)
    return same and (details.verdict is report.verdict or at_fault(report.stages))


@contextmanager
def terminated_as_interrupted() -> Iterator[None]:
    """End a block as on Ctrl-C if CI cancels the job (SIGTERM) or the terminal closes (SIGHUP)."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def interrupt(_number: int, _frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    ends = (signal.SIGTERM, signal.SIGHUP)
    before = [signal.signal(number, interrupt) for number in ends]
    try:
        yield
    finally:
        for number, handler in zip(ends, before, strict=True):
            signal.signal(number, handler)


def exit_code(reports: Sequence[PatchReport], required: Sequence[str]) -> ExitCode:
    """Return the exit code of `verify` from the reports and the required targets."""
    stages = [stage for report in reports for stage in report.stages]
    if any(stage.patch_fault is PatchFault.INVALID for stage in stages):
        return ExitCode.USAGE
    # A patch is unfinished if no entry failed, and if no entry could have proved the patch.
    if any(stage.patch_fault is PatchFault.UNFINISHED for stage in stages):
        return ExitCode.NO
    targets = this_machine().targets
    if any(report.verdict is Verdict.REFUTED or _denied(report, required) for report in reports):
        return ExitCode.NO
    incomplete = any(report.verdict is Verdict.INCOMPLETE for report in reports)
    could_not = at_fault(stages) or any(unavailable_here(stage, targets) for stage in stages)
    return ExitCode.MACHINE if could_not or (incomplete and not required) else ExitCode.OK


def _denied(report: PatchReport, required: Sequence[str]) -> bool:
    """Return whether a required target is unproved for another reason than a runner fault."""
    if any(row.stage == "source" and row.outcome is Outcome.UNAVAILABLE for row in report.stages):
        return False  # no stage has looked at the patch
    return not all(is_at_fault(report.stages, need) for need in unmet(report, required))
