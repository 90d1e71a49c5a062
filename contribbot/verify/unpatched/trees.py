"""Making the trees that entries are asked on: a release without the patch, in the store."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from contribbot.errors import IntegrityError, QueueError, SourceError
from contribbot.model.patch import Patch
from contribbot.model.pin import Pin
from contribbot.sources import provide
from contribbot.store.series import apply_series
from contribbot.verify.job import Job
from contribbot.verify.stages.apply import with_tests
from contribbot.verify.unpatched.bare import Bare
from contribbot.verify.unpatched.carried import carried_over, files_of, named_paths, renames


class CannotTellError(Exception):
    """A pin cannot be had, or what is below the patch does not apply; says why."""


@dataclass(frozen=True)
class Made:
    """The trees, and where they come from.

    Attributes:
        bare: The release without the patch.
        commit: The release's commit.
        own: The commit of the pin that the patch stands on.
        moved: Files that the patch names and the release has elsewhere, old path and new.
    """

    bare: Bare
    commit: str
    own: str
    moved: dict[str, str]


def make_bare(job: Job, own: Pin, stack: Sequence[Patch]) -> Made:
    """Make the trees, and give the job's patch the paths of the release."""
    commit, own_commit = (_provided(job, pin) for pin in (job.patch.pin, own))
    patch, store = job.patch, job.store
    with store.exclusive():
        base = _stacked(job, commit, job.below, job.patch.pin)
        before, after = _with_and_without(job, own_commit, stack, own)
        tree = tested = store.tree_of(base)
        if after:
            folder = job.fresh_folder()
            tested = with_tests(store, patch, tree, before=before, after=after, scratch=folder)
    there, now = files_of(store, before), files_of(store, tree)
    left = [path for path in named_paths(patch, there) if path not in now]
    went = renames(store, before, tree) if left else {}
    moved = {path: went[path] for path in left if path in went}
    job.patch = replace(patch, spec=carried_over(patch, moved))
    trees = job.trees
    trees.pin_commit, trees.base_commit, trees.patched_commit = commit, base, base
    trees.base, trees.tested, trees.patched = tree, tested, tree
    bare = Bare(job, tree, frozenset(left) - moved.keys())
    return Made(bare, commit, own_commit, moved)


def _provided(job: Job, pin: Pin) -> str:
    try:
        return provide(pin, job.patch.upstream, job.store, progress=job.progress).commit
    except IntegrityError:
        raise  # it gave something else than the pin names: for a person to look at
    except SourceError as error:
        next_step = f"; next: {error.hint}" if error.hint else ""
        raise CannotTellError(error.message + next_step) from error


def _with_and_without(job: Job, commit: str, stack: Sequence[Patch], pin: Pin) -> tuple[str, str]:
    """Return the tree that the patch stands on, and the same with it; empty where it conflicts."""
    store = job.store
    try:
        before = _stacked(job, commit, stack, pin)
        after = _stacked(job, before, (job.patch,), pin)
    except CannotTellError:
        return store.tree_of(commit), ""
    return store.tree_of(before), store.tree_of(after)


def _stacked(job: Job, commit: str, stack: Sequence[Patch], pin: Pin) -> str:
    for patch in stack:
        folder = job.fresh_folder()
        try:
            series = apply_series(job.store, commit, patch.files, pin=pin.title, scratch=folder)
        except QueueError as error:
            raise CannotTellError(f"patches/{patch.name}/{error.message}") from error
        if series.conflicts:
            why = f"{patch.name}, which is below it, does not apply"
            raise CannotTellError(f"{why}: {series.conflicts[0].headline}")
        commit = series.commit
    return commit
