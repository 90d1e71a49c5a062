"""Where second tries go, and that nothing but `runners.toml` says so."""

from __future__ import annotations

import pytest

from contribbot.runners.config import load_fleet
from contribbot.runners.model import CellState
from contribbot.runners.plan import second_try
from tests.github.handle import GitHub
from tests.github.state_actions import Storage, upload
from tests.runners.conftest import HOSTED, MI300, Ranged
from tests.runners.homing import COMPILED, Home, make_home, packed, states, why

CELL = "gpu area gfx942"
#: A set with the same GPU and another image.
OTHER = MI300.replace("mi300", "other").replace('"gfx942"]', '"gfx942b"]')
OTHER = OTHER.replace("/run@", "/other@") + "\n"


def elsewhere(ranged: Ranged, github: GitHub, storage: Storage) -> Home:
    """Return a run whose first try hung, where another set has the same GPU."""
    ranged.put(MI300 + OTHER.replace("count = 2", "cost = 2") + HOSTED)
    home = make_home(ranged, github, storage)
    home.begin()
    home.send(COMPILED)
    home.send("gfx942-mi300-rocm7.1-1", home.at_fault("gfx942-mi300-rocm7.1-1"), "failure")
    home.try_again()
    return home


def test_another_set_has_the_second_try(ranged: Ranged, github: GitHub) -> None:
    with Storage().running() as storage:
        home = elsewhere(ranged, github, storage)
        (job,) = home.tries
        assert (job.runners, job.labels) == ("other", ("self-hosted", "gfx942b"))
        assert "/other@" in job.image
        home.send(job.id)
        assert home.collected().complete

        # Another image, or other runners, than those that it must have had.
        name = f"contribbot-{job.id}"
        right = next(one for one in home.run.artifacts if one.name == name)
        home.run.artifacts.remove(right)
        home.tries = (job.model_copy(update={"image": home.plan.jobs[-1].image}),)
        upload(github.state, home.run, name, packed(home.files(job.id)))
        found = home.collected()
        assert states(found)[CELL] is CellState.REFUSED
        assert "its container is not the plan's" in why(found)

        home.run.artifacts[-1] = right
        home.ghost(job.id).labels = home.plan.jobs[-1].labels
        found = home.collected()
        assert states(found)[CELL] is CellState.REFUSED
        assert why(found).startswith("it ran on self-hosted, gfx942, and the plan has it on self-")


def test_who_has_other_runners_now_cannot_judge_second_tries(
    ranged: Ranged, github: GitHub
) -> None:
    with Storage().running() as storage:
        home = elsewhere(ranged, github, storage)
        home.send(home.tries[0].id)
        ranged.put(MI300 + HOSTED)
        found = home.collected()
        assert states(found)[CELL] is CellState.FAULT
        assert not found.complete
        assert any("check out the run's commit" in note for note in found.notes)


@pytest.mark.parametrize(
    ("changed", "on", "where"),
    [
        ("cost = 1", (), "other"),
        ("cost = 1", ("mi300", "hosted"), "mi300"),
        ("cost = 1\nminutes_limit = 5", (), "mi300"),
        ('cost = 1\ntarget = "gfx90a"', (), "mi300"),
    ],
)
def test_where_a_second_try_goes(
    ranged: Ranged, changed: str, on: tuple[str, ...], where: str
) -> None:
    # One that costs more, and stands before the others in the file.
    far = (
        OTHER.replace("other", "far").replace("gfx942b", "gfx942c").replace("count = 2", "cost = 9")
    )
    other = OTHER.replace("count = 2", changed)
    if "gfx90a" in changed:
        other, far = other.replace('target = "gfx942"\n', "", 1), ""
    if "minutes_limit" in changed:
        far = ""
    ranged.put(MI300.replace("count = 2", "cost = 0.5") + far + other + HOSTED)
    ranged.record("area", seconds=100.0, rocm="7.0.0")
    plan = ranged.plan(on=on)
    job = plan.of_kind("gpu")[0]
    assert (job.runners, job.seconds > 300) == ("mi300", True)
    found = second_try(plan, job, [job.cells[0].key], load_fleet(ranged.folder).runners)
    assert found is not None
    assert (found.runners, found.cells, found.id) == (where, job.cells, f"{job.id}-again")
