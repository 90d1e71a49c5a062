"""Why torchao 0.18.0 skips its test of jagged rowwise scales on ROCm (docs/jagged-scales.md).

    python -m pip download torchao==0.18.0 --no-deps
    python -m benchmarks.jagged_scales torchao-0.18.0-*.whl

The kernel and the reference come from the wheel. The kernel is compiled for gfx942 and gfx950 by
the triton that is installed here, executed by contribbot.emulate on the test's shapes, and compared
byte by byte: as torchao starts it, and with the output's row stride where torchao passes 1.
"""

from __future__ import annotations

import ast
import importlib
import logging
import sys
import tempfile
import textwrap
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch

from contribbot import emulate
from contribbot.errors import ContribbotError

SOURCE = "torchao/prototype/moe_training/kernels/jagged_float8_scales.py"
KERNEL = "_triton_fp8_per_group_rowwise_scales_kernel"
ROWS, GROUP, GROUPS = 256, 256, 4  # of torchao's test
COLUMNS = GROUP * GROUPS
#: Of the 36 that torchao tunes over: BLOCK_SIZE, BLOCK_SIZE_ITER, warps, stages.
CONFIGURATIONS = ((32, 64, 4, 2), (64, 128, 8, 3), (128, 256, 4, 2), (128, 64, 8, 3))
#: torchao's dtype on each target, and what triton calls it.
DTYPES = {
    "gfx942": (torch.float8_e4m3fnuz, "fp8e4b8", "float8e4b8"),
    "gfx950": (torch.float8_e4m3fn, "fp8e4nv", "float8e4nv"),
}
Reference = Callable[[torch.Tensor, torch.Tensor, torch.dtype, bool], tuple[torch.Tensor, ...]]


def alone(text: str, kernel: str, needs: str = "") -> str:
    """Return a module with one Triton kernel of another, its lines numbered as there."""
    function = next(
        node
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.FunctionDef) and node.name == kernel
    )
    body = "\n".join(text.splitlines()[function.lineno - 1 : function.end_lineno])
    head = f"import triton, triton.language as tl; {needs}"
    blank = "\n" * (function.lineno - 2)
    return f"{head}{blank}@triton.jit\n{textwrap.dedent(body)}\n"


def unpack(wheel: Path, folder: Path) -> tuple[Path, Reference]:
    """Return the kernel alone in a file, its lines numbered as in the wheel, and the reference."""
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder)
    path = folder / Path(SOURCE).name
    path.write_text(alone((folder / SOURCE).read_text(encoding="utf-8"), KERNEL), encoding="utf-8")
    sys.path.insert(0, str(folder))
    logging.disable(logging.WARNING)  # its compiled parts, which are not needed, do not load
    utils = importlib.import_module("torchao.prototype.moe_training.utils")
    reference: Reference = utils.torch_to_float8_per_group_rowwise
    return path, reference


@dataclass
class Case:
    """A compiled kernel, and the shape that it is started on."""

    kernel: emulate.Kernel
    block: int  # rows of a workgroup
    warps: int
    x: torch.Tensor
    offsets: torch.Tensor

    def run(
        self, out: torch.Tensor, scales: torch.Tensor, *, bounds: bool = False
    ) -> emulate.Launched:
        """Start the kernel as torchao does."""
        rows, columns = self.x.shape
        groups = self.offsets.numel()
        return emulate.launch(
            self.kernel,
            (-(-rows // self.block), groups),
            self.warps * self.kernel.metadata.wavefront_size,
            [self.x, self.offsets, out, scales, rows, columns, groups, columns, 1, 0, 0],
            bounds=bounds,
        )


def compiled(
    path: Path,
    target: str,
    configuration: tuple[int, int, int, int],
    *,
    stride: int = COLUMNS,
    powers: bool = False,
    rows: int = ROWS,
) -> Case:
    """Compile the kernel for a target."""
    dtype, pointer, name = DTYPES[target]
    block, step, warps, stages = configuration
    limits = torch.finfo(dtype)
    constants: dict[str, int | float | str | bool | None] = {
        "fp8_dtype_min": limits.min, "fp8_dtype_max": limits.max, "input_dtype": "tl.float32",
        "output_dtype": f"tl.{name}", "round_scales_to_power_of_2": powers, "BLOCK_SIZE": block,
        "BLOCK_SIZE_ITER": step, "EPS": 1e-12, "STRIDE_OUTPUT_ROW": stride, "STRIDE_INPUT_COL": 1,
    }  # fmt: skip
    signature = {
        "input_ptr": "*fp32:16", "offsets_ptr": "*i64:16", "out_ptr": f"*{pointer}:16",
        "scales_ptr": "*fp32:16", "M": "i64", "K": "i64:16", "N_GROUPS": "i64",
        "stride_input_row": "i64:16", "stride_output_col": "i64",
        **dict.fromkeys(constants, "constexpr"),
    }  # fmt: skip
    kernel = emulate.compile_triton(
        path, KERNEL, target, signature, constants=constants, num_warps=warps, num_stages=stages
    )
    x = torch.randn(rows, COLUMNS, generator=torch.Generator().manual_seed(0))
    offsets = torch.arange(GROUP, COLUMNS + 1, GROUP)
    return Case(kernel, block, warps, x, offsets)


def differing(case: Case, expected: torch.Tensor, scales: torch.Tensor) -> str:
    """Run a case, and say what differs from the reference and what is never written."""
    outs = [torch.full(expected.shape, fill, dtype=torch.uint8) for fill in (0, 255)]
    found = torch.zeros_like(scales)
    case.run(outs[1], found)
    ran = case.run(outs[0], found, bounds=True)
    differ = outs[0] != expected
    total = differ.numel()
    where = f", the first at {tuple(differ.nonzero()[0].tolist())}" if differ.any() else ""
    bounds = {name: int(mask.sum()) for name, mask in ran.undetermined.items()}
    return (
        f"{int(differ.sum()):,} of {total:,} bytes differ{where}; "
        f"{int((outs[0] != outs[1]).sum()):,} are never written; "
        f"{int((found != scales).sum())} of {scales.numel():,} scales differ; "
        f"bytes that depend on bounds: {bounds or 0}"
    )


def main() -> None:
    """Print what differs on each target, and where."""
    if not sys.argv[1:] or not zipfile.is_zipfile(sys.argv[1]):
        sys.exit("python -m benchmarks.jagged_scales WHEEL: WHEEL must be torchao's wheel")
    with tempfile.TemporaryDirectory() as name:
        path, reference = unpack(Path(sys.argv[1]), Path(name))
        for target, (dtype, _, _) in DTYPES.items():
            for powers in (True, False):
                print(f"{target}, {dtype}, round_scales_to_power_of_2={powers}")
                case = compiled(path, target, CONFIGURATIONS[0], stride=1, powers=powers)
                data, scales = reference(case.x, case.offsets, dtype, powers)
                expected = data.view(torch.uint8)
                print(f"  as it is: {differing(case, expected, scales)}")
                for configuration in CONFIGURATIONS:
                    case = compiled(path, target, configuration, powers=powers)
                    told = differing(case, expected, scales)
                    print(f"  with the row stride, {configuration}: {told}", flush=True)
            last = ROWS + COLUMNS - 2
            for stride, rows, size in (
                (1, ROWS, last + 1), (1, ROWS, last), (COLUMNS, 100, 100 * COLUMNS)
            ):  # fmt: skip
                case = compiled(path, target, CONFIGURATIONS[0], stride=stride, rows=rows)
                out = torch.zeros(size, dtype=torch.uint8)
                try:
                    case.run(out, torch.zeros(rows * GROUPS))
                    told = "no access beyond it"
                except ContribbotError as error:
                    told = str(error)
                print(f"  {rows} rows, an output of {out.numel():,} bytes: {told}")


if __name__ == "__main__":
    main()
