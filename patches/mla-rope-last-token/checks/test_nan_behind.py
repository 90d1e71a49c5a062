"""aiter's test of MLA decode with rope, where its patch puts NaN behind the last row of the cache.

Fail-to-pass: on the base the last token's k_pe is read past its row. Kernels, wrapper and test are
aiter's own.
"""

from __future__ import annotations

import torch

from contribbot.testing import import_file

own = import_file(
    "op_tests/triton_tests/attention/test_mla_decode_rope.py",
    real=["aiter.ops.triton", "op_tests.triton_tests.utils"],
)


def test_op_fwd_rope() -> None:
    own.test_op_fwd_rope(1, 128, 2048, 512, 127, 64, torch.bfloat16, use_rope=True)
