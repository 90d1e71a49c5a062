"""Kernels of a patch, emulated: red to green, what ran, what stays open, and what is required."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from contribbot.hardware.hip import hip_toolchain
from tests.buildtoy import with_sources
from tests.hiptoy import needed

if TYPE_CHECKING:
    from contribbot.model.evidence import StageResult
    from tests.conftest import Program, Ran
    from tests.toy import Toy

ROOT = Path(__file__).parent.parent
#: Adds up what the lanes of each wave hold.
KERNEL = """\
#include <hip/hip_runtime.h>

template <typename T>
__global__ void sum(const T* x, T* out) {{
  T total = x[threadIdx.x];
  for (int step = {first}; step; step /= 2)
    total += __shfl_xor(total, step);
  if (threadIdx.x % warpSize == 0)
    out[threadIdx.x / warpSize] = {result};
}}

template __global__ void sum<float>(const float*, float*);
"""
#: Half of a wave of 32: on gfx942 each half of a wave is added up for itself.
WRONG = KERNEL.format(first="16", result="total")
RIGHT = KERNEL.format(first="warpSize / 2", result="total")
UNMODELLED = KERNEL.format(first="warpSize / 2", result="__builtin_amdgcn_sinf(total)")
CHECK = (ROOT / "docs/examples/test_wave_sum.py").read_text(encoding="utf-8")
COMPILE = """\
[[compile]]
name = "sum"
source = "csrc/sum.hip"
targets = ["gfx942", "gfx1100"]
expect = "pass-to-pass"
"""
WIDE = """
[[emulated]]
name = "wide"
file = "test_wave_sum.py"
compile = "sum"
targets = ["gfx942"]
expect = "fail-to-pass"
reason = "^AssertionError: 496 of gfx942"
"""
NARROW = """
[[emulated]]
name = "narrow"
file = "test_wave_sum.py"
compile = "sum"
targets = ["gfx1100"]
expect = "pass-to-pass"
"""
SAYS = "(emulated from AMD's instruction reference; not run on a GPU)"


@pytest.fixture(autouse=True)
def _a_toolchain() -> None:
    needed(hip_toolchain("gfx942"))


def put(toy: Toy, after: str, stated: str, check: str = CHECK) -> None:
    """Put a patch of the kernel into the queue."""
    with_sources(toy, {"csrc/sum.hip": WRONG})
    patch = toy.format_patch({"csrc/sum.hip": after})
    toy.put_patch("wave", patch=patch, files=("csrc/sum.hip",), checks=COMPILE + stated,
                  check_files={"test_wave_sum.py": check})  # fmt: skip
    toy.put_queue(["wave"])


def emulated(ran: Ran) -> dict[str, StageResult]:
    """Return the outcomes of `emulate` by target."""
    return {stage.target: stage for stage in ran.report().stages if stage.stage == "emulate"}


def test_a_kernel_goes_from_red_to_green_on_a_target_of_its_own(toy: Toy, program: Program) -> None:
    put(toy, RIGHT, WIDE + NARROW)

    ran = program("verify", "wave", "--json", "--require", "emulated:gfx942")

    assert ran.code == 0, ran.err
    report, results = ran.report(), emulated(ran)
    assert report.verdict == "proved"
    assert report.open == ()
    assert list(results) == ["emulated:gfx942", "emulated:gfx1100"]
    wide, narrow = results.values()
    assert wide.reason == (
        f"wide: 1 test: fail on the base as stated, pass on the patched tree {SAYS}"
    )
    assert narrow.reason == f"narrow: 1 test: pass on the base and on the patched tree {SAYS}"
    assert wide.details["witness"] == {"csrc/sum.hip": [6]}
    (seen,) = (each for each in report.stages
               if (each.stage, each.target) == ("witness", "emulated:gfx942"))  # fmt: skip
    assert seen.reason == "1 of 1 added lines with code ran (100%)"


def test_the_hardware_itself_is_not_shown_by_it(toy: Toy, program: Program) -> None:
    put(toy, RIGHT, WIDE)
    assert program("verify", "wave", "--require", "gfx942").code == 1


def test_the_page_has_the_example() -> None:
    page = (ROOT / "docs/emulate.md").read_text(encoding="utf-8")
    assert CHECK.partition("\n\n")[2] in page
    assert COMPILE + WIDE in page
