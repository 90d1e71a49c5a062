"""The verification of one patch: its trees, its folders and the results of its stages."""

from __future__ import annotations

import ast
import contextlib
import hashlib
import os
import threading
import uuid
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Executor
from dataclasses import KW_ONLY, dataclass, field
from pathlib import Path
from typing import Generic, TypeVar

from contribbot import process
from contribbot.errors import CommandError
from contribbot.files import DiskCache, cache_folder, lock, log_path, used, write_atomically
from contribbot.git.patch_format import Change, ExportedTree, altered, changes, export
from contribbot.git.pins import Progress
from contribbot.git.repository import Store
from contribbot.machine import is_full
from contribbot.model.evidence import Machine, StageResult
from contribbot.model.patch import Patch
from contribbot.model.record import HipifyRecord, step_failures
from contribbot.verify.runner_fault import Preflights
from contribbot.verify.warm import WarmProcesses


def tree_cache() -> DiskCache:
    """Return the folder of exported pins, from which a run removes unused trees."""
    return DiskCache(cache_folder() / "trees")


@dataclass
class Trees:
    """The ids of the commits and trees of a job; empty until `source` and `apply` have passed."""

    pin_commit: str = ""
    base_commit: str = ""  # the pin with the dependencies applied
    base: str = ""  # the base's tree
    tested: str = ""  # the base's tree with the patch's tests, which base runs use
    patched_commit: str = ""  # the base with the patch applied
    patched: str = ""  # the patched tree

    @property
    def sides(self) -> tuple[str, str]:
        """The base's tree and the patched tree."""
        return self.base, self.patched


@dataclass(frozen=True)
class RunLayout:
    """The folders, Python path and variables with which a run uses a tree."""

    tree: Path  # the exported tree
    python: tuple[Path, ...]  # folders for Python's path
    env: Mapping[str, str]  # environment variables for the run
    #: Folders before `python`, with another Triton; also for the imports of the emulated GPU.
    tools: tuple[Path, ...] = ()
    #: Modules that run in place of files: the base's statements under the patched names.
    modules: Mapping[Path, ast.Module] = field(default_factory=dict)
    code: Path | None = None  # the folder of the compiled code for an emulated check

    @property
    def python_path(self) -> str:
        """The value of the variable `PYTHONPATH`."""
        before = self.env.get("PYTHONPATH", "")
        folders = map(str, (*self.tools, *self.python))
        return os.pathsep.join((*((before,) if before else ()), *folders))


@dataclass(frozen=True)
class Overlay:
    """A folder for Python's path, in which a tree's files replace installed packages' files."""

    folder: Path = Path()
    release: str = ""  # the installed releases that lie below, such as `torch 2.13.0+cpu`
    #: Files whose change was merged into an installed file that differs from the pin's file.
    merged: tuple[str, ...] = ()


@dataclass(frozen=True)
class Hipified:
    """The result of the hipify step on a tree."""

    trouble: str  # why the step failed; empty: the step succeeded
    #: The output of each source, and the missing output of each source, relative to `folder`.
    outputs: dict[str, str]
    missing: dict[str, str]
    #: A copy of the build's folder, with the project and the outputs at the paths that the build
    #: expects. The folder is read only, and removed at the end of the run.
    folder: Path
    command: str = ""  # the command line
    log: str = ""  # SHA-256 of the whole output, which is in `.contribbot/logs`
    tail: str = ""
    transient: bool = False  # whether another run might have another result
    broken: bool = False  # whether this machine, not the tree, is to blame
    seconds: float = 0.0

    @property
    def problems(self) -> list[str]:
        """Why the translation of sources failed, one line for each fault."""
        if self.trouble:
            return [self.trouble]
        return [f"{source} has no output {path}" for source, path in self.missing.items()]

    @property
    def files(self) -> dict[str, Path]:
        """The path of the output of each source."""
        return {source: self.folder / path for source, path in self.outputs.items()}

    @property
    def record(self) -> HipifyRecord:
        """The record of the step for this tree."""
        return HipifyRecord(
            passed=() if self.problems else ("hipify",),
            failed=step_failures("hipify", "call", self.problems),
            outputs=self.outputs,
            missing=self.missing,
            command=self.command,
            log_sha256=self.log,
            log_tail=self.tail if self.trouble else "",
            transient=self.transient,
        )


class Slots:
    """A lock that many `busy` blocks share, or one `quiet` block has alone; blocks do not nest."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._busy = 0  # the number of busy blocks; -1: a quiet block runs

    def busy(self) -> contextlib.AbstractContextManager[None]:
        """Run a block in parallel with other busy blocks."""
        return self._block(lambda: self._busy >= 0, 1)

    def quiet(self) -> contextlib.AbstractContextManager[None]:
        """Run a block while no other block of this lock runs."""
        return self._block(lambda: self._busy == 0, -1)

    @contextlib.contextmanager
    def _block(self, may_begin: Callable[[], bool], change: int) -> Iterator[None]:
        with self._changed:
            self._changed.wait_for(may_begin)
            self._busy += change
        try:
            yield
        finally:
            with self._changed:
                self._busy -= change
                self._changed.notify_all()


Item = TypeVar("Item")
Value = TypeVar("Value")


class Memo(Generic[Value]):
    """A cache that makes each value once, different keys in parallel; errors are not cached."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._locks: dict[str, threading.Lock] = {}
        self._values: dict[str, Value] = {}

    def get(self, key: str, make: Callable[[], Value]) -> Value:
        """Return the value of a key, which the first call makes."""
        with self._lock:
            guard = self._locks.setdefault(key, threading.Lock())
        with guard:
            if key not in self._values:
                self._values[key] = make()
            return self._values[key]

    def known(self, key: str) -> Value | None:
        """Return the value of a key; None: no call has made the value."""
        return self._values.get(key)


@dataclass(eq=False)
class Job:
    """The verification of a patch in one run: its inputs, trees, folders and results."""

    patch: Patch
    below: tuple[Patch, ...]
    _: KW_ONLY
    store: Store
    machine: Machine
    children: Executor  # the threads that wait for other programs
    slots: Slots
    threads: int
    scratch: Path
    logs: Path
    progress: Progress
    warm: WarmProcesses
    #: Shows which runs of a check begin, given the target, the check's name and the runs.
    step: Callable[[str, str, str], None] = lambda _target, _check, _runs: None
    force: bool = False  # whether to repeat work that an earlier command has done
    preflights: Preflights = field(default_factory=Preflights)
    trees: Trees = field(default_factory=Trees, init=False)
    results: dict[str, list[StageResult]] = field(default_factory=dict, init=False)
    #: A file's module without the change, by the file's path; None: no statement differs.
    modules: Memo[ast.Module | None] = field(default_factory=Memo, init=False)
    overlays: Memo[Overlay] = field(default_factory=Memo, init=False)
    hipified: Memo[Hipified] = field(default_factory=Memo, init=False)
    _exports: Memo[ExportedTree] = field(default_factory=Memo, init=False)
    _changes: Memo[list[Change]] = field(default_factory=Memo, init=False)

    @property
    def overlay(self) -> Overlay:
        """The overlay of the patched tree; empty: the tree runs alone."""
        return self.overlays.known(self.trees.patched) or Overlay()

    def parallel(self, work: Callable[[Item], Value], *items: Item) -> list[Value]:
        """Do a piece of work for each item in the threads of `children`; return the results."""
        futures = [self.children.submit(work, item) for item in items]
        return [future.result() for future in futures]

    def fresh_folder(self) -> Path:
        """Make and return a new folder with a random name."""
        folder = self.scratch / uuid.uuid4().hex[:8]
        folder.mkdir(parents=True)
        return folder

    def keep_log(self, text: str) -> str:
        """Write an output into the log folder, and return the digest of the output."""
        digest = hashlib.sha256(text.encode()).hexdigest()
        write_atomically(log_path(self.logs, digest), text.encode())
        return digest

    def changes(self) -> list[Change]:
        """Return the patch's changes, one for each file."""
        return self._changes.get("patch", lambda: changes(self.store, *self.trees.sides))

    def laid_over_base(self) -> list[str]:
        """Return the paths of the patch's tests that are copied onto the base for its runs."""
        trees = self.trees
        laid = self._changes.get("tests", lambda: changes(self.store, trees.base, trees.tested))
        return [change.path for change in laid]

    def exported(self, tree: str, *, copy: bool = False) -> Path:
        """Return a folder with a tree's files; `copy`: a second folder with the same files."""
        return self._export(tree, copy=copy).folder

    def altered(self, tree: str, *, copy: bool = False) -> str:
        """Return a path in an exported tree that a check has changed; empty: no changed path."""
        return altered(self.store, self._export(tree, copy=copy))

    def _export(self, tree: str, *, copy: bool) -> ExportedTree:
        """Export a tree; a file that equals the base's or the pin's file becomes a hard link."""
        base = tree == self.trees.base

        def write() -> ExportedTree:
            folder, index = (self.scratch / uuid.uuid4().hex for _ in range(2))
            try:
                own = base and not copy
                like = self._pinned() if own else self._export(self.trees.base, copy=False)
                content = self.trees.tested if base else tree
                return export(self.store, content, folder, index=index, like=like)
            except CommandError as error:
                # git does not name a full disk as the reason for a failure.
                if is_full(self.scratch):
                    raise process.no_space(error.message) from error
                raise

        return self._exports.get(f"{tree}{copy or ''}", write)

    def _pinned(self) -> ExportedTree:
        """Return the pin's exported tree from the cache; export a missing or changed tree anew."""
        tree = self.store.tree_of(self.trees.pin_commit)
        folder = tree_cache().folder / tree
        pinned = ExportedTree(tree, folder / "tree", folder / "index")
        with lock(folder.with_suffix(".lock"), "the files of a pin"):
            if not pinned.index.is_file() or altered(self.store, pinned):
                process.remove_tree(folder)
                export(self.store, tree, pinned.folder, index=pinned.index)
            used(folder)
        return pinned
