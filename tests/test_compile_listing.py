"""Listings of real kernels: what is read from them holds against what the compiler says."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from contribbot.cli.outcomes import listing_blocks
from contribbot.cli.render import lines_of
from contribbot.compile.compare import merged, pair_kernels
from contribbot.compile.hip import Compiler
from contribbot.compile.listing import KernelListing, Listing, by_class, class_of
from contribbot.compile.toolchain import Toolchain
from contribbot.model.record import Numbers
from tests.records import seen

pytestmark = pytest.mark.usefixtures("compile_cache")

CROWD = """\
#include <hip/hip_runtime.h>
template <int values>
__global__ void __launch_bounds__(768) crowd(float* data, int count) {
  __shared__ char room[64];
  float kept[values];
  for (int i = 0; i < values; ++i) kept[i] = data[threadIdx.x + i * count];
  room[threadIdx.x % 64] = static_cast<char>(data[0]);
  __syncthreads();
  data[0] = room[(threadIdx.x + 1) % 64];
  for (int i = 0; i < values; ++i) data[threadIdx.x * count + i] = kept[values - 1 - i];
}
template __global__ void crowd<90>(float*, int);
"""
CALLS = """\
#include <hip/hip_runtime.h>
__device__ __attribute__((noinline)) float apart(float x) { return x * x + 1.0F; }
extern "C" __global__ void caller(float* data) { data[0] = apart(data[1]) + tanf(data[2]); }
extern "C" __global__ void nothing() {}
"""


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
    listing_read = Compiler(clang, target, folder, 60, str, "").read(text.encode()).listing
    assert listing_read is not None
    return listing_read


@pytest.mark.parametrize(("target", "wavefront"), [("gfx942", 64), ("gfx1100", 32)])
def test_numbers_of_a_listing(
    clang: Toolchain, tmp_path: Path, target: str, wavefront: int
) -> None:
    text = listing_of(clang, tmp_path, CROWD, target)
    # What a source's own assembly says of itself is not the compiler's.
    forged = text.replace("\ts_endpgm", "\ts_endpgm\n; Occupancy: 99\n", 1)
    body = text[text.index("; %bb.0:") : text.index(".Lfunc_end0:")]
    rows = [row.split()[0] for row in body.splitlines() if re.match(r"\t[a-z]", row)]

    (kernel,) = read(clang, tmp_path, forged, target).kernels
    numbers = kernel.numbers

    assert kernel.title == "crowd<90>"
    metadata = dict(re.findall(r"^    \.(\w+): +(\d+)$", text, re.MULTILINE))
    stated = {
        "vgpr_count": numbers.vgprs, "sgpr_count": numbers.sgprs, "vgpr_spill_count": 0,
        "wavefront_size": wavefront, "group_segment_fixed_size": 64,
    }  # fmt: skip
    assert stated.items() <= {name: int(value) for name, value in metadata.items()}.items()
    assert (numbers.wavefront, numbers.lds, numbers.spills) == (wavefront, 64, 0)
    assert f"; codeLenInByte = {numbers.code}\n" in text
    assert f"; Occupancy: {numbers.occupancy}\n" in text
    # Every instruction has a class, and pairs issued at once are two halves.
    pairs = sum("v_dual" in row for row in rows)
    assert sum(by_class((kernel,)).values()) - pairs == numbers.instructions == len(rows)
    assert "other" not in by_class((kernel,))


def test_calls_are_seen(clang: Toolchain, tmp_path: Path) -> None:
    if clang.kind == "rocm":
        pytest.skip("ROCm's device library has the function")
    listing = read(clang, tmp_path, listing_of(clang, tmp_path, CALLS, "gfx942"), "gfx942")
    assert [kernel.title for kernel in listing.kernels] == ["caller", "nothing"]
    assert list(listing.functions) == ["apart"]
    assert listing.functions["apart"] > 1
    assert listing.unresolved == ("__ocml_tan_f32",)
    assert not listing.kernels[1].works


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


def kernel(symbol: str, title: str, instructions: int = 10, spills: int = 0) -> KernelListing:
    numbers = Numbers(8, 0, 16, 0, 0, spills, 64, 8, 40, instructions)
    return KernelListing(symbol=symbol, title=title, numbers=numbers, mnemonics={})


def shown(base: Sequence[KernelListing], patched: Sequence[KernelListing]) -> list[str]:
    table = {"rows": merged(pair_kernels(base, patched))}
    return [*lines_of(listing_blocks(seen("compile", "gfx942", label="scale", table=table)))]


def test_kernels_find_their_partner() -> None:
    # Each has other numbers, which tell it apart.
    sides = (
        {"a1": "a<int>", "b1": "b<int>", "c1": "c<1>", "c2": "c<2>", "d1": "d<1>", "gone": "gone"},
        {"a1": "a<int>", "b2": "b<int>", "c3": "c<1, x>", "c4": "c<2, x>", "d2": "d<1, x>",
         "d3": "d<2, x>"},
    )  # fmt: skip
    base, patched = (
        [kernel(symbol, title, by + n) for n, (symbol, title) in enumerate(side.items())]
        for by, side in zip((10, 20), sides, strict=True)
    )
    pairs = {
        tuple(side.instructions if side else 0 for side in (row.base, row.patched))
        for row in pair_kernels(base, patched)
    }
    # By symbol, by name, by order of instantiation; a function that has more of them by none.
    assert pairs == {(10, 20), (11, 21), (12, 22), (13, 23), (14, 0), (15, 0), (0, 24), (0, 25)}


def test_many_instantiations_are_few_rows_and_the_worst_is_first() -> None:
    base = [kernel(f"k{n}", f"k<{n}>", 100) for n in range(40)]
    patched = [kernel(f"k{n}", f"k<{n}>", 100 if n < 20 else 80) for n in range(38)]
    patched += [kernel("k38", "k<38>", 120), kernel("k39", "k<39>", 80, spills=3)]
    lines = shown(base, patched)
    assert lines[0] == "scale gfx942: 20 kernels changed, 20 kernels with the same figures"
    assert [line.split()[:2] for line in lines[2:]] == [
        ["k<39>", "0"], ["k<38>", "0"], ["k<…>", "x18"],
    ]  # fmt: skip
    assert "0 -> 3" in lines[2]
    assert lines[3].endswith("100 -> 120")
