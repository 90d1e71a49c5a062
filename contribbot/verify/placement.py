"""Where a run finds a tree's files: in the tree, in a build, or in an overlay."""

from __future__ import annotations

import ast
import functools
import importlib.metadata
import importlib.util
import os
from dataclasses import replace
from pathlib import Path

from contribbot.git.patch_format import Change, changes, renames
from contribbot.git.repository import Store
from contribbot.machine import release_of
from contribbot.model.checks import Bench, Check
from contribbot.model.pin import Pin
from contribbot.verify.job import Job, Overlay, RunLayout
from contribbot.verify.runner_fault import UnavailableError
from contribbot.verify.stages import build as builds
from contribbot.verify.without_change import without_change


def unplaceable(job: Job, what: Check | Bench) -> str:
    """Return why a tree cannot be put in place for a check or bench; empty: the tree can be."""
    for package in job.patch.upstream.overlay:
        if _installed(package) is None:
            return f"the Python package {package} is not installed"
    return builds.obstacle(job, what.build, what.target) if what.build else ""


def place(job: Job, what: Check | Bench, tree: str, *, copy: bool = False) -> RunLayout:
    """Put a tree in place for a check or bench, and return the layout; `copy`: at another path."""
    folder = job.exported(tree, copy=copy)
    roots = tuple(folder / root for root in job.patch.upstream.python_roots)
    env = builds.product(job, what.build, what.target, tree) if what.build else {}
    # An overlay replaces the tree, which lacks the compiled modules.
    laid = job.patch.upstream.overlay
    over = functools.partial(_lay_over, job, tree)
    python = (job.overlays.get(f"{tree}{copy or ''}", over).folder,) if laid else roots
    # Code may read the version of the tree's package, which is not installed.
    version = {"CONTRIBBOT_VERSION": job.patch.pin.tag.removeprefix("v")}
    return RunLayout(tree=folder, python=python, env={**env, **version})


def place_without_change(
    job: Job, what: Check | Bench, base: RunLayout, patched: RunLayout
) -> RunLayout | None:
    """Return the patched layout with the base's statements; None: no code or build differs."""
    builds_differ = bool(what.build) and builds.differ(job, what.build, what.target)
    env = builds.product(job, what.build, what.target, job.trees.base) if what.build else {}
    former = {new: old for old, new in renames(job.store, *job.trees.sides).items()}
    modules = {}
    for change in job.changes():
        path, plain = change.path, change.mode.startswith("100") or change.status == "D"
        if not (plain and path.endswith(".py")) or job.patch.upstream.is_test(path):
            continue
        before, after = _imported(job, base, former.get(path, path)), _imported(job, patched, path)
        make = functools.partial(_module, job, path, before, after)
        if (module := job.modules.get(str(after), make)) is not None:
            modules[after] = module
    if not modules and not builds_differ:
        return None
    return replace(patched, env={**patched.env, **env}, modules=modules)


def _module(job: Job, path: str, base: Path, patched: Path) -> ast.Module | None:
    """Return a file's module without the change; None: no statement differs."""

    def is_read(name: str) -> bool:
        at = ("-e", name, job.trees.patched, "--", "*.py")
        found = job.store.git("grep", "-lwF", *at, accept=(0, 1)).stdout.decode().splitlines()
        files = {row.partition(":")[2] for row in found} - {path}
        return not all(map(job.patch.upstream.is_test, files))

    before = base.read_bytes() if base.is_file() else b""
    return without_change(before, patched.read_bytes() if patched.is_file() else None, is_read)


def _imported(job: Job, layout: RunLayout, path: str) -> Path:
    """Return the path at which Python finds a tree's file: in a build, an overlay or the tree.

    For a missing file: the last path at which Python would look.
    """
    file = layout.tree / path
    roots = (layout.tree / root for root in job.patch.upstream.python_roots)
    below = [file.relative_to(root) for root in roots if file.is_relative_to(root)]
    searched = [Path(folder) for folder in layout.python_path.split(os.pathsep)]
    places = [folder / part for part in below for folder in searched]
    return next(filter(Path.is_file, places), (file, *places)[-1])


def overlay_note(over: str, pin: Pin) -> str:
    """Return a remark on installed releases that differ from the pin's; empty: no such release."""
    return ", ".join(
        f"over {release}, not the pin's"
        for release in filter(None, over.split(", "))
        # A local label, such as `+cpu` or `+rocm6.4`, names a build of the release.
        if release.rpartition(" ")[2].partition("+")[0] != pin.tag.removeprefix("v")
    )


def _lay_over(job: Job, tree: str) -> Overlay:
    """Make the overlay of one tree over the installed packages, and return the overlay."""
    packages, trees, folder = job.patch.upstream.overlay, job.trees, job.fresh_folder()
    of_each = {
        side: {change.path: change for change in changes(job.store, trees.pin_commit, side)}
        for side in (trees.base, trees.patched, tree)
    }
    touched = {path for side in of_each.values() for path in side}
    merged = []
    for package in packages:
        root = _installed(package)
        assert root is not None  # noqa: S101  the callers have asked `unplaceable`
        inside = {path for path in touched if path.startswith(f"{package}/")}
        _link(root, folder / package, package, inside)
        for path in sorted(inside):
            change, installed = of_each[tree].get(path), root.parent / path
            if _write(job.store, installed, folder / path, f"{trees.pin_commit}:{path}", change):
                merged.append(path)
    return Overlay(folder, release_of(packages), tuple(merged))


def _installed(package: str) -> Path | None:
    spec = importlib.util.find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        return None
    return Path(next(iter(spec.submodule_search_locations)))


def _link(installed: Path, folder: Path, prefix: str, touched: set[str]) -> None:
    """Link a package's entries into a folder; make real folders on the way to touched files."""
    folder.mkdir(parents=True)
    on_the_way = {path.removeprefix(f"{prefix}/").partition("/")[0] for path in touched}
    for entry in installed.iterdir():
        name = f"{prefix}/{entry.name}"
        if entry.name not in on_the_way:
            (folder / entry.name).symlink_to(entry)
        elif entry.is_dir():
            below = {path for path in touched if path.startswith(f"{name}/")}
            _link(entry, folder / entry.name, name, below)


def _write(store: Store, installed: Path, target: Path, pinned: str, change: Change | None) -> bool:
    """Write the tree's version of a touched file; return whether a merge was necessary."""
    original = store.file(pinned)
    there = installed.read_bytes() if installed.is_file() else None
    content = there if change is None else store.file(change.blob)
    foreign = there != original and change is not None
    target.parent.mkdir(parents=True, exist_ok=True)
    if foreign:
        path = pinned.partition(":")[2]
        if there is None or original is None or content is None:
            raise UnavailableError(f"{path}: the installed package and the pin do not both have it")
        content = store.merge_file((there, original, content), scratch=target.parent)
        if content is None:
            why = f"{path}: the installed file is not the pin's, and the change conflicts"
            raise UnavailableError(why)
    if content is not None:
        target.write_bytes(content)
    return foreign and content is not None
