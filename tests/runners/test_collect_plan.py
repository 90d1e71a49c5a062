"""Plans that are not the one that the queue made."""

from __future__ import annotations

import pytest

from contribbot.model.actions import CellState
from tests.github.conftest import github as github  # noqa: PLC0414  pytest finds it by this name
from tests.github.handle import GitHub
from tests.github.state_actions import Storage, upload
from tests.runners.conftest import CHECKS, Ranged
from tests.runners.homing import (
    COMPILED,
    RAN,
    Home,
    make_home,
    packed,
    states,
    why,
)
from tests.runners.homing import (
    home as home,  # noqa: PLC0414  see above
)


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
    one = home.run.artifacts[0]
    one.stored = packed({"plan.json": text.replace(find, instead).encode()})
    one.__post_init__()
    one.digest = None
    one.__post_init__()


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


def test_a_plan_that_leaves_out_a_patch(ranged: Ranged, github: GitHub) -> None:
    ranged.patch("second", CHECKS)
    with Storage().running() as storage:
        home = make_home(ranged, github, storage)
        home.begin()
        home.plan = ranged.plan("area")
        alter_plan(home, "{", "{")
        for job in (COMPILED, RAN):
            home.send(job)
        home.run.jobs = [one for one in home.run.jobs if one.name in {"plan", COMPILED, RAN}]
        found = states(home.collected())
        assert found["gpu second gfx942"] is CellState.MISSING
        assert found["gpu area gfx942"] is CellState.PROVED
        # Somebody who dispatches may mean a part.
        home.run.event = "workflow_dispatch"
        assert "gpu second gfx942" not in states(home.collected())


@pytest.mark.parametrize("content", [b"", b"[]", b"{", b'{"jobs": 1}'])
def test_what_is_no_plan(home: Home, content: bytes) -> None:
    one = home.run.artifacts[0]
    one.stored, one.digest = packed({"plan.json": content}), None
    one.__post_init__()
    found = home.collected()
    assert "the plan is refused" in found.notes[0]
    assert not found.complete
