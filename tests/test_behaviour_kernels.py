"""Hipify, compile and build entries on a release without the patch: real compilers, real trees."""

from __future__ import annotations

import pytest

from contribbot.model.lifecycle import Need
from tests.buildtoy import FIXED_KERNEL, build_table, products, put_kernel_patch
from tests.hiptoy import BROKEN, CUDA_ONLY, HARD_FP8, LONG, SOFT_FP8, entry, put_change
from tests.releases import Seen, release, says, told
from tests.test_hipify import BASE, QUICK, grow, patch, stated
from tests.toy import Toy

pytestmark = pytest.mark.usefixtures("compile_cache")


@pytest.mark.slow
@pytest.mark.usefixtures("clang")
@pytest.mark.parametrize(
    ("source", "said", "reason"),
    [
        (LONG, "passes", "it compiles"),
        (BROKEN, "fails", "no_such_function"),
        (CUDA_ONLY, "other", "fails for another reason than stated: "),
    ],
    ids=["fixed", "not fixed", "broken otherwise"],
)
def test_a_kernel_that_moved_is_compiled(toy: Toy, source: str, said: str, reason: str) -> None:
    put_change(toy, BROKEN, LONG, entry("fail-to-pass", "reason = 'no_such_function'"))
    pin = release(toy, {"csrc/scale.hip": None, "csrc/kernels/scale.hip": source})
    answer = told(toy, pin, name="scale")
    assert says(answer) == {"compile scale gfx942": said}
    assert reason in answer.entries[0].reason
    assert answer.moved == {"csrc/scale.hip": "csrc/kernels/scale.hip"}


@pytest.mark.slow
@pytest.mark.usefixtures("clang")
def test_an_instruction_that_the_release_lacks_is_the_stated_failure(toy: Toy) -> None:
    more = (
        "reason = '^no v_cvt_pk_fp8_f32 in'\nkernels = '^scale<'\n"
        'instructions = { gfx942 = ["v_cvt_pk_fp8_f32"] }\n'
    )
    put_change(toy, SOFT_FP8, HARD_FP8, entry("fail-to-pass", more))
    hard, soft = release(toy, {"csrc/scale.hip": HARD_FP8}), release(toy, {}, "v2.1")
    fixed, same = told(toy, hard, name="scale"), told(toy, soft, name="scale")
    assert fixed.entries[0].reason == "it compiles, with v_cvt_pk_fp8_f32 in the kernels"
    assert (fixed.verdict, same.verdict) == (Need.SUPERSEDED, Need.NEEDED)
    assert same.entries[0].reason == "no v_cvt_pk_fp8_f32 in 2 of 2 kernels"


LACKING = QUICK.replace("sources:", "sources[1:]:")


@pytest.mark.parametrize(
    ("changes", "said", "reason"),
    [
        ({"tools/hipify.py": QUICK}, "passes", "2 outputs where the build looks"),
        ({}, "fails", "csrc/k.cu has no output csrc/k.hip"),
        ({"tools/hipify.py": None}, "other", "tools/hipify.py is not in the tree"),
        # What is gone can show the fault no more, and the rest is looked at.
        (
            {"tools/hipify.py": QUICK, "csrc/other.cu": None},
            "passes",
            "1 output where the build looks; not there: csrc/other.cu",
        ),
        ({"csrc/k.cu": None, "csrc/other.cu": None}, "other", "csrc/k.cu is not there"),
    ],
    ids=["mended", "as it was", "no script", "a source gone", "all gone"],
)
def test_the_hipify_step(toy: Toy, changes: dict[str, str | None], said: str, reason: str) -> None:
    grow(toy, {**BASE, "tools/hipify.py": LACKING})
    told_of = '"csrc/k.cu", "csrc/other.cu"'
    patch(toy, {"tools/hipify.py": QUICK}, stated("csrc/k.cu has no output", told_of))
    answer = told(toy, release(toy, changes))
    assert says(answer) == {"hipify": said}
    assert reason in answer.entries[0].reason


@pytest.mark.slow
@pytest.mark.tool("g++", "ninja")
def test_what_a_check_loads_is_built_from_the_release(toy: Toy) -> None:
    put_kernel_patch(toy)
    fixed = release(toy, {"csrc/area.cpp": FIXED_KERNEL})
    broken = release(toy, {"csrc/area.cpp": "nonsense\n"}, "v2.1")
    again = Seen()
    answer, stuck = told(toy, fixed), told(toy, broken)
    told(toy, fixed, seen=again)
    assert (answer.verdict, says(answer)) == (Need.SUPERSEDED, {"check red": "passes"})
    assert (says(stuck), again.started) == ({"check red": "other"}, [])
    assert stuck.entries[0].reason.startswith("its build area is not there: csrc/area.cpp:1")
    assert len(products(toy)) == 1


@pytest.mark.slow
@pytest.mark.tool("g++", "ninja")
def test_a_build_that_failed_without_the_patch(toy: Toy) -> None:
    stated = build_table(expect='"fail-to-pass"', reason='"nonsense"')
    put_kernel_patch(toy, build=stated, checks="", base="nonsense\n")
    fixed, same = release(toy, {"csrc/area.cpp": FIXED_KERNEL}), release(toy, {}, "v2.1")
    assert says(told(toy, fixed)) == {"build area cpu": "passes"}
    assert says(told(toy, same)) == {"build area cpu": "fails"}
