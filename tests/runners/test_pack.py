"""Packing: short jobs, not many of them, and all runners busy to the end."""

from __future__ import annotations

import itertools
import random
from collections.abc import Sequence

import pytest

from contribbot.errors import QueueError
from contribbot.runners.documents import Hosted, PlannedCell, RunnerSet
from contribbot.runners.plan import START, PackedJob, Piece, bound, makespan, pack

IMAGE = {"version": "7.1", "image": f"a/b@sha256:{'0' * 64}"}


def piece(name: str, seconds: float, *, tree: str = "a v1", rocm: str = "7.1",
          shared: float = 0.0) -> Piece:  # fmt: skip
    cell = PlannedCell(kind="gpu", patch=name, target="gfx942", rocm=rocm, tree=tree,
                       seconds=seconds, require=("reproduce:gfx942",),
                       estimate="default")  # fmt: skip
    return Piece((cell,), seconds, tree, shared)


def gpus(*, count: int = 1, minutes: int = 240, most: int = 200) -> RunnerSet:
    """Return a set with GPUs that takes at most about so many jobs."""
    return RunnerSet.model_validate({
        "name": "mi300", "target": "gfx942", "labels": ("a",), "count": count, "rocm": (IMAGE,),
        "minutes_limit": minutes, "jobs_limit": max(1, most // count),
    })  # fmt: skip


HOSTED = Hosted.model_validate({
    "labels": ("a",), "count": 1, "minutes_limit": 30, "rocm": ({**IMAGE, "targets": ("gfx942",)},),
})  # fmt: skip


def many(number: int, *, seed: int = 1) -> list[Piece]:
    draw = random.Random(seed)  # noqa: S311  lengths for a test, nothing secret
    return [
        piece(f"p{index}", draw.lognormvariate(4, 0.8), tree=f"a v{index % 3}",
              rocm=("7.0", "7.1")[index % 2], shared=30.0)
        for index in range(number)
    ]  # fmt: skip


def names(jobs: Sequence[PackedJob]) -> list[list[str]]:
    return [[each.cells[0].patch for each in job.pieces] for job in jobs]


@pytest.mark.parametrize(("count", "seed"), [(1, 0), (2, 1), (3, 2), (8, 0)])
def test_all_pieces_in_short_jobs_that_end_near_the_bound(count: int, seed: int) -> None:
    pieces = many(600, seed=seed)
    jobs = pack(gpus(count=count), pieces)
    least = bound(pieces, count)
    assert least <= makespan(jobs, count)[0] <= 1.15 * least
    assert sorted(itertools.chain(*names(jobs))) == sorted(each.cells[0].patch for each in pieces)
    lengths = [job.seconds for job in jobs]
    assert lengths == sorted(lengths, reverse=True)
    # Of one image, and short enough to try again.
    assert {len({each.rocm for each in job.pieces}) for job in jobs} == {1}
    assert lengths[0] <= 1.1 * 90 * 60
    # The order in which they come makes no difference.
    assert names(pack(gpus(count=count), pieces[::-1])) == names(jobs)


def test_half_of_a_jobs_limit_is_left_for_wrong_estimates() -> None:
    assert pack(gpus(count=3, minutes=60), many(200))[0].seconds <= 1.1 * 30 * 60


def test_patches_on_one_tree_share_its_build() -> None:
    # Each tree takes as long to build as ten patches on it take: twice that is enough.
    pieces = [piece(f"p{index}", 60, tree=f"a v{index % 2}", shared=600) for index in range(40)]
    jobs = pack(gpus(count=2), pieces)
    assert [len({each.tree for each in job.pieces}) for job in jobs] == [1, 1]


def test_a_set_gets_no_more_jobs_than_it_may() -> None:
    assert len(pack(gpus(count=2, most=10), many(600))) <= 10
    assert len(pack(gpus(count=8), many(700), 16)) <= 16
    assert pack(gpus(), []) == []


@pytest.mark.parametrize(
    ("runners", "pieces", "said", "hint"),
    [
        (gpus(count=2, minutes=30, most=4), many(600),
         r"mi300: 600 cells do not fit into \d jobs of 30", "raise minutes_limit, count or jobs"),
        # How many jobs hosted runners get follows from their count: they have no jobs_limit.
        (HOSTED, many(600), r"hosted: 600 cells do not fit into \d jobs of 30",
         "take away a [[hosted.rocm]], or raise minutes_limit or count"),
        (gpus(), [piece(f"p{index}", 600) for index in range(200)],
         r"the last would wait \d+ hours, of 24 that GitHub", "a [[runners.rocm]], or "),
        (gpus(minutes=60), [piece("long", 60 * 60)],
         r"gpu/long/gfx942/rocm7\.1 takes about 62 minutes", "raise minutes_limit"),
    ],
)  # fmt: skip
def test_what_cannot_be_done_says_what_to_cut(
    runners: RunnerSet | Hosted, pieces: list[Piece], said: str, hint: str
) -> None:
    with pytest.raises(QueueError, match=said) as raised:
        pack(runners, pieces)
    assert hint in raised.value.hint


def test_runners_take_the_next_job_when_they_are_free() -> None:
    jobs = pack(gpus(count=2), [piece("a", 300, rocm="1.0"), piece("b", 200, rocm="2.0"),
                                piece("c", 100, rocm="3.0")])  # fmt: skip
    assert makespan(jobs, 2) == (300 + 2 * START, 200 + START)
