"""Matrix instructions against sums over the layouts that AMD's documents give."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from contribbot import emulate
from contribbot.emulate.code_object import Kernel
from tests.conftest import CompileOnce
from tests.hiptoy import VECTORS
from tests.tools import kinds

F64 = NDArray[np.float64]
U32 = NDArray[np.uint32]


def torch_values(dtype: torch.dtype, width: int) -> F64:
    """Return the value of each code of a format."""
    codes = torch.arange(1 << width, dtype=torch.int32)
    bits = codes.to(torch.uint8 if width == 8 else torch.int16)
    return bits.view(dtype).double().numpy()


def signed(sizes: list[float]) -> F64:
    return np.array([*sizes, *(-size for size in sizes)])


def steps(first: float, digits: int, octaves: int) -> list[float]:
    """Return 0, and the sizes of a format without infinities: octaves of evenly spaced numbers."""
    sizes = [first * place for place in range(digits)]
    for octave in range(octaves):
        sizes += [first * 2**octave * (digits + place) for place in range(digits)]
    return sizes


#: The value of each code, by format. The Open Compute Project's OCP Microscaling Formats (MX)
#: Specification 1.0 says of E2M1 that it is 0, 0.5, 1, 1.5, 2, 3, 4, 6; E2M3's largest is 7.5 and
#: its least 0.125; E3M2's are 28 and 0.0625.
VALUES: dict[str, F64] = {
    "f16": torch_values(torch.float16, 16), "bf16": torch_values(torch.bfloat16, 16),
    "fp8": torch_values(torch.float8_e4m3fn, 8), "bf8": torch_values(torch.float8_e5m2, 8),
    "fp8 gfx942": torch_values(torch.float8_e4m3fnuz, 8),
    "bf8 gfx942": torch_values(torch.float8_e5m2fnuz, 8),
    "fp4": signed([0, 0.5, 1, 1.5, 2, 3, 4, 6]), "fp6": signed(steps(0.125, 8, 3)),
    "bf6": signed(steps(0.0625, 4, 7)), "i8": torch_values(torch.int8, 8),
    "u8": np.arange(256.0), "i4": np.array([*range(8), *range(-8, 0)], float),
    "u4": np.arange(16.0),
}  # fmt: skip
WIDTHS = {"f32": 32, "xf32": 32, "f64": 64, **{
    name: len(values).bit_length() - 1 for name, values in VALUES.items()
}}  # fmt: skip
#: The whole range of exponents would leave nothing but the largest products.
MODERATE = {"f16": 2.0**6, "bf16": 2.0**6, "bf8": 2.0**6, "bf8 gfx942": 2.0**6}


@dataclass(frozen=True)
class Case:
    """An instruction, and what its name does not say.

    Attributes:
        a: The format of A.
        b: The format of B.
        modifiers: What follows the operands.
        scales: The byte of each register of scales; none: it has none.
        half: Of which halves of its registers D is, on gfx1100.
        only: The one block of A that all take.
    """

    target: str
    name: str
    a: str
    b: str
    modifiers: str = ""
    scales: tuple[int, int] | None = None
    half: int = 0
    only: int | None = None

    def __str__(self) -> str:
        return f"{self.target} {self.name}{self.modifiers}"

    @property
    def lanes(self) -> int:
        return 64 if self.target.startswith("gfx9") else 32

    @property
    def shape(self) -> tuple[int, int, int]:
        """The rows of A, the products of a sum, and the blocks."""
        size, products = re.findall(r"\d+x(\d+)x(\d+)", self.name)[0]
        blocks = re.search(r"_(\d+)b_", self.name)
        # gfx90a's names leave out the blocks.
        counted = {("gfx90a", "4x4x4"): 16}.get((self.target, self.name.split("_")[-1][:5]), 1)
        return int(size), int(products), int(blocks[1]) if blocks else counted

    @property
    def d(self) -> str:
        return str(re.findall(r"_([fi]\d+|bf16)_", self.name)[0])

    @property
    def words(self) -> tuple[int, int, int]:
        """The registers of A, of B and of D."""
        size, products, blocks = self.shape
        rows = 16 if self.target.startswith("gfx11") else self.lanes
        inputs = [
            size * blocks * products * WIDTHS[kind] // (32 * rows) for kind in (self.a, self.b)
        ]
        width = (
            16 if self.target == "gfx1201" and self.d.endswith("f16") else max(32, int(self.d[-2:]))
        )
        return inputs[0], inputs[1], size * size * blocks * width // (32 * self.lanes)


MX = ("fp8", "bf8", "fp6", "bf6", "fp4")
#: CBSZ and BLGP of the formats.
CODES = {name: code for code, name in enumerate(MX)}


def cases() -> Iterator[Case]:
    yield from (
        Case("gfx942", "v_mfma_f32_16x16x8_xf32", "xf32", "xf32"),
        Case("gfx942", "v_mfma_f32_32x32x4_xf32", "xf32", "xf32"),
        Case("gfx942", "v_mfma_f64_16x16x4_f64", "f64", "f64"),
        Case("gfx90a", "v_mfma_f64_16x16x4f64", "f64", "f64"),
        Case("gfx942", "v_mfma_f32_16x16x4_f32", "f32", "f32"),
        Case("gfx942", "v_mfma_f32_16x16x32_fp8_bf8", "fp8 gfx942", "bf8 gfx942"),
        Case("gfx942", "v_mfma_f32_4x4x4_16b_f16", "f16", "f16"),
        Case("gfx942", "v_mfma_f32_4x4x4_16b_f16", "f16", "f16", " cbsz:4 abid:5", only=5),
        Case("gfx942", "v_mfma_f32_32x32x4_2b_bf16", "bf16", "bf16"),
        Case("gfx942", "v_mfma_f32_16x16x4_4b_f16", "f16", "f16"),
        Case("gfx942", "v_mfma_i32_16x16x4_4b_i8", "i8", "i8"),
        Case("gfx942", "v_mfma_i32_32x32x16_i8", "i8", "i8"),
        Case("gfx950", "v_mfma_i32_16x16x64_i8", "i8", "i8"),
        Case("gfx950", "v_mfma_f32_32x32x16_f16", "f16", "f16"),
        Case("gfx90a", "v_mfma_f32_32x32x8f16", "f16", "f16"),
        Case("gfx90a", "v_mfma_f32_16x16x16f16", "f16", "f16"),
        Case("gfx90a", "v_mfma_f32_32x32x8bf16_1k", "bf16", "bf16"),
        Case("gfx90a", "v_mfma_f32_16x16x16bf16_1k", "bf16", "bf16"),
        Case("gfx90a", "v_mfma_f32_32x32x4bf16", "bf16", "bf16"),
        Case("gfx90a", "v_mfma_f32_4x4x4f16", "f16", "f16", " cbsz:4 abid:2", only=2),
        Case("gfx90a", "v_mfma_f32_32x32x2f32", "f32", "f32"),
        Case("gfx90a", "v_mfma_i32_32x32x8i8", "i8", "i8"),
        Case("gfx90a", "v_mfma_i32_16x16x16i8", "i8", "i8"),
        Case("gfx1100", "v_wmma_f16_16x16x16_f16", "f16", "f16"),
        Case("gfx1100", "v_wmma_f16_16x16x16_f16", "f16", "f16", " op_sel:[0,0,1]", half=1),
        Case("gfx1100", "v_wmma_bf16_16x16x16_bf16", "bf16", "bf16"),
        Case("gfx1100", "v_wmma_i32_16x16x16_iu4", "i4", "u4", " neg_lo:[1,0,0]"),
        *(Case(target, f"v_wmma_f32_16x16x16_{kind}", kind, kind)
          for target in ("gfx1150", "gfx1151", "gfx1152") for kind in ("f16", "bf16")),
        Case("gfx1151", "v_wmma_bf16_16x16x16_bf16", "bf16", "bf16"),
        Case("gfx1151", "v_wmma_i32_16x16x16_iu8", "i8", "u8", " neg_lo:[1,0,0]"),
        Case("gfx1201", "v_wmma_f16_16x16x16_f16", "f16", "f16"),
        Case("gfx1201", "v_wmma_bf16_16x16x16_bf16", "bf16", "bf16"),
        Case("gfx1201", "v_wmma_f32_16x16x16_bf8_fp8", "bf8", "fp8"),
        Case("gfx1201", "v_wmma_i32_16x16x16_iu8", "u8", "i8", " neg_lo:[0,1,0]"),
        Case("gfx1201", "v_wmma_i32_16x16x16_iu4", "i4", "i4", " neg_lo:[1,1,0]"),
        Case("gfx1201", "v_wmma_i32_16x16x32_iu4", "u4", "u4"),
    )  # fmt: skip
    for place, (a, b) in enumerate((a, b) for a in MX for b in MX):
        formats = "".join(
            f" {field}:{CODES[kind]}" for field, kind in (("cbsz", a), ("blgp", b)) if CODES[kind]
        )
        size = ("16x16x128", "32x32x64")[place % 2]
        yield Case("gfx950", f"v_mfma_f32_{size}_f8f6f4", a, b, formats)
        first, second = place % 4, place // 4 % 4
        chosen = f" op_sel:[{first & 1},{second & 1},0] op_sel_hi:[{first >> 1},{second >> 1},0]"
        name = f"v_mfma_scale_f32_{size}_f8f6f4"
        yield Case("gfx950", name, a, b, chosen + formats, scales=(first, second))


CASES = list(cases())


def element(words: int, place: int) -> str:
    return f"[{place}]" if words > 1 else ""


def source(place: int, case: Case) -> str:
    """Return what executes an instruction once, D being what C was, where it is asked for."""
    counts, lanes = case.words, case.lanes
    loads = [
        f"{name}{element(words, i)} = from_{name}[{i * lanes} + threadIdx.x];"
        for name, words in zip("abd", counts, strict=True)
        for i in range(words)
    ]
    stores = [
        f"from_d[{i * lanes} + threadIdx.x] = d{element(counts[2], i)};" for i in range(counts[2])
    ]
    declared = [f"V{words} {name};" for name, words in zip("abd", counts, strict=True)]
    scales = ", %3, %4" if case.scales else ""
    text = f"{case.name} %0, %1, %2, %0{scales}{case.modifiers}"
    inputs = '"v"(a), "v"(b)' + (', "v"(s), "v"(t)' if case.scales else "")
    return "\n".join([
        f"if (which == {place}) {{", *declared, *loads,
        "const unsigned s = scales[threadIdx.x], t = scales[threadIdx.x + 64];",
        f'asm volatile("{text}" : "+v"(d) : {inputs});', *stores, "}",
    ])  # fmt: skip


@functools.cache
def all_of(target: str) -> str:
    """Return a kernel of all instructions of a target, which are then translated at once."""
    parts = [source(place, case) for place, case in enumerate(CASES) if case.target == target]
    start = f'{VECTORS}extern "C" __global__ void all(const unsigned* from_a, '
    start += "const unsigned* from_b, unsigned* from_d, const unsigned* scales, int which) {\n"
    return "\n".join([start, *parts, "}"])


def input_place(case: Case, width: int, row: int, k: int, block: int) -> list[tuple[int, int]]:
    """Return the lanes, and the bit among their registers, that hold an element of A or B."""
    size, products, blocks = case.shape
    if case.target.startswith("gfx11"):  # all products in a lane, and those once more
        return [(row, k * width), (row + 16, k * width)]
    groups = case.lanes // (size * blocks)
    each = products // groups
    if width == 8 and each > 16:
        group, local = k // 16 % groups, k // 16 // groups * 16 + k % 16
    else:
        group, local = k // each, k % each
    return [(row + size * (block + blocks * group), local * width)]


def output_place(case: Case, row: int, column: int, block: int) -> tuple[int, int]:
    """Return the lane, and the bit among its registers, that hold an element of D.

    Those of MFMA are the formulas of AMD's matrix instruction calculator.
    """
    size = case.shape[0]
    if case.target.startswith("gfx11"):
        return row % 2 * 16 + column, row // 2 * 32 + 16 * case.half
    if case.target == "gfx1201":
        return row // 8 * 16 + column, row % 8 * (16 if case.d.endswith("f16") else 32)
    rows = 64 // size
    if case.d == "f64":
        return row % rows * size + column, row // rows * 64
    side = -(-64 // (size * size // 4))  # blocks that lie side by side in a register
    register = block // side * side * (size * size // 64) + row // (4 * rows) * 4 + row % 4
    return block % side * size + row // 4 % rows * side * size + column, register * 32


def elements(
    case: Case, kind: str, generator: np.random.Generator
) -> tuple[F64, list[list[list[int]]]]:
    """Return numbers by block, row and product, and their codes."""
    size, products, blocks = case.shape
    shape = (blocks, size, products)
    if kind in {"f32", "xf32", "f64"}:
        values = generator.standard_normal(shape).astype(
            np.float32 if kind != "f64" else np.float64
        )
        codes = values.view(np.uint64 if kind == "f64" else np.uint32)
        if kind == "xf32":  # cut off after ten digits
            values = (values.view(np.uint32) & ~np.uint32(0x1FFF)).view(np.float32)
        return values.astype(np.float64), codes.tolist()
    table = VALUES[kind]
    usable = np.flatnonzero(np.isfinite(table) & (np.abs(table) <= MODERATE.get(kind, np.inf)))
    if kind in MODERATE:
        usable = usable[(np.abs(table[usable]) >= 1 / 64) | (table[usable] == 0)]
    chosen = generator.choice(usable, shape)
    return table[chosen], chosen.tolist()


def registers(case: Case, words: int, width: int, codes: list[list[list[int]]]) -> U32:
    """Return what lanes hold of a matrix."""
    held = [0] * case.lanes
    for block, rows in enumerate(codes):
        for row, products in enumerate(rows):
            for k, code in enumerate(products):
                for lane, bit in input_place(case, width, row, k, block):
                    held[lane] |= code << bit
    return np.array(
        [[x >> 32 * word & 0xFFFFFFFF for x in held] for word in range(words)], np.uint32
    )


#: How D's elements are read, what they are rounded to, and their bits of precision.
RESULTS = {
    "f32": (np.float32, 24), "i32": (np.int32, 64), "f64": (np.float64, 52),
    "f16": (np.float16, 11), "bf16": (np.uint16, 8),
}  # fmt: skip


def read(case: Case, d: U32, row: int, column: int, block: int) -> float:
    lane, bit = output_place(case, row, column, block)
    kind = RESULTS[case.d][0]
    raw = sum(int(word) << 32 * place for place, word in enumerate(d[:, lane])) >> bit
    content = raw & (1 << 8 * np.dtype(kind).itemsize) - 1
    if case.d == "bf16":
        return float(np.uint32(content << 16).view(np.float32))
    return float(np.frombuffer(content.to_bytes(np.dtype(kind).itemsize, "little"), kind)[0])


@pytest.mark.parametrize("case", CASES, ids=str)
def test_a_product_is_the_sum_rounded_once(compiled: CompileOnce, case: Case) -> None:
    generator = np.random.default_rng(0)
    size, products, blocks = case.shape
    (a, a_codes), (b, b_codes) = (elements(case, kind, generator) for kind in (case.a, case.b))
    words = case.words
    given = [registers(case, words[i], WIDTHS[kind], codes)
             for i, (kind, codes) in enumerate(((case.a, a_codes), (case.b, b_codes)))]  # fmt: skip
    scales = generator.integers(120, 135, (2, 64, 4), dtype=np.uint8)
    if case.scales:
        for matrix, scale, byte in zip((a, b), scales, case.scales, strict=True):
            for row in range(size):
                for k in range(products):
                    matrix[0, row, k] *= 2.0 ** (int(scale[row + k // 32 * size, byte]) - 127)
    filled = 0x3C003C00 if "16" in case.d else 1 if case.d == "i32" else 0x3F800000
    before = {
        "i32": 1.0,
        "f64": np.uint64(filled << 32 | filled).view(np.float64),
        "bf16": 0.0078125,
    }
    d = np.full((words[2], case.lanes), filled, np.uint32)
    given += [d, scales.view(np.uint32).reshape(-1)]
    kernel = compiled(all_of(case.target), case.target)["all"]
    emulate.launch(kernel, 1, case.lanes, [*given, CASES.index(case)])
    for block in range(blocks):
        left = a[block if case.only is None else case.only]
        expected = left @ b[block].T + before.get(case.d, 1.0)
        found = np.array([[read(case, d, row, column, block) for column in range(size)]
                          for row in range(size)])  # fmt: skip
        # Sums in float64 in another order may fall to the other side of a tie.
        sizes = np.abs(left) @ np.abs(b[block]).T + 1
        bound = 2.0 ** -RESULTS[case.d][1] * np.abs(expected) + 2.0**-48 * sizes
        assert (np.abs(found - expected) <= (0 if case.d == "i32" else bound)).all()
    if case.target.startswith("gfx11") and case.d.endswith("f16"):  # the other half is kept
        assert (d >> (0 if case.half else 16) & 0xFFFF == 0x3C00).all()


def uniform(kernel: Kernel, case: Case, sources: tuple[int, int, int], scale: int) -> float:
    """Return the first element of D where all of A are equal, all of B and all of C."""
    size, products, blocks = case.shape
    given = []
    for words, kind, code in zip(case.words, (case.a, case.b), sources, strict=False):
        codes = [[[code] * products] * size] * blocks
        given.append(registers(case, words, WIDTHS[kind], codes))
    d = np.full((case.words[2], case.lanes), sources[2], np.uint32)
    scales = np.full((2, 64), scale * 0x01010101, np.uint32)
    given += [d, scales.reshape(-1)]
    emulate.launch(kernel, 1, case.lanes, [*given, CASES.index(case)])
    return read(case, d, 0, 0, 0)


ONE = 0x3F800000
XF32 = "gfx942 v_mfma_f32_16x16x8_xf32"
HALF, BRAIN = "gfx90a v_mfma_f32_16x16x16f16", "gfx90a v_mfma_f32_16x16x16bf16_1k"
KEPT, KEPT_BRAIN = "gfx942 v_mfma_f32_16x16x4_4b_f16", "gfx942 v_mfma_f32_32x32x4_2b_bf16"
SCALED = "gfx950 v_mfma_scale_f32_16x16x128_f8f6f4 op_sel:[0,0,0] op_sel_hi:[0,0,0]"


@pytest.mark.parametrize(
    ("name", "sources", "scale", "expected"),
    [
        # gfx942 cuts float32 off, NaN too (ROCm/rocm-libraries#9176, triton-lang/triton#11783).
        (XF32, (0x3F801FFF, ONE, 0), 127, 8.0),
        (XF32, (0x7F800001, ONE, 0), 127, float("inf")),
        # gfx90a flushes subnormals of A, B, C and D (MIOpen's documentation on MI200).
        (HALF, (1, 0x7BFF, 0), 127, 0.0), (KEPT, (1, 0x7BFF, 0), 127, 4 * 65504 * 2**-24),
        (HALF, (0, 0, 1), 127, 0.0), (KEPT, (0, 0, 1), 127, 2**-149),
        (BRAIN, (0x1C80, 0x1C80, 0), 127, 0.0), (KEPT_BRAIN, (0x1C80, 0x1C80, 0), 127, 2**-138),
        (SCALED, (0x38, 0x38, 0), 127, 128.0), (SCALED, (0x38, 0x38, 0), 255, float("nan")),
        (SCALED, (0x38, 0x38, ONE), 0, 1.0), (SCALED, (0x38, 0x38, 0), 64, 2**-119),
        (SCALED, (0x38, 0x38, 0), 254, float("inf")),
    ],
)  # fmt: skip
def test_corners_of_products(
    compiled: CompileOnce, name: str, sources: tuple[int, int, int], scale: int, expected: float
) -> None:
    [case] = [case for case in CASES if str(case) == name]
    kernel = compiled(all_of(case.target), case.target)["all"]
    np.testing.assert_equal(uniform(kernel, case, sources, scale), expected)


REFUSED = [
    ("gfx942", "v_mfma_f64_4x4x4_4b_f64 v[0:1], v[2:3], v[4:5], v[0:1]", "of float64"),
    ("gfx942", "v_mfma_f64_16x16x4_f64 v[0:7], v[8:9], v[10:11], 0 neg:[1,0,0]", "negates"),
    ("gfx942", "v_mfma_f32_16x16x4_4b_f16 v[0:15], v[16:17], v[18:19], 0 blgp:1", "permutes"),
    ("gfx942", "v_mfma_f32_4x4x4_16b_f16 v[0:3], v[4:5], v[6:7], 0 cbsz:1", "permutes"),
    ("gfx942", "v_smfmac_f32_16x16x32_f16 v[0:3], v[4:5], v[6:9], v10", "this matrix"),
    ("gfx1201", "v_wmma_f32_16x16x16_f16 v[0:7], v[8:11], v[12:15], v[0:7] neg_lo:[1,0,0]",
     "modifiers"),
    ("gfx1100", "v_wmma_i32_16x16x16_iu8 v[0:7], v[8:11], v[12:15], v[0:7] clamp", "modifiers"),
]  # fmt: skip


@pytest.mark.parametrize(
    "target", kinds(["gfx942", "gfx1201", "gfx1100"], lambda target: target == "gfx942")
)
def test_what_documents_leave_open_is_refused(target: str) -> None:
    rows = {f"k{place}": row for place, row in enumerate(REFUSED) if row[0] == target}
    kernels = emulate.compile_hip("".join(
        f'extern "C" __attribute__((global)) void {name}() {{ asm volatile("{text}"); }}\n'
        for name, (_, text, _) in rows.items()
    ), target)  # fmt: skip
    for name, (_, _, said) in rows.items():
        with pytest.raises(emulate.UnmodelledError, match=said):
            emulate.launch(kernels[name], 1, 64, [])
