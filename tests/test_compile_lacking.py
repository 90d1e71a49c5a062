"""A compiler that this machine gave no memory, room or time says nothing of a patch."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from contribbot.compile.cache import Compiled
from contribbot.compile.hip import HipSource, compile_hip
from contribbot.compile.toolchain import Toolchain
from contribbot.compile.triton import TritonSource, compile_triton, triton_missing
from contribbot.errors import NoSpaceError
from contribbot.verify.stages import compile as stage
from tests.conftest import Program
from tests.hiptoy import HEADER, LONG, QUICK, calls, entry, program_file, put_change
from tests.smalldisk import small_disk
from tests.test_supervise import group  # noqa: F401  a fixture
from tests.toy import Toy

KILLED = "killed, or out of memory"
#: Becomes what the kernel kills for memory.
EATS = f"echo $$ > {{group}}/cgroup.procs; exec {sys.executable} -c 'bytes(256 << 20).upper()'"
TRITON = """\
import os, time
import triton
import triton.language as tl

{before}


@triton.jit
def scale(out_ptr):
    tl.store(out_ptr, 1.0)
"""


def hip(folder: Path, using: Toolchain) -> Compiled:
    (folder / "kernel.hip").write_text(LONG)
    (folder / "scale.h").write_text(HEADER)
    source = HipSource(
        folder / "kernel.hip", (folder,), (), "c++20", torch=False, folders=(folder,)
    )
    return compile_hip(source, "gfx942", using=using, folder=folder, timeout=60, scrub=str)


def triton(folder: Path, using: Toolchain, before: str = "", timeout: float = 120) -> Compiled:
    if triton_missing():
        pytest.skip(str(triton_missing()))
    (folder / "kernel.py").write_text(TRITON.format(before=before))
    source = TritonSource(folder / "kernel.py", "scale", {"out_ptr": "*fp32"}, {}, 4, (folder,))
    return compile_triton(source, "gfx942", using=using, folder=folder, timeout=timeout, scrub=str)


@pytest.mark.slow
@pytest.mark.parametrize("group", ["memory"], indirect=True)
@pytest.mark.parametrize("side", ["factor", " / factor", " \\* factor"])
def test_a_compiler_that_the_kernel_kills_for_memory_refutes_nothing(
    toy: Toy,
    program: Program,
    clang: Toolchain,
    group: Path,  # noqa: F811  the fixture
    side: str,
) -> None:
    (group / "memory.limit_in_bytes").write_text(str(64 * 2**20))
    put_change(toy, LONG, QUICK, entry())
    # On both sides, on the base, which divides, or on the patched tree.
    starving = program_file(
        toy.root / "starving",
        f'for last; do :; done\ncase "$*" in *" -S "*scale.hip) '
        f"if grep -q '{side}' $last; then {EATS.format(group=group)}; fi;; esac\n" + calls(clang),
    )

    using = replace(clang, argv=(str(starving),))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(stage, "hip_toolchain", lambda _target: using)
        ran = program("verify", "scale", "--json")

    result = ran.stages()["compile scale"]
    assert (result.outcome, ran.report().verdict) == ("unavailable", "incomplete"), result
    where = "patched tree" if "*" in side else "base"
    assert f"on the {where}: " in result.reason
    assert result.reason.endswith(KILLED)
    fault = result.runner_fault
    assert fault is not None
    assert fault.kind == "out-of-memory"
    # The machine failed, and nobody else.
    assert ran.code == 3


@pytest.mark.parametrize("compile_it", [hip, triton])
def test_a_disk_that_is_full_ends_a_compile(
    clang: Toolchain, tmp_path: Path, compile_it: Callable[[Path, Toolchain], Compiled]
) -> None:
    with small_disk(tmp_path / "disk", "size=16k") as folder, pytest.raises(NoSpaceError):
        compile_it(folder, clang)


@pytest.mark.slow
def test_triton_without_time_has_said_nothing(clang: Toolchain, tmp_path: Path) -> None:
    slow = triton(tmp_path, clang, "time.sleep(600)", timeout=15)
    assert (slow.error, slow.crashed) == ("", "")
    assert slow.missing.endswith("not finished after 15 s")
