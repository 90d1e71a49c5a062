"""The test that the patch adds to SGLang, on a CPU with the stand-in for aiter.

Fail-to-pass: the base has the same test, and its layer counts the padded heads.
"""

from __future__ import annotations

import sys
import types
import unittest
from contextlib import AbstractContextManager, nullcontext
from typing import cast

from rocm_norm import load, tree


class _CustomTestCase(unittest.TestCase):
    """Stands for SGLang's, whose module imports the serving stack; a subtest ends its test."""

    def subTest(self, *_: object, **__: object) -> AbstractContextManager[None]:  # noqa: N802  unittest's name
        return nullcontext()


def _added() -> type[unittest.TestCase]:
    load()
    utils = types.ModuleType("sglang.test.test_utils")
    vars(utils).update(CustomTestCase=_CustomTestCase)
    sys.modules[utils.__name__] = utils
    path = tree() / "test/registered/layers/test_rmsnorm_variance_size.py"
    text = path.read_text(encoding="utf-8").replace('device="cuda"', 'device="cpu"')
    names: dict[str, object] = {"__name__": "added"}
    exec(compile(text, path, "exec"), names)  # noqa: S102  the tree's own test
    return cast("type[unittest.TestCase]", names["TestRMSNormVarianceSize"])


TestAdded = _added()
