"""The test that the patch adds to SGLang is one that SGLang's CI finds, imports and runs on AMD.

Pass-to-pass: the base has the same test.
"""

from __future__ import annotations

import ast
import importlib
import unittest
from pathlib import Path

import pytest
from added_test import added_test, path
from sglang_tree import open_package, tree


def test_ci_finds_it_in_the_amd_suite() -> None:
    open_package()
    ci = importlib.import_module("sglang.test.ci.ci_register")
    (found,) = ci.collect_tests([str(path())], sanity_check=True)
    assert found == ci.CIRegistry(
        backend=ci.HWBackend.AMD,
        filename=str(path()),
        est_time=30.0,
        suite="stage-b-test-1-gpu-small-amd",
        nightly=False,
        disabled=None,
    )


def _names_defined_in(file: Path) -> set[str]:
    defined = set()
    for node in ast.parse(file.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            defined.add(node.name)
        elif isinstance(node, ast.Assign):
            defined |= {target.id for target in node.targets if isinstance(target, ast.Name)}
    return defined


def test_what_it_imports_from_its_test_utilities_is_there() -> None:
    """The stand-in for them must not hide that a name is gone."""
    body = ast.parse(path().read_text(encoding="utf-8")).body
    imports = [
        node
        for node in body
        if isinstance(node, ast.ImportFrom) and node.module == "sglang.test.test_utils"
    ]
    assert imports
    defined = _names_defined_in(tree() / "python/sglang/test/test_utils.py")
    assert {name.name for node in imports for name in node.names} <= defined


def test_it_skips_with_a_reason_where_aiter_is_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SGLANG_USE_AITER", "0")
    tests = unittest.defaultTestLoader.loadTestsFromTestCase(added_test())
    result = unittest.TestResult()
    count = tests.countTestCases()
    tests.run(result)
    assert count == 4
    assert result.wasSuccessful()
    assert [reason for _, reason in result.skipped] == [
        "needs ROCm and SGLANG_USE_AITER=1 at import"
    ] * count
