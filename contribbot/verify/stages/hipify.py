"""Stage `hipify`: run the upstream's CUDA to HIP step on the base and on the patched tree."""

from __future__ import annotations

import contextlib
import importlib.metadata
import importlib.util
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Final

from contribbot import process
from contribbot.compile.build import private_folders
from contribbot.errors import first_of
from contribbot.machine.doctor import missing_hipify
from contribbot.model.checks import Hipify
from contribbot.model.evidence import HipifyStageResult, Outcome
from contribbot.model.lifecycle import Says
from contribbot.model.patch import HipifyRecipe, Patch
from contribbot.model.record import HipifyDetails
from contribbot.verify.job import Hipified, Job
from contribbot.verify.pytest_run import TAIL, Scrub
from contribbot.verify.stages import (
    Finding,
    Inputs,
    Probe,
    Stage,
    TreeAnswer,
    Unit,
    absent,
    answer,
    is_red,
)

#: The time limit for an import in seconds, on a busy machine.
_IMPORT: Final = 120.0


class HipifyStage(Stage):
    """Checks that every source has its hipified output where the build looks for the output."""

    result = HipifyStageResult

    def units(self, job: Job) -> list[Unit]:
        """Return one unit for all sources; no unit if the patch has no source to hipify."""
        stated, recipe = job.patch.spec.hipify, job.patch.upstream.hipify
        if recipe is None:
            no_recipe = f"upstreams/{job.patch.upstream.name}.toml has no [hipify] recipe to run"
            return [_refusal(f"[hipify]: {no_recipe}")] if stated else []
        spec = stated or Hipify(expect="pass-to-pass")
        sources = sources_of(job, job.trees.patched)
        if wrong := _undeclarable(spec, recipe, sources):
            return [_refusal(wrong)]
        if not sources:
            return []
        # The input is the version of the package that the script imports.
        package = recipe.module.partition(".")[0]
        modules: dict[str, str] = {}
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            modules[package] = importlib.metadata.version(package)
        inputs: Inputs = {
            "base": job.trees.base,
            "patched": job.trees.patched,
            "sources": list(sources),
            "hipify": spec.model_dump_json(),
            "recipe": recipe.model_dump_json(),
            "modules": {**modules},
        }
        work = partial(_compare, job, spec, modules)
        return [Unit("any", inputs, work, missing=str(missing_hipify(job.patch.upstream) or ""))]

    def probes(self, patch: Patch) -> Iterable[Probe]:
        """Return one probe if `[hipify]` is fail-to-pass."""
        red = filter(is_red, filter(None, [patch.spec.hipify]))
        return [Probe("hipify", "any", partial(_ask, entry)) for entry in red]


def _refusal(why: str) -> Unit:
    return Unit("any", None, partial(Finding, Outcome.FAILED, why, lasting=False))


def _undeclarable(spec: Hipify, recipe: HipifyRecipe, sources: Sequence[str]) -> str:
    """Return why a declared source cannot be hipified; empty: all declared sources can."""
    for source in spec.sources:
        if not is_source(recipe, source):
            suffixes = " or ".join(recipe.suffixes)
            return f"[hipify] sources: {source} is no {suffixes} file under {recipe.project}/"
        if source not in sources:
            return f"[hipify] sources: {source} is not in the patched tree"
    return ""


def _compare(job: Job, spec: Hipify, modules: dict[str, str]) -> Finding:
    base, patched = job.parallel(partial(hipify_all, job), *job.trees.sides)
    for side in (base, patched):
        if side.broken:
            return Finding(Outcome.UNAVAILABLE, side.trouble, lasting=False)
    outcome, reason = _judge(spec, base, patched)
    same = patched.problems
    if same and spec.expect == "pass-to-pass" and {*same} <= {*base.problems}:
        outcome, reason = Outcome.UNAVAILABLE, f"on both trees, so not by the patch: {same[0]}"
    details = HipifyDetails(
        expect=spec.expect,
        stated_reason=spec.reason,
        modules=modules,
        base=base.record,
        patched=patched.record,
    )
    lasting = not (base.transient or patched.transient)
    return Finding(outcome, reason, details, lasting, seconds=base.seconds + patched.seconds)


def _ask(spec: Hipify, job: Job, tree: str) -> TreeAnswer:
    """Return the answer of the upstream's hipify step on one tree."""
    if job.patch.upstream.hipify is None:
        name = job.patch.upstream.name
        return TreeAnswer(Says.CANNOT, f"upstreams/{name}.toml has no [hipify] recipe")
    sources = sources_of(job, tree)
    # A source that the tree lacks cannot show the fault.
    gone = [path for path in spec.sources if path not in sources]
    if not sources:
        return absent(gone[0]) if gone else TreeAnswer(Says.OTHER, "there is nothing to hipify")
    if missing := missing_hipify(job.patch.upstream):
        return TreeAnswer(Says.CANNOT, str(missing))
    (made,) = job.parallel(partial(hipify_all, job), tree)
    trouble = made.trouble if made.transient else ""
    good = _found(len(made.outputs)) + (f"; not there: {', '.join(gone)}" if gone else "")
    lacking, crash = (trouble, "") if made.broken else ("", trouble)
    return answer(spec, made.problems, good=good, lacking=lacking, crash=crash, log=made.log)


def hipify_all(job: Job, tree: str) -> Hipified:
    """Hipify all sources that a verification needs of a tree; called in a thread of `children`."""
    with job.slots.busy():
        return hipified(job, tree, sources_of(job, tree))


def _judge(spec: Hipify, base: Hipified, patched: Hipified) -> tuple[Outcome, str]:
    """Return the outcome of the step on both trees, and the reason in one line."""
    if problems := patched.problems:
        return Outcome.FAILED, f"on the patched tree: {first_of(problems)}"
    good = _found(len(patched.outputs))
    if spec.expect == "pass-to-pass":
        lacks, total = len(base.missing), _outputs(len(base.missing) + len(base.outputs))
        mended = f"; the base lacks {lacks} of {total}" if lacks else ""
        mended = f"; on the base: {base.trouble}" if base.trouble else mended
        return Outcome.PASSED, f"{good}{mended}"
    if not base.problems:
        return Outcome.FAILED, f"passes on the base, so it shows nothing: {good}"
    if base.transient:
        return Outcome.FAILED, f"on the base: {base.trouble}"
    for problem in base.problems:
        if not re.search(spec.reason, problem):
            return Outcome.FAILED, f"fails on the base for another reason than stated: {problem}"
    return Outcome.PASSED, f"fails on the base as stated; {good} on the patched tree"


def _found(count: int) -> str:
    return f"{_outputs(count)} where the build looks"


def _outputs(count: int) -> str:
    return f"{count} output{'s' if count != 1 else ''}"


# The functions below are the step itself, which the stages `compile` and `build` use, too.


def is_source(recipe: HipifyRecipe | None, path: str) -> bool:
    """Return whether a path of a tree is a source for the hipify step."""
    if recipe is None:
        return False
    return path.startswith(f"{recipe.project}/") and path.endswith(recipe.suffixes)


def built_for_rocm(recipe: HipifyRecipe, path: str) -> bool:
    """Return whether a path is a source that the upstream builds for ROCm, too."""
    cuda_only = any(re.search(pattern, path) for pattern in recipe.cuda_sources)
    return is_source(recipe, path) and not cuda_only


def sources_of(job: Job, tree: str) -> tuple[str, ...]:
    """Return a tree's sources that are changed and built for ROCm, declared, or compiled."""
    recipe, spec = job.patch.upstream.hipify, job.patch.spec
    if recipe is None:
        return ()
    touched = {change.path for change in job.changes() if built_for_rocm(recipe, change.path)}
    compiled = {entry.source for entry in spec.compile if entry.kind == "hip"}
    sources = touched | {source for source in compiled if is_source(recipe, source)}
    sources |= set(spec.hipify.sources if spec.hipify else ())
    listed = job.store.git("ls-tree", "-r", "-z", "--name-only", tree, recipe.project).stdout
    return tuple(sorted(sources & set(listed.decode("utf-8", "surrogateescape").split("\0"))))


def hipified(job: Job, tree: str, sources: Sequence[str]) -> Hipified:
    """Hipify sources of a tree with the tree's script; equal calls share one result."""
    # The script runs in the calling thread: call this in `job.children`, under `job.slots.busy()`.
    ordered = tuple(sorted(set(sources)))
    return job.hipified.get("\0".join((tree, *ordered)), lambda: _run(job, tree, ordered))


def _run(job: Job, tree: str, sources: tuple[str, ...]) -> Hipified:
    recipe, exported = job.patch.upstream.hipify, job.exported(tree)
    assert recipe is not None  # noqa: S101  without a recipe, no path is a source
    # The path has no symlinks, because scripts may compare paths as text.
    work = job.fresh_folder().resolve()
    build = work / "build"
    build.mkdir()
    expected = dict(zip(sources, sources, strict=True))
    for pattern, text in recipe.renames:
        plain = text.replace("\\", r"\\")
        expected = {source: re.sub(pattern, plain, path) for source, path in expected.items()}
    if not (exported / recipe.script).is_file():
        return Hipified(f"{recipe.script} is not in the tree", {}, expected, build)
    filled = {"{project}": str(exported / recipe.project), "{output}": str(build / recipe.project)}
    arguments = [filled.get(argument, argument) for argument in recipe.arguments]
    argv = ["-B", str(exported / recipe.script), *arguments, *sources]
    variables = {"PYTHONDONTWRITEBYTECODE": "1", "PYTHONUNBUFFERED": "1"}
    variables |= {"OMP_NUM_THREADS": str(job.threads), **private_folders(work)}
    env = process.clean_environment(variables)
    # The tree's build file may say that the script runs inside the tree.
    file = exported / recipe.build_file
    in_tree = file.is_file() and re.search(recipe.in_tree, file.read_text("utf-8", "replace"))
    done = process.supervise(
        [sys.executable, *argv],
        cwd=exported if in_tree else build,
        env=env,
        timeout=recipe.timeout,
    )
    scrub = Scrub(exported, work)
    output = scrub(done.output.decode("utf-8", "replace"))
    trouble = _trouble(recipe, done, output)
    broken = _broken_module(recipe, env, work) if trouble and not done.timed_out else ""
    meddled = job.altered(tree)
    if meddled and not trouble:
        trouble = f"{recipe.script} wrote into the tree: {meddled}"
    outputs = {source: path for source, path in expected.items() if (build / path).is_file()}
    missing = {source: path for source, path in expected.items() if source not in outputs}
    return Hipified(
        broken or trouble,
        outputs,
        missing,
        build,
        command=scrub(process.describe(["python", *argv])),
        log=job.keep_log(output),
        tail=output[-TAIL:],
        # If the script wrote into the tree, other units of this run use a changed tree.
        transient=bool(broken or meddled) or done.timed_out,
        broken=bool(broken),
        seconds=done.seconds,
    )


def _trouble(recipe: HipifyRecipe, done: process.Supervised, output: str) -> str:
    """Return why the script failed; empty: the script succeeded."""
    if done.timed_out:
        return f"{recipe.script}: not finished after {recipe.timeout:g} s"
    if done.flooded:
        return f"{recipe.script}: it never stopped writing, and was ended"
    if done.returncode == 0:
        return ""
    code = done.returncode
    how = f"killed by signal {-code}" if code < 0 else f"exit status {code}"
    lines = output.strip().splitlines() or ["it said nothing"]
    return f"{recipe.script}: {how}: {lines[-1]}"


def _broken_module(recipe: HipifyRecipe, env: Mapping[str, str], folder: Path) -> str:
    """Return why the module that the script imports fails to import here; empty: no failure."""
    argv = [sys.executable, "-B", "-c", f"import {recipe.module}"]
    asked = process.supervise(argv, cwd=folder, env=env, timeout=_IMPORT)
    if asked.returncode == 0 or asked.timed_out:
        return ""
    lines = asked.output.decode("utf-8", "replace").strip().splitlines() or ["no reason given"]
    package = recipe.module.partition(".")[0]
    return (
        f"{recipe.module} cannot be imported here ({lines[-1]}): "
        f"python -m pip install --force-reinstall {package}"
    )
