"""What a patch is compared by with the pull requests of others."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from contribbot.contribute.gate.patchids import PatchIds, ids_of
from contribbot.contribute.gate.touching import Touch, functions, read_diff, read_files
from contribbot.contribute.state import state
from contribbot.errors import MachineError
from contribbot.files import run_folder, stores_folder
from contribbot.git.repository import Store, open_store
from contribbot.git.sources import find
from contribbot.model.patch import Patch
from contribbot.queue import history
from contribbot.queue.load import Queue
from contribbot.queue.stack import Landed, own_pin, series_of, with_dependencies


@dataclass(frozen=True)
class Ours:
    """A patch, as far as it can be compared.

    Attributes:
        name: The patch.
        repository: The upstream's repository.
        digest: Digest of the patch files.
        touched: The functions that it changes, by file; old names of files are there too.
        ids: Its patch ids.
        issue: The issue that it fixes; or empty.
        related: Pull requests and issues that it names.
        own: Pull requests of ours: its own, and those of its stack.
        branches: The `owner:branch` of these, in lower case.
        notes: What could not be compared as well as it might.
    """

    name: str
    repository: str
    digest: str
    touched: Mapping[str, frozenset[str]]
    ids: PatchIds
    issue: str
    related: tuple[str, ...]
    own: frozenset[str]
    branches: frozenset[str]
    notes: tuple[str, ...] = ()


def ours_of(queue: Queue, name: str) -> Ours:
    """Return what a patch is compared by. Nothing is downloaded."""
    patch = queue.patch(name)
    own, branches = _published(queue, name)
    touches, contents, whole = _on_its_pin(queue, patch)
    notes: tuple[str, ...] = ()
    if whole is None:
        touches = read_files(patch.files)
        notes = (f"{patch.pin.title} is not on this machine: functions are those that hunks name",)
    touched: dict[str, frozenset[str]] = {}
    for touch in touches:
        names = functions(touch.path, touch.hunks, contents.get(touch.path))
        for path in filter(None, (touch.path, touch.before)):
            touched[path] = touched.get(path, frozenset()) | names
    contribution = patch.spec.contribution
    return Ours(
        name=name,
        repository=patch.upstream.repository,
        digest=patch.digest,
        touched=touched,
        ids=ids_of(patch.files, whole),
        issue=contribution.issue or "",
        related=patch.spec.related,
        own=own,
        branches=branches,
        notes=notes,
    )


def _published(queue: Queue, name: str) -> tuple[frozenset[str], frozenset[str]]:
    """Return the pull requests and branches of a patch and of its stack, in lower case."""
    stack = {name, *queue.below(name), *(one for one in queue.specs if name in queue.below(one))}
    known = [found for one in stack if (found := state(history.read(queue.folder, one)))]
    return (
        frozenset(one.reference.lower() for one in known if one.reference),
        frozenset(
            f"{one.fork.partition('/')[0]}:{one.branch}".lower() for one in known if one.branch
        ),
    )


def _on_its_pin(queue: Queue, patch: Patch) -> tuple[list[Touch], dict[str, bytes], bytes | None]:
    """Return what a patch as a whole changes, its Python files, and its diff; None: not here."""
    try:
        store = open_store(stores_folder(), patch.upstream.name)
        pin = own_pin(queue, patch.name)
        found = find(pin, patch.upstream, store)
        if found is None:
            return [], {}, None
        with run_folder() as scratch:
            landed = Landed(pin, found.commit, store)
            names = with_dependencies(queue, [patch.name])
            series = series_of(queue, names, landed, scratch=scratch)[patch.name]
            if not series.applied or series.conflicts:
                return [], {}, None
            diff = store.git(
                "diff-tree", "-r", "-p", "-M", "--binary", "--full-index", "--no-color",
                "--no-ext-diff", series.base, series.commit,
            ).stdout  # fmt: skip
            touches = read_diff(patch.name, diff)
            return touches, _python(store, series.commit, touches), diff
    except MachineError:
        return [], {}, None


def _python(store: Store, commit: str, touches: Sequence[Touch]) -> dict[str, bytes]:
    """Read the Python files that a commit has at the paths that are touched."""
    return {
        one.path: store.read(f"{commit}:{one.path}")
        for one in touches
        if one.path.endswith((".py", ".pyi")) and not one.removed
    }
