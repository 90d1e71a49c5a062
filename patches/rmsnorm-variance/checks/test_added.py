"""The unit test that the patch adds to SGLang, on a CPU and without ROCm, as SGLang's CI runs it.

Fail-to-pass: the base has the same test, and its layer counts the padded columns.
"""

from __future__ import annotations

import unittest
from contextlib import AbstractContextManager, nullcontext
from functools import partial

from torch import nn

from contribbot.testing import answers, import_file


class _CustomTestCase(unittest.TestCase):
    """Stands for SGLang's, whose module imports the serving stack; a subtest ends its test."""

    def subTest(self, *_: object, **__: object) -> AbstractContextManager[None]:  # noqa: N802  unittest's name
        return nullcontext()


_no = partial(answers, answer=False)
TestAdded = import_file(
    "test/registered/unit/layers/test_layernorm.py",
    real=["sglang.srt.layers.layernorm", "sglang.test.ci.ci_register"],
    given={
        "sglang.srt.utils": {
            **_no(*(f"is_{name}" for name in ("cuda", "hip", "npu", "xpu", "musa"))),
            **_no("is_gfx1250_supported", "is_flashinfer_available", "cpu_has_amx_support"),
            **_no("get_bool_env_var"),
            **answers("is_cpu", answer=True),
        },
        "sglang.kernels.fused_op": {"BaseFusedOp": nn.Module},
        "sglang.srt.batch_invariant_ops": _no("is_batch_invariant_mode_enabled"),
        "sglang.test.test_utils": {"CustomTestCase": _CustomTestCase},
    },
).TestRMSNormVarHiddenSizeHip
