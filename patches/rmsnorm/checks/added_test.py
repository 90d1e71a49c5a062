"""The test that the patch adds to SGLang, loaded to run on a CPU with the stand-in for aiter."""

from __future__ import annotations

import contextlib
import sys
import types
import unittest
from pathlib import Path
from typing import cast

import aiter_standin
from sglang_tree import load_layernorm, tree


class _CustomTestCase(unittest.TestCase):
    """Stands for SGLang's, whose module imports the serving stack and which adds retries.

    A subtest that fails ends its test, so that pytest reports the failure itself.
    """

    def subTest(  # noqa: N802  unittest's name
        self, *_: object, **__: object
    ) -> contextlib.AbstractContextManager[None]:
        return contextlib.nullcontext()


def path() -> Path:
    """Return the file of the added test."""
    return tree() / "test/registered/layers/test_rmsnorm_aiter_layout.py"


def added_test() -> type[unittest.TestCase]:
    """Return the added test's class, with tensors on the CPU and fewer tokens."""
    load_layernorm(aiter_standin.as_module())
    utils = types.ModuleType("sglang.test.test_utils")
    vars(utils).update(CustomTestCase=_CustomTestCase)
    sys.modules[utils.__name__] = utils
    text = path().read_text(encoding="utf-8").replace('device="cuda"', 'device="cpu"')
    names: dict[str, object] = {"__name__": "added"}
    exec(compile(text, path(), "exec"), names)  # noqa: S102  the tree's own test
    found = cast("type[unittest.TestCase]", names["TestRMSNormAiterLayout"])
    setattr(found, "NUM_TOKENS", 64)  # noqa: B010  mypy knows nothing of the class
    return found
