"""Which statements a patch adds: what of it ran is counted by them. What proves is the judge's."""

from __future__ import annotations

import ast
from collections.abc import Collection
from typing import Final

#: Statements that declare: none of their own lines does anything under a test.
_DECLARES: Final = (
    ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Import, ast.ImportFrom, ast.Global,
    ast.Nonlocal, ast.Pass,
)  # fmt: skip


def added_statements(patched: bytes, added: Collection[int]) -> list[range]:
    """Return the lines of each statement that a patch adds to a file, without what it holds."""
    try:
        module = ast.parse(patched)
    except (SyntaxError, ValueError, RecursionError):
        return []
    statements = (
        _own_lines(node)
        for node in ast.walk(module)
        if isinstance(node, ast.stmt) and not isinstance(node, _DECLARES) and not _is_text(node)
    )
    new = (lines for lines in statements if not {*lines}.isdisjoint(added))
    return sorted(new, key=lambda lines: lines.start)


def _is_text(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)


def _own_lines(statement: ast.stmt) -> range:
    inside = [
        child.lineno
        for child in ast.walk(statement)
        if child is not statement and isinstance(child, ast.stmt | ast.excepthandler)
    ]
    end = (statement.end_lineno or statement.lineno) + 1
    return range(statement.lineno, max(statement.lineno + 1, min([end, *inside])))
