"""The upstream's own hipify step on a tree: run once, for whoever needs what it writes."""

from __future__ import annotations

import hashlib
import importlib.util
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from contribbot import process
from contribbot.files import write_atomically
from contribbot.model.recipes import HipifyRecipe
from contribbot.store.trees import changes
from contribbot.verify.scrub import Scrub

if TYPE_CHECKING:
    from contribbot.verify.job import Job

_TAIL: Final = 2000
#: Seconds that an import may take on a machine that is busy.
_IMPORT: Final = 120.0


@dataclass(frozen=True)
class Hipified:
    """What the hipify step made of a tree.

    Attributes:
        folder: What stands for the build's folder: the project's copy and the
            outputs lie in it, by the paths that the build looks for. Read only;
            there until the run ends.
        outputs: The output of each source, by the source's path in the tree.
        missing: Where an output should be and is not, relative to `folder`, by source.
        trouble: Why the step did not end well; empty when it did.
        broken: Whether that is this machine's fault and not the tree's.
        transient: Whether another run might end otherwise.
        command: The command, as one would type it.
        log: SHA-256 of the whole output, which `.contribbot/logs` keeps.
        tail: The end of the output.
        seconds: Wall-clock time.
    """

    folder: Path
    outputs: Mapping[str, Path]
    missing: Mapping[str, str]
    trouble: str = ""
    broken: bool = False
    transient: bool = False
    command: str = ""
    log: str = ""
    tail: str = ""
    seconds: float = 0.0


def obstacle(job: Job) -> str:
    """Say why the upstream's hipify step cannot run here, or nothing."""
    package = _recipe(job).module.partition(".")[0]
    if importlib.util.find_spec(package) is None:
        return f"{package}, whose hipify is needed, is not installed: pip install {package}"
    return ""


def sources_of(job: Job, tree: str) -> tuple[str, ...]:
    """Return the sources of a tree that a verification has hipified, sorted.

    They are those that the patch touches and the upstream builds for ROCm, those that
    its `[hipify]` declares, and those that a `[[compile]]` of kind hip compiles. Ask
    `hipified` for these, and the step runs once a tree.
    """
    recipe = job.patch.upstream.hipify
    if recipe is None:
        return ()
    spec = job.patch.spec
    touched = {
        change.path
        for change in changes(job.store, job.trees.base, job.trees.patched)
        if is_source(recipe, change.path)
        and not any(re.search(pattern, change.path) for pattern in recipe.cuda_sources)
    }
    compiled = {
        one.source for one in spec.compile if one.kind == "hip" and is_source(recipe, one.source)
    }
    wanted = touched | compiled | set(spec.hipify.sources if spec.hipify else ())
    listed = job.store.git("ls-tree", "-r", "-z", "--name-only", tree, recipe.project).stdout
    there = set(listed.decode("utf-8", "surrogateescape").split("\0"))
    return tuple(sorted(wanted & there))


def is_source(recipe: HipifyRecipe, path: str) -> bool:
    """Say whether a path of a tree is one that the hipify step takes."""
    return path.startswith(f"{recipe.project}/") and path.endswith(recipe.suffixes)


def output_path(recipe: HipifyRecipe, source: str) -> str:
    """Return where the build looks for the output of a source, relative to its folder."""
    for pattern, text in recipe.renames:
        source = re.sub(pattern, text.replace("\\", r"\\"), source)
    return source


def hipified(job: Job, tree: str, sources: Sequence[str]) -> Hipified:
    """Hipify sources of a tree with the tree's own script; once for the same ones.

    Works in the calling thread: call it where other programs run, in `job.children`
    and under `job.busy()`. Nothing is written into the exported tree.
    """
    ordered = tuple(sorted(set(sources)))
    return job.hipified.get("\0".join((tree, *ordered)), lambda: _run(job, tree, ordered))


def _recipe(job: Job) -> HipifyRecipe:
    recipe = job.patch.upstream.hipify
    if recipe is None:
        raise ValueError(f"{job.patch.upstream.name} has no [hipify] recipe")
    return recipe


def _run(job: Job, tree: str, sources: tuple[str, ...]) -> Hipified:
    recipe, exported = _recipe(job), job.exported(tree)
    # Without symlinks, as scripts may compare paths as text.
    room = job.fresh_folder().resolve()
    build = room / "build"
    for name in ("build", "home", "tmp"):
        (room / name).mkdir()
    if not (exported / recipe.script).is_file():
        expected = {source: output_path(recipe, source) for source in sources}
        return Hipified(build, {}, expected, trouble=f"{recipe.script} is not in the tree")
    filled = {"{project}": str(exported / recipe.project), "{output}": str(build / recipe.project)}
    given = [filled.get(argument, argument) for argument in recipe.arguments]
    argv = ["-B", str(exported / recipe.script), *given, *sources]
    env = _environment(job, room)
    done = process.supervise(
        [sys.executable, *argv],
        cwd=exported if _in_tree(recipe, exported) else build,
        env=env,
        timeout=recipe.timeout,
        tethered=True,
    )
    scrub = Scrub(exported, room)
    said = scrub(done.output.decode("utf-8", "replace"))
    log = hashlib.sha256(said.encode()).hexdigest()
    write_atomically(job.logs / f"{log}.log", said.encode())
    trouble = _trouble(recipe, done, said)
    broken = _broken_module(recipe, env, room) if trouble and not done.timed_out else ""
    meddled = job.altered(tree)
    if meddled and not trouble:
        trouble = f"{recipe.script} wrote into the tree: {meddled}"
    outputs, missing = _outputs(recipe, build, sources)
    return Hipified(
        folder=build,
        outputs=outputs,
        missing=missing,
        trouble=broken or trouble,
        broken=bool(broken),
        # A tree that was written into is no longer what others on this run see.
        transient=bool(broken or meddled) or done.timed_out,
        command=scrub(process.describe(["python", *argv])),
        log=log,
        tail=said[-_TAIL:],
        seconds=done.seconds,
    )


def _in_tree(recipe: HipifyRecipe, exported: Path) -> bool:
    """Say whether the build runs the script in the tree, as the tree's build file tells."""
    file = exported / recipe.build_file
    return bool(
        recipe.build_file
        and file.is_file()
        and re.search(recipe.in_tree, file.read_text(encoding="utf-8", errors="replace"))
    )


def _environment(job: Job, room: Path) -> dict[str, str]:
    return process.clean_environment(
        {
            "HOME": str(room / "home"),
            "TMPDIR": str(room / "tmp"),
            "OMP_NUM_THREADS": str(job.threads),
            "PYTHONDONTWRITEBYTECODE": "1",
            "PYTHONUNBUFFERED": "1",
        }
    )


def _outputs(
    recipe: HipifyRecipe, build: Path, sources: tuple[str, ...]
) -> tuple[dict[str, Path], dict[str, str]]:
    """Return the outputs that are where the build looks for them, and those that are not."""
    outputs, missing = {}, {}
    for source in sources:
        expected = output_path(recipe, source)
        if (build / expected).is_file():
            outputs[source] = build / expected
        else:
            missing[source] = expected
    return outputs, missing


def _trouble(recipe: HipifyRecipe, done: process.Supervised, said: str) -> str:
    """Say why the script did not end well, or nothing."""
    if done.timed_out:
        return f"{recipe.script}: not finished after {recipe.timeout:g} s"
    if done.flooded:
        return f"{recipe.script}: it never stopped writing, and was ended"
    if done.returncode == 0:
        return ""
    code = done.returncode
    how = f"killed by signal {-code}" if code < 0 else f"exit status {code}"
    lines = said.strip().splitlines() or ["it said nothing"]
    return f"{recipe.script}: {how}: {lines[-1]}"


def _broken_module(recipe: HipifyRecipe, env: Mapping[str, str], folder: Path) -> str:
    """Say that what the script builds on does not work here, or nothing."""
    asked = process.supervise(
        [sys.executable, "-B", "-c", f"import {recipe.module}"],
        cwd=folder,
        env=env,
        timeout=_IMPORT,
    )
    if asked.returncode == 0 or asked.timed_out:
        return ""
    lines = asked.output.decode("utf-8", "replace").strip().splitlines() or ["no reason given"]
    package = recipe.module.partition(".")[0]
    return (
        f"{recipe.module} cannot be imported here ({lines[-1]}): "
        f"python -m pip install --force-reinstall {package}"
    )
