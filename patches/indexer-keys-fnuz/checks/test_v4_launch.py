"""V4's store as vLLM launches it: what a reader sees are the values of its test's reference.

Fail-to-pass on gfx942: on the base a value that rounds to -0 is NaN for the reader.
"""

from __future__ import annotations

from types import SimpleNamespace

import torch
from v4_tree import upstream
from vllm_stand_ins import PLATFORM

TOKENS, BLOCK, DIM, RATIO = 5, 16, 128, 4


def test_a_reader_sees_the_values_of_the_reference() -> None:
    torch.manual_seed(0)
    device = "cuda"
    pages = RATIO * TOKENS // BLOCK + 2
    state = torch.randn(pages, BLOCK, 4 * DIM, dtype=torch.bfloat16, device=device)
    table = torch.arange(pages, dtype=torch.int32, device=device)[None]
    slots = torch.arange(TOKENS, device=device)
    positions = torch.arange(RATIO - 1, RATIO * TOKENS, RATIO, device=device)
    weight = torch.randn(DIM, dtype=torch.bfloat16, device=device)
    weight[:8] *= 1e-6  # rounds to 0 and -0
    cos_sin = torch.randn(RATIO * TOKENS, 64, device=device)
    cache = torch.zeros(1, BLOCK, DIM + 4, dtype=torch.uint8, device=device)
    upstream.compress_norm_rope_store_triton(
        state_cache=state,
        num_actual=TOKENS,
        token_to_req_indices=torch.zeros(TOKENS, dtype=torch.int32, device=device),
        positions=positions,
        slot_mapping=slots,
        block_table=table,
        block_size=BLOCK,
        state_width=2 * DIM,
        cos_sin_cache=cos_sin,
        kv_cache=cache,
        k_cache_metadata=SimpleNamespace(slot_mapping=slots),
        pdl_kwargs={},
        head_dim=DIM,
        rope_head_dim=64,
        compress_ratio=RATIO,
        overlap=True,
        use_fp4_cache=False,
        rms_norm_weight=weight,
        rms_norm_eps=1e-6,
        quant_block=DIM,
        token_stride=DIM,
        scale_dim=4,
    )
    dtype = PLATFORM.fp8_dtype()
    expected, scale = upstream._reference_kv_compress_norm_rope(  # noqa: SLF001  the test's own
        state, table, positions, weight, cos_sin, RATIO, True, fp8_dtype=dtype,  # noqa: FBT003
        fp8_max=224.0 if dtype == torch.float8_e4m3fnuz else 448.0,
    )  # fmt: skip
    rows = cache.view(-1)
    values = rows[: TOKENS * DIM].view(dtype).view(TOKENS, DIM).float()
    scales = rows[BLOCK * DIM :].view(torch.float32)[:TOKENS]
    nans = int(values.isnan().any(1).sum())
    assert not nans, f"{nans} of {TOKENS} keys are NaN for their readers"
    assert torch.equal(values, expected.float())
    assert torch.equal(scales, scale)
