"""What the `build` stage made, for the checks that load it."""

from __future__ import annotations

import filecmp
from collections.abc import Mapping

from contribbot.building import shelf
from contribbot.errors import MachineError
from contribbot.model.outcome import Outcome, StageResult
from contribbot.verify.job import Job


def obstacle(job: Job, name: str, target: str) -> str:
    """Say why a build's products are not there, or nothing."""
    result = _result(job, name, target)
    if result is None:
        return f"its build {name} is not made for {target}"
    if result.outcome is not Outcome.PASSED:
        reason = result.reason.removeprefix(f"{name}: ")
        return f"its build {name} {_BECAME[result.outcome]}: {reason}"
    for side in ("base", "patched"):
        key = product_key(result, side)
        if not key:
            return f"its build {name} has nothing to load from the {side}, as it states"
        if shelf.find(key) is None:
            return f"its build {name} is gone from the cache: verify again"
    return ""


_BECAME = {
    Outcome.FAILED: "failed",
    Outcome.UNAVAILABLE: "is unavailable",
    Outcome.SKIPPED: "was skipped",
}


def identity(job: Job, name: str, target: str) -> list[str]:
    """Return what a check that loads a build depends on: what its products are made from."""
    result = _result(job, name, target)
    return [product_key(result, side) for side in ("base", "patched")] if result else []


def product(job: Job, name: str, target: str, tree: str) -> Mapping[str, str]:
    """Return the variables that tell a check where a build's product is.

    `CONTRIBBOT_EXTENSION` is the path of a shared library; `PYTHONPATH` is put before
    the tree's own.
    """
    result = _result(job, name, target)
    side = "base" if tree == job.trees.base else "patched"
    found = shelf.find(product_key(result, side)) if result is not None else None
    if found is None:
        raise MachineError(
            f"{job.patch.name}: the build {name} of the {side} is gone from the cache",
            hint="verify again",
        )
    return found.environment


def differ(job: Job, name: str, target: str) -> bool:
    """Say whether the patched tree's product has other bytes than the base's."""
    result = _result(job, name, target)
    if result is None:
        return False
    base, patched = (shelf.find(product_key(result, side)) for side in ("base", "patched"))
    if base is None or patched is None:
        return False
    names = set(base.marker.files)
    return names != set(patched.marker.files) or any(
        not filecmp.cmp(base.folder / one, patched.folder / one, shallow=False) for one in names
    )


def product_key(result: StageResult, side: str) -> str:
    """Return the name of a side's product, or nothing."""
    details = result.details.get(side)
    key = details.get("product") if isinstance(details, dict) else None
    return key if isinstance(key, str) else ""


def _result(job: Job, name: str, target: str) -> StageResult | None:
    for result in job.results.get("build", ()):
        if (result.details.get("check"), result.target) == (name, target):
            return result
    return None
