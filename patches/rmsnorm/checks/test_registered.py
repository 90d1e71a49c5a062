"""The test that the patch adds to SGLang is one that SGLang's CI finds, imports and runs on AMD.

Fail-to-pass: on the base there is no such file.
"""

from __future__ import annotations

import ast
import importlib
import runpy
import sys
import types
import unittest
from pathlib import Path

import pytest
from sglang_tree import load_layernorm, open_package, tree

ADDED = "test/registered/layers/test_rmsnorm_aiter_layout.py"


def _added() -> Path:
    path = tree() / ADDED
    assert path.is_file(), f"{ADDED} does not exist"
    return path


def test_ci_finds_it_in_the_amd_suite() -> None:
    path = str(_added())
    open_package()
    ci = importlib.import_module("sglang.test.ci.ci_register")
    (found,) = ci.collect_tests([path], sanity_check=True)
    assert found == ci.CIRegistry(
        backend=ci.HWBackend.AMD,
        filename=path,
        est_time=30.0,
        suite="stage-b-test-1-gpu-small-amd",
        nightly=False,
        disabled=None,
    )


def _names_defined_in(path: Path) -> set[str]:
    defined = set()
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            defined.add(node.name)
        elif isinstance(node, ast.Assign):
            defined |= {target.id for target in node.targets if isinstance(target, ast.Name)}
    return defined


def test_what_it_imports_from_sglang_is_there() -> None:
    body = ast.parse(_added().read_text(encoding="utf-8")).body
    imports = [
        node
        for node in body
        if isinstance(node, ast.ImportFrom) and str(node.module).startswith("sglang.")
    ]
    assert imports
    for node in imports:
        source = tree() / "python" / Path(*str(node.module).split(".")).with_suffix(".py")
        assert {name.name for name in node.names} <= _names_defined_in(source)


def test_it_skips_with_a_reason_where_aiter_is_off(monkeypatch: pytest.MonkeyPatch) -> None:
    path = _added()
    import aiter_standin  # noqa: PLC0415  brings torch, for which the base need not wait

    monkeypatch.setenv("SGLANG_USE_AITER", "0")
    load_layernorm(aiter_standin.as_module())
    # The real test_utils imports the serving stack; its class adds retries to unittest's.
    utils = types.ModuleType("sglang.test.test_utils")
    vars(utils).update(CustomTestCase=type("CustomTestCase", (unittest.TestCase,), {}))
    monkeypatch.setitem(sys.modules, "sglang.test.test_utils", utils)
    cases = [
        value
        for value in runpy.run_path(str(path)).values()
        if isinstance(value, type) and issubclass(value, utils.CustomTestCase)
    ]
    tests = unittest.TestSuite(
        unittest.defaultTestLoader.loadTestsFromTestCase(case)
        for case in cases
        if case is not utils.CustomTestCase
    )
    result = unittest.TestResult()
    count = tests.countTestCases()
    tests.run(result)
    assert count >= 4
    assert result.wasSuccessful()
    assert [reason for _, reason in result.skipped] == [
        "needs ROCm and SGLANG_USE_AITER=1 at import"
    ] * count
