"""aiter's test of MLA decode with rope, for the head size of models.

Pass-to-pass.
"""

from __future__ import annotations

import torch
from test_nan_behind import own


def test_op_fwd_rope() -> None:
    own.test_op_fwd_rope(1, 128, 2048, 512, 64, 64, torch.bfloat16, use_rope=True)
