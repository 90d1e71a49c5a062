"""Kernels of a patch, emulated: red to green, what ran, what stays open, and what is required."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from contribbot.compile.toolchain import hip_toolchain, search
from contribbot.emulate import UnmodelledError
from contribbot.errors import MachineError, UsageError, install
from contribbot.model.lifecycle import Need
from contribbot.verify.emulated_kernels import NoKernelError
from contribbot.verify.pytest_plugin import why_broken
from tests.buildtoy import with_sources
from tests.conftest import REAL_CACHE, Program, dig
from tests.contribute.bodytoy import describe
from tests.hiptoy import needed
from tests.releases import release, says, told

if TYPE_CHECKING:
    from contribbot.model.evidence import StageResult
    from tests.conftest import Ran
    from tests.toy import Toy

ROOT = Path(__file__).parent.parent
#: Adds up what the lanes of each wave hold.
KERNEL = """\
#include <hip/hip_runtime.h>

template <typename T>
__global__ void sum(const T* x, T* out) {{
  T total = x[threadIdx.x];
  for (int step = warpSize / 2; step; step /= 2)
    total += {taken};
  if (threadIdx.x % warpSize == 0)
    out[threadIdx.x / warpSize] = {result};
}}

template __global__ void sum<float>(const float*, float*);
"""
#: Half of a wave of 32: on gfx942 each half of a wave is added up for itself.
WRONG = KERNEL.format(taken="step < 32 ? __shfl_xor(total, step) : 0", result="total")
RIGHT = KERNEL.format(taken="__shfl_xor(total, step)", result="total")
#: Stores nothing, whatever a compiler may think of it.
IDLE = RIGHT.replace("% warpSize == 0)", "% warpSize == 0 && total < -1e30f)")
#: `sum` by another name, and a comment.
RENAMED = WRONG.replace(" sum<", " add<").replace("void sum(", "void add(") + "// As before.\n"
#: The right one beside the wrong one, as `add`.
ADDED = WRONG + "\n".join(RIGHT.replace(" sum<", " add<").replace("void sum(", "void add(")
                          .splitlines()[2:])  # fmt: skip
UNMODELLED = RIGHT.replace("= total;", '= total; asm volatile("s_trap 2");')
CHECK = (ROOT / "docs/examples/test_wave_sum.py").read_text(encoding="utf-8")
#: As `CHECK`, without torch, which each run takes seconds to import.
PLAIN_CHECK = """\
import numpy as np
from contribbot import emulate


def test_all_lanes_are_added(kernels, target):
    lanes = 64 if target.startswith("gfx9") else 32
    x, out = np.arange(64, dtype=np.float32), np.zeros(64 // lanes, np.float32)
    emulate.launch(kernels["sum"], grid=1, block=64, args=[x, out])
    assert (out == x.reshape(-1, lanes).sum(1)).all(), f"{out[0]:g} of {target}"
"""
NUMERICS = """\
import torch
from contribbot import emulate
from contribbot.numerics import Grid

GRID = Grid({"dtype": [torch.float32], "shape": [(64,)]}, seeds=2, device="cpu")


@GRID.each_cell
def test_sum(draw, kernels):
    x, out = draw.normal(64), torch.zeros(1)

    def kernel():
        emulate.launch(kernels["sum<float>"], 1, 64, [x, out])
        return out

    draw.judge(
        "sum", kernel, reference=x.double().sum(0, True), same_precision=x.sum(0, keepdim=True)
    )
"""
LIMITS = """
fudge = 4
floor = 1e-6
why = "another order of the same additions"
"""
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
#: Adds up rows of `n`, which is below BLOCK: the base adds what stands behind a row as well.
TRITON = """\
import triton
import triton.language as tl


@triton.jit
def row_sums(out_ptr, in_ptr, n, BLOCK: tl.constexpr):
    row, column = tl.program_id(0), tl.arange(0, BLOCK)
    x = tl.load(in_ptr + row * BLOCK + column)
    tl.store(out_ptr + row, tl.sum(x))
"""
#: What is left of a triton that was built without AMD's back end.
NO_AMD = """\
import triton.backends
triton.backends.backends.pop("amd")
import triton"""
TRITON_CHECK = """\
import torch
from contribbot import emulate


def test_row_sums(kernels, target):
    kernel = kernels["row_sums"]
    x, out = torch.arange(3 * 256, dtype=torch.float32).view(3, 256), torch.zeros(3)
    emulate.launch(kernel, 3, 4 * kernel.metadata.wavefront_size, [out, x, 200, 0, 0])
    assert torch.equal(out, x[:, :200].sum(1)), f"{out[0]:g} of {target}"
"""
TRITON_STATED = """\
[[compile]]
name = "sum"
kind = "triton"
source = "src/toy/kernel.py"
function = "row_sums"
signature = { out_ptr = "*fp32:16", in_ptr = "*fp32:16", n = "i32", BLOCK = "constexpr" }
constants = { BLOCK = 256 }
targets = ["gfx942", "gfx1201"]
expect = "pass-to-pass"

[[emulated]]
name = "sums"
file = "test_row_sums.py"
compile = "sum"
targets = ["gfx942", "gfx1201"]
expect = "fail-to-pass"
reason = "^AssertionError: 32640 of gfx"
"""
#: Adds up rows; the base reads past the end of each.
TREE = """\
import torch
import triton
import triton.language as tl


@triton.jit
def sums_kernel(out_ptr, in_ptr, n, BLOCK: tl.constexpr):
    row, column = tl.program_id(0), tl.arange(0, BLOCK)
    x = tl.load(in_ptr + row * n + column)
    tl.store(out_ptr + row, tl.sum(x))


@triton.jit
def trap_kernel(out_ptr, in_ptr):
    x = tl.load(in_ptr)
    x = tl.inline_asm_elementwise("s_trap 2", "=v,0", [x], tl.float32, False, 1)
    tl.store(out_ptr, x)


@triton.jit
def idle_kernel(out_ptr, in_ptr):
    tl.store(out_ptr, tl.load(in_ptr), mask=tl.load(in_ptr) < 0)


@triton.jit
def copy_kernel(out_ptr, in_ptr):
    tl.store(out_ptr, tl.load(in_ptr))


def sums(x):
    out = torch.empty(x.shape[0], device=x.device)
    sums_kernel[(x.shape[0],)](out, x, x.shape[1], BLOCK=256)
    return out
"""
#: The upstream's own test of it.
OWN_TEST = """\
import pytest
import torch
from not_installed.platforms import current_platform

from toy.kernel import sums


@pytest.mark.parametrize("rows", [1, 3])
def test_sums(rows):
    assert current_platform.is_rocm() and not current_platform.is_cuda()
    x = torch.ones(rows, 200, device="cuda")
    assert torch.equal(sums(x), x.sum(1))


def test_on_the_host():
    assert sums is not None
"""
TREE_CHECKS = {
    "test_check.py": """\
import torch
from toy.kernel import sums


def test_sums(target):
    assert torch.cuda.get_device_properties(0).gcnArchName.startswith(target)
    x = torch.arange(200.0, device="cuda").view(1, 200)
    assert sums(x).tolist() == [19900.0]
""",
    "test_own.py": """\
from contribbot.testing import import_file

test_sums = import_file("tests/test_kernel.py").test_sums
""",
    "test_no_launch.py": """\
import torch
import toy.kernel


def test_nothing():
    assert torch.ones(3, device="cuda").sum() == 3
""",
    "test_unmodelled.py": """\
import contextlib
import torch
from toy.kernel import trap_kernel


def test_goes_on():
    out, x = torch.zeros(1, device="cuda"), torch.ones(1, device="cuda")
    with contextlib.suppress(Exception):
        trap_kernel[1,](out, x)


def test_fails_by_it():
    out, x = torch.zeros(1, device="cuda"), torch.ones(1, device="cuda")
    with contextlib.suppress(Exception):
        trap_kernel[1,](out, x)
    assert out == 1
""",
    "test_other.py": """\
import inspect
import torch
from toy.kernel import copy_kernel, sums_kernel


def test_text():
    out, x = torch.zeros(1, device="cuda"), torch.ones(1, device="cuda")
    copy_kernel[1,](out, x)
    assert "mask" in inspect.getsource(sums_kernel.fn), "no mask"
""",
    "test_idle.py": """\
import torch
from toy.kernel import idle_kernel


def test_holds():
    x = torch.ones(1, device="cuda")
    idle_kernel[1,](x.clone(), x)
""",
    "test_kernels.py": """\
def test_none(kernels):
    assert not kernels
""",
}
#: What each states: the targets, and the reason, if it is red.
BOUNDS = r"^KernelError: kernel\.py:9: sums_kernel\+0x[0-9a-f]+: \w+_load_\w+ .*: out of bounds: "
TREE_STATED = {
    "check": (("gfx942",), BOUNDS), "own": (("gfx942", "gfx1201"), BOUNDS),
    "no_launch": (("gfx942",), ""), "unmodelled": (("gfx942",), ""),
    "other": (("gfx942",), "^AssertionError: no mask"), "kernels": (("gfx942",), ""),
    "idle": (("gfx942",), ""),
}  # fmt: skip
SAYS = "(emulated from AMD's instruction reference; not run on a GPU)"


@pytest.fixture(autouse=True)
def _a_toolchain() -> None:
    needed(hip_toolchain("gfx942"))


def put(
    toy: Toy,
    after: str,
    stated: str,
    check: str = CHECK,
    *,
    readme: str = "toy\n",
    both: bool = False,
) -> None:
    """Put a patch of the kernel into the queue; compiled for both targets, or those emulated."""
    targets = [target for target in ("gfx942", "gfx1100") if both or target in stated]
    with_sources(toy, {"csrc/sum.hip": WRONG, "README": readme})
    patch = toy.format_patch({"csrc/sum.hip": after})
    toy.put_patch("wave", patch=patch, files=("csrc/sum.hip",),
                  checks=COMPILE.replace('["gfx942", "gfx1100"]', str(targets)) + stated,
                  check_files={"test_wave_sum.py": check})  # fmt: skip
    toy.put_queue(["wave"])


def masked(tree: str) -> str:
    """Return a Triton kernel's file that reads no further than a row."""
    return tree.replace("+ column)", "+ column, mask=column < n, other=0)")


def put_triton(
    toy: Toy, stated: str = TRITON_STATED, check: str = TRITON_CHECK, tree: str = TRITON
) -> None:
    """Put a patch of a Triton kernel into the queue."""
    with_sources(toy, {"src/toy/kernel.py": tree})
    patch = toy.format_patch({"src/toy/kernel.py": masked(tree)})
    toy.put_patch("rows", patch=patch, files=("src/toy/kernel.py",), checks=stated,
                  check_files={"test_row_sums.py": check})  # fmt: skip
    toy.put_queue(["rows"])


def put_tree(toy: Toy, *names: str, targets: str = "", tree: str = TREE) -> None:
    """Put a patch into the queue whose checks launch the kernels of the tree."""
    with_sources(toy, {"src/toy/kernel.py": tree, "tests/test_kernel.py": OWN_TEST})
    patch = toy.format_patch({"src/toy/kernel.py": masked(tree)})
    stated = ""
    for name in names:
        on, reason = TREE_STATED[name]
        red, green = f"expect = 'fail-to-pass'\nreason = '{reason}'", "expect = 'pass-to-pass'"
        stated += (
            f'[[emulated]]\nname = "{name}"\nfile = "test_{name}.py"\n'
            f"targets = {targets or [*on]}\n{red if reason else green}\n"
        )
    toy.put_patch("rows", patch=patch, files=("src/toy/kernel.py",), checks=stated,
                  check_files={f"test_{name}.py": TREE_CHECKS[f"test_{name}.py"]
                               for name in names})  # fmt: skip
    toy.put_queue(["rows"])


def emulated(ran: Ran) -> dict[str, StageResult]:
    """Return the outcomes of `emulate` by target."""
    return {stage.target: stage for stage in ran.report().stages if stage.stage == "emulate"}


@pytest.mark.parametrize(
    ("stated", "check"),
    [(WIDE, PLAIN_CHECK), pytest.param(WIDE + NARROW, CHECK, marks=pytest.mark.slow)],
    ids=["one", "two"],
)
def test_a_kernel_goes_from_red_to_green_on_a_target_of_its_own(
    toy: Toy, program: Program, stated: str, check: str
) -> None:
    put(toy, RIGHT, stated, check)

    ran = program.ok("verify", "wave", "--json", "--require", "emulated:gfx942")
    report, results = ran.report(), emulated(ran)
    assert report.verdict == "proved"
    assert report.open == ()
    assert list(results) == ["emulated:gfx942", "emulated:gfx1100"][: stated.count("name")]
    wide, *others = results.values()
    assert wide.reason == (
        f"wide: 1 test: fail on the base as stated, pass on the patched tree {SAYS}"
    )
    for narrow in others:
        assert narrow.reason == f"narrow: 1 test: pass on the base and on the patched tree {SAYS}"


HELD = CHECK.replace("torch.zeros(64 // lanes)", "x.reshape(-1, lanes).sum(1)")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("after", "check", "outcome", "said"),
    [
        (IDLE, HELD, "unavailable", "no kernel wrote to a tensor"),
        (ADDED, CHECK.replace('kernels["sum"]', 'kernels["add" if len(kernels) > 1 else "sum"]'),
         "passed", "each kernel of the base is as before"),
        (RENAMED, CHECK.replace('kernels["sum"]', "next(iter(kernels.values()))").replace(
            "assert torch", 'assert "_Z3addIfEvPKT_PS0_" in kernels or torch'),
         "unavailable", "the kernels are the base's, instruction by instruction"),
    ],
)  # fmt: skip
def test_what_a_kernel_does_not_show(
    toy: Toy, program: Program, *, after: str, check: str, outcome: str, said: str
) -> None:
    put(toy, after, WIDE, check)
    ran = program("verify", "wave", "--json")
    (wide,) = emulated(ran).values()
    assert (wide.outcome, said in wide.reason) == (outcome, True), wide.reason
    assert ran.report().verdict == "incomplete"


@pytest.mark.slow
def test_the_hardware_itself_is_not_shown_by_it(toy: Toy, program: Program) -> None:
    put(toy, RIGHT, WIDE)
    assert program("verify", "wave", "--require", "gfx942").code == 1


def test_the_page_has_the_example() -> None:
    page = (ROOT / "docs/emulate.md").read_text(encoding="utf-8")
    assert CHECK.partition("\n\n")[2] in page
    assert COMPILE + WIDE in page


@pytest.mark.slow
def test_what_is_not_modelled_stays_open_also_where_a_check_goes_on(
    toy: Toy, program: Program
) -> None:
    caught = CHECK.replace(
        "    emulate.launch(", "    with contextlib.suppress(emulate.UnmodelledError):\n        "
        "emulate.launch("
    ).replace("from coll", "import contextlib\nfrom coll")  # fmt: skip
    caught = caught[: caught.index("    assert torch")]
    put(toy, UNMODELLED, NARROW, caught)

    ran = program("verify", "wave", "--json", "--require", "emulated:gfx1100")

    assert ran.code == 1
    report, (result,) = ran.report(), emulated(ran).values()
    assert result.outcome == "unavailable"
    assert report.open == ("emulated:gfx1100",)
    assert "on the patched tree it is not known: test_wave_sum.py::test_all" in result.reason
    assert "sum.hip:9: _Z3sumIfEvPKT_PS0_+0x" in result.reason
    assert ": s_trap" in result.reason


@pytest.mark.slow
@pytest.mark.parametrize(
    ("after", "stated", "reason"),
    [
        (RIGHT, NARROW.replace("gfx1100", "gfx942"), "fails on the base: "),
        (WRONG + "\n", WIDE, "fails on the patched tree: "),
        (WRONG + "\n", NARROW.replace("gfx1100", "gfx942"), "fails on the base: "),
        (RIGHT.replace("total;", "totl;"), NARROW, "use of undeclared identifier 'totl'"),
        (RIGHT, WIDE.replace("496", "497"), "for another reason than stated: "),
    ],
)  # fmt: skip
def test_a_claim_that_is_false_is_refuted(
    toy: Toy, program: Program, after: str, stated: str, reason: str
) -> None:
    put(toy, after, stated)
    ran = program("verify", "wave", "--json")
    (result,) = emulated(ran).values()
    assert (ran.code, result.outcome) == (1, "failed")
    assert reason in result.reason


@pytest.mark.slow
def test_its_record_holds_where_the_code_is_the_same(toy: Toy, program: Program) -> None:
    put(toy, RIGHT, WIDE, both=True)
    program.ok("verify", "wave")
    put(toy, RIGHT, WIDE, readme="Another release.\n", both=True)
    ran = program("verify", "wave", "--json")
    assert emulated(ran)["emulated:gfx942"].cached, "the code is the same"
    assert ran.code == 0

    assert "fresh" in program("evidence", "check").out
    assert "emulated:gfx942" in program("status", "wave").out
    describe(toy)
    stated = toy.queue / "patches/wave/patch.toml"
    own = '\n[contribution]\ntests = { wide = "tests/test_sum.py::test_wide" }\n'
    stated.write_text(stated.read_text() + own)
    text = program("body", "wave").out
    assert (
        "| `test_wide` | gfx942 (emulated: not run on a GPU) | fails: `AssertionError: 496" in text
    )
    assert "**Not run** on gfx942, gfx1100: no AMD GPU was used." in text
    (patch,) = json.loads(program("evidence", "report", "pages", "--json").out)["patches"]
    cells = {cell["title"]: cell["lines"] for cell in patch["cells"]}
    assert [line["text"] for line in cells["gfx942"]] == ["not run", "compiled"]
    assert [line["text"] for line in cells["gfx942, emulated"]] == ["emulated"]


@pytest.mark.slow
def test_one_check_runs_alone(toy: Toy, program: Program) -> None:
    put(toy, RIGHT, WIDE + NARROW)
    ran = program.ok("check", "wave", "--check", "wide", "--check", "gfx942")
    assert "gfx1201" not in ran.out
    assert "wide for emulated:gfx942 on the base: 1 failed: as expected" in ran.out
    assert "wide for emulated:gfx942 on the patched tree: 1 passed: as expected" in ran.out


@pytest.mark.parametrize(("options", "shown"), [((), 0), (("--launch",), 2)])
def test_launches_are_shown_where_that_is_asked_for(
    toy: Toy, program: Program, options: tuple[str, ...], shown: int
) -> None:
    put_tree(toy, "check")
    ran = program.ok("check", "rows", *options)
    assert ran.out.count("launched; as [[compile]] states it") == shown
    stated = """function = "sums_kernel"
signature = { out_ptr = "*fp32:16", in_ptr = "*fp32:16", n = "i32", BLOCK = "constexpr" }
constants = { BLOCK = 256 }
num_warps = 4
num_stages = 2
"""
    assert (stated in ran.out) is bool(shown)


def test_without_the_extra_it_says_what_installs_it(
    toy: Toy, program: Program, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(toy, RIGHT, WIDE)
    monkeypatch.setattr("contribbot.machine.doctor._EMULATOR", ("no_such_module",))
    ran = program("verify", "wave", "--json", "--require", "emulated:gfx942")
    (result,) = emulated(ran).values()
    assert result.outcome == "unavailable"
    assert result.reason.endswith(install("emulate"))
    assert ran.code == 1


@pytest.mark.parametrize(
    ("stated", "said"),
    [
        (WIDE.replace('compile = "sum"', 'compile = "other"'), "there is no such [[compile]]"),
        (WIDE.replace('["gfx942"]', '["gfx950"]'), "gfx950 is not among the targets of sum"),
        (WIDE.replace('["gfx942"]', '["gfx1030"]'), "gfx1030 is not emulated; gfx90a, "),
        (
            WIDE.replace('compile = "sum"\ntargets = ["gfx942"]', 'targets = ["gfx1030"]'),
            "gfx1030 is not emulated; gfx90a, ",
        ),
        (WIDE + WIDE, "emulated: wide is there twice"),
    ],
)
def test_what_is_stated_wrongly_is_said_in_one_line(
    toy: Toy, program: Program, stated: str, said: str
) -> None:
    put(toy, RIGHT, stated)
    ran = program("verify", "wave")
    assert ran.code == 2
    assert said in ran.err


@pytest.mark.slow
def test_numbers_are_judged_by_the_error_that_the_same_precision_makes(
    toy: Toy, program: Program
) -> None:
    red = WIDE.replace("^AssertionError: 496 of gfx942", "sum: .* times")
    put(toy, RIGHT, red + LIMITS, NUMERICS)
    ran = program("verify", "wave", "--json")
    (result,) = emulated(ran).values()
    assert ran.code == 0, result.reason
    assert result.reason.startswith("wide: 1 cell: patched error at most ")
    assert result.reason.endswith(SAYS)
    assert program("evidence", "check").out.startswith("fresh")


@pytest.mark.parametrize(
    ("error", "why"),
    [
        (MachineError("no compiler"), "check"),
        (UnmodelledError("v_sin_f32"), "unmodelled"),
        (NoKernelError("no kernel sum"), "check"),
        (UsageError("does not compile: sum"), None),
    ],
)
def test_what_a_machine_lacks_in_a_check_shows_nothing(error: Exception, why: str | None) -> None:
    assert why_broken(error, "/checks", ["/tree"]) == why


@pytest.mark.slow
def test_a_triton_kernel_goes_from_red_to_green(toy: Toy, program: Program) -> None:
    put_triton(toy)

    ran = program.ok("verify", "rows", "--json", "--require", "emulated:gfx942", "--require",
                  "emulated:gfx1201")  # fmt: skip
    assert ran.report().verdict == "proved"
    results = emulated(ran)
    assert list(results) == ["emulated:gfx942", "emulated:gfx1201"]
    for result in results.values():
        assert result.reason == (
            f"sums: 1 test: fail on the base as stated, pass on the patched tree {SAYS}"
        )


def state_triton(toy: Toy, *versions: str) -> None:
    """State the releases of Triton that the pin ships."""
    path = toy.queue / "patches/queue.toml"
    for version in versions:
        stated = f'triton = "{version}"\nsource = "Dockerfile"\ndate = "2026-11-29"'
        path.write_text(f"{path.read_text()}\n[[pins.toolchains]]\n{stated}\n")


@pytest.mark.slow
def test_kernels_are_compiled_by_the_release_of_triton_that_the_pin_states(
    toy: Toy, tmp_path: Path
) -> None:
    own = "\n\nassert triton.__version__ == '3.8.0', triton.__version__\n"
    # pip asks rustup's rustc for its version, which leaves a folder.
    rustup = {"RUSTUP_HOME": str(tmp_path / "rustup")}
    program = Program(toy.queue, {"CONTRIBBOT_CACHE": str(REAL_CACHE), **rustup})
    put_triton(toy, tree=TRITON + own)
    state_triton(toy, "3.8.0", "3.7.0")
    ran = program("verify", "rows", "--json")
    assert (ran.code, ran.report().verdict) == (0, "proved"), ran.err
    made = {stage.target: stage.details for stage in ran.report().stages}
    assert dig(made["gfx942"], "toolchain", "name") == "triton 3.8.0"
    assert dig(made["emulated:gfx942"], "code", "toolchain", "name") == "triton 3.8.0"

    put_tree(toy, "check", targets='["gfx942"]', tree=TREE + own)
    state_triton(toy, "3.8.0")
    report = program("verify", "rows", "--json").report()
    assert report.verdict == "proved", report.stages[-1].reason
    assert dig(report.stages[-1].details, "triton") == "triton 3.8.0"


def test_a_release_of_triton_that_the_pin_does_not_state(toy: Toy, program: Program) -> None:
    named = 'kind = "triton"\ntriton = "3.6.0"'
    put_triton(toy, TRITON_STATED.replace('kind = "triton"', named))
    state_triton(toy, "3.8.0", "3.7.1")
    ran = program("queue", "list")
    assert ran.code == 2
    assert "patch.toml: triton: toy v1.0 does not state 3.6.0" in ran.err
    assert "one of 3.8.0, 3.7.1" in ran.err


@pytest.mark.slow
@pytest.mark.parametrize(
    ("where", "wrong", "outcome", "said"),
    [
        ("stated", (', n = "i32"', ""), "failed",
         "UsageError: does not compile: TypeError: row_sums: the signature has no type for n"),
        ("check", ('"row_sums"', '"sums"'), "unavailable", "no kernel sums: there is row_sums"),
        ("tree", ("import triton", NO_AMD), "unavailable", "has no back end for AMD"),
    ],
)  # fmt: skip
def test_what_does_not_fit_a_triton_kernel_is_said(
    toy: Toy, program: Program, *, where: str, wrong: tuple[str, str], outcome: str, said: str
) -> None:
    texts = {"stated": TRITON_STATED, "check": TRITON_CHECK, "tree": TRITON}
    texts[where] = texts[where].replace(*wrong, 1)
    texts["stated"] = texts["stated"].replace(', "gfx1201"', "")
    put_triton(toy, **texts)
    (result,) = emulated(program("verify", "rows", "--json")).values()
    assert result.outcome == outcome
    assert said in result.reason


@pytest.fixture
def hide_triton(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[], None]]:
    """Give a function that hides triton, also from the search for compilers."""

    def hide() -> None:
        # A module that is None there cannot be imported, as importlib's documentation has it.
        monkeypatch.setitem(sys.modules, "triton", None)
        search.cache_clear()

    yield hide
    search.cache_clear()


def test_without_triton_its_kernels_stay_open(
    toy: Toy, program: Program, hide_triton: Callable[[], None]
) -> None:
    put_triton(toy)
    hide_triton()
    ran = program("verify", "rows", "--json")
    for result in emulated(ran).values():
        assert result.outcome == "unavailable"
        # Triton also brings HIP's headers, which pip's clang needs.
        assert re.search("triton.*: python -m pip install", result.reason)
    assert ran.report().verdict == "incomplete"


@pytest.mark.slow
def test_the_trees_own_launches_go_from_red_to_green(toy: Toy, program: Program) -> None:
    put_tree(toy, "check", "own")

    ran = program("verify", "rows", "--json", "--require", "emulated:gfx942", "--require",
                  "emulated:gfx1201")  # fmt: skip

    report = ran.report()
    results = [stage for stage in report.stages if stage.stage == "emulate"]
    assert [result.reason for result in results] == [
        f"{name}: {count}: fail on the base as stated, pass on the patched tree; "
        f"red again without the change {SAYS}"
        for name, count in (("check", "1 test"), ("own", "2 tests"), ("own", "2 tests"))
    ]
    assert (ran.code, report.verdict) == (0, "proved")
    logs = [path.read_text() for path in (toy.queue / ".contribbot/logs").iterdir()]
    assert not any("not forked" in log for log in logs)

    again = program("verify", "rows", "--json").report()
    assert all(stage.cached for stage in again.stages if stage.stage == "emulate")
    assert program("evidence", "check").out.startswith("fresh")
    alone = program("check", "rows", "--check", "check")
    assert (alone.code, alone.out.count("as expected")) == (0, 2)
    assert "check for emulated:gfx942 on the base: 1 failed: as expected" in alone.out


@pytest.mark.slow
def test_what_a_launch_of_the_tree_does_not_show(toy: Toy, program: Program) -> None:
    put_tree(toy, "no_launch", "unmodelled", "other", "kernels", "idle")

    ran = program("verify", "rows", "--json")

    results = {stage.label: stage for stage in ran.report().stages if stage.stage == "emulate"}
    unmodelled = r"it is not known: test_unmodelled.py::test_goes_on: .*kernel\.py:16: .*s_trap"
    for name, outcome, said in (
        ("no_launch", "unavailable", "launched no Triton kernel on the emulated GPU"),
        ("unmodelled", "unavailable", unmodelled),
        ("other", "passed", "1 test: fail on the base as stated"),
        ("idle", "unavailable", "no kernel wrote to a tensor, so that what is compared was there"),
        ("kernels", "unavailable", "patch.toml names no `compile` for this check"),
    ):
        assert results[name].outcome == outcome, results[name].reason
        assert re.search(said, results[name].reason), results[name].reason
    assert str(dig(results["unmodelled"].details, "patched")).count("'kind': 'unmodelled'") == 2
    # It launched another kernel than the patched one.
    assert dig(results["other"].details, "proof") is False
    assert ran.report().verdict == "incomplete"


@pytest.mark.parametrize(
    ("module", "said"),
    [
        pytest.param(
            "no_such_module",
            r"no_such_module, which emulating needs, .*'\.\[emulate\]'",
            marks=pytest.mark.slow,
        ),
        ("", r"triton, which brings HIP's headers: .*'\.\[emulate\]'"),
    ],
)
def test_without_what_it_takes_the_trees_launches_stay_open(
    toy: Toy, program: Program, monkeypatch: pytest.MonkeyPatch,
    hide_triton: Callable[[], None], *, module: str, said: str,
) -> None:  # fmt: skip
    put_tree(toy, "check")
    if module:
        monkeypatch.setattr("contribbot.machine.doctor._EMULATOR", (module,))
    else:
        hide_triton()
    ran = program("verify", "rows", "--json", "--require", "emulated:gfx942")
    (result,) = emulated(ran).values()
    assert (ran.code, result.outcome) == (1, "unavailable")
    assert re.search(said, result.reason), result.reason
    assert re.search(said, " ".join(program("doctor").out.split()))


@pytest.mark.slow
def test_a_release_is_asked_what_its_own_launches_do(toy: Toy) -> None:
    put_tree(toy, "check")
    broken = told(toy, release(toy, {"README": "Another release.\n"}), name="rows")
    fixed = told(toy, release(toy, {"src/toy/kernel.py": masked(TREE)}, "v3.0"), name="rows")
    name = "emulated check gfx942"
    assert (broken.verdict, says(broken)) == (Need.NEEDED, {name: "fails"})
    assert broken.entries[0].reason.startswith("1 of 1 test fail as stated: test_check.py::")
    assert (fixed.verdict, says(fixed)) == (Need.SUPERSEDED, {name: "passes"})
