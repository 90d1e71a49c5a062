"""Which arithmetic gives the figures of pytorch/ao#2460? docs/int8-tolerance.md tells the story.

torchao's `test_int8_wo_quant_save_load` compares an int8 weight-only model on the processor with
the same one on the GPU. Here each candidate computes that model, from the test's own seed, and
its difference stands beside the published one. With a GPU its own rows are added, and with torchao
those of its test.
"""

from __future__ import annotations

import argparse
import importlib
import io
import itertools
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import torch
from torch import Tensor, nn

from contribbot.numerics import record
from contribbot.numerics.arithmetic import ORDERS, Arithmetic

#: What torch.testing's TestCase seeds before each test.
SEED: Final = 1234
#: What `torch.testing.assert_close` allows for float32.
RTOL, ATOL = 1.3e-6, 1e-5
#: How far the order of adding may move the two figures; `show_orders` says how far it does.
ABS_SPREAD, REL_SPREAD = 2e-7, 5e-5
#: Bits of float32 after the point.
_FLOAT32: Final = 23

Rounding = Callable[[Tensor], Tensor]
Layer = tuple[Tensor, Tensor]


@dataclass(frozen=True)
class Signature:
    """What `assert_close` says of 64 elements, with the index of each maximum."""

    mismatched: int
    absolute: float
    absolute_at: int
    relative: float
    relative_at: int

    @classmethod
    def between(cls, actual: Tensor, expected: Tensor) -> Signature:
        """Compare as `assert_close(actual, expected)` does."""
        absolute = (actual - expected).abs().flatten()
        relative = absolute / expected.abs().flatten()
        return cls(
            int((absolute > ATOL + RTOL * expected.abs().flatten()).sum()),
            absolute.max().item(),
            int(absolute.argmax()),
            relative.max().item(),
            int(relative.argmax()),
        )

    def fits(self, other: Signature) -> bool:
        """Whether both are the same but for the order in which a processor adds."""
        return (
            (self.mismatched, self.absolute_at, self.relative_at)
            == (other.mismatched, other.absolute_at, other.relative_at)
            and abs(self.absolute - other.absolute) < ABS_SPREAD
            and abs(self.relative - other.relative) < REL_SPREAD
        )

    def __str__(self) -> str:
        """Say all five, at full length."""
        return (
            f"{self.mismatched:2} of 64  {self.absolute:.9e} at {self.absolute_at:2}"
            f"  {self.relative:.9e} at {self.relative_at:2}"
        )


#: https://github.com/pytorch/ao/issues/2460
PUBLISHED: Final = Signature(63, 0.000571131706237793, 12, 0.032202839851379395, 36)


def exact(x: Tensor) -> Tensor:
    """Leave it as it is."""
    return x


def truncate(bits: int) -> Rounding:
    """Cut float32 off behind so many bits after the point."""
    mask = ~((1 << (_FLOAT32 - bits)) - 1)
    return lambda x: (x.contiguous().view(torch.int32) & mask).view(torch.float32)


def down(bits: int) -> Rounding:
    """Round float32 to so many bits after the point, towards minus infinity."""

    def rounded(x: Tensor) -> Tensor:
        cut = truncate(bits)(x)
        below = (cut.view(torch.int32) + (1 << (_FLOAT32 - bits))).view(torch.float32)
        return torch.where((x < 0) & (cut != x), below, cut)

    return rounded


def split(count: int) -> Rounding:
    """Keep the sum of so many bfloat16, as three products of them stand for one of float32."""

    def rounded(x: Tensor) -> Tensor:
        parts = torch.zeros_like(x)
        for _ in range(count):
            parts = parts + (x - parts).bfloat16().float()
        return parts

    return rounded


def quantize(weight: Tensor) -> Layer:
    """Quantise symmetrically to int8, row by row, as torchao 0.11 to 0.18 do, bit for bit."""
    scale = (weight.abs().amax(1) / 127.5).clamp(min=torch.finfo(torch.float32).eps)
    whole = torch.clamp(torch.round(weight * (1 / scale[:, None])), -128, 127)
    return whole.to(torch.int8), scale


def draw() -> tuple[list[nn.Linear], Tensor]:
    """Draw the test's two layers and its input: (1, 64) to 32 to 64, without bias."""
    torch.manual_seed(SEED)
    layers = [nn.Linear(64, 32, bias=False), nn.Linear(32, 64, bias=False)]
    return layers, torch.randn(1, 64)


def scale_after(x: Tensor, layers: list[Layer], rounding: Rounding = exact) -> Tensor:
    """Multiply by the whole numbers, then by the scales: what torchao does."""
    for whole, scale in layers:
        x = torch.mm(rounding(x), whole.t().to(x.dtype)) * scale.to(x.dtype)
    return x


def scale_before(x: Tensor, layers: list[Layer], rounding: Rounding = exact) -> Tensor:
    """Make float weights first, then multiply."""
    for whole, scale in layers:
        weight = whole.to(x.dtype) * scale[:, None].to(x.dtype)
        x = torch.mm(rounding(x), rounding(weight).t())
    return x


def candidates(x: Tensor, layers: list[Layer]) -> Iterator[tuple[str, Tensor]]:
    """Compute the model on the processor by every arithmetic in question."""
    roundings: dict[str, Callable[[Tensor], Tensor]] = {
        "float32": exact,
        "TF32, to nearest": Arithmetic(inputs="tf32").take,
        "TF32, cut off (towards zero)": Arithmetic(inputs="tf32 cut off").take,
        "TF32, towards minus infinity": down(10),
        "11 bits, cut off": truncate(11),
        "9 bits, cut off": truncate(9),
        "bfloat16, to nearest": Arithmetic(inputs="bfloat16").take,
        "bfloat16, cut off": truncate(7),
        "two bfloat16 parts": split(2),
        "float16": Arithmetic(inputs="float16").take,
    }
    for name, rounding in roundings.items():
        yield name, scale_after(x, layers, rounding)
    for name in list(roundings)[:3]:
        yield f"{name}; scaled first", scale_before(x, layers, roundings[name])
    for dtype in (torch.float16, torch.bfloat16):
        yield f"everything in {str(dtype)[6:]}", scale_after(x.to(dtype), layers).float()


def on_gpu(x: Tensor, layers: list[Layer]) -> Iterator[tuple[str, Tensor]]:
    """Compute it on the GPU, by each order, setting and type."""
    x, layers = x.cuda(), [(whole.cuda(), scale.cuda()) for whole, scale in layers]
    orders = {"": scale_after, "; scaled first": scale_before}
    for precision, (order, compute) in itertools.product(("highest", "high"), orders.items()):
        torch.set_float32_matmul_precision(precision)
        yield f"{precision}{order}", compute(x, layers)
        # One row goes to a matrix-vector kernel; many go to the matrix units.
        for rows in (16, 64, 256):
            yield f"{precision}, {rows} rows{order}", compute(x.repeat(rows, 1), layers)[:1]
    torch.set_float32_matmul_precision("highest")
    for dtype, reduced in itertools.product((torch.float16, torch.bfloat16), (True, False)):
        torch.backends.cuda.matmul.allow_fp16_reduced_precision_reduction = reduced
        torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction = reduced
        name = f"{str(dtype)[6:]}, reduced-precision sums {'on' if reduced else 'off'}"
        yield name, scale_after(x.to(dtype), layers).float()


def by_torchao(device: str, modes: list[str]) -> Iterator[tuple[str, Tensor]]:
    """Do what the test does with torchao itself: quantise, save, load, move, run."""
    torchao = importlib.import_module("torchao")  # not among the dependencies
    api = importlib.import_module("torchao.quantization")

    (first, second), x = draw()
    model = nn.Sequential(first, second).eval()
    torch.set_float32_matmul_precision("highest")
    api.quantize_(model, api.Int8WeightOnlyConfig())
    left = torch.get_float32_matmul_precision()
    saved = io.BytesIO()
    torch.save(model.state_dict(), saved)
    saved.seek(0)
    other = nn.Sequential(nn.Linear(64, 32, bias=False), nn.Linear(32, 64, bias=False)).eval()
    api.quantize_(other, api.Int8WeightOnlyConfig())
    other.load_state_dict(torch.load(saved))
    other, x = other.to(device), x.to(device)
    name = f"{torchao.__version__} (leaves '{left}')"
    with torch.no_grad():
        for precision in ("high", "highest"):
            torch.set_float32_matmul_precision(precision)
            yield f"{name}, {precision}", other(x)
            yield f"{name}, {precision}, 64 rows", other(x.repeat(64, 1))[:1]
            for mode in modes:
                torch.compiler.reset()
                yield f"{name}, {precision}, compiled {mode}", torch.compile(other, mode=mode)(x)
                y = torch.compile(other, mode=mode)(x.repeat(64, 1))[:1]
                yield f"{name}, {precision}, compiled {mode}, 64 rows", y
    torch.set_float32_matmul_precision("highest")


def write_records(folder: Path) -> None:
    """Record the first layer, for 64 rows, of the processor and of the GPU's precisions."""
    layers, _ = draw()
    whole, scale = quantize(layers[0].weight)
    x = torch.randn(64, 64)
    inputs = {"x": x, "weight": whole, "scale": scale}
    folder.mkdir(parents=True, exist_ok=True)
    record(folder / "cpu.safetensors", "int8-linear", scale_after(x, [(whole, scale)]), inputs)
    for precision in ("highest", "high") if torch.cuda.is_available() else ():
        torch.set_float32_matmul_precision(precision)
        result = scale_after(x.cuda(), [(whole.cuda(), scale.cuda())])
        record(folder / f"{precision}.safetensors", "int8-linear", result, inputs)
    torch.set_float32_matmul_precision("highest")


def show(title: str, reference: Tensor, rows: Iterator[tuple[str, Tensor]]) -> None:
    """Print a table; a row that cannot be computed says why and ends it."""
    print(f"\n{title}")
    try:
        for name, result in rows:
            found = Signature.between(reference, result.detach().cpu())
            print(f"  {name:58} {found}{'  AS PUBLISHED' if found.fits(PUBLISHED) else ''}")
    except Exception as error:  # noqa: BLE001  the other tables are worth having
        print(f"  did not run: {type(error).__name__}: {str(error).splitlines()[0]}")


def by_order(x: Tensor, layers: list[Layer]) -> Iterator[tuple[str, Signature]]:
    """Compare float32 with TF32 that is cut off, added in every order that contribbot knows."""
    for order, multiply_add in itertools.product(ORDERS, ("separate", "fused")):
        sides = []
        for inputs in ("as given", "tf32 cut off"):
            way = Arithmetic(inputs=inputs, order=order, multiply_add=multiply_add)
            y = x[0]
            for whole, scale in layers:
                factors = way.take(y)[:, None].expand(-1, len(whole)).contiguous()
                y = way.dot(factors, whole.float().t().contiguous()) * scale
            sides.append(y)
        yield f"{order}, {multiply_add}", Signature.between(sides[0], sides[1])


def show_orders(found: dict[str, Signature]) -> None:
    """Print how far the order of adding moves the figures, and which orders give the published."""
    print("\nTF32, cut off, by the order in which both sides add")
    fitting = [difference for difference in found.values() if difference.fits(PUBLISHED)]
    print(f"  {len(fitting)} of {len(found)} fit: 63 of 64, at the places that were published")
    for name in ("absolute", "relative"):
        values = [getattr(difference, name) for difference in found.values()]
        print(f"  greatest {name}: {min(values):.6e} to {max(values):.6e}")
    exactly = [name for name, difference in found.items() if difference == PUBLISHED]
    print(f"  digit for digit as published: {'; '.join(exactly)}")


def main() -> None:
    """Compute and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--compile", nargs="*", default=[], metavar="MODE", help="of torch.compile")
    parser.add_argument("--record", type=Path, metavar="FOLDER", help="write records, and end")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    with torch.no_grad():
        if arguments.record:
            write_records(arguments.record)
            return
        drawn, x = draw()
        layers = [quantize(layer.weight) for layer in drawn]
        reference = scale_after(x, layers)
        print(f"torch {torch.__version__}\n  {'published (pytorch/ao#2460)':58} {PUBLISHED}")
        show("The processor stands in: activations are", reference, candidates(x, layers))
        show_orders(dict(by_order(x, layers)))
        if torch.cuda.is_available():
            name = torch.cuda.get_device_name()
            show(f"On {name}, matmul precision", reference, on_gpu(x, layers))
        for device in ("cpu", "cuda") if torch.cuda.is_available() else ("cpu",):
            show(f"torchao itself on {device}", reference, by_torchao(device, arguments.compile))


if __name__ == "__main__":
    main()
