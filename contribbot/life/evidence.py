"""What the kept records say of each target that a patch asks for."""

from __future__ import annotations

from collections.abc import Sequence

from contribbot.model.outcome import ON_HARDWARE, Outcome, StageResult
from contribbot.model.patch import PatchSpec
from contribbot.model.status import TargetState
from contribbot.queue.load import Queue
from contribbot.verify.records import State, read_records


def asked(spec: PatchSpec) -> list[str]:
    """Return the targets on which a patch states something, as `--require` names them."""
    ran = [one.target for one in (*spec.checks, *spec.numerics, *spec.bench)]
    compiled = [f"compile:{target}" for one in spec.compile for target in one.targets]
    built = [f"build:{target}" for one in spec.build for target in one.targets]
    return list(dict.fromkeys([*ran, *compiled, *built]))


def target_states(queue: Queue, name: str) -> tuple[TargetState, ...]:
    """Return what the records in the queue say of each target of a patch."""
    by_state: dict[State, set[str]] = {State.FRESH: set(), State.STALE: set()}
    targets = asked(queue.specs[name])
    for record in read_records(queue, queue.evidence, name):
        if record.state in by_state and record.statement is not None:
            stages = record.statement.predicate.contribbot.stages
            by_state[record.state] |= {one for one in targets if _passed(stages, one)}
    return tuple(
        TargetState(
            target=one,
            evidence=next(
                (str(state) for state, seen in by_state.items() if one in seen), "missing"
            ),
        )
        for one in targets
    )


def _passed(stages: Sequence[StageResult], need: str) -> bool:
    """Say whether all that a record has of a target passed."""
    stage, _, target = need.rpartition(":")
    outcomes = {
        one.outcome
        for one in stages
        if one.target == target and (one.stage == stage if stage else one.stage in ON_HARDWARE)
    }
    return outcomes == {Outcome.PASSED}
