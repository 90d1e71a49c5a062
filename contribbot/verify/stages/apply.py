"""Stage `apply`: the patch applies to its base, in memory."""

from __future__ import annotations

from pydantic import JsonValue

from contribbot.errors import QueueError
from contribbot.model.outcome import Outcome, StageResult
from contribbot.model.patch import Patch
from contribbot.store.conflict import Conflict
from contribbot.store.series import Series, apply_series
from contribbot.verify.job import Finding, Job, Unit


class ApplyStage:
    """Makes the base (the pin with the dependencies) and the patched tree in the store."""

    name = "apply"
    after = ("source",)

    def units(self, job: Job) -> list[Unit]:
        """One unit, whose outcome depends on the pin and the patch files alone."""
        stack = [*job.below, job.patch]
        inputs: dict[str, JsonValue] = {
            "pin_commit": job.trees.pin_commit,
            "stack": [[patch.name, patch.digest] for patch in stack],
        }
        return [
            Unit(
                "any",
                inputs,
                lambda: self._apply(job),
                # The outcome is remembered with the queue, the objects live in the cache.
                usable=lambda result: (
                    result.outcome is not Outcome.PASSED
                    or job.store.has(str(result.details["patched_commit"]))
                ),
            )
        ]

    def settle(self, job: Job, results: list[StageResult]) -> None:
        """Take the commits and trees over."""
        details = results[0].details
        trees = job.trees
        trees.base_commit = str(details["base_commit"])
        trees.base = str(details["base_tree"])
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
        adjustments = [item.phrase for one in series.applied for item in one.adjustments]
        details: dict[str, JsonValue] = {
            "base_commit": base,
            "base_tree": base_tree,
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
        count = len(series.applied)
        files = f"{count} patch file{'s' if count > 1 else ''}"
        how = f"not exactly: {'; '.join(adjustments)}" if adjustments else "exactly"
        return Finding(Outcome.PASSED, f"{files} applied {how}", details)


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
