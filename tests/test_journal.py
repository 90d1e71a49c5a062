from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from contribbot.errors import QueueError
from contribbot.machine import this_machine
from contribbot.model.evidence import (
    RESULT,
    Machine,
    Outcome,
    PatchReport,
    StageResult,
    Verdict,
)
from contribbot.queue.history import (
    PullRequestEvent,
    RetiredEvent,
    VerifiedEvent,
    append,
    journal_file,
    note_verified,
    outcomes_by_target,
    read,
    standing_refutations,
    verified_event,
)
from tests.conftest import Program
from tests.toy import Toy

WHEN = datetime(2026, 11, 21, 7, 30, tzinfo=UTC)


def opened(number: int = 1) -> PullRequestEvent:
    return PullRequestEvent(
        time=WHEN, summary=f"opened #{number}", reference=f"example/toy#{number}", state="open"
    )


def test_events_are_read_as_they_were_added_and_each_is_one_line(tmp_path: Path) -> None:
    retired = RetiredEvent(time=WHEN, summary="merged", why="in v1.1 \N{SNOWMAN}")
    for event in (opened(), retired):
        append(tmp_path, "area", event)
    assert read(tmp_path, "area") == [opened(), retired]
    rows = journal_file(tmp_path, "area").read_text(encoding="utf-8").splitlines()
    assert [json.loads(row)["event"] for row in rows] == ["pull-request", "retired"]
    assert rows[0].startswith('{"time":"2026-11-21T07:30:00Z","summary":"opened #1"')
    assert read(tmp_path, "other") == []


@pytest.mark.parametrize(
    ("keep", "added", "events"),
    [
        (-1, b"", [opened(1), opened(2)]),
        (-2, b"", [opened(1)]),
        (-60, b"", [opened(1)]),
        (None, b"\n \n", [opened(1), opened(2)]),
    ],
    ids=["no end of line", "cut by a byte", "cut in the middle", "blank lines"],
)
def test_a_journal_whose_end_is_not_whole_is_read_and_mended(
    tmp_path: Path, keep: int | None, added: bytes, events: list[PullRequestEvent]
) -> None:
    for number in (1, 2):
        append(tmp_path, "area", opened(number))
    path = journal_file(tmp_path, "area")
    path.write_bytes(path.read_bytes()[:keep] + added)
    assert read(tmp_path, "area") == events
    append(tmp_path, "area", opened(3))
    assert read(tmp_path, "area") == [*events, opened(3)]
    assert path.read_bytes().endswith(b"\n")


def test_another_bad_line_is_named(tmp_path: Path) -> None:
    append(tmp_path, "area", opened())
    path = journal_file(tmp_path, "area")
    path.write_bytes(path.read_bytes() + b"nonsense\n" + path.read_bytes())
    with pytest.raises(QueueError, match=r"journal\.jsonl:2: not an event") as raised:
        read(tmp_path, "area")
    assert raised.value.hint


def test_keys_of_a_later_contribbot_are_no_error(tmp_path: Path) -> None:
    path = journal_file(tmp_path, "area")
    path.parent.mkdir(parents=True)
    row = {**json.loads(opened().model_dump_json(exclude_none=True)), "reviewers": 3}
    path.write_text(json.dumps(row) + "\n", encoding="utf-8")
    assert read(tmp_path, "area") == [opened()]


def result(stage: str, target: str, outcome: Outcome, entry: str = "") -> StageResult:
    return RESULT.validate_python(
        {"stage": stage, "target": target, "outcome": outcome, "label": entry, "reason": "",
         "seconds": 1.0},
    )  # fmt: skip


def test_the_outcome_on_a_target_is_the_one_that_decides() -> None:
    passed, failed, missing = Outcome.PASSED, Outcome.FAILED, Outcome.UNAVAILABLE
    stages = [
        result("apply", "any", passed),
        result("reproduce", "cpu", passed), result("numerics", "cpu", failed),
        result("reproduce", "gfx942", missing), result("bench", "gfx942", passed),
        result("compile", "gfx90a", passed), result("reproduce", "cuda", Outcome.SKIPPED),
    ]  # fmt: skip
    assert outcomes_by_target(stages) == {
        "cpu": failed, "gfx942": missing, "compile:gfx90a": passed, "cuda": Outcome.SKIPPED,
    }  # fmt: skip


HERE = this_machine()
THERE = HERE.model_copy(update={"cpu": "another"})


def verified(
    *stages: StageResult, machine: Machine = HERE, minute: int = 0, digest: str = "0" * 64
) -> VerifiedEvent:
    """Return the event of a verification."""
    failed = any(row.outcome is Outcome.FAILED for row in stages)
    report = PatchReport(
        patch="area", upstream="toy", pin="v1.0", base_commit=None, patched_tree=None,
        verdict=Verdict.REFUTED if failed else Verdict.PROVED, stages=stages, open=(),
    )  # fmt: skip
    time = WHEN + timedelta(minutes=minute)
    return verified_event(report, machine, digest=digest, checks="1" * 64, time=time)


def test_a_verification_is_noted_when_it_is_news(tmp_path: Path) -> None:
    compiled = result("compile", "gfx942", Outcome.PASSED)
    good = result("reproduce", "cpu", Outcome.PASSED), compiled
    proved, there = verified(*good), verified(*good, machine=THERE)
    refuted = verified(result("reproduce", "cpu", Outcome.FAILED), compiled, minute=1)
    assert proved.summary == f"proved on {HERE.slug}; passed: cpu, compile:gfx942"
    later = [
        (verified(*good, minute=5), False), (there, True), (verified(*good, minute=6), False),
        (refuted, True), (verified(*good, minute=2), True),
        (verified(*good, minute=3, digest="2" * 64), True),
    ]  # fmt: skip
    assert note_verified(tmp_path, "area", proved, ran=True)
    for event, news in later:
        assert note_verified(tmp_path, "area", event, ran=True) is news, event.summary
    words = [event.summary.split()[0] for event in read(tmp_path, "area")]
    assert words == ["proved", "proved", "refuted", "proved", "proved"]


def test_a_pass_that_ran_again_ends_the_refutation_of_another_machine(tmp_path: Path) -> None:
    unit = result("reproduce", "cpu", Outcome.PASSED)
    failed = verified(result("reproduce", "cpu", Outcome.FAILED), machine=THERE, minute=1)
    for event in (verified(unit), failed):
        assert note_verified(tmp_path, "area", event, ran=True)
    again = verified(unit, minute=2)
    assert not note_verified(tmp_path, "area", again, ran=False)
    assert len(standing_refutations(read(tmp_path, "area"))) == 1
    assert note_verified(tmp_path, "area", again, ran=True)
    assert standing_refutations(read(tmp_path, "area")) == ()


PASSED, FAILED = Outcome.PASSED, Outcome.FAILED


@pytest.mark.parametrize(
    ("later", "stands"),
    [
        ((), True),
        ((result("bench", "cuda", PASSED, "fp8"),), False),
        ((result("bench", "cuda", Outcome.UNAVAILABLE, "fp8"),), True),
        ((result("bench", "cuda", Outcome.SKIPPED, "fp8"),), True),
        ((result("bench", "gfx942", PASSED, "fp8"),), True),
        ((result("bench", "cuda", PASSED, "other"),), True),
        ((result("reproduce", "cuda", PASSED, "fp8"),), True),
    ],
)
def test_a_refutation_stands_until_that_entry_passes_on_that_target(
    later: tuple[StageResult, ...], stands: bool
) -> None:
    slow, other = result("bench", "cuda", FAILED, "fp8"), result("reproduce", "cuda", PASSED, "x")
    events = [verified(*later, machine=THERE, minute=1, digest="3" * 64), verified(slow, other)]
    standing = standing_refutations(events)
    found = [(each.stage, each.entry, each.target) for each in standing]
    assert found == [("bench", "fp8", "cuda")] * stands


def test_an_event_of_an_earlier_release_refutes_its_target() -> None:
    old = verified(result("reproduce", "cpu", Outcome.FAILED)).model_copy(update={"units": ()})
    (standing,) = standing_refutations([old])
    assert (standing.entry, standing.target, standing.machine) == ("", "cpu", HERE.slug)
    passed = verified(result("reproduce", "cpu", Outcome.PASSED), minute=1)
    assert standing_refutations([old, passed]) == ()


def test_log_prints_the_history_newest_last(area: Toy, program: Program) -> None:
    ran = program("queue", "log", "area")
    assert (ran.code, ran.out) == (0, "area: nothing is recorded yet\n")
    append(area.queue, "area", opened())
    append(area.queue, "area", RetiredEvent(time=WHEN, summary="merged\u202e", why="x"))
    expected = [
        "2026-11-21 07:30  pull-request  opened #1",
        "2026-11-21 07:30  retired       merged\N{REPLACEMENT CHARACTER}",
    ]
    assert program("queue", "log", "area").out.splitlines() == expected
    # It is there also when the patch is not.
    area.put_queue([])
    (area.queue / "patches/area").rename(area.queue / "gone")
    ran = program("queue", "log", "area", "--json")
    events = ran.json()["events"]
    assert isinstance(events, list)
    assert ran.json()["patch"] == "area"
    assert [one["event"] for one in events if isinstance(one, dict)] == ["pull-request", "retired"]
