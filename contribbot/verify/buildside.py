"""Building one tree, and what became of it."""

from __future__ import annotations

import errno
import hashlib
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from pydantic import JsonValue

from contribbot import process
from contribbot.building import extension, full, shelf
from contribbot.building.caches import Launcher
from contribbot.building.commands import Ran
from contribbot.errors import MachineError, NoSpaceError
from contribbot.files import write_atomically
from contribbot.model.proofs import Build
from contribbot.verify.buildplan import Plan, hipify_first
from contribbot.verify.hipified import Hipified, hipified, is_source
from contribbot.verify.job import Job
from contribbot.verify.scrub import Scrub

#: What a record keeps of an output; the whole is in the log file.
_TAIL: Final = 2000
#: Seconds for one side of an extension where the patch does not say.
_PATIENCE: Final = 1800.0


@dataclass(frozen=True)
class Side:
    """What became of one tree.

    Attributes:
        product: What was built, or None.
        error: What is wrong with the tree, in one line.
        absent: A path that the build names and the tree lacks.
        lacking: What this machine could not do.
        crash: How a compiler crashed.
        reused: Whether it was there from an earlier build.
        seconds: How long it took when it was built.
        log: SHA-256 of the whole output.
        tail: The end of the output.
    """

    product: shelf.Product | None = None
    error: str = ""
    absent: str = ""
    lacking: str = ""
    crash: str = ""
    reused: bool = False
    seconds: float = 0.0
    log: str = ""
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
    there = shelf.find(plan.key)
    if there is None:
        seen: list[Side] = []
        try:
            product = shelf.make(plan.key, lambda into: _made(job, plan, launcher, into, seen))
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
) -> shelf.Made | None:
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
        lost = full.missing_product(recipe, into)
        if lost:
            side = replace(side, error=f"the recipe ended well and made no {lost}")
    seen.append(side)
    if side.error or side.transient:
        return None
    if plan.tools is not None:
        return shelf.Made(ran.seconds, log, extension="extension.so")
    assert recipe is not None  # noqa: S101  a plan without tools is made from a recipe
    python = tuple(full.COPY if one == "." else f"{full.COPY}/{one}" for one in recipe.python)
    library = f"{full.COPY}/{recipe.extension}" if recipe.extension else ""
    return shelf.Made(ran.seconds, log, extension=library, python=python)


def _run(job: Job, plan: Plan, launcher: Launcher | None, *, folder: Path, into: Path) -> Ran:
    build, recipe = plan.build, job.patch.upstream.build
    launcher = launcher if plan.cached else None
    if plan.tools is None:
        assert recipe is not None  # noqa: S101  see _made
        return full.run_recipe(
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
            scrub=Scrub(into / full.COPY, folder),
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
