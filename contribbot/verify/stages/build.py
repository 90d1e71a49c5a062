"""Stage `build`: compile the libraries that checks load, from the base and the patched tree."""

from __future__ import annotations

import filecmp
import re
import shutil
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Final

from pydantic import JsonValue

from contribbot import process
from contribbot.compile import build as builds
from contribbot.compile import cache as build_cache
from contribbot.compile.build import (
    BuildTools,
    Ran,
    build_tools,
    private_folders,
    run_commands,
    target_environment,
    tool_versions,
)
from contribbot.compile.toolchain import Lack
from contribbot.errors import MachineError, NoSpaceError, check_stopping
from contribbot.git.patch_format import export
from contribbot.machine.doctor import missing_hipify, missing_tools
from contribbot.model.checks import Build
from contribbot.model.evidence import BuildStageResult, Outcome, StageResult
from contribbot.model.lifecycle import Says
from contribbot.model.patch import PLACEHOLDERS, BuildRecipe, Patch
from contribbot.model.record import BuildDetails, BuildRecord, step_failures
from contribbot.verify.job import Job
from contribbot.verify.pytest_run import TAIL, Scrub
from contribbot.verify.stages import (
    Finding,
    Inputs,
    Probe,
    Stage,
    TreeAnswer,
    Unit,
    answer,
    hipify,
    is_red,
)

#: The folder, in a product's folder, with the copy of the tree.
_COPY: Final = "tree"
_PLACEHOLDER: Final = re.compile(rf"\{{({'|'.join(PLACEHOLDERS)})\}}")
#: The time limit of an extension's build in seconds, if the patch states no limit.
_PATIENCE: Final = 1800.0
_BECAME: Final = {
    Outcome.FAILED: "failed",
    Outcome.UNAVAILABLE: "is unavailable",
    Outcome.SKIPPED: "was skipped",
}


class BuildStage(Stage):
    """Builds each `[[build]]` from both trees in parallel, in separate folders."""

    result = BuildStageResult

    def units(self, job: Job) -> list[Unit]:
        """Return one unit for each build and target."""
        return [
            _unit(job, build, target) for build in job.patch.spec.build for target in build.targets
        ]

    def probes(self, patch: Patch) -> Iterable[Probe]:
        """Return one probe for each fail-to-pass build and target."""
        return [
            Probe(
                f"build {build.name} {target}",
                target,
                partial(ask_build, build, target),
                paths=build.sources,
            )
            for build in filter(is_red, patch.spec.build)
            for target in build.targets
        ]


def ask_build(build: Build, target: str, job: Job, tree: str) -> TreeAnswer:
    """Build a product from one tree for the checks of this job; return the tree's answer."""
    if missing := missing_for(job, build, target):
        return TreeAnswer(Says.CANNOT, str(missing), lasting=target not in job.machine.targets)
    plan = plan_build(job, build, target, tree)
    (side,) = job.parallel(partial(build_side, job), plan)
    if side.absent or (side.error and not is_red(build)):
        return TreeAnswer(Says.OTHER, side.wrong, log=side.log)
    if side.product is not None:
        record = side.record(build.name)
        result = BuildStageResult(
            target=target,
            label=build.name,
            outcome=Outcome.PASSED,
            reason="",
            seconds=0,
            details=_details(plan, record, record),
        )
        job.results.setdefault("build", []).append(result)
    problems = [side.error] if side.error else []
    return answer(
        build, problems, good="it builds", lacking=side.lacking, crash=side.crash, log=side.log
    )


Product = build_cache.CachedBuild


@dataclass(frozen=True)
class BuildPlan:
    """One build from one tree; `how`: an extension's compilers, or the upstream's recipe."""

    build: Build
    target: str
    tree: str
    how: BuildTools | BuildRecipe
    key: str  # the digest of the product's inputs
    absent: str  # a path that the build names and the tree lacks; empty: the tree has all paths
    #: Makes the product: the first folder is for the work, the second folder for the product.
    make: Callable[[Job, BuildPlan, Path, Path], tuple[Ran, Product]]


def plan_build(job: Job, build: Build, target: str, tree: str) -> BuildPlan:
    """Return the plan of a build that this machine can do."""
    recipe, store = job.patch.upstream.build, job.store
    if build.way == "full" and recipe is not None:
        inputs: JsonValue = {
            "way": "full",
            "tree": tree,
            "recipe": recipe.model_dump(mode="json", exclude={"takes", "timeout"}),
            "target": target,
            "version": _version(job),
            # The machine stands for unknown inputs: headers and libraries that the build finds.
            "machine": job.machine.fingerprint,
            "programs": [shutil.which(need) for need in recipe.requires],
        }
        key, absent = build_cache.json_digest(inputs), builds.absent_path(store, tree, recipe)
        return BuildPlan(build, target, tree, recipe, key, absent, partial(_run_recipe, recipe))
    tools = build_tools(target, job.machine)
    inputs = builds.extension_inputs(store, tree, build, support=job.patch.support, tools=tools)
    if _hipified_first(job, tools):
        inputs = {"hipified": inputs, "tree": tree}  # the step may read any file of the tree
    key, absent = build_cache.json_digest(inputs), builds.absent_path(store, tree, build)
    return BuildPlan(build, target, tree, tools, key, absent, partial(_compile, tools))


def _version(job: Job) -> str:
    return job.patch.pin.tag.removeprefix("v")


def _hipified_first(job: Job, tools: BuildTools) -> bool:
    """Return whether the upstream's step hipifies sources; else torch's cpp_extension hipifies."""
    return tools.kind == "hip" and job.patch.upstream.hipify is not None


def missing_for(job: Job, build: Build, target: str) -> Lack | None:
    """Return what this machine lacks for a build; None: the machine lacks nothing."""
    upstream = job.patch.upstream
    if target not in job.machine.targets:
        return Lack(what=f"no {target} on this machine")
    if missing := missing_tools(job.machine, upstream, build, target):
        return missing
    if build.way == "full":
        recipe = upstream.build
        # The archive of a release may lack a part of the repository.
        path = builds.absent_path(job.store, job.trees.base, recipe) if recipe else ""
        what = f"the pinned tree has no {path}, which the recipe of {upstream.name} needs"
        return Lack(what=what) if path else None
    tools = build_tools(target, job.machine)
    return missing_hipify(upstream) if _hipified_first(job, tools) else None


def _unit(job: Job, build: Build, target: str) -> Unit:
    if missing := missing_for(job, build, target):
        unavailable = partial(Finding, Outcome.UNAVAILABLE, str(missing))
        return Unit(target, None, unavailable, build.name, str(missing))
    plans = [plan_build(job, build, target, tree) for tree in job.trees.sides]

    def usable(result: StageResult) -> bool:
        # The queue's folder keeps the outcome, and the cache keeps the products.
        return all(
            build_cache.find_product(key) is not None for key in _product_keys(result) if key
        )

    inputs: Inputs = {"build": build.model_dump_json(), "keys": [plan.key for plan in plans]}
    return Unit(target, inputs, partial(_build_both, job, plans), build.name, usable=usable)


def _build_both(job: Job, plans: list[BuildPlan]) -> Finding:
    build = plans[0].build
    base, patched = job.parallel(partial(build_side, job), *plans)
    outcome, reason = judge_build(build, base, patched)
    sides = base.record(build.name), patched.record(build.name)
    details = _details(plans[0], *sides)
    lasting = not any(side.lacking or side.crash for side in (base, patched))
    seconds = sum(side.seconds for side in (base, patched) if not side.reused)
    return Finding(outcome, reason, details, lasting=lasting, seconds=seconds)


def _details(plan: BuildPlan, base: BuildRecord, patched: BuildRecord) -> BuildDetails:
    build, how = plan.build, plan.how
    return BuildDetails(
        way=build.way,
        expect=build.expect,
        stated_reason=build.reason,
        compilers=() if isinstance(how, BuildRecipe) else tuple(tool_versions(how)),
        takes=how.takes if isinstance(how, BuildRecipe) else "",
        base=base,
        patched=patched,
    )


@dataclass(frozen=True)
class BuildSide(Ran):
    """The result of a build from one tree; `output`: the end of the output."""

    product: build_cache.Product | None = None  # the product; None: the build failed
    absent: str = ""  # a path that the build names and the tree lacks
    reused: bool = False  # whether an earlier build made the product
    log: str = ""  # SHA-256 of the whole output

    @property
    def wrong(self) -> str:
        """The tree's fault in one line; empty: no fault."""
        return self.error or (f"it has no {self.absent}" if self.absent else "")

    def record(self, name: str) -> BuildRecord:
        """Return the record of the build from this tree."""
        product = self.product
        return BuildRecord(
            passed=(name,) if product else (),
            failed=step_failures(name, "build", [self.wrong] if self.wrong else []),
            trouble=self.lacking or self.crash,
            seconds=round(self.seconds, 3),
            reused=self.reused,
            product=product.key if product else "",
            sha256=product.marker.sha256 if product else "",
            log_sha256=self.log,
            log_tail=self.output,
        )


def build_side(job: Job, plan: BuildPlan) -> BuildSide:
    """Build from one tree unless the cache has the product; called in a thread of `children`."""
    if plan.absent:
        return BuildSide(absent=plan.absent)
    sides: list[BuildSide] = []

    def build(into: Path) -> Product | None:
        # The slot is taken only here: a wait for another process's build must not block a bench.
        with job.slots.busy():
            ran, made = plan.make(job, plan, job.fresh_folder(), into)
        log = job.keep_log(ran.output)
        sides.append(BuildSide(**{**vars(ran), "output": ran.output[-TAIL:]}, log=log))
        return replace(made, seconds=ran.seconds, log=log) if ran.well else None

    try:
        product = build_cache.find_product(plan.key) or build_cache.make_product(plan.key, build)
    except NoSpaceError:
        raise
    except MachineError as error:
        check_stopping()
        # Another contribbot holds the lock of the build for too long, or git could not export.
        return BuildSide(lacking="; ".join(filter(None, (error.message, error.hint))))
    if sides:
        return replace(sides[0], product=product)
    if product is None:
        return BuildSide(crash="it was built and is gone")
    marker = product.marker
    return BuildSide(product=product, reused=True, seconds=marker.seconds, log=marker.log)


def _run_recipe(
    recipe: BuildRecipe, job: Job, plan: BuildPlan, folder: Path, into: Path
) -> tuple[Ran, Product]:
    """Run the upstream's recipe in a copy of the tree; return the outcome and the product."""
    copy = into / _COPY
    export(job.store, plan.tree, copy, index=folder / "index")
    known = {"jobs": str(job.threads), "target": plan.target, "version": _version(job)}
    known |= {"tree": str(copy), "python": sys.executable}

    def fill(text: str) -> str:
        return _PLACEHOLDER.sub(lambda place: known[place[1]], text)

    environment = {
        **target_environment(plan.target, job.machine),
        "MAX_JOBS": known["jobs"],
        "PYTHONUNBUFFERED": "1",
        # A build must not read a version from a git repository around the cache.
        "GIT_CEILING_DIRECTORIES": str(into),
        **private_folders(folder),
        **{name: fill(value) for name, value in recipe.env.items()},
    }
    ran = run_commands(
        [[*map(fill, argv)] for argv in recipe.commands],
        cwd=copy / recipe.folder,
        env=process.clean_environment(environment),
        timeout=plan.build.timeout or recipe.timeout,
        scrub=Scrub(copy, folder),
    )
    for path in recipe.discard:
        process.remove_tree(copy / path)
    promised = (*recipe.python, *((recipe.extension,) if recipe.extension else ()))
    lost = [path for path in promised if not (copy / path).exists()]
    if ran.well and lost:
        ran = replace(ran, error=f"the recipe ended well and made no {lost[0]}")
    python = tuple(_COPY if root == "." else f"{_COPY}/{root}" for root in recipe.python)
    library = f"{_COPY}/{recipe.extension}" if recipe.extension else ""
    return ran, Product(0, "", extension=library, python=python)


def _compile(
    tools: BuildTools, job: Job, plan: BuildPlan, folder: Path, into: Path
) -> tuple[Ran, Product]:
    """Compile the sources of an extension, after the upstream's hipify step, if any."""
    build, made = plan.build, None
    names: Sequence[str] = build.sources
    library = Product(0, "", extension="extension.so")
    if _hipified_first(job, tools):
        recipe = job.patch.upstream.hipify
        kernels = [name for name in names if hipify.is_source(recipe, name)]
        made = hipify.hipified(job, plan.tree, kernels)
        lost = f"hipify: no {next(iter(made.missing.values()))} was made" if made.missing else ""
        if trouble := made.trouble or lost:
            lacking, error = (trouble, "") if made.broken or made.transient else ("", trouble)
            return Ran(made.tail, made.seconds, error=error, lacking=lacking), library
    sources = folder / "sources"
    for number, (top, root) in enumerate(builds.tree_roots(job.store, plan.tree, build).items()):
        export(job.store, root, sources / top, index=folder / f"{number}.index")
    if made is not None:
        names = builds.overlay_hipified(names, sources, made.folder, made.files)
    ran = builds.compile_extension(
        build,
        names,
        support=job.patch.support,
        tools=tools,
        jobs=job.threads,
        folder=folder,
        into=into,
        timeout=build.timeout or _PATIENCE,
        scrub=Scrub(sources, folder),
    )
    return ran, library


def judge_build(build: Build, base: BuildSide, patched: BuildSide) -> tuple[Outcome, str]:
    """Return the outcome of a build from both trees, and the reason in one line."""
    sides = (("base", base), ("patched tree", patched))
    for name, side in sides:
        if side.lacking:
            # A lack of this machine is no result for the patch.
            return Outcome.UNAVAILABLE, f"on the {name}: {side.lacking}"
    for name, side in sides:
        if side.crash:
            return Outcome.FAILED, f"on the {name}: {side.crash}"
    if patched.wrong:
        also = ", nor does the base" if base.wrong else ""
        return Outcome.FAILED, f"the patched tree does not build{also}: {patched.wrong}"
    good, wrong = "the base and the patched tree build", ""
    if build.expect == "pass-to-pass":
        wrong = f"the base does not build: {base.wrong}" if base.wrong else ""
    elif base.absent:
        wrong = f"the base is broken there, not wrong: {base.wrong}"
    elif not base.error:
        wrong = "the base builds, so it shows nothing"
    elif not re.search(build.reason, base.error):
        wrong = f"the base does not build for another reason than stated: {base.error}"
    else:
        good = f"the base does not build, as stated, the patched tree does: {base.error}"
    return (Outcome.FAILED, wrong) if wrong else (Outcome.PASSED, good)


# The functions below serve checks that load a product.


def obstacle(job: Job, name: str, target: str) -> str:
    """Return why a build has no products for a target; empty: the build has products."""
    result = _result(job, name, target)
    if result is None:
        return f"its build {name} is not made for {target}"
    if result.outcome is not Outcome.PASSED:
        return f"its build {name} {_BECAME[result.outcome]}: {result.sentence}"
    return ""


def identity(job: Job, name: str, target: str) -> list[str]:
    """Return the keys of a build's two products, on which a check that loads the build depends."""
    result = _result(job, name, target)
    return _product_keys(result) if result else []


def product(job: Job, name: str, target: str, tree: str) -> Mapping[str, str]:
    """Return the variables that tell a check where a build's product is."""
    base, patched = identity(job, name, target) or ("", "")
    side, key = ("base", base) if tree == job.trees.base else ("patched", patched)
    built = build_cache.find_product(key) if key else None
    if built is None:
        gone = f"{job.patch.name}: the build {name} of the {side} is gone from the cache"
        raise MachineError(gone, hint="verify again")
    return built.environment


def differ(job: Job, name: str, target: str) -> bool:
    """Return whether the patched tree's product differs from the base's product."""
    base, patched = map(build_cache.find_product, identity(job, name, target) or ("", ""))
    if base is None or patched is None:
        return False
    files = set(base.marker.files)
    return files != set(patched.marker.files) or any(
        not filecmp.cmp(base.folder / file, patched.folder / file, shallow=False) for file in files
    )


def _result(job: Job, name: str, target: str) -> StageResult | None:
    results = job.results.get("build", ())
    return next((row for row in results if (row.label, row.target) == (name, target)), None)


def _product_keys(result: StageResult) -> list[str]:
    """Return the keys of the base's and the patched tree's product; an empty key: no product."""
    details = result.details
    sides = [details.base, details.patched] if isinstance(details, BuildDetails) else []
    return [side.product for side in sides] or ["", ""]
