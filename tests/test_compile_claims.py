"""What is claimed of compiled kernels: nothing that their code does not bear out."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from contribbot.compiling.cache import Compiled
from contribbot.compiling.hip import Source, compile_hip
from contribbot.compiling.judge import judge_compile
from contribbot.compiling.record import details_of
from contribbot.model.outcome import Outcome
from contribbot.model.proofs import Compile
from tests.conftest import dig
from tests.hiptoy import HEADER, LONG, QUICK, calls, program_file, seen_once

if TYPE_CHECKING:
    from contribbot.compiling.judge import Judgement
    from contribbot.hardware.toolchain import Toolchain

EMPTY = LONG.replace("if (i < count)", "if (false)")
ASSEMBLY = """\
#include <hip/hip_runtime.h>
extern "C" __global__ void fused(float* x) {{ asm volatile("{}" : "+v"(x[threadIdx.x])); }}
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


@pytest.fixture(scope="session")
def clang(tmp_path_factory: pytest.TempPathFactory) -> Toolchain:
    return seen_once(tmp_path_factory)


def compiled(clang: Toolchain, folder: Path, text: str, target: str = "gfx942") -> Compiled:
    """Compile a source as the stage does."""
    source = folder / "kernel.hip"
    source.write_text(text)
    (folder / "scale.h").write_text(HEADER)
    return compile_hip(
        Source(source, (folder,), (), "c++20", torch=False, folders=(folder,)),
        target, using=clang, folder=folder, timeout=60,
        scrub=lambda said: said.replace(str(folder), "<tree>"),
    )  # fmt: skip


def stated(**more: object) -> Compile:
    """Return an entry that expects a pass on both trees."""
    return Compile.model_validate(
        {"name": "k", "source": "kernel.hip", "expect": "pass-to-pass", **more}
    )


def judged(
    clang: Toolchain, folder: Path, before: str, after: str, **more: object
) -> tuple[Judgement, Compiled, Compiled]:
    """Compile both sides and judge them."""
    sides = compiled(clang, folder, before), compiled(clang, folder, after)
    return judge_compile(stated(**more), "gfx942", *sides), *sides


@pytest.mark.slow
@pytest.mark.parametrize("known", ["gfx942", "gfx950"])
def test_assembly_in_a_source_has_to_be_the_targets(
    tmp_path_factory: pytest.TempPathFactory, tmp_path: Path, known: str
) -> None:
    # clang 19 does not know gfx950: then this one is zig's.
    using = seen_once(tmp_path_factory, known)
    text = ASSEMBLY.format("v_fmac_legacy_f32 %0, %0, %0")

    here = compiled(using, tmp_path, text, "gfx1030")
    elsewhere = compiled(using, tmp_path, text, "gfx942")

    assert here.listing is not None
    assert here.listing.kernels[0].mnemonics["v_fmac_legacy_f32"] == 1
    assert elsewhere.listing is None
    assert "<tree>/kernel.hip:2:" in elsewhere.error
    assert "error: instruction not supported" in elsewhere.error


@pytest.mark.slow
def test_what_assembly_comments_on_is_no_instruction(clang: Toolchain, tmp_path: Path) -> None:
    commented = r"; v_exp_f32\n/*\n v_exp_f32 %0, %0\n*/\n// v_exp_f32\n v_mul_f32 %0, %0, %0"

    result = compiled(clang, tmp_path, ASSEMBLY.format(commented))

    assert result.listing is not None
    assert result.listing.kernels[0].mnemonics["v_mul_f32"] == 1
    assert "v_exp_f32" not in result.listing.kernels[0].mnemonics


@pytest.mark.slow
def test_a_kernel_whose_work_is_gone_has_no_fewer_instructions(
    clang: Toolchain, tmp_path: Path
) -> None:
    why = "scale<float> does nothing on the patched tree, and does on the base"
    fewer, *_ = judged(clang, tmp_path, LONG, EMPTY, fewer_instructions=["gfx942"])
    named, *_ = judged(clang, tmp_path, LONG, EMPTY, instructions={"gfx942": ["v_sqrt_f32"]})
    plain, *_ = judged(clang, tmp_path, LONG, EMPTY)

    assert (fewer.outcome, fewer.reason) == (Outcome.FAILED, why)
    # The one that still works holds the instruction.
    assert (named.outcome, named.reason) == (Outcome.FAILED, why)
    assert plain.outcome == Outcome.PASSED
    assert "3 kernels, 2 of them now empty, instructions " in plain.reason


def test_kernels_that_are_gone_are_counted(clang: Toolchain, tmp_path: Path) -> None:
    after = QUICK.replace("template __global__ void scale<int>(int*, float, int);", "")

    judgement, *_ = judged(clang, tmp_path, LONG, after)

    assert "compiles on both; 3 -> 2 kernels, " in judgement.reason


@pytest.mark.slow
def test_spills_in_a_function_that_is_not_inlined_are_not_overlooked(
    clang: Toolchain, tmp_path: Path
) -> None:
    few, many = (APART.format(count=count) for count in (4, 300))

    judgement, _, patched = judged(clang, tmp_path, few, many, no_spills=True)
    same, *_ = judged(clang, tmp_path, many, many, no_spills=True)

    assert patched.listing is not None
    assert [one.spills for one in patched.listing.kernels] == [0]
    assert judgement.outcome == Outcome.FAILED
    assert "k may spill in a function that is not inlined: " in judgement.reason
    assert same.outcome == Outcome.PASSED


@pytest.mark.slow
def test_an_expectation_that_is_not_met_is_a_failure_of_the_record(
    clang: Toolchain, tmp_path: Path
) -> None:
    expected = {"instructions": {"gfx942": ["v_cvt_pk_fp8_f32"]}}
    judgement, base, patched = judged(clang, tmp_path, LONG, QUICK, **expected)

    told = details_of(stated(**expected), "gfx942", base, patched, judgement)

    assert judgement.reason == "on the patched tree: no v_cvt_pk_fp8_f32 in 3 of 3 kernels"
    assert dig(told, "patched", "passed") == []
    assert dig(told, "patched", "failed", 0, "message") == judgement.reason


def test_a_back_end_that_gives_up_says_on_what(clang: Toolchain, tmp_path: Path) -> None:
    text = """\
#include <hip/hip_runtime.h>
__device__ int convert(float, float, int, bool) __asm__("llvm.amdgcn.cvt.pk.fp8.f32");
extern "C" __global__ void k(int* x) { x[0] = convert(x[1], x[2], 0, false); }
"""
    result = compiled(clang, tmp_path, text, "gfx90a")

    assert result.error == ""
    assert "crashed: Cannot select: " in result.crashed
    assert "llvm.amdgcn.cvt.pk.fp8.f32" in result.crashed


def test_a_compiler_that_writes_nothing_shows_nothing(clang: Toolchain, tmp_path: Path) -> None:
    idle = replace(clang, argv=(str(program_file(tmp_path / "idle", "exit 0")),))

    gone = replace(clang, argv=(str(tmp_path / "gone"),))

    assert compiled(idle, tmp_path, LONG).crashed == f"{clang.name} wrote nothing"
    assert compiled(gone, tmp_path, LONG).crashed == f"{clang.name}: it could not be started"


def test_a_listing_that_is_not_understood_shows_nothing() -> None:
    text = "\t.amdgpu_metadata\namdhsa.kernels:\n  - .name: k\n"

    result = Compiled.of_listing(text, "gfx942", command="", seconds=0)

    assert result.listing is None
    assert result.crashed == "the listing cannot be read: 1 kernels, and code of 0"


def test_the_environment_leads_to_no_other_library(
    clang: Toolchain, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = tmp_path / "log"
    spying = program_file(tmp_path / "spying", f"env > {log}\n{calls(clang)}")
    with monkeypatch.context() as env:
        for name in ("HIP_DEVICE_LIB_PATH", "HIP_PATH", "ROCM_PATH"):
            env.setenv(name, str(tmp_path))

        result = compiled(replace(clang, argv=(str(spying),)), tmp_path, LONG)

    assert result.listing is not None
    assert "PATH=" in log.read_text()
    assert "HIP_" not in log.read_text()
    assert "ROCM_" not in log.read_text()
