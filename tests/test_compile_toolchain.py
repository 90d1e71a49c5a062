"""The compiler for HIP of each target, and the next step where there is none."""

from __future__ import annotations

import ctypes
import importlib.metadata
import importlib.util
import subprocess
import sys
from collections.abc import Callable, Iterator
from importlib.machinery import ModuleSpec
from pathlib import Path

import pytest

from contribbot.compile.toolchain import HEADERS, Lack, Toolchain, hip_toolchain
from tests.hiptoy import program_file

INSTALL = (
    "python -m pip install --constraint constraints.txt '.[emulate]'  # in contribbot's checkout"
)


@pytest.fixture
def env() -> Iterator[pytest.MonkeyPatch]:
    """Give what changes the environment, and takes it back before that is looked at."""
    with pytest.MonkeyPatch.context() as patch:
        yield patch


@pytest.fixture
def path(env: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Give a folder that is the only one on PATH, on a machine without ROCm and ziglang."""
    if Path("/opt/rocm").exists():
        pytest.skip("this machine has ROCm where it is always found")
    folder = tmp_path / "bin"
    folder.mkdir()
    env.setenv("PATH", str(folder))
    env.delenv("ROCM_PATH", raising=False)
    installed(env, ziglang=None)
    return folder


def installed(env: pytest.MonkeyPatch, **modules: Path | None) -> None:
    """Say that modules lie in other folders, or nowhere."""
    find: Callable[..., ModuleSpec | None] = importlib.util.find_spec

    def found(name: str, package: str | None = None) -> ModuleSpec | None:
        if name not in modules:
            return find(name, package)
        if (folder := modules[name]) is None:
            return None
        spec = ModuleSpec(name, None, is_package=True)
        spec.submodule_search_locations = [str(folder)]
        return spec

    env.setattr(importlib.util, "find_spec", found)


CDNA4 = "gfx90a gfx942 gfx950"


def clang(file: Path, version: str, targets: str = "gfx90a gfx942") -> Path:
    listed = "\\n".join(f"\\t{name}" for name in targets.split())
    return program_file(file, f"printf 'clang version {version}\\n{listed}\\n' >&2")


def pips(env: pytest.MonkeyPatch, root: Path, headers: str = "22") -> Path:
    """Install a zig and its headers that are none, and return zig's program."""
    (root / "tidy/data/lib/clang" / headers).mkdir(parents=True)
    installed(env, ziglang=root / "zig", clang_tidy=root / "tidy")
    real_version = importlib.metadata.version
    stated = {"ziglang": "0.99", "clang-tidy": f"{headers}.1.8"}
    env.setattr(importlib.metadata, "version", lambda name: stated.get(name) or real_version(name))
    return clang(root / "zig/zig", "22.1.8", CDNA4)


def rocm(root: Path, version: int, targets: str = "gfx90a gfx942") -> Path:
    header = root / "include/hip/hip_version.h"
    header.parent.mkdir(parents=True)
    header.write_text(f"#define HIP_VERSION_MAJOR {version}\n#define HIP_VERSION_MINOR 1\n")
    clang(root / "bin/amdclang++", "18.0.0", targets)
    program_file(root / "bin/hipcc", "exit 1")
    return root


def chosen(target: str = "gfx942") -> str:
    compiler = hip_toolchain(target)
    name = str(compiler) if isinstance(compiler, Lack) else compiler.name
    assert "\n" not in name
    return name


ROCM = "ROCm clang 18.0.0"
ZIG = "clang 22.1.8 of ziglang 0.99"
NO_ZIG = f"no compiler for HIP here without ziglang, which brings the compiler: {INSTALL}"


@pytest.mark.parametrize(
    ("here", "expected"),
    [
        ("rocm7 zig", (ROCM, ZIG)),
        ("linked zig", (ROCM, ZIG)),
        ("rocm5 zig", (ZIG, ZIG)),
        ("broken zig", (ZIG, ZIG)),
        ("clang zig", (ZIG, ZIG)),
        ("zig", (ZIG, ZIG)),
        ("rocm7", (ROCM, f"{ROCM} does not know gfx950; {NO_ZIG}")),
        ("clang", (NO_ZIG, NO_ZIG)),
        ("", (NO_ZIG, NO_ZIG)),
    ],
)
def test_each_target_has_the_first_compiler_that_knows_it(
    path: Path, tmp_path: Path, env: pytest.MonkeyPatch, here: str, expected: tuple[str, str]
) -> None:
    if "clang" in here:  # of a distribution: no compiler for HIP
        clang(path / "clang++-20", "20.1.0", CDNA4)
    if "linked" in here:
        (path / "hipcc").symlink_to(rocm(tmp_path / "rocm", 7) / "bin/hipcc")
    elif "rocm" in here or "broken" in here:
        env.setenv("ROCM_PATH", str(rocm(tmp_path / "rocm", 5 if "5" in here else 7)))
    if "broken" in here:
        program_file(tmp_path / "rocm/bin/amdclang++", "kill -SEGV $$")
    if "zig" in here:
        pips(env, tmp_path / "pip")
    assert (chosen("gfx942"), chosen("gfx950")) == expected


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        ("triton", "triton, which brings HIP's headers"),
        ("ziglang", "ziglang, which brings the compiler"),
        ("clang_tidy", "clang-tidy of clang 22, which brings the compiler's own headers"),
        ("other headers", "clang-tidy of clang 22, which brings the compiler's own headers"),
        ("crash", "ziglang, which brings the compiler"),
        ("no back end", "ziglang, which brings the compiler"),
    ],
)
def test_what_pips_compiler_lacks_is_said_with_what_installs_it(
    path: Path, tmp_path: Path, env: pytest.MonkeyPatch, fault: str, said: str
) -> None:
    zig = pips(env, tmp_path / "pip", "21" if fault == "other headers" else "22")
    if fault in {"crash", "no back end"}:
        program_file(zig, "kill -SEGV $$" if fault == "crash" else "echo clang version 22.1.8 >&2")
    elif fault != "other headers":
        installed(env, **{fault: None})
    assert path.is_dir()
    assert chosen() == f"no compiler for HIP here without {said}: {INSTALL}"


def test_a_target_that_no_compiler_knows_asks_for_rocm() -> None:
    assert chosen("gfx9ff").endswith(" does not know gfx9ff: install the ROCm release that does")


FP8 = """\
struct float2 { float x, y; };
#define __host__
#define __device__
#include <hip/hip_fp8.h>
extern "C" void convert(const float *values, unsigned char *codes, int count) {
  for (int i = 0; i < count; ++i) {
    codes[2 * i] = __hip_cvt_float_to_fp8(values[i], __HIP_SATFINITE, __HIP_E4M3);
    codes[2 * i + 1] = __hip_cvt_float_to_fp8(values[i], __HIP_SATFINITE, __HIP_E4M3_FNUZ);
  }
}
"""


def test_fp8_in_integers_is_the_conversion_of_torch(clang: Toolchain, tmp_path: Path) -> None:
    import torch

    (tmp_path / "hip").mkdir()
    (tmp_path / "hip/hip_runtime.h").write_text("#pragma once\n")
    (tmp_path / "fp8.cpp").write_text(FP8)
    files = [tmp_path / "fp8.o", tmp_path / "fp8.so"]
    subprocess.run(
        [*clang.argv, "-x", "c++", "-std=c++20", "-O2", "-w", "-fPIC", "-I", tmp_path,
         "-I", HEADERS / "rocm", "-c", "-o", files[0], tmp_path / "fp8.cpp"],
        check=True,
    )  # fmt: skip
    linker = [sys.executable, "-m", "ziglang", "ld.lld", "-shared", "-o"]
    subprocess.run([*linker, files[1], files[0]], check=True)
    high = torch.arange(65536, dtype=torch.int64).repeat_interleave(3) << 16
    # The lower bits make ties, and values right beside them.
    bits = high | torch.tensor([0, 1, 0xFFFF]).repeat(65536)
    values = bits.to(torch.int32).view(torch.float32)
    codes = torch.empty(len(values), 2, dtype=torch.uint8)
    pointers = (ctypes.c_void_p(tensor.data_ptr()) for tensor in (values, codes))
    ctypes.CDLL(str(files[1])).convert(*pointers, len(values))

    for column, dtype in enumerate((torch.float8_e4m3fn, torch.float8_e4m3fnuz)):
        limit = torch.finfo(dtype).max
        expected = values.clamp(-limit, limit).to(dtype).view(torch.uint8)
        numbers = ~values.isnan()
        assert torch.equal(codes[numbers, column], expected[numbers])
        assert codes[~numbers, column].view(dtype).isnan().all()
