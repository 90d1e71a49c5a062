"""The relative error of signed products, split in eight as `AutoAWQLinearMethod` asks for.

Fail-to-pass: on the base it grows with K. float64 is the reference; the error left is the rounding
of the eight parts and of their sum.
"""

import awq
import pytest
import torch


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("k", [4096, 14336, 28672])
def test_error(k: int, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(4, k, generator=generator).half()
    shape = k // 128, 64
    weights = torch.randint(-(2**31), 2**31, (k, 8), generator=generator).int()
    zeros = torch.full((k // 128, 8), -0x77777778, dtype=torch.int32)  # 8, eight times
    scales = (0.01 * torch.rand(shape, generator=generator)).half()
    tensors = (tensor.cuda() for tensor in (x, weights, scales, zeros))
    out = awq.own.awq_gemm_triton(*tensors, split_k_iters=8).cpu().double()
    exact = x.double() @ awq.own.awq_dequantize_torch(weights, scales, zeros, 128).double()
    error = ((out - exact).pow(2).mean() / exact.pow(2).mean()).sqrt().item()
    assert 2.695e-4 < error < 3.105e-4, f"K = {k:,}: a relative RMS error of {error:.1e}"
