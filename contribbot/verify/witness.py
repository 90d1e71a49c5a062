"""Which lines a patch adds that do something, told by syntax trees."""

from __future__ import annotations

import ast
import difflib
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Final

#: Statements of which no line does anything when a check runs: they declare, or are nothing.
_DECLARES: Final = (
    ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Import, ast.ImportFrom,
    ast.Global, ast.Nonlocal, ast.Pass,
)  # fmt: skip
#: The fields of a compound statement that hold other statements.
_BLOCKS: Final = ("body", "orelse", "finalbody", "handlers", "cases")


@dataclass(frozen=True)
class Statement:
    """A statement of a file.

    Attributes:
        key: What it says and what it stands in, without what it holds.
        lines: Its own lines, without those of what it holds.
        acts: Whether it does something when it is run.
    """

    key: tuple[str, ...]
    lines: range
    acts: bool


def new_statements(base: bytes, patched: bytes, added: Collection[int]) -> list[Statement]:
    """Return the statements of a file that a patch adds and that do something.

    Comments, docstrings, blank lines, other spellings of the same, and what the compiler
    drops are none.
    """
    module = _parse(patched)
    before, after = list(_walk(_parse(base), ())), list(_walk(module, ()))
    unused = _unused_constants(module)
    same = difflib.SequenceMatcher(
        None, [one.key for one in before], [one.key for one in after], autojunk=False
    ).get_matching_blocks()
    kept = {b + step for _, b, size in same for step in range(size)}
    lines = set(added)
    new = [
        statement
        for number, statement in enumerate(after)
        if number not in kept and statement.acts and statement.lines.start not in unused
    ]
    # Where only the head of a definition changes, it is its body that acts otherwise.
    return [one for one in new if not lines.isdisjoint(one.lines)] or new


def _parse(source: bytes) -> ast.Module:
    """Return the syntax tree of a file; of one that does not compile, an empty one."""
    try:
        return ast.parse(source)
    except (SyntaxError, ValueError):
        return ast.Module([], [])


def _unused_constants(module: ast.Module) -> set[int]:
    """Return the lines of a module's constants that nothing in the module reads."""
    names = [node for node in ast.walk(module) if isinstance(node, ast.Name)]
    read = {node.id for node in names if isinstance(node.ctx, ast.Load)}
    return {
        statement.lineno
        for statement in module.body
        if isinstance(statement, ast.Assign | ast.AnnAssign)
        and not any(
            isinstance(node, ast.Call) or (isinstance(node, ast.Name) and node.id in read)
            for part in ast.iter_child_nodes(statement)
            if part is not getattr(statement, "annotation", None)
            for node in ast.walk(part)
        )
    }


def _walk(node: ast.AST, path: tuple[str, ...]) -> Iterator[Statement]:
    for field, value in ast.iter_fields(node):
        if field not in _BLOCKS:
            continue
        for child in value:
            head = _head(child)
            inner = (*path, field, head)
            if isinstance(child, ast.stmt):
                if _dropped(child):
                    continue
                yield Statement(inner, _own_lines(child), not isinstance(child, _DECLARES))
            yield from _walk(child, inner)


def _dropped(statement: ast.stmt) -> bool:
    """Say whether the compiler makes nothing of a statement."""
    if isinstance(statement, ast.Expr):
        return isinstance(statement.value, ast.Constant | ast.Name)
    if isinstance(statement, ast.AnnAssign):
        return statement.value is None
    if isinstance(statement, ast.If | ast.While):
        never = isinstance(statement.test, ast.Constant) and not statement.test.value
        return never and not statement.orelse
    return False


def _head(node: ast.AST) -> str:
    """Return what a node says, without the statements that it holds."""
    parts = [
        f"{field}={_dump(value)}" for field, value in ast.iter_fields(node) if field not in _BLOCKS
    ]
    return f"{type(node).__name__}({', '.join(parts)})"


def _dump(value: object) -> str:
    if isinstance(value, list):
        return ", ".join(map(_dump, value))
    return ast.dump(value) if isinstance(value, ast.AST) else repr(value)


def _own_lines(statement: ast.stmt) -> range:
    inside = [
        child.lineno
        for field, value in ast.iter_fields(statement)
        if field in _BLOCKS
        for child in value
        if isinstance(child, ast.stmt | ast.excepthandler)
    ]
    last = statement.end_lineno or statement.lineno
    return range(statement.lineno, max(statement.lineno + 1, min([last + 1, *inside])))
