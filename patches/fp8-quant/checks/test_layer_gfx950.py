"""The Python layer on a machine whose GPU is a gfx950, whose FP8 type is e4m3fn.

Fail-to-pass; see `layer_cases`. `patch.toml` names the GPU, no GPU is there.
"""

from __future__ import annotations

from layer_cases import (  # noqa: F401  pytest finds them here
    _no_calls,
    test_fp8,
    test_int8,
    test_norm_fusion,
    test_packed,
    test_quant_fp8_layer,
)
