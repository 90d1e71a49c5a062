"""Runs the tree's `cmake/hipify.py` over torch's real hipify, in a project of the test's own.

The script runs in this process, as `python cmake/hipify.py …` would run it: importing
torch takes longer than all that it does. What hipify remembers between calls is cleared.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import runpy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from unittest import mock

from torch.utils.hipify import hipify_python

TREE = Path(os.environ["CONTRIBBOT_TREE"])
_RENAME = re.compile(r'string\(REGEX REPLACE "([^"]*)" "([^"]*)" SRC \$\{SRC\}\)')


#: How `hipify_all` says that the script runs in the source folder; at v0.22.0 it does not.
_IN_SOURCE = re.compile(r"hipify_all\s[^()]*WORKING_DIRECTORY \$\{CMAKE_SOURCE_DIR\}")


def _in_cmake(text: str) -> str:
    """Return what CMake makes of a quoted argument: a backslash before a sign goes."""
    return re.sub(r"\\(\W)", r"\1", text)


def output_of(source: str) -> str:
    """Return the output that `hipify_sources_target` names for a source, by the tree's rules."""
    text = (TREE / "cmake" / "utils.cmake").read_text(encoding="utf-8")
    body = text.partition("function (hipify_sources_target ")[2].partition("endfunction()")[0]
    rules = _RENAME.findall(body)
    assert len(rules) == 2
    for pattern, replacement in rules:
        source = re.sub(_in_cmake(pattern), _in_cmake(replacement), source)
    return source


@dataclass(frozen=True)
class Project:
    """A project and its build folder, by the names under which the caller knows them.

    Attributes:
        csrc: The project folder.
        build: The build folder.
    """

    csrc: Path
    build: Path

    def hipify(self, *sources: str | Path) -> list[str]:
        """Run the script where `hipify_all` does: in the build folder, or beside the project.

        Returns:
            The last lines that it prints: one for each source.
        """
        printed = io.StringIO()
        arguments = ["-p", self.csrc, "-o", self.build / "csrc", *sources]
        script = TREE / "cmake" / "hipify.py"
        cmake = (TREE / "cmake" / "utils.cmake").read_text(encoding="utf-8")
        folder = self.csrc.parent if _IN_SOURCE.search(cmake) else self.build
        hipify_python.HIPIFY_FINAL_RESULT.clear()
        with (
            contextlib.chdir(folder),
            contextlib.redirect_stdout(printed),
            contextlib.redirect_stderr(io.StringIO()),
            mock.patch("sys.argv", [str(script), *map(str, arguments)]),
        ):
            runpy.run_path(str(script), run_name="__main__")
        return printed.getvalue().splitlines()[-len(sources) :] if sources else []

    def output(self, source: str) -> Path:
        """Return where CMake looks for the output of `csrc/…`."""
        return self.build / output_of(source)

    def read(self, path: str) -> str:
        """Return a file of the build folder's `csrc/`."""
        return (self.build / "csrc" / path).read_text(encoding="utf-8")

    def state(self) -> dict[str, bytes]:
        """Return what the project holds."""
        return {
            path.relative_to(self.csrc).as_posix(): path.read_bytes()
            for path in sorted(self.csrc.rglob("*"))
            if path.is_file()
        }


#: How the folders are reached, where the base does its work.
USUAL = ("plain", "spaces", "linked source", "nested")
#: And where it leaves every header as it is.
MISSED = ("linked build", "linked both")


def lay_out(folder: Path, layout: str, files: Mapping[str, str]) -> Project:
    """Write a project and make its build folder.

    Args:
        folder: An empty folder.
        layout: One of `USUAL` or `MISSED`.
        files: The project's files.
    """
    root = folder / ("a name with spaces" if layout == "spaces" else "root")
    # A build folder whose path goes on where the project's ends.
    csrc, build = root / "csrc", root / ("csrc-build" if layout == "nested" else "build")
    for name, text in files.items():
        path = csrc / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    build.mkdir()
    if layout in {"linked build", "linked both"}:
        (folder / "link to build").symlink_to(build)
        build = folder / "link to build"
    if layout in {"linked source", "linked both"}:
        (folder / "link to root").symlink_to(root)
        csrc = folder / "link to root" / "csrc"
    return Project(csrc, build)


def missing(project: Project, sources: Sequence[str]) -> list[str]:
    """Return the outputs that are not where CMake looks for them."""
    return [output_of(source) for source in sources if not project.output(source).is_file()]
