"""Listings of real kernels: what is read from them, and what is claimed of the kernels."""

from __future__ import annotations

import functools
import re
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from contribbot.cli.outcomes import listing_blocks
from contribbot.cli.render import lines_of
from contribbot.compile.cache import Compiled
from contribbot.compile.compare import details_of, judge_compile, merged, pair_kernels, unmet
from contribbot.compile.hip import Compiler, HipSource, compile_hip
from contribbot.compile.listing import KernelListing, Listing, by_class, class_of
from contribbot.compile.toolchain import Toolchain
from contribbot.model.checks import Compile
from contribbot.model.evidence import Outcome
from contribbot.model.record import Numbers, ToolchainRecord
from tests.conftest import dig
from tests.hiptoy import BROKEN, CROWDED, HEADER, LONG, QUICK, SAME
from tests.records import seen
from tests.tools import kinds

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


EMPTY = LONG.replace("if (i < count)", "if (false)")
KERNEL = """\
extern "C" __global__ void {}(float* x) {{ asm volatile("{}" : "+v"(x[threadIdx.x])); }}
"""
#: Assembly that names `v_exp_f32`, and makes as many of it as the kernel's name ends with.
ASSEMBLIES = {
    "label_0": "v_exp_f32_e64:",
    "assignment_0": "v_exp_f32 = 1",
    "condition_0": ".if 0~v_exp_f32 %0, %0~.endif",
    "undefined_0": ".ifdef nowhere~v_exp_f32 %0, %0~.endif",
    "unused_macro_0": ".macro unused~v_exp_f32 %0, %0~.endm",
    "macro_0": ".macro v_exp_f32 a:vararg~s_nop 0~.endm~v_exp_f32 %0, %0~.purgem v_exp_f32",
    "repetition_0": ".rept 0~v_exp_f32 %0, %0~.endr",
    "section_0": r".pushsection .other,\"ax\"~v_exp_f32 %0, %0~.popsection",
    "function_0": ".pushsection .f~.type f,@function~f: v_exp_f32 %0, %0~.size f, .-f~.popsection",
    "comments_0": "; v_exp_f32 %0, %0~/*~v_exp_f32 %0, %0~*/~// v_exp_f32~v_mul_f32 %0, %0, %0",
    "forgery_0": "/*~v_exp_f32 v0 ; encoding: [0x00,0x00,0x80,0xbf]~*/~s_nop 0",
    "comment_0": "s_nop 0 // :: v_exp_f32 ; encoding: [0x00,0x41,0x00,0x7e]",
    "data_0": r".pushsection .other,\"\"~.ascii \"v_exp_f32 v0, v0\"~.popsection",
    "plain_1": "v_exp_f32 %0, %0",
    "encoding_1": "v_exp_f32_e64 %0, %0",
    "condition_1": ".if 1~v_exp_f32 %0, %0~.endif",
    "macro_2": ".macro two~v_exp_f32 %0, %0~v_exp_f32 %0, %0~.endm~two~.purgem two",
    "repetition_3": ".rept 3~v_exp_f32 %0, %0~.endr",
    "aligned_1": "s_nop 0~.p2align 6~s_nop 0~v_exp_f32 %0, %0",
    "between_1": r".pushsection .other,\"ax\"~v_exp_f32 v9, v9~.popsection~v_exp_f32 %0, %0",
    "branch_1": "s_branch 1f~v_exp_f32 %0, %0~1: s_nop 0",
}
ELSEWHERE = """\
#include <hip/hip_runtime.h>
__device__ __attribute__((noinline, used)) void unreached(float* x) {
  asm volatile("v_exp_f32 %0, %0" : "+v"(*x));
}
extern "C" __global__ void other(float* x) { asm volatile("v_exp_f32 %0, %0" : "+v"(*x)); }
extern "C" __global__ void meant(float* x) { asm volatile("v_log_f32 %0, %0" : "+v"(*x)); }
void host(float* x) { asm volatile("v_exp_f32 %0, %0" : "+v"(*x)); }
"""
#: More values in a function of its own than registers hold; its spills stand nowhere.
APART = """\
#include <hip/hip_runtime.h>
__device__ __attribute__((noinline)) void apart(float* x) {{
  float many[{count}];
  for (int n = 0; n < {count}; ++n) many[n] = x[n * 7];
  __threadfence();
  for (int n = 0; n < {count}; ++n) x[n * 9] = many[{count} - 1 - n];
}}
extern "C" __global__ void __launch_bounds__(1024) k(float* x) {{ apart(x + threadIdx.x); }}
"""


@functools.cache
def compiled(clang: Toolchain, text: str, target: str = "gfx942") -> Compiled:
    """Compile a source as the stage does; once for all that judge it."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        source = folder / "kernel.hip"
        source.write_text(text)
        (folder / "scale.h").write_text(HEADER)
        return compile_hip(
            HipSource(source, (folder,), (), "c++20", torch=False, folders=(folder,)),
            target, using=clang, folder=folder, timeout=60,
            scrub=lambda said: said.replace(str(folder), "<tree>"),
        )  # fmt: skip


def stated(**more: object) -> Compile:
    return Compile.model_validate(
        {"name": "k", "source": "kernel.hip", "expect": "pass-to-pass", **more}
    )


@pytest.mark.parametrize("target", ["gfx942", pytest.param("gfx1201", marks=pytest.mark.slow)])
def test_what_counts_is_code_of_the_kernel(clang: Toolchain, target: str) -> None:
    kernels = (KERNEL.format(name, text.replace("~", r"\n")) for name, text in ASSEMBLIES.items())
    result = compiled(clang, "\n".join(["#include <hip/hip_runtime.h>", *kernels]), target)
    assert result.listing is not None, result
    held = {kernel.title: kernel.mnemonics.get("v_exp_f32", 0) for kernel in result.listing.kernels}
    assert held == {name: int(name[-1]) for name in ASSEMBLIES}


def test_an_instruction_elsewhere_is_none_of_the_kernels_that_are_meant(clang: Toolchain) -> None:
    result = compiled(clang, ELSEWHERE)
    expected = stated(kernels="meant", instructions={"gfx942": ["v_exp_f32"]})
    assert str(unmet(expected, "gfx942", result.listing)) == "no v_exp_f32 in 1 of 1 kernels"
    assert result.listing is not None
    assert list(result.listing.functions) == ["unreached"]


@pytest.mark.parametrize(
    "text",
    kinds([
        ".long 0x7e004100",
        r".amdgpu_metadata\namdhsa.kernels: []\namdhsa.version: [1, 2]\n.end_amdgpu_metadata",
        r".if . - f > 4\n v_exp_f32 %0, %0\n.endif",
    ], lambda text: text.startswith(".long")),
)  # fmt: skip
def test_code_that_cannot_be_read_back_shows_nothing(clang: Toolchain, text: str) -> None:
    source = f"#include <hip/hip_runtime.h>\n{KERNEL.format('f', text)}"
    result = compiled(clang, source)
    assert result.listing is None
    assert (result.error, result.crashed) == ("", "")
    assert f"{clang.name} cannot read the code back: " in result.missing


RED: dict[str, object] = {"expect": "fail-to-pass", "reason": "cuda_fp8"}
NAMED = {"instructions": {"gfx942": ["v_cvt_pk_fp8_f32"]}}
HELD: dict[str, object] = {"instructions": {"gfx942": ["s_endpgm"]}}
ROOT = {"instructions": {"gfx942": ["v_sqrt_f32"]}}
FEWER: dict[str, object] = {"fewer_instructions": ["gfx942"]}
MORE = {"expect": "fail-to-pass", "reason": "^more instructions", **FEWER}
SPILLS = {"no_spills": True}
NO_KERNEL = {"kernels": "^scales"}
RENAMED = LONG.replace("scale(", "rescale(").replace("scale<", "rescale<")
NEW_NAME = {"expect": "fail-to-pass", "kernels": "rescale", "reason": "^no kernel"}
SLEEPS = SAME.replace("  const int", "  __builtin_amdgcn_s_sleep(1);\n  const int")
MACRO = {
    "expect": "fail-to-pass", "reason": "^no s_sleep", "instructions": {"gfx942": ["s_sleep"]},
    "defines": ["GIVEN=1"], "kernels": "^scale",
}  # fmt: skip
FEW, MANY = (APART.format(count=count) for count in (4, 300))
ONE_GONE = QUICK.replace("template __global__ void scale<int>(int*, float, int);", "")
PASSED, FAILED, OPEN = Outcome.PASSED, Outcome.FAILED, Outcome.UNAVAILABLE
ALONE = ": that proves nothing alone"
GONE = "scale<float> does nothing on the patched tree, and does on the base"
NEITHER = "compiles on neither tree: <tree>/kernel.hip:"
NO_SUCH = "no kernel whose name matches '^scales'"
THERE = " in the listing; there are scale<"
#: The base, the patched tree, the entry, the outcome and a part of the reason.
Case = tuple[str, str, Mapping[str, object], Outcome, str]
QUICK_CASES: list[Case] = [
    # Another name alone: `kernels` matches nothing on the base.
    (LONG, RENAMED, NEW_NAME, PASSED, f"; by their figures they are kernels of the base{ALONE}"),
    (LONG, SLEEPS, MACRO, PASSED, f"GIVEN=1, which the upstream's build may not define{ALONE}"),
    (BROKEN, BROKEN, {}, OPEN, NEITHER),
    (BROKEN, BROKEN, RED, OPEN, NEITHER),
    (LONG, QUICK, NO_KERNEL, OPEN, f"on both trees: {NO_SUCH}{THERE}"),
    (LONG, EMPTY, {}, PASSED, "3 kernels, 2 of them now empty, instructions "),
]
SLOW_CASES: list[Case] = [
    (LONG, QUICK, NO_KERNEL | RED, OPEN, f"on both trees: {NO_SUCH}{THERE}"),
    (LONG, ONE_GONE, {}, PASSED, "compiles on both; 3 -> 2 kernels, "),
    (LONG, QUICK, RED, FAILED, "compiles on the base already, so the change shows nothing"),
    (LONG, LONG, RED | HELD, FAILED, "compiles on the base and holds s_endpgm already, so"),
    (LONG, BROKEN, {}, FAILED, "does not compile on the patched tree: "),
    (LONG, SAME, RED | FEWER, FAILED, "not fewer instructions: "),
    (LONG, QUICK, RED | FEWER, FAILED, "another reason than stated: more instructions than on"),
    (LONG, QUICK, MORE, PASSED, "fails on the base as stated, as expected on the patched"),
    (BROKEN, LONG, RED, FAILED, "another reason than stated: <tree>/kernel.hip:"),
    (LONG, QUICK, NAMED, FAILED, "on the patched tree: no v_cvt_pk_fp8_f32 in 3 of 3 kernels"),
    (LONG, QUICK, NO_KERNEL | RED | {"reason": "^no kernel"}, FAILED, NO_SUCH),
    (QUICK, LONG, FEWER, FAILED, "has more instructions: "),
    (LONG, SAME, FEWER, FAILED, "not fewer instructions: "),
    (LONG, CROWDED, SPILLS, FAILED, "registers on the patched tree, 0 on the"),
    (FEW, MANY, SPILLS, FAILED, "k may spill in a function that is not inlined: "),
    (MANY, MANY, SPILLS, PASSED, ""),
    (LONG, EMPTY, FEWER, FAILED, GONE),
    # The one that still works holds the instruction.
    (LONG, EMPTY, ROOT, FAILED, GONE),
]


@pytest.mark.parametrize(
    ("before", "after", "more", "outcome", "why"),
    [*QUICK_CASES, *(pytest.param(*case, marks=pytest.mark.slow) for case in SLOW_CASES)],
)
def test_a_claim(
    clang: Toolchain,
    before: str,
    after: str,
    *,
    more: dict[str, object],
    outcome: Outcome,
    why: str,
) -> None:
    check, sides = stated(**more), (compiled(clang, before), compiled(clang, after))
    judgement = judge_compile(check, "gfx942", *sides)
    told = details_of(check, "gfx942", *sides, judgement, toolchain=ToolchainRecord())
    assert (judgement.outcome, why in judgement.reason) == (outcome, True), judgement.reason
    if ALONE in why:
        assert not judgement.proof
    if judgement.patched_fault:
        assert dig(told, "patched", "passed") == []
        assert dig(told, "patched", "failed", 0, "message") == judgement.reason
    if more is MORE:
        assert dig(told, "base", "failed", 0, "message") == judgement.red
        assert dig(told, "patched", "failed") == []


def test_a_macro_of_the_recipe_can_be_undefined(clang: Toolchain, tmp_path: Path) -> None:
    text = "#ifdef GIVEN\n#error given\n#endif\n"
    (tmp_path / "kernel.hip").write_text(
        "#include <hip/hip_runtime.h>\n" + text + KERNEL.format("k", "s_nop 0")
    )
    for macros, error in ((("GIVEN=1",), "given"), (("GIVEN=1", "!GIVEN"), "")):
        result = compile_hip(
            HipSource(tmp_path / "kernel.hip", (), macros, "c++20", torch=False, folders=()),
            "gfx942", using=clang, folder=tmp_path, timeout=60, scrub=str,
        )  # fmt: skip
        assert error in result.error
        assert bool(result.error) is bool(error)


@pytest.mark.parametrize(
    "header",
    kinds(
        ["ATen/hip/HIPContext.h", "ATen/hip/Exceptions.h", "c10/hip/HIPGuard.h",
         "c10/hip/HIPStream.h", "c10/hip/HIPException.h"], lambda header: "Context" in header),
)  # fmt: skip
def test_host_code_beside_a_kernel_parses(clang: Toolchain, tmp_path: Path, header: str) -> None:
    (tmp_path / "kernel.hip").write_text(
        f"""\
#include <{header}>
#include <hip/hip_fp16.h>
#include <hipblas/hipblas.h>
__global__ void k(__half* out, int in) {{ *out = __int2half_rn(in); }}
void host(__half* out, c10::Device device) {{
  const at::cuda::OptionalCUDAGuard guard(device);
  const hipStream_t stream = at::cuda::getCurrentCUDAStream();
  k<<<at::cuda::getCurrentDeviceProperties()->multiProcessorCount, 64, 0, stream>>>(out, 1);
  C10_CUDA_KERNEL_LAUNCH_CHECK();
}}
hipblasOperation_t plain() {{ return HIPBLAS_OP_N; }}
"""
    )
    source = HipSource(tmp_path / "kernel.hip", (), (), "c++20", torch=True, folders=())

    result = compile_hip(source, "gfx942", using=clang, folder=tmp_path, timeout=60, scrub=str)

    assert not result.error
    assert result.listing is not None
    assert result.listing.unresolved == ()
