"""Packing: short jobs, not many of them, and all runners busy to the end."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest

from contribbot.errors import QueueError
from contribbot.runners.model import Hosted, PlannedCell, RunnerSet
from contribbot.runners.plan import MOST_JOBS, START, Piece, Pool, makespan, pack

IMAGE = {"version": "7.1", "image": f"a/b@sha256:{'0' * 64}"}


def piece(name: str, seconds: float, *, tree: str = "a v1", rocm: str = "7.1",
          shared: float = 0.0) -> Piece:  # fmt: skip
    cell = PlannedCell(kind="gpu", patch=name, target="gfx942", rocm=rocm,
                       require=("reproduce:gfx942",),
                tree=tree, seconds=seconds, estimate="default")  # fmt: skip
    return Piece((cell,), seconds, tree, shared)


def pool(pieces: Sequence[Piece], *, count: int = 1, minutes: int = 240, most: int = 200,
         name: str = "mi300") -> Pool:  # fmt: skip
    """Return what a set with GPUs is to run, in at most about so many jobs."""
    runners = RunnerSet.model_validate({
        "name": name, "target": "gfx942", "labels": ("a",), "count": count, "rocm": (IMAGE,),
        "minutes_limit": minutes, "jobs_limit": max(1, most // count),
    })  # fmt: skip
    return Pool(runners, tuple(pieces))


def hosted(pieces: Sequence[Piece], *, count: int = 1, minutes: int = 240) -> Pool:
    """Return what hosted runners are to compile: at most four jobs each."""
    image = {**IMAGE, "targets": ("gfx942",)}
    runners = Hosted.model_validate(
        {"labels": ("a",), "count": count, "minutes_limit": minutes, "rocm": (image,)}
    )
    return Pool(runners, tuple(pieces))


def many(number: int, *, seed: int = 1) -> list[Piece]:
    draw = random.Random(seed)  # noqa: S311  lengths for a test, nothing secret
    return [
        piece(f"p{index}", draw.lognormvariate(4, 0.8), tree=f"a v{index % 3}",
              rocm=("7.0", "7.1")[index % 2], shared=30.0)
        for index in range(number)
    ]  # fmt: skip


@pytest.mark.parametrize("count", [1, 2, 3, 8])
@pytest.mark.parametrize("seed", range(3))
def test_all_pieces_in_short_jobs_that_end_near_the_bound(count: int, seed: int) -> None:
    this = pool(many(600, seed=seed), count=count)
    (jobs,) = pack([this])
    assert this.bound <= this.load(jobs).seconds <= 1.15 * this.bound
    assert sorted(each.key for job in jobs for each in job.pieces) == sorted(
        each.key for each in this.pieces
    )
    lengths = [job.seconds for job in jobs]
    assert lengths == sorted(lengths, reverse=True)
    # Of one image, and short enough to try again.
    assert {len({each.rocm for each in job.pieces}) for job in jobs} == {1}
    assert lengths[0] <= 1.1 * 90 * 60
    # The order in which they come makes no difference.
    assert pack([pool(this.pieces[::-1], count=count)]) == [jobs]


def test_half_of_a_jobs_limit_is_left_for_wrong_estimates() -> None:
    (jobs,) = pack([pool(many(200), count=3, minutes=60)])
    assert jobs[0].seconds <= 1.1 * 30 * 60


def test_patches_on_one_tree_share_its_build() -> None:
    # Each tree takes as long to build as ten patches on it take: twice that is enough.
    pieces = [piece(f"p{index}", 60, tree=f"a v{index % 2}", shared=600) for index in range(40)]
    (jobs,) = pack([pool(pieces, count=2)])
    assert [len({each.tree for each in job.pieces}) for job in jobs] == [1, 1]


def test_all_sets_together_keep_well_within_what_actions_takes() -> None:
    pools = [pool(many(700, seed=index), count=8, name=f"s{index}") for index in range(12)]
    packed = pack(pools)
    assert 12 * 2 <= sum(map(len, packed)) <= MOST_JOBS < 256
    for this, jobs in zip(pools, packed, strict=True):
        assert this.load(jobs).seconds <= 1.25 * this.bound


def test_what_is_too_much_is_not_taken_from_a_set_that_needs_a_job_for_each_image() -> None:
    few = [piece(f"few{rocm}", 60, rocm=rocm) for rocm in ("6.4", "7.0", "7.1")]
    little = [pool([piece("a", 60)], name=f"l{index}") for index in range(60)]
    busy = [pool(many(900, seed=index), count=40, name=f"s{index}") for index in range(8)]
    packed = pack([pool(few, name="small"), *little, *busy])
    assert len(packed[0]) == 3
    assert sum(map(len, packed)) <= MOST_JOBS


def test_more_images_than_a_run_has_jobs() -> None:
    images = [piece(f"p{part}", 60, rocm=f"7.{part}") for part in range(3)]
    with pytest.raises(QueueError, match="these are 300 jobs, and a run has at most 200") as raised:
        pack([pool(images, name=f"s{index}") for index in range(100)])
    assert "take away a [[runners.rocm]]" in raised.value.hint


def test_a_runner_gets_no_more_jobs_than_it_may() -> None:
    (jobs,) = pack([pool(many(600), count=2, most=10)])
    assert len(jobs) <= 10


SLOW = [piece(f"p{index}", 600) for index in range(200)]


@pytest.mark.parametrize(
    ("too_much", "said", "hint"),
    [
        (pool(many(600), count=2, minutes=30, most=4),
         "mi300: 600 cells do not fit into 4 jobs of 30", "raise minutes_limit or jobs_limit"),
        # How many jobs hosted runners get follows from their count: they have no jobs_limit.
        (hosted(many(600), minutes=30), "hosted: 600 cells do not fit into 4 jobs of 30",
         "take away a [[hosted.rocm]], or raise minutes_limit or count"),
        (pool(SLOW), r"would start after \d+ hours, and GitHub", "a [[runners.rocm]], or "),
        (pool([piece("long", 60 * 60)], minutes=60),
         r"gpu/long/gfx942/rocm7\.1 takes about 62 minutes", "raise minutes_limit"),
    ],
)  # fmt: skip
def test_what_cannot_be_done_says_what_to_cut(too_much: Pool, said: str, hint: str) -> None:
    with pytest.raises(QueueError, match=said) as raised:
        pack([too_much])
    assert hint in raised.value.hint
    if "name about" in raised.value.hint:
        assert pack([pool(SLOW[: int(raised.value.hint.split()[2])])])[0]


def test_nothing_makes_no_job() -> None:
    this = pool([])
    assert pack([this]) == [()]
    assert (this.load(()).seconds, this.load(()).bound) == (0.0, 0.0)


def test_runners_take_the_next_job_when_they_are_free() -> None:
    (jobs,) = pack([pool([piece("a", 300, rocm="1.0"), piece("b", 200, rocm="2.0"),
                          piece("c", 100, rocm="3.0")], count=2)])  # fmt: skip
    assert makespan(jobs, 2) == (300 + 2 * START, 200 + START)
