"""Hipify, compile and build entries, asked of a tree without the patch."""

from __future__ import annotations

from dataclasses import replace

from contribbot.building.caches import find_launcher
from contribbot.compiling.hip import toolchain
from contribbot.compiling.judge import unmet
from contribbot.model.behaviour import Says
from contribbot.model.outcome import Outcome, StageResult
from contribbot.model.proofs import Build, Compile, Hipify
from contribbot.verify.buildplan import Plan
from contribbot.verify.buildside import build_side
from contribbot.verify.hipified import obstacle, sources_of
from contribbot.verify.job import Job
from contribbot.verify.memo import Memo
from contribbot.verify.stages.build import missing_for as unbuildable
from contribbot.verify.stages.compile import compile_side, missing_for
from contribbot.verify.stages.hipify import Side, look_at
from contribbot.verify.unpatched.bare import Bare, Seen, is_red, lost, stated


def ask_hipify(bare: Bare) -> Seen:
    """Ask what the upstream's own hipify step makes of the tree."""
    job = bare.job
    spec, recipe = job.patch.spec.hipify, job.patch.upstream.hipify
    if spec is None or recipe is None:
        return Seen(Says.CANNOT, f"upstreams/{job.patch.upstream.name}.toml has no [hipify] recipe")
    if not sources_of(job, bare.tree):
        return lost(bare, spec.sources) or Seen(Says.OTHER, "there is nothing to hipify")
    if missing := obstacle(job):
        return Seen(Says.CANNOT, missing)
    side = job.children.submit(look_at, job, recipe, bare.tree).result()
    if side.made.broken or side.made.transient:
        # Whoever asks again shall not be told what was seen this time.
        job.hipified = Memo()
        says = Says.CANNOT if side.made.broken else Says.OTHER
        return Seen(says, side.made.trouble, transient=True, log=side.made.log)
    return replace(_hipified(bare, spec, side), log=side.made.log)


def _hipified(bare: Bare, spec: Hipify, side: Side) -> Seen:
    seen = [stated(spec, problem) for problem in side.problems]
    if seen:
        return next((one for one in seen if one.says is not Says.FAILS), seen[0])
    count = len(side.made.outputs)
    plural = "s" if count > 1 else ""
    good = f"{count} output{plural} where the build looks, no CUDA-only include left"
    # A source that is gone can show the fault no more.
    gone = [path for path in spec.sources if path in bare.gone]
    return Seen(Says.PASSES, good + (f"; not there: {', '.join(gone)}" if gone else ""))


def ask_compile(number: int, target: str, bare: Bare) -> Seen:
    """Ask whether a kernel compiles as the entry expects."""
    job = bare.job
    entry: Compile = job.patch.spec.compile[number]
    if absent := lost(bare, (entry.source,)):
        return absent
    using = toolchain(target)
    if missing := missing_for(job, entry, using):
        return Seen(Says.CANNOT, missing)
    done = job.children.submit(compile_side, job, entry, target, using, bare.tree).result()
    if done.crashed or done.missing:
        says = Says.OTHER if done.crashed else Says.CANNOT
        return Seen(says, done.crashed or done.missing, transient=True)
    if problem := done.error or unmet(entry, target, done.listing):
        return stated(entry, problem)
    held = ", ".join(entry.instructions.get(target, ()))
    return Seen(Says.PASSES, "it compiles" + (f", with {held} in the kernels" if held else ""))


def ask_build(number: int, target: str, bare: Bare) -> Seen:
    """Ask whether something builds."""
    build = bare.job.patch.spec.build[number]
    return lost(bare, build.sources) or built(bare, build, target)


def built(bare: Bare, build: Build, target: str) -> Seen:
    """Build something from the tree, once, and leave it where checks look for it."""
    return bare.built.get(f"{build.name} {target}", lambda: _make(bare.job, build, target, bare))


def _make(job: Job, build: Build, target: str, bare: Bare) -> Seen:
    if target not in job.machine.targets:
        return Seen(Says.CANNOT, f"no {target} on this machine")
    if missing := unbuildable(job, build, target):
        return Seen(Says.CANNOT, missing, transient=True)
    plan = Plan.of(job, build, target, bare.tree)
    side = job.children.submit(build_side, job, plan, find_launcher()).result()
    if side.lacking:
        return Seen(Says.CANNOT, side.lacking, transient=True, log=side.log)
    if side.crash or side.absent:
        return Seen(Says.OTHER, side.crash or side.wrong, transient=bool(side.crash), log=side.log)
    if side.error:
        return replace(stated(build, side.error), log=side.log) if is_red(build) else Seen(
            Says.OTHER, side.error, log=side.log
        )  # fmt: skip
    summary = side.summary(build.name)
    result = StageResult(
        stage="build", target=target, outcome=Outcome.PASSED, reason="", seconds=0,
        details={"check": build.name, "base": summary, "patched": summary},
    )  # fmt: skip
    job.results.setdefault("build", []).append(result)
    return Seen(Says.PASSES, "it builds", log=side.log)
