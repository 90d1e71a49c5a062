"""Plans that are not the one that the queue made."""

from __future__ import annotations

import pytest

from contribbot.runners.documents import CellState, FreshCell, Plan
from tests.github.handle import GitHub
from tests.github.state_actions import Storage, upload
from tests.runners.conftest import CHECKS, HOSTED, MI300, Ranged
from tests.runners.homing import COMPILED, RAN, Home, make_home, packed, states, why

CELL = "gpu/area/gfx942/rocm7.1"


def test_a_plan_that_was_replaced(home: Home) -> None:
    for job in (COMPILED, RAN):
        home.send(job)
    home.run.artifacts.pop(0)
    weaker = home.plan.model_copy(update={"jobs": home.plan.jobs[:1]})
    content = packed({"plan.json": weaker.model_dump_json().encode()})
    late = upload(home.github.state, home.run, "contribbot-plan", content)
    found = home.collected()
    # The clock of the local GitHub goes slowly: it came at the same time as the others.
    assert any("ran, and the plan has none of this name" in note for note in found.notes)
    assert not found.complete

    late.created_at = "2026-01-02T00:00:00Z"
    found = home.collected()
    assert found.notes[0].endswith("it came after job plan had ended")
    assert found.cells == ()


def alter_plan(home: Home, find: str, instead: str) -> None:
    """Put another plan in the place of the one that was made."""
    text = home.plan.model_dump_json()
    assert find in text
    each = home.run.artifacts[0]
    each.stored = packed({"plan.json": text.replace(find, instead).encode()})
    each.__post_init__()
    each.digest = None
    each.__post_init__()


def put_plan(home: Home, plan: Plan) -> None:
    """Put another plan in the place of the one that was made; it is as if it always was there."""
    each = home.run.artifacts[0]
    each.stored, each.digest = packed({"plan.json": plan.model_dump_json().encode()}), None
    each.__post_init__()
    home.plan = plan


def test_a_cell_that_a_plan_calls_fresh_and_that_is_not(home: Home) -> None:
    (cell,) = home.job(RAN).cells
    moved = FreshCell(kind=cell.kind, patch=cell.patch, target=cell.target, rocm=cell.rocm,
                      record="evidence/area/x86_64-gfx942.json", says="passed")  # fmt: skip
    put_plan(home, home.plan.model_copy(update={"jobs": home.plan.jobs[:1], "fresh": (moved,)}))
    home.run.jobs = [each for each in home.run.jobs if each.name != RAN]
    home.send(COMPILED)
    found = home.collected()
    assert states(found)["gpu area gfx942"] is CellState.OPEN
    assert not found.complete


def test_a_plan_that_leaves_out_a_patch(ranged: Ranged, github: GitHub) -> None:
    ranged.patch("second", CHECKS)
    with Storage().running() as storage:
        home = make_home(ranged, github, storage)
        home.begin()
        home.plan = ranged.plan("area")
        alter_plan(home, "{", "{")
        for job in (COMPILED, RAN):
            home.send(job)
        home.run.jobs = [each for each in home.run.jobs if each.name in {"plan", COMPILED, RAN}]
        found = states(home.collected())
        assert found["gpu second gfx942"] is CellState.MISSING
        assert found["gpu area gfx942"] is CellState.PROVED
        # Somebody who dispatches may mean a part.
        home.run.event = "workflow_dispatch"
        assert "gpu second gfx942" not in states(home.collected())


def test_what_is_no_plan(home: Home) -> None:
    (each,) = home.run.artifacts
    for content in (b"", b"[]", b"{", b'{"jobs": 1}'):
        each.stored, each.digest = packed({"plan.json": content}), None
        each.__post_init__()
        found = home.collected()
        assert "the plan is refused" in found.notes[0]
        assert not found.complete
    home.run.artifacts = []
    found = home.collected()
    ended = "the plan never came (its job: success): nothing can be said of any cell"
    assert (found.notes, found.complete) == ((ended,), False)


@pytest.mark.parametrize(
    ("find", "instead", "reason"),
    [
        ('"require":["reproduce:gfx942"]', '"require":["compile:gfx942"]',
         f"{CELL} asks for compile:gfx942, and the patch for reproduce:gfx942; check out"),
        ('"patch":"area","target":"gfx942","rocm":"7.1","require":["rep',
         '"patch":"gone","target":"gfx942","rocm":"7.1","require":["rep',
         "asks for reproduce:gfx942, and the patch for nothing there"),
        ("example.com/rocm/run@", "evil.example/rocm/run@", "that runners.toml does not"),
        ('"minutes":120', '"minutes":600', "that runners.toml does not"),
        ('"self-hosted"', '"anybody"', "that runners.toml does not"),
        ('"open":[]', ('"open":[{"kind":"gpu","patch":"area","target":"gfx950","rocm":"",'
         '"reason":"no runner has gfx950"}]'), "it calls gpu/area/gfx950/rocm open, and by this"),
        ('"runners_sha256":"', f'"runners_sha256":"{"0" * 64}","x":"', "not a plan: x"),
    ],
)  # fmt: skip
def test_a_plan_that_the_queue_never_made(home: Home, find: str, instead: str, reason: str) -> None:
    for job in (COMPILED, RAN):
        home.send(job)
    alter_plan(home, find, instead)
    # It chooses nothing that is tried again, either.
    assert home.try_again().jobs == ()
    found = home.collected()
    (note,) = found.notes
    assert note.startswith("the plan is refused: ")
    assert reason in note
    # What answers another question is no evidence, however sound it is in itself.
    assert (found.cells, found.complete, home.evidence()) == ((), False, [])


def test_a_plan_that_was_made_with_other_runners_is_refused(home: Home) -> None:
    home.ranged.put(MI300 + HOSTED + "\n# More.\n")
    (note,) = home.collected().notes
    assert "refused: it was not made with the runners.toml that is here; check out" in note


def test_where_a_job_ran_is_held_against_the_plan(home: Home) -> None:
    home.send(RAN)
    home.ghost(RAN).labels = ("anybody",)
    found = home.collected()
    assert why(found) == "it ran on anybody, and the plan has it on self-hosted, gfx942"
