"""What one patch's verification consists of, and what its stages tell each other."""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Callable, Mapping
from concurrent.futures import Executor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from pydantic import JsonValue

from contribbot import process
from contribbot.errors import CommandError
from contribbot.hardware.disk import is_full
from contribbot.model.machine import Machine
from contribbot.model.outcome import Outcome, StageResult
from contribbot.model.patch import Patch
from contribbot.sources import Progress
from contribbot.store.repository import Store
from contribbot.store.trees import added_lines, altered, export
from contribbot.verify.hipified import Hipified
from contribbot.verify.memo import Memo
from contribbot.verify.overlay import Overlay
from contribbot.verify.preflight import Preflights
from contribbot.verify.slots import Slots
from contribbot.verify.witness import Statement, new_statements


@dataclass(frozen=True)
class Finding:
    """What a unit of work found.

    Attributes:
        outcome: How it ended.
        reason: One line that says why.
        details: What was seen, for the record.
        lasting: Whether the same inputs would give the same again. A crash or a
            time-out may not, and is not remembered.
        seconds: How long the work took, where that is not the time from its start
            to its end (it may have waited for others).
    """

    outcome: Outcome
    reason: str
    details: dict[str, JsonValue] = field(default_factory=dict)
    lasting: bool = True
    seconds: float | None = None


@dataclass(frozen=True)
class Unit:
    """One piece of work of a stage, with everything that its outcome depends on.

    Attributes:
        target: The hardware that it needs, or `any`.
        inputs: What the outcome depends on, beside tool and machine; None: it is
            done every time.
        work: Does it. Runs in a worker thread.
        label: What people call it; empty where the stage has one unit.
        missing: Why this machine cannot do it, or empty.
        usable: Whether a remembered outcome still stands on what is there now.
    """

    target: str
    inputs: Mapping[str, JsonValue] | None
    work: Callable[[], Finding]
    label: str = ""
    missing: str = ""
    usable: Callable[[StageResult], bool] = lambda _result: True


@dataclass
class Trees:
    """The ids of what the stages work on; empty until `source` and `apply` have passed.

    Attributes:
        pin_commit: The pinned commit in the store.
        base_commit: The pin with the dependencies on top.
        base: The base's tree.
        tested: The base's tree with the tests of the patch over it: what runs on the base.
        patched_commit: The base with the patch on top.
        patched: The patched tree.
    """

    pin_commit: str = ""
    base_commit: str = ""
    base: str = ""
    tested: str = ""
    patched_commit: str = ""
    patched: str = ""


@dataclass(frozen=True)
class _Export:
    """A tree in a folder, and git's index of it."""

    folder: Path
    index: Path


class Job:
    """One patch on its way through the stages."""

    def __init__(
        self,
        patch: Patch,
        below: tuple[Patch, ...],
        *,
        store: Store,
        machine: Machine,
        children: Executor,
        slots: Slots,
        threads: int,
        scratch: Path,
        logs: Path,
        progress: Progress,
        preflights: Preflights | None = None,
    ) -> None:
        self.patch = patch
        self.below = below
        self.store = store
        self.machine = machine
        self.children = children
        self.slots = slots
        self.threads = threads
        self.scratch = scratch
        self.logs = logs
        self.progress = progress
        self.preflights = preflights or Preflights()
        self.trees = Trees()
        self.results: dict[str, list[StageResult]] = {}
        self.overlays: Memo[Overlay] = Memo()
        self.hipified: Memo[Hipified] = Memo()
        self._exports: Memo[_Export] = Memo()
        self._statements: Memo[dict[str, list[Statement]]] = Memo()

    def fresh_folder(self) -> Path:
        """Make a folder whose name says nothing of what it will hold."""
        folder = self.scratch / uuid.uuid4().hex
        folder.mkdir(parents=True)
        return folder

    def exported(self, tree: str) -> Path:
        """Return a folder that holds a tree, writing it the first time; the base's with the tests.

        Its name does not say which side it is, so that no check can know.
        """
        return self._exported(tree).folder

    def added_statements(self) -> dict[str, list[Statement]]:
        """Return what the patch adds to Python files and does something; not in its tests."""
        return self._statements.get("", self._added)

    def _added(self) -> dict[str, list[Statement]]:
        trees = self.trees
        added = added_lines(self.store, trees.base, trees.patched)
        found = {}
        for path in sorted(added):
            if path.endswith(".py") and not self.patch.upstream.is_test(path):
                before, after = (
                    self.store.file(f"{tree}:{path}") for tree in (trees.base, trees.patched)
                )
                found[path] = new_statements(before or b"", after or b"", added[path])
        return found

    def _exported(self, tree: str) -> _Export:
        content = self.trees.tested if tree == self.trees.base else tree
        return self._exports.get(tree, lambda: self._export(content))

    def _export(self, tree: str) -> _Export:
        folder, index = (self.scratch / uuid.uuid4().hex for _ in range(2))
        try:
            export(self.store, tree, folder, index=index)
        except CommandError as error:
            # git does not say why it could not write.
            if is_full(self.scratch):
                raise process.no_space(error.message) from error
            raise
        return _Export(folder, index)

    def busy(self) -> contextlib.AbstractContextManager[None]:
        """Work on this machine beside others; for work in `children`."""
        return self.slots.busy()

    def quiet(self) -> contextlib.AbstractContextManager[None]:
        """Work on this machine alone; not within `busy`, nor in `children`."""
        return self.slots.quiet()

    def altered(self, tree: str) -> str:
        """Return a path of an exported tree that some check has changed, or nothing."""
        one = self._exported(tree)
        return altered(self.store, one.folder, index=one.index)


class Stage(Protocol):
    """One kind of proof. A new one is one file, one row in the registry, one test."""

    @property
    def name(self) -> str:
        """How outcomes call it."""

    @property
    def after(self) -> tuple[str, ...]:
        """Stages that must have passed for this one to make sense."""

    def units(self, job: Job) -> list[Unit]:
        """Return the work to be done; called when the stages before it have ended."""

    def settle(self, job: Job, results: list[StageResult]) -> None:
        """Take over from its results what later stages need."""
