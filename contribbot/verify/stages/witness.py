"""Stage `witness`: which of the patch's added lines really ran under its checks."""

from __future__ import annotations

import ast

from pydantic import JsonValue

from contribbot.model.outcome import Outcome, StageResult
from contribbot.store.trees import added_lines
from contribbot.verify.gpuwitness import kernel_units
from contribbot.verify.job import Finding, Job, Unit


class WitnessStage:
    """Sets the lines that ran on the patched tree against the lines that the patch adds.

    Only lines that hold a statement count, as coverage.py sees them, and of these
    not the heads of definitions and the imports, which run when a file is merely
    imported. Files that are the upstream's tests are told apart: they are not what
    the patch changes.
    """

    name = "witness"
    after = ("reproduce",)

    def units(self, job: Job) -> list[Unit]:
        """One unit a target, as what ran on one says nothing of another; and the kernels'."""
        ran = [
            result
            for stage in ("reproduce", "numerics")
            for result in job.results.get(stage, ())
            if result.outcome is Outcome.PASSED and "executed" in result.details
        ]
        targets = dict.fromkeys(result.target for result in ran)
        return [*(self._unit(job, target, ran) for target in targets), *kernel_units(job)]

    def settle(self, job: Job, results: list[StageResult]) -> None:
        """Nothing later depends on it."""

    def _unit(self, job: Job, target: str, every: list[StageResult]) -> Unit:
        ran = [one for one in every if one.target == target]
        others = [one for one in every if one.target != target]
        inputs: dict[str, JsonValue] = {
            "base": job.trees.base,
            "patched": job.trees.patched,
            "tests": list(job.patch.upstream.tests),
            "elsewhere": [[one.target, one.details["executed"]] for one in others],
            "executed": [result.details["executed"] for result in ran],
            "statements": [result.details["statements"] for result in ran],
        }
        return Unit(target, inputs, lambda: self._look(job, ran, others))

    def _look(self, job: Job, ran: list[StageResult], others: list[StageResult]) -> Finding:
        executed, statements = _union(ran, "executed"), _union(ran, "statements")
        files: dict[str, JsonValue] = {}
        total = seen = 0
        elsewhere: set[str] = set()
        for path, added in _added_python(job).items():
            is_test = any(path.startswith(f"{prefix}/") for prefix in job.patch.upstream.tests)
            if path not in statements:
                if is_test:
                    continue  # one that does not compile, which `style` says
                return Finding(
                    Outcome.FAILED, f"{path}: no lines of it were reported", lasting=False
                )
            source = job.store.git("cat-file", "blob", f"{job.trees.patched}:{path}").stdout
            lines = (added & statements[path]) - import_time_lines(source)
            did = lines & executed.get(path, set())
            files[path] = {
                "test": is_test,
                "added_statements": [*sorted(lines)],
                "executed": [*sorted(did)],
                "not_executed": [*sorted(lines - did)],
            }
            if not is_test:
                total += len(lines)
                seen += len(did)
                elsewhere |= {
                    one.target
                    for one in others
                    if lines & _union([one], "executed").get(path, set())
                }
        details: dict[str, JsonValue] = {"files": files, "added": total, "executed": seen}
        return _judge(seen, total, elsewhere, details)


def _added_python(job: Job) -> dict[str, set[int]]:
    """Return the lines that the patch adds to Python files, by path in order."""
    added = added_lines(job.store, job.trees.base, job.trees.patched)
    return {path: set(added[path]) for path in sorted(added) if path.endswith(".py")}


def _judge(seen: int, total: int, elsewhere: set[str], details: dict[str, JsonValue]) -> Finding:
    """Say what it means that so many of the added statements ran on a target."""
    if not total:
        return Finding(
            Outcome.SKIPPED,
            "the patch adds no Python statement that could be witnessed",
            details,
        )
    share = f"{seen} of {total} added statements ran ({seen / total:.0%})"
    if not seen and elsewhere:
        # On a GPU the checks of a kernel may run no Python of the patch at all.
        return Finding(
            Outcome.SKIPPED,
            f"{share} here; what ran on {', '.join(sorted(elsewhere))} is witnessed there",
            details,
        )
    if not seen:
        return Finding(Outcome.FAILED, f"{share}: the checks never reach the change", details)
    return Finding(Outcome.PASSED, share, details)


def import_time_lines(source: bytes) -> set[int]:
    """Return the lines of definition heads, decorators and imports, wherever they stand.

    Args:
        source: A Python file that compiles.
    """
    lines: set[int] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            first = min([node.lineno, *(one.lineno for one in node.decorator_list)])
            lines |= set(range(first, node.body[0].lineno))
        elif isinstance(node, ast.Import | ast.ImportFrom):
            lines |= set(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    return lines


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
