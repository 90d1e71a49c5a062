"""The test that the patch adds to vLLM, as it is; vllm cannot be imported, and need not be.

Fail-to-pass: the base has the same test, and its script leaves headers as they are.
"""

from __future__ import annotations

import importlib
import sys

import pytest
from hipify_script import TREE

pytest.register_assert_rewrite("test_cmake_utils")
sys.path.append(str(TREE / "tests"))
vars(sys)["modules"]["vllm"] = None

_added = importlib.import_module("test_cmake_utils")
test_hipify_rewrites_headers_wherever_the_build_is = (
    _added.test_hipify_rewrites_headers_wherever_the_build_is
)
