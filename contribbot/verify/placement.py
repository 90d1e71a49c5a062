"""Where the Python files of a tree lie when something runs on it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Protocol

from pydantic import JsonValue

from contribbot.model.pin import Pin
from contribbot.verify import builds
from contribbot.verify.job import Job
from contribbot.verify.overlay import Overlay, lay_over, missing_package
from contribbot.verify.pytest_run import Place, Witnessed


class Runnable(Protocol):
    """What a check, a numerics entry and a bench have in common."""

    @property
    def target(self) -> str:
        """The hardware."""

    @property
    def build(self) -> str:
        """The `[[build]]` whose product it loads, or empty."""


def _overlay(job: Job, tree: str) -> Overlay | None:
    packages = job.patch.upstream.overlay
    if not packages:
        return None
    trees = job.trees
    return job.overlays.get(
        tree,
        lambda: lay_over(
            job.store, packages, pin=trees.pin_commit, trees=(trees.base, trees.patched),
            tree=tree, folder=job.fresh_folder(),
        ),
    )  # fmt: skip


def unplaceable(job: Job, what: Runnable) -> str:
    """Say why something cannot be put in place here, or nothing."""
    missing = missing_package(job.patch.upstream.overlay)
    if missing:
        return missing
    return builds.obstacle(job, what.build, what.target) if what.build else ""


def place(job: Job, what: Runnable, tree: str) -> Place:
    """Put a tree in place for something to run on it."""
    folder = job.exported(tree)
    roots = tuple(folder / root for root in job.patch.upstream.python_roots)
    overlay = _overlay(job, tree)
    env = builds.product(job, what.build, what.target, tree) if what.build else {}
    built = tuple(map(Path, filter(None, env.get("PYTHONPATH", "").split(os.pathsep))))
    # An overlay stands for the tree: the tree itself lacks what is compiled.
    python = roots if overlay is None else (overlay.folder,)
    # One tree has none of them; it is watched all the same, as that could make a difference.
    added = job.added_lines() if tree == job.trees.patched else {}
    by, statements = job.witnesses()
    acting = statements if tree == by else {}
    witnessed = {}
    for change in job.changes():
        if change.path.endswith(".py") and change.mode.startswith("100"):
            runs = _imported(folder, change.path, roots, (*built, *python))
            # Where a head alone changes, its body is not among what a diff adds.
            wanted = {line for one in acting.get(change.path, ()) for line in one.lines}
            wanted.update(added.get(change.path, ()))
            witnessed[str(runs)] = Witnessed.of(
                change.path, sorted(wanted), folder / change.path, runs
            )
    shown = job.preflights.shown(what.target)
    return Place(tree=folder, python=python, witnessed=witnessed, env={**env, **shown})


def _imported(folder: Path, path: str, roots: tuple[Path, ...], searched: tuple[Path, ...]) -> Path:
    """Return where Python finds a file of the tree: in a build, an overlay or the tree."""
    for root in roots:
        if (folder / path).is_relative_to(root):
            inside = (folder / path).relative_to(root)
            found = next((one / inside for one in searched if (one / inside).is_file()), None)
            if found is not None:
                return found
    return folder / path


def overlay_details(job: Job) -> dict[str, JsonValue]:
    """Return what the record says of the overlay that checks ran in; empty where none did."""
    made = job.overlays.known(job.trees.patched)
    return {"over": made.release, "merged": list(made.merged)} if made is not None else {}


def overlay_note(over: str, pin: Pin) -> str:
    """Say which releases a tree is run over that are not the pin's own, or nothing."""
    return ", ".join(
        f"over {release}, not the pin's"
        for release in filter(None, over.split(", "))
        # A local label names a build of the release: `+cpu`, `+rocm6.4`.
        if release.rpartition(" ")[2].partition("+")[0] != pin.tag.removeprefix("v")
    )
