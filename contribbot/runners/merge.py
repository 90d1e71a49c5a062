"""Taking records that came into the queue's evidence: one file each, whole or not at all."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

from contribbot.files import lock, write_atomically
from contribbot.model.actions import RecordEnd
from contribbot.model.evidence import SEEN, Details, Outcome, PatchReport, StageResult
from contribbot.queue import history
from contribbot.queue.load import Queue
from contribbot.runners.answer import Answer
from contribbot.verify.evidence import State, judge_record

_LOCK: Final = "collect.lock"
_MANY: Final = 3


def merge(queue: Queue, answers: Iterable[tuple[str, Answer]]) -> tuple[RecordEnd, ...]:
    """Take records into the queue, and note what is news in the histories of patches.

    Where a record has the place, the newer one gets it; but never one that saw less, and the
    place of a record that no run made only one that saw something fail.
    """
    queue.local.mkdir(parents=True, exist_ok=True)
    with lock(queue.local / _LOCK, "the merging of records"):
        return tuple(_merge(queue, job, answer) for job, answer in answers)


def _merge(queue: Queue, job: str, answer: Answer) -> RecordEnd:
    place = queue.evidence / answer.patch / answer.file
    inside = place.relative_to(queue.folder).as_posix()
    details = answer.details
    if answer.refused or details is None:
        return RecordEnd(path=inside, job=job, merged="refused", why=answer.refused)
    if problem := _no_place(queue, place):
        return RecordEnd(path=inside, job=job, merged="refused", why=problem)
    said = f"{details.verdict} on {details.machine.slug}"
    if not place.exists():
        _write(queue, place, answer, details)
        return RecordEnd(path=inside, job=job, merged="new", why=said)
    if place.read_bytes() == answer.content:
        # Whoever was killed after the record was written did not note it.
        _note(queue, answer, details)
        return RecordEnd(path=inside, job=job, merged="unchanged", why=said)
    there = judge_record(queue, place)
    if there.state is State.FRESH and there.statement is not None:
        old = there.statement.predicate.contribbot
        if problem := _worse(old, details):
            return RecordEnd(path=inside, job=job, merged="kept", why=problem)
        whose = "" if old.run else ", which no run made,"
        why = f"{said}; the one of {old.finished:%Y-%m-%d %H:%M}{whose} said {old.verdict}"
    else:
        why = f"{said}; the one that was there was {there.state}: {there.why}"
    _write(queue, place, answer, details)
    return RecordEnd(path=inside, job=job, merged="replaced", why=why)


def _no_place(queue: Queue, place: Path) -> str:
    """Say why nothing is written to a place: it would be written elsewhere."""
    for path in (queue.evidence, place.parent, place):
        if path.is_symlink():
            return f"{path.relative_to(queue.folder)} is a link"
    if place.exists() and not place.is_file():
        return "there is something at its place that is no file"
    return ""


def _worse(old: Details, new: Details) -> str:
    """Say why the record that is there stays; or nothing."""
    if old.finished >= new.finished:
        return f"the one that is there is as new or newer: {old.finished.isoformat()}"
    if old.run is None and Outcome.FAILED not in {one.outcome for one in new.stages}:
        # Whoever made it saw it; of one that came, only that it was sent is known.
        return "the one that is there was made by hand, by no run"
    before, after = _outcomes(old.stages), _outcomes(new.stages)
    # What fails now is news; what was not seen now is not.
    lost = [
        "/".join(part for part in key if part)
        for key, outcome in before.items()
        if outcome in SEEN and after.get(key) not in SEEN
    ]
    if not lost:
        return ""
    more = f" and {len(lost) - _MANY} more" if len(lost) > _MANY else ""
    return f"the one that is there saw more: {', '.join(lost[:_MANY])}{more}"


def _outcomes(stages: Iterable[StageResult]) -> Mapping[tuple[str, str, str], Outcome]:
    return {(one.stage, str(one.details.get("check", "")), one.target): one.outcome
            for one in stages}  # fmt: skip


def _write(queue: Queue, place: Path, answer: Answer, details: Details) -> None:
    write_atomically(place, answer.content)
    _note(queue, answer, details)


def _note(queue: Queue, answer: Answer, details: Details) -> None:
    """Note it in the history of its patch, unless it is there."""
    report = PatchReport(
        patch=details.patch, upstream=details.upstream, pin=details.pin,
        base_commit=details.base_commit, patched_tree=None, verdict=details.verdict,
        stages=details.stages, open=details.open,
    )  # fmt: skip
    history.note_verified(queue.folder, queue.patch(answer.patch), report, details.machine)
