"""AOTriton's attention beside half precision and beside float64: `docs/sdpa.md`.

Run on an emulated GPU with AOTRITON naming a checkout of https://github.com/ROCm/aotriton.
"""

import os
import sys
from pathlib import Path

os.environ.setdefault("TRITON_F32_DEFAULT", "ieee")
sys.path.insert(0, str(Path(os.environ["AOTRITON"], "tritonsrc")))

import pytest
import torch
from attn_torch_function import AttentionExtraArgs, attention


@pytest.mark.parametrize(
    ("shape", "factor", "seed", "reference"),
    [((2, 16, 64, 64), 10, 42, torch.float16), ((4, 32, 128, 64), 20, 12345, torch.float32)],
)
def test_difference(shape: tuple[int, ...], factor: int, seed: int, reference: torch.dtype) -> None:
    """The kernel errs by half an ulp of the largest output at most; of the second, 8 heads run."""
    torch.manual_seed(seed)
    q, k, v = (torch.randn(*shape, dtype=torch.float16) for _ in range(3))
    if reference == torch.float32:
        q, k, v = (tensor[:1, :8] for tensor in (q, k, v))
    q, k = q * factor, k * factor
    causal, arguments = False, AttentionExtraArgs(fillnan=True)
    result = attention(q.cuda(), k.cuda(), v.cuda(), None, causal, 0.125, 0.0, arguments)[0].cpu()
    half = torch.softmax((q @ k.mT / 8).to(reference), -1).half() @ v
    exact = torch.softmax(q.double() @ k.double().mT / 8, -1) @ v.double()
    names = "kernel - reference", "kernel - float64", "reference - float64"
    pairs = (result, half), (result, exact), (half, exact)
    for name, (a, b) in zip(names, pairs, strict=True):
        print(f"{name}: {(a.double() - b.double()).abs().max():.2g}")
    largest = exact.abs().max()
    print(f"largest: {largest:.2g}")
    assert (result.double() - exact).abs().max() <= torch.exp2(
        torch.floor(torch.log2(largest)) - 11
    )
