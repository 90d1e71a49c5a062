"""Stage `apply`: apply the patch to its base, in the store and without a work tree."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from contribbot.errors import QueueError
from contribbot.git.apply import Series, apply_series
from contribbot.git.patch_format import changes
from contribbot.git.repository import Store
from contribbot.model.evidence import ApplyStageResult, Outcome, PatchFault, StageResult
from contribbot.model.lifecycle import ConflictSide
from contribbot.model.patch import Patch
from contribbot.model.pin import Pin
from contribbot.model.record import AppliedFile, AppliedTrees, ApplyDetails
from contribbot.verify.job import Job
from contribbot.verify.stages.base import Finding, Inputs, Stage, Unit


class ApplyStage(Stage):
    """Makes the base (the pin with dependencies), the base with tests, and the patched tree."""

    result = ApplyStageResult
    after = ("source",)

    def units(self, job: Job) -> list[Unit]:
        """Return one unit, whose outcome depends only on the pin and the patch files."""
        inputs: Inputs = {
            "pin_commit": job.trees.pin_commit,
            "stack": [[patch.name, patch.digest] for patch in (*job.below, job.patch)],
            "tests": list(job.patch.upstream.tests),
        }

        def usable(result: StageResult) -> bool:
            # The queue's folder keeps the outcome, and the cache keeps the objects.
            trees = _trees(result)
            made = (trees.patched_commit, trees.tested_tree) if trees else ()
            return result.outcome is not Outcome.PASSED or all(map(job.store.has, made))

        return [Unit("any", inputs, lambda: _apply(job), usable=usable)]

    def settle(self, job: Job, results: Sequence[StageResult]) -> None:
        """Store the commits and trees in the job."""
        applied, trees = _trees(results[0]), job.trees
        assert applied is not None  # noqa: S101  a pass has trees
        trees.base_commit, trees.base = applied.base_commit, applied.base_tree
        trees.tested = applied.tested_tree
        trees.patched_commit, trees.patched = applied.patched_commit, applied.patched_tree


def _trees(result: StageResult) -> AppliedTrees | None:
    return result.details.trees if isinstance(result.details, ApplyDetails) else None


def _apply(job: Job) -> Finding:
    # The store must be locked: a parallel import would remove the new objects as unused.
    with job.store.exclusive():
        try:
            return _stack(job)
        except QueueError as error:
            # An invalid file of one patch must not end the proofs of other patches.
            reason = f"patches/{job.patch.name}/{error.message}; {error.hint}"
            return Finding(Outcome.FAILED, reason, lasting=False, patch_fault=PatchFault.INVALID)


def _stack(job: Job) -> Finding:
    base = job.trees.pin_commit
    for lower in job.below:
        below = series_on(job, base, lower, job.patch.pin)
        if below.conflicts:
            return _conflict(below.conflicts, f"the dependency {lower.name} ")
        base = below.commit
    if job.patch.spec.reproduces:
        return _without_files(job, base)
    if not job.patch.files:
        reason = f"no commits yet: `contribbot edit {job.patch.name}` opens a tree to make them in"
        return Finding(Outcome.SKIPPED, reason, lasting=False, patch_fault=PatchFault.UNFINISHED)
    series = series_on(job, base, job.patch, job.patch.pin)
    if series.conflicts:
        return _conflict(series.conflicts, "")
    base_tree, patched_tree = job.store.tree_of(base), series.applied[-1].tree
    tested = with_tests(
        job.store, job.patch, base_tree,
        before=base_tree, after=patched_tree, scratch=job.fresh_folder(),
    )  # fmt: skip
    adjustments = [item.phrase for applied in series.applied for item in applied.adjustments]
    details = ApplyDetails(
        trees=AppliedTrees(
            base_commit=base,
            base_tree=base_tree,
            tested_tree=tested,
            patched_commit=series.commit,
            patched_tree=patched_tree,
        ),
        commits=tuple(
            AppliedFile(file=applied.file, commit=applied.commit, subject=applied.subject)
            for applied in series.applied
        ),
        adjustments=tuple(adjustments),
    )
    if base_tree == patched_tree:
        return Finding(Outcome.FAILED, "it changes nothing: the pin has all of it", details)
    count = len(series.applied)
    how = f"not exactly: {'; '.join(adjustments)}" if adjustments else "exactly"
    return Finding(
        Outcome.PASSED, f"{count} patch file{'s' if count > 1 else ''} applied {how}", details
    )


def _without_files(job: Job, base: str) -> Finding:
    """Return a finding with the base as both trees, for a patch that only reproduces a bug."""
    if job.patch.files:
        reason = "it has commits, so `reproduces` is not true: take that out of patch.toml"
        return Finding(Outcome.FAILED, reason, lasting=False, patch_fault=PatchFault.INVALID)
    tree = job.store.tree_of(base)
    trees = AppliedTrees(
        base_commit=base, base_tree=tree, tested_tree=tree, patched_commit=base, patched_tree=tree
    )
    return Finding(Outcome.PASSED, "no change: the base alone", ApplyDetails(trees=trees))


def series_on(job: Job, commit: str, patch: Patch, pin: Pin) -> Series:
    """Apply a patch's files to a commit of a pin, and return the series."""
    scratch = job.fresh_folder()
    return apply_series(job.store, commit, patch.files, pin=pin.title, scratch=scratch)


def _conflict(conflicts: tuple[ConflictSide, ...], prefix: str) -> Finding:
    first, more = conflicts[0], len(conflicts) - 1
    reason = f"{prefix}{first.headline}" + (f" (and {more} more)" if more else "")
    return Finding(Outcome.FAILED, reason, ApplyDetails(conflicts=conflicts))


def with_tests(
    store: Store, patch: Patch, tree: str, *, before: str, after: str, scratch: Path
) -> str:
    """Return a new tree: the given tree with a patch's tests, without the patch's other files."""
    brought = [
        change
        for change in changes(store, before, after)
        if change.status != "D" and patch.upstream.is_test(change.path)
    ]
    if not brought:
        return tree
    index = {"GIT_INDEX_FILE": str(scratch / "index")}
    store.git("read-tree", tree, env=index)
    for change in brought:
        blob = change.blob
        sides = [store.resolve(f"{side}:{change.path}") for side in (tree, before)]
        if None not in sides and sides[0] != sides[1]:
            # Where the tree and the patch changed the same lines of a test, the patch's lines win.
            texts = [store.read(str(side)) for side in (*sides, blob)]
            merged = store.merge_file(texts, scratch=scratch, theirs=True)
            if merged is not None:
                made = store.git("hash-object", "-w", "--stdin", stdin=merged)
                blob = made.stdout.decode().strip()
        row = f"{change.mode},{blob},{change.path}"
        store.git("update-index", "--add", "--cacheinfo", row, env=index)
    return store.git("write-tree", env=index).stdout.decode().strip()
