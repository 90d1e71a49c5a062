"""The trees of a patch, and what is known of one: where it runs, and what was made of it."""

from __future__ import annotations

import difflib
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from pydantic import JsonValue

from contribbot.verify.includes import Left


@dataclass
class Trees:
    """The ids of what the stages work on; empty until `source` and `apply` have passed."""

    pin_commit: str = ""
    base_commit: str = ""  # the pin with the dependencies on top
    base: str = ""  # the base's tree
    tested: str = ""  # the base's tree with the tests of the patch over it: what runs on the base
    patched_commit: str = ""  # the base with the patch on top
    patched: str = ""  # the patched tree

    @property
    def sides(self) -> tuple[str, str]:
        """The base's tree and the patched tree."""
        return self.base, self.patched


@dataclass(frozen=True)
class Witnessed:
    """A file of which the executed lines are wanted."""

    path: str  # its path in the tree
    #: The lines that the patch adds to it: the number of each in the file that runs, and in the
    #: tree's. They differ where the change was merged onto another release's file.
    lines: Mapping[int, int]

    @classmethod
    def of(cls, path: str, wanted: Sequence[int], file: Path, runs: Path) -> Witnessed:
        """Find a tree's lines again in the file that runs in its place."""
        there, here = (side.read_bytes().splitlines() if wanted else [] for side in (runs, file))
        if there == here:
            return cls(path, {line: line for line in wanted})
        same = difflib.SequenceMatcher(None, there, here, autojunk=False).get_matching_blocks()
        again = {b + step + 1: a + step + 1 for a, b, size in same for step in range(size)}
        return cls(path, {again[line]: line for line in wanted if line in again})


@dataclass(frozen=True)
class RunLayout:
    """Where a tree runs."""

    tree: Path  # the exported tree
    python: tuple[Path, ...]  # folders that go on Python's path
    #: The Python files that the patch changes, by where each lies.
    witnessed: Mapping[str, Witnessed]
    env: Mapping[str, str]  # variables for what runs there
    under: Sequence[str] = ()  # the command before that of what runs there
    #: Files that are executed with the base's statements, each with the base's text and the names
    #: of constants that nothing reads.
    undone: Mapping[Path, tuple[bytes, Sequence[str]]] = field(default_factory=dict)

    @property
    def python_path(self) -> str:
        """The value of `PYTHONPATH`."""
        before = self.env.get("PYTHONPATH", "")
        return os.pathsep.join((*((before,) if before else ()), *map(str, self.python)))


@dataclass(frozen=True)
class Overlay:
    """A folder for Python's path that puts a tree over the installed packages."""

    folder: Path
    release: str  # what lies below, such as `torch 2.13.0+cpu`
    #: Files of the tree whose change was merged onto an installed file that is not the pin's.
    merged: tuple[str, ...]


def recorded(name: str, when: str, problems: Sequence[str]) -> dict[str, JsonValue]:
    """Return a step on one tree as a record keeps it: as one test."""
    failed: list[JsonValue] = [
        {"test": name, "when": when, "message": problem} for problem in problems
    ]
    return {"passed": [] if failed else [name], "failed": failed}


@dataclass(frozen=True)
class Hipified:
    """What the hipify step made of a tree."""

    trouble: str  # why the step did not end well; empty: it did
    #: The output of each source, and where one should be and is not: relative to `folder`.
    outputs: dict[str, str]
    missing: dict[str, str]
    #: What stands for the build's folder: the project's copy and the outputs lie in it, by the
    #: paths that the build looks for. Read only; there until the run ends.
    folder: Path
    cuda_only: Sequence[Left] = ()  # CUDA-only includes that the outputs and what they reach have
    command: str = ""  # as one would type it
    log: str = ""  # SHA-256 of the whole output, which `.contribbot/logs` keeps
    tail: str = ""
    transient: bool = False  # whether another run might end otherwise
    broken: bool = False  # whether it did not end well by this machine's fault and not the tree's
    seconds: float = 0.0

    @property
    def problems(self) -> list[str]:
        """What is wrong, a line each."""
        if self.trouble:
            return [self.trouble]
        return [
            *(f"{source} has no output {path}" for source, path in self.missing.items()),
            *(f"{left.file}:{left.line} includes {left.header}" for left in self.cuda_only),
        ]

    @property
    def files(self) -> dict[str, Path]:
        """The output of each source."""
        return {source: self.folder / path for source, path in self.outputs.items()}

    def summary(self) -> dict[str, JsonValue]:
        """Return what the record keeps."""
        return {
            **recorded("hipify", "call", self.problems),
            "outputs": {**self.outputs},
            "missing": {**self.missing},
            "cuda_only": [left.model_dump() for left in self.cuda_only],
            "command": self.command,
            "log": self.log,
            "tail": self.tail if self.trouble else "",
            **({"transient": True} if self.transient else {}),
        }
