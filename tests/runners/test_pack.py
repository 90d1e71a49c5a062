"""Jobs of a matrix: short ones, as many as runners are there, never more than Actions makes."""

from __future__ import annotations

from collections import Counter

import pytest

from contribbot.errors import QueueError
from contribbot.runners.documents import PlannedCell, RunnerSet
from contribbot.runners.plan import MOST_JOBS, Piece, split

IMAGE = f"a/b@sha256:{'0' * 64}"


def many(number: int, *, pins: int = 1, rocm: tuple[str, ...] = ("7.1",)) -> list[Piece]:
    return [
        Piece((PlannedCell(kind="gpu", patch=f"p{place}", target="gfx942", rocm=version,
                           require=("reproduce:gfx942",)),), f"a v{place % pins}")
        for place in range(number) for version in rocm
    ]  # fmt: skip


def gpus(count: int, *rocm: str) -> RunnerSet:
    images = tuple({"version": each, "image": IMAGE} for each in rocm or ("7.1",))
    return RunnerSet.model_validate({
        "name": "mi300", "target": "gfx942", "labels": ("a",), "count": count, "rocm": images,
    })  # fmt: skip


@pytest.mark.parametrize(
    ("pieces", "count", "sizes"),
    [
        ([], 3, []),
        (many(3), 1, [3]),
        (many(3), 2, [2, 1]),
        (many(2), 8, [1, 1]),
        (many(17), 1, [6, 6, 5]),  # three of at most eight
        (many(20), 10, [2] * 10),
        # Patches on one pin share the bringing of it, so none shares a job with another's.
        (many(4, pins=2), 1, [2, 2]),
        (many(2, rocm=("7.0", "7.1")), 1, [2, 2]),
    ],
)
def test_patches_of_one_image_and_pin_share_jobs(
    pieces: list[Piece], count: int, sizes: list[int]
) -> None:
    jobs = split([(gpus(count, "7.0", "7.1"), pieces)])
    assert [len(job.pieces) for job in jobs] == sizes
    assert Counter(piece for job in jobs for piece in job.pieces) == Counter(pieces)
    assert all(len({(each.rocm, each.pin) for each in job.pieces}) == 1 for job in jobs)


def test_jobs_grow_where_actions_makes_no_more_of_them() -> None:
    for number in (MOST_JOBS * 8, MOST_JOBS * 8 + 1, 20_000):
        jobs = split([(gpus(1), many(number))])
        assert MOST_JOBS / 2 < len(jobs) <= MOST_JOBS
        assert sum(len(job.pieces) for job in jobs) == number


def test_more_images_than_jobs_are_refused() -> None:
    rocm = tuple(f"{place // 100}.{place % 100}" for place in range(100, 100 + MOST_JOBS + 1))
    with pytest.raises(QueueError, match=r"these are 257 jobs, and a run has at most 256") as error:
        split([(gpus(1, *rocm), many(2, rocm=rocm))])
    assert "--on SET" in error.value.hint
