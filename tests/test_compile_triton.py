"""Triton kernels of a tree, compiled for AMD targets by the real triton."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import pytest

from contribbot.compile.toolchain import Toolchain, hip_toolchain, triton_version
from contribbot.compile.triton import bring_triton, triton_missing
from contribbot.errors import CommandError, MachineError
from contribbot.machine.doctor import DoctorReport
from tests.buildtoy import with_sources
from tests.conftest import Program, dig
from tests.hiptoy import compiled
from tests.toy import FIXED, Toy

pytestmark = pytest.mark.usefixtures("compile_cache")

KERNEL = """\
import triton
import triton.language as tl

from toy.area import square


@triton.jit
def helper(x):
    return {body}


@triton.jit
def _scale(out_ptr, in_ptr, n, BLOCK: tl.constexpr):
    index = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = index < n
    x = tl.load(in_ptr + index, mask=inside).to(tl.float32)
    tl.store(out_ptr + index, helper(x), mask=inside)
"""
LONG = KERNEL.format(body="tl.exp(x) / (1.0 + tl.exp(x))")
SHORT = KERNEL.format(body="x * 0.5")
WRONG = KERNEL.format(body="tl.no_such_function(x)")
STATED = """
[[compile]]
name = "scale"
kind = "triton"
source = "src/toy/kernel.py"
function = "_scale"
signature = {{ out_ptr = "*fp32:16", in_ptr = "*bf16:16", n = "i32", BLOCK = "constexpr" }}
constants = {{ BLOCK = 256 }}
targets = [{targets}]
expect = "{expect}"
{more}
"""


@pytest.fixture(autouse=True)
def _triton() -> None:
    if triton_missing():
        if os.environ.get("CI"):
            pytest.fail(f"CI installs it: {triton_missing()}")
        pytest.skip(str(triton_missing()))


def put(
    toy: Toy, before: str, after: str, *, expect: str = "pass-to-pass", more: str = "",
    targets: tuple[str, ...] = ("gfx942",),
) -> None:  # fmt: skip
    with_sources(toy, {"src/toy/kernel.py": before})
    patch = toy.format_patch({"src/toy/kernel.py": after, "src/toy/area.py": FIXED})
    stated = STATED.format(
        expect=expect, more=more, targets=", ".join(f'"{target}"' for target in targets)
    )
    files = ("src/toy/kernel.py", "src/toy/area.py")
    toy.put_patch("scale", patch=patch, files=files, checks=stated, check_files={})
    toy.put_queue(["scale"])


def test_a_triton_kernel_is_compiled_for_each_target(toy: Toy, program: Program) -> None:
    targets = ("gfx942", "gfx1100")
    more = f"fewer_instructions = {[*targets]}\nnum_stages = 1"
    put(toy, LONG, SHORT, targets=targets, more=more)

    ran = program("verify", "scale", "--json")

    # Nothing is stated to go from red to green.
    assert ran.code == 3, ran.err
    results = compiled(ran)
    assert set(results) == set(targets)
    for target, result in results.items():
        assert result.outcome == "passed", result.reason
        assert "compiles on both; 1 kernel, instructions " in result.reason
        row, columns = (dig(result.details, "table", part) for part in ("rows", "columns"))
        assert isinstance(columns, list)
        assert dig(row, 0, 0) == "_scale"
        lanes = 64 if target.startswith("gfx9") else 32
        assert dig(row, 0, 3, columns.index("wavefront")) == lanes
        assert str(dig(result.details, "toolchain", "name")).startswith("triton ")
        assert "num_warps=4, num_stages=1)" in result.model_dump_json()
        assert str(toy.root) not in result.model_dump_json()
    assert compiled(program("verify", "scale", "--json"))["gfx942"].cached


@pytest.mark.parametrize(
    ("before", "reason", "code", "outcome", "said"),
    [
        (WRONG, "no_such_function", 0, "passed", "fails on the base as stated, compiles"),
        # A module that is not here is not the stated reason.
        (f"import not_installed_anywhere as it\nit.N + 1\n{LONG}", "not_installed_anywhere",
         3, "unavailable", "cannot be imported here"),
        pytest.param(f"import os, signal\nos.kill(os.getpid(), signal.SIGKILL)\n{LONG}", "killed",
                     1, "failed", "killed by signal 9", marks=pytest.mark.slow),
    ],
    ids=["refused", "not imported", "killed"],
)  # fmt: skip
def test_how_a_kernel_fails_on_the_base(
    toy: Toy, program: Program, *, before: str, reason: str, code: int, outcome: str, said: str
) -> None:
    put(toy, before, SHORT, expect="fail-to-pass", more=f'reason = "{reason}"')
    ran = program("verify", "scale", "--json")
    result = compiled(ran)["gfx942"]
    assert (ran.code, result.outcome) == (code, outcome), ran.err
    assert said in result.reason
    if outcome == "failed":
        assert "on the base: triton" in result.reason
        assert not compiled(program("verify", "scale", "--json"))["gfx942"].cached
    if outcome == "passed":
        assert reason in str(dig(result.details, "base", "failed", 0, "message"))
        assert ran.report().verdict == "proved"


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (("", ', in_ptr = "*bf16:16", n = "i32", BLOCK = "constexpr"'),
         "_scale: the signature has no type for in_ptr, n; `contribbot check NAME` prints"),
        (("@triton.jit\ndef _scale", "def _scale"), "_scale is no function under triton.jit"),
    ],
)  # fmt: skip
def test_what_is_stated_of_a_kernel_that_does_not_fit_it_is_said(
    toy: Toy, program: Program, wrong: tuple[str, str], said: str
) -> None:
    before, after = wrong
    put(toy, SHORT, SHORT.replace(before, after) if before else SHORT)
    if not before:
        stated = toy.queue / "patches/scale/patch.toml"
        stated.write_text(stated.read_text().replace(after, ""))
    ran = program("verify", "scale", "--json")
    assert ran.code == 1, ran.err
    assert said in compiled(ran)["gfx942"].reason


METHOD = """\
import os

import absent_package
from toy.everything import registry
from toy.triton_utils import tl, triton

from .helpers import halve

registry.add(absent_package.NAME)
BLOCKS = int(os.environ["TOY_BLOCKS"])


class Scaler:
    @triton.jit
    def kernel(out_ptr, in_ptr, n, BLOCK: tl.constexpr):
        index = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        inside = index < n
        tl.store(out_ptr + index, halve(tl.load(in_ptr + index, mask=inside)), mask=inside)
"""


def test_a_method_is_compiled_without_its_files_imports(toy: Toy, program: Program) -> None:
    beside = {
        "src/toy/triton_utils.py": "raise RuntimeError('no driver is active')\n",
        "src/toy/everything.py": "import everything_of_it\n",
        "src/toy/helpers.py": "from toy.triton_utils import triton\n\n\n"
        "@triton.jit\ndef halve(x):\n    return x * 0.5\n",
    }
    with_sources(toy, beside)
    put(toy, METHOD, METHOD + "# more\n", more='env = { TOY_BLOCKS = "2" }')
    patch = toy.queue / "patches/scale/patch.toml"
    patch.write_text(patch.read_text().replace('"_scale"', '"Scaler.kernel"'))
    ran = program("verify", "scale", "--json")
    result = compiled(ran)["gfx942"]
    assert result.outcome == "passed", result.reason
    assert dig(result.details, "table", "rows", 0, 0) == "kernel"


BESIDE = """
[[emulated]]
name = "kernel"
file = "test_kernel.py"
compile = "scale"
targets = ["gfx942"]
expect = "pass-to-pass"

[[checks]]
name = "elsewhere"
file = "test_area.py"
expect = "pass-to-pass"
requires = ["cpu", "python:not_installed_anywhere"]
"""


def test_pip_brings_another_release_of_triton_once(monkeypatch: pytest.MonkeyPatch) -> None:
    orders: list[Sequence[str]] = []

    def pip(argv: Sequence[str], **_options: object) -> None:
        orders.append(argv)
        if argv[-1] == "triton==9.9":
            raise CommandError("pip", returncode=1, stderr="ERROR: no matching distribution\n")
        Path(argv[-2], "triton").mkdir(parents=True)
        Path(argv[-2], "triton/__init__.py").touch()

    monkeypatch.setattr("contribbot.compile.triton.process.run", pip)
    assert bring_triton("") == bring_triton(triton_version()) == ()
    [folder] = bring_triton("3.6.0")
    assert (folder / "triton/__init__.py").is_file()
    assert bring_triton("3.6.0") == (folder,)
    assert [argv[-1] for argv in orders] == ["triton==3.6.0"]
    with pytest.raises(MachineError, match=r"triton 9\.9: pip does not bring it: ERROR: no match"):
        bring_triton("9.9")


UNREAD = (
    "triton 3.9.0 writes code that clang {} cannot read back: python -m pip install 'triton<3.9'"
)


@pytest.mark.parametrize(
    ("place", "value", "said"),
    [
        ("contribbot.compile.triton.triton_version", lambda: "3.9.0", UNREAD),
        pytest.param("contribbot.machine.doctor._EMULATOR", ("not_installed_anywhere",),
                     "not_installed_anywhere, which emulating needs", marks=pytest.mark.slow),
        pytest.param("contribbot.compile.triton.triton_missing", bool, "", marks=pytest.mark.slow),
    ],
    ids=["triton is too new", "no emulator", "as it is"],
)  # fmt: skip
def test_doctor_says_what_verify_finds(
    toy: Toy, program: Program, monkeypatch: pytest.MonkeyPatch, *,
    place: str, value: object, said: str,
) -> None:  # fmt: skip
    using = hip_toolchain("gfx942")
    assert isinstance(using, Toolchain)
    put(toy, SHORT, LONG, more=BESIDE)
    checks = toy.queue / "patches/scale/checks"
    checks.mkdir(exist_ok=True)
    (checks / "test_area.py").write_text("def test_area(): ...\n")
    (checks / "test_kernel.py").write_text("def test_it(kernels):\n    assert kernels['_scale']\n")
    monkeypatch.setattr(place, value)

    report = DoctorReport.model_validate_json(program("doctor", "--json").out)
    stages = program("verify", "scale", "--json").report().stages

    (patch,) = report.patches or ()
    told = {(unit.stage, unit.target): "; ".join(map(str, unit.lacks))
            for unit in patch.units}  # fmt: skip
    found = {(stage.stage, stage.target): stage for stage in stages}
    for unit, lack in told.items():
        assert (found[unit].outcome == "unavailable") is bool(lack), (unit, lack, found[unit])
    every = "".join(told.values()), "".join(stage.reason for stage in stages)
    expected = said.format(using.name.removeprefix("clang "))
    assert all(expected in each for each in every), every
