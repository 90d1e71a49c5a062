"""The test that the patch adds to PyTorch runs, and passes.

Fail-to-pass on a CPU: on the base there is no such file.
"""

from __future__ import annotations

import importlib.util
import os
import runpy
import sys
import types
import unittest
from pathlib import Path

import pytest

ADDED = "test/nn/test_multihead_attention_half_weights.py"


def _added() -> Path:
    path = Path(os.environ.get("CONTRIBBOT_TREE", ".")) / ADDED
    assert path.is_file(), f"{ADDED} does not exist"
    return path


def test_the_added_tests_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    path = _added()
    if importlib.util.find_spec("expecttest") is None:
        # PyTorch's TestCase derives from expecttest's, which only adds inline expectations.
        stand_in = types.ModuleType("expecttest")
        vars(stand_in).update(TestCase=unittest.TestCase)
        monkeypatch.setitem(sys.modules, "expecttest", stand_in)
    monkeypatch.setattr(sys, "argv", [str(path)])  # PyTorch's common_utils reads options there
    # PyTorch makes classes for devices out of the module's globals, found by its name.
    module = types.ModuleType("added_tests")
    monkeypatch.setitem(sys.modules, "added_tests", module)
    vars(module).update(runpy.run_path(str(path), run_name="added_tests"))
    cases = [
        value
        for name, value in vars(module).items()
        if isinstance(value, type) and issubclass(value, unittest.TestCase) and "CPU" in name
    ]
    suite = unittest.TestSuite(map(unittest.defaultTestLoader.loadTestsFromTestCase, cases))
    count = suite.countTestCases()
    result = unittest.TestResult()
    suite.run(result)
    assert count >= 20
    assert not result.skipped
    assert not [trace for _, trace in (*result.errors, *result.failures)]
