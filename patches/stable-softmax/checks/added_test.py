"""The test that the patch adds to PyTorch, as PyTorch makes it for the CPU."""

from __future__ import annotations

import importlib.util
import os
import runpy
import sys
import types
import unittest
from pathlib import Path

NAME = "test_multihead_attention_half_weights"
#: Its tests, each of which fails without the patch for both dtypes.
RED = ("test_scores_of_any_size", "test_masks", "test_gradients")


def _load() -> type[unittest.TestCase]:
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
    found = vars(module)["TestMultiheadAttentionHalfWeightsNNDeviceTypeCPU"]
    assert issubclass(found, unittest.TestCase)
    return found


_CASES = _load()
#: All cases that PyTorch makes of the tests: dtypes, and parameters.
NAMES = unittest.defaultTestLoader.getTestCaseNames(_CASES)


def run(test: str) -> None:
    """Run all cases of a test; the first failure is raised as it is."""
    names = [name for name in NAMES if name.startswith(f"{test}_")]
    assert names, f"no case of {test}"
    unittest.TestSuite(map(_CASES, names)).debug()
