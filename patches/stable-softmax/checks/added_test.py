"""The tests that the patch adds to PyTorch, as PyTorch makes them for a device."""

from __future__ import annotations

import importlib.util
import os
import runpy
import sys
import types
import unittest
from pathlib import Path

NAME = "test_multihead_attention_half_weights"


def cases(device: str) -> dict[str, unittest.TestCase]:
    """Return all that PyTorch makes of the tests for `cpu` or `cuda`, by name."""
    path = Path(os.environ["CONTRIBBOT_TREE"], "test/nn", f"{NAME}.py")
    if importlib.util.find_spec("expecttest") is None:
        # PyTorch's TestCase derives from expecttest's, which only adds inline expectations.
        stand_in = types.ModuleType("expecttest")
        vars(stand_in).update(TestCase=unittest.TestCase)
        sys.modules["expecttest"] = stand_in
    sys.argv = [str(path)]  # PyTorch's common_utils reads options there
    # PyTorch makes classes for devices out of the module's globals, found by its name.
    module = types.ModuleType(NAME)
    sys.modules[NAME] = module
    vars(module).update(runpy.run_path(str(path), run_name=NAME))
    made = vars(module)[f"TestMultiheadAttentionHalfWeightsNNDeviceType{device.upper()}"]
    assert issubclass(made, unittest.TestCase)
    return {name: made(name) for name in unittest.defaultTestLoader.getTestCaseNames(made)}
