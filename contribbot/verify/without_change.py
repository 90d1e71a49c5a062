"""Merge the base's statements into the patched tree's files, under the patched names."""

from __future__ import annotations

import ast
import builtins
import copy
import difflib
import importlib.machinery
import importlib.util
import inspect
import io
import json
import os
import pickle
import re
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
#: Expressions that run code of the tree, or that fail if a name has no value.
_WORKS: Final = (
    ast.Attribute, ast.Await, ast.BinOp, ast.Call, ast.Compare, ast.Subscript, ast.UnaryOp,
)  # fmt: skip
_WORDS: Final = re.compile(r"\w+|[^\w\s]")
#: The least share of words that a definition must keep to count as renamed.
_ALIKE: Final = 0.6
#: A program that runs a script by its path: `python -c PROGRAM SCRIPT ARGUMENTS`.
_AS_MAIN: Final = """\
import os, runpy, sys
del sys.argv[0]
if sys.path[0] == "":
    sys.path[0] = os.path.dirname(sys.argv[0])
runpy.run_path(sys.argv[0], run_name="__main__")
"""
#: The text of the `sitecustomize.py` for the Python processes that a check starts.
_SITECUSTOMIZE: Final = """\
from contribbot.fallback import run_hidden
from contribbot.verify.without_change import install
install({index!r}, {checks!r})
run_hidden({folder!r})
"""


def without_change(
    base: bytes, patched: bytes | None, is_read: Callable[[str], bool] = lambda _name: False
) -> ast.Module | None:
    """Return a patched file's module with the base's statements; None: no statement differs.

    A variable that no code reads keeps the patched value; `is_read`: whether another file reads a
    name. For a file that the patch removes (`patched` is None), the base's module is returned.
    """
    try:
        old = ast.parse(base)
        if patched is None:
            return old
        new = ast.parse(patched)
        module = ast.Module(_merged(old.body, new.body, fresh=not old.body), [])
        unread = {name for name in _changed_values(old, new) if not is_read(name)}
        patched_values = {names: part for part in new.body if (names := _names(part)) & unread}
        module.body = [patched_values.get(_names(part), part) for part in module.body]
        return None if ast.dump(module) == ast.dump(new) else ast.fix_missing_locations(module)
    except (SyntaxError, ValueError, RecursionError):
        return None  # no check can load the file


def _changed_values(old: ast.Module, new: ast.Module) -> set[str]:
    """Return the names whose values a patch changes, and that no code of the module reads."""
    values = [
        {name: ast.dump(part) for part in module.body if _is_value(part) for name in _names(part)}
        for module in (old, new)
    ]
    changed = {name for name in values[0] if values[1].get(name, "") != values[0][name]}
    readers = [part for part in new.body if "__all__" not in _names(part)]
    if any(_reads_itself(node) for part in readers for node in ast.walk(part)):
        return set()
    return changed - {
        name for part in readers for node in ast.walk(part) for name in _read_names(node)
    }


def _read_names(node: ast.AST) -> Iterator[str]:
    """Yield the name that a node reads: as a variable, an attribute, or a text for `getattr`."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        yield node.value
    elif isinstance(node, ast.Name | ast.Attribute) and isinstance(node.ctx, ast.Load):
        yield node.id if isinstance(node, ast.Name) else node.attr


def _reads_itself(node: ast.AST) -> bool:
    """Return whether a node may read a value of the module by a name made at run time."""
    if isinstance(node, ast.Name):
        return node.id == "globals"
    return isinstance(node, ast.Attribute) and ast.unparse(node) == "sys.modules"


def _is_value(statement: ast.stmt) -> bool:
    """Return whether a statement assigns a value to a name, and calls at most builtin types."""
    if not isinstance(statement, ast.Assign | ast.AnnAssign) or statement.value is None:
        return False
    calls = [node.func for node in ast.walk(statement.value) if isinstance(node, ast.Call)]
    return all(
        isinstance(call, ast.Name) and isinstance(getattr(builtins, call.id, None), type)
        for call in calls
    )


def _merged(old: Sequence[ast.stmt], new: Sequence[ast.stmt], *, fresh: bool) -> list[ast.stmt]:
    """Return a block's statements with the base's behaviour; `fresh`: the base lacks the block."""
    names = (
        [part.name for part in block if isinstance(part, _DEFINITIONS)] for block in (old, new)
    )
    twice = {name for block in names for name, count in Counter(block).items() if count > 1}
    before, after = _keys(old, twice), _keys(new, twice)
    base, patched = dict(zip(before, old, strict=True)), dict(zip(after, new, strict=True))
    renames = _renames(base, patched, twice)
    known, result = {*before, *renames.values()}, list[ast.stmt]()
    bound = {name for statement in old for name in _names(statement)}
    steps = difflib.SequenceMatcher(None, before, after, autojunk=False).get_opcodes()
    for step, start, end, first, last in steps:
        if step != "equal":
            for key in after[first:last]:
                if key not in known:
                    result += _named(patched[key], bound, fresh=fresh)
        for key in before[start:end]:
            result.append(_with_base(base[key], patched.get(renames.get(key, key), base[key])))
            if key in renames:  # the base's statements use the former name
                (former,), (name,) = _names(base[key]), _names(patched[renames[key]])
                alias = ast.Assign([ast.Name(former, ast.Store())], ast.Name(name, ast.Load()))
                result.append(ast.copy_location(alias, patched[renames[key]]))
    return result


def _renames(
    base: Mapping[str, ast.stmt], patched: Mapping[str, ast.stmt], twice: Collection[str]
) -> dict[str, str]:
    """Return, by a vanished definition's key, the key of the most similar new definition."""
    words = {
        key: Counter(_WORDS.findall(ast.unparse(part)))
        for block, other in ((base, patched), (patched, base))
        for key, part in block.items()
        if key not in other and isinstance(part, _DEFINITIONS) and part.name not in twice
    }
    pairs = [
        (2 * (words[old] & words[new]).total() / (words[old] + words[new]).total(), old, new)
        for old in words.keys() & base.keys()
        for new in words.keys() & patched.keys()
        if type(base[old]) is type(patched[new])
    ]
    renames: dict[str, str] = {}
    for likeness, old, new in sorted(pairs, reverse=True):
        if likeness >= _ALIKE and old not in renames and new not in renames.values():
            renames[old] = new
    return renames


def _keys(block: Sequence[ast.stmt], twice: Collection[str]) -> list[str]:
    """Return the keys by which statements of two blocks pair; definitions pair by their names.

    Definitions of the same name (`twice`: a property and its setter, overloads) pair by their
    decorators, then by their order.
    """
    seen = Counter[str]()
    keys = []
    for number, statement in enumerate(block):
        key = ast.dump(statement)
        if isinstance(statement, _DEFINITIONS):
            key = f"{type(statement).__name__} {statement.name}"
            if statement.name in twice:
                key += "".join(map(ast.dump, statement.decorator_list))
        elif number == 0 and _is_docstring(statement):
            key = "docstring"
        keys.append(f"{key} {seen[key]}")
        seen[key] += 1
    return keys


def _with_base(old: ast.stmt, new: ast.stmt) -> ast.stmt:
    """Merge a statement of both trees: the patched name and docstring, the base's behaviour."""
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
    docstring, statements = _split(new.body)[0], _split(old.body)[1]
    changed.body = [*docstring, *(statements or [ast.Pass()])]
    changed.decorator_list = old.decorator_list
    before, after = _positional(old.args), _positional(new.args)
    follows = after[: len(before)] == before and {*_all(old.args)} <= {*_all(new.args)}
    # The base's statements need the base's parameters at the same positions.
    changed.args = _with_defaults(new.args, old.args) if follows else old.args
    return changed


def _split(body: list[ast.stmt]) -> tuple[list[ast.stmt], list[ast.stmt]]:
    """Split a body into its docstring and the other statements."""
    number = 1 if body and _is_docstring(body[0]) else 0
    return body[:number], body[number:]


def _is_docstring(statement: ast.stmt) -> bool:
    value = statement.value if isinstance(statement, ast.Expr) else None
    return isinstance(value, ast.Constant) and isinstance(value.value, str)


def _all(arguments: ast.arguments) -> list[str]:
    return [node.arg for node in ast.walk(arguments) if isinstance(node, ast.arg)]


def _positional(arguments: ast.arguments) -> list[str]:
    return [parameter.arg for parameter in (*arguments.posonlyargs, *arguments.args)]


def _with_defaults(new: ast.arguments, old: ast.arguments) -> ast.arguments:
    """Return a patched signature with the base's defaults, and defaults for new parameters."""
    changed, before, after = copy.copy(new), _defaults(old), _defaults(new)
    known = {*_all(old)}

    def default(name: str) -> ast.expr | None:
        some = None if name in known else ast.Constant(None)
        return before.get(name, after.get(name, some))

    values = map(default, _positional(new))
    changed.defaults = [value for value in values if value is not None]
    changed.kw_defaults = [default(parameter.arg) for parameter in new.kwonlyargs]
    return changed


def _defaults(arguments: ast.arguments) -> dict[str, ast.expr]:
    pairs = [
        *zip(reversed(_positional(arguments)), reversed(arguments.defaults), strict=False),
        *zip((each.arg for each in arguments.kwonlyargs), arguments.kw_defaults, strict=True),
    ]
    return {name: default for name, default in pairs if default is not None}


def _names(statement: ast.stmt) -> frozenset[str]:
    """Return the names that a statement binds."""
    if isinstance(statement, _DEFINITIONS):
        return frozenset({statement.name})
    if isinstance(statement, ast.Import | ast.ImportFrom):
        aliases = statement.names
        return frozenset(alias.asname or alias.name.partition(".")[0] for alias in aliases)
    targets: list[ast.expr] = []
    if isinstance(statement, ast.Assign | ast.AnnAssign):
        targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
    nodes = (node for target in targets for node in ast.walk(target))
    return frozenset(
        node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
    )


def _named(statement: ast.stmt, bound: Collection[str], *, fresh: bool) -> Iterator[ast.stmt]:
    """Yield definitions of the names that a new statement binds, with empty functions."""
    names = _names(statement)
    future = isinstance(statement, ast.ImportFrom) and statement.module == "__future__"
    if future or _marks(statement, bound):
        yield statement
    elif not names or names & {*bound}:
        return
    elif isinstance(statement, _FUNCTIONS):
        # Python itself calls a special method, which therefore is behaviour and no mere name.
        if fresh or not (statement.name.startswith("__") and statement.name.endswith("__")):
            yield _none_on_error(_emptied(statement), names)
    elif isinstance(statement, ast.ClassDef):
        changed = copy.copy(statement)
        changed.body = [
            _emptied(part) if isinstance(part, _FUNCTIONS) else part for part in statement.body
        ]
        yield _none_on_error(changed, names)
    else:
        yield _none_on_error(statement, names)


def _none_on_error(statement: ast.stmt, names: Collection[str]) -> ast.stmt:
    """Wrap a statement in a `try` that sets the statement's names to None upon an error.

    The statement may call new functions, whose bodies are empty in the merged module.
    """
    decorated = isinstance(statement, _DEFINITIONS) and bool(statement.decorator_list)
    derived = isinstance(statement, ast.ClassDef) and bool(statement.bases)
    works = any(isinstance(node, _WORKS) for node in ast.walk(statement))
    if isinstance(statement, ast.Import | ast.ImportFrom) or not (decorated or derived or works):
        return statement
    unset = [
        ast.Assign([ast.Name(name, ast.Store())], ast.Constant(None)) for name in sorted(names)
    ]
    error = ast.ExceptHandler(ast.Name("Exception", ast.Load()), None, [*unset])
    return ast.copy_location(ast.Try([statement], [error], [], []), statement)


def _marks(statement: ast.stmt, bound: Collection[str]) -> bool:
    """Return whether a statement assigns a constant to an attribute of a name in `bound`."""
    if not isinstance(statement, ast.Assign) or not isinstance(statement.value, ast.Constant):
        return False
    target = statement.targets[0]
    owner = target.value if isinstance(target, ast.Attribute) else None
    return isinstance(owner, ast.Name) and owner.id in bound


def _emptied(function: Function) -> Function:
    changed = copy.copy(function)
    nothing: list[ast.stmt] = [ast.Pass()]
    if any(isinstance(part, ast.Yield | ast.YieldFrom) for part in ast.walk(function)):
        nothing = [ast.Return(), ast.Expr(ast.Yield())]
    changed.body = [*_split(function.body)[0], *nothing]
    return changed


def write_modules(folder: Path, modules: Mapping[Path, ast.Module]) -> Path:
    """Write the modules that a run executes in place of files; return the index for `install`.

    The folder has a `sitecustomize.py`, for the Python processes that a check starts.
    """
    folder.mkdir()
    files = {str(path): str(folder / f"{number}.ast") for number, path in enumerate(modules)}
    for file, module in zip(files.values(), modules.values(), strict=True):
        Path(file).write_bytes(pickle.dumps(module))
    index = folder / "index.json"
    index.write_text(json.dumps(files), encoding="utf-8")
    checks = str(folder.parent / "checks")
    text = _SITECUSTOMIZE.format(index=str(index), folder=str(folder), checks=checks)
    (folder / "sitecustomize.py").write_text(text, encoding="utf-8")
    return index


class _Modules:
    """The modules that run in place of files, by path, and the finder of removed files."""

    def __init__(self, files: Mapping[str, str]) -> None:
        self._files = files
        self._modules: dict[str, ast.Module] = {}

    def __contains__(self, path: str) -> bool:
        return path in self._files

    def __getitem__(self, path: str) -> ast.Module:
        if path not in self._modules:
            # contribbot wrote the file for this run.
            self._modules[path] = pickle.loads(Path(self._files[path]).read_bytes())  # noqa: S301
        return self._modules[path]

    def find_spec(
        self, name: str, path: Sequence[str] | None, _target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        """Return the spec of a removed file's module; `path`: the folders of its package."""
        for folder in sys.path if path is None else path:
            stem = os.path.join(folder, name.rpartition(".")[2])  # noqa: PTH118  as loaders name files
            for file, inside in ((f"{stem}/__init__.py", [stem]), (f"{stem}.py", None)):
                if file in self:
                    return importlib.util.spec_from_file_location(
                        name, file, submodule_search_locations=inside
                    )
        return None

    def source(self, code: CodeType) -> str:
        """Return the executed source of a function; empty: the function is not in these files."""
        node: ast.AST | None = None
        if code.co_filename in self:
            node = self[code.co_filename]
            for name in code.co_qualname.replace("<locals>.", "").split("."):
                parts = node.body if isinstance(node, ast.Module | _Definition) else []
                found = (p for p in parts if isinstance(p, _DEFINITIONS) and p.name == name)
                node = next(found, None)
        return ast.unparse(node) if isinstance(node, _DEFINITIONS) else ""


def install(index: str, checks: str) -> None:
    """Run modules in place of files; code in `checks` still reads the files' own text."""
    modules = _Modules(json.loads(Path(index).read_bytes()))
    loader = importlib.machinery.SourceFileLoader
    get_code, open_code = loader.get_code, io.open_code

    def code_without(self: importlib.machinery.SourceFileLoader, name: str) -> CodeType | None:
        if self.path not in modules:
            return get_code(self, name)
        return compile(modules[self.path], self.path, "exec", dont_inherit=True)

    def opened(path: str) -> IO[bytes]:  # called by runpy
        return (
            io.BytesIO(ast.unparse(modules[path]).encode()) if path in modules else open_code(path)
        )

    io.open_code = opened
    arguments = sys.argv or [""]
    script = os.path.abspath(arguments[0])  # noqa: PTH100  a link keeps its name, as in loaders
    if script in modules:  # Python itself would read this script's file
        options = sys.orig_argv[1 : len(sys.orig_argv) - len(arguments)]
        command = [sys.executable, *options, "-c", _AS_MAIN, script, *arguments[1:]]
        os.execv(sys.executable, command)  # noqa: S606  the same program, started again
    sys.meta_path.append(modules)
    # The method is replaced for all loaders on purpose; typeshed has the method in a base class.
    loader.get_code = code_without  # type: ignore[method-assign,assignment]  # as said
    for name in ("getsource", "getsourcelines"):
        setattr(inspect, name, _executed(getattr(inspect, name), modules, checks))


def _executed(
    read: Callable[[object], Source], modules: _Modules, checks: str
) -> Callable[[object], Source]:
    """Wrap `inspect.getsource`: a compiler gets the executed source, a check the file's source."""

    def executed(function: object) -> Source:
        code = getattr(function, "__code__", None)
        text = modules.source(code) if isinstance(code, CodeType) else ""
        caller = sys._getframe(1)  # noqa: SLF001  no public function is as cheap
        while caller.f_code.co_filename in {inspect.__file__, __file__} and caller.f_back:
            caller = caller.f_back
        if not text or Path(caller.f_code.co_filename).is_relative_to(checks):
            return read(function)
        if read.__name__ == "getsource":
            return text
        return text.splitlines(keepends=True), code.co_firstlineno if code else 0

    return executed
