"""torchao's Triton kernels, called through torchao's own functions: run with `--emulate TARGET`.

The unpacked wheel is on PYTHONPATH.
"""

from __future__ import annotations

import types
from collections.abc import Callable

import pytest
import torch
from torchao.float8.config import e4m3_dtype
from torchao.float8.float8_training_tensor import LinearMMConfig
from torchao.kernel import blockwise_quantization as blockwise
from torchao.kernel import intmm_triton
from torchao.prototype.blockwise_fp8_training import kernels as training
from torchao.prototype.float8nocompile.kernels import fp8_dynamic_tensorwise as tensorwise
from torchao.prototype.fp8_sdpa_inference.fp8_sdpa_quantization import fp8_sdpa_quantize_func
from torchao.prototype.quantized_training.int8_mm import scaled_int8_mm

ULP = 2.0**-23
Pair = tuple[torch.Tensor, torch.Tensor]


@pytest.fixture(autouse=True)
def seed() -> None:
    torch.manual_seed(3)


def gpu(*shape: int, kind: torch.dtype = torch.float32) -> torch.Tensor:
    """Return random numbers on the GPU."""
    return torch.randn(shape).to(kind).cuda()


def same_codes(codes: torch.Tensor, expected: torch.Tensor) -> None:
    """Compare FP8 by bytes."""
    assert codes.dtype == expected.dtype
    assert torch.equal(codes.cpu().view(torch.uint8), expected.cpu().view(torch.uint8))


def squares(x: torch.Tensor, size: int) -> torch.Tensor:
    """Return the largest size of each square block."""
    rows, columns = x.shape
    return x.view(rows // size, size, columns // size, size).abs().amax((1, 3))


def spread(scales: torch.Tensor, size: int) -> torch.Tensor:
    """Return the scale of each element of square blocks."""
    return scales.repeat_interleave(size, 0).repeat_interleave(size, 1)


@pytest.mark.parametrize("kind", [torch.float8_e4m3fn, torch.float8_e5m2])
def test_quantised_by_rows(kind: torch.dtype) -> None:
    x = gpu(6, 256)
    codes, scales = blockwise.fp8_blockwise_act_quant(x, 128, kind)
    groups = x.cpu().view(6, 2, 128)
    assert torch.equal(scales.cpu(), groups.abs().amax(-1) / 448)
    same_codes(codes, (groups / scales.cpu()[..., None]).view(6, 256).to(kind))


def test_quantised_by_blocks_and_back() -> None:
    x = gpu(256, 128)
    codes, scales = blockwise.fp8_blockwise_weight_quant(x, 64)
    assert torch.equal(scales.cpu(), squares(x.cpu(), 64) / 448)
    wide = x.cpu() / spread(scales.cpu(), 64)
    same_codes(codes, wide.to(torch.float8_e4m3fn))
    back = blockwise.fp8_blockwise_weight_dequant(codes, scales, 64)
    assert torch.equal(back.cpu(), codes.cpu().to(back.dtype) * spread(scales.cpu(), 64))


def test_a_product_in_fp8_with_scales() -> None:
    a, a_scales = blockwise.fp8_blockwise_act_quant(gpu(20, 256))
    b, b_scales = blockwise.fp8_blockwise_weight_quant(gpu(128, 256))
    out = blockwise.blockwise_fp8_gemm(a, a_scales, b, b_scales).cpu().double()
    left = a.cpu().double() * a_scales.cpu().repeat_interleave(128, 1)
    right = b.cpu().double() * spread(b_scales.cpu(), 128)
    # The bound of any order of 256 additions, and a rounding to bfloat16.
    bound = 1.1 * 256 * 2**-24 * (left.abs() @ right.abs().T) + 2**-8 * out.abs()
    assert ((out - left @ right.T).abs() <= bound).all()


def integers(*shape: int) -> torch.Tensor:
    return torch.randint(-128, 128, shape, dtype=torch.int8).cuda()


def settings(m: int, n: int, k: int) -> types.SimpleNamespace:
    sizes = {"BLOCK_M": m, "BLOCK_N": n, "BLOCK_K": k, "GROUP_M": 8}
    return types.SimpleNamespace(kwargs=sizes, num_warps=4, num_stages=2, num_ctas=1)


def test_a_product_of_integers() -> None:
    a, b = integers(64, 128), integers(128, 96)
    out = torch.zeros(64, 96, dtype=torch.int32).cuda()
    intmm_triton.int_matmul_kernel(a, b, out, settings(32, 32, 32))
    assert torch.equal(out.cpu(), a.cpu().int() @ b.cpu().int())


def test_a_product_of_integers_with_scales_of_rows() -> None:
    a, b, scales = integers(64, 128), integers(128, 64), gpu(64, 1).expand(64, 64)
    out = torch.zeros(64, 64).cuda()
    intmm_triton.int_scaled_matmul_kernel(a, b, scales, out, settings(32, 32, 32))
    assert torch.equal(out.cpu(), (a.cpu().int() @ b.cpu().int()) * scales.cpu())


@pytest.mark.parametrize("columns", [1, 96])
def test_a_product_of_integers_as_an_operator(columns: int) -> None:
    a, b, rows, scales = integers(40, 64), integers(64, 96), gpu(40), gpu(columns)
    out = scaled_int8_mm(a, b, rows, scales)
    expected = (a.cpu().int() @ b.cpu().int()) * rows.cpu()[:, None] * scales.cpu()
    torch.testing.assert_close(out.cpu(), expected, rtol=2 * ULP, atol=0)


@pytest.mark.parametrize(
    ("ours", "reference"),
    [
        (training.triton_fp8_blockwise_act_quant_lhs, training.torch_blockwise_scale_act_quant_lhs),
        (training.triton_fp8_blockwise_act_quant_rhs, training.torch_blockwise_scale_act_quant_rhs),
        (training.triton_fp8_blockwise_weight_quant_rhs,
         training.torch_blockwise_scale_weight_quant),
    ],
)  # fmt: skip
@pytest.mark.parametrize("kind", [torch.float32, torch.bfloat16])
def test_quantised_for_training(
    ours: Callable[..., Pair], reference: Callable[..., Pair], kind: torch.dtype
) -> None:
    x = gpu(128, 256, kind=kind)
    codes, scales = ours(x)
    expected, expected_scales = reference(x.cpu())
    assert codes.dtype == e4m3_dtype
    same_codes(codes, expected)
    assert torch.equal(scales.cpu(), expected_scales)


@pytest.mark.parametrize(
    ("ours", "reference"),
    [
        (training.triton_fp8_blockwise_act_quant_transposed_lhs,
         training.torch_blockwise_scale_act_quant_lhs),
        (training.triton_fp8_blockwise_weight_quant_transposed_rhs,
         training.torch_blockwise_scale_weight_quant),
    ],
)  # fmt: skip
def test_quantised_and_transposed(
    ours: Callable[..., Pair], reference: Callable[..., Pair]
) -> None:
    x = gpu(256, 128)
    codes, scales = ours(x)
    expected, expected_scales = reference(x.cpu().t().contiguous())
    same_codes(codes, expected)
    assert torch.equal(scales.cpu(), expected_scales)


@pytest.mark.parametrize("weight", [True, False])
def test_products_of_training(*, weight: bool) -> None:
    # 64 rows, a block: with fewer the kernels' loads of a_s, which have no mask, pass its end.
    a, a_scales = training.triton_fp8_blockwise_act_quant_lhs(gpu(64, 256))
    x = gpu(256, 128)
    if weight:
        b, b_scales = training.triton_fp8_blockwise_weight_quant_rhs(x)
        out = training.triton_fp8_gemm_1x128_128x128(a, b, a_scales, b_scales)
        right = b.cpu().double() * spread(b_scales.cpu(), 128)
    else:
        b, b_scales = training.triton_fp8_blockwise_act_quant_rhs(x)
        out = training.triton_fp8_gemm_1x128_128x1(a, b, a_scales, b_scales)
        right = b.cpu().double() * b_scales.cpu().repeat_interleave(128, 0)
    left = a.cpu().double() * a_scales.cpu().repeat_interleave(128, 1)
    bound = 1.1 * 256 * 2**-24 * (left.abs() @ right.abs())
    assert ((out.cpu().double() - left @ right).abs() <= bound).all()


def one_scale(algorithm: tensorwise.KernelAlgorithm, rows: int, *, transposed: bool) -> None:
    x = gpu(rows, 96, kind=torch.bfloat16)
    function = tensorwise.hp_to_fp8_row_major_t if transposed else tensorwise.hp_to_fp8_row_major
    made = function(x, torch.float8_e4m3fn, LinearMMConfig(), algo=algorithm)
    scale = (448 / x.cpu().abs().max().double()).float()
    assert torch.equal(made._scale.cpu().view(()), scale)
    wide = (x.cpu().float() * scale).clamp(-448, 448).to(torch.float8_e4m3fn)
    same_codes(made._data, wide.t().contiguous() if transposed else wide)


@pytest.mark.parametrize("algorithm", [*tensorwise.KernelAlgorithm])
@pytest.mark.parametrize("transposed", [True, False])
def test_one_scale_for_a_tensor(algorithm: tensorwise.KernelAlgorithm, *, transposed: bool) -> None:
    one_scale(algorithm, 96, transposed=transposed)


@pytest.mark.xfail(
    strict=True,
    reason="_to_fp8_row_major_t of 0.18.0 masks its store by rows where it should by columns",
)
def test_a_transposed_tensor_that_is_not_square() -> None:
    one_scale(tensorwise.KernelAlgorithm.REDUCTION, 64, transposed=True)


@pytest.mark.parametrize("length", [40, 64])
def test_queries_keys_and_values(length: int) -> None:
    q, k, v = (gpu(2, 3, rows, 64, kind=torch.bfloat16) for rows in (length, 64, 64))
    made = fp8_sdpa_quantize_func(q, k, v, num_chunks=2)
    for x, codes, scale in zip((q, k, v), made[:3], made[3:], strict=True):
        largest = x.cpu().float().abs().amax((2, 3))
        assert torch.equal(scale.cpu().view(2, 3), largest / 448)
        wide = x.cpu().float() * (448 / largest)[..., None, None]
        same_codes(codes, wide.to(torch.float8_e4m3fn))
