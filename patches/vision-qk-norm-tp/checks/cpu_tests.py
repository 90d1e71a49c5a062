"""What the unit tests that the patch adds need of SGLang, on a CPU, as its CI runs them."""

from __future__ import annotations

import unittest
from contextlib import AbstractContextManager, nullcontext
from functools import partial

from torch import nn

from contribbot.testing import answers


class _CustomTestCase(unittest.TestCase):
    """Stands for SGLang's, whose module imports the serving stack; a subtest ends its test."""

    def subTest(self, *_: object, **__: object) -> AbstractContextManager[None]:  # noqa: N802  unittest's name
        return nullcontext()


class _FusedOp(nn.Module):
    """Of SGLang's dispatch: what a CPU without AMX runs."""

    def forward(self, x: object) -> object:
        """Run the layer."""
        return self.forward_native(x)


_no = partial(answers, answer=False)
REAL = ["sglang.srt.layers.layernorm", "sglang.srt.models.utils", "sglang.test.ci.ci_register"]
GIVEN = {
    "sglang.srt.utils": {
        **_no(*(f"is_{name}" for name in ("cuda", "hip", "npu", "xpu", "musa"))),
        **_no("is_gfx1250_supported", "is_flashinfer_available", "cpu_has_amx_support"),
        **_no("get_bool_env_var"),
        **answers("is_cpu", answer=True),
    },
    "sglang.kernels.fused_op": {"BaseFusedOp": _FusedOp},
    "sglang.srt.batch_invariant_ops": _no("is_batch_invariant_mode_enabled"),
    "sglang.test.test_utils": {"CustomTestCase": _CustomTestCase},
}
