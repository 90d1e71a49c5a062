"""What fresh evidence says of a patch, each figure with the record that it comes from."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from contribbot.contribute.stack import waits_for
from contribbot.contribute.text.seen import Seen, Source, merged
from contribbot.errors import NotProvedError
from contribbot.model.evidence import HOST_TARGETS, Outcome, Verdict
from contribbot.model.patch import Patch
from contribbot.queue.load import Queue
from contribbot.verify.evidence import Record, State, read_records


@dataclass(frozen=True)
class Figures:
    """All that fresh evidence says of a patch.

    Attributes:
        patch: The patch.
        below: Patches that it stands on, lowest first.
        waits: Their pull requests that are not merged, or that are to be opened first.
        sources: The fresh records.
        seen: What passed.
        stale: Targets on which only an earlier version of the patch is known to have run.
    """

    patch: Patch
    below: tuple[str, ...]
    waits: tuple[str, ...]
    sources: tuple[Source, ...]
    seen: tuple[Seen, ...]
    stale: frozenset[str]

    def of(self, *stages: str, target: str = "") -> list[Seen]:
        """Return what passed in some stages."""
        return [
            one
            for one in self.seen
            if one.result.stage in stages and target in {"", one.result.target}
        ]


def gather(queue: Queue, name: str) -> Figures:
    """Read the records of a patch."""
    patch = queue.patch(name)
    _finished(patch)
    records = read_records(queue, queue.evidence, name)
    for record in records:
        if record.state is State.TAMPERED:
            raise NotProvedError(
                f"{name}: {_inside(queue, record)}: {record.why}",
                hint=f"remove the file and run `contribbot verify {name}`",
            )
    fresh = [one for one in records if one.state is State.FRESH and one.statement is not None]
    sources = tuple(
        Source(f"R{number}", record, _inside(queue, record))
        for number, record in enumerate(fresh, start=1)
    )
    if not sources:
        old = next((f": {_inside(queue, one)}: {one.why}" for one in records), "")
        raise NotProvedError(
            f"{name}: no fresh evidence{old}", hint=f"run `contribbot verify {name}`"
        )
    _nothing_failed(name, sources)
    seen = merged(sources)
    _all_there(patch, seen)
    if not any(_verdict(one) is Verdict.PROVED for one in sources):
        raise NotProvedError(
            f"{name}: no fresh record proves it: {sources[0].file} is "
            f"{_verdict(sources[0]) or 'no record'}",
            hint=f"run `contribbot verify {name}` where it can be proved",
        )
    ran = {one.result.target for one in seen}
    stale = {
        result.target
        for record in records
        if record.state is State.STALE and record.statement is not None
        for result in record.statement.predicate.contribbot.stages
        if result.outcome is Outcome.PASSED
    }
    below, waits = tuple(queue.below(name)), waits_for(queue, name)
    return Figures(patch, below, waits, sources, seen, frozenset(stale - ran))


def _finished(patch: Patch) -> None:
    if patch.spec.unwritten:
        raise NotProvedError(
            f"{patch.name}: {', '.join(patch.spec.unwritten)} of {patch.folder / 'patch.toml'} "
            "not written yet",
            hint="write it; it becomes the text of the pull request",
        )
    if patch.spec.unproved or not patch.files:
        lacks = "states nothing that proves it" if patch.files else "has no commit"
        raise NotProvedError(
            f"{patch.name}: the patch {lacks}",
            hint=f"see docs/queue.md, then run `contribbot verify {patch.name}`",
        )


def _nothing_failed(name: str, sources: Iterable[Source]) -> None:
    for source in sources:
        for one in source.stages:
            if one.outcome is Outcome.FAILED:
                what = one.details.get("check") or one.stage
                raise NotProvedError(
                    f"{name}: {what} failed on {one.target}, says {source.file}: {one.reason}",
                    hint=f"mend it and run `contribbot verify {name}`",
                )


def _all_there(patch: Patch, seen: Iterable[Seen]) -> None:
    """Refuse when something that every machine can run is not in evidence."""
    there = {(one.result.stage, one.name, one.result.target) for one in seen}
    spec = patch.spec
    asked = [
        *(("reproduce", one.name, one.target) for one in spec.checks),
        *(("numerics", one.name, one.target) for one in spec.numerics),
        *(("bench", one.name, one.target) for one in spec.bench),
        *([("hipify", "hipify", "any")] if spec.hipify else []),
    ]
    for stage, name, target in asked:
        if target in HOST_TARGETS and (stage, name, target) not in there:
            raise NotProvedError(
                f"{patch.name}: no fresh evidence of the check {name} on {target}",
                hint=f"run `contribbot verify {patch.name}`",
            )


def _verdict(source: Source) -> Verdict | None:
    statement = source.record.statement
    return statement.predicate.contribbot.verdict if statement else None


def _inside(queue: Queue, record: Record) -> str:
    path = record.path
    return (
        path.relative_to(queue.folder) if path.is_relative_to(queue.folder) else path
    ).as_posix()
