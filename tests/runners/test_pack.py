"""Packing: few jobs, short ones, and all runners busy to the end."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace

import pytest

from contribbot.errors import QueueError
from contribbot.runners.model import Cell
from contribbot.runners.plan import MOST_JOBS, START, Piece, Pool, bound, makespan, pack


def piece(name: str, seconds: float, *, tree: str = "a v1", rocm: str = "7.1",
          shared: float = 0.0) -> Piece:  # fmt: skip
    cell = Cell(kind="gpu", patch=name, target="gfx942", rocm=rocm, require=("reproduce:gfx942",),
                tree=tree, seconds=seconds, estimate="default")  # fmt: skip
    return Piece((cell,), seconds, tree, shared)


def pool(pieces: Sequence[Piece], *, count: int = 1, minutes: int = 240, most: int = 200,
         name: str = "mi300") -> Pool:  # fmt: skip
    return Pool(name, "gpu", count, minutes, most, tuple(pieces), f"runners.toml: runners {name}")


def many(number: int, *, seed: int = 1, shared: float = 30.0) -> list[Piece]:
    draw = random.Random(seed)  # noqa: S311  lengths for a test, nothing secret
    return [
        piece(f"p{index}", draw.lognormvariate(4, 0.8), tree=f"a v{index % 3}",
              rocm=("7.0", "7.1")[index % 2], shared=shared)
        for index in range(number)
    ]  # fmt: skip


def test_nothing_is_lost_and_nothing_is_twice() -> None:
    pieces = many(300)
    jobs = pack([pool(pieces, count=4)])[0].jobs
    packed = [one.key for job in jobs for one in job.pieces]
    assert sorted(packed) == sorted(one.key for one in pieces)


@pytest.mark.parametrize("count", [1, 2, 3, 8])
@pytest.mark.parametrize("seed", range(5))
def test_the_last_job_ends_near_the_bound(count: int, seed: int) -> None:
    one = pool(many(600, seed=seed), count=count)
    stack = pack([one])[0]
    assert stack.load.seconds <= 1.1 * bound(one)
    assert stack.load.seconds >= bound(one)


def test_a_job_is_of_one_image_and_short_enough_to_try_again() -> None:
    for job in pack([pool(many(600), count=3)])[0].jobs:
        assert len({one.rocm for one in job.pieces}) == 1
        assert job.seconds <= 1.1 * 90 * 60


def test_half_of_a_jobs_limit_is_left_for_wrong_estimates() -> None:
    for job in pack([pool(many(200), count=3, minutes=60)])[0].jobs:
        assert job.seconds <= 1.1 * 30 * 60


def test_patches_on_one_tree_share_its_build() -> None:
    # Each tree takes as long to build as ten patches on it take: twice that is enough.
    pieces = [piece(f"p{index}", 60, tree=f"a v{index % 2}", shared=600) for index in range(40)]
    jobs = pack([pool(pieces, count=2)])[0].jobs
    assert len(jobs) == 2
    assert all(len({one.tree for one in job.pieces}) == 1 for job in jobs)


def test_the_longest_job_comes_first() -> None:
    lengths = [job.seconds for job in pack([pool(many(300), count=4)])[0].jobs]
    assert lengths == sorted(lengths, reverse=True)


def test_the_same_pieces_in_another_order_give_the_same_jobs() -> None:
    pieces = many(200)
    turned = list(reversed(pieces))
    assert pack([pool(pieces, count=3)])[0].jobs == pack([pool(turned, count=3)])[0].jobs


def test_all_sets_together_keep_well_within_what_actions_takes() -> None:
    pools = [pool(many(700, seed=index), count=8, name=f"s{index}") for index in range(12)]
    stacks = pack(pools)
    total = sum(len(stack.jobs) for stack in stacks)
    assert 12 * 2 <= total <= MOST_JOBS < 256
    for stack, one in zip(stacks, pools, strict=True):
        assert stack.load.seconds <= 1.25 * bound(one)


def test_what_is_too_much_is_not_taken_from_a_set_that_needs_a_job_for_each_image() -> None:
    few = [piece(f"few{rocm}", 60, rocm=rocm) for rocm in ("6.4", "7.0", "7.1")]
    busy = [pool(many(900, seed=index), count=40, name=f"s{index}") for index in range(8)]
    stacks = pack([pool(few, name="small"), *busy])
    assert len(stacks[0].jobs) == 3
    assert sum(len(stack.jobs) for stack in stacks) <= MOST_JOBS


def test_many_sets_that_need_little_and_one_that_needs_much() -> None:
    little = [pool([piece("a", 60)], name=f"s{index}") for index in range(100)]
    stacks = pack([*little, pool(many(900), count=180, most=5760)])
    assert sum(len(stack.jobs) for stack in stacks) <= MOST_JOBS


def test_more_images_than_a_run_has_jobs() -> None:
    images = [piece(f"p{part}", 60, rocm=f"7.{part}") for part in range(3)]
    with pytest.raises(QueueError, match="these are 300 jobs, and a run has at most 200") as raised:
        pack([pool(images, name=f"s{index}") for index in range(100)])
    assert "take away a [[runners.rocm]]" in raised.value.hint


def test_a_runner_gets_no_more_jobs_than_it_may() -> None:
    assert len(pack([pool(many(600), count=2, most=9)])[0].jobs) <= 9


def test_over_the_limit_the_error_says_what_to_cut() -> None:
    with pytest.raises(QueueError, match="600 cells do not fit into 4 jobs of 30") as raised:
        pack([pool(many(600), count=8, minutes=30, most=4)])
    assert "name fewer patches, take away a [[runners.rocm]]" in raised.value.hint


def test_what_hosted_runners_cannot_do_names_what_they_have() -> None:
    """How many jobs they get follows from their count: they have no jobs_limit."""
    host = replace(pool(many(600), count=8, minutes=30, most=4), kind="compile")
    with pytest.raises(QueueError, match="600 cells do not fit into 4 jobs of 30") as raised:
        pack([host])
    assert raised.value.hint == (
        "name fewer patches, take away a [[hosted.rocm]], or raise minutes_limit or count"
    )
    slow = replace(pool([piece(f"p{index}", 600) for index in range(200)]), kind="compile")
    with pytest.raises(QueueError, match="and GitHub cancels") as raised:
        pack([slow])
    assert raised.value.hint.endswith(" patches, or take away a [[hosted.rocm]], or raise count")


def test_what_would_wait_for_more_than_a_day_is_refused() -> None:
    pieces = [piece(f"p{index}", 600) for index in range(200)]
    with pytest.raises(QueueError, match=r"would start after \d+ hours, and GitHub") as raised:
        pack([pool(pieces)])
    part = int(raised.value.hint.split()[2])
    assert pack([pool(pieces[:part])])[0].jobs


def test_a_cell_that_is_too_long_is_named() -> None:
    with pytest.raises(QueueError, match=r"gpu/long/gfx942/rocm7\.1 takes about 62 minutes"):
        pack([pool([piece("long", 60 * 60)], minutes=60)])


def test_nothing_makes_no_job() -> None:
    stack = pack([pool([])])[0]
    assert (stack.jobs, stack.load.seconds, stack.load.bound) == ((), 0.0, 0.0)


def test_runners_take_the_next_job_when_they_are_free() -> None:
    jobs = pack([pool([piece("a", 300, rocm="1.0"), piece("b", 200, rocm="2.0"),
                       piece("c", 100, rocm="3.0")], count=2)])[0].jobs  # fmt: skip
    assert makespan(jobs, 2) == (300 + 2 * START, 200 + START)
