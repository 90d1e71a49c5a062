"""A cache group whose block table is narrower than the sequence: its last tokens get no slot.

Fail-to-pass: on the base the kernel of Model Runner V2 loads beyond the table. The real kernel
runs; its launch is that of `BlockTables.compute_slot_mappings`.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from contribbot.testing import import_file

PAD = -1
TRITON = {"vllm.triton_utils": {"tl": tl, "triton": triton}}
tables = import_file(
    "vllm/v1/worker/gpu/block_table.py",
    real=["vllm.v1.worker.gpu.buffer_utils"],
    given={**TRITON, "vllm.v1.attention.backends.utils": {"PAD_SLOT_ID": PAD}},
)


def on_gpu(values: list[int], dtype: torch.dtype) -> torch.Tensor:
    return torch.tensor(values, dtype=dtype, device="cuda")


def test_compute_slot_mappings_of_a_narrow_group() -> None:
    # One request of 12 tokens, and room for two blocks of four.
    table = on_gpu([5, 9], torch.int32)
    out = torch.zeros(1, 16, dtype=torch.int64, device="cuda")
    vars(tables)["_compute_slot_mappings_kernel"][1, 2](
        16,
        on_gpu([0], torch.int32),
        on_gpu([0, 12], torch.int32),
        torch.arange(12, device="cuda"),
        torch.tensor([table.data_ptr()], dtype=torch.uint64, device="cuda"),
        on_gpu([2], torch.int64),
        on_gpu([4], torch.int32),
        on_gpu([1], torch.bool),
        on_gpu([1], torch.bool),
        out,
        16,
        0,
        CP_SIZE=1,
        CP_INTERLEAVE=1,
        PAD_ID=PAD,
        TRITON_BLOCK_SIZE=1024,
    )
    assert out[0].tolist() == [20, 21, 22, 23, 36, 37, 38, 39, *[PAD] * 8]
