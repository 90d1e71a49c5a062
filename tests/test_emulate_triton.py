"""Triton kernels of vLLM and SGLang that these releases run on ROCm, executed, against torch."""

from __future__ import annotations

import sys
import tarfile
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import torch

from benchmarks.jagged_scales import alone, main
from contribbot import emulate
from contribbot.git.pins import Silent
from contribbot.git.pins.index import obtain
from contribbot.model.patch import SdistSource, WheelSource
from contribbot.queue.load import load_queue
from tests.conftest import REAL_CACHE
from tests.tools import kinds

if TYPE_CHECKING:
    from collections.abc import Callable

    Kernel = Callable[..., emulate.Kernel]

TARGETS = ("gfx942", "gfx950", "gfx1100", "gfx1201")
EACH = kinds(TARGETS, "gfx942".__eq__)
QUANT = "vllm/model_executor/layers/quantization/utils/fp8_utils.py"
MERGE = "vllm/v1/attention/ops/triton_merge_attn_states.py"
SILU = "sglang/kernels/ops/activation/silu_and_mul_clamp_hip.py"
MATMUL = "sglang/kernels/ops/gemm/fp8_kernel.py"


@pytest.fixture(scope="session")
def sources() -> dict[str, str]:
    """Give the files of the pinned releases, from the archives that are kept between runs."""
    pins = load_queue(Path(__file__).parent.parent).spec.pins
    specs = {pin.tag: pin.sources[0] for pin in pins if pin.tag in {"v0.33.0", "v0.5.23"}}
    vllm, sglang = specs["v0.33.0"], specs["v0.5.23"]
    assert isinstance(vllm, SdistSource)
    assert isinstance(sglang, WheelSource)
    found = {}
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CONTRIBBOT_CACHE", str(REAL_CACHE))
        archives = [obtain(source, progress=Silent()) for source in (vllm, sglang)]
    with tarfile.open(archives[0]) as tar:
        for name in (QUANT, MERGE):
            file = tar.extractfile(f"vllm-{vllm.version}/{name}")
            assert file is not None
            found[name] = file.read().decode()
    with zipfile.ZipFile(archives[1]) as wheel:
        found.update({name: wheel.read(name).decode() for name in (SILU, MATMUL)})
    return found


@pytest.fixture
def compiled(sources: dict[str, str], tmp_path: Path) -> Kernel:
    """Give what compiles one kernel of a file; what is no type in its signature is a constant."""

    def compile_one(
        path: str, name: str, target: str, arguments: dict[str, str | float | None], needs: str = ""
    ) -> emulate.Kernel:
        file = tmp_path / Path(path).name
        file.write_text(alone(sources[path], name, needs), encoding="utf-8")
        types = {key: kind for key, kind in arguments.items() if str(kind)[0] in "*if"}
        constants = {key: value for key, value in arguments.items() if key not in types}
        signature = {key: str(types.get(key, "constexpr")) for key in arguments}
        return emulate.compile_triton(file, name, target, signature, constants=constants)

    return compile_one


@pytest.fixture
def generator() -> torch.Generator:
    return torch.Generator().manual_seed(3)


def run(kernel: emulate.Kernel, grid: tuple[int, ...], *arguments: emulate.Argument) -> None:
    """Launch four waves a workgroup; triton's own two arguments come last."""
    emulate.launch(kernel, grid, 4 * kernel.metadata.wavefront_size, [*arguments, 0, 0])


@pytest.mark.parametrize("target", EACH)
def test_per_token_group_quant(target: str, compiled: Kernel, generator: torch.Generator) -> None:
    # 224 on gfx942: get_fp8_min_max of vLLM.
    fnuz = target == "gfx942"
    dtype, largest = (torch.float8_e4m3fnuz, 224.0) if fnuz else (torch.float8_e4m3fn, 448.0)
    kernel = compiled(
        QUANT, "_per_token_group_quant_fp8", target,
        {"y_ptr": "*bf16:16", "y_q_ptr": "*fp8e4b8:16" if fnuz else "*fp8e4nv:16",
         "y_s_ptr": "*fp32:16", "group_size": "i32:16", "y_num_columns": "i32:16",
         "y_row_stride": "i32:16", "eps": "fp32", "fp8_min": -largest, "fp8_max": largest,
         "use_ue8m0": False, "BLOCK": 128},
    )  # fmt: skip
    y = torch.randn(24, 512, generator=generator).bfloat16()
    y[3, :128] = 0
    q, scales = torch.zeros(24, 512, dtype=torch.uint8), torch.zeros(24, 4)
    run(kernel, (96,), y, q, scales, 128, 512, 512, 1e-10)
    groups = y.float().view(24, 4, 128)
    expected = groups.abs().amax(-1).clamp(min=1e-10) * (1.0 / largest)
    assert torch.equal(scales, expected)
    wide = (groups / expected[..., None]).clamp(-largest, largest).view(24, 512)
    assert torch.equal(q, wide.to(dtype).view(torch.uint8))


@pytest.mark.slow
@pytest.mark.parametrize("target", EACH)
def test_merge_of_attention_states(
    target: str, compiled: Kernel, generator: torch.Generator
) -> None:
    strides = [f"{name}_{part}_stride" for name in ("prefix_lse", "suffix_lse", "output_lse")
               for part in ("head", "token")]  # fmt: skip
    kernel = compiled(
        MERGE, "merge_attn_states_kernel", target,
        {**dict.fromkeys(("output", "output_lse", "prefix_output", "prefix_lse", "suffix_output",
                          "suffix_lse"), "*fp32:16"),
         **dict.fromkeys(("prefix_head_stride", "output_head_stride", *strides), "i32"),
         "output_scale": None, "prefill_tokens_with_context": "i32", "HEAD_SIZE": 96,
         "PADDED_HEAD_SIZE": 128, "OUTPUT_LSE": True, "USE_FP8": False, "FP8_MIN": -448.0,
         "FP8_MAX": 448.0},
        "import torch; float8_info = torch.finfo(torch.float8_e4m3fn)",
    )  # fmt: skip
    prefix, suffix = torch.randn(2, 12, 4, 96, generator=generator)
    before, after = torch.randn(2, 4, 12, generator=generator) * 3
    before[0, :3] = torch.tensor([float("inf"), float("-inf"), 2.0])
    after[0, 1:3] = torch.tensor([float("-inf"), float("inf")])
    out, lse = torch.zeros_like(prefix), torch.zeros_like(before)
    last = 10  # tokens from here on have no prefix
    run(kernel, (12, 4), out, lse, prefix, before, suffix, after, 96, 96, 12, 1, 12, 1, 12, 1, last)
    both = torch.stack([before, after]).double()
    both = both.where(both != float("inf"), float("-inf"))
    both[0, :, last:] = float("-inf")
    weights = both.softmax(0).nan_to_num(0).transpose(1, 2)[..., None]
    expected = weights[0] * prefix.double() + weights[1] * suffix.double()
    # A few roundings of float32, and 2 ULP of each exponential.
    assert torch.allclose(out.double(), expected, rtol=2e-6, atol=2e-6)
    assert torch.allclose(lse.double(), both.logsumexp(0), rtol=1e-6, atol=1e-6)
    assert torch.equal(out[last:], suffix[last:])


@pytest.mark.parametrize("target", EACH)
def test_silu_and_mul_with_a_limit(
    target: str, compiled: Kernel, generator: torch.Generator
) -> None:
    kernel = compiled(
        SILU, "_silu_and_mul_clamp_kernel", target,
        {"x_ptr": "*bf16:16", "out_ptr": "*bf16:16", "scale_ptr": "*bf16:16", "inter_size": "i32",
         "stride_xm": "i32", "stride_om": "i32", "stride_sm": "i32", "limit": "fp32",
         "BLOCK_I": 512, "FP8_GRID": False, "EMIT_FP8": False},
        "fp8_grid_quant = fp8_grid_round = None",
    )  # fmt: skip
    x = (torch.randn(20, 800, generator=generator) * 6).bfloat16()
    out = torch.zeros(20, 400).bfloat16()
    run(kernel, (20, 1), x, out, out, 400, 800, 400, 0, 7.0)
    gate, up = x.double().chunk(2, 1)
    gate, up = gate.clamp(max=7), up.clamp(-7, 7)
    expected = gate * gate.sigmoid() * up
    nearest = expected.bfloat16()
    # Off by one only where float32 comes to the other side of a tie.
    assert torch.allclose(out.double(), nearest.double(), rtol=2**-7, atol=2**-133)
    assert (out == nearest).double().mean() > 0.999


def rounded(x: torch.Tensor, block: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return scales of blocks of columns, and what is left in FP8's range."""
    scales = x.view(x.shape[0], -1, block).abs().amax(-1) / 200
    return scales, x / scales.repeat_interleave(block, 1)


@pytest.mark.parametrize("target", kinds(("gfx942", "gfx950", "gfx1201"), "gfx942".__eq__))
def test_a_matrix_product_in_fp8(target: str, compiled: Kernel, generator: torch.Generator) -> None:
    fnuz = target == "gfx942"
    dtype, name = (torch.float8_e4m3fnuz, "fp8e4b8") if fnuz else (torch.float8_e4m3fn, "fp8e4nv")
    m, n, k, group = 40, 128, 512, 128
    strides = ("am", "ak", "bk", "bn", "cm", "cn", "As_m", "As_k", "Bs_k", "Bs_n")
    kernel = compiled(
        MATMUL, "_w8a8_block_fp8_matmul", target,
        {"A": f"*{name}:16", "B": f"*{name}:16", "C": "*fp32:16", "As": "*fp32:16",
         "Bs": "*fp32:16", **dict.fromkeys(("M", "N", "K", "group_n", "group_k"), "i32"),
         **{f"stride_{part}": "i32" for part in strides}, "BLOCK_SIZE_M": 64, "BLOCK_SIZE_N": 64,
         "BLOCK_SIZE_K": 128, "GROUP_SIZE_M": 4, "needs_masking": False},
    )  # fmt: skip
    a_scale, a = rounded(torch.randn(m, k, generator=generator), group)
    b_scale, b = rounded(torch.randn(n, k, generator=generator), group)
    b_scale, b = b_scale[:1].contiguous(), b.to(dtype)  # scales of blocks of 128 by 128
    a = a.to(dtype)
    c = torch.zeros(m, n)
    codes = [tensor.view(torch.uint8) for tensor in (a, b)]
    steps = [k, 1, 1, k, n, 1, k // group, 1, 1, k // group]
    run(kernel, (2,), *codes, c, a_scale, b_scale, m, n, k, group, group, *steps)
    left = a.double() * a_scale.double().repeat_interleave(group, 1)
    right = b.double() * b_scale.double().repeat_interleave(group, 1)
    # The bound of any order of k additions and 3 k / 128 roundings more.
    bound = 1.1 * k * 2**-24 * (left.abs() @ right.abs().T)
    assert ((c.double() - left @ right.T).abs() <= bound).all()


PRODUCT = """
import triton
import triton.language as tl


@triton.jit
def product(a_ptr, b_ptr, c_ptr, K, SUM: tl.constexpr, N: tl.constexpr, STEP: tl.constexpr):
    row, column, k = tl.arange(0, N), tl.arange(0, N), tl.arange(0, STEP)
    total = tl.zeros((N, N), dtype=SUM)
    for start in range(0, K, STEP):
        a = tl.load(a_ptr + row[:, None] * K + start + k[None, :])
        b = tl.load(b_ptr + (start + k[:, None]) * N + column[None, :])
        total = tl.dot(a, b, total, out_dtype=SUM, input_precision="ieee")
    tl.store(c_ptr + row[:, None] * N + column[None, :], total)
"""
#: What triton multiplies by MFMA or WMMA on these targets.
TYPES = {
    "fp16": (torch.float16, TARGETS), "bf16": (torch.bfloat16, TARGETS),
    "fp32": (torch.float32, ("gfx942", "gfx950")), "i8": (torch.int8, TARGETS),
    "fp8e4b8": (torch.float8_e4m3fnuz, ("gfx942",)),
    "fp8e5b16": (torch.float8_e5m2fnuz, ("gfx942",)),
    "fp8e4nv": (torch.float8_e4m3fn, ("gfx950", "gfx1201")),
    "fp8e5": (torch.float8_e5m2, ("gfx950", "gfx1201")),
}  # fmt: skip


#: By MFMA of 16 by 16 and of 32 by 32; WMMA has one size.
CASES = [
    (target, kind, size)
    for kind, (_, targets) in TYPES.items()
    for target in targets
    for size in ((16, 64) if target.startswith("gfx9") and kind == "fp16" else (32,))
]


#: What `make test` runs: each kind of instruction, and each family of targets.
QUICK = {
    ("gfx942", "fp16", 16), ("gfx942", "fp8e4b8", 32), ("gfx950", "fp16", 64),
    ("gfx1100", "fp16", 32), ("gfx1201", "fp8e4nv", 32),
}  # fmt: skip


@pytest.mark.parametrize(("target", "kind", "size"), kinds(CASES, QUICK.__contains__))
def test_matrix_instructions(
    target: str, kind: str, size: int, tmp_path: Path, generator: torch.Generator
) -> None:
    (tmp_path / "kernel.py").write_text(PRODUCT, encoding="utf-8")
    whole = kind == "i8"
    kernel = emulate.compile_triton(
        tmp_path / "kernel.py", "product", target,
        {"a_ptr": f"*{kind}:16", "b_ptr": f"*{kind}:16",
         "c_ptr": "*i32:16" if whole else "*fp32:16", "K": "i32:16",
         **dict.fromkeys(("SUM", "N", "STEP"), "constexpr")},
        constants={"SUM": "tl.int32" if whole else "tl.float32", "N": size, "STEP": 64},
    )  # fmt: skip
    dtype, k = TYPES[kind][0], 192
    a, b = (torch.randn(shape, generator=generator) * (40 if whole else 1)
            for shape in ((size, k), (k, size)))  # fmt: skip
    a, b = a.to(dtype), b.to(dtype)
    c = torch.zeros(size, size, dtype=torch.int32 if whole else torch.float32)
    given = [x.view(torch.uint8) if "fp8" in kind else x for x in (a, b)]
    ran = emulate.launch(
        kernel, 1, 4 * kernel.metadata.wavefront_size, [*given, c, k, 0, 0], bounds=True
    )
    exact = a.double() @ b.double()
    bound = 0 if whole else k * 2**-24 * (a.double().abs() @ b.double().abs())
    assert ((c.double() - exact).abs() <= bound).all()
    # Documents leave the order of the additions open; that of integers does not matter.
    assert bool(ran.undetermined) is not whole


@pytest.mark.parametrize("arguments", [[], ["missing.whl"], ["."]])
def test_the_benchmark_of_jagged_scales_says_which_file_it_needs(
    arguments: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "argv", ["jagged_scales", *arguments])
    with pytest.raises(SystemExit, match="WHEEL must be torchao's wheel"):
        main()
