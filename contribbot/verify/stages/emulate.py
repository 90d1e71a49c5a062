"""Stage `emulate`: checks of kernels whose AMD GPU code runs on a processor."""

from __future__ import annotations

import hashlib
import importlib.metadata
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import Final

from contribbot import process
from contribbot.compile.cache import kernel_cache, open_kernels
from contribbot.compile.listing import title_of
from contribbot.compile.toolchain import Lack, Toolchain, hip_toolchain
from contribbot.compile.triton import bring_triton, triton_name
from contribbot.errors import MachineError
from contribbot.files import used
from contribbot.machine import versions
from contribbot.machine.doctor import missing_device, missing_emulator
from contribbot.model.checks import EMULATED, Check, Compile, EmulatedCheck
from contribbot.model.evidence import NOT_A_GPU, EmulateStageResult
from contribbot.model.failure import RunFailure
from contribbot.model.lifecycle import Says
from contribbot.model.patch import Patch, PatchSpec, digest_of
from contribbot.model.record import CheckDetails, CodeRecord, EmulateDetails, NumericsDetails
from contribbot.verify.job import Job, RunLayout
from contribbot.verify.pytest_run import CheckRun
from contribbot.verify.runner_fault import UnavailableError, runner_fault
from contribbot.verify.stages import Inputs, Probe, Stage, TreeAnswer, Unit, is_red
from contribbot.verify.stages.compile import CompiledSide, CompileWork, toolchain_of
from contribbot.verify.stages.numerics import runner_of
from contribbot.verify.stages.reproduce import TREES, CheckRunner, CheckWork, check_inputs, place
from contribbot.verify.verdict import Cause, Judgement

_UNCHANGED: Final = (
    "the kernels are the base's, instruction by instruction, so that no result can differ: state it"
    " as pass-to-pass, and have a check of `[[checks]]` fail on what calls them"
)
#: The packages that, besides the tree, decide the results of an emulated GPU.
_EMULATED_BY: Final = ("torch", "triton", "tinygrad")


class EmulateStage(Stage):
    """Runs each `[[emulated]]` entry for each target, on the code of both trees."""

    result = EmulateStageResult

    def units(self, job: Job) -> list[Unit]:
        """Return one unit for each entry and target."""
        return [_unit(job, check) for entry in job.patch.spec.emulated for check in entry.checks]

    def probes(self, patch: Patch) -> Iterable[Probe]:
        """Return one probe for each fail-to-pass entry and target."""
        entries = filter(is_red, patch.spec.emulated)
        return [_probe(patch, check) for entry in entries for check in entry.checks]


def _probe(patch: Patch, check: EmulatedCheck) -> Probe:
    code = _code_of(patch.spec, check)
    tools: Inputs = {"modules": {**versions(_EMULATED_BY)}, "triton": patch.triton_for(check)}
    if code is not None:
        tools = {"toolchain": toolchain_of(patch, code, hip_toolchain(check.emulated)).model_dump()}
    label, target = f"emulated {check.name} {check.emulated}", f"{EMULATED}{check.emulated}"
    paths = (code.source,) if code else tuple(check.env.values())
    return Probe(label, target, partial(_ask, check), tools, paths)


def _ask(check: EmulatedCheck, job: Job, tree: str) -> TreeAnswer:
    """Return the answer of a check with the kernels of one tree."""
    if missing := missing_emulated(job, check):
        return TreeAnswer(Says.CANNOT, str(missing))
    return CheckWork(job, emulated_runner(job, check, [tree])).answer()


def _unit(job: Job, check: EmulatedCheck) -> Unit:
    code = _code_of(job.patch.spec, check)
    runner = cache(partial(emulated_runner, job, check, job.trees.sides))
    run = check_inputs(job, check, {}) | {"checks": digest_of(job.patch.support)}
    unit = Unit(
        target=f"{EMULATED}{check.emulated}",
        inputs=run | _tools(job, check),
        work=lambda: CheckWork(job, runner()).finding(),
        label=check.name,
        missing=str(missing_emulated(job, check) or ""),
    )
    if code is None:
        return unit
    without_trees = {name: value for name, value in run.items() if name not in TREES}
    return replace(
        unit,
        inputs={**run, "code": CompileWork(job, code, check.emulated).inputs()},
        product=lambda: {**without_trees, **runner().inputs},
    )


def _tools(job: Job, check: EmulatedCheck) -> Inputs:
    """Return the inputs of a check that launches kernels, without the packages that it imports."""
    # The check imports the package of Triton, but not the compiler of the emulator's code.
    using = hip_toolchain(check.emulated)
    compiler = using.identity if isinstance(using, Toolchain) else ""
    return {"triton": job.patch.triton_for(check), "compiler": compiler}


def _code_of(spec: PatchSpec, check: EmulatedCheck) -> Compile | None:
    """Return the entry that makes a check's code; None: the tree itself launches kernels."""
    return next((entry for entry in spec.compile if entry.name == check.compile), None)


def missing_emulated(job: Job, check: EmulatedCheck) -> Lack | None:
    """Return what this machine lacks for a check; None: the machine lacks nothing."""
    if lack := missing_emulator():
        return lack
    if code := _code_of(job.patch.spec, check):
        return CompileWork(job, code, check.emulated).missing(listing=False)
    return missing_device(job.patch.upstream, hip_toolchain(check.emulated))


def emulated_runner(job: Job, check: EmulatedCheck, trees: Sequence[str]) -> CheckRunner:
    """Return the runner of an emulated check; the check's code, if any, is compiled first."""
    runner, code = runner_of(check), _code_of(job.patch.spec, check)
    runner = replace(runner, env={**runner.env, **_kernels(job)}, note=NOT_A_GPU)
    if code is not None:
        return Codes.of(CompileWork(job, code, check.emulated), trees).runner(runner)
    triton = triton_name(job.patch.triton_for(check))
    return replace(
        runner,
        env={**runner.env, "CONTRIBBOT_DEVICE": check.emulated},
        layout=_place_with_triton,
        details=partial(_emulated, runner, triton=triton),
        inputs=_tools(job, check),
    )


def _kernels(job: Job) -> dict[str, str]:
    """Return the variables that name the folders of a patch's compiled kernels."""
    # The folder belongs to one patch: programs outside the patch's sandbox load nothing from it.
    folder = open_kernels() if process.no_sandbox() else kernel_cache().folder / job.patch.name
    folder.mkdir(parents=True, exist_ok=True)
    used(folder)
    return {process.KERNELS: str(folder), "TRITON_CACHE_DIR": str(folder / "triton")}


def _place_with_triton(job: Job, check: Check, tree: str, *, copy: bool = False) -> RunLayout:
    """Put a tree in place, with the Triton release of the pin in front on Python's path."""
    assert isinstance(check, EmulatedCheck)  # noqa: S101  this stage runs no other check
    layout = place(job, check, tree, copy=copy)
    try:
        brought = bring_triton(job.patch.triton_for(check))
    except MachineError as error:
        raise UnavailableError(error.message) from error
    return replace(layout, tools=brought)


def _emulated(
    runner: CheckRunner,
    details: CheckDetails,
    base: CheckRun,
    patched: CheckRun,
    *,
    triton: str = "",
    code: CodeRecord | None = None,
) -> EmulateDetails:
    """Return the details of a check on an emulated GPU, with the cells of a numerics check."""
    judged = runner.details(details, base, patched)
    return EmulateDetails(
        **dict(details),
        emulator=f"tinygrad {importlib.metadata.version('tinygrad')}",
        triton=triton,
        code=code,
        numerics=judged.numerics if isinstance(judged, NumericsDetails) else None,
    )


@dataclass(frozen=True)
class Codes:
    """The compiled code of some trees for one emulated check."""

    work: CompileWork
    sides: Mapping[str, CompiledSide]  # by the id of the tree

    @classmethod
    def of(cls, work: CompileWork, trees: Sequence[str]) -> Codes:
        """Compile the code for some trees; not to be called in a thread of `children`."""
        sides = work.job.parallel(partial(work.side, loaded=True), *trees)
        for side in sides:
            if lack := side.result.missing or side.result.crashed:
                why = f"compile {work.entry.name}: {lack}"
                starved = side.result.starved
                fault = runner_fault(RunFailure.NO_MEMORY, why) if starved else None
                raise UnavailableError(why, fault)
        return cls(work, dict(zip(trees, sides, strict=True)))

    def runner(self, runner: CheckRunner) -> CheckRunner:
        """Return the runner of the check with the compiled code."""
        toolchain = self.work.toolchain(side.result for side in self.sides.values())
        code = CodeRecord(
            entry=self.work.entry.name, toolchain=toolchain, sha256=tuple(self.digests)
        )
        return replace(
            runner,
            layout=self._layout,
            details=partial(_emulated, runner, code=code),
            settle=self._settle,
            inputs={"code": [*self.digests]},
        )

    def _settle(self, judgement: Judgement) -> Judgement:
        """Return the judgement; comparing both trees' kernels replaces the cause NO_STATEMENT."""
        if judgement.cause is not Cause.NO_STATEMENT:
            return judgement
        base, patched = (_by_title(side.content) for side in self.sides.values())
        if not base or any(base[title] != patched.get(title, base[title]) for title in base):
            return replace(judgement, cause=Cause.RED_TO_GREEN, proof=True)
        if set().union(*patched.values()) <= set().union(*base.values()):
            # Every kernel of the patched tree has the code of a kernel of the base.
            return Judgement(Cause.SHOWS_NOTHING, words=_UNCHANGED)
        return replace(judgement, cause=Cause.NEW_KERNEL)

    @property
    def digests(self) -> list[str]:
        """The SHA-256 of each tree's code object or compile error."""
        said = (side.content or side.result.error.encode() for side in self.sides.values())
        return [hashlib.sha256(content).hexdigest() for content in said]

    def _layout(
        self,
        job: Job,
        _check: Check,
        tree: str,
        *,
        copy: bool = False,  # noqa: ARG002  a parameter of `Placement`
    ) -> RunLayout:
        """Put a tree's compiled code in place; the check sees nothing else of the tree."""
        from contribbot.verify.emulated_kernels import CompiledCode  # noqa: PLC0415  numpy takes a while

        side, folder = self.sides[tree], job.fresh_folder()
        target, error = self.work.target, side.result.error
        code = CompiledCode(target=target, shared=side.shared, error=error)
        (folder / "code.o").write_bytes(side.content)
        (folder / "code.json").write_text(code.model_dump_json(), encoding="utf-8")
        return RunLayout(tree=folder, python=(), env={}, code=folder)


def _by_title(content: bytes) -> dict[str, set[tuple[object, ...]]]:
    """Return the code of each kernel by its C++ name; overloads share one name."""
    from contribbot.emulate import code_of  # noqa: PLC0415  numpy takes a while

    kernels: dict[str, set[tuple[object, ...]]] = {}
    for symbol, code in code_of(content).items() if content else ():
        kernels.setdefault(title_of(symbol), set()).add(code)
    return kernels
