"""Which cells the patches ask for, and which of them no runner can run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from contribbot.model.patch import PatchSpec
from contribbot.model.runners import Kind, OpenCell, Runners, cell_key, version_key
from contribbot.queue.load import Queue


@dataclass(frozen=True)
class Wanted:
    """A cell that some runner can run.

    Attributes:
        kind: Whether it is compiled or run.
        patch: The patch.
        target: The target.
        rocm: The ROCm version.
        require: What must be proved, as `STAGE:TARGET`.
    """

    kind: Kind
    patch: str
    target: str
    rocm: str
    require: tuple[str, ...]

    @property
    def key(self) -> str:
        """Its name: the same in every plan."""
        return cell_key(self.kind, self.patch, self.target, self.rocm)


@dataclass(frozen=True)
class Asked:
    """What the patches ask for.

    Attributes:
        wanted: What some runner can run; by patch in the queue's order.
        open: What none can.
        without: Patches that ask for no AMD target.
    """

    wanted: tuple[Wanted, ...]
    open: tuple[OpenCell, ...]
    without: tuple[str, ...]


def demands(spec: PatchSpec) -> dict[tuple[Kind, str], tuple[str, ...]]:
    """Return what a patch states on AMD targets: the stages, by kind of cell and target.

    A build is part of the cell that runs: checks load its products.
    """
    stated: list[tuple[Kind, str, str]] = [
        *(("compile", "compile", target) for one in spec.compile for target in one.targets),
        *(("gpu", "build", target) for one in spec.build for target in one.targets),
        *(("gpu", "reproduce", check.target) for check in spec.checks),
        *(("gpu", "numerics", check.target) for check in spec.numerics),
        *(("gpu", "bench", bench.target) for bench in spec.bench),
    ]
    found: dict[tuple[Kind, str], dict[str, None]] = {}
    for kind, stage, target in stated:
        if target.startswith("gfx"):
            found.setdefault((kind, target), {})[f"{stage}:{target}"] = None
    return {key: tuple(stages) for key, stages in found.items()}


def asked_cells(queue: Queue, names: Sequence[str], runners: Runners, meant: Runners) -> Asked:
    """Return the cells of patches: those that some runner can run, and the others."""
    offers, used, versions = _offers(runners), _offers(meant), runners.versions
    wanted: list[Wanted] = []
    lacking: list[OpenCell] = []
    without = []
    for name in names:
        stated = demands(queue.specs[name])
        if not stated:
            without.append(name)
        for (kind, target), require in stated.items():
            offered = offers.get((kind, target), ())
            wanted += [
                Wanted(kind, name, target, rocm, require) for rocm in used.get((kind, target), ())
            ]
            missing = [rocm for rocm in versions if rocm not in offered]
            if not offered:
                missing = [""]
            lacking += [
                OpenCell(kind=kind, patch=name, target=target, rocm=rocm,
                         reason=_lack(runners, kind, target, rocm))
                for rocm in missing
            ]  # fmt: skip
    return Asked(tuple(wanted), tuple(lacking), tuple(without))


def _offers(runners: Runners) -> dict[tuple[Kind, str], tuple[str, ...]]:
    """Return the ROCm versions for each kind of cell and target, oldest first."""
    found: dict[tuple[Kind, str], set[str]] = {}
    for one in runners.runners:
        found.setdefault(("gpu", one.target), set()).update(image.version for image in one.rocm)
    for image in runners.hosted.rocm if runners.hosted else ():
        for target in image.targets:
            found.setdefault(("compile", target), set()).add(image.version)
    return {key: tuple(sorted(versions, key=version_key)) for key, versions in found.items()}


def _lack(runners: Runners, kind: Kind, target: str, rocm: str) -> str:
    """Say why no runner can run a cell."""
    if kind == "gpu":
        return f"no runner with {target} has ROCm {rocm}" if rocm else f"no runner has {target}"
    if runners.hosted is None:
        return "no [hosted] runner compiles"
    if rocm:
        return f"no [[hosted.rocm]] compiles for {target} with ROCm {rocm}"
    return f"no [[hosted.rocm]] compiles for {target}"
