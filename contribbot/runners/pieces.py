"""What jobs are made of, and cutting it into jobs of about the same length."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from contribbot.model.runners import Cell

#: Seconds that a job takes before and after its cells: to be handed out, to start the
#: container, to install contribbot, to upload. Assumed, not measured.
START: Final = 90.0


@dataclass(frozen=True)
class Piece:
    """Cells that one verification answers: a patch under one ROCm version.

    Attributes:
        cells: The cells.
        seconds: How long it takes.
        tree: The upstream and the pin whose tree it works on.
        shared: Seconds that all pieces on the tree need once in a job.
    """

    cells: tuple[Cell, ...]
    seconds: float
    tree: str
    shared: float

    @property
    def rocm(self) -> str:
        """The ROCm version."""
        return self.cells[0].rocm

    @property
    def alone(self) -> float:
        """Seconds of a job that does nothing else."""
        return START + self.shared + self.seconds

    @property
    def key(self) -> str:
        """What puts pieces of the same length in order."""
        return self.cells[0].key


@dataclass(frozen=True)
class Packed:
    """Pieces that run one after the other; those on the same tree stand together."""

    pieces: tuple[Piece, ...]

    @functools.cached_property
    def seconds(self) -> float:
        """How long the job takes."""
        return START + _work(self.pieces)


def shared(pieces: Sequence[Piece]) -> float:
    """Return the seconds that pieces need once in a job, over all their trees."""
    once: dict[str, float] = {}
    for piece in pieces:
        once[piece.tree] = max(piece.shared, once.get(piece.tree, 0.0))
    return sum(once.values())


def cut(pieces: Sequence[Piece], number: int) -> tuple[Packed, ...]:
    """Make so many jobs of pieces (fewer, where there are fewer); the longest first."""
    groups: dict[str, list[Piece]] = {}
    for piece in sorted(pieces, key=lambda one: (one.tree, -one.seconds, one.key)):
        groups.setdefault(piece.rocm, []).append(piece)
    jobs: list[Packed] = []
    parts = _parts({rocm: _work(group) for rocm, group in groups.items()}, number)
    for rocm, group in sorted(groups.items()):
        jobs += _cut(group, min(parts[rocm], len(group)))
    return tuple(sorted(jobs, key=lambda job: (-job.seconds, job.pieces[0].key)))


def _work(pieces: Sequence[Piece]) -> float:
    return shared(pieces) + sum(piece.seconds for piece in pieces)


def _parts(work: Mapping[str, float], number: int) -> dict[str, int]:
    """Share a number of jobs out by work, one at least to each."""
    parts = dict.fromkeys(sorted(work), 1)
    for _ in range(number - len(parts)):
        busiest = max(parts, key=lambda rocm: (work[rocm] / parts[rocm], rocm))
        parts[busiest] += 1
    return parts


def _cut(pieces: Sequence[Piece], number: int) -> list[Packed]:
    """Cut a row of pieces, tree by tree, into jobs of about the same length.

    A cut inside a tree costs one more of what its pieces share.
    """
    jobs = []
    left = list(pieces)
    for place in range(number, 1, -1):
        quota = _work(left) / place
        load, taken, tree = 0.0, 0, ""
        while taken < len(left) - (place - 1):
            piece = left[taken]
            more = piece.seconds + (piece.shared if piece.tree != tree else 0.0)
            # The cut that is nearer to the quota.
            if taken and load + more / 2 > quota:
                break
            load, taken, tree = load + more, taken + 1, piece.tree
        jobs.append(Packed(tuple(left[:taken])))
        left = left[taken:]
    return [*jobs, Packed(tuple(left))]
