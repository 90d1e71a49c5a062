"""What the `build` stage made, for the checks that load it."""

from __future__ import annotations

import errno
import filecmp
import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from pydantic import JsonValue

from contribbot import process
from contribbot.errors import MachineError, NoSpaceError
from contribbot.files import write_atomically
from contribbot.hardware import build_cache, extension, full_build
from contribbot.hardware.build_cache import Launcher
from contribbot.hardware.full_build import Ran
from contribbot.hardware.toolchain import BuildTools, toolchain
from contribbot.model.checks import Build
from contribbot.model.evidence import Outcome, StageResult
from contribbot.verify.job import Hipified, Job, hipified, is_source
from contribbot.verify.pytest_run import Scrub


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
        if build_cache.find(key) is None:
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
    found = build_cache.find(product_key(result, side)) if result is not None else None
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
    base, patched = (build_cache.find(product_key(result, side)) for side in ("base", "patched"))
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


@dataclass(frozen=True)
class Plan:
    """What is to be built from one tree."""

    build: Build
    target: str
    tree: str
    key: str  # the digest of everything that the product depends on
    absent: str  # a path that the build names and the tree lacks, or empty
    tools: BuildTools | None  # way extension: what compiles it
    version: str  # the pin's release

    @classmethod
    def of(cls, job: Job, build: Build, target: str, tree: str) -> Plan:
        """Make the plan for a build that this machine can do."""
        recipe, version = job.patch.upstream.build, job.patch.pin.tag.removeprefix("v")
        if build.way == "full" and recipe is not None:
            inputs = full_build.inputs_of(
                tree, recipe, target, machine=job.machine, version=version
            )
            absent = full_build.lacks(job.store, tree, recipe)
            return cls(build, target, tree, build_cache.build_key(inputs), absent, None, version)
        tools = toolchain(target, job.machine)
        inputs = extension.inputs_of(job.store, tree, build, support=job.patch.support, tools=tools)
        if hipify_first(job, tools):
            # The step may read anything of the tree.
            inputs = {"hipified": inputs, "tree": tree}
        absent = extension.absent(job.store, tree, build)
        return cls(build, target, tree, build_cache.build_key(inputs), absent, tools, version)

    @property
    def cached(self) -> bool:
        """Whether a compiler cache may stand before the compilers.

        Neither ccache nor sccache can be put before hipcc: torch leaves them out there.
        """
        return self.tools is None or self.tools.kind != "hip"


def hipify_first(job: Job, tools: BuildTools) -> bool:
    """Say whether the upstream's own hipify step comes before the compilers.

    Where it has none, cpp_extension hipifies by itself.
    """
    return tools.kind == "hip" and job.patch.upstream.hipify is not None


#: What a record keeps of an output; the whole is in the log file.
_TAIL: Final = 2000
#: Seconds for one side of an extension where the patch does not say.
_PATIENCE: Final = 1800.0


@dataclass(frozen=True)
class Side:
    """What became of one tree."""

    product: build_cache.Product | None = None  # what was built, or None
    error: str = ""  # what is wrong with the tree, in one line
    absent: str = ""  # a path that the build names and the tree lacks
    lacking: str = ""  # what this machine could not do
    crash: str = ""  # how a compiler crashed
    reused: bool = False  # whether it was there from an earlier build
    seconds: float = 0.0  # how long it took when it was built
    log: str = ""  # SHA-256 of the whole output
    tail: str = ""

    @property
    def wrong(self) -> str:
        """What is wrong with the tree, in one line; or empty."""
        return self.error or (f"it has no {self.absent}" if self.absent else "")

    @property
    def transient(self) -> bool:
        """Whether it may be different the next time."""
        return bool(self.lacking or self.crash)

    @property
    def spent(self) -> float:
        """Seconds that it took now."""
        return 0.0 if self.reused else self.seconds

    def summary(self, name: str) -> dict[str, JsonValue]:
        """Return what the record keeps."""
        failed: list[JsonValue] = (
            [{"test": name, "when": "build", "message": self.wrong}] if self.wrong else []
        )
        return {
            "passed": [name] if self.product else [],
            "failed": failed,
            "trouble": self.lacking or self.crash,
            "seconds": round(self.seconds, 3),
            "reused": self.reused,
            "product": self.product.key if self.product else "",
            "sha256": self.product.marker.sha256 if self.product else "",
            "log_sha256": self.log,
            "log_tail": self.tail,
        }


def build_side(job: Job, plan: Plan, launcher: Launcher | None) -> Side:
    """Build one tree, unless it is built already."""
    if plan.absent:
        return Side(absent=plan.absent)
    there = build_cache.find(plan.key)
    if there is None:
        seen: list[Side] = []
        try:
            product = build_cache.make(
                plan.key, lambda into: _made(job, plan, launcher, into, seen)
            )
        except NoSpaceError:
            raise
        except OSError as error:
            if error.errno == errno.ENOSPC:
                raise process.no_space(f"a build of {plan.build.name}") from error
            raise
        except MachineError as error:
            process.check_stopping()
            # Another contribbot builds the same for too long, or git could not export.
            return Side(lacking=f"{error.message}{'; ' if error.hint else ''}{error.hint}")
        if seen:
            return replace(seen[0], product=product)
        there = product
    if there is None:
        return Side(crash="it was built and is gone")
    return Side(product=there, reused=True, seconds=there.marker.seconds, log=there.marker.log)


def _made(
    job: Job, plan: Plan, launcher: Launcher | None, into: Path, seen: list[Side]
) -> build_cache.Made | None:
    """Build into a product's folder; note what became of it."""
    folder = job.fresh_folder()
    # Not before: who waits for another's build must not keep a bench waiting.
    with job.busy():
        ran = _run(job, plan, launcher, folder=folder, into=into)
    log = _keep_log(job, ran.output)
    side = Side(
        error=ran.error, lacking=ran.lacking, crash=ran.crash, seconds=ran.seconds,
        log=log, tail=ran.output[-_TAIL:],
    )  # fmt: skip
    recipe = job.patch.upstream.build
    if not (side.error or side.transient) and plan.tools is None and recipe is not None:
        lost = full_build.missing_product(recipe, into)
        if lost:
            side = replace(side, error=f"the recipe ended well and made no {lost}")
    seen.append(side)
    if side.error or side.transient:
        return None
    if plan.tools is not None:
        return build_cache.Made(ran.seconds, log, extension="extension.so")
    assert recipe is not None  # noqa: S101  a plan without tools is made from a recipe
    python = tuple(
        full_build.COPY if one == "." else f"{full_build.COPY}/{one}" for one in recipe.python
    )
    library = f"{full_build.COPY}/{recipe.extension}" if recipe.extension else ""
    return build_cache.Made(ran.seconds, log, extension=library, python=python)


def _run(job: Job, plan: Plan, launcher: Launcher | None, *, folder: Path, into: Path) -> Ran:
    build, recipe = plan.build, job.patch.upstream.build
    launcher = launcher if plan.cached else None
    if plan.tools is None:
        assert recipe is not None  # noqa: S101  see _made
        return full_build.run_recipe(
            recipe,
            store=job.store,
            tree=plan.tree,
            values={
                "jobs": str(job.threads), "target": plan.target, "version": plan.version,
            },
            machine=job.machine,
            launcher=launcher,
            timeout=build.timeout or recipe.timeout,
            folder=folder,
            into=into,
            scrub=Scrub(into / full_build.COPY, folder),
        )  # fmt: skip
    made: Hipified | None = None
    if hipify_first(job, plan.tools):
        made = hipified(job, plan.tree, _kernels(job, build))
        if stopped := _hipify_failed(made):
            return stopped

    def lay(into: Path) -> extension.Layout:
        layout = extension.lay_out(job.store, plan.tree, build, into, scratch=folder)
        return extension.lay_over(layout, into, made.folder, made.outputs) if made else layout

    return extension.compile_extension(
        build,
        lay,
        support=job.patch.support,
        tools=plan.tools,
        launcher=launcher,
        jobs=job.threads,
        folder=folder,
        into=into,
        timeout=build.timeout or _PATIENCE,
        scrub=Scrub(folder / "sources", folder),
    )


def _kernels(job: Job, build: Build) -> list[str]:
    recipe = job.patch.upstream.hipify
    return [one for one in build.sources if recipe is not None and is_source(recipe, one)]


def _hipify_failed(made: Hipified) -> Ran | None:
    """Return how a build ends when the hipify step before it did not do its work."""
    trouble = made.trouble
    if not trouble and made.missing:
        trouble = f"hipify: no {next(iter(made.missing.values()))} was made"
    if not trouble:
        return None
    if made.broken or made.transient:
        return Ran(made.tail, made.seconds, lacking=trouble)
    return Ran(made.tail, made.seconds, error=trouble)


def _keep_log(job: Job, text: str) -> str:
    """Keep the whole output under its digest."""
    content = text.encode()
    digest = hashlib.sha256(content).hexdigest()
    write_atomically(job.logs / f"{digest}.log", content)
    return digest


def judge_build(build: Build, base: Side, patched: Side) -> tuple[Outcome, str]:
    """Return the outcome of a build and one line that says why."""
    sides = (("base", base), ("patched tree", patched))
    for name, side in sides:
        if side.lacking:
            # This machine could not do it: that says nothing of the patch.
            return Outcome.UNAVAILABLE, f"on the {name}: {side.lacking}"
    crashed = next((f"on the {name}: {side.crash}" for name, side in sides if side.crash), "")
    wrong = crashed or _wrong_on_patched(base, patched) or _wrong_on_base(build, base)
    if wrong:
        return Outcome.FAILED, wrong
    if build.expect == "pass-to-pass":
        return Outcome.PASSED, "the base and the patched tree build"
    return (
        Outcome.PASSED,
        f"the base does not build, as stated, the patched tree does: {base.error}",
    )


def _wrong_on_patched(base: Side, patched: Side) -> str:
    if not patched.wrong:
        return ""
    also = ", nor does the base" if base.wrong else ""
    return f"the patched tree does not build{also}: {patched.wrong}"


def _wrong_on_base(build: Build, base: Side) -> str:
    if build.expect == "pass-to-pass":
        return f"the base does not build: {base.wrong}" if base.wrong else ""
    if base.absent:
        return f"the base is broken there, not wrong: {base.wrong}"
    if not base.error:
        return "the base builds, so it shows nothing"
    if not re.search(build.reason, base.error):
        return f"the base does not build for another reason than stated: {base.error}"
    return ""
