"""What one patch's verification consists of, and what its stages tell each other."""

from __future__ import annotations

import contextlib
import hashlib
import importlib.util
import re
import sys
import threading
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Generic, Protocol, TypeVar

from pydantic import JsonValue

from contribbot import process
from contribbot.errors import CommandError
from contribbot.files import write_atomically
from contribbot.git.patch_format import Change, added_lines, altered, changes, export
from contribbot.git.repository import Store
from contribbot.git.source import Progress
from contribbot.hardware.machine import is_full
from contribbot.model.evidence import Machine, Outcome, StageResult
from contribbot.model.patch import Patch
from contribbot.model.pin import HipifyRecipe
from contribbot.verify.overlay import Overlay
from contribbot.verify.pytest_run import Scrub
from contribbot.verify.runner_fault import Preflights
from contribbot.verify.witness import Statement, new_statements


class Slots:
    """Lets either any number of busy blocks run, or one quiet block.

    A quiet block waits until nobody is busy, and holds nobody back meanwhile: while the last
    of several busy ones ends, the other cores would have nothing to do. Of a run, which
    ends, benches so come last. Neither kind may be entered from within the other, nor a
    second time.
    """

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._busy = 0
        self._quiet = False

    @contextlib.contextmanager
    def busy(self) -> Iterator[None]:
        """Work beside others."""
        with self._changed:
            self._changed.wait_for(lambda: not self._quiet)
            self._busy += 1
        try:
            yield
        finally:
            with self._changed:
                self._busy -= 1
                self._changed.notify_all()

    @contextlib.contextmanager
    def quiet(self) -> Iterator[None]:
        """Work alone."""
        with self._changed:
            self._changed.wait_for(lambda: not self._quiet and not self._busy)
            self._quiet = True
        try:
            yield
        finally:
            with self._changed:
                self._quiet = False
                self._changed.notify_all()


Value = TypeVar("Value")


class Memo(Generic[Value]):
    """Makes each value once; different ones side by side.

    When making one fails, everybody who asks tries again.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._locks: dict[str, threading.Lock] = {}
        self._values: dict[str, Value] = {}

    def get(self, key: str, make: Callable[[], Value]) -> Value:
        """Return the value of a key, making it the first time."""
        with self._lock:
            guard = self._locks.setdefault(key, threading.Lock())
        with guard:
            if key not in self._values:
                self._values[key] = make()
            return self._values[key]

    def known(self, key: str) -> Value | None:
        """Return the value of a key where it has been made."""
        return self._values.get(key)


_TAIL: Final = 2000
#: Seconds that an import may take on a machine that is busy.
_IMPORT: Final = 120.0


@dataclass(frozen=True)
class Hipified:
    """What the hipify step made of a tree."""

    #: What stands for the build's folder: the project's copy and the outputs lie in it, by the
    #: paths that the build looks for. Read only; there until the run ends.
    folder: Path
    outputs: Mapping[str, Path]  # the output of each source, by the source's path in the tree
    #: Where an output should be and is not, relative to `folder`, by source.
    missing: Mapping[str, str]
    trouble: str = ""  # why the step did not end well; empty when it did
    broken: bool = False  # whether that is this machine's fault and not the tree's
    transient: bool = False  # whether another run might end otherwise
    command: str = ""  # the command, as one would type it
    log: str = ""  # SHA-256 of the whole output, which `.contribbot/logs` keeps
    tail: str = ""
    seconds: float = 0.0  # wall-clock time


def obstacle(job: Job) -> str:
    """Say why the upstream's hipify step cannot run here, or nothing."""
    package = _recipe(job).module.partition(".")[0]
    if importlib.util.find_spec(package) is None:
        return f"{package}, whose hipify is needed, is not installed: pip install {package}"
    return ""


def sources_of(job: Job, tree: str) -> tuple[str, ...]:
    """Return the sources of a tree that a verification has hipified, sorted.

    They are those that the patch touches and the upstream builds for ROCm, those that
    its `[hipify]` declares, and those that a `[[compile]]` of kind hip compiles. Ask
    `hipified` for these, and the step runs once a tree.
    """
    recipe = job.patch.upstream.hipify
    if recipe is None:
        return ()
    spec = job.patch.spec
    touched = {
        change.path
        for change in job.changes()
        if is_source(recipe, change.path)
        and not any(re.search(pattern, change.path) for pattern in recipe.cuda_sources)
    }
    compiled = {
        one.source for one in spec.compile if one.kind == "hip" and is_source(recipe, one.source)
    }
    wanted = touched | compiled | set(spec.hipify.sources if spec.hipify else ())
    listed = job.store.git("ls-tree", "-r", "-z", "--name-only", tree, recipe.project).stdout
    there = set(listed.decode("utf-8", "surrogateescape").split("\0"))
    return tuple(sorted(wanted & there))


def is_source(recipe: HipifyRecipe, path: str) -> bool:
    """Say whether a path of a tree is one that the hipify step takes."""
    return path.startswith(f"{recipe.project}/") and path.endswith(recipe.suffixes)


def output_path(recipe: HipifyRecipe, source: str) -> str:
    """Return where the build looks for the output of a source, relative to its folder."""
    for pattern, text in recipe.renames:
        source = re.sub(pattern, text.replace("\\", r"\\"), source)
    return source


def hipified(job: Job, tree: str, sources: Sequence[str]) -> Hipified:
    """Hipify sources of a tree with the tree's own script; once for the same ones.

    Works in the calling thread: call it where other programs run, in `job.children`
    and under `job.busy()`. Nothing is written into the exported tree.
    """
    ordered = tuple(sorted(set(sources)))
    return job.hipified.get("\0".join((tree, *ordered)), lambda: _run(job, tree, ordered))


def _recipe(job: Job) -> HipifyRecipe:
    recipe = job.patch.upstream.hipify
    if recipe is None:
        raise ValueError(f"{job.patch.upstream.name} has no [hipify] recipe")
    return recipe


def _run(job: Job, tree: str, sources: tuple[str, ...]) -> Hipified:
    recipe, exported = _recipe(job), job.exported(tree)
    # Without symlinks, as scripts may compare paths as text.
    room = job.fresh_folder().resolve()
    build = room / "build"
    for name in ("build", "home", "tmp"):
        (room / name).mkdir()
    if not (exported / recipe.script).is_file():
        expected = {source: output_path(recipe, source) for source in sources}
        return Hipified(build, {}, expected, trouble=f"{recipe.script} is not in the tree")
    filled = {"{project}": str(exported / recipe.project), "{output}": str(build / recipe.project)}
    given = [filled.get(argument, argument) for argument in recipe.arguments]
    argv = ["-B", str(exported / recipe.script), *given, *sources]
    env = _environment(job, room)
    done = process.supervise(
        [sys.executable, *argv],
        cwd=exported if _in_tree(recipe, exported) else build,
        env=env,
        timeout=recipe.timeout,
        tethered=True,
    )
    scrub = Scrub(exported, room)
    said = scrub(done.output.decode("utf-8", "replace"))
    log = hashlib.sha256(said.encode()).hexdigest()
    write_atomically(job.logs / f"{log}.log", said.encode())
    trouble = _trouble(recipe, done, said)
    broken = _broken_module(recipe, env, room) if trouble and not done.timed_out else ""
    meddled = job.altered(tree)
    if meddled and not trouble:
        trouble = f"{recipe.script} wrote into the tree: {meddled}"
    outputs, missing = _outputs(recipe, build, sources)
    return Hipified(
        folder=build,
        outputs=outputs,
        missing=missing,
        trouble=broken or trouble,
        broken=bool(broken),
        # A tree that was written into is no longer what others on this run see.
        transient=bool(broken or meddled) or done.timed_out,
        command=scrub(process.describe(["python", *argv])),
        log=log,
        tail=said[-_TAIL:],
        seconds=done.seconds,
    )


def _in_tree(recipe: HipifyRecipe, exported: Path) -> bool:
    """Say whether the build runs the script in the tree, as the tree's build file tells."""
    file = exported / recipe.build_file
    return bool(
        recipe.build_file
        and file.is_file()
        and re.search(recipe.in_tree, file.read_text(encoding="utf-8", errors="replace"))
    )


def _environment(job: Job, room: Path) -> dict[str, str]:
    return process.clean_environment(
        {
            "HOME": str(room / "home"),
            "TMPDIR": str(room / "tmp"),
            "OMP_NUM_THREADS": str(job.threads),
            "PYTHONDONTWRITEBYTECODE": "1",
            "PYTHONUNBUFFERED": "1",
        }
    )


def _outputs(
    recipe: HipifyRecipe, build: Path, sources: tuple[str, ...]
) -> tuple[dict[str, Path], dict[str, str]]:
    """Return the outputs that are where the build looks for them, and those that are not."""
    outputs, missing = {}, {}
    for source in sources:
        expected = output_path(recipe, source)
        if (build / expected).is_file():
            outputs[source] = build / expected
        else:
            missing[source] = expected
    return outputs, missing


def _trouble(recipe: HipifyRecipe, done: process.Supervised, said: str) -> str:
    """Say why the script did not end well, or nothing."""
    if done.timed_out:
        return f"{recipe.script}: not finished after {recipe.timeout:g} s"
    if done.flooded:
        return f"{recipe.script}: it never stopped writing, and was ended"
    if done.returncode == 0:
        return ""
    code = done.returncode
    how = f"killed by signal {-code}" if code < 0 else f"exit status {code}"
    lines = said.strip().splitlines() or ["it said nothing"]
    return f"{recipe.script}: {how}: {lines[-1]}"


def _broken_module(recipe: HipifyRecipe, env: Mapping[str, str], folder: Path) -> str:
    """Say that what the script builds on does not work here, or nothing."""
    asked = process.supervise(
        [sys.executable, "-B", "-c", f"import {recipe.module}"],
        cwd=folder,
        env=env,
        timeout=_IMPORT,
    )
    if asked.returncode == 0 or asked.timed_out:
        return ""
    lines = asked.output.decode("utf-8", "replace").strip().splitlines() or ["no reason given"]
    package = recipe.module.partition(".")[0]
    return (
        f"{recipe.module} cannot be imported here ({lines[-1]}): "
        f"python -m pip install --force-reinstall {package}"
    )


@dataclass(frozen=True)
class Finding:
    """What a unit of work found."""

    outcome: Outcome  # how it ended
    reason: str  # one line that says why
    details: dict[str, JsonValue] = field(default_factory=dict)  # what was seen, for the record
    #: Whether the same inputs would give the same again. A crash or a time-out may not, and is not
    #: remembered.
    lasting: bool = True
    #: How long the work took, where that is not the time from its start to its end (it may have
    #: waited for others).
    seconds: float | None = None


@dataclass(frozen=True)
class Unit:
    """One piece of work of a stage, with everything that its outcome depends on."""

    target: str  # the hardware that it needs, or `any`
    #: What the outcome depends on, beside tool and machine; None: it is done every time.
    inputs: Mapping[str, JsonValue] | None
    work: Callable[[], Finding]  # does it. Runs in a worker thread.
    label: str = ""  # what people call it; empty where the stage has one unit
    missing: str = ""  # why this machine cannot do it, or empty
    #: Whether a remembered outcome still stands on what is there now.
    usable: Callable[[StageResult], bool] = lambda _result: True


@dataclass
class Trees:
    """The ids of what the stages work on; empty until `source` and `apply` have passed."""

    pin_commit: str = ""  # the pinned commit in the store
    base_commit: str = ""  # the pin with the dependencies on top
    base: str = ""  # the base's tree
    tested: str = ""  # the base's tree with the tests of the patch over it: what runs on the base
    patched_commit: str = ""  # the base with the patch on top
    patched: str = ""  # the patched tree


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
        self._changes: Memo[list[Change]] = Memo()
        self._added: Memo[dict[str, list[int]]] = Memo()
        self._statements: Memo[dict[str, list[Statement]]] = Memo()

    def fresh_folder(self) -> Path:
        """Make a folder whose name says nothing of what it will hold."""
        folder = self.scratch / uuid.uuid4().hex[:8]
        folder.mkdir(parents=True)
        return folder

    def exported(self, tree: str) -> Path:
        """Return a folder that holds a tree, writing it the first time; the base's with the tests.

        Its name does not say which side it is, so that no check can know.
        """
        return self._exported(tree).folder

    def changes(self) -> list[Change]:
        """Return what the patch changes, file by file."""
        trees = self.trees
        return self._changes.get("patch", lambda: changes(self.store, trees.base, trees.patched))

    def laid_over_base(self) -> list[str]:
        """Return the patch's own tests that the base is given."""
        trees = self.trees
        laid = self._changes.get("tests", lambda: changes(self.store, trees.base, trees.tested))
        return [change.path for change in laid]

    def added_lines(self) -> dict[str, list[int]]:
        """Return the numbers of the lines that the patch adds, by path."""
        trees = self.trees
        return self._added.get("", lambda: added_lines(self.store, trees.base, trees.patched))

    def witnesses(self) -> tuple[str, dict[str, list[Statement]]]:
        """Return the tree whose statements must run in a test, and these by file; none of tests.

        They are what the patch adds; where it adds none, what it deletes from the base.
        """
        base, patched = self.trees.base, self.trees.patched
        sides = [(patched, self._statements_of(base, patched))]
        if not any(sides[0][1].values()):
            sides.append((base, self._statements_of(patched, base)))
        return next((side for side in sides if any(side[1].values())), sides[0])

    def _statements_of(self, old: str, new: str) -> dict[str, list[Statement]]:
        """Return what a tree has in its Python files, and another has not."""

        def find() -> dict[str, list[Statement]]:
            lines = added_lines(self.store, old, new)
            return {
                path: new_statements(
                    self.store.file(f"{old}:{path}") or b"",
                    self.store.file(f"{new}:{path}") or b"",
                    lines[path],
                )
                for path in sorted(lines)
                if path.endswith(".py") and not self.patch.upstream.is_test(path)
            }

        return self._statements.get(new, find)

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
