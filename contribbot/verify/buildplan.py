"""What is to be built from one tree."""

from __future__ import annotations

from dataclasses import dataclass

from contribbot.building import extension, full, shelf
from contribbot.building.toolchain import Toolchain, toolchain
from contribbot.model.proofs import Build
from contribbot.verify.job import Job


@dataclass(frozen=True)
class Plan:
    """What is to be built from one tree.

    Attributes:
        build: The build.
        target: The hardware.
        tree: The tree's id.
        key: The digest of everything that the product depends on.
        absent: A path that the build names and the tree lacks, or empty.
        tools: way extension: what compiles it.
        version: The pin's release.
    """

    build: Build
    target: str
    tree: str
    key: str
    absent: str
    tools: Toolchain | None
    version: str

    @classmethod
    def of(cls, job: Job, build: Build, target: str, tree: str) -> Plan:
        """Make the plan for a build that this machine can do."""
        recipe, version = job.patch.upstream.build, job.patch.pin.tag.removeprefix("v")
        if build.way == "full" and recipe is not None:
            inputs = full.inputs_of(tree, recipe, target, machine=job.machine, version=version)
            absent = full.lacks(job.store, tree, recipe)
            return cls(build, target, tree, shelf.key_of(inputs), absent, None, version)
        tools = toolchain(target, job.machine)
        inputs = extension.inputs_of(job.store, tree, build, support=job.patch.support, tools=tools)
        if hipify_first(job, tools):
            # The step may read anything of the tree.
            inputs = {"hipified": inputs, "tree": tree}
        absent = extension.absent(job.store, tree, build)
        return cls(build, target, tree, shelf.key_of(inputs), absent, tools, version)

    @property
    def cached(self) -> bool:
        """Whether a compiler cache may stand before the compilers.

        Neither ccache nor sccache can be put before hipcc: torch leaves them out there.
        """
        return self.tools is None or self.tools.kind != "hip"


def hipify_first(job: Job, tools: Toolchain) -> bool:
    """Say whether the upstream's own hipify step comes before the compilers.

    Where it has none, cpp_extension hipifies by itself.
    """
    return tools.kind == "hip" and job.patch.upstream.hipify is not None
