"""Two releases of Triton side by side: what they are asked as, brought from, and come to."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from pydantic import JsonValue

from contribbot.errors import ContribbotError, ExitCode, MachineError, UsageError
from contribbot.hardware.listing import KernelListing, Numbers
from contribbot.hardware.toolchain import triton_version
from contribbot.hardware.triton import installed_release, two_releases
from contribbot.model.evidence import Outcome
from contribbot.verify.two_tritons import EntryPair, EntryRun, TritonComparison, steady
from tests.conftest import Program
from tests.test_emulated import BOUNDS, TREE, TREE_CHECKS, TRITON_STATED, put_triton
from tests.toy import Toy

OWN = f"""\
[[emulated]]
name = "sums"
file = "test_row_sums.py"
targets = ["gfx942"]
expect = "fail-to-pass"
reason = '{BOUNDS}'
"""


@pytest.mark.parametrize(
    "text", ["triton==3.6.0", "triton==3.6.0,3.6", "triton==1,2,3", "triton==3.6.0,x", "torch==1,2"]
)
def test_what_does_not_name_two_releases_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match=r"name two releases of triton"):
        two_releases(text)


def test_two_releases_are_read() -> None:
    assert two_releases("triton==3.6.0, 3.7.1") == ("3.6.0", "3.7.1")


@pytest.fixture(autouse=True)
def _rustup(tmp_path: Path) -> Iterator[None]:
    """Have pip ask rustc, as it does for its user agent, without a trace in HOME."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RUSTUP_HOME", str(tmp_path / "rustup"))
        yield


@pytest.fixture
def index(tmp_path: Path) -> Iterator[Path]:
    """Give a folder of wheels that pip takes for its index, and an empty cache."""
    folder = tmp_path / "wheels"
    folder.mkdir()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PIP_CONFIG_FILE", "/dev/null")
        patch.setenv("PIP_NO_INDEX", "1")
        patch.setenv("PIP_FIND_LINKS", str(folder))
        patch.setenv("CONTRIBBOT_CACHE", str(tmp_path / "cache"))
        yield folder


def wheel(folder: Path, version: str, tag: str = "py3-none-any") -> None:
    """Write a wheel of a triton that holds nothing but its version."""
    info = f"triton-{version}.dist-info"
    with zipfile.ZipFile(folder / f"triton-{version}-{tag}.whl", "w") as file:
        file.writestr("triton/__init__.py", f"__version__ = {version!r}\n")
        file.writestr(
            f"{info}/METADATA", f"Metadata-Version: 2.1\nName: triton\nVersion: {version}\n"
        )
        file.writestr(f"{info}/WHEEL", f"Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: {tag}\n")
        file.writestr(f"{info}/RECORD", "")


def test_a_release_is_brought_once_and_again_where_it_was_cut_off(index: Path) -> None:
    wheel(index, "3.6.0")

    folder = installed_release("3.6.0")
    assert "3.6.0" in (folder / "triton/__init__.py").read_text()
    (index / "triton-3.6.0-py3-none-any.whl").rename(index / "away")
    assert installed_release("3.6.0") == folder

    # As a killed run leaves it: files, and nothing that says that they are all.
    (folder.parent / "product.json").unlink()
    (folder / "triton/half.py").touch()
    with pytest.raises(MachineError):
        installed_release("3.6.0")
    assert not folder.exists()
    (index / "away").rename(index / "triton-3.6.0-py3-none-any.whl")
    assert not (installed_release("3.6.0") / "triton/half.py").exists()


@pytest.mark.parametrize(
    ("there", "said", "code"),
    [
        ([("3.6.0", "py3-none-any")], "no wheel of it for Python", ExitCode.USAGE),
        ([("9.9.9", "cp27-cp27mu-win32")], "cannot be reached, or has no wheel", ExitCode.MACHINE),
        ([], "cannot be reached, or has no wheel", ExitCode.MACHINE),
    ],
    ids=["another-version", "another-python", "nothing"],
)
def test_a_release_that_is_not_there_is_said_in_one_line(
    index: Path, there: list[tuple[str, str]], said: str, code: ExitCode
) -> None:
    for version, tag in there:
        wheel(index, version, tag)

    with pytest.raises(ContribbotError, match=said) as refused:
        installed_release("9.9.9")

    assert refused.value.exit_code is code
    assert "triton 9.9.9: " in refused.value.message
    assert refused.value.hint
    assert "\n" not in refused.value.message


def run_of(outcome: Outcome, vgprs: int = 0) -> EntryRun:
    """Return what an entry with one kernel came to."""
    numbers = Numbers(vgprs, 0, 10, 64, 0, 0, 64, None, 400, 100)
    kernel = KernelListing(symbol="sums", title="sums", numbers=numbers, mnemonics={})
    return EntryRun(patch="rows", stage="emulate", entry="sums", target="emulated:gfx942",
                    outcome=outcome, reason="", kernels=(kernel,) if vgprs else ())  # fmt: skip


@pytest.mark.parametrize(
    ("before", "now", "code"),
    [
        (Outcome.PASSED, Outcome.PASSED, ExitCode.OK),
        (Outcome.PASSED, Outcome.FAILED, ExitCode.NO),
        (Outcome.FAILED, Outcome.FAILED, ExitCode.OK),
        (Outcome.FAILED, Outcome.PASSED, ExitCode.OK),
        (Outcome.UNAVAILABLE, Outcome.PASSED, ExitCode.MACHINE),
        (Outcome.PASSED, Outcome.UNAVAILABLE, ExitCode.MACHINE),
    ],
)
def test_the_gate_says_no_where_what_held_does_not(
    before: Outcome, now: Outcome, code: ExitCode
) -> None:
    pair = EntryPair(before=run_of(before, 6), now=run_of(now, 7), other_bits={}, same_bits=1)
    found = TritonComparison(versions={}, entries=(pair,), left_out=())

    assert found.exit_code is code
    assert [
        (row.base.vgprs, row.patched.vgprs) for row in pair.rows if row.base and row.patched
    ] == [(6, 7)]


def test_bits_that_one_triton_does_not_repeat_are_no_difference_between_two() -> None:
    def rows(*bits: str) -> list[dict[str, JsonValue]]:
        return [{"test": f"test_{n}", "kernels": [{"bits": each}]} for n, each in enumerate(bits)]

    found = steady(rows("aa", "bb"), rows("aa", "cc"))

    assert [*found["tests"]] == rows("aa")
    assert found["unsteady"] == ("test_1",)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--with", "triton==3.6.0"], "name two releases"),
        (["--with", "triton==3.6.0,3.7.1", "--require", "cpu"], "leave out --require"),
        (["--with", "triton==3.6.0,3.7.1"], "Triton compiles nothing of it"),
    ],
    ids=["one", "with-require", "nothing-compiled"],
)
def test_what_cannot_be_compared_is_refused_before_all_work(
    toy: Toy, program: Program, options: list[str], said: str
) -> None:
    toy.put_patch("fix")
    toy.put_queue(["fix"])

    ran = program("verify", "fix", *options)

    assert ran.code == ExitCode.USAGE
    assert said in ran.err
    assert len(ran.err.splitlines()) == 1
    assert not (toy.queue / "evidence").exists()


@pytest.mark.slow  # brings two Tritons; of its parts the others are tested above
def test_a_patch_runs_under_two_real_tritons(toy: Toy, program: Program) -> None:
    put_triton(toy, OWN, TREE_CHECKS["test_check.py"], TREE)

    ran = program("verify", "rows", "--with", f"triton==3.6.0,{triton_version()}", "--json")

    assert ran.code == ExitCode.OK, ran.err
    found = json.loads(ran.out)
    assert found["versions"]["triton"] == ["3.6.0", triton_version()]
    (pair,) = found["entries"]
    assert [pair[side]["outcome"] for side in ("before", "now")] == ["passed", "passed"]
    for side in ("before", "now"):
        (kernel,) = pair[side]["kernels"]
        assert kernel["title"] == "sums_kernel"
        assert kernel["numbers"][0] > 0
    assert pair["same_bits"] == 1
    assert not (toy.queue / "evidence").exists()


@pytest.mark.slow  # the same
def test_an_older_triton_compiles_and_what_is_not_emulated_under_it_says_so(
    toy: Toy, program: Program
) -> None:
    own = OWN.replace('"sums"', '"own"').replace("row_sums", "own").replace(BOUNDS, "^x")
    put_triton(toy, TRITON_STATED.replace(', "gfx1201"', "") + own)
    checks = toy.queue / "patches/rows/checks"
    (checks / "test_own.py").write_text("def test_own():\n    assert False\n")

    ran = program("verify", "rows", "--with", f"triton==3.5.1,{triton_version()}", "--json")

    assert ran.code == ExitCode.MACHINE, ran.err
    found = {
        (each["now"]["stage"], each["now"]["entry"]): each
        for each in json.loads(ran.out)["entries"]
    }
    compiled, given, launched = (
        found[key] for key in (("compile", "sum"), ("emulate", "sums"), ("emulate", "own"))
    )
    for side in ("before", "now"):
        assert compiled[side]["outcome"] == given[side]["outcome"] == "passed"
        assert [each["title"] for each in compiled[side]["kernels"]] == ["row_sums"]
    assert launched["before"]["outcome"] == "unavailable"
    assert "is not emulated: triton 3.5.1 has no back end" in launched["before"]["reason"]
    assert "triton>=3.6" in launched["before"]["reason"]
