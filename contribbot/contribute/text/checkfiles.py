"""What a check file needs: the files beside it that it imports."""

from __future__ import annotations

import ast
from collections.abc import Iterable
from pathlib import PurePosixPath
from typing import Final

from contribbot.model.patch import PatchFile

_OURS: Final = "contribbot"


def needed_files(support: tuple[PatchFile, ...], start: str) -> tuple[PatchFile, ...]:
    """Return a check file with the files beside it that it imports, directly or not."""
    known = {file.name: file for file in support}
    wanted = [start, *(["conftest.py"] if "conftest.py" in known else [])]
    found: dict[str, PatchFile] = {}
    while wanted:
        name = wanted.pop()
        if name in found or name not in known:
            continue
        found[name] = known[name]
        for module in imported(known[name].content):
            path = module.replace(".", "/")
            wanted += [f"{path}.py", f"{path}/__init__.py", f"{path.partition('/')[0]}/__init__.py"]
    # What is no Python file is read by name, which nobody can follow.
    data = [file for file in support if not file.name.endswith((".py", ".cpp", ".cu", ".hip"))]
    return (*found.values(), *data)


def name_any(files: tuple[PatchFile, ...], paths: Iterable[str]) -> bool:
    """Say whether one of some files names one of the upstream's files, by name without suffix."""
    stems = [PurePosixPath(path).stem.encode() for path in paths]
    return any(stem in file.content for file in files for stem in stems)


def imported(content: bytes) -> list[str]:
    """Return the names of the modules that a Python file may import."""
    names: list[str] = []
    for node in ast.walk(ast.parse(content)):
        if isinstance(node, ast.Import):
            names += [one.name for one in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            names += [node.module, *(f"{node.module}.{one.name}" for one in node.names)]
    return names


def needs_contribbot(files: tuple[PatchFile, ...]) -> bool:
    """Say whether one of some files imports contribbot."""
    return any(
        module.partition(".")[0] == _OURS
        for file in files
        if file.name.endswith(".py")
        for module in imported(file.content)
    )
