"""Which lines a patch adds that do something, told by syntax trees."""

from __future__ import annotations

import ast
import difflib
import dis
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from types import CodeType
from typing import Final

_DEFINITIONS: Final = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
#: Statements of which no line does anything when a check runs: they declare, or are nothing.
_DECLARES: Final = (
    *_DEFINITIONS, ast.Import, ast.ImportFrom, ast.Global, ast.Nonlocal, ast.Pass,
)  # fmt: skip
#: What an expression that does nothing is made of.
_PLAIN: Final = (ast.Constant, ast.Name, ast.JoinedStr, ast.expr_context)
#: The fields of a compound statement that hold other statements.
_BLOCKS: Final = ("body", "orelse", "finalbody", "handlers", "cases")


@dataclass(frozen=True)
class AddedStatement:
    """A statement of a file, and whether it does something when it is run."""

    key: tuple[str, ...]  # what it says and what it stands in, without what it holds
    lines: range  # without those of what it holds
    acts: bool


def new_statements(base: bytes, patched: bytes, added: Collection[int]) -> list[AddedStatement]:
    """Return the statements of a file that a patch adds and that do something.

    Comments, docstrings, blank lines, other spellings of the same, and what the compiler
    drops are none.
    """
    module = _parse(patched)
    before, after = list(_walk(_parse(base), ())), list(_walk(module, ()))
    dead, compiled = _dead_assignments(module), _compiled_lines(module)
    same = difflib.SequenceMatcher(
        None, [old.key for old in before], [new.key for new in after], autojunk=False
    ).get_matching_blocks()
    kept = {b + step for _, b, size in same for step in range(size)}
    new = sorted(
        (
            statement
            for number, statement in enumerate(after)
            if number not in kept
            and statement.acts
            and statement.lines.start not in dead
            and not compiled.isdisjoint(statement.lines)
        ),
        key=lambda statement: statement.lines.start,
    )
    lines = set(added)
    # Where only the head of a definition changes, it is its body that acts otherwise.
    return [statement for statement in new if not lines.isdisjoint(statement.lines)] or new


def _parse(source: bytes) -> ast.Module:
    """Return the syntax tree of a file, its definitions by name; none where it does not compile."""
    try:
        module = ast.parse(source)
        compile(module, "", "exec")
    except (SyntaxError, ValueError):
        return ast.Module([], [])
    for node in ast.walk(module):
        if isinstance(node, ast.Module | ast.ClassDef):
            # A definition that was merely moved is the same.
            node.body.sort(key=lambda part: part.name if isinstance(part, _DEFINITIONS) else "")
    return module


def _compiled_lines(module: ast.Module) -> set[int | None]:
    """Return the lines that the compiler makes something of."""
    lines: set[int | None] = set()
    codes = [compile(module, "", "exec")]
    for code in codes:
        codes += [constant for constant in code.co_consts if isinstance(constant, CodeType)]
        for instruction in dis.get_instructions(code):
            if instruction.opname != "NOP" and instruction.positions:
                lines.add(instruction.positions.lineno)
    return lines


def _dead_assignments(module: ast.Module) -> set[int]:
    """Return the lines of what is assigned to names that nothing in the module reads."""
    names = [node for node in ast.walk(module) if isinstance(node, ast.Name)]
    read = {node.id for node in names if isinstance(node.ctx, ast.Load)}
    for node in ast.walk(module):
        read.update(node.names if isinstance(node, ast.Global | ast.Nonlocal) else ())
    of_classes = {
        id(part)
        for node in ast.walk(module) if isinstance(node, ast.ClassDef)
        for part in node.body
    }  # fmt: skip
    dead = set()
    for node in ast.walk(module):
        if not isinstance(node, ast.Assign | ast.AnnAssign) or id(node) in of_classes:
            continue
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        itself = [*map(ast.unparse, targets)] == [ast.unparse(node.value or node)]
        calls = any(isinstance(part, ast.Call) for part in ast.walk(node.value or node))
        if not calls and all(
            isinstance(part, ast.Tuple | ast.expr_context)
            or (isinstance(part, ast.Name) and (part.id not in read or itself))
            for target in targets
            for part in ast.walk(target)
        ):
            dead.add(node.lineno)
    return dead


def _blocks(node: ast.AST) -> Iterator[tuple[str, ast.AST]]:
    """Yield the statements that a node holds, each with the field that it stands in."""
    for field, value in ast.iter_fields(node):
        if field in _BLOCKS:
            yield from ((field, child) for child in value)


def _walk(node: ast.AST, path: tuple[str, ...]) -> Iterator[AddedStatement]:
    for field, child in _blocks(node):
        inner = (*path, field, _head(child))
        if isinstance(child, ast.stmt):
            acts = not isinstance(child, _DECLARES) and not _is_bare(child)
            yield AddedStatement(inner, _own_lines(child), acts)
        yield from _walk(child, inner)


def _is_bare(statement: ast.stmt) -> bool:
    """Say whether a statement is a mere name, or declares a type."""
    if isinstance(statement, ast.Expr):
        return all(isinstance(part, _PLAIN) for part in ast.walk(statement.value))
    return isinstance(statement, ast.AnnAssign) and statement.value is None


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
        for _, child in _blocks(statement)
        if isinstance(child, ast.stmt | ast.excepthandler)
    ]
    end = (statement.end_lineno or statement.lineno) + 1
    return range(statement.lineno, max(statement.lineno + 1, min([end, *inside])))
