"""The Python layer calls vLLM's own kernels on ROCm; the tests for each GPU run these.

Red on the base: there a Triton kernel is launched, torch's operators are used, or the
packed form is refused. The values are those of plain torch, so that what the layer passes
on (limits, layouts, dtypes) is seen too.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator

import pytest
import torch
import torch._inductor.config  # what vLLM sets there too
from golden import INT8, Quantized, quantize
from kernel_standin import FP8, Call, calls
from torch._functorch.aot_autograd import aot_export_module
from torch._subclasses.fake_tensor import FakeTensorMode
from vllm_on_rocm import config, load

UTILS = "model_executor.layers.quantization.utils"
FP8_UTILS = load(f"{UTILS}.fp8_utils")
INT8_UTILS = load(f"{UTILS}.int8_utils")
QUANT_UTILS = load(f"{UTILS}.quant_utils")
QUANT_FP8 = load("model_executor.layers.quantization.input_quant_fp8").QuantFP8
FUSION = load("compilation.passes.fusion.rms_quant_fusion")

_FP8_CALL = "per_token_group_fp8_quant"
GROUP = 128

dtypes = pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
scale_kinds = pytest.mark.parametrize("ue8m0", [False, True], ids=["float", "ue8m0"])


@pytest.fixture(autouse=True)
def _no_calls() -> Iterator[None]:
    calls.clear()
    yield
    calls.clear()


def draw(rows: int, columns: int, dtype: torch.dtype) -> torch.Tensor:
    """Return values of a normal distribution, always the same."""
    generator = torch.Generator().manual_seed(rows * columns)
    return (torch.randn(rows, columns, generator=generator) * 8).to(dtype)


def assert_same(seen: tuple[torch.Tensor, torch.Tensor], expected: Quantized) -> None:
    """Compare values and scales bit for bit."""
    values, scales = seen
    assert values.dtype == expected.values.dtype, f"values are {values.dtype}"
    same = torch.equal(values.view(torch.uint8), expected.values.view(torch.uint8))
    assert same, "the values differ from plain torch's"
    assert torch.equal(scales, expected.scales), "the scales differ from plain torch's"


def _assert_called(operator: str, low: float, high: float, *, ue8m0: bool) -> None:
    assert calls == [Call(operator, low, high, ue8m0)], f"the kernels were called so: {calls}"


@dtypes
@scale_kinds
@pytest.mark.parametrize("layout", ["rows", "columns", "columns, aligned"])
def test_fp8(layout: str, dtype: torch.dtype, *, ue8m0: bool) -> None:
    x = draw(7, 3 * GROUP, dtype)
    seen = FP8_UTILS.per_token_group_quant_fp8(
        x,
        GROUP,
        column_major_scales="columns" in layout,
        tma_aligned_scales="aligned" in layout,
        use_ue8m0=ue8m0,
    )
    assert_same(seen, quantize(x, GROUP, FP8, ue8m0=ue8m0))
    assert (seen[1].stride(0) == 1) == ("columns" in layout)
    _assert_called(_FP8_CALL, FP8.low, FP8.high, ue8m0=ue8m0)


@dtypes
def test_int8(dtype: torch.dtype) -> None:
    x = draw(5, 2 * GROUP, dtype)
    assert_same(INT8_UTILS.per_token_group_quant_int8(x, GROUP), quantize(x, GROUP, INT8))
    _assert_called("per_token_group_quant_int8", INT8.low, INT8.high, ue8m0=False)


@dtypes
def test_packed(dtype: torch.dtype) -> None:
    x = draw(5, 3 * GROUP, dtype)
    expected = quantize(x, GROUP, FP8, ue8m0=True)
    values, packed = FP8_UTILS.per_token_group_quant_fp8_packed_for_deepgemm(
        x, GROUP, use_ue8m0=True
    )
    exponents = torch.stack([(packed >> shift) & 0xFF for shift in (0, 8, 16)], -1).flatten(1)
    scales = (exponents << 23).view(torch.float32)
    assert_same((values, scales), expected)
    _assert_called("per_token_group_fp8_quant_packed", FP8.low, FP8.high, ue8m0=True)


@dtypes
@pytest.mark.parametrize("group_size", [64, 128])
def test_quant_fp8_layer(group_size: int, dtype: torch.dtype) -> None:
    x = draw(9, 2 * GROUP, dtype)
    layer = QUANT_FP8(static=False, group_shape=QUANT_UTILS.GroupShape(1, group_size))
    seen = layer.forward_hip(x)
    _assert_called(_FP8_CALL, FP8.low, FP8.high, ue8m0=False)
    assert_same(seen, quantize(x, group_size, FP8))


class _NormAndQuant(torch.nn.Module):
    def __init__(self, group_size: int, *, column_major: bool, residual: bool) -> None:
        super().__init__()
        shape = QUANT_UTILS.GroupShape(1, group_size)
        self._quant = QUANT_FP8(static=False, group_shape=shape, column_major_scales=column_major)
        self._residual = residual

    def forward(self, x: torch.Tensor, weight: torch.Tensor) -> tuple[torch.Tensor, ...]:
        ir = torch.ops.vllm_ir
        if not self._residual:
            values, scales = self._quant.forward_hip(ir.rms_norm(x, weight, 1e-6, None))
            return values, scales
        normed, residual = ir.fused_add_rms_norm(x, x + 1, weight, 1e-6)
        values, scales = self._quant.forward_hip(normed)
        return values, scales, residual


@functools.cache
def _fusion() -> Callable[[torch.fx.Graph], None]:
    """Return the pass; its many patterns are traced once."""
    made: Callable[[torch.fx.Graph], None] = FUSION.RMSNormQuantFusionPass(config())
    return made


def _operators(graph: torch.fx.Graph) -> list[str]:
    """Return what a graph calls; of functionalised operators, which."""
    called = [node for node in graph.nodes if node.op == "call_function"]
    return [
        str(node.args[0] if "auto_functionalized" in str(node.target) else node.target)
        for node in called
    ]


@pytest.mark.parametrize("group_size", [64, 128])
@pytest.mark.parametrize("column_major", [False, True], ids=["rows", "columns"])
@pytest.mark.parametrize("residual", [False, True], ids=["norm", "add and norm"])
def test_norm_fusion(group_size: int, *, column_major: bool, residual: bool) -> None:
    """The real pass, on the graph that torch's export makes of the real layer.

    Tensors are fake, nothing is computed.
    """
    model = _NormAndQuant(group_size, column_major=column_major, residual=residual)
    settings = torch._inductor.config.patch(enable_auto_functionalized_v2=False)  # noqa: SLF001  torch's own path
    with settings, FakeTensorMode(), torch.no_grad():
        x = torch.empty(5, 256, dtype=torch.bfloat16)
        weight = torch.empty(256, dtype=torch.bfloat16)
        exported, _ = aot_export_module(model, (x, weight), trace_joint=False)
        assert isinstance(exported, torch.fx.GraphModule)
        unfused = _operators(exported.graph)
        _fusion()(exported.graph)
    fused = _operators(exported.graph)
    assert f"_C.{_FP8_CALL}.default" in unfused, f"the layer uses {unfused}"
    assert "_C.rms_norm_per_block_quant.default" in fused, f"not fused: {fused}"
    assert f"_C.{_FP8_CALL}.default" not in fused, f"not fused: {fused}"
