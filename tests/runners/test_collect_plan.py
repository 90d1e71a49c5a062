"""Plans that are not the one that the queue made."""

from __future__ import annotations

import pytest

from contribbot.runners.model import CellState, FreshCell, OpenCell, Plan
from tests.github.handle import GitHub
from tests.github.state_actions import Storage, upload
from tests.runners.conftest import CHECKS, HOSTED, MI300, Ranged
from tests.runners.homing import COMPILED, RAN, Home, make_home, packed, states, why
from tests.toy import git


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


@pytest.mark.parametrize(
    ("find", "instead", "reason"),
    [
        ('"require":["reproduce:gfx942"]', '"require":["compile:gfx942"]',
         "the plan asks for compile:gfx942, and the patch for reproduce:gfx942"),
        ("example.com/rocm/run@", "evil.example/rocm/run@", "runners.toml does not"),
        ('"self-hosted"', '"anybody"', "it ran on self-hosted, gfx942, and the plan has it on any"),
    ],
)  # fmt: skip
def test_a_plan_that_the_queue_never_made(home: Home, find: str, instead: str, reason: str) -> None:
    alter_plan(home, find, instead)
    home.plan = type(home.plan).model_validate_json(
        home.plan.model_dump_json().replace(find, instead)
    )
    home.send(RAN)
    found = home.collected()
    assert states(found)["gpu area gfx942"] is CellState.REFUSED
    assert reason in why(found)
    assert not found.complete
    # What answers another question is no evidence, however sound it is in itself.
    assert home.evidence() == []


def put_plan(home: Home, plan: Plan) -> None:
    """Put another plan in the place of the one that was made; it is as if it always was there."""
    each = home.run.artifacts[0]
    each.stored, each.digest = packed({"plan.json": plan.model_dump_json().encode()}), None
    each.__post_init__()
    home.plan = plan


def forge(home: Home, **changed: object) -> None:
    """Say in the plan that it was made with other runners, and change its job for the GPU."""
    job = home.job(RAN)
    forged = job.model_copy(update=changed)
    put_plan(home, home.plan.model_copy(update={
        "runners_sha256": "0" * 64,
        "jobs": tuple(forged if each is job else each for each in home.plan.jobs),
    }))  # fmt: skip


def test_a_plan_that_names_other_runners_than_its_commit_has_is_refused(home: Home) -> None:
    forge(home, image=f"evil.example/run@sha256:{'f' * 64}")
    home.send(RAN)
    found = home.collected()
    assert found.cells == ()
    assert not found.complete
    assert found.notes == (
        "the plan is refused: it was not made with the runners.toml of the run's commit",
    )
    assert home.evidence() == []


@pytest.mark.parametrize("committed", [True, False])
def test_where_other_runners_are_here_it_is_said_and_github_is_asked(
    home: Home, *, committed: bool
) -> None:
    home.ranged.put(MI300 + HOSTED + "\n# More.\n")
    if committed:
        git(home.ranged.folder, "commit", "-q", "-a", "-m", "More")
    for job in (COMPILED, RAN):
        home.send(job)
    found = home.collected()
    assert set(states(found).values()) == {CellState.PROVED}
    (note,) = [each for each in found.notes if each.startswith("runners.toml here is not the one")]
    assert note.endswith("check out the run's commit for that")
    # GitHub says where a job ran, whatever a plan says.
    forge(home, labels=("anybody",))
    found = home.collected()
    assert why(found) == "it ran on self-hosted, gfx942, and the plan has it on anybody"


def test_a_cell_that_a_plan_calls_open_and_that_is_not(home: Home) -> None:
    (cell,) = home.job(RAN).cells
    shown = {"kind": cell.kind, "patch": cell.patch, "target": cell.target, "rocm": cell.rocm}
    unheard = OpenCell(kind="gpu", patch="area", target="gfx950", reason="no runner has gfx950")
    moved = OpenCell.model_validate({**shown, "reason": "no runner has gfx942"})
    put_plan(home, home.plan.model_copy(update={
        "jobs": home.plan.jobs[:1], "open": (moved, unheard),
    }))  # fmt: skip
    home.run.jobs = [each for each in home.run.jobs if each.name != RAN]
    home.send(COMPILED)
    found = home.collected()
    assert states(found) == {
        "compile area gfx942": CellState.PROVED,
        "gpu area gfx942": CellState.REFUSED, "gpu area gfx950": CellState.REFUSED,
    }  # fmt: skip
    assert {each.why for each in found.cells if each.kind == "gpu"} == {
        "the plan calls it open, and by this queue it is not"
    }
    assert not found.complete


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
