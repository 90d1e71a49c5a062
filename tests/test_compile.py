"""Stage `compile` with real compilers: what is proved, refuted, remembered, not available."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from contribbot.cli.outcomes import listing_blocks
from contribbot.cli.render import lines_of
from contribbot.compile.cache import Compiled
from contribbot.compile.hip import HipSource, compile_hip
from contribbot.compile.toolchain import Toolchain, hip_toolchain
from contribbot.compile.triton import TritonSource, compile_triton, triton_missing
from contribbot.errors import NoSpaceError
from contribbot.verify.stages import compile as stage
from tests.conftest import Program, dig
from tests.hiptoy import (
    ABSENT,
    CUDA_ONLY,
    HARD_FP8,
    HEADER,
    LONG,
    QUICK,
    SAME,
    SINE,
    calls,
    compiled,
    entry,
    needed,
    program_file,
    put_change,
)
from tests.tools import kinds, small_disk
from tests.toy import Toy


@pytest.mark.slow
def test_a_kernel_is_compiled_and_compared_for_each_target(toy: Toy, program: Program) -> None:
    targets = ("gfx942", "gfx950", "gfx1201")
    put_change(toy, LONG, QUICK, entry(targets=targets, more=f"fewer_instructions = {[*targets]}"))

    ran = program("verify", "scale", "--json")

    results = compiled(ran)
    assert list(results) == [*targets]
    for target, result in results.items():
        assert result.outcome == "passed", result.reason
        before, after = (dig(result.details, side, "instructions") for side in ("base", "patched"))
        assert isinstance(before, int)
        assert isinstance(after, int)
        assert after < before
        assert f"instructions {before} -> {after}" in result.reason
        assert "3 kernels" in result.reason
        assert dig(result.details, "toolchain", "name") == needed(hip_toolchain(target)).name
        lines = [*lines_of(listing_blocks(result))]
        assert lines[0] == f"scale {target}: 2 kernels changed, 1 kernel with the same figures"
        assert [line.split()[0] for line in lines[2:-1]] == ["scale<int>", "scale<float>"]
        assert lines[-1].startswith("listings in .contribbot/logs: base ")
        for name in re.findall(r"\w+\.log", lines[-1]):
            assert ".amdhsa_kernel" in (toy.queue / ".contribbot/logs" / name).read_text()
    # Compiling says nothing of the hardware.
    assert ran.report().open == ()


@pytest.mark.usefixtures("compile_cache")
def test_what_does_not_compile_on_the_base_turns_green(toy: Toy, program: Program) -> None:
    stated = entry("fail-to-pass", r"""reason = "'cuda_fp8\\.h' file not found" """)
    put_change(toy, CUDA_ONLY, LONG, stated)

    ran = program.ok("verify", "scale", "--json")
    assert ran.report().verdict == "proved"
    result = compiled(ran)["gfx942"]
    assert "fails on the base as stated, compiles on the patched tree; 3 kernels" in result.reason
    assert dig(result.details, "base", "failed", 0, "test") == "scale [gfx942]"
    assert "cuda_fp8.h" in str(dig(result.details, "base", "failed", 0, "message"))
    assert dig(result.details, "patched", "passed") == ["scale [gfx942]"]
    told = json.dumps(dig(result.details))
    for folder in (str(toy.root.parent), sys.prefix, sys.base_prefix + "/", str(Path.cwd())):
        assert folder not in told
    assert "clang" in told
    assert "<tree>/csrc/scale.hip" in told
    # The record that it wrote holds against its own rules.
    program.ok("evidence", "check")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("source", "more", "outcome", "said"),
    [
        (ABSENT, "no_spills = true", "unavailable", "calls nowhere"),
        (SINE, 'fewer_instructions = ["gfx942"]', "passed", ""),
    ],
)
def test_numbers_are_with_all_that_a_kernel_calls_or_not_believed(
    toy: Toy, program: Program, source: str, *, more: str, outcome: str, said: str
) -> None:
    put_change(toy, source, QUICK, entry(more=more))
    result = compiled(program("verify", "scale", "--json"))["gfx942"]
    assert (result.outcome, said in result.reason) == (outcome, True), result.reason
    if outcome == "passed" and needed(hip_toolchain("gfx942")).kind != "rocm":
        assert dig(result.details, "base", "unresolved") == []
        linked = str(dig(result.details, "toolchain", "library"))
        assert linked.startswith("ocml.bc and ockl.bc of ")


@pytest.mark.usefixtures("compile_cache")
def test_a_target_that_the_compiler_does_not_know_stays_open(toy: Toy, program: Program) -> None:
    # No compiler knows this one.
    put_change(toy, LONG, QUICK, entry(targets=("gfx942", "gfx9ff")))
    ran = program("verify", "scale", "--json")
    result = compiled(ran)["gfx9ff"]
    assert result.outcome == "unavailable"
    assert "does not know gfx9ff" in result.reason
    assert ran.report().open == ("compile:gfx9ff",)
    assert program("verify", "scale", "--require", "compile:gfx9ff").code == 1
    program.ok("verify", "scale", "--require", "compile:gfx942")


def test_what_pip_installs_compiles_alone(toy: Toy, program: Program, tmp_path: Path) -> None:
    if Path("/opt/rocm").exists():
        pytest.skip("this machine has ROCm where it is always found")
    more = 'instructions = { gfx950 = ["v_cvt_pk_fp8_f32"] }\nkernels = "^scale<"'
    put_change(toy, HARD_FP8, HARD_FP8, entry(targets=("gfx950",), more=more))
    bare = tmp_path / "bare"
    bare.mkdir()
    for name in ("git", "rm"):
        (bare / name).symlink_to(str(shutil.which(name)))

    ran = program("verify", "scale", "--json", PATH=str(bare), ROCM_PATH="")

    result = compiled(ran)["gfx950"]
    assert result.outcome == "passed", result.reason
    assert re.fullmatch(
        r"clang 22\.\S+ of ziglang 0\.17\S*", str(dig(result.details, "toolchain", "name"))
    )
    assert str(dig(result.details, "command")).startswith(
        "python -m ziglang clang -resource-dir '<clang_tidy>/data/lib/clang/22' "
    )
    told = json.dumps(dig(result.details))
    assert not [name for name in (str(toy.root.parent), sys.prefix, str(tmp_path)) if name in told]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("does", "outcome", "said"),
    [
        ("kill -SEGV $$", "failed", "killed by signal 11"),
        ("sleep 600", "unavailable", "not finished after 3 s"),
    ],
)
def test_a_compiler_that_dies_or_hangs_decides_nothing_for_good(
    toy: Toy, program: Program, monkeypatch: pytest.MonkeyPatch, *,
    does: str, outcome: str, said: str,
) -> None:  # fmt: skip
    put_change(toy, LONG, QUICK, entry(more="timeout = 3" if outcome == "unavailable" else ""))
    using = needed(hip_toolchain("gfx942"))
    bad = program_file(
        toy.root / "bad", f'case "$*" in *" -S "*scale.hip) {does};; esac\n{calls(using)}'
    )
    broken = replace(using, argv=(str(bad),))
    monkeypatch.setattr(stage, "hip_toolchain", lambda _target: broken)
    for _ in range(2):
        ran = program("verify", "scale", "--json")
        result = compiled(ran)["gfx942"]
        assert (result.outcome, result.cached) == (outcome, False)
        assert said in result.reason


@pytest.mark.slow
def test_the_same_for_the_compiler_is_compiled_once(toy: Toy, program: Program) -> None:
    put_change(toy, LONG, SAME, entry())
    first = compiled(program("verify", "scale", "--json"))["gfx942"]
    again = compiled(program("verify", "scale", "--json", "--force"))["gfx942"]
    # Another comment is no other kernel: one of the two sides found what the other made.
    remembered = [
        [dig(result.details, side, "remembered") for side in ("base", "patched")]
        for result in (first, again)
    ]
    assert (sum(map(bool, remembered[0])), remembered[1]) == (1, [True, True])
    assert compiled(program("verify", "scale", "--json"))["gfx942"].cached
    assert dig(again.details, "table") == dig(first.details, "table")


@pytest.mark.parametrize(
    ("stated", "why"),
    kinds([
        (entry(), "compiles on the patched tree, new there; 3 kernels, instructions "),
        (entry("fail-to-pass", 'reason = "not in the tree"'),
         "shows nothing: on the base, csrc/new.hip is not in the tree"),
    ], lambda case: "new there" in case[1]),
)  # fmt: skip
def test_a_new_source_has_to_compile(toy: Toy, program: Program, stated: str, why: str) -> None:
    patch = toy.format_patch({"csrc/new.hip": LONG, "csrc/include/scale.h": HEADER})
    files = ("csrc/new.hip", "csrc/include/scale.h")
    stated = stated.replace("scale.hip", "new.hip")
    toy.put_patch("scale", patch=patch, files=files, checks=stated, check_files={})
    toy.put_queue(["scale"])
    result = compiled(program("verify", "scale", "--json"))["gfx942"]
    assert result.outcome == ("failed" if "nothing" in why else "passed")
    assert why in result.reason


def test_nothing_heavy_is_imported_to_find_out_what_to_do() -> None:
    code = (
        "import sys\n"
        "from contribbot.compile.hip import headers_digest, torch_include\n"
        "from contribbot.compile.toolchain import hip_toolchain\n"
        "import contribbot.verify.stages.compile\n"
        "hip_toolchain('gfx950'), torch_include(), headers_digest()\n"
        "print(sorted({'torch', 'triton', 'numpy'} & set(sys.modules)))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


KILLED = "killed, or out of memory"
#: Becomes what the kernel kills for memory.
EATS = f"echo $$ > {{group}}/cgroup.procs; exec {sys.executable} -c 'bytes(256 << 20).upper()'"
TRITON = """\
import triton
import triton.language as tl


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
    (folder / "kernel.py").write_text(before + TRITON)
    source = TritonSource(folder / "kernel.py", "scale", {"out_ptr": "*fp32"}, {}, 4, (folder,))
    return compile_triton(source, "gfx942", using=using, folder=folder, timeout=timeout, scrub=str)


@pytest.mark.slow
@pytest.mark.parametrize("group", ["memory"], indirect=True)
@pytest.mark.parametrize("side", ["factor", " / factor", " \\* factor"])
def test_a_compiler_that_the_kernel_kills_for_memory_refutes_nothing(
    toy: Toy,
    program: Program,
    clang: Toolchain,
    group: Path,
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
    slow = triton(tmp_path, clang, "import time\ntime.sleep(600)\n", timeout=15)
    assert (slow.error, slow.crashed) == ("", "")
    assert slow.missing.endswith("not finished after 15 s")
