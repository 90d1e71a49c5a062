"""Stages `source` and `apply`: bring the pinned tree into the store, and apply the patch to it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from contribbot.errors import IntegrityError, QueueError, SourceError
from contribbot.git.apply import apply_series
from contribbot.git.patch_format import changes
from contribbot.git.pins import Provided
from contribbot.git.pins.sources import provide
from contribbot.git.repository import Store
from contribbot.model.evidence import (
    ApplyStageResult,
    Outcome,
    PatchFault,
    SourceStageResult,
    StageResult,
)
from contribbot.model.lifecycle import ConflictSide
from contribbot.model.patch import Patch, Pin
from contribbot.model.record import AppliedFile, AppliedTrees, ApplyDetails, SourceDetails
from contribbot.verify.job import Job
from contribbot.verify.runner_fault import UnavailableError
from contribbot.verify.stages import Finding, Inputs, Stage, Unit

#: A digest, which a line for people shortens and the details of a record have in full.
_DIGEST: Final = re.compile(r"\b([0-9a-f]{12})[0-9a-f]{28}(?:[0-9a-f]{24})?\b")


def provided(job: Job, pin: Pin) -> Provided:
    """Return a pin's tree from the store or a source; UnavailableError: all sources failed."""
    try:
        return provide(pin, job.patch.upstream, job.store, progress=job.progress)
    except IntegrityError:
        raise  # the content is not the pin's, so a person must look
    except SourceError as error:
        next_step = f"; next: {error.hint}" if error.hint else ""
        raise UnavailableError(error.message + next_step) from error


class SourceStage(Stage):
    """Brings the pin's tree into the store, from the first source that works."""

    result = SourceStageResult
    after = ()

    def units(self, job: Job) -> list[Unit]:
        """Return one unit whose outcome is never cached, because the git store keeps the tree."""
        return [Unit("any", None, lambda: _bring(job))]

    def settle(self, job: Job, results: Sequence[StageResult]) -> None:
        """Store the pin's commit in the job."""
        details = results[0].details
        assert isinstance(details, SourceDetails)  # noqa: S101  a pass has these details
        job.trees.pin_commit = details.commit


def _bring(job: Job) -> Finding:
    pin = job.patch.pin
    source = provided(job, pin)
    short = _DIGEST.sub(r"\1", source.detail)
    return Finding(
        Outcome.PASSED,
        f"{pin.title} from {short}",
        SourceDetails(
            kind=source.kind,
            commit=source.commit,
            tree=source.tree,
            origin=source.detail,
            failures=tuple(source.failures),
        ),
        # An outcome counts as cached if the store had the tree.
        cached=not source.fresh,
    )


class ApplyStage(Stage):
    """Makes the base (the pin with dependencies), the base with tests, and the patched tree."""

    result = ApplyStageResult
    after = ("source",)

    def units(self, job: Job) -> list[Unit]:
        """Return one unit, which depends on pin, patch files, test folders and `reproduces`."""
        inputs: Inputs = {
            "pin_commit": job.trees.pin_commit,
            "stack": [[patch.name, patch.digest] for patch in (*job.below, job.patch)],
            "tests": list(job.patch.upstream.tests),
            "reproduces": bool(job.patch.spec.reproduces),
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
        below = apply_series(job.store, base, lower.files, pin=job.patch.pin.title)
        if below.conflicts:
            return _conflict(below.conflicts, f"the dependency {lower.name} ")
        base = below.commit
    if job.patch.spec.reproduces:
        return _without_files(job, base)
    if not job.patch.files:
        reason = f"no commits yet: `contribbot edit {job.patch.name}` opens a tree to make them in"
        return Finding(Outcome.SKIPPED, reason, lasting=False, patch_fault=PatchFault.UNFINISHED)
    series = apply_series(job.store, base, job.patch.files, pin=job.patch.pin.title)
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
