"""vLLM's AWQ test and Triton kernels, on the tree's own files."""

from __future__ import annotations

import torch

from contribbot.testing import import_file

own = import_file(
    "tests/kernels/quantization/test_awq_triton.py",
    real=["vllm.model_executor.layers.quantization.awq_triton"],
    given={"vllm.utils.torch_utils": {"set_random_seed": torch.manual_seed}},
)
