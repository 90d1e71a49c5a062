"""Records that came, and those that the queue has already."""

from __future__ import annotations

import json
from pathlib import Path

from contribbot.model.evidence import Outcome
from contribbot.runners.model import CellState
from tests.runners.homing import COMPILED, FAILED, RAN, Home, Json, states, why
from tests.toy import git

FAULT: Json = {"kind": "gpu-hung", "said": "no answer for 60 s"}


def test_two_nights(home: Home) -> None:
    for job in (COMPILED, RAN):
        home.send(job)
    assert home.collected().complete
    assert home.collected().complete
    assert {one.merged for one in home.collected().records} == {"unchanged"}


def test_a_newer_record_is_not_replaced_by_an_older_one(home: Home) -> None:
    older = home.files(RAN)
    home.send(RAN)
    home.collect()
    before = [path.read_bytes() for path in home.evidence()]
    home.begin(everything=True)
    files = {name: content for name, content in older.items() if name != "job.json"}
    (path,) = files
    document = json.loads(files[path])
    home.send(RAN, {"job.json": home.done(RAN), path: home.again(document, RAN)})
    found = home.collected()
    assert [one.merged for one in found.records] == ["kept"]
    assert "as new or newer" in found.records[0].why
    assert [path.read_bytes() for path in home.evidence()] == before


def test_a_better_record_is_not_replaced_by_one_that_saw_less(home: Home) -> None:
    home.send(RAN)
    home.collect()
    home.begin(everything=True)
    home.send(RAN, home.files(RAN, outcomes={"reproduce": Outcome.UNAVAILABLE}))
    found = home.collected()
    assert [(one.merged, one.why) for one in found.records] == [
        ("kept", "the one that is there saw more: reproduce/on-gpu/gfx942")
    ]
    # What fails now is news.
    home.begin(everything=True)
    home.send(RAN, home.files(RAN, outcomes=FAILED))
    found = home.collected()
    assert [one.merged for one in found.records] == ["replaced"]
    assert "said" in found.records[0].why


def test_what_was_made_by_hand_is_not_replaced_by_what_was_sent(home: Home) -> None:
    """Whoever sends a record can name any machine in it; only that something fails is news."""
    path = home.ranged.record("area")
    before = path.read_bytes()
    home.begin(everything=True)
    home.send(RAN)
    found = home.collected()
    assert [(one.merged, one.why) for one in found.records] == [
        ("kept", "the one that is there was made by hand, by no run")
    ]
    assert path.read_bytes() == before
    home.begin(everything=True)
    home.send(RAN, home.files(RAN, outcomes=FAILED))
    found = home.collected()
    assert [one.merged for one in found.records] == ["replaced"]
    assert ", which no run made, said" in found.records[0].why


def test_killed_between_the_record_and_the_history(home: Home) -> None:
    home.send(RAN)
    home.collect()
    journal = home.ranged.folder / "history" / "area" / "journal.jsonl"
    before = journal.read_text()
    journal.unlink()
    assert [one.merged for one in home.collected().records] == ["unchanged"]
    assert len(journal.read_text().splitlines()) == 1
    home.collect()
    assert len(journal.read_text().splitlines()) == len(before.splitlines()) == 1


def test_a_stale_record_is_replaced(home: Home) -> None:
    home.send(RAN)
    home.collect()
    (path,) = home.evidence()
    path.write_text(path.read_text().replace("made up", "altered"))
    home.begin(everything=True)
    home.send(RAN)
    found = home.collected()
    assert [one.merged for one in found.records] == ["replaced"]
    assert "tampered" in found.records[0].why


def test_nothing_is_written_through_a_link(home: Home, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    home.send(RAN)
    (home.ranged.folder / "evidence").mkdir()
    (home.ranged.folder / "evidence" / "area").symlink_to(elsewhere)
    found = home.collected()
    assert [one.why for one in found.records] == ["evidence/area is a link"]
    assert list(elsewhere.iterdir()) == []
    assert not found.complete


def test_the_queue_has_moved_on(home: Home) -> None:
    for job in (COMPILED, RAN):
        home.send(job)
    home.ranged.toy.put("patches/area/checks/test_same.py", "def test_two():\n    pass\n")
    found = home.collected()
    assert set(states(found).values()) == {CellState.REFUSED}
    assert why(found) == "stale: the checks have changed since"
    assert home.evidence() == []


def test_another_commit_of_the_queue_is_said(home: Home) -> None:
    for job in (COMPILED, RAN):
        home.send(job)
    git(home.ranged.folder, "commit", "-q", "--allow-empty", "-m", "More")
    found = home.collected()
    assert found.complete
    assert any("what came is judged by what is here" in note for note in found.notes)
