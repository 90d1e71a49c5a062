"""The fail-to-pass entries of a patch, each ready to be asked of a tree."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

from pydantic import JsonValue

from contribbot import process
from contribbot.compiling.hip import toolchain
from contribbot.model.check import Check
from contribbot.model.patch import Patch, PatchSpec
from contribbot.verify.checkunit import absent_modules, versions
from contribbot.verify.stages.compile import toolchain_details
from contribbot.verify.unpatched.bare import Bare, Seen, is_red
from contribbot.verify.unpatched.checks import ask_check, ask_numerics
from contribbot.verify.unpatched.kernels import ask_build, ask_compile, ask_hipify


@dataclass(frozen=True)
class Probe:
    """One entry, ready to be asked.

    Attributes:
        label: What people call it.
        target: The hardware, or `any`.
        inputs: What its answer depends on beside trees, tool and machine.
        look: Asks a tree.
    """

    label: str
    target: str
    inputs: dict[str, JsonValue]
    look: Callable[[Bare], Seen]


def probes(patch: Patch) -> list[Probe]:
    """Return the fail-to-pass entries of a patch."""
    spec = patch.spec
    hipify = [Probe("hipify", "any", {}, ask_hipify)] if spec.hipify and is_red(spec.hipify) else []
    return [*hipify, *_compiled(spec), *_run(spec)]


def _compiled(spec: PatchSpec) -> Iterator[Probe]:
    for number, entry in enumerate(spec.compile):
        if is_red(entry):
            for target in entry.targets:
                told = toolchain_details(entry, toolchain(target))
                label = f"compile {entry.name} {target}"
                yield Probe(label, target, told, partial(ask_compile, number, target))
    for number, build in enumerate(spec.build):
        if is_red(build):
            for target in build.targets:
                look = partial(ask_build, number, target)
                yield Probe(f"build {build.name} {target}", target, {}, look)


def _run(spec: PatchSpec) -> Iterator[Probe]:
    for number, check in enumerate(spec.checks):
        if is_red(check):
            look = partial(ask_check, number)
            yield Probe(f"check {check.name}", check.target, _needs(check), look)
    for number, numerics in enumerate(spec.numerics):
        if is_red(numerics):
            look = partial(ask_numerics, number)
            yield Probe(f"numerics {numerics.name}", numerics.target, _needs(numerics), look)


def _needs(check: Check) -> dict[str, JsonValue]:
    return {
        "modules": {} if absent_modules(check) else {**versions(check.modules)},
        "accelerator": {**process.accelerator_environment()},
    }
