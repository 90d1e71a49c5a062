"""Names all modules that a check's file lacks, where a plain run ends at the first."""

from __future__ import annotations

import ast
import importlib.abc
import importlib.machinery
import json
import sys
from collections.abc import Iterator, MutableSequence, Sequence
from pathlib import Path
from types import ModuleType
from typing import Final

#: More modules than any check was seen to lack.
_MOST: Final = 100


class _Anything(ModuleType):
    """A module that has everything that anybody imports from it."""

    __path__: MutableSequence[str] = []  # noqa: RUF012  a package's path; nobody changes it

    def __getattr__(self, name: str) -> type:
        if name.startswith("__"):
            raise AttributeError(name)
        return type(name, (), {})


class _Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Puts `_Anything` in place of what is missing, and of what lies below it."""

    def __init__(self) -> None:
        self.missing: list[str] = []

    def find_spec(
        self, fullname: str, _path: Sequence[str] | None, _target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if any(f"{fullname}.".startswith(f"{name}.") for name in self.missing):
            return importlib.machinery.ModuleSpec(fullname, self, is_package=True)
        return None

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType:
        return _Anything(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        """Nothing to run."""


def _imports(file: Path) -> Iterator[str]:
    """Yield the modules that a file imports, in functions too; not what it can do without."""
    pending: list[ast.AST] = [ast.parse(file.read_bytes())]
    while pending:
        node = pending.pop(0)
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module
        elif not isinstance(node, ast.Try):
            pending += ast.iter_child_nodes(node)


def main() -> None:
    """Print the modules that the file named first lacks, as JSON, in the last line."""
    finder = _Finder()
    sys.meta_path.append(finder)
    for name in _imports(Path(sys.argv[1])):
        while len(finder.missing) < _MOST:
            try:
                importlib.import_module(name)
            except ModuleNotFoundError as error:
                if error.name is None or error.name in finder.missing:
                    break
                finder.missing.append(error.name)
            except BaseException:  # noqa: BLE001  a module that is not real may lead anything astray
                break
            else:
                break
    sys.stdout.write(f"\n{json.dumps(finder.missing)}\n")
