"""Finding a compiler for HIP: which one is taken, and what is said of one that will not do."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from importlib.machinery import ModuleSpec
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from contribbot.compiling.hip import HEADERS, headers_digest, toolchain
from contribbot.hardware.targets import TARGETS
from contribbot.hardware.toolchain import Lacking
from tests.hiptoy import needed, program_file, seen_once

if TYPE_CHECKING:
    from contribbot.hardware.toolchain import Toolchain


@pytest.fixture(scope="session")
def real(tmp_path_factory: pytest.TempPathFactory) -> Toolchain:
    return seen_once(tmp_path_factory)


@pytest.fixture
def env() -> Iterator[pytest.MonkeyPatch]:
    """Give what changes the environment, and takes it back before that is looked at."""
    with pytest.MonkeyPatch.context() as patch:
        yield patch


@pytest.fixture
def path(env: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Give a folder that is the only one on PATH, on a machine without ROCm."""
    if Path("/opt/rocm").exists():
        pytest.skip("this machine has ROCm where it is always found")
    folder = tmp_path / "bin"
    folder.mkdir()
    env.setenv("PATH", f"{folder}{os.pathsep}{tmp_path / 'no such folder'}")
    env.delenv("ROCM_PATH", raising=False)
    env.delenv("CONTRIBBOT_HIP_CLANG", raising=False)
    return folder


def reason() -> str:
    """Return why there is no toolchain."""
    found = toolchain()
    assert isinstance(found, Lacking), found
    assert "\n" not in found.reason
    return found.reason


def test_no_compiler(path: Path) -> None:
    assert not list(path.iterdir())
    assert reason() == (
        "no compiler for HIP on this machine: install clang-19 (Debian, Ubuntu) or ROCm"
    )


def test_a_compiler_that_is_too_old(path: Path) -> None:
    program_file(path / "clang++", 'echo "Debian clang version 14.0.6"')

    assert (
        reason()
        == "clang++ is clang 14.0.6: 19 is needed: install clang-19 (Debian, Ubuntu) or ROCm"
    )


def test_numbered_compilers_below_the_oldest_are_not_asked(path: Path, tmp_path: Path) -> None:
    program_file(path / "clang++-14", f"touch {tmp_path}/asked")

    assert reason().startswith("no compiler for HIP")
    assert not (tmp_path / "asked").exists()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("exit 1", "clang++-19 does not work: exit status 1: it said nothing"),
        ("kill -SEGV $$", "clang++-19 does not work: killed by signal 11"),
        ("echo hello", "clang++-19 is no clang that says its version"),
        (
            'echo "clang version 19.1.0"',
            "clang++-19 was built without the AMDGPU back end",
        ),
    ],
)
def test_a_broken_compiler(path: Path, text: str, said: str) -> None:
    program_file(path / "clang++-19", text)

    assert reason().startswith(f"{said}: install clang-19")


def test_a_compiler_that_cannot_compile_says_its_first_error(path: Path, real: Toolchain) -> None:
    # A clang without the C++ library's headers, as on a machine without libstdc++-dev.
    program_file(path / "clang++-19", f'exec {real.compiler} -nostdinc++ "$@"')

    assert "clang++-19 does not compile a small HIP kernel: " in reason()
    assert "file not found" in reason()


def test_the_newest_compiler_that_works_is_taken(path: Path, real: Toolchain) -> None:
    program_file(path / "clang++-21", "exit 1")
    program_file(path / "clang++-20", f'exec {real.compiler} "$@"')
    program_file(path / "clang++-19", "exit 1")

    found = needed(toolchain())

    assert found.compiler == path / "clang++-20"
    assert found.kind == "clang"
    assert "stand-ins of contribbot over HIP" in found.headers


def test_a_named_compiler_is_the_only_one(
    path: Path, real: Toolchain, tmp_path: Path, env: pytest.MonkeyPatch
) -> None:
    program_file(path / "clang++-19", f'exec {real.compiler} "$@"')
    mine = program_file(tmp_path / "mine", f'exec {real.compiler} "$@"')
    env.setenv("CONTRIBBOT_HIP_CLANG", str(mine))
    assert needed(toolchain()).compiler == mine


@pytest.mark.parametrize(
    "said",
    [
        "gone: no such program",
        "folder: no such program",
        "text does not work: it: not allowed to run it",
        "idle is no clang that says its version",
    ],
)
def test_a_named_compiler_that_will_not_do_is_said_without_its_folder(
    path: Path, real: Toolchain, tmp_path: Path, env: pytest.MonkeyPatch, said: str
) -> None:
    program_file(path / "clang++-19", f'exec {real.compiler} "$@"')
    (tmp_path / "folder").mkdir()
    (tmp_path / "text").write_text("no program")
    program_file(tmp_path / "idle", "exit 0")
    env.setenv("CONTRIBBOT_HIP_CLANG", str(tmp_path / re.split("[ :]", said)[0]))

    assert reason() == (f"CONTRIBBOT_HIP_CLANG: {said}: name a clang 19 or newer, or unset it")


def test_a_compiler_that_was_replaced_is_looked_at_again(
    path: Path, real: Toolchain, env: pytest.MonkeyPatch
) -> None:
    compiler = program_file(path / "clang++-19", f'exec {real.compiler} "$@"')
    first = needed(toolchain())
    compiler.write_text("#!/bin/sh\nexit 1\n")
    # Another process: this one has seen it.
    env.setenv("PATH", f"{os.environ['PATH']}{os.pathsep}")

    assert first.compiler == compiler
    assert "does not work" in reason()


def rocm(folder: Path, real: Toolchain, version: int) -> Path:
    """Lay out a folder as ROCm does, around this machine's clang."""
    include = folder / "include"
    shutil.copytree(real.root / "include/hip", include / "hip")
    header = include / "hip/hip_version.h"
    text = header.read_text().replace("HIP_VERSION_MAJOR 7", f"HIP_VERSION_MAJOR {version}")
    header.write_text(text)
    inside = " ".join(flag.replace(str(real.root), str(folder)) for flag in real.flags)
    program_file(folder / "bin/amdclang++", f'exec {real.compiler} {inside} "$@"')
    program_file(folder / "bin/hipcc", "exit 1")
    return folder


def test_rocm_is_preferred_where_it_is(
    path: Path, real: Toolchain, tmp_path: Path, env: pytest.MonkeyPatch
) -> None:
    if real.kind == "rocm":
        pytest.skip("this machine's own is ROCm's")
    program_file(path / "clang++-19", f'exec {real.compiler} "$@"')
    root = rocm(tmp_path / "rocm-7", real, 7)
    env.setenv("ROCM_PATH", str(root))
    by_variable = needed(toolchain())
    env.delenv("ROCM_PATH")
    (path / "hipcc").symlink_to(root / "bin/hipcc")
    by_path = needed(toolchain())

    for found in (by_variable, by_path):
        assert found.kind == "rocm"
        assert found.compiler == root / "bin/amdclang++"
        assert found.headers == "ROCm, HIP 7.1"
        assert found.flags == (f"--rocm-path={root}",)


def test_an_old_rocm_gives_way_to_a_new_clang(
    path: Path, real: Toolchain, tmp_path: Path, env: pytest.MonkeyPatch
) -> None:
    if real.kind == "rocm":
        pytest.skip("this machine's own is ROCm's")
    program_file(path / "clang++-19", f'exec {real.compiler} "$@"')
    env.setenv("ROCM_PATH", str(rocm(tmp_path / "rocm-5", real, 5)))

    assert needed(toolchain()).kind == "clang"


def test_without_triton_it_says_so(path: Path, real: Toolchain, env: pytest.MonkeyPatch) -> None:
    program_file(path / "clang++-19", f'exec {real.compiler} "$@"')
    find = importlib.util.find_spec

    def without(name: str, package: str | None = None) -> ModuleSpec | None:
        return None if name == "triton" else find(name, package)

    env.setattr(importlib.util, "find_spec", without)

    assert "pip install triton" in reason()


def test_a_target_that_is_not_known_says_what_knows_it(real: Toolchain) -> None:
    newest = max(TARGETS.values(), key=lambda one: one.llvm)

    assert real.unknown("gfx942") == ""
    assert real.unknown("gfx9ff") == f"{real.name} does not know gfx9ff"
    if newest.name not in real.targets:
        assert real.unknown(newest.name).endswith(f"; clang {newest.llvm} and newer do")


def test_the_stand_ins_are_part_of_what_is_installed() -> None:
    assert len(headers_digest()) == 64
    for path in HEADERS.rglob("*.h"):
        # Each says what it stands in for, or what it goes in front of.
        first = path.read_text().splitlines()[0]
        assert first.startswith(("// Stands in for ", "// Goes in front of ")), path
        assert path.relative_to(HEADERS).as_posix().split("/")[0] in {"rocm", "torch_cpu"}


FP8 = """\
#include <cstdio>
#include <cstring>
#include <initializer_list>
struct float2 { float x, y; };
#define __host__
#define __device__
#include <hip/hip_fp8.h>
int main() {
  for (unsigned high = 0; high < 65536; ++high) {
    // The lower bits make ties, and values right beside them.
    for (unsigned low : {0x0000u, 0x0001u, 0xffffu}) {
      const unsigned bits = high << 16 | low;
      float value;
      std::memcpy(&value, &bits, 4);
      std::putchar(__hip_cvt_float_to_fp8(value, __HIP_SATFINITE, __HIP_E4M3));
      std::putchar(__hip_cvt_float_to_fp8(value, __HIP_SATFINITE, __HIP_E4M3_FNUZ));
    }
  }
}
"""


def test_fp8_in_integers_is_the_conversion_of_torch(real: Toolchain, tmp_path: Path) -> None:
    import torch

    (tmp_path / "hip").mkdir()
    (tmp_path / "hip/hip_runtime.h").write_text("#pragma once\n")
    (tmp_path / "fp8.cpp").write_text(FP8)
    program = tmp_path / "fp8"
    subprocess.run(
        [real.compiler, "-std=c++20", "-O2", "-w", "-I", tmp_path, "-I", HEADERS / "rocm",
         "-o", program, tmp_path / "fp8.cpp"],
        check=True,
    )  # fmt: skip
    codes = torch.frombuffer(
        bytearray(subprocess.run([program], capture_output=True, check=True).stdout),
        dtype=torch.uint8,
    ).reshape(-1, 2)
    high = torch.arange(65536, dtype=torch.int64).repeat_interleave(3) << 16
    bits = high | torch.tensor([0, 1, 0xFFFF]).repeat(65536)
    values = bits.to(torch.int32).view(torch.float32)

    for column, dtype in enumerate((torch.float8_e4m3fn, torch.float8_e4m3fnuz)):
        limit = torch.finfo(dtype).max
        expected = values.clamp(-limit, limit).to(dtype).view(torch.uint8)
        numbers = ~values.isnan()
        assert torch.equal(codes[numbers, column], expected[numbers])
        assert codes[~numbers, column].view(dtype).isnan().all()
