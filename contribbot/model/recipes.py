"""How an upstream is hipified, compiled and built: data, read from `upstreams/*.toml`."""

from __future__ import annotations

import re
from typing import Annotated, Final, Literal

from pydantic import Field, StringConstraints, model_validator

from contribbot.model.base import Line, Lines, Model, Pattern, TreePath, TreePaths
from contribbot.model.check import Environment, Seconds, Target

#: What is filled in where a build's recipe has it in braces.
PLACEHOLDERS: Final = ("tree", "python", "jobs", "target", "version")
_PLACEHOLDER: Final = re.compile(r"\{(\w+)\}")


class HipifyRecipe(Model):
    """The upstream's own hipify step.

    The script is given the sources, by their paths in the tree, after the other
    arguments. It runs in an empty folder that stands for the build's, or in the tree.

    Attributes:
        script: The script in the tree, in Python.
        arguments: What it is given before the sources. `{project}` is the project's
            folder in the tree, `{output}` the folder of the same path in the build.
        build_file: The file in the tree that says where the build runs it, or empty.
        in_tree: A regular expression; where it is found in that file, the script runs
            in the tree.
        project: The folder in the tree that it copies and rewrites; also the root
            of what its files include.
        suffixes: Sources that it is given.
        cuda_sources: Regular expressions over the paths of sources that the upstream
            builds for CUDA alone: a patch that touches one need not have it hipified.
        renames: How the build derives the path of an output from that of a source:
            regular expressions and the texts that take the place of each match, in order.
        cuda_only: Regular expressions over the names of headers that no hipified
            file may include.
        defined: Macros that are defined when the outputs are compiled.
        undefined: Macros that are not.
        module: The Python module that the script cannot do without.
        timeout: Seconds that the script may take.
    """

    script: TreePath
    arguments: Lines = ("-p", "{project}", "-o", "{output}")
    build_file: TreePath | Literal[""] = ""
    in_tree: Pattern = ""
    project: TreePath
    suffixes: Annotated[tuple[Line, ...], Field(strict=False)] = (".cu",)
    cuda_sources: Annotated[tuple[Pattern, ...], Field(strict=False)] = ()
    renames: Annotated[
        tuple[Annotated[tuple[Pattern, str], Field(strict=False)], ...], Field(strict=False)
    ] = ()
    cuda_only: Annotated[tuple[Pattern, ...], Field(strict=False)] = ()
    defined: Lines = ()
    undefined: Lines = ()
    module: Line = "torch.utils.hipify.hipify_python"
    timeout: Seconds = 120.0


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

    In commands and variables `{tree}` (the copy), `{python}`, `{jobs}`, `{target}`
    and `{version}` (the pin's tag without its `v`) are filled in.

    Attributes:
        targets: The hardware that it builds for.
        folder: Where in the copy of the tree the commands run.
        commands: Programs with their arguments, run one after the other.
        env: Environment variables.
        requires: Programs that must be on PATH, and `python:MODULE`.
        needs: Paths that the tree must hold; a release's archive may lack some.
        python: Folders of the copy that go on Python's path afterwards.
        extension: A shared library in the copy that checks load, or empty.
        discard: Folders of the copy that nothing needs afterwards.
        takes: How long it takes, in words.
        timeout: Seconds that it may take.
    """

    targets: Annotated[tuple[Target, ...], Field(strict=False, min_length=1)]
    folder: TreePath | Literal["."] = "."
    commands: Annotated[
        tuple[Annotated[Lines, Field(min_length=1)], ...], Field(strict=False, min_length=1)
    ]
    env: Environment = Field(default_factory=dict)
    requires: Lines = ()
    needs: TreePaths = ()
    python: Annotated[tuple[TreePath | Literal["."], ...], Field(strict=False)] = (".",)
    extension: TreePath | Literal[""] = ""
    discard: TreePaths = ()
    takes: Line | Literal[""] = ""
    timeout: Seconds = 7200.0

    @model_validator(mode="after")
    def _known_placeholders(self) -> BuildRecipe:
        for text in (*(word for argv in self.commands for word in argv), *self.env.values()):
            for name in _PLACEHOLDER.findall(text):
                if name not in PLACEHOLDERS:
                    raise ValueError(f"{{{name}}}: not one of {', '.join(PLACEHOLDERS)}")
        return self
