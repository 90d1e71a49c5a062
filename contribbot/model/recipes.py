"""How an upstream is hipified, compiled and built: data, read from `upstreams/*.toml`."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, StringConstraints

from contribbot.model.base import Line, Lines, Model, Name, Pattern, TreePath, TreePaths
from contribbot.model.check import Environment, Seconds


class HipifyRecipe(Model):
    """The upstream's own hipify step.

    Attributes:
        script: The script in the tree.
        project: The folder in the tree that it copies and rewrites.
        suffixes: Sources that it is given.
        renames: How the build derives the path of an output from that of a source:
            regular expressions and replacements, in order.
        cuda_only: Regular expressions over the names of headers that no hipified
            file may include.
    """

    script: TreePath
    project: TreePath
    suffixes: Annotated[tuple[Line, ...], Field(strict=False)] = (".cu",)
    renames: Annotated[
        tuple[Annotated[tuple[Pattern, str], Field(strict=False)], ...], Field(strict=False)
    ] = ()
    cuda_only: Annotated[tuple[Pattern, ...], Field(strict=False)] = ()


class CompileRecipe(Model):
    """How the upstream's HIP sources are compiled.

    Attributes:
        include: Include roots in the tree (hipified, where there is a hipify step).
        defines: Macros.
        standard: The C++ standard.
        torch: Whether torch's headers are needed.
    """

    include: TreePaths = ()
    defines: Lines = ()
    standard: Annotated[str, StringConstraints(pattern=r"^(?:c|gnu)\+\+\d\d$")] = "c++20"
    torch: bool = False


class BuildRecipe(Model):
    """The upstream's own way to build all of itself.

    Attributes:
        targets: The hardware that it builds for.
        commands: Programs with their arguments, run one after the other in a copy of
            the tree. `{tree}`, `{python}`, `{jobs}` and `{target}` are filled in.
        env: Environment variables; the same are filled in.
        requires: Programs that must be on PATH.
        python: Folders of the copy that go on Python's path afterwards.
        timeout: Seconds that it may take.
    """

    targets: Annotated[tuple[Name, ...], Field(strict=False)] = ()
    commands: Annotated[tuple[Lines, ...], Field(strict=False, min_length=1)]
    env: Environment = Field(default_factory=dict)
    requires: Lines = ()
    python: Annotated[tuple[TreePath | Literal["."], ...], Field(strict=False)] = (".",)
    timeout: Seconds = 7200.0
