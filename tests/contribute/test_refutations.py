"""A refutation stands until that entry passes on that target, whoever drops which file."""

from __future__ import annotations

import json
from datetime import timedelta

import pytest

from contribbot.contribute.gate import judge
from contribbot.model.evidence import Outcome, PatchReport, Statement, Verdict, seal_of
from contribbot.queue import history
from contribbot.queue.load import load_queue
from contribbot.report import survey_of
from contribbot.verify.evidence import read_records, refutations, write_evidence
from tests.conftest import Program
from tests.records import seen
from tests.toy import FIXED, Toy, git

WRONG = {"src/toy/area.py": FIXED.replace("*", "-")}


def note(toy: Toy, outcome: Outcome, minutes: int = 0) -> None:
    """Note in the journal what an H200 saw of a benchmark."""
    queue = load_queue(toy.queue)
    (record,) = [*queue.evidence.glob("area/*.json")]
    details = Statement.model_validate_json(record.read_bytes()).predicate.contribbot
    row = seen("bench", "cuda", outcome, label="fp8")
    report = PatchReport.of_record(details).model_copy(
        update={"stages": (row,), "verdict": Verdict.REFUTED}
    )
    machine = details.machine.model_copy(update={"cpu": "An H200's"})
    event = history.verified_event(
        report, machine, digest="0" * 64, checks="1" * 64,
        time=history.now() + timedelta(minutes=minutes),
    )  # fmt: skip
    assert history.note_verified(toy.queue, "area", event, ran=True)


def standing(toy: Toy) -> list[str]:
    return [each.entry for each in history.standing_refutations(history.read(toy.queue, "area"))]


def test_all_that_tells_of_a_patch_tells_that_it_is_refuted(known: Toy, program: Program) -> None:
    note(known, Outcome.FAILED)
    assert "refuted on cuda" in program("queue", "list").out
    queue = load_queue(known.queue)
    survey = survey_of(queue)
    assert survey.report.patches[0].verdict == "refuted on cuda"
    assert survey.stories[0].row.headline.startswith("bench fp8 failed on cuda (")
    said = "area: refuted on cuda: bench fp8 failed on cuda ("
    ran = program("body", "area")
    assert (ran.code, said in ran.err) == (1, True)
    (row,) = [row for row in judge(queue, "area", None).rows if row.rule == "evidence"]
    assert (row.state, said in row.seen) == ("failed", True)
    note(known, Outcome.PASSED, 1)
    assert "refuted" not in program("queue", "list").out
    program.ok("body", "area")


@pytest.fixture
def refuted(toy: Toy, program: Program) -> Toy:
    """A queue whose patch was refuted on this machine, by a record that lies elsewhere."""
    toy.put_area(patch=toy.format_patch({**WRONG}))
    assert program("verify", "area", "--evidence", str(toy.root / "elsewhere")).code == 1
    return toy


def test_a_verdict_with_its_record_elsewhere_is_noted(refuted: Toy, program: Program) -> None:
    assert "red" in standing(refuted)
    refuted.put_patch()
    program.ok("verify", "area", "--evidence", str(refuted.root / "elsewhere"))
    assert standing(refuted) == []


def test_a_record_that_was_added_refutes_and_is_missed(refuted: Toy, program: Program) -> None:
    (made,) = (refuted.root / "elsewhere/area").glob("*.json")
    refuted.put_patch()
    history.journal_file(refuted.queue, "area").unlink()
    added = refuted.queue / "evidence/area" / made.name
    added.parent.mkdir(parents=True)
    added.write_text(made.read_text())
    git(refuted.queue, "init", "-q")
    git(refuted.queue, "add", "evidence")
    git(refuted.queue, "commit", "-q", "-m", "A record from elsewhere")
    queue = load_queue(refuted.queue)
    assert "refuted on cpu" in program("queue", "list").out
    added.unlink()
    ran = program("evidence", "check")
    assert ran.code == 1
    commit = git(refuted.queue, "rev-parse", "--short=12", "HEAD").decode().strip()
    path = f"evidence/area/{made.name}"
    assert f"removed  {path}: git has it: git checkout {commit} -- {path}" in ran.out
    program.ok("verify", "area")
    program.ok("evidence", "check")
    assert refutations(queue, "area", ()) == ()


def test_a_proof_that_was_removed_is_missed_until_another_record_has_it(
    known: Toy, program: Program
) -> None:
    (record,) = (known.queue / "evidence/area").glob("*.json")
    git(known.queue, "init", "-q")
    git(known.queue, "add", "evidence")
    git(known.queue, "commit", "-q", "-m", "A record")
    (made,) = read_records(load_queue(known.queue), known.queue / "evidence")
    assert made.statement is not None
    record.unlink()
    assert f"removed  evidence/area/{record.name}: git has it" in program("evidence", "check").out
    document = made.statement.model_dump(mode="json", by_alias=True, exclude_none=True)
    document["predicate"]["contribbot"]["machine"]["cpu"] = "another"
    document["contribbot_seal"] = seal_of(document)
    elsewhere = Statement.model_validate_json(json.dumps(document))
    write_evidence(known.queue / "evidence", elsewhere)
    program.ok("evidence", "check")


def test_a_broken_check_replaces_no_record_that_proved(known: Toy, program: Program) -> None:
    (record,) = (known.queue / "evidence/area").glob("*.json")
    content, check = record.read_bytes(), known.queue / "patches/area/checks/test_red.py"
    good = check.read_text()
    check.write_text(good + "def test_(:\n")
    assert program("verify", "area").code == 3
    assert record.read_bytes() == content
    check.write_text(good)
    program.ok("evidence", "check")
