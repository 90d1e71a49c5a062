"""Stage `hipify`: the upstream's own CUDA to HIP step, on the base and on the patched tree."""

from __future__ import annotations

import importlib.metadata
import re
from concurrent.futures import Future
from dataclasses import dataclass
from functools import partial
from typing import Final

from pydantic import JsonValue

from contribbot.model.checks import Hipify
from contribbot.model.evidence import Outcome, StageResult
from contribbot.model.pin import HipifyRecipe
from contribbot.verify.includes import Left, Macros, left_over
from contribbot.verify.job import (
    Finding,
    Hipified,
    Job,
    Unit,
    hipified,
    is_source,
    obstacle,
    sources_of,
)

_PLAIN: Final = Hipify(expect="pass-to-pass")


@dataclass(frozen=True)
class Side:
    """One tree, hipified and looked at."""

    made: Hipified  # what the step made
    left: tuple[Left, ...]  # CUDA-only includes that the outputs and what they reach still have

    @property
    def problems(self) -> list[str]:
        """What is wrong, a line each."""
        if self.made.trouble:
            return [self.made.trouble]
        return [
            *(f"{source} has no output {path}" for source, path in self.made.missing.items()),
            *(f"{one.file}:{one.line} includes {one.header}" for one in self.left),
        ]

    def summary(self) -> dict[str, JsonValue]:
        """Return what the record keeps."""
        made = self.made
        return {
            # As the runs of checks are told: the whole step is one test.
            "failed": [
                {"test": "hipify", "when": "call", "message": problem} for problem in self.problems
            ],
            "passed": [] if self.problems else ["hipify"],
            "outputs": {
                source: path.relative_to(made.folder).as_posix()
                for source, path in made.outputs.items()
            },
            "missing": {**made.missing},
            "cuda_only": [
                {"file": one.file, "line": one.line, "header": one.header} for one in self.left
            ],
            "command": made.command,
            "log": made.log,
            "tail": made.tail if made.trouble else "",
            **({"transient": True} if made.transient else {}),
        }


class HipifyStage:
    """Every source has its output where the build looks for it, free of CUDA-only includes."""

    name = "hipify"
    after = ("apply",)

    def units(self, job: Job) -> list[Unit]:
        """One unit over all sources; none where the patch has nothing to hipify."""
        spec, recipe = job.patch.spec.hipify, job.patch.upstream.hipify
        if recipe is None:
            if spec is None:
                return []
            name = job.patch.upstream.name
            return [_refusal(f"[hipify]: upstreams/{name}.toml has no [hipify] recipe to run")]
        patched = sources_of(job, job.trees.patched)
        if wrong := _undeclarable(spec or _PLAIN, recipe, patched):
            return [_refusal(wrong)]
        if not patched:
            return []
        inputs: dict[str, JsonValue] = {
            "base": job.trees.base,
            "patched": job.trees.patched,
            "sources": list(patched),
            "hipify": (spec or _PLAIN).model_dump_json(),
            "recipe": recipe.model_dump_json(),
            "modules": _versions(recipe),
        }
        work = partial(_look, job, recipe, spec or _PLAIN)
        return [Unit("any", inputs, work, missing=obstacle(job))]

    def settle(self, job: Job, results: list[StageResult]) -> None:
        """What later stages need they ask `hipified` for."""


def _refusal(why: str) -> Unit:
    return Unit("any", None, partial(Finding, Outcome.FAILED, why, lasting=False))


def _undeclarable(spec: Hipify, recipe: HipifyRecipe, there: tuple[str, ...]) -> str:
    """Say which declared source cannot be hipified, and why; or nothing."""
    for source in spec.sources:
        if not is_source(recipe, source):
            suffixes = " or ".join(recipe.suffixes)
            return f"[hipify] sources: {source} is no {suffixes} file under {recipe.project}/"
        if source not in there:
            return f"[hipify] sources: {source} is not in the patched tree"
    return ""


def _versions(recipe: HipifyRecipe) -> dict[str, JsonValue]:
    """Return the version of the distribution that the script builds on."""
    package = recipe.module.partition(".")[0]
    try:
        return {package: importlib.metadata.version(package)}
    except importlib.metadata.PackageNotFoundError:
        return {}


def _look(job: Job, recipe: HipifyRecipe, spec: Hipify) -> Finding:
    trees = job.trees
    on_base, on_patched = _start(job, recipe, trees.base), _start(job, recipe, trees.patched)
    base, patched = on_base.result(), on_patched.result()
    for side in (base, patched):
        if side.made.broken:
            return Finding(Outcome.UNAVAILABLE, side.made.trouble, lasting=False)
    outcome, reason = judge_sides(spec, base, patched)
    details: dict[str, JsonValue] = {
        "expect": spec.expect,
        "stated_reason": spec.reason,
        "modules": _versions(recipe),
        "base": base.summary(),
        "patched": patched.summary(),
    }
    return Finding(
        outcome,
        reason,
        details,
        lasting=not (base.made.transient or patched.made.transient),
        seconds=base.made.seconds + patched.made.seconds,
    )


def _start(job: Job, recipe: HipifyRecipe, tree: str) -> Future[Side]:
    return job.children.submit(look_at, job, recipe, tree)


def look_at(job: Job, recipe: HipifyRecipe, tree: str) -> Side:
    """Hipify a tree and look at what came of it; runs in `children`."""
    macros = Macros(frozenset(recipe.defined), frozenset(recipe.undefined), recipe.cuda_only)
    with job.busy():
        made = hipified(job, tree, sources_of(job, tree))
    build = made.folder.resolve()
    left: dict[Left, None] = {}
    for output in made.outputs.values():
        left.update(
            dict.fromkeys(
                left_over(output, build=build, root=build / recipe.project, macros=macros)
            )
        )
    return Side(made, tuple(left))


def judge_sides(spec: Hipify, base: Side, patched: Side) -> tuple[Outcome, str]:
    """Return the outcome and one line that says why."""
    if patched.problems:
        return Outcome.FAILED, f"on the patched tree: {_first(patched.problems)}"
    count = len(patched.made.outputs)
    good = f"{_many(count, 'output')} where the build looks, no CUDA-only include left"
    if spec.expect == "pass-to-pass":
        return Outcome.PASSED, f"{good}{_mended(base)}"
    if not base.problems:
        return Outcome.FAILED, f"passes on the base, so it shows nothing: {good}"
    if base.made.transient:
        return Outcome.FAILED, f"on the base: {base.made.trouble}"
    for problem in base.problems:
        if not re.search(spec.reason, problem):
            return Outcome.FAILED, f"fails on the base for another reason than stated: {problem}"
    return Outcome.PASSED, f"fails on the base as stated; {good} on the patched tree"


def _mended(base: Side) -> str:
    """Say what was wrong on the base and is no more, or nothing."""
    if base.made.trouble:
        return f"; on the base: {base.made.trouble}"
    told = []
    if lacking := len(base.made.missing):
        told.append(f"lacks {lacking} of {_many(lacking + len(base.made.outputs), 'output')}")
    if base.left:
        told.append(f"leaves {_many(len(base.left), 'CUDA-only include')}")
    return f"; the base {' and '.join(told)}" if told else ""


def _first(problems: list[str]) -> str:
    more = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
    return problems[0] + more


def _many(count: int, what: str) -> str:
    return f"{count} {what}{'s' if count != 1 else ''}"
