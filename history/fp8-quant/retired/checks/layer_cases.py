"""vLLM's real fusion pass on ROCm, on the graph of its real layers; the tests for each GPU run it.

Red on the base: there the patterns are not registered, and SiLU and quantisation stay apart.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator

import pytest
import torch
import torch._inductor.config  # what vLLM sets there too
from kernel_standin import EPS, FP8, SILU, calls
from torch._functorch.aot_autograd import aot_export_module
from torch._inductor.decomposition import select_decomp_table
from torch._subclasses.fake_tensor import FakeTensorMode
from vllm_on_rocm import config, load

QUANT_UTILS = load("model_executor.layers.quantization.utils.quant_utils")
QUANT_FP8 = load("model_executor.layers.quantization.input_quant_fp8").QuantFP8
SILU_AND_MUL = load("model_executor.layers.activation").SiluAndMul
FUSION = load("compilation.passes.fusion.act_quant_fusion")

QUANT = "per_token_group_fp8_quant"
FUSED = "silu_and_mul_per_block_quant"


class SiluAndQuant(torch.nn.Module):
    """An MLP's activation and the quantisation before its second matrix product."""

    def __init__(self, group_size: int, *, column_major: bool, native: bool) -> None:
        super().__init__()
        shape = QUANT_UTILS.GroupShape(1, group_size)
        self._quant = QUANT_FP8(static=False, group_shape=shape, column_major_scales=column_major)
        layer = SILU_AND_MUL()
        self._silu = layer.forward_native if native else layer.forward_cuda

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """Return values and scales."""
        values, scales = self._quant.forward_hip(self._silu(x))
        return values, scales


@functools.cache
def fusion(*, native: bool) -> Callable[[torch.fx.Graph], None]:
    """Return the pass; its patterns are traced once for each form of SiLU."""
    SILU_AND_MUL.enabled = classmethod(lambda _cls: not native)
    made: Callable[[torch.fx.Graph], None] = FUSION.ActivationQuantFusionPass(config())
    return made


def operators(graph: torch.fx.Graph) -> list[str]:
    """Return what a graph calls; of functionalised operators, which."""
    called = [node for node in graph.nodes if node.op == "call_function"]
    return [
        str(node.args[0] if "auto_functionalized" in str(node.target) else node.target)
        for node in called
    ]


@contextlib.contextmanager
def export(model: torch.nn.Module, x: torch.Tensor) -> Iterator[torch.fx.GraphModule]:
    """Give the graph that torch.compile hands to vLLM's passes; tensors inside are fake."""
    settings = torch._inductor.config.patch(enable_auto_functionalized_v2=False)  # noqa: SLF001  torch's own path
    with settings, FakeTensorMode(), torch.no_grad():
        fake = torch.empty(x.shape, dtype=x.dtype)
        exported, _ = aot_export_module(
            model, (fake,), trace_joint=False, decompositions=select_decomp_table()
        )
        assert isinstance(exported, torch.fx.GraphModule)
        yield exported
    exported.recompile()


@pytest.mark.parametrize("native", [False, True], ids=["SiLU operator", "SiLU in torch"])
@pytest.mark.parametrize("column_major", [False, True], ids=["rows", "columns"])
@pytest.mark.parametrize("group_size", [64, 128])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_silu_fusion(
    dtype: torch.dtype, group_size: int, *, column_major: bool, native: bool
) -> None:
    """The fused graph calls the fused kernel, and its numbers are those of the layers.

    The layers round between SiLU and quantisation, the fused kernel does not: judged in float32.
    """
    generator = torch.Generator().manual_seed(group_size)
    x = torch.randn(5, 1024, generator=generator).mul(4).to(dtype)
    model = SiluAndQuant(group_size, column_major=column_major, native=native)
    with export(model, x) as graph:
        assert f"_C.{QUANT}.default" in operators(graph.graph)
        fusion(native=native)(graph.graph)
    fused = operators(graph.graph)
    assert f"_C.{FUSED}.default" in fused, f"not fused: {fused}"
    assert f"_C.{QUANT}.default" not in fused, f"not fused: {fused}"
    calls.clear()
    values, scales = graph(x)
    assert [call.operator for call in calls] == [FUSED]
    assert values.dtype == FP8.dtype
    assert (scales.stride(0) == 1) == column_major
    expected = SILU(x.float())
    largest = expected.view(5, -1, group_size).abs().amax(-1).clamp_min(EPS)
    torch.testing.assert_close(scales, largest / FP8.high)
    wide = scales.repeat_interleave(group_size, dim=1)
    # Half a unit in the last place: of normal numbers, and of e4m3fnuz's and e4m3fn's subnormal.
    torch.testing.assert_close(values.float(), expected / wide, atol=2**-10, rtol=2**-4)
