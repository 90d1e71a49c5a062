"""The test that the patch parametrizes, as it is in the tree; vllm need not be importable.

Fail-to-pass: the base has the same test, and its script leaves headers as they are.
"""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

import pytest
from hipify_script import TREE

pytest.register_assert_rewrite("test_cmake_utils")
sys.path.append(str(TREE / "tests"))
vars(sys)["modules"]["vllm"] = None

_added = importlib.import_module("test_cmake_utils")


def test_build_is_symlink(tmp_path: Path) -> None:
    _added.test_hipify_records_original_sources_and_headers_without_modifying_them(
        tmp_path, build_is_symlink=True
    )
