"""Stage `compile`: compile kernels for AMD targets, from the base and the patched tree."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from contribbot.compile.cache import Compiled, CompileError
from contribbot.compile.compare import details_of, judge_compile, unmet
from contribbot.compile.hip import (
    LISTING,
    CompilerCall,
    HipSource,
    code_object,
    compile_hip,
    headers_digest,
)
from contribbot.compile.toolchain import Lack, Toolchain, device_library, hip_toolchain
from contribbot.compile.triton import TritonSource, compile_triton, triton_code_object, triton_name
from contribbot.errors import QueueError
from contribbot.files import log_path
from contribbot.machine.doctor import missing_compile, missing_hipify
from contribbot.model.checks import Compile
from contribbot.model.evidence import CompileStageResult, Outcome
from contribbot.model.failure import RunFailure
from contribbot.model.lifecycle import Says
from contribbot.model.patch import Patch
from contribbot.model.record import ToolchainRecord
from contribbot.queue.load import did_you_mean
from contribbot.verify.job import Hipified, Job
from contribbot.verify.pytest_run import Scrub
from contribbot.verify.runner_fault import runner_fault
from contribbot.verify.stages import (
    Finding,
    Inputs,
    Probe,
    Stage,
    TreeAnswer,
    Unit,
    answer,
    is_red,
)
from contribbot.verify.stages.hipify import hipified, is_source, sources_of


class CompileStage(Stage):
    """Compiles each entry for each target from both trees, and compares the listings."""

    result = CompileStageResult

    def units(self, job: Job) -> list[Unit]:
        """Return one unit for each entry and target; QueueError: no source in the patched tree."""
        tree, entries = job.trees.patched, job.patch.spec.compile
        for entry in entries:
            if job.store.file(f"{tree}:{entry.source}") is None:
                folder = f"{tree}:{entry.source.rpartition('/')[0]}"
                listed = job.store.git("ls-tree", "--name-only", folder, accept=(0, 128)).stdout
                near = did_you_mean(entry.source, listed.decode().splitlines())
                raise QueueError(
                    f"{job.patch.folder / 'patch.toml'}: {entry.name}: the patched tree has no "
                    f"{entry.source}{near}",
                    hint="correct `source`",
                )
        works = [CompileWork(job, entry, target) for entry in entries for target in entry.targets]
        return [
            Unit(
                work.target, work.inputs(), work.finding, work.entry.name, str(work.missing() or "")
            )
            for work in works
        ]

    def probes(self, patch: Patch) -> Iterable[Probe]:
        """Return one probe for each fail-to-pass entry and target."""
        return [
            Probe(
                f"compile {entry.name} {target}",
                target,
                partial(_ask, entry, target),
                toolchain_of(patch, entry, hip_toolchain(target)).model_dump(),
                (entry.source,),
            )
            for entry in filter(is_red, patch.spec.compile)
            for target in entry.targets
        ]


def _ask(entry: Compile, target: str, job: Job, tree: str) -> TreeAnswer:
    """Return the answer of one tree: whether its kernel compiles as the entry expects."""
    work = CompileWork(job, entry, target)
    if missing := work.missing():
        return TreeAnswer(Says.CANNOT, str(missing))
    (side,) = job.parallel(work.side, tree)
    done = side.result
    problem = done.error or unmet(entry, target, done.listing)
    held = ", ".join(entry.instructions.get(target, ()))
    good = "it compiles" + (f", with {held} in the kernels" if held else "")
    lacking = "" if done.crashed else done.missing
    problems = [str(problem)] if problem else []
    return answer(entry, problems, good=good, lacking=lacking, crash=done.crashed)


def toolchain_of(
    patch: Patch, entry: Compile, using: Toolchain | Lack, sides: Iterable[Compiled] = ()
) -> ToolchainRecord:
    """Return the record of the compiler, the assembler and the device library."""
    compiler: dict[str, str] = {}
    if isinstance(using, Toolchain):
        compiler = {"assembler": using.name, "identity": using.identity}
        compiler |= {"kind": using.kind, "name": using.name, "headers": using.headers}
    if entry.kind == "triton":
        compiler |= {"kind": "triton", "name": triton_name(patch.triton_for(entry)), "headers": ""}
    library = next((side.library for side in sides if side.library), "")
    return ToolchainRecord(**compiler, library=library)


@dataclass(frozen=True)
class CompiledSide:
    """The result of a compile from one tree: a listing, a code object, or a failure."""

    result: Compiled
    content: bytes = b""
    shared: int = 0  # bytes of LDS that a launch adds to the kernel's LDS


@dataclass(frozen=True)
class CompileWork:
    """The work of a job on one `[[compile]]` entry for one target."""

    job: Job
    entry: Compile
    target: str

    @property
    def using(self) -> Toolchain | Lack:
        """The compiler for the target, or what this machine lacks for a compiler."""
        return hip_toolchain(self.target)

    def toolchain(self, sides: Iterable[Compiled] = ()) -> ToolchainRecord:
        """Return the record of the tools that compile the entry."""
        return toolchain_of(self.job.patch, self.entry, self.using, sides)

    def missing(self, *, listing: bool = True) -> Lack | None:
        """Return what this machine lacks for the entry; None: the machine lacks nothing."""
        upstream, entry = self.job.patch.upstream, self.entry
        missing = missing_compile(self.job.patch, entry, self.using, listing=listing)
        hipified_first = entry.kind == "hip" and is_source(upstream.hipify, entry.source)
        return missing or (missing_hipify(upstream) if hipified_first else None)

    def inputs(self) -> Inputs:
        """Return the inputs on which the compiled code of both trees depends."""
        upstream, hipify = self.job.patch.upstream, self.job.patch.spec.hipify
        library = device_library(self.using) if isinstance(self.using, Toolchain) else None
        return {
            "entry": self.entry.model_dump_json(),
            "base": self.job.trees.base,
            "patched": self.job.trees.patched,
            "recipe": upstream.compile.model_dump_json(),
            "hipify": upstream.hipify.model_dump_json() if upstream.hipify is not None else "",
            "hipified": hipify.model_dump_json() if hipify is not None else "",
            "python_roots": list(upstream.python_roots),
            "stand_ins": headers_digest(),
            "library": library.name if library else "",
            "toolchain": self.toolchain().model_dump(),
        }

    def finding(self) -> Finding:
        """Compile the entry's kernels from both trees, and judge the listings."""
        base, patched = (s.result for s in self.job.parallel(self.side, *self.job.trees.sides))
        judgement = judge_compile(self.entry, self.target, base, patched)
        toolchain, fault = self.toolchain((base, patched)), None
        unavailable = judgement.outcome is Outcome.UNAVAILABLE
        if unavailable and (base.starved or patched.starved):
            fault = runner_fault(RunFailure.NO_MEMORY, judgement.reason)
        return Finding(
            judgement.outcome,
            judgement.reason,
            details_of(self.entry, self.target, base, patched, judgement, toolchain=toolchain),
            # A tool that this machine lacks may be installed before the next run.
            lasting=judgement.lasting and not unavailable,
            proof=judgement.proof,
            seconds=sum(side.seconds for side in (base, patched) if not side.cached),
            runner_fault=fault,
        )

    def side(self, tree: str, *, loaded: bool = False) -> CompiledSide:
        """Compile the kernels from one tree to a listing or, if `loaded`, to a code object."""
        job, entry, target, using = self.job, self.entry, self.target, self.using
        if isinstance(using, Lack):
            return CompiledSide(Compiled(missing=str(using)))
        result, content, shared = Compiled(), b"", 0
        with job.slots.busy():
            try:
                source, made = self._source(tree)
                folder = job.fresh_folder()
                scrub = Scrub(job.exported(tree), folder, *([made.folder] if made else ()))
                call = CompilerCall(using=using, folder=folder, timeout=entry.timeout, scrub=scrub)
                if isinstance(source, HipSource):
                    if loaded:
                        content, library = code_object(source, target, **call)
                        result = Compiled(library=library)
                    else:
                        result = compile_hip(source, target, **call)
                elif loaded:
                    content, shared = triton_code_object(source, target, **call)
                else:
                    result = compile_triton(source, target, **call)
            except CompileError as error:
                return CompiledSide(error.result)
            if isinstance(source, TritonSource) and (meddled := job.altered(tree)):
                # Other units use the changed tree after this compile.
                trouble = f"wrote into the tree: {meddled}"
                return CompiledSide(Compiled(crashed=trouble, command=result.command))
            if result.log and not result.cached:
                job.keep_log((folder / LISTING).read_text("utf-8"))
            # The log of a cached result may be gone.
            if not (result.log and log_path(job.logs, result.log).is_file()):
                result = result.model_copy(update={"log": ""})
            return CompiledSide(result, content, shared)

    def _source(self, tree: str) -> tuple[HipSource | TritonSource, Hipified | None]:
        """Return the source in a tree, and the hipified tree, or None if hipify is not needed."""
        job, entry, exported = self.job, self.entry, self.job.exported(tree)
        if not (exported / entry.source).is_file():
            raise CompileError(absent=True, error=f"{entry.source} is not in the tree")
        if entry.kind == "hip":
            return self._hip_source(tree)
        source = TritonSource(
            path=exported / entry.source,
            function=entry.function,
            signature=entry.signature,
            constants=entry.constants,
            num_warps=entry.num_warps,
            num_stages=entry.num_stages,
            # With an overlay, Python imports the installed packages.
            tree=None if job.patch.upstream.overlay else exported,
            env=entry.env,
            python=tuple(exported / root for root in job.patch.upstream.python_roots),
            version=job.patch.triton_for(entry),
        )
        return source, None

    def _hip_source(self, tree: str) -> tuple[HipSource, Hipified | None]:
        job, entry, upstream = self.job, self.entry, self.job.patch.upstream
        exported, made = job.exported(tree), None
        path = exported / entry.source
        if is_source(upstream.hipify, entry.source):
            made = hipified(job, tree, sources_of(job, tree))
            if made.trouble:
                kind = "crashed" if made.transient else "missing" if made.broken else "error"
                raise CompileError(**{kind: f"hipify: {made.trouble}"})
            if entry.source not in made.outputs:
                # A source behind a link to a folder has no output: git does not list the source.
                lacking = made.missing.get(entry.source, f"output for {entry.source}")
                raise CompileError(error=f"hipify: no {lacking}")
            path = made.files[entry.source]
        # The include path has the rewritten folder, if there is one, in place of the original.
        folders = [made.folder] if made is not None else []
        include = (
            next(filter(Path.is_dir, (folder / root for folder in folders)), exported / root)
            for root in dict.fromkeys((*upstream.compile.include, *entry.include))
        )
        source = HipSource(
            path=path,
            include=tuple(include),
            defines=(*upstream.compile.defines, *entry.defines),
            standard=upstream.compile.standard,
            torch=upstream.compile.torch,
            folders=(exported, *folders),
        )
        return source, made
