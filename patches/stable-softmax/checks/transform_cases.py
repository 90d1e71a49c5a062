"""The compilers and transforms of PyTorch still take the function, on any device.

The tests take the fixture `device`, which test_transforms.py and test_transforms_cuda.py
give. Numbers are small: here it is asked whether it works; test_precision.py asks how well.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from attention import HALVES, double, draw, max_error, with_weights
from torch.autograd import forward_ad
from torch.testing._internal.two_tensor import TwoTensor
from torch.utils.flop_counter import FlopCounterMode

#: TorchScript is deprecated; as long as it is there, it must go on working.
pytestmark = [
    pytest.mark.filterwarnings("ignore:`torch.jit:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::torch.jit.TracerWarning"),
    pytest.mark.filterwarnings("ignore:There is a performance drop:UserWarning"),
]
EACH = pytest.mark.parametrize("dtype", [*HALVES, torch.float32], ids=str)
EACH_HALF = pytest.mark.parametrize("dtype", HALVES, ids=str)
LENGTH, WIDTH = 6, 32

Run = Callable[..., tuple[torch.Tensor, torch.Tensor]]


class Attention(torch.nn.Module):
    """A module around the function, for what wants one."""

    def forward(
        self,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        attn_mask: torch.Tensor | None = None,
        key_padding_mask: torch.Tensor | None = None,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Return output and weights."""
        return with_weights(
            query, key, value, attn_mask=attn_mask, key_padding_mask=key_padding_mask
        )


def small(device: str, dtype: torch.dtype) -> list[torch.Tensor]:
    return draw(device, dtype, 1.0, length=LENGTH, head_dim=WIDTH // 4)


def make_masks(device: str) -> dict[str, torch.Tensor]:
    padding = torch.zeros(2, LENGTH, dtype=torch.bool, device=device)
    padding[1, -2:] = True
    causal = torch.ones(LENGTH, LENGTH, dtype=torch.bool, device=device).triu(1)
    return {"attn_mask": causal, "key_padding_mask": padding}


def module_of(device: str, dtype: torch.dtype) -> torch.nn.MultiheadAttention:
    torch.manual_seed(0)
    return torch.nn.MultiheadAttention(WIDTH, 4).to(device, dtype)


def bound(dtype: torch.dtype) -> float:
    return 16 * torch.finfo(dtype).eps


def assert_agree(run: Run, plain: Run, inputs: list[torch.Tensor], **masks: torch.Tensor) -> None:
    """Fail if outputs, weights or gradients of two ways to call it are far from each other."""
    found = []
    for way in (run, plain):
        leaves = [one.clone().requires_grad_() for one in inputs]
        output, weights = way(*leaves, **masks)
        loss = output.float().square().sum() + weights.float().square().sum()
        found.append([output, weights, *torch.autograd.grad(loss, leaves)])
    for one, other in zip(*found, strict=True):
        assert one.dtype == other.dtype
        assert one.shape == other.shape
        largest = max(1.0, float(other.detach().abs().max()))
        assert max_error(one, other) <= bound(inputs[0].dtype) * largest


@EACH_HALF
@pytest.mark.parametrize("masked", [False, True], ids=["plain", "masked"])
def test_script(device: str, dtype: torch.dtype, *, masked: bool) -> None:
    module = module_of(device, dtype)
    script = torch.jit.script(module)
    masks = make_masks(device) if masked else {}
    for _ in range(3):  # the profiling executor changes its mind
        assert_agree(script, module, small(device, dtype), **masks)


@EACH_HALF
def test_script_with_dropout_and_autocast(device: str, dtype: torch.dtype) -> None:
    module = torch.nn.MultiheadAttention(WIDTH, 4, dropout=0.5).to(device)
    script = torch.jit.script(module)
    inputs = small(device, torch.float32)
    with torch.autocast(device, dtype=dtype):
        expected = torch.softmax(torch.zeros(1, 1, dtype=dtype, device=device), -1).dtype
        for _ in range(3):
            output, weights = script(*inputs)
    assert output.dtype == dtype
    assert weights.dtype == expected
    assert bool(output.isfinite().all())


@EACH
def test_trace(device: str, dtype: torch.dtype) -> None:
    inputs = tuple(small(device, dtype))
    traced = torch.jit.trace(Attention(), inputs, check_trace=False)
    assert_agree(traced, with_weights, list(inputs))
    kinds = {node.kind() for node in traced.inlined_graph.nodes()}
    assert "prim::PythonOp" not in kinds, "the trace cannot be saved"


def test_compile(device: str) -> None:
    torch.compiler.reset()
    run = torch.compile(with_weights, backend="aot_eager", fullgraph=True)
    inputs = small(device, torch.float16)
    assert_agree(run, with_weights, inputs, **make_masks(device))


@EACH_HALF
def test_compile_under_autocast(device: str, dtype: torch.dtype) -> None:
    torch.compiler.reset()
    run = torch.compile(with_weights, backend="aot_eager", fullgraph=True)
    inputs = small(device, torch.float32)
    with torch.autocast(device, dtype=dtype):
        output, weights = run(*inputs)
        plain, plain_weights = with_weights(*inputs)
    assert output.dtype == plain.dtype
    assert weights.dtype == plain_weights.dtype
    assert max_error(output, plain) <= bound(dtype) * float(plain.abs().max())


@EACH_HALF
@pytest.mark.parametrize("strict", [False, True], ids=["loose", "strict"])
def test_export_with_a_dynamic_length(device: str, dtype: torch.dtype, *, strict: bool) -> None:
    length = torch.export.Dim("length", min=2, max=64)
    program = torch.export.export(
        Attention(),
        tuple(small(device, dtype)),
        dynamic_shapes=({0: length}, {0: length}, {0: length}),
        strict=strict,
    )
    longer = draw(device, dtype, 1.0, length=LENGTH + 5, head_dim=WIDTH // 4)
    assert_agree(program.module(), with_weights, longer)
    targets = {str(node.target) for node in program.graph.nodes}
    assert not any("bmm.dtype" in target for target in targets), "only some devices can run it"


@EACH
def test_vmap(device: str, dtype: torch.dtype) -> None:
    first = small(device, dtype)
    second = [one.flip(0) * 0.5 for one in first]
    stacked = [torch.stack(pair) for pair in zip(first, second, strict=True)]
    outputs, weights = torch.func.vmap(with_weights)(*stacked)
    for at, inputs in enumerate((first, second)):
        output, each = with_weights(*inputs)
        assert max_error(outputs[at], output) <= 4 * bound(dtype)
        assert max_error(weights[at], each) <= bound(dtype)
    shared, _ = torch.func.vmap(with_weights, in_dims=(None, 0, 0))(first[0], *stacked[1:])
    assert max_error(shared[0], with_weights(*first)[0]) <= 4 * bound(dtype)


def loss_of(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
    output, weights = with_weights(query, key, value)
    wide = torch.promote_types(output.dtype, torch.float32)
    return output.to(wide).square().sum() + weights.to(wide).square().sum()


@EACH
def test_grad_and_its_vmap(device: str, dtype: torch.dtype) -> None:
    inputs = small(device, dtype)
    grad = torch.func.grad(loss_of)
    exact = grad(*double(*inputs))
    largest = float(exact.abs().max())
    assert max_error(grad(*inputs), exact) <= bound(dtype) * largest
    each = torch.func.vmap(grad)(*(torch.stack([one, one]) for one in inputs))
    assert max_error(each[1], exact) <= bound(dtype) * largest


@EACH
def test_forward_mode(device: str, dtype: torch.dtype) -> None:
    inputs = small(device, dtype)
    tangents = [one.flip(1) for one in inputs]
    exact = torch.func.jvp(loss_of, tuple(double(*inputs)), tuple(double(*tangents)))[1]
    _, pushed = torch.func.jvp(loss_of, tuple(inputs), tuple(tangents))
    with forward_ad.dual_level():
        duals = [forward_ad.make_dual(*pair) for pair in zip(inputs, tangents, strict=True)]
        dual = forward_ad.unpack_dual(loss_of(*duals)).tangent
    assert dual is not None
    for tangent in (pushed, dual):
        assert max_error(tangent, exact) <= bound(dtype) * float(exact.abs())


@EACH_HALF
def test_hessian(device: str, dtype: torch.dtype) -> None:
    query, key, value = (one[:2] for one in small(device, dtype))
    matrix = torch.func.hessian(loss_of)(query, key, value)
    exact = torch.func.hessian(loss_of)(*double(query, key, value))
    assert matrix.dtype == dtype
    error = float((matrix.double() - exact).norm() / exact.norm())
    assert error <= bound(dtype)


@EACH
def test_meta_tensors(device: str, dtype: torch.dtype) -> None:
    output, weights = with_weights(*(one.to("meta") for one in small(device, dtype)))
    assert output.shape == (LENGTH, 2, WIDTH)
    assert weights.shape == (2, LENGTH, LENGTH)
    assert output.dtype == weights.dtype == dtype


@EACH
def test_subclasses(device: str, dtype: torch.dtype) -> None:
    class Named(torch.Tensor):
        """A subclass that changes nothing."""

    inputs = small(device, dtype)
    output, _ = with_weights(*(one.as_subclass(Named) for one in inputs))
    assert max_error(output.as_subclass(torch.Tensor), with_weights(*inputs)[0]) <= 4 * bound(dtype)


@EACH
@pytest.mark.parametrize("place", range(4), ids=["query", "key", "value", "mask"])
def test_one_operand_is_a_subclass(device: str, dtype: torch.dtype, place: int) -> None:
    operands = [*small(device, dtype), torch.randn(LENGTH, LENGTH).to(device, dtype)]

    def attend_with(one: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        given = [*operands[:place], one, *operands[place + 1 :]]
        return with_weights(*given[:3], attn_mask=given[3])

    sides = {"a": operands[place], "b": operands[place].flip(0)}
    both = attend_with(TwoTensor(*sides.values()))
    for side, one in sides.items():
        for found, right in zip(both, attend_with(one), strict=True):
            # The weights do not depend on the value, and are plain then.
            assert max_error(getattr(found, side, found), right) <= 4 * bound(dtype)


@EACH
def test_flops_are_counted(device: str, dtype: torch.dtype) -> None:
    """All matrix products, forward and backward, and none that no gradient needs."""
    counted = []
    for kind in (dtype, torch.float32):
        leaves = [one.to(kind) for one in small(device, dtype)]
        for learnt in ([0, 1, 2], [0], [1], [2]):
            for at, one in enumerate(leaves):
                one.requires_grad_(at in learnt)
            with FlopCounterMode(display=False) as counter:
                with_weights(*leaves)[0].sum().backward()
            counted.append(counter.get_total_flops())
    assert counted[:4] == counted[4:]
