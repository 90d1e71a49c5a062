"""A Triton kernel of a tree, without what else its module imports."""

from __future__ import annotations

import ast
import builtins
import importlib
import types
from collections.abc import Iterable, Iterator
from functools import cached_property
from pathlib import Path
from typing import Final

from contribbot.errors import UsageError

#: Names by which upstreams have Triton's modules, wherever they import them from.
_TRITON: Final = {
    "triton": "triton", "tl": "triton.language", "libdevice": "triton.language.extra.libdevice",
    "tldevice": "triton.language.extra.libdevice",
}  # fmt: skip


class KernelSource:
    """A file of a tree, of which only the functions and constants run that a kernel names."""

    def __init__(self, path: Path, root: Path, loaded: dict[Path, KernelSource]) -> None:
        self._path, self._root, self._loaded = path, root, loaded
        loaded[path] = self
        try:
            self._tree = ast.parse(path.read_bytes())
        except (OSError, SyntaxError) as error:
            raise UsageError(f"{path}: cannot be read as Python: {error}") from error
        self._module = types.ModuleType(".".join(path.relative_to(root).with_suffix("").parts))

    def find(self, name: str) -> object:
        """Return what a name stands for at the top of the file."""
        if not hasattr(self._module, name):
            self._define(name)
        return getattr(self._module, name)

    def without_defaults(self, name: str) -> KernelSource:
        """Take away the defaults of a function: a launch gives each argument."""
        node = self._nodes.get(name)
        if isinstance(node, ast.FunctionDef):
            node.args.defaults = []
            node.args.kw_defaults = [None] * len(node.args.kwonlyargs)
        return self

    @cached_property
    def _nodes(self) -> dict[str, ast.stmt]:
        return {name: node for node in _statements(self._tree.body) for name in _names(node)}

    def _define(self, name: str) -> None:
        node = self._nodes.get(name)
        if node is None:
            raise UsageError(f"{self._path}: the file has no {name}")
        if isinstance(node, ast.ImportFrom):
            setattr(self._module, name, self._imported(node, name))
            return
        if isinstance(node, ast.FunctionDef):
            # Autotuning and heuristics have chosen already.
            node.decorator_list = [each for each in node.decorator_list if "jit" in ast.dump(each)]
        for used in _used(node) & self._nodes.keys() - {name}:
            if not hasattr(self._module, used):
                self._define(used)
        code = compile(ast.Module([node], []), str(self._path), "exec")
        exec(code, vars(self._module))  # noqa: S102  the tree's own code, as a check runs it

    def _imported(self, node: ast.ImportFrom, name: str) -> object:
        """Return what an import brings: Triton, something of the tree, or of what is installed."""
        if name in _TRITON:
            return importlib.import_module(_TRITON[name])
        asked = next(each.name for each in node.names if name in {each.asname, each.name})
        package = [*self._path.relative_to(self._root).parts][: -node.level] if node.level else []
        parts = [*package, *(node.module or "").split(".")]
        base = self._root.joinpath(*filter(None, parts))
        for path in (base.with_suffix(".py"), base / "__init__.py"):
            if path.is_file():
                source = self._loaded.get(path) or KernelSource(path, self._root, self._loaded)
                return source.find(asked)
        return getattr(importlib.import_module(".".join(filter(None, parts))), asked)


def _statements(body: Iterable[ast.stmt]) -> Iterator[ast.stmt]:
    """Yield statements, those within conditions too."""
    for node in body:
        yield node
        for name in ("orelse", "body"):
            if isinstance(node, (ast.If, ast.Try)):
                yield from _statements(getattr(node, name))


def _names(node: ast.stmt) -> list[str]:
    """Return the names that a statement defines."""
    if isinstance(node, (ast.Import, ast.ImportFrom)):
        return [each.asname or each.name.partition(".")[0] for each in node.names]
    if isinstance(node, ast.FunctionDef):
        return [node.name]
    targets = node.targets if isinstance(node, ast.Assign) else []
    if isinstance(node, ast.AnnAssign):
        targets = [node.target]
    return [each.id for each in targets if isinstance(each, ast.Name)]


def _used(node: ast.AST) -> set[str]:
    """Return the names that a statement reads."""
    names = {each.id for each in ast.walk(node) if isinstance(each, ast.Name)}
    return names - vars(builtins).keys()


def tree_kernel(path: Path, module: str, name: str) -> object:
    """Return a function of a module that is a file of a tree."""
    root = path.parents[len(module.split(".")) - 1]
    kernel = KernelSource(path, root, {}).without_defaults(name).find(name)
    # Triton reads the text, defaults too.
    if (update := getattr(kernel, "_unsafe_update_src", None)) is not None:
        update(_without_names(getattr(kernel, "src", "")))
    return kernel


def _without_names(source: str) -> str:
    """Return a function's text with 0 for each default that is no constant, on the same lines."""
    lines = source.encode().split(b"\n")
    function = ast.parse(source).body[0]
    assert isinstance(function, ast.FunctionDef)  # noqa: S101  Triton has read it
    given = [*function.args.defaults, *filter(None, function.args.kw_defaults)]
    for node in reversed(given):
        first, last = node.lineno - 1, (node.end_lineno or node.lineno) - 1
        if not isinstance(node, ast.Constant):
            rest = lines[last][node.end_col_offset :]
            lines[first : last + 1] = [
                lines[first][: node.col_offset] + b"0", *[b""] * (last - first - 1),
                *([rest] if last > first else []),
            ]  # fmt: skip
            if last == first:
                lines[first] += rest
    return b"\n".join(lines).decode()
