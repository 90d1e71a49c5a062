"""The compiler for HIP of each target: which one is taken, and what helps where there is none."""

from __future__ import annotations

import ctypes
import importlib.metadata
import importlib.util
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from importlib.machinery import ModuleSpec
from pathlib import Path

import pytest

from contribbot.hardware import toolchain
from contribbot.hardware.hip import HEADERS, hip_toolchain
from contribbot.hardware.toolchain import Lacking, Toolchain
from contribbot.verify.job import RunLayout
from contribbot.verify.pytest_run import child_environment
from tests.hiptoy import program_file

INSTALL = (
    "python -m pip install --constraint constraints.txt '.[emulate]'  # in contribbot's checkout"
)
NO_ZIG = f"ziglang, which brings a clang, is not installed: {INSTALL}"
REPAIR = f"python -m pip uninstall ziglang clang-tidy; {INSTALL}"


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
    env.setenv("PATH", f"{folder}{os.pathsep}{tmp_path / 'no such folder'}")
    env.delenv("ROCM_PATH", raising=False)
    env.delenv("CONTRIBBOT_HIP_CLANG", raising=False)
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


def clang(file: Path, version: str, targets: str = "gfx90a gfx942", fails: str = "") -> Path:
    """Write a compiler that answers as clang does, and compiles nothing."""
    listed = "\\n".join(f"\\t{name}" for name in targets.split())
    return program_file(
        file,
        f'case "$*" in *--version*) echo "clang version {version}"; exit;;\n'
        f"*--print-supported-cpus*) printf '{listed}\\n'; exit;; esac\n{fails}",
    )


def pips(
    env: pytest.MonkeyPatch, root: Path, version: str, headers: str = "22", **more: str
) -> Path:
    """Install a zig and its headers that are none, and return zig's program."""
    (root / "tidy/data/lib/clang" / headers).mkdir(parents=True)
    installed(env, ziglang=root / "zig", clang_tidy=root / "tidy")
    real_version = importlib.metadata.version
    stated = {"ziglang": "0.99", "clang-tidy": f"{headers}.1.8"}
    env.setattr(importlib.metadata, "version", lambda name: stated.get(name) or real_version(name))
    return clang(root / "zig/zig", version, **more)


def rocm(root: Path, version: int, targets: str = "gfx90a gfx942") -> Path:
    """Lay out a folder as ROCm does."""
    header = root / "include/hip/hip_version.h"
    header.parent.mkdir(parents=True)
    header.write_text(f"#define HIP_VERSION_MAJOR {version}\n#define HIP_VERSION_MINOR 1\n")
    clang(root / "bin/amdclang++", "18.0.0", targets)
    program_file(root / "bin/hipcc", "exit 1")
    return root


def chosen(target: str = "gfx942") -> str:
    """Return the name of the compiler for a target, or why there is none."""
    compiler = hip_toolchain(target)
    name = compiler.reason if isinstance(compiler, Lacking) else compiler.name
    assert "\n" not in name
    return name


CDNA4 = "gfx90a gfx942 gfx950"


ZIG = "clang 22.1.8 of ziglang 0.99"
UNKNOWN = f"clang 19.1.0 does not know gfx950; {NO_ZIG}"


@pytest.mark.parametrize(
    ("here", "expected"),
    [
        ("rocm7 clang zig", ("ROCm clang 18.0.0", "clang 20.1.0")),
        ("rocm7 old zig", ("ROCm clang 18.0.0", ZIG)),
        ("old clang", ("clang 20.1.0", "clang 20.1.0")),
        ("old zig", ("clang 19.1.0", ZIG)),
        ("broken old zig", ("clang 19.1.0", ZIG)),
        ("zig", (ZIG, ZIG)),
        ("old", ("clang 19.1.0", UNKNOWN)),
        ("rocm5 old", ("clang 19.1.0", UNKNOWN)),
        ("unread zig", (ZIG, ZIG)),
        ("unread", ("clang 23.1.0", "clang 23.1.0")),
    ],
)
def test_each_target_has_the_first_compiler_that_knows_it(
    path: Path, tmp_path: Path, env: pytest.MonkeyPatch, here: str, expected: tuple[str, str]
) -> None:
    for version in re.findall(r"rocm(\d)", here):
        env.setenv("ROCM_PATH", str(rocm(tmp_path / "rocm", int(version))))
    if "broken" in here:
        program_file(path / "clang++-21", "exit 1")
    if "unread" in here:  # it reads no device library
        unread = 'case "$*" in *-mlink-builtin-bitcode*) exit 1;; esac'
        clang(path / "clang++-23", "23.1.0", CDNA4, unread)
    if "clang" in here:
        clang(path / "clang++-20", "20.1.0", CDNA4)
    if "old" in here:
        clang(path / "clang++-19", "19.1.0")
        clang(path / "clang++-14", "14.0.6")
    if "zig" in here:
        pips(env, tmp_path / "pip", "22.1.8", targets=CDNA4)

    assert (chosen("gfx942"), chosen("gfx950")) == expected


NO_CMATH = "echo \"x.h:1:10: fatal error: 'cmath' file not found\" >&2; exit 1"
SAMPLE = "ziglang 0.99 does not compile a small HIP kernel"
NEEDED = "ziglang 0.99 is clang {}: {} is needed"


@pytest.mark.parametrize(
    ("program", "zig", "said"),
    [
        ('echo "Debian clang version 14.0.6"', (), "clang++ is clang 14.0.6: 19 is needed"),
        ("exit 1", (), "clang++ does not work: exit status 1: it said nothing"),
        ("kill -SEGV $$", (), "clang++ does not work: killed by signal 11"),
        ("echo hello", (), "clang++ is no clang that says its version"),
        ('echo "clang version 19.1.0"', (), "clang++ was built without the AMDGPU back end"),
        ("", ("21.1.0", "22", ""), NEEDED.format("21.1.0", 22)),
        ("", ("22.1.8", "23", ""), NEEDED.format("22.1.8", 23)),
        ("", ("22.1.8", "22", "kill -SEGV $$"), f"{SAMPLE}: killed by signal 11"),
        ("", ("22.1.8", "22", NO_CMATH), f"{SAMPLE}: 'cmath' file not found"),
    ],
)
def test_a_compiler_that_will_not_do_is_said_with_what_helps(
    path: Path, tmp_path: Path, env: pytest.MonkeyPatch, program: str, *, zig: tuple[str, ...],
    said: str,
) -> None:  # fmt: skip
    if zig:
        version, headers, fails = zig
        pips(env, tmp_path / "pip", version, headers, fails=fails)
    else:
        program_file(path / "clang++", program)

    assert chosen() == (f"{said}: {REPAIR}" if zig else f"{said}; {NO_ZIG}")


OLD = "clang++ is clang 18.1.8: 19 is needed"
NO_TIDY = "clang-tidy, which brings the headers for ziglang's clang, is not installed"
NO_TRITON = f"HIP's headers, which triton brings, are not here: {INSTALL}"


@pytest.mark.parametrize(
    ("gone", "said"),
    [
        ("triton", NO_TRITON),
        ("ziglang", f"{OLD}; {NO_ZIG}"),
        ("clang_tidy", f"{OLD}; {NO_TIDY}: {INSTALL}"),
    ],
)
def test_what_is_not_installed_is_said(
    path: Path, tmp_path: Path, env: pytest.MonkeyPatch, gone: str, said: str
) -> None:
    program = clang(path / "clang++", "18.1.8")
    pips(env, tmp_path / "pip", "22.1.8")
    installed(env, **{gone: None})

    assert chosen() == said
    if gone == "triton":
        env.setenv("CONTRIBBOT_HIP_CLANG", str(program))
        assert chosen() == said


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ("gone gfx942", "gone: no such program"),
        ("folder gfx942", "folder: no such program"),
        ("text gfx942", "text does not work: it: not allowed to run it"),
        ("idle gfx942", "idle is no clang that says its version"),
        ("mine gfx942", ""),
        ("mine gfx950", "clang 19.1.7 does not know gfx950"),
    ],
)
@pytest.mark.usefixtures("path")
def test_a_named_compiler_is_the_only_one(
    tmp_path: Path, env: pytest.MonkeyPatch, asked: str, said: str
) -> None:
    named, target = asked.split()
    clang(tmp_path / "bin/clang++-20", "20.1.0", CDNA4)
    clang(tmp_path / "mine", "19.1.7")
    (tmp_path / "folder").mkdir()
    (tmp_path / "text").write_text("no program")
    program_file(tmp_path / "idle", "exit 0")
    env.setenv("ROCM_PATH", str(rocm(tmp_path / "rocm", 7)))
    env.setenv("CONTRIBBOT_HIP_CLANG", str(tmp_path / named))

    cure = f"must name a clang 19 or newer that knows {target}, or be unset"
    expected = f"{said}: CONTRIBBOT_HIP_CLANG {cure}" if said else "clang 19.1.7"
    assert chosen(target) == expected


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


@pytest.mark.tool("g++")  # without a C++ library, pip's clang is looked at twice
@pytest.mark.parametrize("variable", ["CONTRIBBOT_EMULATED", "CONTRIBBOT_DEVICE"])
def test_a_check_that_is_emulated_is_spared_the_look(
    clang: Toolchain, env: pytest.MonkeyPatch, tmp_path: Path, variable: str
) -> None:
    place = RunLayout(tmp_path, python=(), env={variable: "gfx942"})
    child = child_environment(place, {}, threads=1, folder=tmp_path, more={})
    env.setenv("CONTRIBBOT_TOOLCHAINS", child["CONTRIBBOT_TOOLCHAINS"])
    env.setenv("CONTRIBBOT_CACHE", str(tmp_path / "a child's own"))
    env.setattr(toolchain, "_look", None)
    assert hip_toolchain("gfx942") == clang
    assert not (tmp_path / "a child's own").exists()
