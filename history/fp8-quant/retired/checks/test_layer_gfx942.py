"""The fusion on a machine whose GPU is a gfx942, whose FP8 type is e4m3fnuz.

Fail-to-pass; see `layer_cases`. `patch.toml` names the GPU, no GPU is there.
"""

from __future__ import annotations

from layer_cases import test_silu_fusion  # noqa: F401  pytest finds it here
