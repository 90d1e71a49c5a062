"""Finds all modules that a check lacks, where a plain run ends at the first."""

from __future__ import annotations

import ast
import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import json
import sys
from collections.abc import Iterator, MutableSequence, Sequence
from pathlib import Path
from types import ModuleType
from typing import Final

from contribbot import process

#: More than any check was seen to lack.
_MOST: Final = 100
_PROBE: Final = "from contribbot.verify.missing import main; main()"


def missing_modules(
    file: str, *, cwd: Path, env: dict[str, str], sandbox: Path | None
) -> tuple[str, ...]:
    """Return the modules that a check's file lacks, in the order in which imports ask for them."""
    done = process.supervise(
        [sys.executable, "-B", "-c", _PROBE, file], cwd=cwd, env=env, timeout=60, sandbox=sandbox
    )
    last = done.output.decode("utf-8", "replace").splitlines()[-1:]
    try:
        return tuple(str(name) for name in json.loads(last[0]))
    except (LookupError, ValueError, TypeError):
        return ()


class _StandIn(ModuleType):
    """A module that has everything that anybody imports from it."""

    __path__: MutableSequence[str] = []  # noqa: RUF012  a package's path; nobody changes it

    def __getattr__(self, name: str) -> type:
        if name.startswith("__"):
            raise AttributeError(name)
        return type(name, (), {})


class _Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Gives stand-ins for modules that were found to be missing, and for what lies below them."""

    def __init__(self) -> None:
        self.missing: list[str] = []

    def find_spec(
        self, fullname: str, _path: Sequence[str] | None, _target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if any(f"{fullname}.".startswith(f"{name}.") for name in self.missing):
            return importlib.machinery.ModuleSpec(fullname, self, is_package=True)
        return None

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType:
        return _StandIn(spec.name)

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
    """Import what the file imports; whatever is missing is noted and stood in for."""
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
            except BaseException:  # noqa: BLE001  a stand-in may lead anything astray
                break
            else:
                break
    sys.stdout.write(f"\n{json.dumps(finder.missing)}\n")
