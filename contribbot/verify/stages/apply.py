"""Stage `apply`: the patch applies to its base, without a work tree."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from pydantic import JsonValue

from contribbot.errors import QueueError
from contribbot.git.apply import Conflict, Series, apply_series
from contribbot.git.patch_format import changes
from contribbot.git.repository import Store
from contribbot.model.evidence import Outcome, StageResult
from contribbot.model.patch import Patch
from contribbot.verify.job import Finding, Job, Unit

#: How `git merge-file` ends: with so many conflicts, which are settled, or refusing a binary.
_MERGED: Final = range(128)
_REFUSED: Final = 255


class ApplyStage:
    """Makes the trees in the store: base (the pin with the dependencies), tested base, patched."""

    name = "apply"
    after = ("source",)

    def units(self, job: Job) -> list[Unit]:
        """One unit, whose outcome depends on the pin and the patch files alone."""
        stack = [*job.below, job.patch]
        inputs: dict[str, JsonValue] = {
            "pin_commit": job.trees.pin_commit,
            "stack": [[patch.name, patch.digest] for patch in stack],
            "tests": list(job.patch.upstream.tests),
        }
        return [
            Unit(
                "any",
                inputs,
                lambda: self._apply(job),
                # The outcome is remembered with the queue, the objects live in the cache.
                usable=lambda result: (
                    result.outcome is not Outcome.PASSED
                    or all(
                        job.store.has(str(result.details[name]))
                        for name in ("patched_commit", "tested_tree")
                    )
                ),
            )
        ]

    def settle(self, job: Job, results: list[StageResult]) -> None:
        """Take the commits and trees over."""
        details = results[0].details
        trees = job.trees
        trees.base_commit = str(details["base_commit"])
        trees.base = str(details["base_tree"])
        trees.tested = str(details["tested_tree"])
        trees.patched_commit = str(details["patched_commit"])
        trees.patched = str(details["patched_tree"])

    def _apply(self, job: Job) -> Finding:
        # New objects are written: an import beside it would sweep them away as leftovers.
        with job.store.exclusive():
            try:
                return self._stack(job)
            except QueueError as error:
                # What is wrong with one patch's files must not end the others' proofs.
                return Finding(
                    Outcome.FAILED,
                    f"patches/{job.patch.name}/{error.message}; {error.hint}",
                    {"invalid": True},
                    lasting=False,
                )

    def _stack(self, job: Job) -> Finding:
        base = job.trees.pin_commit
        for lower in job.below:
            below = _series(job, base, lower)
            if below.conflicts:
                return _conflict(below.conflicts, f"the dependency {lower.name} ")
            base = below.commit
        if not job.patch.files:
            return Finding(
                Outcome.SKIPPED,
                f"no commits yet: `contribbot edit {job.patch.name}` opens a tree to make them in",
                {"unfinished": True},
                lasting=False,
            )
        series = _series(job, base, job.patch)
        if series.conflicts:
            return _conflict(series.conflicts, "")
        base_tree = job.store.tree_of(base)
        patched_tree = series.applied[-1].tree
        tested = with_tests(
            job.store, job.patch, base_tree,
            before=base_tree, after=patched_tree, scratch=job.fresh_folder(),
        )  # fmt: skip
        adjustments = [item.phrase for one in series.applied for item in one.adjustments]
        details: dict[str, JsonValue] = {
            "base_commit": base,
            "base_tree": base_tree,
            "tested_tree": tested,
            "patched_commit": series.commit,
            "patched_tree": patched_tree,
            "commits": [
                {"file": one.file, "commit": one.commit, "subject": one.subject}
                for one in series.applied
            ],
            "adjustments": list(adjustments),
        }
        if base_tree == patched_tree:
            return Finding(Outcome.FAILED, "it changes nothing: the pin has all of it", details)
        return Finding(Outcome.PASSED, applied(len(series.applied), adjustments), details)


def applied(count: int, adjustments: Sequence[str]) -> str:
    """Say how many patch files were applied, and how exactly."""
    how = f"not exactly: {'; '.join(adjustments)}" if adjustments else "exactly"
    return f"{count} patch file{'s' if count > 1 else ''} applied {how}"


def _series(job: Job, base: str, patch: Patch) -> Series:
    return apply_series(
        job.store, base, patch.files, pin=job.patch.pin.title, scratch=job.fresh_folder()
    )


def _conflict(conflicts: tuple[Conflict, ...], prefix: str) -> Finding:
    first, more = conflicts[0], len(conflicts) - 1
    reason = f"{prefix}{first.headline}" + (f" (and {more} more)" if more else "")
    listed: list[JsonValue] = [
        {
            "patch_file": one.patch_file,
            "path": one.path,
            "hunk": one.hunk,
            "why": one.why,
            "line": one.line,
            "expected": list(one.expected),
            "found": list(one.found),
            "wanted": list(one.wanted),
        }
        for one in conflicts
    ]
    return Finding(Outcome.FAILED, reason, {"conflicts": listed})


def with_tests(
    store: Store, patch: Patch, tree: str, *, before: str, after: str, scratch: Path
) -> str:
    """Lay the tests that a patch brings over a tree, and nothing else of it."""
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
        sides = [store.resolve(f"{one}:{change.path}") for one in (tree, before)]
        if None not in sides and sides[0] != sides[1]:
            blob = _merged(store, [str(sides[0]), str(sides[1]), blob], scratch)
        told = f"{change.mode},{blob},{change.path}"
        store.git("update-index", "--add", "--cacheinfo", told, env=index)
    return store.git("write-tree", env=index).stdout.decode().strip()


def _merged(store: Store, blobs: list[str], scratch: Path) -> str:
    """Carry a change of a test over to the release's; where both changed it, the patch's stays."""
    sides = [scratch / f"side-{number}" for number in range(len(blobs))]
    for side, blob in zip(sides, blobs, strict=True):
        side.write_bytes(store.read(blob))
    done = store.git("merge-file", "-p", "--theirs", *sides, accept=(*_MERGED, _REFUSED))
    if done.returncode == _REFUSED:
        return blobs[-1]
    return store.git("hash-object", "-w", "--stdin", stdin=done.stdout).stdout.decode().strip()
