"""`contribbot show`."""

from __future__ import annotations

import operator
from collections.abc import Sequence

from pydantic import Field

from contribbot.cli.command import PatchArgument, Reply, command, open_patch
from contribbot.cli.render import Block, indented, pairs
from contribbot.model.base import Model
from contribbot.model.checks import Check, Numerics
from contribbot.model.patch import Patch, PatchSpec
from contribbot.queue.load import Queue
from contribbot.queue.superseded import superseded_words


@command("show rmsnorm")
def show(patch: PatchArgument) -> Reply:
    """Show what a patch is for, what it touches and what proves it."""
    queue, name = open_patch(patch)
    view = PatchView.of(queue, queue.patch(name))
    return Reply(view, patch_blocks(view))


class PatchView(Model):
    """The document of `show --json`."""

    patch: str
    repository: str
    patch_sha256: str
    patch_files: tuple[str, ...]
    spec: PatchSpec
    superseded: str = Field(default="", exclude_if=operator.not_)

    @classmethod
    def of(cls, queue: Queue, patch: Patch) -> PatchView:
        """View a patch."""
        return cls(
            patch=patch.name,
            repository=patch.upstream.repository,
            patch_sha256=patch.digest,
            patch_files=tuple(file.name for file in patch.files),
            spec=patch.spec.model_copy(update={"files": patch.paths}),
            superseded=superseded_words(queue, patch.name),
        )


def patch_blocks(view: PatchView) -> list[Block]:
    """Return the purpose of a patch, its problem and its proofs."""
    spec = view.spec
    none = f"none yet: `contribbot edit {view.patch}` opens a tree to make them in"
    superseded = [f"{view.patch}: {view.superseded}"] if view.superseded else []
    facts = (
        ("patch", [f"{view.patch} (sha256 {view.patch_sha256[:12]})"]),
        ("upstream", [f"{view.repository} at {spec.pin}"]),
        ("depends on", spec.depends_on),
        ("files", spec.files),
        ("commits", view.patch_files or [none]),
        ("related", spec.related),
        ("of", [f"{spec.theirs}, which is somebody else's"] if spec.theirs else []),
    )
    blocks: list[Block] = [*superseded, spec.title, "", pairs(facts, indent=0)]
    prose = {
        "What is wrong": spec.problem.strip().splitlines(),
        "Root cause": spec.root_cause.strip().splitlines(),
        "Solution": spec.solution.strip().splitlines(),
    }
    for title, rows in (prose | _proofs(spec)).items():
        blocks += ["", title, *indented(rows)] if rows else []
    return blocks


def _proofs(spec: PatchSpec) -> dict[str, list[str]]:
    """Return by title the entries of patch.toml that prove a patch, a line each."""
    unproved = ["nothing is stated that could prove it yet"]
    return {
        "Checks": unproved if spec.unproved else _runs(spec.checks),
        "Compiled": [
            f"{entry.name}: {entry.expect}, {entry.source} for {', '.join(entry.targets)}"
            for entry in spec.compile
        ],
        "Built": [
            f"{build.name}: {build.way}, for {', '.join(build.targets)}" for build in spec.build
        ],
        "Numerics": _runs(spec.numerics),
        "Emulated": [
            f"{entry.name}: {entry.expect}, {entry.compile or 'on the tree'} for "
            f"{', '.join(entry.targets)}"
            for entry in spec.emulated
        ],
        "Bench": [
            f"{bench.name}: at least {bench.at_least:g} times the base's speed, needs "
            f"{', '.join(bench.requires)}"
            for bench in spec.bench
        ],
    }


def _runs(stated: Sequence[Check | Numerics]) -> list[str]:
    return [f"{run.name}: {run.expect}, needs {', '.join(run.requires)}" for run in stated]
