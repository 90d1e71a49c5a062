"""Listings of real kernels: what is read from them holds against what the compiler says."""

from __future__ import annotations

import re
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pydantic import JsonValue

from contribbot.cli.show_results import listing_lines
from contribbot.hardware.compare import COLUMNS, ListingRow, pair_kernels, rows_of
from contribbot.hardware.hip import Compiler
from contribbot.hardware.listing import (
    Kernel,
    Listing,
    by_class,
    class_of,
)
from contribbot.hardware.targets import wavefront_of
from contribbot.model.evidence import StageResult
from tests.hiptoy import seen_once

if TYPE_CHECKING:
    from contribbot.hardware.toolchain import Toolchain

#: Registers, local data share and work-group sizes across what limits occupancy.
CROWD = """\
#include <hip/hip_runtime.h>
template <int values, int bytes, int threads>
__global__ void __launch_bounds__(threads) crowd(float* data, int count) {
  __shared__ char room[bytes];
  float kept[values];
  for (int i = 0; i < values; ++i) kept[i] = data[threadIdx.x + i * count];
  room[threadIdx.x % bytes] = static_cast<char>(data[0]);
  __syncthreads();
  data[0] = room[(threadIdx.x + 1) % bytes];
  for (int i = 0; i < values; ++i) data[threadIdx.x * count + i] = kept[values - 1 - i];
}
"""
SHAPES = [
    (values, size, threads)
    for values in (2, 40, 120)
    for size in (64, 30000)
    for threads in (64, 768)
]
CALLS = """\
#include <hip/hip_runtime.h>
__device__ __attribute__((noinline)) float apart(float x) { return x * x + 1.0F; }
extern "C" __global__ void caller(float* data) { data[0] = apart(data[1]) + tanf(data[2]); }
extern "C" __global__ void nothing() {}
"""
#: Symbols that a listing writes in quotes.
ODD = """\
#include <hip/hip_runtime.h>
template <int by> __global__ void größe(float* x) { x[threadIdx.x] *= by; }
template __global__ void größe<3>(float*);
extern "C" __global__ void spaced(float* x) __asm__("a kernel [1]");
extern "C" __global__ void spaced(float* x) { x[threadIdx.x] += 3; }
extern "C" __global__ void quoted(float* x) __asm__("a\\"b:c;\\033[31m");
extern "C" __global__ void quoted(float* x) { x[threadIdx.x] += 4; }
__device__ float missing(float) __asm__("not here");
extern "C" __global__ void caller(float* x) { x[0] = missing(x[1]); }
"""


SLOW = [
    pytest.param(target, marks=pytest.mark.slow) for target in ("gfx1030", "gfx1102", "gfx1201")
]


@pytest.fixture(scope="session")
def clang(tmp_path_factory: pytest.TempPathFactory) -> Toolchain:
    return seen_once(tmp_path_factory)


def listing_of(clang: Toolchain, folder: Path, text: str, target: str) -> str:
    """Compile a source as a user of the compiler would, and return the listing."""
    source = folder / "kernel.hip"
    source.write_text(text)
    argv: list[str | Path] = [
        *clang.argv, "-x", "hip", "--cuda-device-only", f"--offload-arch={target}",
        *clang.flags, "-D__HIP_PLATFORM_AMD__", "-std=c++20", "-O3", "-S", "-o", "-", source,
    ]  # fmt: skip
    done = subprocess.run(argv, capture_output=True, text=True, check=True)
    return done.stdout


def read(clang: Toolchain, folder: Path, text: str, target: str) -> Listing:
    """Read a listing with the object that it becomes."""
    listing_read = Compiler(clang, target, folder, 60, str, "").read(text.encode()).listing
    assert listing_read is not None
    return listing_read


@pytest.mark.tool("clang++-19")
@pytest.mark.parametrize("target", ["gfx90a", *SLOW])
def test_occupancy_is_what_clang_19_says(clang: Toolchain, tmp_path: Path, target: str) -> None:
    instantiations = "".join(f"template __global__ void crowd<{a}, {b}, {c}>(float*, int);\n"
                   for a, b, c in SHAPES)  # fmt: skip
    # LLVM 22 counts otherwise: 16 for work-groups of 768 on gfx1201, not 12.
    clang = replace(clang, argv=("clang++-19",))
    text = listing_of(clang, tmp_path, CROWD + instantiations, target)
    stated = dict(
        zip(
            re.findall(r"^\s*\.amdhsa_kernel (\S+)", text, re.MULTILINE),
            map(int, re.findall(r"^; Occupancy: (\d+)", text, re.MULTILINE)),
            strict=True,
        )
    )

    kernels = read(clang, tmp_path, text, target).kernels

    assert {kernel.symbol: kernel.occupancy for kernel in kernels} == stated
    assert len(stated) == len(SHAPES)
    # The cases tell limits apart, or the test shows nothing.
    assert len(set(stated.values())) > 2


@pytest.mark.parametrize("target", ["gfx942", "gfx1100"])
def test_numbers_are_those_of_the_listing(clang: Toolchain, tmp_path: Path, target: str) -> None:
    text = listing_of(
        clang, tmp_path, CROWD + "template __global__ void crowd<90, 64, 256>(float*, int);", target
    )
    body = text[text.index("; %bb.0:") : text.index(".Lfunc_end0:")]
    rows = [row.split()[0] for row in body.splitlines() if re.match(r"\t[a-z]", row)]

    (kernel,) = read(clang, tmp_path, text, target).kernels

    assert kernel.instructions == len(rows)
    assert kernel.title == "crowd<90, 64, 256>"
    assert kernel.function == "crowd"
    for name, value in (
        ("vgpr_count", kernel.vgprs),
        ("sgpr_count", kernel.sgprs),
        ("vgpr_spill_count", kernel.vgpr_spills),
        ("kernarg_segment_size", kernel.kernarg),
        ("wavefront_size", kernel.wavefront),
        ("group_segment_fixed_size", kernel.lds),
    ):
        assert f".{name}: {value}\n" in re.sub(r": +", ": ", text)
    assert f"; codeLenInByte = {kernel.code}\n" in text
    assert kernel.wavefront == wavefront_of(target)
    assert kernel.lds == 64
    # Every instruction has a class, and pairs issued at once are two halves.
    pairs = sum("v_dual" in row for row in rows)
    assert sum(by_class((kernel,)).values()) == kernel.instructions + pairs
    assert "other" not in by_class((kernel,))


def test_calls_are_seen(clang: Toolchain, tmp_path: Path) -> None:
    if clang.kind == "rocm":
        pytest.skip("ROCm's device library has the function")
    listing = read(clang, tmp_path, listing_of(clang, tmp_path, CALLS, "gfx942"), "gfx942")

    assert [kernel.title for kernel in listing.kernels] == ["caller", "nothing"]
    assert list(listing.functions) == ["apart"]
    assert listing.functions["apart"] > 1
    assert listing.unresolved == ("__ocml_tan_f32",)
    assert listing.kernels[1].instructions == 1


def test_names_that_are_no_identifiers_are_read(clang: Toolchain, tmp_path: Path) -> None:
    listing = read(clang, tmp_path, listing_of(clang, tmp_path, ODD, "gfx942"), "gfx942")

    titles = [kernel.title for kernel in listing.kernels]
    assert titles == ["größe<3>", "a kernel [1]", 'a"b:c;\x1b[31m', "caller"]
    assert all(kernel.works and kernel.code and kernel.vgprs for kernel in listing.kernels)
    assert listing.unresolved == ("not here",)
    # No terminal obeys a name.
    rows = rows_of(pair_kernels([], listing.kernels))
    assert "\x1b" not in "".join(listing_lines(result_of(rows)))


CLASSES = {
    "matrix": "v_mfma_f32_16x16x16_f16 v_wmma_f32_16x16x16_f16",
    "valu": "v_add_f32_e32 v_cvt_pk_fp8_f32_e64",
    "smem": "s_load_dwordx4 s_buffer_load_b32 s_memtime s_memrealtime",
    "salu": "s_and_saveexec_b64",
    "wait": "s_waitcnt s_wait_loadcnt",
    "branch": "s_cbranch_execz s_endpgm",
    "hint": "s_delay_alu",
    "sync": "s_barrier_signal",
    "lds": "ds_bpermute_b32",
    "vmem": "global_load_dwordx4 scratch_store_b32 buffer_gl0_inv",
    "other": "exp",
}


@pytest.mark.parametrize(("kind", "mnemonics"), CLASSES.items())
def test_classes_of_instructions(kind: str, mnemonics: str) -> None:
    assert {class_of(mnemonic) for mnemonic in mnemonics.split()} == {kind}


def kernel(symbol: str, title: str, instructions: int = 10, **more: int) -> Kernel:
    """Return a kernel with plain numbers."""
    numbers = dict.fromkeys(("agprs", "lds", "scratch", "vgpr_spills", "sgpr_spills", "kernarg"), 0)
    return Kernel(
        symbol=symbol, title=title, instructions=instructions, mnemonics={},
        **{"vgprs": 8, "sgprs": 16, "wavefront": 64, "occupancy": 8, "code": 40, **numbers, **more},
    )  # fmt: skip


def test_kernels_find_their_partner() -> None:
    base = [kernel("a1", "a<int>"), kernel("b1", "b<int>"), kernel("c1", "c<1>"),
            kernel("c2", "c<2>"), kernel("d1", "d<1>"), kernel("gone", "gone")]  # fmt: skip
    patched = [kernel("a1", "a<int>"), kernel("b2", "b<int>"), kernel("c3", "c<1, x>")]
    patched += [kernel("c4", "c<2, x>"), kernel("d2", "d<1, x>"), kernel("d3", "d<2, x>")]

    listing_read = {
        tuple(kernel.symbol if kernel else "" for kernel in (pair.base, pair.patched))
        for pair in pair_kernels(base, patched)
    }

    # By symbol, by name, by order of instantiation; a function that has more of them by none.
    assert listing_read == {
        ("a1", "a1"), ("b1", "b2"), ("c1", "c3"), ("c2", "c4"),
        ("d1", ""), ("gone", ""), ("", "d2"), ("", "d3"),
    }  # fmt: skip


def result_of(rows: list[ListingRow], more: int = 0) -> StageResult:
    """Return an outcome of `compile` with a table."""
    written: list[JsonValue] = [row.to_json() for row in rows]
    return StageResult.model_validate(
        {
            "stage": "compile", "target": "gfx942", "outcome": "passed", "reason": "", "seconds": 1,
            "details": {
                "check": "scale",
                "table": {"columns": list(COLUMNS), "rows": written, "left_out": {"changed": more}},
            },
        }
    )  # fmt: skip


def test_many_instantiations_are_few_rows_and_the_worst_is_first() -> None:
    base = [kernel(f"k{n}", f"k<{n}>", 100) for n in range(40)]
    patched = [kernel(f"k{n}", f"k<{n}>", 100 if n < 20 else 80) for n in range(38)]
    patched += [kernel("k38", "k<38>", 120), kernel("k39", "k<39>", 80, vgpr_spills=3)]

    rows = rows_of(pair_kernels(base, patched))
    lines = listing_lines(result_of(rows))

    assert lines[0] == "scale gfx942: 20 kernels changed, 20 kernels with the same figures"
    assert [line.split()[:2] for line in lines[2:]] == [
        ["k<39>", "0"], ["k<38>", "0"], ["k<…>", "x18"],
    ]  # fmt: skip
    assert "0 -> 3" in lines[2]
    assert lines[3].endswith("100 -> 120")
