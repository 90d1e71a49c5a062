"""Stage `build`: what checks load is compiled, from the base and from the patched tree."""

from __future__ import annotations

from pydantic import JsonValue

from contribbot.hardware import build_cache, full_build
from contribbot.hardware.build_cache import find_launcher
from contribbot.hardware.toolchain import described, toolchain
from contribbot.model.checks import Build
from contribbot.model.evidence import Outcome, StageResult
from contribbot.verify.builds import Plan, Side, build_side, hipify_first, judge_build, product_key
from contribbot.verify.job import Finding, Job, Unit, obstacle


class BuildStage:
    """Builds each declared thing twice, side by side, in folders of their own."""

    name = "build"
    after = ("apply",)

    def units(self, job: Job) -> list[Unit]:
        """One unit for each build and target."""
        return [
            self._unit(job, build, target)
            for build in job.patch.spec.build
            for target in build.targets
        ]

    def settle(self, job: Job, results: list[StageResult]) -> None:
        """The results themselves are what `builds` reads."""

    def _unit(self, job: Job, build: Build, target: str) -> Unit:
        missing = missing_for(job, build, target)
        if missing:
            return Unit(target, None, lambda: Finding(Outcome.UNAVAILABLE, missing),
                        label=build.name, missing=missing)  # fmt: skip
        plans = [Plan.of(job, build, target, tree) for tree in (job.trees.base, job.trees.patched)]
        inputs: dict[str, JsonValue] = {
            "build": build.model_dump_json(),
            "keys": [plan.key for plan in plans],
        }
        return Unit(
            target,
            inputs,
            lambda: _work(job, build, plans),
            label=build.name,
            # The outcome is remembered with the queue, the products live in the cache.
            usable=_products_are_there,
        )


def _products_are_there(result: StageResult) -> bool:
    keys = [product_key(result, side) for side in ("base", "patched")]
    return all(build_cache.find(key) is not None for key in keys if key)


def missing_for(job: Job, build: Build, target: str) -> str:
    """Say what this machine lacks for a build, or nothing."""
    if target not in job.machine.targets:
        return f"no {target} on this machine"
    if build.way == "full":
        recipe, name = job.patch.upstream.build, job.patch.upstream.name
        missing = full_build.missing_for(recipe, target, name)
        # A release's archive may hold a part of the repository only.
        lacks = (
            full_build.lacks(job.store, job.trees.base, recipe) if recipe and not missing else ""
        )
        return missing or (
            f"the pinned tree has no {lacks}, which the recipe of {name} needs" if lacks else ""
        )
    tools = toolchain(target, job.machine)
    return tools.missing or (obstacle(job) if hipify_first(job, tools) else "")


def _work(job: Job, build: Build, plans: list[Plan]) -> Finding:
    launcher = find_launcher()
    futures = [job.children.submit(build_side, job, plan, launcher) for plan in plans]
    base, patched = (future.result() for future in futures)
    outcome, reason = judge_build(build, base, patched)
    recipe = job.patch.upstream.build
    details: dict[str, JsonValue] = {
        "way": build.way,
        "expect": build.expect,
        "stated_reason": build.reason,
        "compilers": [*(described(tools) if (tools := plans[0].tools) else ())],
        "compiler_cache": launcher.name if launcher and plans[0].cached else "",
        **({"takes": recipe.takes} if recipe and build.way == "full" else {}),
        "base": base.summary(build.name),
        "patched": patched.summary(build.name),
    }
    return Finding(
        outcome,
        f"{reason}{_again(base, patched)}",
        details,
        lasting=not (base.transient or patched.transient),
        seconds=base.spent + patched.spent,
    )


def _again(base: Side, patched: Side) -> str:
    """Say which side was there from an earlier build."""
    reused = [name for name, side in (("base", base), ("patched tree", patched)) if side.reused]
    return f" (built before: {' and '.join(reused)})" if reused else ""
