"""AMD machine code on a processor: kernels against torch, corner values, faults by their line."""

from __future__ import annotations

import importlib
import re
import struct
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from contribbot import emulate
from contribbot.emulate import memory_ops, program
from contribbot.emulate.code_object import Descriptor, Kernel, LineTable, Metadata
from contribbot.emulate.decode import decode
from contribbot.emulate.machine import Buffer, Executor, Memory
from contribbot.emulate.program import Program
from contribbot.errors import UsageError

SOURCE = Path(__file__).parent / "emulated.hip"
FP8 = {
    "gfx942": torch.float8_e4m3fnuz,
    "gfx950": torch.float8_e4m3fn,
    "gfx1201": torch.float8_e4m3fn,
}
TARGETS = ("gfx942", "gfx1201", "gfx950", "gfx1100", "gfx90a")
Kernels = dict[str, Kernel]


@pytest.fixture(scope="module", params=TARGETS)
def kernels(request: pytest.FixtureRequest) -> Kernels:
    return emulate.compile_hip(SOURCE, str(request.param))


@pytest.fixture
def generator() -> torch.Generator:
    return torch.Generator().manual_seed(0)


def integers(*shape: int) -> torch.Tensor:
    return torch.zeros(shape, dtype=torch.int32)


def source_line(place: str) -> str:
    return SOURCE.read_text(encoding="utf-8").splitlines()[int(place.partition(":")[2]) - 1]


def patterns(count: int, generator: torch.Generator) -> torch.Tensor:
    bits = torch.randint(-(2**31), 2**31, (count,), generator=generator)
    return bits.to(torch.int32).view(torch.float32)


def test_quantises_groups_as_torch_does(kernels: Kernels, generator: torch.Generator) -> None:
    kernel = kernels["quantise"]
    if kernel.target not in FP8:
        pytest.skip(f"{kernel.target} has no instruction that converts to FP8")
    kind = FP8[kernel.target]
    top = torch.finfo(kind).max
    values = torch.arange(1 << 16, dtype=torch.int32).to(torch.int16).view(torch.bfloat16).float()
    mixed = torch.where(values.isfinite(), values, 1.0)[
        torch.randperm(1 << 16, generator=generator)
    ]
    x = mixed.reshape(-1, 128)
    q, scales = torch.zeros(x.shape, dtype=torch.uint8), torch.zeros(len(x))
    emulate.launch(kernel, len(x), 32, [x, q, scales])
    expected = x.abs().amax(1).clamp(min=1e-10) / top
    assert torch.equal(scales, expected)
    quantised = (x / expected[:, None]).clamp(-top, top).to(kind)
    assert torch.equal(q, quantised.view(torch.uint8))


def test_a_division_is_rounded_to_nearest_whatever_the_reciprocal_is_within_its_bound(
    kernels: Kernels, generator: torch.Generator
) -> None:
    a, b = patterns(20000, generator), patterns(20000, generator)
    out = torch.zeros(20000)
    ran = emulate.launch(kernels["divide"], 79, 256, [a, b, out, 20000], bounds=True)
    exact = a / b
    number = ~exact.isnan()
    assert torch.equal(out.isnan(), exact.isnan())
    assert torch.equal(out[number], exact[number])
    assert ran.undetermined == {}


def test_a_division_of_float64(kernels: Kernels, generator: torch.Generator) -> None:
    special = [0.0, -0.0, float("inf"), float("-inf"), float("nan"), 5e-324, 1.7e308, 3.0]
    scale = torch.randint(-480, 480, (2, 8000), generator=generator).double().exp2()
    a, b = torch.randn(2, 8000, generator=generator, dtype=torch.float64) * scale
    a[:64], b[:64] = torch.cartesian_prod(*2 * [torch.tensor(special, dtype=torch.float64)]).T
    out = torch.zeros(8000, dtype=torch.float64)
    ran = emulate.launch(kernels["divide64"], 32, 256, [a, b, out, 8000], bounds=True)
    # Also at both ends of the 2 ** 29 ULP by which documents bound v_rcp_f64.
    assert torch.equal(out.nan_to_num(nan=7), (a / b).nan_to_num(nan=7))
    assert ran.undetermined == {}


def test_an_exponential_depends_on_its_bound(kernels: Kernels, generator: torch.Generator) -> None:
    x, out = torch.randn(50, 300, generator=generator), torch.zeros(50, 300)
    lengths = torch.randint(1, 300, (50,), generator=generator, dtype=torch.int32)
    ran = emulate.launch(kernels["softmax"], 50, 64, [x, out, lengths, 300], bounds=True)
    for row, length in enumerate(lengths):
        expected = x[row, :length].double().softmax(0)
        assert torch.allclose(out[row, :length].double(), expected, rtol=1e-6, atol=0)
        assert not out[row, length:].any()
    assert ran.undetermined["argument 1"].any()


def test_sums_of_a_workgroup(kernels: Kernels, generator: torch.Generator) -> None:
    x, out = torch.randint(-99, 99, (40, 256), generator=generator, dtype=torch.int32), integers(40)
    emulate.launch(kernels["reduce"], 40, 256, [x, out])
    assert torch.equal(out, x.sum(1).int())


def test_a_norm_in_float16(kernels: Kernels, generator: torch.Generator) -> None:
    x = torch.randn(20, 512, generator=generator).half()
    weight, out = torch.randn(512, generator=generator).half(), torch.zeros(20, 512).half()
    emulate.launch(kernels["rms_norm"], 20, 128, [x, weight, out, 1e-5])
    scale = torch.rsqrt(x.float().square().mean(1, keepdim=True) + 1e-5)
    # The scaled row is rounded to float16, and so is its product with the weight.
    assert torch.allclose(out.double(), x.double() * scale * weight, rtol=2**-10, atol=2**-24)


def test_atomic_additions(kernels: Kernels, generator: torch.Generator) -> None:
    x, bins = torch.randint(0, 99, (1000,), generator=generator, dtype=torch.int32), integers(8)
    emulate.launch(kernels["count"], (2, 2), 256, [x, bins, 1000])
    assert torch.equal(bins, 2 * torch.bincount(x[:512] & 7, minlength=8).int())


def test_arguments_end_within_a_wider_load(kernels: Kernels) -> None:
    out = torch.zeros(64)
    emulate.launch(kernels["three_words"], 1, 64, [out, 60, 2.0, 3.0, 1.0])
    assert torch.equal(out[:60], 6 * torch.arange(60.0) + 1)
    assert not out[60:].any()


#: The fault, how many work-items, the arguments, and the lanes of a wave where it is one.
FAULTS: dict[str, tuple[str, int, list[emulate.Argument], set[int]]] = {
    "past_the_end": ("out of bounds", 64, [torch.zeros(64), torch.zeros(64)], {32, 64}),
    "no_barrier": ("race", 256, [integers(256), integers(256), 128], {32, 64}),
    "never_written": ("unwritten", 64, [integers(64)], {32, 64}),
    "misaligned": ("misaligned", 32, [torch.zeros(200, dtype=torch.uint8), integers(32)], {32, 64}),
    "waves_of_32": ("unwritten", 256, [integers(256), integers(256)], {64}),
    "waves_of_64": ("race", 64, [integers(64), integers(64)], {32}),
    "endless": ("endless", 256, [integers(1)], {32, 64}),
}


@pytest.mark.parametrize("name", FAULTS)
def test_names_the_line_of_a_fault(kernels: Kernels, name: str) -> None:
    fault, block, arguments, lanes = FAULTS[name]
    if kernels[name].metadata.wavefront_size not in lanes:
        emulate.launch(kernels[name], 1, block, arguments)
        return
    with pytest.raises(emulate.KernelError) as caught:
        emulate.launch(kernels[name], 1, block, arguments)
    lines = SOURCE.read_text(encoding="utf-8").splitlines()
    line = 1 + next(row for row, text in enumerate(lines) if f"FAULT {name}" in text)
    assert (caught.value.fault, caught.value.place.line) == (fault, f"emulated.hip:{line}")


def test_the_other_fp8_format_is_told_apart(kernels: Kernels) -> None:
    """gfx942 writes e4m3fnuz, in which the same code is half of what it is in e4m3fn."""
    kernel = kernels["quantise"]
    if kernel.target not in FP8:
        pytest.skip(f"{kernel.target} has no instruction that converts to FP8")
    fn, fnuz = torch.float8_e4m3fn, torch.float8_e4m3fnuz
    kind = FP8[kernel.target]
    x = torch.linspace(-1, 1, 128) * torch.finfo(kind).max
    q = torch.zeros(128, dtype=torch.uint8)
    ran = emulate.launch(kernel, 1, 32, [x, q, torch.zeros(1)], trace=True)
    assert torch.equal(q, x.to(kind).view(torch.uint8))
    [other] = {fn, fnuz} - {kind}
    differ = (q != x.to(other).view(torch.uint8)).numpy()
    assert differ.sum() > 100
    [line] = {*ran.writers["argument 1"][differ].tolist()}
    assert "// WRITES quantise" in source_line(line)


def test_a_shift_out_of_range_takes_five_bits(kernels: Kernels) -> None:
    """C++ leaves it open and torch gives 0; AMD's documents shift by `S0[4 : 0]`."""
    x, by, out = integers(64) + 3, torch.arange(64, dtype=torch.int32), integers(64)
    ran = emulate.launch(kernels["shift"], 1, 64, [x, by, out])
    assert torch.equal(out, x << (by & 31))
    [line] = ran.wide_shifts
    assert "// FAULT shift" in source_line(line)
    assert not emulate.launch(kernels["shift"], 1, 64, [x, by & 31, out]).wide_shifts


def test_says_which_line_wrote_a_byte(kernels: Kernels) -> None:
    x, out = integers(64), integers(66)
    ran = emulate.launch(kernels["shift"], 1, 64, [x, x, out[1:65]], trace=True)
    wrote = ran.writers["argument 2"]
    assert not wrote[:4].any()
    assert not wrote[-4:].any()
    [line] = {*wrote[4:-4].tolist()}
    assert "// FAULT shift" in source_line(line)


def test_reads_of_what_nobody_wrote(kernels: Kernels) -> None:
    with pytest.raises(emulate.KernelError, match="byte 0 of argument 0, which nobody wrote"):
        emulate.launch(
            kernels["reduce"], 1, 256, [emulate.Uninitialised(integers(256)), integers(1)]
        )


def test_a_launch_that_fails_changes_nothing(kernels: Kernels) -> None:
    out = torch.ones(64)
    with pytest.raises(emulate.KernelError):
        emulate.launch(kernels["past_the_end"], 1, 64, [torch.zeros(64), out])
    assert out.eq(1).all()


def test_32_lanes_are_not_64(kernels: Kernels) -> None:
    out = integers(2)
    emulate.launch(kernels["lanes_of_32"], 1, 64, [torch.arange(64, dtype=torch.int32), out])
    whole = kernels["lanes_of_32"].target in {"gfx1100", "gfx1201"}
    assert out.tolist() == [496, 1520 if whole else 0]


def test_some_lanes_read_one_place(kernels: Kernels, monkeypatch: pytest.MonkeyPatch) -> None:
    out = integers(128)
    emulate.launch(kernels["one_place"], 1, 128, [integers(1) + 7, out])
    assert out.tolist() == [0, 7] * 64

    def fails(*_: object, **__: object) -> None:
        raise ValueError("shapes differ")

    # What goes wrong in the emulator itself names the instruction, too.
    monkeypatch.setattr(memory_ops, "_access", fails)
    monkeypatch.setattr(program, "_written", program._written.__wrapped__)  # none is remembered
    with pytest.raises(
        emulate.UnmodelledError, match=r"fault of contribbot; .*shapes differ"
    ) as told:
        emulate.launch(replace(kernels["one_place"]), 1, 128, [integers(1), out])
    place = told.value.place
    assert place is not None
    assert "load" in place.instruction.lower()
    assert (
        "LOAD one_place"
        in SOURCE.read_text(encoding="utf-8").splitlines()[int(place.line.split(":")[1]) - 1]
    )


def test_says_which_lines_ran(kernels: Kernels) -> None:
    ran = emulate.launch(kernels["lanes_of_32"], 1, 64, [integers(64), integers(2)])
    lines = SOURCE.read_text(encoding="utf-8").splitlines()
    numbers = [int(line.partition(":")[2]) for line in ran.lines if line.startswith("emulated")]
    assert any("out[threadIdx.x / warpSize] = sum" in lines[number - 1] for number in numbers)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "takes 1 arguments, 0 are given"),
        ([5], "argument 0 is a pointer, int is given"),
        ([torch.zeros(4)[::2].numpy()], "must be contiguous"),
    ],
)
def test_refuses_arguments_that_do_not_fit(
    kernels: Kernels, arguments: list[emulate.Argument], message: str
) -> None:
    with pytest.raises(UsageError, match=message):
        emulate.launch(kernels["never_written"], 1, 64, arguments)


@pytest.mark.parametrize("content", [b"", b"junk", b"\x7fELF" + bytes(60)])
def test_refuses_what_is_no_code_object(content: bytes) -> None:
    with pytest.raises(UsageError, match="code object"):
        emulate.load(content)


def execute(
    target: str, text: str, *sources: int, before: str = "", shared: int = 0, scratch: int = 0
) -> int:
    """Return what one instruction leaves in v0, which held 0xaaaa5555, of v1, v2 and v3."""
    family = {"gfx942": "cdna", "gfx950": "cdna", "gfx1100": "rdna3", "gfx1201": "rdna4"}[target]
    made = importlib.import_module(f"tinygrad.runtime.autogen.amd.{family}.ins")
    dsl = importlib.import_module("tinygrad.renderer.amd.dsl")
    # Of the table below.
    code = [eval(part, {**vars(made), "v": dsl.v}) for part in (before, text) if part]  # noqa: S307
    image = b"".join(inst.to_bytes() for inst in code) + made.s_endpgm().to_bytes() + b"\0" * 16
    wave = 64 if family == "cdna" else 32
    metadata = Metadata.model_validate({
        ".name": "table", ".symbol": "table.kd", ".kernarg_segment_size": 0,
        ".wavefront_size": wave, ".max_flat_workgroup_size": 64,
    })  # fmt: skip
    # Subnormals are kept, clamps make 0 of NaN, and older targets have their IEEE mode.
    descriptor = Descriptor(0, scratch, 0, 0xF0000 | 1 << 21 | (family != "rdna4") << 23, 0, 0)
    loaded = Program(Kernel(target, image, descriptor, metadata, LineTable([]), len(image)))
    memory = Memory()
    memory.add(Buffer("the code object", np.frombuffer(image, np.uint8)))
    machine = Executor(loaded, memory, groups=1, waves=1, shared=shared)
    machine.scalar[:, 126 : 126 + wave // 32] = 0xFFFFFFFF
    for number, bits in enumerate((0xAAAA5555, *sources)[: loaded.vectors]):
        machine.vector[0, number] = bits
    machine.run()
    return int(machine.vector[0, 0, 0])


def test_beyond_scratch_its_own_size_is_told() -> None:
    load = "scratch_load_dword(vdst=v[0], addr=v[1], sve=1)"
    with pytest.raises(emulate.KernelError, match=r"4 bytes at offset 16 of scratch \(16 bytes\)"):
        execute("gfx942", load, 16, shared=64, scratch=16)


def f32(value: float) -> int:
    return int.from_bytes(struct.pack("<f", value), "little")


NAN, SIGNALLING = 0x7FC00000, 0x7F800001
INF, TINY = f32(float("inf")), 1  # the smallest subnormal
ONE, TWO = f32(1.0), f32(2.0)
#: Target, instruction, the bits of its sources, the bits that documents promise.
CORNERS = [
    ("gfx942", "v_max_f32_e32(v[0], v[1], v[2])", (NAN, ONE), ONE),
    ("gfx942", "v_max_f32_e32(v[0], v[1], v[2])", (SIGNALLING, ONE), SIGNALLING | 0x400000),
    ("gfx1201", "v_max_num_f32_e32(v[0], v[1], v[2])", (SIGNALLING, ONE), ONE),
    ("gfx942", "v_max_f32_e32(v[0], v[1], v[2])", (f32(-0.0), 0), 0),
    ("gfx942", "v_min_f32_e32(v[0], v[1], v[2])", (0, f32(-0.0)), f32(-0.0)),
    ("gfx1201", "v_min_num_f32_e32(v[0], v[1], v[2])", (f32(-0.0), 0), f32(-0.0)),
    ("gfx1100", "v_med3_f32(v[0], v[1], v[2], v[3])", (f32(5), ONE, TWO), TWO),
    ("gfx942", "v_med3_f32_e64(v[0], v[1], v[2], v[3])", (NAN, TWO, ONE), ONE),
    ("gfx942", "v_add_f32_e32(v[0], v[1], v[2])", (TINY, TINY), 2),
    ("gfx942", "v_mul_f32_e64(v[0], v[1], v[2], clmp=1)", (TWO, TWO), ONE),
    ("gfx942", "v_mul_f32_e64(v[0], v[1], v[2], clmp=1)", (NAN, TWO), 0),
    ("gfx942", "v_mul_f32_e64(v[0], -v[1], abs(v[2]))", (TWO, f32(-1)), f32(-2)),
    # A product that float32 would round to a tie, and one that ends among subnormals.
    ("gfx1201", "v_fma_f32(v[0], v[1], v[2], v[3])", (0x3F800001, 0x3F800001, f32(-1)), 0x34800000),
    ("gfx1201", "v_fma_f32(v[0], v[1], v[2], v[3])", (0x00800001, f32(0.5), 0), 0x00400000),
    ("gfx942", "v_rndne_f32_e32(v[0], v[1])", (f32(2.5),), TWO),
    # Of waves of 64 lanes; others do nothing there.
    ("gfx1201", "v_permlane64_b32_e32(v[0], v[1])", (ONE,), 0xAAAA5555),
    ("gfx942", "v_rndne_f32_e32(v[0], v[1])", (f32(-0.5),), f32(-0.0)),
    ("gfx942", "v_cvt_i32_f32_e32(v[0], v[1])", (NAN,), 0),
    ("gfx942", "v_cvt_i32_f32_e32(v[0], v[1])", (f32(3e9),), 0x7FFFFFFF),
    ("gfx942", "v_cvt_i32_f32_e32(v[0], v[1])", (f32(-2.9),), 0xFFFFFFFE),
    ("gfx1201", "v_cvt_u32_f32_e32(v[0], v[1])", (f32(-1),), 0),
    ("gfx1201", "v_cvt_u32_f32_e32(v[0], v[1])", (INF,), 0xFFFFFFFF),
    # Older targets zero the other half of a register, newer ones keep it.
    ("gfx942", "v_cvt_f16_f32_e32(v[0], v[1])", (f32(1 + 2**-11),), 0x3C00),
    ("gfx1201", "v_cvt_f16_f32_e32(v[0], v[1])", (f32(1 + 3 * 2**-11),), 0xAAAA3C02),
    ("gfx942", "v_cvt_f16_f32_e32(v[0], v[1])", (f32(65520),), 0x7C00),
    ("gfx942", "v_cvt_f16_f32_e32(v[0], v[1])", (f32(2**-25),), 0),
    ("gfx942", "v_cvt_f32_f16_e32(v[0], v[1])", (0x7C01,), 0x7FC02000),
    ("gfx942", "v_cvt_pkrtz_f16_f32(v[0], v[1], v[2])", (f32(65535), f32(-1.9999)), 0xBFFF7BFF),
    # Ties, a -0, NaN and what is too large, in the format of each target.
    ("gfx942", "v_cvt_pk_fp8_f32(v[0], v[1], v[2])", (f32(240), f32(-0.0)), 0xAAAA007F),
    ("gfx942", "v_cvt_pk_fp8_f32(v[0], v[1], v[2])", (f32(248), NAN), 0xAAAA8080),
    ("gfx942", "v_cvt_pk_fp8_f32(v[0], v[1], v[2])", (f32(17), f32(19)), 0xAAAA6260),
    ("gfx950", "v_cvt_pk_fp8_f32(v[0], v[1], v[2])", (f32(448), f32(-0.0)), 0xAAAA807E),
    ("gfx1201", "v_cvt_pk_fp8_f32(v[0], v[1], v[2], opsel=8)", (f32(17), f32(500)), 0x7F585555),
    ("gfx1201", "v_cvt_pk_fp8_f32(v[0], v[1], v[2])", (f32(2**-10), f32(3 * 2**-10)), 0xAAAA0200),
    # A scaled conversion divides by a power of two, and multiplies with one.
    ("gfx950", "v_cvt_scalef32_pk_fp8_f32(v[0], v[1], v[2], v[3])", (f32(34), f32(-38), TWO),
     0xAAAADA58),
    ("gfx950", "v_cvt_scalef32_f32_fp8(v[0], v[1], v[2])", (0x58, TWO), f32(32)),
    # Documents bound these to 1 ULP; subnormals count as zero.
    ("gfx942", "v_rcp_f32_e32(v[0], v[1])", (f32(-0.0),), f32(float("-inf"))),
    ("gfx942", "v_rcp_f32_e32(v[0], v[1])", (TINY,), INF),
    ("gfx1201", "v_sqrt_f32_e32(v[0], v[1])", (f32(-0.0),), f32(-0.0)),
    ("gfx1201", "v_exp_f32_e32(v[0], v[1])", (f32(-150),), 0),
    ("gfx1201", "v_log_f32_e32(v[0], v[1])", (0,), f32(float("-inf"))),
    ("gfx942", "v_ldexp_f32(v[0], v[1], v[2])", (f32(1.5), -150 & 0xFFFFFFFF), TINY),
    ("gfx942", "v_frexp_exp_i32_f32_e32(v[0], v[1])", (TINY,), -148 & 0xFFFFFFFF),
    ("gfx942", "v_lshlrev_b32_e32(v[0], v[1], v[2])", (33, 3), 6),
    ("gfx942", "v_bfe_i32_e64(v[0], v[1], v[2], v[3])", (0xF0, 4, 4), 0xFFFFFFFF),
    ("gfx942", "v_bfe_u32_e64(v[0], v[1], v[2], v[3])", (0xF0, 4, 0), 0),
    ("gfx942", "v_perm_b32_e64(v[0], v[1], v[2], v[3])", (0x44332211, 0x88776655, 0xC0D0400),
     0x00FF1155),
    ("gfx942", "v_ffbh_u32_e32(v[0], v[1])", (0,), 0xFFFFFFFF),
    ("gfx1201", "v_clz_i32_u32_e32(v[0], v[1])", (1,), 31),
    ("gfx942", "v_bfrev_b32_e32(v[0], v[1])", (0x80000001,), 0x80000001),
    ("gfx942", "v_mul_hi_u32(v[0], v[1], v[2])", (0xFFFFFFFF, 0xFFFFFFFF), 0xFFFFFFFE),
    ("gfx942", "v_mul_u32_u24_e32(v[0], v[1], v[2])", (0xFF000003, 5), 15),
    ("gfx942", "v_pk_add_f16(v[0], v[1], v[2])", (0x3C003C00, 0x40003C00), 0x42004000),
    ("gfx1201", "v_pk_mul_f16(v[0], v[1], v[2], opsel=1)", (0x40003C00, 0x3C003C00), 0x40004000),
    ("gfx942", "v_mbcnt_lo_u32_b32(v[0], v[1], v[2])", (0xFFFFFFFF, 7), 7),
]  # fmt: skip


@pytest.mark.parametrize(("target", "text", "sources", "expected"), CORNERS, ids=str)
def test_corner_values(target: str, text: str, sources: tuple[int, ...], expected: int) -> None:
    assert hex(execute(target, text, *sources)) == hex(expected)


SATURATE = "s_setreg_imm32_b32(simm16=1 | 23 << 6, literal=1)"


@pytest.mark.parametrize(
    ("target", "source", "expected"),
    [
        ("gfx942", f32(-1e9), 0xFF),
        ("gfx950", f32(449), 0x7E),
        ("gfx942", NAN, 0x80),
        ("gfx950", NAN, 0x7F),
    ],
)
def test_fp8_saturates_where_a_kernel_says_so(target: str, source: int, expected: int) -> None:
    found = execute(target, "v_cvt_pk_fp8_f32(v[0], v[1], v[2])", source, NAN, before=SATURATE)
    assert hex(found & 0xFF) == hex(expected)


def test_an_instruction_before_an_mfma_is_decoded_alone() -> None:
    made = importlib.import_module("tinygrad.runtime.autogen.amd.cdna.ins")
    v = importlib.import_module("tinygrad.renderer.amd.dsl").v
    first = made.v_fma_f32_e64(v[0], v[1], v[2], v[3])
    second = made.v_mfma_f32_32x32x64_f8f6f4(v[0:15], v[16:23], v[24:31], 0)
    image = first.to_bytes() + second.to_bytes()
    names = [decode(image, place, "gfx950").name for place in (0, 8)]
    assert names == ["V_FMA_F32", "V_MFMA_F32_32X32X64_F8F6F4"]


def run_example(page: str) -> str:
    """Run the first example of a page, and return what follows it."""
    text = (Path(__file__).parent.parent / "docs" / page).read_text(encoding="utf-8")
    example, _, rest = text.partition("```python\n")[2].partition("```")
    exec(example, {})  # noqa: S102  the example
    return rest


def test_the_example_of_the_page_runs(capsys: pytest.CaptureFixture[str]) -> None:
    run_example("emulate.md")
    assert "kernel.hip:5" in capsys.readouterr().out


def test_the_example_of_the_size_of_a_wave_prints_what_its_page_says(
    capsys: pytest.CaptureFixture[str],
) -> None:
    printed = run_example("warp-size.md").partition("```\n")[2].partition("```")[0]

    def without_compiler(text: str) -> str:
        return re.sub(r"\+0x\w+: [^:]*:", ":", text)  # places and registers are the compiler's

    assert without_compiler(capsys.readouterr().out) == without_compiler(printed)


TRITON = """
import triton
import triton.language as tl


@triton.jit
def softmax(x_ptr, out_ptr, columns, BLOCK: tl.constexpr):
    column = tl.arange(0, BLOCK)
    place = tl.program_id(0) * columns + column
    x = tl.load(x_ptr + place, mask=column < columns, other=-float("inf"))
    shifted = tl.exp(x - tl.max(x, axis=0))
    tl.store(out_ptr + place, shifted / tl.sum(shifted, axis=0), mask=column < columns)
"""


@pytest.mark.parametrize("target", ["gfx942", "gfx1201"])
def test_a_triton_kernel(target: str, tmp_path: Path, generator: torch.Generator) -> None:
    (tmp_path / "kernel.py").write_text(TRITON, encoding="utf-8")
    signature = {"x_ptr": "*fp32", "out_ptr": "*fp32", "columns": "i32", "BLOCK": "constexpr"}
    kernel = emulate.compile_triton(
        tmp_path / "kernel.py", "softmax", target, signature, constants={"BLOCK": 512}
    )
    x, out = torch.randn(30, 500, generator=generator), torch.zeros(30, 500)
    lanes = kernel.metadata.wavefront_size
    emulate.launch(kernel, 30, 4 * lanes, [x, out, 500, 0, 0])
    assert torch.allclose(out.double(), x.double().softmax(1), rtol=2e-6, atol=0)
