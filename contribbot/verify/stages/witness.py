"""Stage `witness`: which of the patch's added lines really ran under its checks."""

from __future__ import annotations

from pydantic import JsonValue

from contribbot.model.outcome import Outcome, StageResult
from contribbot.store.trees import added_lines
from contribbot.verify.job import Finding, Job, Unit


class WitnessStage:
    """Sets the lines that ran on the patched tree against the lines that the patch adds.

    Only lines that hold a statement count, as coverage.py sees them. Files that
    are the upstream's tests are told apart: they are not what the patch changes.
    """

    name = "witness"
    after = ("reproduce",)

    def units(self, job: Job) -> list[Unit]:
        """One unit over all checks that ran."""
        ran = [
            result
            for result in job.results["reproduce"]
            if result.outcome is Outcome.PASSED and "executed" in result.details
        ]
        inputs: dict[str, JsonValue] = {
            "base": job.trees.base,
            "patched": job.trees.patched,
            "tests": list(job.patch.upstream.tests),
            "executed": [result.details["executed"] for result in ran],
            "statements": [result.details["statements"] for result in ran],
        }
        missing = "" if ran else "no check ran on this machine"
        return [Unit("cpu", inputs, lambda: self._look(job, ran), missing=missing)]

    def settle(self, job: Job, results: list[StageResult]) -> None:
        """Nothing later depends on it."""

    def _look(self, job: Job, ran: list[StageResult]) -> Finding:
        added = added_lines(job.store, job.trees.base, job.trees.patched)
        executed, statements = _union(ran, "executed"), _union(ran, "statements")
        files: dict[str, JsonValue] = {}
        total = seen = 0
        for path in sorted(added):
            if not path.endswith(".py") or path not in statements:
                continue
            lines = set(added[path]) & statements[path]
            did = lines & executed[path]
            is_test = any(path.startswith(f"{prefix}/") for prefix in job.patch.upstream.tests)
            files[path] = {
                "test": is_test,
                "added_statements": [*sorted(lines)],
                "executed": [*sorted(did)],
                "not_executed": [*sorted(lines - did)],
            }
            if not is_test:
                total += len(lines)
                seen += len(did)
        details: dict[str, JsonValue] = {"files": files, "added": total, "executed": seen}
        if not total:
            return Finding(
                Outcome.SKIPPED, "the patch adds no Python statement outside tests", details
            )
        share = f"{seen} of {total} added statements ran ({seen / total:.0%})"
        if not seen:
            return Finding(Outcome.FAILED, f"{share}: the checks never reach the change", details)
        return Finding(Outcome.PASSED, share, details)


def _union(ran: list[StageResult], key: str) -> dict[str, set[int]]:
    """Unite the lines of all checks, by file."""
    united: dict[str, set[int]] = {}
    for result in ran:
        by_file = result.details[key]
        if not isinstance(by_file, dict):
            continue
        for path, lines in by_file.items():
            if isinstance(lines, list):
                numbers = {line for line in lines if isinstance(line, int)}
                united.setdefault(path, set()).update(numbers)
    return united
