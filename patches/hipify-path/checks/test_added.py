"""The test that the patch adds to vLLM, as it is; vllm cannot be imported, as it says.

Fail-to-pass: the base has the same test, and its script leaves outputs out.
"""

from __future__ import annotations

import importlib
import sys

import pytest
from hipify_script import TREE

pytest.register_assert_rewrite("test_rocm_sources")
sys.path.append(str(TREE / "tests/tools"))
vars(sys)["modules"]["vllm"] = None

_added = importlib.import_module("test_rocm_sources")
test_outputs_and_headers = _added.test_outputs_and_headers
test_unchanged_source_named_in_the_project = _added.test_unchanged_source_named_in_the_project
