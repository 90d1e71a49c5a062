"""Judging tensors: what passes, what fails with which words, and what cannot judge at all."""

from __future__ import annotations

import contextlib
import functools
import importlib
import runpy
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import ModuleType

import pytest
import torch
from torch import Tensor

from contribbot.model.checks import LIMITS_VARIABLE
from contribbot.model.record import CellRecord, OutputRecord
from contribbot.numerics.compare import CannotJudgeError, Limits, compare, compare_exact, digest
from contribbot.numerics.grid import LAYOUTS, Cell, Draw, Findings, Grid, lay_out
from contribbot.numerics.tree_watch import TreeWatch

LIMITS = Limits(fudge=2.0, floor=1e-6)
CPU = torch.device("cpu")
FLOATS = [torch.float16, torch.bfloat16, torch.float32]
EIGHT_BITS = [torch.float8_e4m3fn, torch.float8_e5m2, torch.float8_e4m3fnuz, torch.float8_e5m2fnuz]
INTEGERS = [torch.int8, torch.uint8, torch.int32, torch.int64, torch.bool]
NAN, INFINITY = float("nan"), float("inf")


def softmaxes(dtype: torch.dtype, scale: float = 1.0) -> tuple[Tensor, Tensor]:
    """Return a softmax in a dtype, and the same in float64."""
    x = (torch.randn(5, 7, 33, generator=torch.Generator().manual_seed(4)) * scale).to(dtype)
    return torch.softmax(x, dim=-1), torch.softmax(x.double(), dim=-1)


def judged(actual: object, usual: Tensor, exact: Tensor, limits: Limits = LIMITS) -> OutputRecord:
    return compare(actual, reference=exact, same_precision=usual, limits=limits, device=CPU)


def spoiled(tensor: Tensor, *places: tuple[int, ...], value: float) -> Tensor:
    other = tensor.clone()
    for place in places:
        other[place] = value
    return other


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_what_errs_like_the_reference_passes_and_no_more(
    dtype: torch.dtype,
) -> None:
    usual, exact = softmaxes(dtype)
    same = judged(usual.clone(), usual, exact)
    assert (same.complaint, same.mismatches, same.elements) == ("", 0, 5 * 7 * 33)
    assert same.ratio == pytest.approx(same.max_abs / max(same.reference_abs, 1e-6))
    assert same.max_abs == float((usual.double() - exact).abs().max()) == same.reference_abs
    wrong = judged(spoiled(usual, (3, 2, 17), value=float(usual[3, 2, 17]) + 0.5), usual, exact)
    assert (wrong.place, wrong.mismatches) == ((3, 2, 17), 1)
    assert wrong.max_abs == pytest.approx(0.5, rel=0.02)
    assert wrong.max_rel == pytest.approx(0.5 / float(exact[3, 2, 17]), rel=0.02)
    assert wrong.complaint.startswith("max abs error 0.5 at (3, 2, 17) is ")
    assert wrong.complaint.endswith("; allowed 2 times")


ZEROS, ONES, STEP = torch.zeros(4), torch.ones(4), torch.tensor([0.0, 0.25, 0.0, 0.0])
BY_FLOOR = "times the floor 1e-6 (same-precision reference: 0); allowed 2 times"


@pytest.mark.parametrize(
    ("actual", "usual", "exact", "place", "words"),
    [
        # The limit itself passes, and the next number does not.
        (spoiled(ZEROS, (2,), value=-0.5), STEP, ZEROS, (2,), ""),
        (spoiled(ZEROS, (2,), value=-0.5 - 2**-24), STEP, ZEROS, (2,), "max abs error 0.5 at (2,)"),
        # A floor stands in for a reference that happens to be exact.
        (ONES + 1.2e-6, ONES, ONES, (0,), ""),
        (ONES + 3e-6, ONES, ONES, (0,), BY_FLOOR),
        (torch.tensor(2.0), torch.tensor(2.0), torch.tensor(2.0), None, ""),
        (torch.tensor(3.0), torch.tensor(2.0), torch.tensor(2.0), (), "at () is"),
    ],
)
def test_what_is_allowed(
    actual: Tensor, usual: Tensor, exact: Tensor, place: tuple[int, ...] | None, words: str
) -> None:
    record = judged(actual.clone(), usual, exact.double())
    assert (record.place, bool(record.complaint)) == (place, bool(words))
    assert words in record.complaint


@pytest.mark.parametrize("value", [NAN, INFINITY, -INFINITY])
def test_what_is_not_finite_never_passes_and_never_judges(value: float) -> None:
    usual, exact = softmaxes(torch.float16)
    places = ((1, 2, 3), (4, 0, 0))
    wrong, wrong_exact = (spoiled(tensor, *places, value=value) for tensor in (usual, exact))
    record = judged(wrong, usual, exact, Limits(1e300, 1e300))
    assert record.complaint == "2 of 1,155 elements are NaN or infinite, first at (1, 2, 3)"
    assert (record.non_finite, record.mismatches, record.place) == (2, 2, (1, 2, 3))
    assert record.max_abs < 1e-3  # of the finite elements
    for actual, same, reference, which in (
        (usual.clone(), usual, wrong_exact, "float64 reference"),
        (usual.clone(), wrong, exact, "same-precision reference"),
        # Not even a result that is wrong in the same way.
        (wrong.clone(), wrong, wrong_exact, "float64 reference"),
    ):
        with pytest.raises(CannotJudgeError, match=rf"{which} is NaN or infinite at \(1, 2, 3\)"):
            judged(actual, same, reference)
    assert CannotJudgeError.contribbot_broken is True


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda x: x[:4], "shape (4, 7, 33) instead of (5, 7, 33)"),
        (lambda x: x.float(), "dtype float32 instead of float16"),
        (lambda x: x.to("meta"), "lies on meta, not on cpu"),
        (lambda x: x.to_sparse(), "is torch.sparse_coo, not a dense tensor"),
        (lambda _: None, "is NoneType, not a tensor"),
    ],
)
def test_what_is_no_such_tensor_fails(change: Callable[[Tensor], object], words: str) -> None:
    usual, exact = softmaxes(torch.float16)
    assert judged(change(usual.clone()), usual, exact).complaint == words
    assert compare_exact(change(usual.clone()), usual, device=CPU).complaint == words


#: A tensor that gives itself out for what it should be.
LIAR = type("Liar", (Tensor,), {
    "detach": lambda self: torch.ones(self.shape), "as_subclass": lambda self, _type: self,
    "__sub__": lambda self, _other: torch.zeros(self.shape),
    "__getitem__": lambda self, _key: torch.ones(self.shape),
})  # fmt: skip


def test_a_tensor_that_lies_is_found_out() -> None:
    wrong: Tensor = Tensor.as_subclass(ONES + 1, LIAR)
    assert compare_exact(wrong, ONES).mismatches == 4
    assert judged(wrong, ONES, ONES.double()).mismatches == 4


USUAL, EXACT = softmaxes(torch.float16)


@pytest.mark.parametrize(
    ("actual", "usual", "exact", "words"),
    [
        (USUAL.clone(), USUAL, EXACT.float(), "is float32; for float16 it must be float64"),
        (USUAL.clone(), USUAL, EXACT[1:],
         r"differ in shape: float64 \(4, 7, 33\), same precision \(5, 7, 33\)"),
        (USUAL.clone(), USUAL.to_sparse(), EXACT, "is torch.sparse_coo: make it dense first"),
        (USUAL.clone(), USUAL, EXACT.to("meta"), "the meta device"),
        (USUAL.clone(), USUAL.to(torch.complex64), EXACT, "for complex64 it must be complex128"),
        # A result cannot judge itself.
        (USUAL, USUAL, EXACT, "the same memory"),
        (USUAL[:], USUAL, EXACT, "the same memory"),
        (USUAL.view(5, 7, 33), USUAL, EXACT, "the same memory"),
        (EXACT.expand(5, 7, 33), EXACT.clone(), EXACT, "the same memory"),
    ],
)  # fmt: skip
def test_what_cannot_judge(actual: Tensor, usual: Tensor, exact: Tensor, words: str) -> None:
    with pytest.raises(CannotJudgeError, match=words):
        judged(actual, usual, exact)


def test_what_cannot_judge_bit_by_bit() -> None:
    packed = torch.zeros(4, dtype=torch.uint8).view(torch.float4_e2m1fn_x2)
    for actual, expected, words in (
        (USUAL[1:], USUAL[:-1], "the same memory"),
        (ONES, spoiled(ONES, (1,), value=NAN), "expected tensor is NaN or infinite"),
        (packed.clone(), packed, "view it as integers for judge_exact"),
    ):
        with pytest.raises(CannotJudgeError, match=words):
            compare_exact(actual, expected)
    assert compare_exact(packed.clone().view(torch.uint8), packed.view(torch.uint8)).complaint == ""


@pytest.mark.parametrize(
    ("floor", "wrong", "vacuous"),
    [
        (1e-6, 0.0, 0),
        (0.49, 0.0, 0),
        (0.5, 0.0, 1),  # twice that is allowed, and the largest value is 1
        (1e3, 0.0, 1),
        (1e3, NAN, 0),  # it fails
    ],
)
def test_what_zeros_would_pass_shows_nothing(floor: float, wrong: float, vacuous: int) -> None:
    assert judged(ONES + wrong, ONES, ONES.double(), Limits(2.0, floor)).vacuous == vacuous
    assert compare_exact(ONES.clone(), ONES).vacuous == 0
    empty = torch.empty(0, 7)
    record = judged(empty, empty.clone(), empty.double())
    assert (record.complaint, record.elements, record.place, record.max_rel) == ("", 0, None, None)
    assert record.vacuous == compare_exact(empty, empty.clone()).vacuous == 1


ROWS = torch.linspace(-1, 1, 64).repeat(4, 1) * torch.tensor([[1e4], [1.0], [1.0], [0.0]])
#: Plain code errs by 5 in the large row, so that 10 is allowed, and by 1e-6 in the others.
ROUGH = ROWS + torch.tensor([[5.0], [1e-6], [1e-6], [0.0]])
OFFSET = ROWS + torch.tensor([[0.0], [0.0], [50.0], [0.0]])
ROUGH_OFFSET, NO_ROW = ROUGH + OFFSET - ROWS, ROWS * torch.tensor([[1], [0], [1], [1]])
UNEVEN = torch.linspace(1, 2, 99)
CODES = torch.tensor([[100] * 8, [0, 1] * 4])


@pytest.mark.parametrize(
    ("actual", "usual", "exact", "floor", "words"),
    [
        (ROWS.clone(), ROUGH, ROWS, 1e-6, ""),
        (NO_ROW, ROUGH, ROWS, 1e-6, "64 elements from (1, 0) on err by"),
        # Memory that nobody wrote is no row of zeros.
        (spoiled(ROWS, (2,), value=1e-30), ROUGH, ROWS, 1e-6, "64 elements from (2, 0) on err by"),
        (spoiled(OFFSET, (2,), value=50.0), ROUGH_OFFSET, OFFSET, 1e-6, "from (2, 0) on err by"),
        # Plain code gets these rows no better.
        (spoiled(ROWS, (2,), value=0.0), spoiled(ROUGH, (2,), value=0.0), ROWS, 1e-6, ""),
        # Two values next to each other are no constant.
        (ONES.clone(), ONES + 2**-23, ONES + 2**-24, 1e-9, ""),
        (UNEVEN.clone(), UNEVEN, UNEVEN, 0.24, ""),
        (UNEVEN.clone(), UNEVEN, UNEVEN, 0.26, "a constant would pass"),
        (UNEVEN.clone(), UNEVEN, UNEVEN, 1.0, "zeros would pass"),
        (torch.zeros(99), UNEVEN, UNEVEN, 1.0, "zeros would pass"),
        (UNEVEN.clone(), UNEVEN.bfloat16().float(), UNEVEN, 1e-6, "no bits beyond bfloat16"),
        (UNEVEN.half(), UNEVEN.bfloat16().half(), UNEVEN, 1e-6, "no bits beyond bfloat16"),
        (UNEVEN.clone(), UNEVEN.bfloat16().float(), UNEVEN, 1e-2, ""),  # the floor decides
        # What a result holds itself is its precision.
        (UNEVEN.bfloat16().float(), UNEVEN.bfloat16().float(), UNEVEN, 1e-6, ""),
        # Whole numbers are as good as their neighbours.
        (CODES // 2 * 2, CODES, CODES, 1.0, ""),
    ],
)
def test_what_a_result_does_not_show(
    actual: Tensor, usual: Tensor, exact: Tensor, floor: float, words: str
) -> None:
    record = judged(actual, usual.clone(), exact.double(), Limits(2.0, floor))
    assert record.complaint == ""
    assert (record.vacuous, words in record.why_vacuous) == (int(bool(words)), True)
    assert bool(record.why_vacuous) is bool(words)


#: Activations: each row has one large element, always in the same column.
OUTLIER = torch.linspace(-1, 1, 16 * 24).reshape(16, 24).roll(5) + 0.01
OUTLIER[:, 7] *= 1e4
HALVED = OUTLIER.half().float()
FIRST = torch.arange(24) == 7


@pytest.mark.parametrize(
    ("actual", "exact", "words"),
    [
        (HALVED, OUTLIER, ""),
        (HALVED * FIRST, OUTLIER, "16 elements from (0, 0) on err by"),
        (torch.where(FIRST, HALVED, 1e-30), OUTLIER, "16 elements from (0, 0) on err by"),
        (torch.where(torch.arange(24) == 9, 0, HALVED), OUTLIER, "16 elements from (0, 9) on err"),
        # A constant is as little as zeros are.
        (torch.where(torch.arange(24) == 9, 50, HALVED + 50), OUTLIER + 50, "from (0, 9) on err"),
        # Columns of few rows, and the elements of one row, count together.
        ((HALVED * FIRST)[:2], OUTLIER[:2], "8 elements from (0, 0) on err by"),
        ((HALVED * FIRST)[0], OUTLIER[0], "8 elements from (8,) on err by"),
        ((HALVED * FIRST).view(4, 4, 24), OUTLIER.view(4, 4, 24), "16 elements from (0, 0, 0)"),
        # Numbers that a GPU flushes to zero are zeros.
        (torch.where(FIRST, HALVED, 0), torch.where(FIRST, OUTLIER, OUTLIER * 1e-39), ""),
    ],
)  # fmt: skip
def test_large_columns_hide_no_other(actual: Tensor, exact: Tensor, words: str) -> None:
    record = judged(actual.clone(), exact * (1 + 2**-11), exact.double())
    assert record.complaint == ""
    assert (bool(record.why_vacuous), words in record.why_vacuous) == (bool(words), True)


@pytest.mark.parametrize(
    ("expected", "words"),
    [
        (torch.zeros(4, 8), "zeros would pass"),
        (torch.zeros((), dtype=torch.int64), "zeros would pass"),
        (torch.full((4, 8), 3, dtype=torch.int8), "a constant would pass"),
        (torch.ones(3, 3, dtype=torch.bool), "a constant would pass"),
        (ONES, ""),  # few values may well be one
        (torch.ones((), dtype=torch.bool), ""),
        # What is expected says that zero is right in a row, or in a column.
        (spoiled(torch.zeros(4, 8), (2, 3), value=1.0), ""),
    ],
)
def test_an_exact_result_of_one_value_shows_nothing(expected: Tensor, words: str) -> None:
    record = compare_exact(expected.clone(), expected)
    assert (record.complaint, bool(record.why_vacuous)) == ("", bool(words))
    assert words in record.why_vacuous


@pytest.mark.parametrize(
    ("expected", "vacuous"), [((0.0, 1.0), 0), ((0.0, 0.0), 2), ((1.0, 2.0), 0)]
)
def test_zeros_of_a_seed_beside_values_of_others(expected: tuple[float, ...], vacuous: int) -> None:
    (cell,) = Grid({"dtype": [torch.float32]}).cells
    findings = Findings(cell)
    for seed, value in enumerate(expected):
        tensor = torch.full((4,), value)
        findings.outputs.append(compare_exact(tensor.clone(), tensor, name="y", seed=seed))
    (output,) = CellRecord.model_validate({**findings.record([0, 1]), "test": "t"}).outputs
    assert (output.vacuous, bool(output.why_vacuous)) == (vacuous, bool(vacuous))


def test_limits_beyond_all_numbers_and_references_of_zero_can_be_written_down() -> None:
    for limits in (Limits(1e300, 1e300), Limits(2.0, 1.7e308)):
        record = judged(USUAL.clone(), USUAL, EXACT, limits)
        assert record.allowed == sys.float_info.max
        assert record.largest == float(EXACT.max()) < 1
    zero = torch.zeros(3, 4)
    record = judged(spoiled(zero, (2, 1), value=0.1), zero, zero.double())
    assert (record.max_rel, record.mismatches, record.place) == (None, 1, (2, 1))
    half = spoiled(zero, (0, 0), value=2.0)
    near = spoiled(spoiled(zero, (0, 0), value=3.0), (2, 1), value=0.1)
    assert judged(near, half, half.double()).max_rel == pytest.approx(0.5)


@pytest.mark.parametrize("dtype", EIGHT_BITS, ids=str)
def test_eight_bit_floats(dtype: torch.dtype) -> None:
    exact = torch.linspace(-3, 3, 64, dtype=torch.float64).reshape(8, 8)
    usual = exact.to(dtype)
    assert judged(usual.clone(), usual, exact).complaint == ""
    wrong = usual.clone()
    wrong.view(torch.uint8)[5, 5] ^= 0x30  # other exponent bits
    assert judged(wrong, usual, exact).place == (5, 5)
    assert "1 of 64 elements differ, first at (5, 5)" in compare_exact(wrong, usual).complaint
    wrong.view(torch.uint8)[1, 1] = 0x80 if "fnuz" in str(dtype) else 0x7F  # NaN
    for record in (judged(wrong, usual, exact), compare_exact(wrong, usual)):
        assert record.complaint == "1 of 64 elements are NaN or infinite, first at (1, 1)"


@pytest.mark.parametrize("dtype", INTEGERS)
def test_integers(dtype: torch.dtype) -> None:
    usual = torch.arange(24).reshape(4, 6).to(dtype)
    wrong = spoiled(usual, (3, 0), value=0)
    for actual, place in ((usual.clone(), None), (wrong, (3, 0))):
        record = compare_exact(actual, usual)
        assert (record.mismatches, record.place) == (int(place is not None), place)
        assert judged(actual, usual, usual.double()).place == place
    # Float64 cannot tell these apart.
    large = torch.tensor([2**60, 2**60])
    assert compare_exact(large + torch.tensor([0, 1]), large).place == (1,)


@pytest.mark.parametrize("dtype", [torch.complex64, torch.complex128])
def test_complex_numbers(dtype: torch.dtype) -> None:
    generator = torch.Generator().manual_seed(2)
    exact = torch.randn(6, 6, generator=generator, dtype=torch.complex128)
    usual = exact.to(dtype)
    for view in (usual.clone(), usual.conj().conj_physical()):  # the second has its bit set
        assert judged(view, usual, exact).complaint == ""
        assert compare_exact(view, usual).complaint == ""
    wrong = usual.clone()
    wrong[2, 3] += 3j
    record = judged(wrong, usual, exact)
    assert record.place == (2, 3)
    assert record.max_abs == pytest.approx(3.0)
    assert compare_exact(wrong, usual).mismatches == 1
    torch.view_as_real(wrong)[0, 0, 1] = NAN
    assert judged(wrong, usual, exact).non_finite == 1


def test_exact_means_bits_whatever_the_strides() -> None:
    record = compare_exact(torch.tensor([-0.0, 1.0, 2.0]), torch.tensor([0.0, 1.0, 2.0]))
    assert record.complaint == "1 of 3 elements differ, first at (0,): -0.0 instead of 0.0"
    usual, exact = softmaxes(torch.float32)
    grad = usual.clone().requires_grad_() * 1.0
    assert judged(grad, usual.requires_grad_(), exact.requires_grad_()).complaint == ""
    turned = usual.detach().transpose(0, 2).contiguous().transpose(0, 2)
    assert not turned.is_contiguous()
    assert judged(turned, usual, exact).complaint == compare_exact(turned, usual).complaint == ""


def test_places_are_right_beyond_the_first_block(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("contribbot.numerics.compare.blocks.__defaults__", (10,))
    usual, exact = softmaxes(torch.float32)
    wrong = spoiled(spoiled(usual, (4, 6, 32), value=1), (2, 1, 20), value=-2)
    assert judged(wrong, usual, exact).place == compare_exact(wrong, usual).place == (2, 1, 20)
    wrong[3, 3, 3] = NAN
    assert judged(wrong, usual, exact).place == (3, 3, 3)
    exact[4, 4, 4] = INFINITY
    with pytest.raises(CannotJudgeError, match=r"\(4, 4, 4\)"):
        judged(wrong, usual, exact)


MEMORY = """\
import resource, torch
from contribbot.numerics.compare import compare, compare_exact
from contribbot.numerics import Limits

usual = torch.ones(1, 1).expand(8192, 8192)
actual = torch.ones(8192, 1).expand(8192, 8192)
exact = usual.double()[:1, :1].expand(8192, 8192)
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
seen = compare(actual, reference=exact, same_precision=usual, limits=Limits(2.0, 1e-6))
assert seen.complaint == compare_exact(actual, usual).complaint == "", seen
assert seen.elements == 2**26
# In float64 each of the three would be 512 MB.
assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 400 * 1024
"""
WITHOUT_TORCH = """\
import sys, contribbot.numerics as n, contribbot.verify.stages.numerics
n.CellRecord
assert 'torch' not in sys.modules
n.Grid
assert 'torch' in sys.modules
"""


@pytest.mark.parametrize(
    "code", [pytest.param(MEMORY, marks=pytest.mark.slow), WITHOUT_TORCH],
    ids=["little memory for a huge tensor", "records are read without torch"],
)  # fmt: skip
def test_a_process_of_its_own(code: str) -> None:
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", [*FLOATS, *EIGHT_BITS, torch.int8, torch.bool], ids=str)
def test_a_layout_keeps_the_values(layout: str, dtype: torch.dtype) -> None:
    for shape in ((6, 8), (5, 4, 8), (2, 3, 4, 8)):
        values = torch.randn(shape, generator=torch.Generator().manual_seed(1)).to(dtype)
        laid = lay_out(values, layout)
        expected = values[:1].expand(shape) if layout == "expanded" else values
        assert laid.dtype == dtype
        assert compare_exact(laid, expected.clone()).complaint == ""
        assert laid.data_ptr() != values.data_ptr()
        memory = torch.empty(0, dtype=dtype).set_(laid.untyped_storage())
        if dtype.is_floating_point and layout not in {"contiguous", "transposed", "expanded"}:
            # What lies beside a view spoils a result.
            assert int(memory.double().isnan().sum()) == memory.numel() - laid.numel() > 0


def test_layouts_are_what_they_are_called() -> None:
    values = torch.randn(16, 4, 8)
    assert {name: lay_out(values, name).stride() for name in LAYOUTS} == {
        "contiguous": (32, 8, 1), "packed": (96, 8, 1), "transposed": (32, 1, 4),
        "row-stride": (64, 16, 1), "strided": (64, 16, 2), "expanded": (0, 8, 1),
        "offset": (32, 8, 1), "misaligned": (32, 8, 1),
    }  # fmt: skip
    assert lay_out(torch.randn(7, 5), "packed").stride() == (15, 1)
    for dtype in (torch.float16, torch.float32, torch.int8):
        offset, off = (lay_out(values.to(dtype), name) for name in ("offset", "misaligned"))
        assert offset.storage_offset() * offset.element_size() == 64
        assert off.data_ptr() % 16 == off.element_size()
    with pytest.raises(ValueError, match="needs 2 dimensions, shape"):
        lay_out(torch.randn(3), "transposed")
    with pytest.raises(ValueError, match="no layout 'diagonal'; there are contiguous, packed"):
        lay_out(values, "diagonal")


def test_limits_come_from_the_variable_or_the_patch_beside_the_checks(tmp_path: Path) -> None:
    checks = tmp_path / "checks"
    checks.mkdir()
    file = checks / "test_it.py"
    with pytest.raises(CannotJudgeError, match=r"no fudge and floor for test_it.py: set CONTRIBB"):
        Limits.stated(file)
    entry = '[[numerics]]\nfile = "test_it.py"\nfudge = 3\nfloor = { float16 = 0.5 }\n'
    (tmp_path / "patch.toml").write_text(entry)
    assert Limits.stated(file) == Limits(3.0, {"float16": 0.5})
    with pytest.raises(CannotJudgeError, match="and none for bfloat16"):
        Limits.stated(file).floor_for("bfloat16")
    with pytest.raises(CannotJudgeError, match=r"no \[\[numerics\]\] with this file"):
        Limits.stated(checks / "test_other.py")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(LIMITS_VARIABLE, '{"fudge": 2.5, "floor": 1e-5}')
        assert Limits.stated(file) == Limits(2.5, 1e-5)
        assert Limits.stated(file).floor_for("anything") == 1e-5
        for text in ("{", "[]", '{"fudge": 0, "floor": 1}', '{"fudge": NaN, "floor": 1}'):
            patch.setenv(LIMITS_VARIABLE, text)
            with pytest.raises(CannotJudgeError, match="no fudge and floor"):
                Limits.stated(file)


def drawing(cell: Cell, seed: int = 0) -> Draw:
    return Draw(cell, seed, device=CPU, limits=lambda: LIMITS, findings=Findings(cell))


TREE = """\
import torch
SCALE = 1.0
def half(x):
    return torch.softmax(x, -1) / 2
class Layer(torch.nn.Module):
    def forward(self, x):
        return half(x)
def doubled(x):
    return x.mul_(2)
def as_list(x):
    return half(x).tolist()
def count():
    return 7
def counts():
    return [count(), 2]
SIDES = 12
TABLE = torch.linspace(0, 1, 15).view(3, 5)
"""


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    """A module of a tree under test, imported and reached through a link, as in an overlay."""
    (tmp_path / "tree").mkdir()
    (tmp_path / "tree/halves.py").write_text(TREE)
    (tmp_path / "tree/late.py").write_text("import halves\nhalves.half(halves.torch.ones(3))\n")
    (tmp_path / "path").symlink_to(tmp_path / "tree")
    monkeypatch.syspath_prepend(str(tmp_path / "path"))
    yield importlib.import_module("halves")
    for name in ("halves", "late"):
        sys.modules.pop(name, None)


Body = Callable[[Draw, Tensor, ModuleType], object]


def soft(x: Tensor) -> Tensor:
    return torch.softmax(x, dim=-1)


def exactly(draw: Draw, x: Tensor, actual: object, name: str = "y") -> None:
    draw.judge(name, actual, reference=soft(x.double()), same_precision=soft(x))


def run(
    body: Body, tree: ModuleType,
    imports: TreeWatch | None = None, names: Mapping[str, object] | None = None,
) -> Findings:  # fmt: skip
    """Run a test's body as a grid does, with a tree to watch."""
    (cell,) = Grid({"dtype": [torch.float32]}).cells
    findings, watch = Findings(cell), imports or TreeWatch([str(Path(str(tree.__file__)).parent)])
    draw = Draw(cell, 0, device=CPU, limits=lambda: LIMITS, findings=findings, watch=watch)
    watch.compare_names(names or {})
    with watch.testing():
        body(draw, draw.normal(3, 5), tree)
    return findings


def in_place(draw: Draw, x: Tensor, tree: ModuleType) -> None:
    exactly(draw, x, lambda: soft(tree.doubled(x)))
    exactly(draw, x, lambda: tree.half(x), "later")


@pytest.mark.parametrize(
    ("body", "words"),
    [
        pytest.param(body, words, id=name)
        for name, words, body in [
            ("reference", "y: halves.py: half ran in the test itself", lambda d, x, t: d.judge(
                "y", lambda: t.half(x), reference=t.half(x.double()), same_precision=soft(x))),
            ("yardstick", "halves.py: half ran", lambda d, x, t: d.judge(
                "y", lambda: t.half(x), reference=soft(x.double()), same_precision=t.half(x))),
            ("expected", "halves.py: half ran", lambda d, x, t: d.judge_exact(
                "y", lambda: t.half(x), t.half(x.clone()))),
            ("of a layer", "halves.py: Layer.forward ran", lambda d, x, t: d.judge(
                "y", lambda: t.half(x), reference=t.Layer()(x.double()), same_precision=soft(x))),
            ("through torch", "halves.py: half ran", lambda d, x, t: d.judge(
                "y", lambda: t.half(x), reference=torch.func.vmap(t.half)(x.double()),
                same_precision=soft(x))),
            ("through numbers", "halves.py: as_list ran", lambda d, x, t: d.judge(
                "y", lambda: t.half(x), reference=torch.tensor(t.as_list(x)).double(),
                same_precision=soft(x))),
            ("result at once", r"draw.judge\('y', lambda: …\)", lambda d, x, t: exactly(
                d, x, t.half(x))),
            ("input written", "later: an input was written to", in_place),
            ("input written at once", "y: an input was written to", lambda d, x, _: exactly(
                d, x, x.mul_(2))),
            ("reference written", "y: what is judged wrote to its reference", lambda d, x, t:
                d.judge("y", lambda: t.doubled(x), reference=x.double(), same_precision=x)),
            ("result aliases", "the same memory", lambda d, x, _: d.judge_exact(
                "y", lambda: x, x.view(3, 5))),
            ("NaN", "reference is NaN", lambda d, x, t: d.judge(
                "y", lambda: t.half(x), reference=x.double().log(), same_precision=soft(x))),
        ]
    ],
)  # fmt: skip
def test_what_may_not_judge(body: Body, words: str, tree: ModuleType) -> None:
    with pytest.raises(CannotJudgeError, match=words):
        run(body, tree)
    assert sys.getprofile() is None


def twice(draw: Draw, x: Tensor, tree: ModuleType) -> None:
    layer = functools.cache(lambda: tree.Layer()(x.clone()))
    exactly(draw, x, lambda: layer() * 2)
    draw.judge_exact("half", layer, soft(x) / 2)


def afterwards(draw: Draw, x: Tensor, tree: ModuleType) -> None:
    exactly(draw, x, soft(x))
    assert tree.half(x).shape == x.shape


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(body, id=name)
        for name, body in [
            ("function", lambda d, x, t: exactly(d, x, lambda: t.half(x) * 2)),
            ("two results of a call", twice),
            ("no tree", lambda d, x, _: exactly(d, x, soft(x))),
            ("a constant", lambda d, x, t: exactly(d, x * t.SCALE, lambda: soft(x))),
            ("torch's own", lambda d, x, _: exactly(d, x, torch.ops.aten._softmax(x, -1, False))),  # noqa: FBT003
            ("an import", lambda d, x, _: exactly(
                d, x, soft(x), importlib.import_module("late").__name__)),
            ("own values", lambda d, x, t: exactly(d, x.mul_(3), lambda: t.half(x) * 2)),
            ("when all is judged", afterwards),
        ]
    ],
)  # fmt: skip
def test_what_may_judge(body: Body, tree: ModuleType) -> None:
    assert run(body, tree).complaint() == ""


def test_an_input_that_is_overwritten_is_named(tree: ModuleType) -> None:
    def body(draw: Draw, x: Tensor, _: ModuleType) -> None:
        scale = draw.normal(4)
        exactly(draw, x, lambda: soft(x) * scale.mul_(0).add_(1)[0])

    (found,) = run(body, tree).digests
    assert found.written == ("input 2, float32 (4,)",)
    assert len(found.inputs.split()) == 2
    assert run(lambda d, x, t: exactly(d, x, lambda: t.half(x)), tree).digests[0].written == ()


@pytest.mark.parametrize(
    ("statement", "ran"),
    [
        ("REFERENCE = halves.half(torch.ones(3).double())", "halves.py: half gave"),
        ("REFERENCE = halves.Layer()(torch.ones(3))", "halves.py: Layer.forward gave"),
        ("REFERENCE = [halves.half(torch.ones(3))], 1", "halves.py: half gave"),
        ("REFERENCE = {'a': halves.half(torch.ones(3))}", "halves.py: half gave"),
        ("SCALE = halves.as_list(torch.ones(3))[0]", ""),
        ("LAYER = halves.Layer()", ""),
        ("import late", ""),
        ("TABLE = torch.softmax(torch.ones(3), dim=-1)", ""),
    ],
)
def test_tensors_of_the_tree_at_import(
    statement: str, ran: str, tree: ModuleType, tmp_path: Path
) -> None:
    (tmp_path / "check_it.py").write_text(f"import halves\nimport torch\n{statement}\n")
    watch = TreeWatch([str(Path(str(tree.__file__)).parent)])
    with watch.importing():
        runpy.run_path(str(tmp_path / "check_it.py"))
    assert (watch.gave[: len(ran)], bool(watch.gave)) == (ran, bool(ran))


@pytest.mark.parametrize(
    ("statement", "reference", "words"),
    [
        ("GIVEN = halves.as_list(torch.ones(2))[0]", [0.25] * 15, "halves.py: as_list gave a num"),
        ("GIVEN = int(halves.as_list(torch.ones(2))[0] * 4)", [1.0] * 15, ""),
        ("GIVEN = {'a': (halves.count(), 2)}", [7.0, 2.0, 7.0], ""),
        ("GIVEN = {'a': halves.counts()}", [7.0, 2.0, 7.0], "halves.py: counts gave a number"),
        ("GIVEN = halves.counts()", [7.0, 3.0], ""),  # its own, beside a number of the tree
        ("import halves", [1.0], ""),
        ("GIVEN = halves.SIDES", [12.0], "halves.py: SIDES is the same number"),
        ("GIVEN = 12", [13.0], ""),
        ("GIVEN = halves.TABLE", torch.linspace(0, 1, 15).view(3, 5).tolist(), "halves.py: TABLE"),
    ],
)
def test_numbers_of_the_tree_at_import(
    statement: str, reference: list[float], words: str, tree: ModuleType, tmp_path: Path
) -> None:
    (tmp_path / "check_it.py").write_text(f"import halves\nimport torch\n{statement}\n")

    def body(draw: Draw, _x: Tensor, _tree: ModuleType) -> None:
        expected = torch.tensor(reference)
        draw.judge_exact("y", expected.clone, expected)

    given = TreeWatch([str(Path(str(tree.__file__)).parent)])
    with given.importing():
        names = runpy.run_path(str(tmp_path / "check_it.py"))
    with pytest.raises(CannotJudgeError, match=words) if words else contextlib.nullcontext():
        run(body, tree, given, names)


def test_what_judges_is_known_before_the_result_is() -> None:
    raised = dict[str, object]()

    def body(draw: Draw, x: Tensor, _: ModuleType) -> None:
        try:
            exactly(draw, x, lambda: 1 / 0)
        except ZeroDivisionError:
            raised.update(draw._findings.record([0]))

    whole = run(lambda d, x, _: exactly(d, x, soft(x)), pytest).record([0])
    run(body, pytest)
    assert raised["digests"] == whole["digests"] != []
    other = run(lambda d, x, _: exactly(d, x, soft(x.clone().mul_(2))), pytest).record([0])
    assert other["digests"] == whole["digests"]
    scaled = run(lambda d, x, _: exactly(d, x.mul_(2), lambda: soft(x)), pytest).record([0])
    assert scaled["digests"] != whole["digests"]


@pytest.mark.parametrize("dtype", [*FLOATS, *EIGHT_BITS, torch.bool, torch.complex64], ids=str)
def test_a_digest_is_of_values_and_not_of_their_layout(dtype: torch.dtype) -> None:
    values = torch.randn(4, 6, generator=torch.Generator().manual_seed(1)).to(dtype)
    digests = {digest(lay_out(values, name)) for name in LAYOUTS if name != "expanded"}
    assert len(digests) == 1
    other = values.clone()
    other.view(-1)[7] = 1 if not values.view(-1)[7] else 0
    assert {digest(other), digest(values.view(6, 4)), digest(values[:0])}.isdisjoint(digests)


def test_cells_are_named_by_their_values() -> None:
    grid = Grid(
        {
            "dtype": [torch.float16, torch.float8_e4m3fn],
            "shape": [(2, 3), ()],
            "s": [1, 200.0],
            "mask": {"none": None, "causal": object()},
        },
        where=lambda cell: cell.texts["mask"] == "none" or cell.values["s"] == 1,
    )
    assert len(grid.cells) == 12
    assert grid.cells[0].name == "float16 2x3 s=1 mask=none"
    assert grid.cells[0].texts == {"dtype": "float16", "shape": "2x3", "s": "1", "mask": "none"}
    assert grid.cells[-1].name == "float8_e4m3fn scalar s=200.0 mask=none"
    assert grid.seeds == (0, 1, 2)


def test_grids_that_show_nothing_or_mix_names_are_refused() -> None:
    for axes, more, words in (
        ({"s": [1]}, {"where": lambda _: False}, "a grid without a cell shows nothing"),
        ({"s": []}, {}, "a grid without a cell"),
        ({"s": [1]}, {"seeds": 0}, "a grid without a seed"),
        ({"s": [1]}, {"seeds": [4, 4]}, "two seeds are named '4'"),
        ({"s": [1, "1"]}, {}, "two cells are named 's=1'"),
    ):
        with pytest.raises(ValueError, match=words):
            Grid(axes, **more)
    with pytest.raises(TypeError, match="the first parameter must be `draw`"):
        Grid({"s": [1]}).each_cell(lambda _: None)


def test_values_depend_on_seed_and_cell_and_not_on_dtype_or_layout() -> None:
    grid = Grid(
        {"dtype": [torch.float32, torch.float16], "layout": ["contiguous", "packed"], "s": [1, 2]}
    )
    by_name = {
        cell.name: drawing(cell).normal(4, 6, layout=str(cell.values["layout"]))
        for cell in grid.cells
    }
    first = by_name["float32 contiguous s=1"]
    assert torch.equal(first, by_name["float32 packed s=1"])
    assert torch.equal(first.half(), by_name["float16 packed s=1"])
    assert not torch.equal(first, by_name["float32 contiguous s=2"])
    assert not torch.equal(first, drawing(grid.cells[0], seed=1).normal(4, 6))
    assert torch.equal(first, drawing(grid.cells[0]).normal(4, 6))
    # Not Python's hash, which differs from process to process.
    assert drawing(grid.cells[0])._generator.initial_seed() == 6342407940492316782


def test_what_can_be_drawn() -> None:
    (cell,) = Grid({"dtype": [torch.bfloat16], "n": [3]}).cells
    draw = drawing(cell)
    assert draw.axis("n", int) == 3
    even = draw.uniform(1000, low=-2, high=4)
    assert even.dtype == torch.bfloat16
    assert -2 <= float(even.min()) < -1.9
    assert 3.9 < float(even.max()) <= 4
    wide = draw.normal(4000, mean=3.0, std=2.0, dtype=torch.float64)
    assert (float(wide.mean()), float(wide.std())) == pytest.approx((3.0, 2.0), rel=0.05)
    whole = draw.integers(500, low=-3, high=5, dtype=torch.int8)
    assert set(whole.tolist()) == {*range(-3, 5)}
    own = draw.place(torch.arange(4.0).double(), layout="strided")
    assert (own.tolist(), own.stride(), own.dtype) == ([0, 1, 2, 3], (2,), torch.bfloat16)
    with pytest.raises(LookupError, match="no axis 'm'; there are dtype, n"):
        draw.axis("m", int)
    with pytest.raises(TypeError, match="axis n: 3 is no str"):
        draw.axis("n", str)
