"""Time of DiffKV attention with FP8 queries: decode with and without split KV, window, prefill."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch
from diffkv import fp8_dtype, load_kernel

from contribbot import bench

HEADS, SIZE_QK, SIZE_V, BLOCK = 16, 192, 128, 16
#: What vLLM's backend takes for one KV head: split KV up to so many sequences, in so many parts.
SPLIT_UP_TO, PARTS = 128, 16

attend: Callable[..., None] = load_kernel().unified_attention_diffkv


def _case(name: str, sequences: int, tokens: int, length: int, window: int = 0) -> bench.Case:
    """Return the case of some sequences that each bring so many tokens of their length."""
    blocks = sequences * length // BLOCK

    def prepare() -> tuple[torch.Tensor, ...]:
        device, dtype = bench.device(), fp8_dtype()
        query = torch.randn(sequences * tokens, HEADS, SIZE_QK, device=device)
        cache = torch.randn(blocks, BLOCK, 1, SIZE_QK + SIZE_V, device=device)
        table = torch.randperm(blocks, device=device).int().view(sequences, -1)
        return query.to(dtype).view(torch.uint8), cache.to(dtype).view(torch.uint8), table

    def run(query: torch.Tensor, cache: torch.Tensor, table: torch.Tensor) -> torch.Tensor:
        device, dtype = query.device, fp8_dtype()
        keys, values = cache.view(dtype).split([SIZE_QK, SIZE_V], dim=-1)
        rows = len(query), HEADS
        out = torch.empty(*rows, SIZE_V, dtype=torch.bfloat16, device=device)
        scale = torch.ones((), device=device)
        split = tokens == 1
        attend(
            q=query.view(dtype),
            k=keys,
            v=values,
            out=out,
            cu_seqlens_q=torch.arange(sequences + 1, dtype=torch.int32, device=device) * tokens,
            seqused_k=torch.full((sequences,), length, dtype=torch.int32, device=device),
            softmax_scale=SIZE_QK**-0.5,
            causal=True,
            window_size=(window - 1, 0) if window else (-1, -1),
            block_table=table,
            softcap=0,
            max_seqlen_q=tokens,
            seq_threshold_3D=SPLIT_UP_TO,
            num_par_softmax_segments=PARTS,
            softmax_segm_output=(
                torch.empty(*rows, PARTS, SIZE_V, device=device) if split else None
            ),
            softmax_segm_max=torch.empty(*rows, PARTS, device=device),
            softmax_segm_expsum=torch.empty(*rows, PARTS, device=device),
            q_descale=scale,
            k_descale=scale,
            v_descale=scale,
        )
        return out

    # The small weights are rounded more finely: of normal values, results move by up to 9 %.
    moved = blocks * BLOCK * (SIZE_QK + SIZE_V) if not window else None
    unlike = "the patch corrects these results; its test judges them"
    # Decoding is replayed from a graph, in vLLM too: one call lasts less than its launches.
    return bench.Case(name, prepare, run, bytes_moved=moved, not_compared=unlike, graph=tokens == 1)


def cases() -> Iterator[bench.Case]:
    """Yield decode of few, some and many sequences, of a window, and a prefill."""
    yield _case("decode 1x32768", 1, 1, 32768)
    yield _case("decode 64x4096", 64, 1, 4096)
    yield _case("decode 256x4096", 256, 1, 4096)
    yield _case("decode 256x4096 window 128", 256, 1, 4096, window=128)
    yield _case("prefill 1x4096", 1, 4096, 4096)
