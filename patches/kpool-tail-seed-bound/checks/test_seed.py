"""A slot beyond the tail ring stores nothing; one within it lands where it belongs.

Fail-to-pass: on the base the slot of a main KV block reaches outside of the tail tensor. The real
kernel and its launch are vLLM's; what only imports is a stand-in.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from contribbot.testing import import_file

kpool = import_file(
    "vllm/models/glm5next/amd/ops/kpool_compress.py",
    given={"vllm.triton_utils": {"tl": tl, "triton": triton}},
)
KPOOL, HEAD_DIM, TAIL_BLOCKS = 4, 128, 8


def test_a_slot_of_the_main_cache_stores_nothing() -> None:
    tail = torch.zeros(TAIL_BLOCKS, 2, KPOOL, HEAD_DIM, dtype=torch.bfloat16, device="cuda")
    key = torch.randn(2, HEAD_DIM).to(torch.bfloat16).cuda()
    score = torch.randn(2, HEAD_DIM).to(torch.bfloat16).cuda()
    # The last block of the tail, and the block of the request in vllm-project/vllm#56037's dump.
    slots = torch.tensor([7, 3537], dtype=torch.int32, device="cuda") * KPOOL
    kpool.kpool_seed_tail_cache(tail, key, score, slots, KPOOL)
    expected = torch.zeros_like(tail, device="cpu")
    expected[7, 0, 0], expected[7, 1, 0] = key[0].cpu(), score[0].cpu()
    assert torch.equal(tail.cpu(), expected)
