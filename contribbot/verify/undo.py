"""The child's side of the run `undone`: the base's statements under patched signatures."""

from __future__ import annotations

import ast
import copy
import difflib
import importlib.machinery
import inspect
import io
import json
import os
import sys
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path
from types import CodeType, ModuleType
from typing import IO, Final, TypeAlias

Function: TypeAlias = ast.FunctionDef | ast.AsyncFunctionDef
Source: TypeAlias = str | tuple[list[str], int]
_Definition: TypeAlias = Function | ast.ClassDef
_FUNCTIONS: Final = (ast.FunctionDef, ast.AsyncFunctionDef)
_DEFINITIONS: Final = (*_FUNCTIONS, ast.ClassDef)
#: What runs a script by its path: `python -c` this, the script and its arguments.
_AS_MAIN: Final = """\
import os, runpy, sys
del sys.argv[0]
if sys.path[0] == "":
    sys.path[0] = os.path.dirname(sys.argv[0])
runpy.run_path(sys.argv[0], run_name="__main__")
"""
#: What stands in a folder of Python's path, for the processes that a check starts.
_SITECUSTOMIZE: Final = """\
from contribbot.fallback.after_import import run_hidden
from contribbot.verify.undo import install
install({orders!r}, {checks!r})
run_hidden({folder!r})
"""


def undone(base: bytes, patched: bytes, unread: Collection[str] = ()) -> ast.Module:
    """Return a file's module with the base's statements; `unread` constants are mere names."""
    old, new = ast.parse(base), ast.parse(patched)
    module = ast.Module(_merged(old.body, new.body, fresh=not old.body), [])
    rebound = {(*_names(part),): part for part in new.body if {*_names(part)} & {*unread}}
    module.body = [rebound.get((*_names(part),), part) for part in module.body]
    return ast.fix_missing_locations(module)


def changed_constants(base: bytes, patched: bytes) -> set[str]:
    """Return the names of a module's constants that a patch changes, and that it does not read."""
    old, new = ast.parse(base), ast.parse(patched)
    values = [
        {
            name: ast.dump(part)
            for part in module.body
            if _is_constant(part)
            for name in _names(part)
        }
        for module in (old, new)
    ]
    read = {
        node.id if isinstance(node, ast.Name) else node.attr
        for node in ast.walk(new)
        if isinstance(node, ast.Name | ast.Attribute) and isinstance(node.ctx, ast.Load)
    }
    return {name for name in values[0] if values[1].get(name, "") != values[0][name]} - read


def _is_constant(statement: ast.stmt) -> bool:
    value = statement.value if isinstance(statement, ast.Assign | ast.AnnAssign) else None
    return isinstance(value, ast.Constant)


def can_undo(base: bytes, patched: bytes, unread: Collection[str]) -> bool:
    """Say whether something is left to undo of what a patch makes of a file."""
    try:
        return ast.dump(undone(base, patched, unread)) != ast.dump(ast.parse(patched))
    except (SyntaxError, ValueError, RecursionError):
        return False  # no check loads it


def _merged(old: Sequence[ast.stmt], new: Sequence[ast.stmt], *, fresh: bool) -> list[ast.stmt]:
    """Return the statements of one block; `fresh`: the base does not have it."""
    before, after = _keys(old), _keys(new)
    known, result = set(before), list[ast.stmt]()
    steps = difflib.SequenceMatcher(None, before, after, autojunk=False).get_opcodes()
    for step, start, end, first, last in steps:
        if step == "equal":
            result += map(_kept, old[start:end], new[first:last])
            continue
        bound = {name for statement in old for name in _names(statement)}
        for key, statement in zip(after[first:last], new[first:last], strict=True):
            if key not in known:
                result += _only_named(statement, bound, fresh=fresh)
        moved = dict(zip(after, new, strict=True))
        result += (
            _kept(statement, moved.get(key, statement))
            for key, statement in zip(before[start:end], old[start:end], strict=True)
        )
    return result


def _keys(block: Sequence[ast.stmt]) -> list[str]:
    """Return what tells the statements of a block apart: a definition by its name."""
    seen = Counter[str]()
    keys = []
    for number, statement in enumerate(block):
        key = ast.dump(statement)
        if isinstance(statement, _DEFINITIONS):
            key = f"{type(statement).__name__} {statement.name} {seen[statement.name]}"
            seen[statement.name] += 1
        elif number == 0 and _is_docstring(statement):
            key = "docstring"
        keys.append(key)
    return keys


def _kept(old: ast.stmt, new: ast.stmt) -> ast.stmt:
    """Return a statement that both have, with what it does as the base has it."""
    if isinstance(old, _FUNCTIONS) and isinstance(new, _FUNCTIONS):
        return _function(old, new)
    if isinstance(old, ast.ClassDef) and isinstance(new, ast.ClassDef):
        changed = copy.copy(new)
        changed.bases, changed.keywords = old.bases, old.keywords
        changed.decorator_list = old.decorator_list
        changed.body = _merged(old.body, new.body, fresh=False)
        return changed
    return new


def _function(old: Function, new: Function) -> Function:
    changed = copy.copy(new)
    said, does = _split(new.body)[0], _split(old.body)[1]
    changed.body = [*said, *(does or [ast.Pass()])]
    changed.decorator_list = old.decorator_list
    if {*_parameters(old.args)} <= {*_parameters(new.args)}:
        changed.args = _with_defaults(new.args, old.args)
    else:  # the base's statements need its own parameters
        changed.args = old.args
    return changed


def _split(body: list[ast.stmt]) -> tuple[list[ast.stmt], list[ast.stmt]]:
    """Return the docstring of a body, and the rest."""
    number = 1 if body and _is_docstring(body[0]) else 0
    return body[:number], body[number:]


def _is_docstring(statement: ast.stmt) -> bool:
    value = statement.value if isinstance(statement, ast.Expr) else None
    return isinstance(value, ast.Constant) and isinstance(value.value, str)


def _parameters(arguments: ast.arguments) -> Iterator[str]:
    for node in ast.walk(arguments):
        if isinstance(node, ast.arg):
            yield node.arg


def _with_defaults(new: ast.arguments, old: ast.arguments) -> ast.arguments:
    """Return a signature whose parameters default to what the base has for them."""
    changed, before = copy.copy(new), _defaults(old)
    positional = [*new.posonlyargs, *new.args][-len(new.defaults) :] if new.defaults else []
    changed.defaults = [
        before.get(parameter.arg, default)
        for parameter, default in zip(positional, new.defaults, strict=True)
    ]
    changed.kw_defaults = [
        default and before.get(parameter.arg, default)
        for parameter, default in zip(new.kwonlyargs, new.kw_defaults, strict=True)
    ]
    return changed


def _defaults(arguments: ast.arguments) -> dict[str, ast.expr]:
    positional = [*arguments.posonlyargs, *arguments.args]
    pairs = [
        *zip(reversed(positional), reversed(arguments.defaults), strict=False),
        *zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True),
    ]
    return {parameter.arg: default for parameter, default in pairs if default is not None}


def _names(statement: ast.stmt) -> Iterator[str]:
    """Yield the names that a statement binds."""
    if isinstance(statement, _DEFINITIONS):
        yield statement.name
    elif isinstance(statement, ast.Import | ast.ImportFrom):
        yield from (alias.asname or alias.name.partition(".")[0] for alias in statement.names)
    elif isinstance(statement, ast.Assign | ast.AnnAssign):
        targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
        yield from (target.id for target in targets if isinstance(target, ast.Name))


def _only_named(statement: ast.stmt, bound: set[str], *, fresh: bool) -> Iterator[ast.stmt]:
    """Yield what is left of a statement that the base lacks: the names that are new."""
    names = {*_names(statement)}
    future = isinstance(statement, ast.ImportFrom) and statement.module == "__future__"
    if future or _marks(statement, bound):
        yield statement
    elif not names or names & bound:
        return
    elif isinstance(statement, _FUNCTIONS):
        # What Python calls by itself says more than its name.
        if fresh or not (statement.name.startswith("__") and statement.name.endswith("__")):
            yield _emptied(statement)
    elif isinstance(statement, ast.ClassDef):
        changed = copy.copy(statement)
        changed.body = [
            _emptied(part) if isinstance(part, _FUNCTIONS) else part for part in statement.body
        ]
        yield changed
    else:
        yield statement


def _marks(statement: ast.stmt, bound: Collection[str]) -> bool:
    """Say whether a statement puts a constant on something of its own module."""
    target = statement.targets[0] if isinstance(statement, ast.Assign) else None
    owner = target.value if isinstance(target, ast.Attribute) else None
    return isinstance(owner, ast.Name) and owner.id in bound and _is_constant(statement)


def _emptied(function: Function) -> Function:
    changed = copy.copy(function)
    nothing: list[ast.stmt] = [ast.Pass()]
    if any(isinstance(part, ast.Yield | ast.YieldFrom) for part in ast.walk(function)):
        nothing = [ast.Return(), ast.Expr(ast.Yield())]
    changed.body = [*_split(function.body)[0], *nothing]
    return changed


class _Files:
    """The files that are executed with the base's statements, by path."""

    def __init__(self, bases: Mapping[str, tuple[str, Sequence[str]]]) -> None:
        #: The path of the base's text for each (no text: it has none), and the unread constants.
        self.bases = bases
        self._modules: dict[str, ast.Module] = {}

    def module(self, path: str) -> ast.Module:
        if path not in self._modules:
            self._modules[path] = undone(
                self.base(path), Path(path).read_bytes(), self.bases[path][1]
            )
        return self._modules[path]

    def base(self, path: str) -> bytes:
        return Path(self.bases[path][0]).read_bytes()

    def code(self, path: str) -> CodeType:
        return compile(self.module(path), path, "exec", dont_inherit=True)

    def source(self, code: CodeType) -> str:
        """Return the source of a function as it is executed; empty: it is not of these files."""
        node: ast.AST | None = None
        if code.co_filename in self.bases:
            node = self.module(code.co_filename)
            for name in code.co_qualname.replace("<locals>.", "").split("."):
                parts = node.body if isinstance(node, ast.Module | _Definition) else []
                found = (p for p in parts if isinstance(p, _DEFINITIONS) and p.name == name)
                node = next(found, None)
        return ast.unparse(node) if isinstance(node, _DEFINITIONS) else ""


def arrange(folder: Path, bases: Mapping[Path, tuple[bytes, Sequence[str]]]) -> Path:
    """Write the orders for a run into a folder; on Python's path they reach other processes."""
    folder.mkdir()
    copies = {}
    for number, (path, (base, unread)) in enumerate(bases.items()):
        copies[str(path)] = (str(folder / f"{number}.base"), [*unread])
        (folder / f"{number}.base").write_bytes(base)
    orders = folder / "orders.json"
    orders.write_text(json.dumps(copies), encoding="utf-8")
    checks = str(folder.parent / "checks")
    text = _SITECUSTOMIZE.format(orders=str(orders), folder=str(folder), checks=checks)
    (folder / "sitecustomize.py").write_text(text, encoding="utf-8")
    return orders


def install(orders: str, checks: str) -> None:
    """Execute the files of the orders with the base's statements; `checks` still sees the text."""
    files = _Files(json.loads(Path(orders).read_bytes()))
    loader = importlib.machinery.SourceFileLoader
    get_code, exec_module = loader.get_code, loader.exec_module

    def undone_code(self: importlib.machinery.SourceFileLoader, name: str) -> CodeType | None:
        return files.code(self.path) if self.path in files.bases else get_code(self, name)

    def execute(self: importlib.machinery.SourceFileLoader, module: ModuleType) -> None:
        if self.path not in files.bases:
            exec_module(self, module)
            return
        try:
            exec_module(self, module)
        except Exception:  # noqa: BLE001  whatever the mixture lacks, the base's file has
            base = compile(files.base(self.path), self.path, "exec", dont_inherit=True)
            exec(base, vars(module))  # noqa: S102  as a loader does

    open_code = io.open_code

    def opened(path: str) -> IO[bytes]:  # by runpy
        if path not in files.bases:
            return open_code(path)
        return io.BytesIO(ast.unparse(files.module(path)).encode())

    io.open_code = opened
    arguments = sys.argv or [""]
    script = os.path.abspath(arguments[0])  # noqa: PTH100  links stay, as loaders name files
    if script in files.bases:  # Python would read it by itself
        options = sys.orig_argv[1 : len(sys.orig_argv) - len(arguments)]
        command = [sys.executable, *options, "-c", _AS_MAIN, script, *arguments[1:]]
        os.execv(sys.executable, command)  # noqa: S606  the same program, as it was started
    # For all loaders, on purpose; typeshed has them in base classes.
    loader.get_code = undone_code  # type: ignore[method-assign,assignment]  # as said
    loader.exec_module = execute  # type: ignore[method-assign,assignment]  # as said
    for name in ("getsource", "getsourcelines"):
        setattr(inspect, name, _executed(getattr(inspect, name), files, checks))


def _executed(
    read: Callable[[object], Source], files: _Files, checks: str
) -> Callable[[object], Source]:
    """Give who compiles a function's source what is executed, and a check what the file says."""

    def executed(function: object) -> Source:
        code = getattr(function, "__code__", None)
        text = files.source(code) if isinstance(code, CodeType) else ""
        caller = sys._getframe(1)  # noqa: SLF001  nothing public is as cheap
        while caller.f_code.co_filename in {inspect.__file__, __file__} and caller.f_back:
            caller = caller.f_back
        if not text or Path(caller.f_code.co_filename).is_relative_to(checks):
            return read(function)
        if read.__name__ == "getsource":
            return text
        return text.splitlines(keepends=True), code.co_firstlineno if code else 0

    return executed
