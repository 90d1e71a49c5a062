"""What a check of `[[emulated]]` is given: code that a `[[compile]]` makes, or an emulated GPU."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial

from contribbot.hardware.build_cache import Compiled
from contribbot.hardware.hip import hip_toolchain
from contribbot.hardware.needs import missing_device, missing_emulator
from contribbot.model.checks import Check, Compile, EmulatedCheck
from contribbot.model.evidence import RunnerFault
from contribbot.verify.check import Way
from contribbot.verify.job import Job
from contribbot.verify.placement import place
from contribbot.verify.runner_fault import fault
from contribbot.verify.stages.compile import CompiledSide, compile_side, missing_for
from contribbot.verify.stages.numerics import way_of
from contribbot.verify.trees import RunLayout, Witnessed


class NoCodeError(Exception):
    """This machine could not make the code; says why."""

    def __init__(self, why: str, *, starved: bool) -> None:
        super().__init__(why)
        self.fault: RunnerFault | None = fault("out-of-memory", why) if starved else None


def code_of(job: Job, check: EmulatedCheck) -> Compile | None:
    """Return the entry that makes the code of a check; None: the tree launches its kernels."""
    return next((entry for entry in job.patch.spec.compile if entry.name == check.compile), None)


def missing_here(job: Job, check: EmulatedCheck) -> str:
    """Say what this machine lacks for a check, or nothing."""
    code, using = code_of(job, check), hip_toolchain(check.emulated)
    if code is None:
        return missing_emulator() or missing_device(job.patch.upstream, using)
    return missing_emulator() or missing_for(job, code, using)


def emulated_way(job: Job, check: EmulatedCheck, trees: Sequence[str]) -> Way:
    """Return how a check is run on some trees, whose code is compiled first if it is given any."""
    if check.compile:
        return Codes.of(job, check, trees).way
    return replace(way_of(check), layout=partial(_on_device, check))


def _on_device(
    check: EmulatedCheck, job: Job, what: Check, tree: str, *, copy: bool = False
) -> RunLayout:
    """Put a tree in place as for any check, with the emulated GPU beside it."""
    layout = place(job, what, tree, copy=copy)
    return replace(layout, env={**layout.env, "CONTRIBBOT_DEVICE": check.emulated})


@dataclass(frozen=True)
class Codes:
    """The code of some trees for a check."""

    job: Job
    check: EmulatedCheck
    sides: Mapping[str, CompiledSide]  # by tree

    @classmethod
    def of(cls, job: Job, check: EmulatedCheck, trees: Sequence[str]) -> Codes:
        """Compile it, not within `children`; a NoCodeError says why this machine could not."""
        entry, using = code_of(job, check), hip_toolchain(check.emulated)
        assert entry is not None  # noqa: S101  without `compile` there are no codes
        make = partial(compile_side, job, entry, check.emulated, using, loaded=True)
        futures = {tree: job.children.submit(make, tree) for tree in trees}
        sides = {tree: future.result() for tree, future in futures.items()}
        codes = cls(job, check, sides)
        for result in codes.results:
            if lack := result.missing or result.crashed:
                raise NoCodeError(f"compile {entry.name}: {lack}", starved=result.starved)
        return codes

    @property
    def results(self) -> list[Compiled]:
        """How each tree's compile went."""
        return [side.result for side in self.sides.values()]

    @property
    def way(self) -> Way:
        """How the check is run with it."""
        return replace(way_of(self.check), layout=self._layout)

    @property
    def digests(self) -> list[str]:
        """The SHA-256 of each tree's code object, or of why it does not compile."""
        said = (side.content or side.result.error.encode() for side in self.sides.values())
        return [hashlib.sha256(content).hexdigest() for content in said]

    @property
    def unchanged(self) -> bool:
        """Whether each kernel of the patched tree consists of what one of the base consists of."""
        from contribbot.emulate.code_object import code_of  # noqa: PLC0415  numpy takes a while

        base, patched = (side.content for side in self.sides.values())
        return bool(base and patched) and code_of(patched) <= code_of(base)

    def _layout(
        self,
        job: Job,
        _check: Check,
        tree: str,
        *,
        copy: bool = False,  # noqa: ARG002  as `Placement` has it
    ) -> RunLayout:
        """Put a tree's code in place for a check, which sees nothing else of the tree."""
        from contribbot.emulate.kernels import CompiledCode  # noqa: PLC0415  numpy takes a while

        side, folder = self.sides[tree], job.fresh_folder()
        code = CompiledCode(target=self.check.emulated, shared=side.shared, error=side.result.error)
        (folder / "code.o").write_bytes(side.content)
        (folder / "code.json").write_text(code.model_dump_json(), encoding="utf-8")
        return RunLayout(
            tree=folder,
            python=(),
            witnessed=self.added if tree == job.trees.patched else {},
            env={"CONTRIBBOT_EMULATED": str(folder)},
        )

    @cached_property
    def added(self) -> dict[str, Witnessed]:
        """The lines that the patch adds and that have code, by the line table's files."""
        from contribbot.emulate.code_object import load  # noqa: PLC0415  numpy takes a while

        job, tree = self.job, self.job.trees.patched
        side = self.sides.get(tree)
        if side is None or not side.content:
            return {}
        places = {place for kernel in load(side.content).values() for place in kernel.lines.places}
        files = {place.rpartition(":")[0] for place in places}
        found = {}
        for path, lines in job.added_lines().items():
            name, file = side.compiled_file(path, job.exported(tree))
            if name in files and not job.patch.upstream.is_test(path):
                added = Witnessed.of(path, lines, job.exported(tree) / path, file).lines
                coded = {n: line for n, line in added.items() if f"{name}:{n}" in places}
                found[name] = Witnessed(path, coded)
        return found
