"""Corner values of single instructions: what AMD's documents and IEEE 754 say that each gives."""

from __future__ import annotations

import functools
import importlib
import re
import struct
import subprocess
import tempfile
from collections.abc import Iterator
from concurrent.futures import Future
from ctypes import c_uint64
from dataclasses import dataclass
from itertools import permutations
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from contribbot.compile.toolchain import Toolchain, hip_toolchain
from contribbot.emulate import translate
from contribbot.emulate.code_object import Descriptor, Kernel, LineTable, Metadata
from contribbot.emulate.decode import TABLES
from contribbot.emulate.errors import KernelError
from contribbot.emulate.memory import Memory
from contribbot.emulate.program import Program
from contribbot.emulate.pseudocode import NotModelledError
from contribbot.emulate.workgroup import Executor, Launch
from contribbot.errors import ContribbotError

Words = NDArray[np.uint32]


def f16(value: float) -> int:
    return int.from_bytes(struct.pack("<e", value), "little")


def f32(value: float) -> int:
    return int.from_bytes(struct.pack("<f", value), "little")


def f64(value: float) -> int:
    return int.from_bytes(struct.pack("<d", value), "little")


def pair(low: int, high: int) -> int:
    return high << 32 | low


NAN, SIGNALLING = 0x7FC00000, 0x7F800001
QUIETED = SIGNALLING | 0x400000
INF, NINF = f32(float("inf")), f32(float("-inf"))
TOP, LEAST, TINY = 0x7F7FFFFF, f32(2**-126), 1  # the largest, the least normal and subnormal
ONE, TWO, HALF = f32(1.0), f32(2.0), f32(0.5)
MINUS = 0x80000000  # -0, and the smallest integer
ONES = 0xFFFFFFFF
#: Its square less 1 has one bit more than float32; NEAR64 is the same of float64.
NEAR, NEAR_SQUARE = f32(1 + 2**-12), f32(2**-11 + 2**-24)
NEAR64, NEAR64_SQUARE = f64(1 + 2**-27), f64(2**-26 + 2**-54)
QUIET64 = 0x7FF8 << 48
ONES64, MINUS64, INF64 = 2**64 - 1, 1 << 63, f64(float("inf"))
BEFORE = 0xAAAA5555  # what v0, v1, s0 and s1 hold before
LANE = "v_mbcnt_lo_u32_b32 v4, -1, 0; v_mbcnt_hi_u32_b32 v4, -1, v4; "
#: A NaN that is quiet; which one is left open.
QUIET = None

ALL, RDNA = "gfx942 gfx1100 gfx1151 gfx1201", "gfx1100 gfx1151 gfx1201"
OLD = "gfx942 gfx1100"  # whose minimum and maximum have an IEEE mode
Bits = tuple[int, ...]
Rows = dict[Bits, int | tuple[int | None, ...] | None]
#: Powers of two: numerator, denominator, what v_div_scale_f32 scales each by, and whether the
#: quotient is scaled back. Measured on gfx1100 and gfx1201, say AMD's rocjitsu (ROCm/rocm-systems,
#: division.h) and, the first three, tests of tinygrad's (test/amd/hw/test_vop3.py).
SCALES = [
    (127, 0, 0, 64, 1), (-126, 0, 64, 0, 1), (0, 127, 0, -64, 1), (31, 127, 0, -64, 1),
    (32, 127, -64, -64, 0), (40, 126, -64, -64, 0), (40, 125, 0, 0, 0), (-96, 0, 64, 0, 1),
    (-95, 0, 0, 0, 0), (96, 0, 0, 64, 1), (95, 0, 0, 0, 0), (-103, -100, 64, 64, 0),
    (-102, -100, 0, 0, 0), (-120, -140, 64, 64, 0), (0, -140, 0, 64, 1),
]  # fmt: skip
SCALED: Rows = {
    (f32(2.0**scaled), f32(2.0**under), f32(2.0**over)): (f32(2.0 ** (scaled + by)), back)
    for over, under, by_over, by_under, back in SCALES
    for scaled, by in ((over, by_over), (under, by_under))
}
#: Targets, instructions, and for the bits of what they read those that v0 or s0 and SCC then hold.
#: Sources are the other registers in the order in which the text names them; a mask is that of
#: lanes, 64 of them in the text.
CORNERS: list[tuple[str, str, Rows]] = [
    # Sums and products of float32: what is no number, signs of zero, subnormals, ties.
    (ALL, "v_add_f32 v0, v1, v2", {
        (INF, NINF): QUIET, (SIGNALLING, ONE): QUIET, (TOP, TOP): INF, (MINUS, MINUS): MINUS,
        (ONE, f32(-1)): 0, (TINY, TINY): 2, (LEAST, MINUS | TINY): LEAST - 1,
        (ONE, f32(2**-24)): ONE, (ONE + 1, f32(2**-24)): ONE + 2}),
    (ALL, "v_sub_f32 v0, v1, v2", {
        (INF, INF): QUIET, (0, MINUS): 0, (MINUS, 0): MINUS, (ONE, f32(2**-25)): ONE}),
    (ALL, "v_mul_f32 v0, v1, v2", {
        (INF, 0): QUIET, (TOP, TWO): INF, (MINUS, ONE): MINUS, (TINY, HALF): 0, (3, HALF): 2,
        (MINUS | TINY, HALF): MINUS}),
    ("gfx942", "v_mul_f32 v0, v1, v2 clamp", {
        (TWO, TWO): ONE, (NAN, TWO): 0, (MINUS, ONE): 0, (f32(-3), ONE): 0}),
    (ALL, "v_mul_f32 v0, -v1, |v2|", {(TWO, f32(-1)): f32(-2)}),
    (ALL, "v_fma_f32 v0, v1, v2, v3", {
        (NEAR, NEAR, f32(-1)): NEAR_SQUARE, (LEAST + 1, HALF, 0): 0x400000,
        (ONE + 1, ONE + 1, f32(-1)): f32(2**-22),  # a tie
        (TWO, f32(3), ONE): f32(7),
        (INF, 0, ONE): QUIET, (TOP, TWO, NINF): NINF, (TOP, TWO, MINUS | TOP): TOP,
        (0, ONE, MINUS): 0, (MINUS, ONE, MINUS): MINUS}),
    (ALL, "v_mov_b32 v0, v3; v_fmac_f32 v0, v1, v2", {
        (f32(-1), NEAR, NEAR): NEAR_SQUARE, (MINUS, MINUS, ONE): MINUS,
        (ONE, TWO, f32(3)): f32(7)}),
    (ALL, f"v_fmamk_f32 v0, v1, {NEAR:#x}, v2", {
        (NEAR, f32(-1)): NEAR_SQUARE, (0, ONE): ONE}),
    (ALL, "v_fmaak_f32 v0, v1, v2, 0xbf800000", {
        (NEAR, NEAR): NEAR_SQUARE, (TWO, f32(3)): f32(5)}),
    ("gfx942", "v_pk_add_f32 v[0:1], v[2:3], v[4:5]", {
        (pair(ONE, MINUS), pair(f32(2**-24), MINUS)): pair(ONE, MINUS)}),
    ("gfx942", "v_pk_add_f32 v[0:1], v[2:3], v[4:5] op_sel_hi:[0,1]", {
        (pair(f32(1), f32(2)), pair(f32(10), f32(20))): pair(f32(11), f32(21))}),
    ("gfx942", "v_pk_mul_f32 v[0:1], v[2:3], v[4:5]", {
        (pair(HALF, TOP), pair(3, f32(-2))): pair(2, NINF),
        (pair(TINY, MINUS), pair(HALF, ONE)): pair(0, MINUS)}),
    ("gfx942", "v_pk_mul_f32 v[0:1], v[2:3], v[4:5] op_sel:[1,0] op_sel_hi:[0,1]", {
        (pair(f32(2), f32(3)), pair(f32(5), f32(7))): pair(f32(15), f32(14))}),
    ("gfx942", "v_pk_mul_f32 v[0:1], v[2:3], v[4:5] neg_lo:[1,0] neg_hi:[0,1]", {
        (pair(f32(2), f32(3)), pair(f32(5), f32(7))): pair(f32(-10), f32(-21))}),
    ("gfx942", "v_pk_fma_f32 v[0:1], v[2:3], v[4:5], v[6:7]", {
        (pair(NEAR, TINY), pair(NEAR, HALF), pair(f32(-1), 0)): pair(NEAR_SQUARE, 0)}),
    ("gfx942", "v_pk_fma_f32 v[0:1], v[2:3], v[4:5], v[6:7] op_sel:[0,0,1] op_sel_hi:[1,1,0]", {
        (pair(f32(2), f32(3)), pair(f32(5), f32(7)), pair(f32(100), f32(200))):
            pair(f32(210), f32(121))}),
    ("gfx942", "v_pk_mov_b32 v[0:1], v[2:3], v[4:5] op_sel:[1,0]", {
        (pair(1, 2), pair(3, 4)): pair(2, 3)}),
    ("gfx942", "v_pk_mov_b32 v[0:1], v[2:3], v[4:5] op_sel:[0,1]", {
        (pair(1, 2), pair(3, 4)): pair(1, 4)}),
    # Of halves or float32, rounded once, also where documents call it v_mad_mix (gfx9).
    (ALL, "v_fma_mix_f32 v0, v1, v2, v3", {
        (NEAR, NEAR, f32(-1)): NEAR_SQUARE, (TWO, f32(3), ONE): f32(7)}),
    (ALL, "v_fma_mix_f32 v0, v1, v2, v3 op_sel:[1,0,1] op_sel_hi:[1,1,1]", {
        (0x42004000, 0x42004000, 0x3C00BC00): f32(7)}),
    (ALL, "v_fma_mix_f32 v0, v1, v2, v3 op_sel_hi:[1,1,0]", {
        (1, f16(1), 0): f32(2**-24), (f16(float("inf")), 0, ONE): QUIET, (0x7C01, 0, ONE): QUIET,
        (0x8000, f16(1), MINUS): MINUS}),
    (ALL, "v_fma_mix_f32 v0, -v1, |v2|, v3 op_sel_hi:[1,1,0]", {
        (f16(2), f16(-3), ONE): f32(-5)}),
    # Rounded to float32 first: a tie of float16 remains one.
    (ALL, "v_fma_mixlo_f16 v0, v1, v2, v3", {
        (ONE, f32(1 + 2**-11), f32(2**-40)): 0xAAAA3C00, (ONE, f32(1 + 3 * 2**-11), 0): 0xAAAA3C02,
        (ONE, f32(65520), 0): 0xAAAA7C00, (ONE, f32(2**-25), 0): 0xAAAA0000,
        (ONE, f32(3 * 2**-25), 0): 0xAAAA0002, (MINUS, ONE, MINUS): 0xAAAA8000,
        (NEAR, NEAR, f32(-1 - 2**-11)): 0xAAAA0001}),
    # float64
    (ALL, "v_add_f64 v[0:1], v[2:3], v[4:5]", {
        (INF64, INF64 | MINUS64): QUIET, (MINUS64, MINUS64): MINUS64, (1, 1): 2}),
    (ALL, "v_mul_f64 v[0:1], v[2:3], v[4:5]", {
        (f64(1e308), f64(10)): INF64, (1, f64(0.5)): 0, (3, f64(0.5)): 2, (INF64, 0): QUIET,
        (MINUS64, f64(1)): MINUS64}),
    (ALL, "v_fma_f64 v[0:1], v[2:3], v[4:5], v[6:7]", {
        (NEAR64, NEAR64, f64(-1)): NEAR64_SQUARE, (f64(2**-1022), f64(0.5), 0): 1 << 51,
        (INF64, 0, f64(1)): QUIET, (MINUS64, f64(1), MINUS64): MINUS64,
        (f64(2), f64(3), f64(1)): f64(7)}),
    ("gfx942", "v_mov_b64 v[0:1], v[6:7]; v_fmac_f64 v[0:1], v[2:3], v[4:5]", {
        (f64(-1), NEAR64, NEAR64): NEAR64_SQUARE, (f64(1), f64(2), f64(3)): f64(7)}),
    # float16, with the other half as older targets (zero) and newer ones (kept) leave it.
    ("gfx942", "v_mul_f16 v0, v1, v2", {
        (1, f16(0.5)): 0, (3, f16(0.5)): 2, (0x7BFF, f16(2)): 0x7C00, (0x3C01, 0x3C01): 0x3C02,
        (0xFFFF8000, f16(1)): 0x8000}),
    (RDNA, "v_mul_f16 v0, v1, v2", {
        (1, f16(0.5)): 0xAAAA0000, (3, f16(0.5)): 0xAAAA0002, (0x7BFF, f16(2)): 0xAAAA7C00}),
    ("gfx942", "v_pk_add_f16 v0, v1, v2", {
        (0x3C003C00, 0x40004200): 0x42004400, (0x00018000, 0x00018000): 0x00028000}),
    ("gfx1201", "v_pk_mul_f16 v0, v1, v2 op_sel:[1,0]", {(0x40003C00, 0x3C003C00): 0x40004000}),
    # Sums of two products of small numbers, rounded once; one into bfloat16 truncates.
    (RDNA, "v_dot2_bf16_bf16 v0, v1, v2, v3", {
        (0x3F8F, 0x3F8F, 0): 0xAAAA3F9F, (0xBF8F, 0x3F8F, 0): 0xAAAABF9F,
        (0x40003FC0, 0x3F004040, 0x3F80): 0xAAAA40D0, (1, 0x4980, 0): 0xAAAA0000,
        (0x7F80, 0x3F80, 0): 0xAAAA7F80}),
    (RDNA, "v_dot2_bf16_bf16 v0, v1, v2, v3 op_sel:[0,0,1,1]", {
        (0x40003FC0, 0x3F004040, 0x3F800000): 0x40D05555}),
    ("gfx950 gfx1100 gfx1201", "v_dot2_f32_bf16 v0, v1, v2, v3", {
        (0x40003FC0, 0x3F004040, ONE): f32(6.5)}),
    # The product is rounded before the sum; subnormals count as zero.
    ("gfx90a", "v_mad_f32 v0, v1, v1, v2", {
        (NEAR, f32(-1.0)): f32(2**-11), (f32(2**-70), TINY): 0, (ONE, TWO): f32(3.0)}),
    # A NaN comes out of these, a signalling one first.
    ("gfx950 gfx1201", "v_maximum3_f32 v0, v1, v2, v2", {
        (ONE, TWO): TWO, (NAN, ONE): NAN, (ONE, NAN): NAN, (NAN, SIGNALLING): QUIETED,
        (MINUS, 0): 0, (NINF, MINUS): MINUS}),
    ("gfx950 gfx1201", "v_minimum3_f32 v0, v1, v2, v2", {
        (ONE, TWO): ONE, (NAN, ONE): NAN, (NINF, NAN): NAN, (0, MINUS): MINUS}),
    ("gfx950", "v_pk_maximum3_f16 v0, v1, v2, v2", {
        (0x3C00_7E00, 0x4000_3C00): 0x4000_7E00, (0x8000_0000, 0x0000_8000): 0}),
    ("gfx950", "v_dot2_f32_bf16 v0, v1, v2, v3", {(1, 0x4980, 0): f32(2**-113)}),
    (RDNA, "v_dot2_f32_bf16 v0, v1, v2, v3", {(1, 0x4980, 0): 0}),
    ("gfx942 gfx1100 gfx1201", "v_dot2_f32_f16 v0, v1, v2, v3", {
        (0x40003E00, 0x38004200, ONE): f32(6.5), (0x8001, 0x0400, 0): f32(-(2**-38)),
        (0x3C003C00, 0x3C003C00, f32(2**24)): f32(2**24 + 2)}),
    ("gfx90a", "v_dot2_f32_f16 v0, v1, v2, v3", {(0x8001, 0x0400, 0): 0}),
    ("gfx942", "v_mov_b32 v0, v3; v_dot2c_f32_f16 v0, v1, v2", {
        (ONE, 0x40003E00, 0x38004200): f32(6.5)}),
    ("gfx1201", "v_dot4_f32_fp8_bf8 v0, v1, v2, v3", {(0x3C40, 0x443E, ONE): f32(10)}),
    (RDNA, "v_dot4_i32_iu8 v0, v1, v2, v3 neg_lo:[1,0,0]", {(0xFF, 0xFF, 5): -250 & ONES}),
    (RDNA, "v_dot4_i32_iu8 v0, v1, v2, v3", {(0xFF, 2, 5): 515}),
    # Divisions: a denominator or a numerator is scaled, VCC says which; then fused and mended.
    (ALL, "v_div_scale_f32 v0, vcc, v1, v2, v3; s_mov_b64 s[0:1], vcc", {
        (f32(3), f32(3), ONE): (f32(3), 0), (ONE, f32(3), ONE): (ONE, 0),
        (f32(2**-2), f32(2**-2), f32(2**100)): (f32(2**62), 1),
        (f32(2**100), f32(2**-2), f32(2**100)): (f32(2**100), 1),
        (TINY, TINY, f32(2**-100)): (f32(2**-85), 0),
        (ONE, ONE, 0): (MINUS | NAN, 1), (ONE, 0, ONE): (MINUS | NAN, 1),
        (f32(2**-120), f32(2**-110), f32(2**-120)): (f32(2**-56), 0),
        (f32(2**-100), f32(2**40), f32(2**-100)): (f32(2**-36), 1),
        (f32(2**40), f32(2**40), f32(2**-100)): (f32(2**40), 1),
        # At the ends: exponents that differ by 96, a numerator of exponent 24.
        (f32(2**96), ONE, f32(2**96)): (f32(2**96), 1), (ONE, ONE, f32(2**95)): (ONE, 0),
        (f32(2**-104), f32(2**-103), f32(2**-104)): (f32(2**-40), 0),
        (f32(2**-102), f32(2**-102), f32(2**-102)): (f32(2**-102), 0), **SCALED}),
    (ALL, "v_div_scale_f64 v[0:1], vcc, v[2:3], v[4:5], v[6:7]; s_mov_b64 s[0:1], vcc", {
        (f64(3), f64(3), f64(1)): (f64(3), 0),
        (f64(2**-2), f64(2**-2), f64(2**900)): (f64(2**126), 1),
        (1, 1, f64(2**-900)): (f64(2**-946), 0),
        (f64(2**-1000), f64(2**-990), f64(2**-1000)): (f64(2**-872), 0),
        (f64(2**-900), f64(2**140), f64(2**-900)): (f64(2**-772), 1),
        (f64(2**768), f64(1), f64(2**768)): (f64(2**768), 1),
        (f64(1), f64(1), f64(2**767)): (f64(1), 0),
        (f64(2**-970), f64(2**-969), f64(2**-970)): (f64(2**-842), 0),
        (f64(2**-969), f64(2**-969), f64(2**-969)): (f64(2**-969), 0)}),
    (ALL, "s_mov_b64 vcc, s[2:3]; v_div_fmas_f32 v0, v1, v2, v3", {
        (0, NEAR, NEAR, f32(-1)): NEAR_SQUARE, (0, TWO, f32(3), ONE): f32(7),
        # The scale of v_div_scale_f32 is undone; next to a tie of subnormals, rounded once.
        (1, 0, 0, TWO): f32(2**65), (1, 0, 0, f32(2**-60)): f32(2**-124),
        (1, f32(2**-70), f32(2**-70), f32(2**-86)): TINY,
        (1, f32(-(2**-70)), f32(2**-70), f32(3 * 2**-86)): TINY,
        (1, f32(2**-70), f32(2**-70), f32(-3 * 2**-86)): MINUS | TINY}),
    (ALL, "s_mov_b64 vcc, s[2:3]; v_div_fmas_f64 v[0:1], v[2:3], v[4:5], v[6:7]", {
        (0, NEAR64, NEAR64, f64(-1)): NEAR64_SQUARE, (0, f64(2), f64(3), f64(1)): f64(7),
        (1, 0, 0, f64(2)): f64(2**129), (1, 0, 0, f64(2**-60)): f64(2**-188)}),
    (ALL, "v_div_fixup_f32 v0, v1, v2, v3", {
        (f32(5), 0, 0): 0xFFC00000, (f32(5), INF, NINF): 0xFFC00000, (f32(5), MINUS, ONE): NINF,
        (f32(5), ONE, NINF): NINF, (f32(5), NINF, ONE): MINUS, (f32(5), f32(-3), 0): MINUS,
        (f32(5), ONE, SIGNALLING): QUIETED, (f32(5), SIGNALLING, ONE): QUIETED,
        (f32(5), SIGNALLING, NAN | 7): NAN | 7, (f32(5), f32(-(2**100)), TINY): MINUS,
        (f32(-2), ONE, ONE): TWO, (TWO, f32(-1), ONE): f32(-2),
        (TWO, f32(-1), f32(-3)): TWO,
        (NAN, HALF, TOP): INF, (NAN, f32(-0.5), TOP): NINF}),  # the chain overflowed
    (ALL, "v_div_fixup_f64 v[0:1], v[2:3], v[4:5], v[6:7]", {
        (f64(5), 0, 0): 0xFFF8 << 48, (f64(5), MINUS64, f64(1)): MINUS64 | INF64,
        (f64(5), MINUS64 | INF64, f64(1)): MINUS64, (f64(5), f64(1), INF64 | 1): 0x7FF8 << 48 | 1,
        (f64(5), INF64, INF64): 0xFFF8 << 48, (f64(-2), f64(1), f64(1)): f64(2),
        (f64(5), f64(-(2**1000)), 1): MINUS64, (f64(2), f64(-(2**30)), 1): f64(-2),
        (f64(2), f64(-1), f64(-3)): f64(2), (f64(5), INF64 | 1, f64(1)): QUIET64 | 1,
        (QUIET64, f64(-0.5), f64(1.7e308)): MINUS64 | INF64}),
    # Documents bound these to 1 ULP; subnormals count as zero.
    (ALL, "v_rcp_f32 v0, v1", {
        (MINUS,): NINF, (f32(2**-127),): INF, (NINF,): MINUS, (NAN,): QUIET, (f32(4),): f32(0.25),
        (f32(2**127),): 0}),
    (ALL, "v_rcp_iflag_f32 v0, v1", {
        (MINUS,): NINF, (f32(2**-127),): INF, (NINF,): MINUS, (NAN,): QUIET,
        (f32(-4),): f32(-0.25)}),
    ("gfx1201", "v_s_rcp_f32 s0, s1", {(MINUS,): NINF, (f32(4),): f32(0.25)}),
    (ALL, "v_rcp_f64 v[0:1], v[2:3]", {
        (MINUS64,): MINUS64 | INF64, (MINUS64 | INF64,): MINUS64, (INF64 | 1,): QUIET}),
    (ALL, "v_sqrt_f32 v0, v1", {
        (MINUS,): MINUS, (f32(-1),): QUIET, (INF,): INF, (f32(2**-140),): 0,
        (MINUS | TINY,): MINUS, (LEAST,): f32(2**-63), (f32(4),): TWO}),
    (ALL, "v_sqrt_f64 v[0:1], v[2:3]", {
        (MINUS64,): MINUS64, (f64(-1),): QUIET, (f64(4),): f64(2), (INF64,): INF64}),
    # Of turns, in any range (documents of CDNA 3, RDNA 3 and 4).
    (ALL, "v_sin_f32 v0, v1", {
        (f32(0.25),): ONE, (f32(-0.25),): f32(-1), (MINUS,): MINUS, (0xFF7FFFFF,): 0, (HALF,): 0,
        (f32(0.125),): 0x3F3504F3, (f32(2**20 + 0.125),): 0x3F3504F3, (INF,): QUIET,
        (NINF,): QUIET}),
    (ALL, "v_cos_f32 v0, v1", {
        (f32(0.25),): 0, (HALF,): f32(-1), (MINUS,): ONE, (0xFF7FFFFF,): ONE,
        (f32(-0.125),): 0x3F3504F3, (INF,): QUIET}),
    ("gfx942", "v_sin_f16 v0, v1", {(0x3400,): 0x3C00, (0x8000,): 0x8000, (0x7BFF,): 0}),
    (RDNA, "v_cos_f16 v0, v1", {(0x3400,): 0xAAAA0000, (0x8000,): 0xAAAA3C00}),
    # Below 1, also next to it.
    (ALL, "v_fract_f32 v0, v1", {(MINUS | f32(2**-30),): ONE - 1, (f32(-1.25),): f32(0.75)}),
    (ALL, "v_fract_f64 v[0:1], v[2:3]", {(f64(-(2**-60)),): f64(1) - 1, (f64(1.25),): f64(0.25)}),
    ("gfx942", "v_fract_f16 v0, v1", {(0x8001,): 0x3BFF, (0x3D00,): 0x3400}),
    ("gfx1201", "v_s_sqrt_f32 s0, s1", {(MINUS,): MINUS, (f32(9),): f32(3)}),
    (ALL, "v_exp_f32 v0, v1", {
        (f32(-150),): 0, (NINF,): 0, (INF,): INF, (NAN,): QUIET, (f32(128),): INF, (TINY,): ONE,
        (f32(-126),): LEAST, (f32(-127),): 0, (f32(3),): f32(8)}),
    (ALL, "v_log_f32 v0, v1", {
        (0,): NINF, (MINUS,): NINF, (TINY,): NINF, (f32(-1),): QUIET, (INF,): INF,
        (f32(8),): f32(3)}),
    # A number is preferred to NaN, and -0 is below +0; in the IEEE mode a signalling NaN comes out,
    # made quiet. Of two that are quiet already each family's text names another.
    ("gfx942", "v_max_f32 v0, v1, v2", {
        (NAN, ONE): ONE, (ONE, NAN): ONE, (SIGNALLING, ONE): QUIETED, (ONE, SIGNALLING): QUIETED,
        (NAN | 7, NAN | 9): NAN | 9, (NAN | 7, SIGNALLING): QUIETED, (MINUS, 0): 0, (0, MINUS): 0,
        (MINUS, MINUS): MINUS, (NINF, NAN): NINF}),
    ("gfx942", "v_min_f32 v0, v1, v2", {
        (0, MINUS): MINUS, (MINUS, 0): MINUS, (NAN | 7, NAN | 9): NAN | 9,
        (ONE, SIGNALLING): QUIETED, (INF, NAN): INF, (NINF, ONE): NINF}),
    ("gfx1100", "v_max_f32 v0, v1, v2", {
        (NAN, ONE): ONE, (ONE, NAN): ONE, (SIGNALLING, ONE): QUIETED, (ONE, SIGNALLING): QUIETED,
        (NAN | 7, NAN | 9): NAN | 7, (NAN | 7, SIGNALLING): QUIETED, (MINUS, 0): 0, (0, MINUS): 0}),
    ("gfx1100", "v_min_f32 v0, v1, v2", {
        (0, MINUS): MINUS, (MINUS, 0): MINUS, (NAN | 7, NAN | 9): NAN | 7,
        (ONE, SIGNALLING): QUIETED}),
    ("gfx1201", "v_max_num_f32 v0, v1, v2", {
        (SIGNALLING, ONE): ONE, (ONE, SIGNALLING): ONE, (NAN | 7, NAN | 9): NAN | 7,
        (SIGNALLING, NAN): QUIETED, (MINUS, 0): 0, (0, MINUS): 0}),
    ("gfx1201", "v_min_num_f32 v0, v1, v2", {
        (MINUS, 0): MINUS, (0, MINUS): MINUS, (ONE, SIGNALLING): ONE, (NAN | 7, NAN | 9): NAN | 7}),
    (OLD, "v_max3_f32 v0, v1, v2, v3", {
        (ONE, NAN, TWO): TWO, (NAN, NAN, ONE): ONE, (SIGNALLING, ONE, TWO): TWO,
        (ONE, TWO, SIGNALLING): QUIETED, (MINUS, 0, MINUS): 0, (MINUS, MINUS, MINUS): MINUS,
        (f32(-3), f32(-1), f32(-2)): f32(-1), (f32(5), ONE, TWO): f32(5)}),
    ("gfx942", "v_max3_f32 v0, v1, v2, v3", {(ONE, SIGNALLING, NAN): NAN}),
    ("gfx1100", "v_max3_f32 v0, v1, v2, v3", {(ONE, SIGNALLING, NAN): QUIETED}),
    ("gfx1201", "v_max3_num_f32 v0, v1, v2, v3", {
        (ONE, TWO, SIGNALLING): TWO, (SIGNALLING, NAN, SIGNALLING): QUIETED, (MINUS, 0, MINUS): 0,
        (f32(-3), f32(-1), f32(-2)): f32(-1), (f32(5), ONE, TWO): f32(5)}),
    (OLD, "v_min3_f32 v0, v1, v2, v3", {
        (0, MINUS, 0): MINUS, (ONE, TWO, SIGNALLING): QUIETED, (TWO, NAN, ONE): ONE,
        (f32(-5), ONE, TWO): f32(-5)}),
    ("gfx1100", "v_minmax_f32 v0, v1, v2, v3", {
        (f32(5), TWO, ONE): TWO, (f32(5), NAN, ONE): f32(5), (f32(3), f32(7), f32(5)): f32(5),
        (f32(5), TWO, SIGNALLING): QUIETED, (0, MINUS, MINUS): MINUS, (MINUS, MINUS, 0): 0}),
    ("gfx1100", "v_maxmin_f32 v0, v1, v2, v3", {
        (ONE, TWO, f32(5)): TWO, (NAN, TWO, f32(5)): TWO, (ONE, TWO, MINUS): MINUS,
        (ONE, TWO, SIGNALLING): QUIETED, (MINUS, 0, 0): 0, (TWO, ONE, f32(5)): TWO}),
    ("gfx1201", "v_minmax_num_f32 v0, v1, v2, v3", {
        (f32(5), TWO, SIGNALLING): TWO, (f32(3), f32(7), f32(5)): f32(5), (MINUS, MINUS, 0): 0}),
    ("gfx1201", "v_maxmin_num_f32 v0, v1, v2, v3", {
        (SIGNALLING, TWO, f32(5)): TWO, (ONE, TWO, MINUS): MINUS, (TWO, ONE, f32(5)): TWO}),
    (OLD, "v_med3_f32 v0, v1, v2, v3", {
        (f32(5), ONE, TWO): TWO, (NAN, TWO, ONE): ONE, (SIGNALLING, TWO, ONE): ONE,
        (ONE, TWO, SIGNALLING): QUIETED, (MINUS, 0, f32(-1)): 0, (0, MINUS, f32(-1)): MINUS,
        (NINF, f32(5), INF): f32(5), **dict.fromkeys(permutations((ONE, TWO, f32(5))), TWO)}),
    ("gfx1201", "v_med3_num_f32 v0, v1, v2, v3", {
        (ONE, TWO, SIGNALLING): ONE, (TWO, NAN, ONE): ONE, (0, MINUS, f32(-1)): MINUS,
        **dict.fromkeys(permutations((ONE, TWO, f32(5))), TWO)}),
    # To whole numbers of float32
    (ALL, "v_ceil_f32 v0, v1", {
        (f32(-0.5),): MINUS, (HALF,): ONE, (TINY,): ONE, (MINUS | TINY,): MINUS, (MINUS,): MINUS,
        (f32(2**23 - 0.5),): f32(2**23), (NINF,): NINF, (SIGNALLING,): QUIET, (f32(-2.5),): f32(-2),
        (TWO,): TWO}),
    (ALL, "v_floor_f32 v0, v1", {
        (f32(-0.5),): f32(-1), (HALF,): 0, (TINY,): 0, (MINUS | TINY,): f32(-1), (MINUS,): MINUS,
        (NINF,): NINF, (NAN,): QUIET, (f32(2.7),): TWO, (f32(-2),): f32(-2)}),
    (ALL, "v_trunc_f32 v0, v1", {
        (f32(-0.5),): MINUS, (f32(-2.9),): f32(-2), (f32(2**23 - 0.5),): f32(2**23 - 1),
        (INF,): INF, (SIGNALLING,): QUIET}),
    (ALL, "v_rndne_f32 v0, v1", {
        (f32(2.5),): TWO, (f32(3.5),): f32(4), (f32(-0.5),): MINUS, (HALF - 1,): 0,
        (HALF + 1,): ONE, (f32(2**23 - 0.5),): f32(2**23), (NINF,): NINF, (NAN,): QUIET}),
    # Comparisons: with NaN only those that deny hold.
    (ALL, "v_cmp_gt_f32 s[0:1], v1, v2", {
        (NAN, ONE): 0, (0, MINUS): 0, (INF, TOP): 1, (TINY, 0): 1}),
    (ALL, "v_cmp_gt_f32 s[0:1], -v1, |v2|", {(f32(-3), f32(-2)): 1}),
    (ALL, "v_cmp_ge_f32 s[0:1], v1, v2", {(MINUS, 0): 1, (NAN, NAN): 0, (ONE, TWO): 0}),
    (ALL, "v_cmp_lt_f32 s[0:1], v1, v2", {
        (MINUS, 0): 0, (ONE, NAN): 0, (NINF, MINUS | TOP): 1, (MINUS | TINY, 0): 1}),
    (ALL, "v_cmp_ngt_f32 s[0:1], v1, v2", {
        (NAN, ONE): 1, (ONE, SIGNALLING): 1, (ONE, TWO): 1, (TWO, ONE): 0, (0, MINUS): 1}),
    # NaN is neither less nor greater than a number.
    (ALL, "v_cmp_lg_f32 s[0:1], v1, v2", {(ONE, NAN): 0, (ONE, TWO): 1, (ONE, ONE): 0}),
    (ALL, "v_cmp_nlg_f32 s[0:1], v1, v2", {(ONE, NAN): 1, (ONE, TWO): 0, (ONE, ONE): 1}),
    (ALL, "v_cmp_neq_f32 s[0:1], v1, v2", {(ONE, NAN): 1, (ONE, ONE): 0}),
    (ALL, "v_cmp_nlt_f32 s[0:1], v1, v2", {
        (NAN, ONE): 1, (ONE, NAN): 1, (ONE, TWO): 0, (MINUS, 0): 1}),
    (ALL, "v_cmp_o_f32 s[0:1], v1, v2", {(NAN, ONE): 0, (ONE, SIGNALLING): 0, (INF, NINF): 1}),
    (ALL, "v_cmp_u_f32 s[0:1], v1, v2", {(NAN, ONE): 1, (ONE, SIGNALLING): 1, (INF, NINF): 0}),
    (ALL, "v_cmp_class_f32 s[0:1], v1, v2", {
        (SIGNALLING, 1): 1, (SIGNALLING, ~1 & ONES): 0, (NAN, 2): 1, (NAN, ~2 & ONES): 0,
        (NINF, 4): 1, (NINF, ~4 & ONES): 0, (f32(-1), 8): 1, (f32(-1), ~8 & ONES): 0,
        (MINUS | (LEAST - 1), 0x10): 1, (MINUS | TINY, ~0x10 & ONES): 0, (MINUS, 0x20): 1,
        (MINUS, ~0x20 & ONES): 0, (0, 0x40): 1, (0, ~0x40 & ONES): 0, (LEAST - 1, 0x80): 1,
        (TINY, ~0x80 & ONES): 0, (LEAST, 0x100): 1, (TOP, ~0x100 & ONES): 0, (INF, 0x200): 1,
        (INF, ~0x200 & ONES): 0}),
    (ALL, "v_cmp_eq_u32 s[0:1], v1, v2", {(MINUS, MINUS): 1, (0, MINUS): 0}),
    (ALL, "v_cmp_ne_u32 s[0:1], v1, v2", {(MINUS, MINUS): 0, (0, MINUS): 1}),
    (ALL, "v_cmp_gt_i32 s[0:1], v1, v2", {(TOP, MINUS): 1, (MINUS, 0): 0, (5, 5): 0}),
    (ALL, "v_cmp_gt_u32 s[0:1], v1, v2", {(TOP, MINUS): 0, (MINUS, 0): 1, (5, 5): 0}),
    (ALL, "v_cmp_ge_i32 s[0:1], v1, v2", {(MINUS, 0): 0, (0, ONES): 1, (5, 5): 1}),
    (ALL, "v_cmp_le_i32 s[0:1], v1, v2", {(MINUS, 0): 1, (0, ONES): 0, (5, 5): 1}),
    (ALL, "v_cmp_le_u32 s[0:1], v1, v2", {(MINUS, 0): 0, (0, ONES): 1, (5, 5): 1}),
    (ALL, "v_cmp_lt_i32 s[0:1], v1, v2", {(ONES, 0): 1, (0, MINUS): 0, (5, 5): 0}),
    (ALL, "v_cmp_lt_u32 s[0:1], v1, v2", {(ONES, 0): 0, (0, MINUS): 1, (5, 5): 0}),
    (ALL, "v_cmp_ne_u16 s[0:1], v1, v2", {(0x10001, 0x20001): 0, (0x10001, 0x10002): 1}),
    (ALL, "v_cmp_gt_i64 s[0:1], v[2:3], v[4:5]", {
        (1, ONES64): 1, (1 << 32, ONES): 1, (MINUS64, 0): 0, (5, 5): 0}),
    (ALL, "v_cmp_eq_u64 s[0:1], v[2:3], v[4:5]", {
        (MINUS64, 0): 0, (MINUS64 | 1, MINUS64): 0, (MINUS64, MINUS64): 1}),
    (ALL, "v_cmp_ne_u64 s[0:1], v[2:3], v[4:5]", {
        (MINUS64, 0): 1, (MINUS64 | 1, MINUS64): 1, (MINUS64, MINUS64): 0}),
    (RDNA, "v_cmpx_eq_u32 v1, v2; s_mov_b64 s[0:1], exec", {(MINUS, MINUS): 1, (0, MINUS): 0}),
    (RDNA, "v_cmpx_ne_u32 v1, v2; s_mov_b64 s[0:1], exec", {(MINUS, MINUS): 0, (0, MINUS): 1}),
    (RDNA, "v_cmpx_gt_i32 v1, v2; s_mov_b64 s[0:1], exec", {
        (TOP, MINUS): 1, (MINUS, 0): 0, (5, 5): 0}),
    (RDNA, "v_cmpx_gt_u32 v1, v2; s_mov_b64 s[0:1], exec", {
        (TOP, MINUS): 0, (MINUS, 0): 1, (5, 5): 0}),
    (RDNA, "v_cmpx_le_i32 v1, v2; s_mov_b64 s[0:1], exec", {
        (MINUS, 0): 1, (0, ONES): 0, (5, 5): 1}),
    (RDNA, "v_cmpx_lt_i32 v1, v2; s_mov_b64 s[0:1], exec", {(ONES, 0): 1, (5, 5): 0}),
    (RDNA, "v_cmpx_lt_u32 v1, v2; s_mov_b64 s[0:1], exec", {
        (ONES, 0): 0, (0, MINUS): 1, (5, 5): 0}),
    (RDNA, "v_cmpx_gt_i64 v[2:3], v[4:5]; s_mov_b64 s[0:1], exec", {
        (1, ONES64): 1, (MINUS64, 0): 0, (5, 5): 0}),
    (RDNA, "v_cmpx_ne_u64 v[2:3], v[4:5]; s_mov_b64 s[0:1], exec", {
        (MINUS64, 0): 1, (MINUS64, MINUS64): 0}),
    ("gfx942", "v_cmpx_gt_i32 vcc, v1, v2; s_mov_b64 s[0:1], exec", {(TOP, MINUS): 1, (5, 5): 0}),
    (ALL, "v_cndmask_b32 v0, v1, v2, s[2:3]", {
        (SIGNALLING, 7, 0): SIGNALLING, (5, SIGNALLING, 1): SIGNALLING}),
    (ALL, "v_cndmask_b32 v0, -v1, |v2|, s[2:3]", {
        (ONE, f32(-2), 0): f32(-1), (ONE, f32(-2), 1): TWO}),
    # Conversions
    (ALL, "v_cvt_f32_u32 v0, v1", {
        (ONES,): f32(2**32), (2**24 + 1,): f32(2**24), (2**24 + 3,): f32(2**24 + 4),
        (MINUS,): f32(2**31)}),
    (ALL, "v_cvt_f32_i32 v0, v1", {(MINUS,): f32(-(2**31)), (MINUS - 1,): f32(2**31)}),
    (ALL, "v_cvt_u32_f32 v0, v1", {
        (NAN,): 0, (f32(-1),): 0, (f32(-0.9),): 0, (NINF,): 0, (INF,): ONES, (f32(2**32),): ONES,
        (f32(2**32 - 256),): ONES - 255, (f32(2.9),): 2}),
    (ALL, "v_cvt_i32_f32 v0, v1", {
        (NAN,): 0, (f32(3e9),): MINUS - 1, (f32(-2.9),): ONES - 1, (NINF,): MINUS,
        (f32(-(2**31)),): MINUS, (f32(2**31 - 128),): MINUS - 128}),
    (ALL, "v_cvt_f32_ubyte0 v0, v1", {(0x80FF017F,): f32(127)}),
    (ALL, "v_cvt_f32_ubyte1 v0, v1", {(0x80FF017F,): ONE}),
    (ALL, "v_cvt_f32_ubyte2 v0, v1", {(0x80FF017F,): f32(255)}),
    (ALL, "v_cvt_f32_ubyte3 v0, v1", {(0x80FF017F,): f32(128)}),
    (ALL, "v_cvt_f32_f16 v0, v1", {
        (0x7C01,): 0x7FC02000, (1,): f32(2**-24), (0x83FF,): f32(-1023 * 2**-24), (0xFC00,): NINF,
        (0x3C008000,): MINUS}),
    ("gfx942", "v_cvt_f16_f32 v0, v1", {
        (f32(1 + 2**-11),): 0x3C00, (f32(65519),): 0x7BFF, (f32(65520),): 0x7C00,
        (f32(2**-25),): 0, (f32(2**-25) + 1,): 1, (f32(3 * 2**-25),): 2, (MINUS | TINY,): 0x8000}),
    (RDNA, "v_cvt_f16_f32 v0, v1", {
        (f32(1 + 3 * 2**-11),): 0xAAAA3C02, (f32(-65520),): 0xAAAAFC00}),
    ("gfx942", "v_cvt_pkrtz_f16_f32 v0, v1, v2", {
        (f32(65535), f32(-1.9999)): 0xBFFF7BFF, (ONE, f32(-2)): 0xC0003C00,
        (INF, MINUS): 0x80007C00}),
    # Ties, a -0, NaN and what is too large, in the format of each target.
    ("gfx942", "v_cvt_pk_fp8_f32 v0, v1, v2", {
        (f32(240), f32(-0.0)): 0xAAAA007F, (f32(248), NAN): 0xAAAA8080,
        (f32(17), f32(19)): 0xAAAA6260, (f32(2**-11), f32(3 * 2**-11)): 0xAAAA0200,
        (f32(-(2**-12)), f32(-(2**-10))): 0xAAAA8100, (NINF, SIGNALLING): 0xAAAA8080}),
    ("gfx950", "v_cvt_pk_fp8_f32 v0, v1, v2", {
        (f32(448), f32(-0.0)): 0xAAAA807E, (f32(464), f32(465)): 0xAAAA7F7E,
        (NINF, SIGNALLING): 0xAAAA7FFF, (f32(2**-10), f32(-3 * 2**-10)): 0xAAAA8200}),
    ("gfx1201", "v_cvt_pk_fp8_f32 v0, v1, v2", {(f32(2**-10), f32(3 * 2**-10)): 0xAAAA0200}),
    ("gfx1201", "v_cvt_pk_fp8_f32 v0, v1, v2 op_sel:[0,0,1]", {(f32(17), f32(500)): 0x7F585555}),
    ("gfx942", "v_cvt_pk_bf8_f32 v0, v1, v2", {
        (f32(57344), f32(61440)): 0xAAAA807F, (f32(2**-18), f32(3 * 2**-18)): 0xAAAA0200,
        (ONE, f32(-0.0)): 0xAAAA0040}),
    ("gfx950 gfx1201", "v_cvt_pk_bf8_f32 v0, v1, v2", {
        (f32(57344), f32(61440)): 0xAAAA7C7B, (f32(2**-17), f32(3 * 2**-17)): 0xAAAA0200,
        (ONE, f32(-0.0)): 0xAAAA803C}),
    ("gfx942", "v_cvt_pk_fp8_f32 v0, v1, v2 op_sel:[0,0,1]", {(ONE, TWO): 0x48405555}),
    ("gfx942", "v_cvt_pk_bf8_f32 v0, v1, v2 op_sel:[0,0,1]", {(ONE, TWO): 0x44405555}),
    ("gfx942", "v_cvt_f32_fp8 v0, v1", {
        (0x80,): QUIET, (0x7F,): f32(240), (0x81,): f32(-(2**-10))}),
    ("gfx950 gfx1201", "v_cvt_f32_fp8 v0, v1", {
        (0x80,): MINUS, (0xFF,): QUIET, (0x7E,): f32(448), (0x81,): f32(-(2**-9))}),
    ("gfx942", "v_cvt_f32_bf8 v0, v1", {(0x80,): QUIET, (0x7F,): f32(57344)}),
    ("gfx950 gfx1201", "v_cvt_f32_bf8 v0, v1", {
        (0x80,): MINUS, (0x7C,): INF, (0xFC,): NINF, (0x7D,): QUIET, (0x81,): f32(-(2**-16))}),
    # A scaled conversion divides by a power of two, and multiplies with one.
    ("gfx950", "v_cvt_scalef32_pk_fp8_f32 v0, v1, v2, v3", {
        (f32(34), f32(-38), TWO): 0xAAAADA58, (f32(34), f32(-38), f32(3)): 0xAAAADA58,
        (f32(448 * 4), f32(2**-10), f32(4)): 0xAAAA007E}),
    ("gfx950", "v_cvt_scalef32_f32_fp8 v0, v1, v2", {(0x58, TWO): f32(32)}),
    ("gfx950", "v_cvt_scalef32_pk_f32_fp4 v[0:1], v1, v2", {
        (0xF3, TWO): pair(f32(3), f32(-12)), (0x80, HALF): pair(0, MINUS)}),
    ("gfx950", "v_cvt_scalef32_pk_f16_fp4 v0, v1, v2", {
        (0x91, HALF): f16(-0.25) << 16 | f16(0.25)}),
    ("gfx950", "v_cvt_scalef32_pk_bf16_fp4 v0, v1, v2 op_sel:[1,0,0]", {
        (0xAAAA72AA, f32(3)): 0x41404000}),
    ("gfx950", "v_cvt_scalef32_pk_bf16_fp4 v0, v1, v2 op_sel:[0,1,0]", {
        (0xAA72AAAA, ONE): 0x40C03F80}),
    (ALL, "v_ldexp_f32 v0, v1, v2", {
        (f32(1.5), -150 & ONES): TINY, (f32(1.5), -149 & ONES): 2, (ONE, -150 & ONES): 0,
        (TINY, 149): ONE, (TOP, 1): INF, (ONE, MINUS - 1): INF, (f32(-1), MINUS): MINUS,
        (MINUS, 5): MINUS, (SIGNALLING, 0): QUIET}),
    (ALL, "v_frexp_exp_i32_f32 v0, v1", {
        (TINY,): -148 & ONES, (INF,): 0, (NAN,): 0, (ONE,): 1, (HALF,): 0, (TOP,): 128}),
    (ALL, "v_frexp_mant_f32 v0, v1", {
        (f32(8),): HALF, (f32(-6),): f32(-0.75), (NINF,): NINF, (TINY,): HALF, (MINUS,): MINUS,
        (INF,): INF, (NAN,): QUIET}),
    # Integers wrap around; shifts and places take the low bits of their amount.
    ("gfx942", "v_add_u32 v0, v1, v2", {(ONES, 2): 1}),
    (RDNA, "v_add_nc_u32 v0, v1, v2", {(ONES, 2): 1}),
    ("gfx942", "v_sub_u32 v0, v1, v2", {(0, 1): ONES}),
    (RDNA, "v_sub_nc_u32 v0, v1, v2", {(0, 1): ONES}),
    ("gfx942", "v_subrev_u32 v0, v1, v2", {(5, 3): ONES - 1}),
    (RDNA, "v_subrev_nc_u32 v0, v1, v2", {(5, 3): ONES - 1}),
    ("gfx942", "v_add_u16 v0, v1, v2", {(0xFFFF, 2): 1}),
    (RDNA, "v_add_nc_u16 v0, v1, v2", {(0xFFFF, 2): 0xAAAA0001}),
    (RDNA, "v_add_nc_u16 v0, v1, v2 op_sel:[1,0,1]", {(0x30007, 0x50001): 0x45555}),
    (ALL, "v_add3_u32 v0, v1, v2, v3", {(ONES, ONES, 3): 1, (1, 2, 4): 7}),
    (ALL, "v_add_co_u32 v0, s[0:1], v1, v2", {(ONES, 1): (0, 1), (ONES - 1, 1): (ONES, 0)}),
    ("gfx942", "v_addc_co_u32 v0, s[0:1], v1, v2, s[2:3]", {
        (ONES, 0, 1): (0, 1), (ONES, ONES, 1): (ONES, 1), (ONES, 0, 0): (ONES, 0)}),
    (RDNA, "v_add_co_ci_u32 v0, s[0:1], v1, v2, s[2:3]", {
        (ONES, 0, 1): (0, 1), (ONES, ONES, 1): (ONES, 1), (ONES, 0, 0): (ONES, 0)}),
    (ALL, "v_sub_co_u32 v0, s[0:1], v1, v2", {(0, 1): (ONES, 1), (1, 1): (0, 0)}),
    (ALL, "v_subrev_co_u32 v0, s[0:1], v1, v2", {(1, 0): (ONES, 1), (1, 1): (0, 0)}),
    ("gfx942", "v_subb_co_u32 v0, s[0:1], v1, v2, s[2:3]", {
        (0, 0, 1): (ONES, 1), (5, ONES, 1): (5, 1), (1, 0, 1): (0, 0)}),
    (RDNA, "v_sub_co_ci_u32 v0, s[0:1], v1, v2, s[2:3]", {
        (0, 0, 1): (ONES, 1), (5, ONES, 1): (5, 1), (1, 0, 1): (0, 0)}),
    ("gfx942", "v_subbrev_co_u32 v0, s[0:1], v1, v2, s[2:3]", {
        (0, 0, 1): (ONES, 1), (ONES, 5, 1): (5, 1), (0, 1, 1): (0, 0)}),
    (RDNA, "v_subrev_co_ci_u32 v0, s[0:1], v1, v2, s[2:3]", {
        (0, 0, 1): (ONES, 1), (ONES, 5, 1): (5, 1), (0, 1, 1): (0, 0)}),
    (ALL, "v_add_lshl_u32 v0, v1, v2, v3", {(ONES, 2, 33): 2}),
    (ALL, "v_lshl_add_u32 v0, v1, v2, v3", {(3, 33, ONES): 5}),
    ("gfx942", "v_lshl_add_u64 v[0:1], v[2:3], v1, v[4:5]", {
        (MINUS64 | 1, 9, 1): 3, (ONES, 0, 1): 1 << 32}),
    (ALL, "v_lshl_or_b32 v0, v1, v2, v3", {(3, 33, 0x10): 0x16}),
    (ALL, "v_and_or_b32 v0, v1, v2, v3", {(0xF0F0, 0xFF00, 0xF): 0xF00F}),
    (ALL, "v_or3_b32 v0, v1, v2, v3", {(1, MINUS, 0x10): 0x80000011}),
    (ALL, "v_xad_u32 v0, v1, v2, v3", {(ONES, 0, 2): 1, (5, 3, ONES): 5}),
    (ALL, "v_and_b32 v0, v1, v2", {(0xF0F0AAAA, 0xFF00CCCC): 0xF0008888}),
    (ALL, "v_or_b32 v0, v1, v2", {(0xF0F0AAAA, 0xFF00CCCC): 0xFFF0EEEE}),
    (ALL, "v_xor_b32 v0, v1, v2", {(0xF0F0AAAA, 0xFF00CCCC): 0x0FF06666}),
    (ALL, "v_not_b32 v0, v1", {(0xF0F0AAAA,): 0x0F0F5555}),
    (ALL, "v_bfi_b32 v0, v1, v2, v3", {(0x00FF00FF, 0x12345678, 0xABCDEF01): 0xAB34EF78}),
    # Each bit of 0b11110000, 0b11001100 and 0b10101010 asks for a bit of the truth table.
    ("gfx950", "v_bitop3_b32 v0, v1, v2, v3 bitop3:0x1b", {
        (0xF0F0F0F0, 0xCCCCCCCC, 0xAAAAAAAA): 0x1B1B1B1B}),
    ("gfx950", "v_bitop3_b32 v0, v1, v2, v3 bitop3:0x96", {
        (0xF0F0F0F0, 0xCCCCCCCC, 0xAAAAAAAA): 0x96969696}),
    ("gfx950", "v_bitop3_b32 v0, v1, v2, v3 bitop3:0", {
        (0xF0F0F0F0, 0xCCCCCCCC, 0xAAAAAAAA): 0}),
    ("gfx950", "v_bitop3_b16 v0, v1, v2, v3 bitop3:0x8e; v_and_b32 v0, 0xffff, v0", {
        (0xF0F0F0F0, 0xCCCCCCCC, 0xAAAAAAAA): 0x8E8E}),
    (ALL, "v_lshlrev_b32 v0, v1, v2", {(33, 3): 6, (31, 3): MINUS}),
    (ALL, "v_lshrrev_b32 v0, v1, v2", {(33, MINUS): MINUS >> 1, (31, MINUS): 1}),
    (ALL, "v_ashrrev_i32 v0, v1, v2", {(33, MINUS): 0xC0000000, (31, MINUS): ONES}),
    (ALL, "v_lshlrev_b64 v[0:1], v1, v[2:3]", {(65, MINUS64 | 1): 2, (63, 3): MINUS64}),
    (ALL, "v_lshrrev_b64 v[0:1], v1, v[2:3]", {(65, MINUS64): MINUS64 >> 1, (32, MINUS64): MINUS}),
    (ALL, "v_ashrrev_i64 v[0:1], v1, v[2:3]", {(127, MINUS64): ONES64}),
    ("gfx942", "v_lshlrev_b16 v0, v1, v2", {(18, 0xFFFF8001): 4}),
    (RDNA, "v_lshlrev_b16 v0, v1, v2", {(18, 0xFFFF8001): 0xAAAA0004}),
    ("gfx942", "v_lshrrev_b16 v0, v1, v2", {(18, 0xFFFF8001): 0x2000}),
    (RDNA, "v_lshrrev_b16 v0, v1, v2", {(18, 0xFFFF8001): 0xAAAA2000}),
    (ALL, "v_bfe_i32 v0, v1, v2, v3", {
        (0xF0, 4, 4): ONES, (MINUS, 28, 8): ONES - 7, (0xFF, 36, 36): ONES, (0x12345678, 0, 0): 0,
        (0x40000000, 30, 2): 1, (MINUS, 30, 2): ONES - 1, (0x40000000, 0, 31): 0xC0000000}),
    (ALL, "v_bfe_u32 v0, v1, v2, v3", {
        (0xF0, 4, 0): 0, (0xF0000000, 28, 8): 0xF, (0x12345678, 36, 36): 7,
        (ONES, 1, 31): ONES >> 1}),
    (ALL, "v_alignbit_b32 v0, v1, v2, v3", {
        (0x11223344, 0x55667788, 36): 0x45566778, (0x11223344, 0x55667788, 0): 0x55667788}),
    (ALL, "v_alignbyte_b32 v0, v1, v2, v3", {(0x11223344, 0x55667788, 7): 0x22334455}),
    (ALL, "v_perm_b32 v0, v1, v2, v3", {
        (0x44332211, 0x88776655, 0xC0D0400): 0x00FF1155,
        (0x00008000, 0x80000055, 0x0B0A0908): 0x00FFFF00,
        (0x11000000, 0x8000, 0x200D0C07): 0xFFFF0011}),
    ("gfx942", "v_ffbh_u32 v0, v1", {(0,): ONES, (1,): 31, (MINUS,): 0}),
    (RDNA, "v_clz_i32_u32 v0, v1", {(0,): ONES, (1,): 31, (MINUS,): 0}),
    (ALL, "v_bfrev_b32 v0, v1", {(0x80000001,): 0x80000001, (0x12,): 0x48000000}),
    (ALL, "v_mul_lo_u32 v0, v1, v2", {(ONES, 3): ONES - 2, (1 << 16, 1 << 16): 0}),
    (ALL, "v_mul_hi_u32 v0, v1, v2", {(ONES, ONES): ONES - 1, (MINUS, 6): 3}),
    (ALL, "v_mul_u32_u24 v0, v1, v2", {
        (0xFF000003, 5): 15, (0xFFFFFF, 0xFFFFFF): (0xFFFFFF**2) & ONES}),
    (OLD, "v_mad_u64_u32 v[0:1], s[0:1], v1, v2, v[4:5]", {
        (5, 3, 1): (16, 0), (ONES, ONES, ONES64): (0xFFFFFFFE << 32, 1),
        (ONES, ONES, 0x1FFFFFFFE): (ONES64, 0)}),
    ("gfx1201", "v_mad_co_u64_u32 v[0:1], s[0:1], v1, v2, v[4:5]", {
        (5, 3, 1): (16, 0), (ONES, ONES, ONES64): (0xFFFFFFFE << 32, 1),
        (ONES, ONES, 0x1FFFFFFFE): (ONES64, 0)}),
    (OLD, "v_mad_i64_i32 v[0:1], s[0:1], v1, v2, v[4:5]", {
        (ONES, 1, 1): (0, 0), (ONES, 1, 0): (ONES64, 1), (ONES, 1, ONES64): (ONES64 - 1, 1),
        (1, 1, ONES64): (0, 0), (MINUS, MINUS, MINUS64 - 1):
            (0xBFFFFFFF << 32 | ONES, 0)}),
    ("gfx1201", "v_mad_co_i64_i32 v[0:1], s[0:1], v1, v2, v[4:5]", {
        (ONES, 1, 1): (0, 0), (ONES, 1, 0): (ONES64, 1), (ONES, 1, ONES64): (ONES64 - 1, 1),
        (1, 1, ONES64): (0, 0), (MINUS, MINUS, MINUS64 - 1):
            (0xBFFFFFFF << 32 | ONES, 0)}),
    (ALL, "v_max_i32 v0, v1, v2", {
        (MINUS, MINUS - 1): MINUS - 1, (MINUS - 1, MINUS): MINUS - 1}),
    (ALL, "v_min_i32 v0, v1, v2", {
        (MINUS, MINUS - 1): MINUS, (MINUS - 1, MINUS): MINUS}),
    (ALL, "v_max_u32 v0, v1, v2", {
        (MINUS, MINUS - 1): MINUS, (MINUS - 1, MINUS): MINUS}),
    (ALL, "v_min_u32 v0, v1, v2", {
        (MINUS, MINUS - 1): MINUS - 1, (MINUS - 1, MINUS): MINUS - 1}),
    # In the last lane of a wave: it counts the bits of those below.
    ("gfx942", "v_mbcnt_lo_u32_b32 v0, v1, v2", {(0xF0F0F0F0, 7): 23}),
    ("gfx942", "v_mbcnt_hi_u32_b32 v0, v1, v2", {(0xF0F0F0F0, 7): 22}),
    (RDNA, "v_mbcnt_lo_u32_b32 v0, v1, v2", {(0xF0F0F0F0, 7): 22}),
    (RDNA, "v_mbcnt_hi_u32_b32 v0, v1, v2", {(0xF0F0F0F0, 7): 7}),
    # A part of a source and of the result (SDWA): the modifiers are of that part.
    ("gfx942", ("v_and_b32_sdwa v0, v1, v2 dst_sel:WORD_1 dst_unused:UNUSED_PRESERVE"
     " src0_sel:BYTE_3 src1_sel:DWORD"), {(0xAB000000, 0xFF): 0x00AB5555}),
    ("gfx942", ("v_or_b32_sdwa v0, v1, v2 dst_sel:BYTE_1 dst_unused:UNUSED_PAD"
     " src0_sel:WORD_1 src1_sel:BYTE_0"), {(0x12340000, 0xFF): 0xFF00}),
    ("gfx942", ("v_lshlrev_b32_sdwa v0, v1, v2 dst_sel:DWORD dst_unused:UNUSED_PAD"
     " src0_sel:BYTE_1 src1_sel:WORD_1"), {(0x2100, 0x80010000): 0x10002}),
    ("gfx942", ("v_add_u32_sdwa v0, sext(v1), v2 dst_sel:DWORD dst_unused:UNUSED_PAD"
     " src0_sel:BYTE_0 src1_sel:DWORD"), {(0xF0, 1): 0xFFFFFFF1, (0x70, 1): 0x71}),
    ("gfx942", ("v_mul_f32_sdwa v0, |v1|, -v2 dst_sel:DWORD dst_unused:UNUSED_PAD"
     " src0_sel:DWORD src1_sel:DWORD"), {(f32(-3), f32(2)): f32(-6)}),
    ("gfx942", "v_cvt_f32_f16_sdwa v0, -v1 dst_sel:DWORD dst_unused:UNUSED_PAD src0_sel:WORD_1", {
        (0x3C000000,): f32(-1)}),
    ("gfx942", ("v_mul_f16_sdwa v0, v1, v2 dst_sel:WORD_1 dst_unused:UNUSED_PRESERVE"
     " src0_sel:WORD_1 src1_sel:WORD_0"), {(0x40000000, 0x4200): 0x46005555}),
    ("gfx942", ("v_cmp_eq_u32_sdwa vcc, v1, v2 src0_sel:BYTE_0 src1_sel:BYTE_1;"
     " s_mov_b64 s[0:1], vcc"), {(0x12, 0x1234): 1, (0x12, 0x1312): 0}),
    ("gfx1201", "v_cvt_f32_fp8_dpp v0, v1 quad_perm:[0,0,0,0] row_mask:0xf bank_mask:0xf", {
        (0x3C,): f32(1.5)}),
    # From one lane to another: of numbers that say which it is, what the last lane gets.
    ("gfx942", LANE + "v_readlane_b32 s0, v4, s1", {(0, 69): 5, (0, 63): 63}),
    (RDNA, LANE + "v_readlane_b32 s0, v4, s1", {(0, 37): 5, (0, 63): 31}),
    ("gfx942", "v_writelane_b32 v0, 7, s2", {(127,): 7, (62,): BEFORE}),
    (RDNA, "v_writelane_b32 v0, s1, s2", {(7, 63): 7, (7, 30): BEFORE}),
    ("gfx942", LANE + "s_mov_b32 exec_lo, s1; s_mov_b32 exec_hi, s2; v_readfirstlane_b32 s0, v4", {
        (0, 0x28, 1): 3, (0, 0, 0x10): 36, (0, 0, 0): 0}),
    (RDNA, LANE + "s_mov_b32 exec_lo, s1; v_readfirstlane_b32 s0, v4", {
        (0, 0x28): 3, (0, MINUS): 31, (0, 0): 0}),
    (RDNA, LANE + "v_permlane16_b32 v0, v4, s1, s2", {(0, 0, 0xA0000000): 26}),
    (RDNA, LANE + "v_permlanex16_b32 v0, v4, s1, s2", {(0, 0, 0xA0000000): 10}),
    ("gfx942", LANE + "v_mov_b32_dpp v0, v4 row_shr:1", {(0,): 62}),
    ("gfx942", LANE + "v_mov_b32_dpp v0, v4 row_shl:1", {(0,): BEFORE}),
    ("gfx942", LANE + "v_mov_b32_dpp v0, v4 row_shl:1 bound_ctrl:0", {(0,): 0}),
    ("gfx942", LANE + "v_mov_b32_dpp v0, v4 row_ror:3", {(0,): 60}),
    ("gfx942", LANE + "v_mov_b32_dpp v0, v4 row_mirror", {(0,): 48}),
    ("gfx942", LANE + "v_mov_b32_dpp v0, v4 row_half_mirror", {(0,): 56}),
    ("gfx942", LANE + "v_mov_b32_dpp v0, v4 row_bcast:15", {(0,): 47}),
    ("gfx942", LANE + "v_mov_b32_dpp v0, v4 row_bcast:31", {(0,): 31}),
    ("gfx942", LANE + "v_mov_b32_dpp v0, v4 quad_perm:[3,2,1,0] bank_mask:0x7", {(0,): BEFORE}),
    ("gfx942", LANE + "v_mov_b32_dpp v0, v4 quad_perm:[3,2,1,0] row_mask:0x8", {(0,): 60}),
    ("gfx942", LANE + "v_add_u32_dpp v0, v4, v1 quad_perm:[3,2,1,0]", {(0, 5): 65}),
    (RDNA, LANE + "v_mov_b32_dpp v0, v4 row_share:3", {(0,): 19}),
    (RDNA, LANE + "v_mov_b32_dpp v0, v4 row_xmask:5", {(0,): 26}),
    (RDNA, LANE + "v_cmp_eq_u32_e64_dpp s[0:1], v4, v1 row_xmask:1 bound_ctrl:1", {
        (0, 30): 1, (0, 31): 0}),
    (RDNA, LANE + "v_cmp_eq_u32_e64_dpp s[0:1], v4, v1 row_shl:1 bound_ctrl:1", {
        (0, 0): 1, (0, 31): 0}),
    (RDNA, LANE + "v_cmp_eq_u32_dpp vcc, v4, v1 row_xmask:1 bound_ctrl:1; s_mov_b64 s[0:1], vcc", {
        (0, 30): 1, (0, 31): 0}),
    (RDNA, "v_cmp_gt_f32_e64_dpp s[0:1], -v1, |v2| row_xmask:1 bound_ctrl:1", {
        (f32(-3), f32(-2)): 1, (f32(3), f32(-2)): 0}),
    ("gfx942", "v_accvgpr_write_b32 a3, v1; v_accvgpr_read_b32 v0, a3", {
        (SIGNALLING,): SIGNALLING}),
    # Two at once: both read before either writes.
    (RDNA, "v_dual_mov_b32 v0, v1 :: v_dual_mov_b32 v7, v0; v_mov_b32 v0, v7", {(5, 9): BEFORE}),
    (RDNA, "s_mov_b64 vcc, s[2:3]; v_dual_cndmask_b32 v0, v1, v2 :: v_dual_mov_b32 v7, v4", {
        (1, 5, 6, 0, 0): 6, (0, 5, 6, 0, 0): 5}),
    (RDNA, "v_mov_b32 v0, v3; v_dual_fmac_f32 v0, v1, v2 :: v_dual_mul_f32 v7, v4, v5", {
        (f32(-1), NEAR, NEAR, 0, 0, 0): NEAR_SQUARE}),
    (RDNA, "v_dual_mul_f32 v7, v4, v5 :: v_dual_subrev_f32 v0, v1, v2", {
        (0, 0, 0, ONE, f32(3)): TWO}),
    (RDNA, "v_dual_mov_b32 v7, v4 :: v_dual_lshlrev_b32 v0, v1, v2", {(0, 0, 33, 3): 6}),
    # Scalar ones; the last value is SCC, where it is stated.
    (OLD, "s_add_u32 s0, s1, s2", {(ONES, 1): (0, 1), (ONES - 1, 1): (ONES, 0)}),
    ("gfx1201", "s_add_co_u32 s0, s1, s2", {(ONES, 1): (0, 1), (ONES - 1, 1): (ONES, 0)}),
    (OLD, "s_cmp_lg_u32 s3, 0; s_addc_u32 s0, s1, s2", {
        (1, ONES, 0): (0, 1), (1, ONES, ONES): (ONES, 1), (0, ONES, 0): (ONES, 0)}),
    ("gfx1201", "s_cmp_lg_u32 s3, 0; s_add_co_ci_u32 s0, s1, s2", {
        (1, ONES, 0): (0, 1), (1, ONES, ONES): (ONES, 1), (0, ONES, 0): (ONES, 0)}),
    (OLD, "s_sub_u32 s0, s1, s2", {(0, 1): (ONES, 1), (1, 1): (0, 0)}),
    (OLD, "s_cmp_lg_u32 s3, 0; s_subb_u32 s0, s1, s2", {
        (1, 0, 0): (ONES, 1), (1, 5, ONES): (5, 1), (1, 1, 0): (0, 0), (0, 1, 1): (0, 0)}),
    (OLD, "s_add_i32 s0, s1, s2", {(MINUS - 1, 1): (MINUS, 1), (ONES, 1): (0, 0)}),
    (OLD, "s_sub_i32 s0, s1, s2", {(MINUS, 1): (MINUS - 1, 1), (0, 1): (ONES, 0)}),
    ("gfx1201", "s_add_co_i32 s0, s1, s2", {(MINUS - 1, 1): (MINUS, 1), (ONES, 1): (0, 0)}),
    ("gfx1201", "s_sub_co_i32 s0, s1, s2", {(MINUS, 1): (MINUS - 1, 1), (0, 1): (ONES, 0)}),
    (OLD, "s_mov_b32 s0, s1; s_addk_i32 s0, 0x8000", {
        (MINUS,): (0x7FFF8000, 1), (0x10000,): (0x8000, 0), (ONES,): (0xFFFF7FFF, 0)}),
    ("gfx1201", "s_add_nc_u64 s[0:1], s[2:3], s[4:5]", {(ONES, 1): 1 << 32, (ONES64, 2): 1}),
    ("gfx1201", "s_sub_nc_u64 s[0:1], s[2:3], s[4:5]", {(1 << 32, 1): ONES, (0, 1): ONES64}),
    ("gfx1201", "s_mul_u64 s[0:1], s[2:3], s[4:5]", {
        (ONES64, 2): ONES64 - 1, (1 << 32 | 1, 1 << 32 | 1): 2 << 32 | 1}),
    (ALL, "s_lshl2_add_u32 s0, s1, s2", {(1 << 30, 0): (0, 1), (1, 1): (5, 0)}),
    (ALL, "s_abs_i32 s0, s1", {(MINUS,): (MINUS, 1), (0,): (0, 0), (ONES,): (1, 1)}),
    (ALL, "s_and_b32 s0, s1, s2", {(0xF0, 0xF): (0, 0), (MINUS, ONES): (MINUS, 1)}),
    (ALL, "s_and_b64 s[0:1], s[2:3], s[4:5]", {
        (1 << 40, 1 << 40): (1 << 40, 1), (1 << 40, ONES): (0, 0)}),
    (ALL, "s_or_b32 s0, s1, s2", {(0, 0): (0, 0), (MINUS, 1): (0x80000001, 1)}),
    (ALL, "s_or_b64 s[0:1], s[2:3], s[4:5]", {
        (1 << 32, 0): (1 << 32, 1), (0, 1 << 32): (1 << 32, 1), (0, 0): (0, 0)}),
    (ALL, "s_xor_b32 s0, s1, s2", {(5, 5): (0, 0), (MINUS, 1): (0x80000001, 1)}),
    (ALL, "s_xor_b64 s[0:1], s[2:3], s[4:5]", {(3 << 32, 1 << 32): (2 << 32, 1), (5, 5): (0, 0)}),
    ("gfx942", "s_andn2_b64 s[0:1], s[2:3], s[4:5]", {
        (3 << 40, 1 << 40): (2 << 40, 1), (5, ONES): (0, 0)}),
    (RDNA, "s_and_not1_b32 s0, s1, s2", {(3, 1): (2, 1), (5, ONES): (0, 0)}),
    ("gfx942", "s_orn2_b64 s[0:1], s[2:3], s[4:5]", {
        (0, ONES64): (0, 0), (0, ONES): (ONES << 32, 1)}),
    (RDNA, "s_or_not1_b32 s0, s1, s2", {(0, ONES): (0, 0), (1, ONES - 2): (3, 1)}),
    ("gfx942", "s_and_saveexec_b64 s[0:1], s[2:3]", {(5,): (ONES64, 1), (0,): (ONES64, 0)}),
    ("gfx942", "s_and_saveexec_b64 vcc, s[2:3]; s_mov_b64 s[0:1], exec", {(5 << 32,): 5 << 32}),
    ("gfx942", "s_mov_b64 exec, s[4:5]; s_or_saveexec_b64 vcc, s[2:3]; s_mov_b64 s[0:1], exec", {
        (1, 5 << 32): (5 << 32 | 1, 1), (0, 0): (0, 0)}),
    ("gfx942", "s_mov_b64 exec, s[4:5]; s_andn2_saveexec_b64 vcc, s[2:3]; s_mov_b64 s[0:1], exec", {
        (1, 5): (4, 1), (5, 5): (0, 0)}),
    (RDNA, "s_and_saveexec_b32 s0, s1", {(5,): (ONES, 1), (0,): (ONES, 0)}),
    (RDNA, "s_and_saveexec_b32 vcc_lo, s1; s_mov_b32 s0, exec_lo", {(MINUS,): MINUS}),
    (RDNA, "s_mov_b32 exec_lo, s2; s_or_saveexec_b32 vcc_lo, s1; s_mov_b32 s0, exec_lo", {
        (1, MINUS): (0x80000001, 1), (0, 0): (0, 0)}),
    (RDNA, "s_mov_b32 exec_lo, s2; s_and_not1_saveexec_b32 vcc_lo, s1; s_mov_b32 s0, exec_lo", {
        (1, 5): (4, 1), (5, 5): (0, 0)}),
    (ALL, "s_ashr_i32 s0, s1, s2", {(MINUS, 33): (0xC0000000, 1), (1, 1): (0, 0)}),
    (ALL, "s_lshl_b32 s0, s1, s2", {(0x80000001, 33): (2, 1), (MINUS, 1): (0, 0)}),
    (ALL, "s_lshr_b32 s0, s1, s2", {(MINUS, 63): (1, 1), (1, 1): (0, 0)}),
    (ALL, "s_lshl_b64 s[0:1], s[2:3], s4", {(3, 127): (MINUS64, 1), (MINUS64, 1): (0, 0)}),
    (ALL, "s_bfe_i32 s0, s1, s2", {
        (0xF0, 4 | 4 << 16): (ONES, 1), (ONES, 0): (0, 0), (0x12345678, 36 | 4 << 16): (7, 1)}),
    (ALL, "s_bfe_u32 s0, s1, s2", {
        (0xF0, 4 | 4 << 16): (0xF, 1), (ONES, 0): (0, 0), (0x12345678, 36 | 4 << 16): (7, 1)}),
    (ALL, "s_bfe_i64 s[0:1], s[2:3], s4", {
        (MINUS, 32 << 16): (ONES64 - MINUS + 1, 1), (MINUS - 1, 32 << 16): (MINUS - 1, 1),
        (MINUS64, 60 | 4 << 16): (ONES64 - 7, 1)}),
    (ALL, "s_brev_b32 s0, s1", {(0x12,): 0x48000000}),
    (ALL, "s_bitcmp0_b32 s1, s2", {(1, 32): 0, (2, 32): 1}),
    (ALL, "s_bitcmp1_b32 s1, s2", {(1, 32): 1, (2, 32): 0}),
    (ALL, "s_mov_b32 s0, s1; s_bitset1_b32 s0, s2", {(1, 63): 0x80000001}),
    (ALL, "s_cmp_eq_u32 s1, s2", {(MINUS, MINUS): 1, (0, MINUS): 0}),
    ("gfx1151 gfx1201", "s_cvt_hi_f32_f16 s0, s1", {(0x3D003C00,): f32(1.25)}),
    ("gfx950", "v_cvt_f32_bf16 v0, v1", {(0x12345640,): 0x56400000}),
    # Of waves of 64 lanes; others do nothing there.
    ("gfx1201", "v_permlane64_b32 v0, v1", {(ONE,): BEFORE}),
    (ALL, "s_cmp_lg_u32 s1, s2", {(MINUS, MINUS): 0, (0, MINUS): 1}),
    (ALL, "s_cmp_eq_u64 s[2:3], s[4:5]", {(MINUS64, 0): 0, (MINUS64, MINUS64): 1}),
    (ALL, "s_cmp_gt_i32 s1, s2", {(MINUS, 0): 0, (0, ONES): 1, (5, 5): 0}),
    (ALL, "s_cmp_lt_i32 s1, s2", {(MINUS, 0): 1, (0, ONES): 0, (5, 5): 0}),
    (ALL, "s_cmp_ge_u32 s1, s2", {(MINUS, 0): 1, (0, ONES): 0, (5, 5): 1}),
    (ALL, "s_cmp_lt_u32 s1, s2", {(MINUS, 0): 0, (0, ONES): 1, (5, 5): 0}),
    (OLD, "s_cmpk_lt_i32 s1, 0x8000", {(0xFFFF7FFF,): 1, (0xFFFF8000,): 0, (0,): 0}),
    (OLD, "s_cmpk_gt_i32 s1, 0x8000", {(0xFFFF7FFF,): 0, (0xFFFF8000,): 0, (0,): 1}),
    (OLD, "s_cmpk_lt_u32 s1, 0x8000", {(0x7FFF,): 1, (0x8000,): 0, (0xFFFF7FFF,): 0}),
    ("gfx1151 gfx1201", "s_cmp_gt_f32 s1, s2", {(NAN, ONE): 0, (0, MINUS): 0, (TINY, 0): 1}),
    ("gfx1151 gfx1201", "s_cmp_le_f32 s1, s2", {(NAN, ONE): 0, (0, MINUS): 1, (TINY, 0): 0}),
    ("gfx1151 gfx1201", "s_cmp_lt_f32 s1, s2", {
        (NAN, ONE): 0, (MINUS, 0): 0, (MINUS | TINY, 0): 1}),
    (ALL, "s_cmp_lg_u32 s3, 0; s_cselect_b32 s0, s1, s2", {(1, 5, 6): (5, 1), (0, 5, 6): (6, 0)}),
    (ALL, "s_cmp_lg_u32 s8, 0; s_cselect_b64 s[0:1], s[2:3], s[4:5]", {
        (1, 5 << 32, 6): (5 << 32, 1), (0, 5, 6 << 32): (6 << 32, 0)}),
    ("gfx1151 gfx1201", "s_cvt_f32_u32 s0, s1", {(ONES,): f32(2**32), (2**24 + 1,): f32(2**24)}),
    ("gfx1151 gfx1201", "s_cvt_u32_f32 s0, s1", {(NAN,): 0, (f32(-1),): 0, (f32(2**32),): ONES}),
    ("gfx1151 gfx1201", "s_add_f32 s0, s1, s2", {(TINY, 2): 3, (MINUS, MINUS): MINUS}),
    ("gfx1151 gfx1201", "s_sub_f32 s0, s1, s2", {(MINUS, 0): MINUS, (INF, INF): QUIET}),
    ("gfx1151 gfx1201", "s_mul_f32 s0, s1, s2", {(3, HALF): 2, (INF, 0): QUIET}),
    ("gfx1151 gfx1201", "s_mov_b32 s0, s3; s_fmac_f32 s0, s1, s2", {
        (f32(-1), NEAR, NEAR): NEAR_SQUARE, (ONE, TWO, f32(3)): f32(7)}),
    ("gfx1151 gfx1201", f"s_fmamk_f32 s0, s1, {NEAR:#x}, s2", {
        (NEAR, f32(-1)): NEAR_SQUARE, (0, ONE): ONE}),
    ("gfx1151 gfx1201", "s_trunc_f32 s0, s1", {(f32(-0.5),): MINUS, (f32(2.9),): TWO}),
    (ALL, "s_max_i32 s0, s1, s2", {(MINUS, 1): (1, 0), (5, 5): (5, 1), (1, ONES): (1, 1)}),
    (ALL, "s_min_i32 s0, s1, s2", {(MINUS, 1): (MINUS, 1), (5, 5): (5, 0), (1, ONES): (ONES, 0)}),
    (ALL, "s_movk_i32 s0, 0x8000", {(): 0xFFFF8000}),
    (ALL, "s_mul_i32 s0, s1, s2", {(ONES, 3): ONES - 2}),
    (ALL, "s_mul_hi_i32 s0, s1, s2", {(MINUS, MINUS): 1 << 30, (ONES, 1): ONES}),
    (ALL, "s_mul_hi_u32 s0, s1, s2", {(ONES, ONES): ONES - 1, (MINUS, 6): 3}),
]  # fmt: skip
#: Of a format: its bits, 1.5, 2, and what times 0 is NaN.
FORMATS = {
    "f16": (16, 0x3E00, 0x4000, 0x7C00), "bf16": (16, 0x3FC0, 0x4000, 0x7F80),
    "f32": (32, f32(1.5), TWO, INF), "fp8": (8, 0x3C, 0x40, 0x7F), "bf8": (8, 0x3E, 0x40, 0x7C),
    "fp8 gfx942": (8, 0x44, 0x48, 0x80), "bf8 gfx942": (8, 0x42, 0x44, 0x80),
}  # fmt: skip
#: Target, instruction, registers of D and of A, products of a sum, the format of A and B.
MATRICES = [
    ("gfx942", "v_mfma_f32_16x16x16_f16", 4, 2, 16, "f16"),
    ("gfx942", "v_mfma_f32_32x32x8_f16", 16, 2, 8, "f16"),
    ("gfx942", "v_mfma_f32_32x32x8_bf16", 16, 2, 8, "bf16"),
    ("gfx942", "v_mfma_f32_32x32x2_f32", 16, 1, 2, "f32"),
    ("gfx942", "v_mfma_f32_32x32x16_fp8_fp8", 16, 2, 16, "fp8 gfx942"),
    ("gfx942", "v_mfma_f32_32x32x16_bf8_bf8", 16, 2, 16, "bf8 gfx942"),
    ("gfx950", "v_mfma_f32_16x16x32_f16", 4, 4, 32, "f16"),
    ("gfx950", "v_mfma_f32_32x32x16_f16", 16, 4, 16, "f16"),
    ("gfx950", "v_mfma_f32_32x32x16_bf16", 16, 4, 16, "bf16"),
    ("gfx950", "v_mfma_f32_32x32x64_f8f6f4", 16, 8, 64, "fp8"),
    ("gfx1100", "v_wmma_f32_16x16x16_f16", 8, 8, 16, "f16"),
    ("gfx1100", "v_wmma_f32_16x16x16_bf16", 8, 8, 16, "bf16"),
    ("gfx1201", "v_wmma_f32_16x16x16_f16", 8, 4, 16, "f16"),
    ("gfx1201", "v_wmma_f32_16x16x16_bf16", 8, 4, 16, "bf16"),
    ("gfx1201", "v_wmma_f32_16x16x16_fp8_fp8", 8, 2, 16, "fp8"),
    ("gfx1201", "v_wmma_f32_16x16x16_bf8_bf8", 8, 2, 16, "bf8"),
]


def matrix(name: str, results: int, words: int, modifiers: str = "") -> str:
    """Return a product of matrices whose elements are all one number, without C."""
    a, b = (f"v[{first}:{first + words - 1}]" if words > 1 else f"v{first}" for first in (32, 48))
    return f"{name} v[8:{7 + results}], {a}, {b}, 0{modifiers}; v_mov_b32 v0, v8"


def filled(element: int, width: int, words: int) -> int:
    return sum(element << place for place in range(0, 32 * words, width))


def matrices() -> Iterator[tuple[str, str, Rows]]:
    """Yield rows for `MATRICES`, and for those of bytes, with a sign or without."""
    for target, name, results, words, products, kind in MATRICES:
        width, left, right, odd = FORMATS[kind]
        a, b, special = (filled(element, width, words) for element in (left, right, odd))
        text = matrix(name, results, words)
        yield target, text, {(0, a, b, 0): f32(3 * products), (0, special, 0, 0): QUIET}
    signed = " neg_lo:[1,1,0]"
    for target, name, results, words, products, modifiers, least in (
        ("gfx942", "v_mfma_i32_32x32x16_i8", 16, 2, 16, "", -128),
        ("gfx950", "v_mfma_i32_32x32x32_i8", 16, 4, 32, "", -128),
        ("gfx1100", "v_wmma_i32_16x16x16_iu8", 8, 4, 16, signed, -128),
        ("gfx1201", "v_wmma_i32_16x16x16_iu8", 8, 2, 16, signed, -128),
        ("gfx1201", "v_wmma_i32_16x16x16_iu8", 8, 2, 16, "", 128),
    ):
        a, b = filled(0x80, 8, words), filled(3, 8, words)
        text = matrix(name, results, words, modifiers)
        yield target, text, {(0, a, b, 0): 3 * least * products & ONES}


def parts() -> Iterator[tuple[str, str, Rows]]:
    """Yield conversions of FP8 from each part of a register: 1.5, or 1.5 and 2."""
    both = pair(f32(1.5), TWO)
    for word in (0, 1):
        for target, kind, codes in (
            ("gfx942", "fp8", 0x4844), ("gfx942", "bf8", 0x4442), ("gfx950", "fp8", 0x403C),
            ("gfx950", "bf8", 0x403E),
        ):  # fmt: skip
            text = f"v_cvt_pk_f32_{kind}_sdwa v[0:1], v1 src0_sel:WORD_{word}"
            yield target, text, {(codes << 16 * word,): both}
        text = f"v_cvt_pk_f32_fp8 v[0:1], v1 op_sel:[{word},0]"
        yield "gfx1201", text, {(0x403C << 16 * word,): both}
        text = f"v_cvt_scalef32_pk_f32_fp8 v[0:1], v1, v2 op_sel:[{word},0,0]"
        yield "gfx950", text, {(0x403C << 16 * word, ONE): both}
    for byte in range(4):
        text = f"v_cvt_f32_fp8_sdwa v0, v1 src0_sel:BYTE_{byte}"
        yield "gfx942", text, {(0x44 << 8 * byte,): f32(1.5)}
        text = f"v_cvt_f32_fp8 v0, v1 byte_sel:{byte}"
        yield "gfx1201", text, {(0x3C << 8 * byte,): f32(1.5)}


CORNERS += [*matrices(), *parts()]
#: Where a kernel has FP8 saturate, which its first instructions say.
SET_MODE = "s_setreg_imm32_b32 hwreg(HW_REG_MODE"
SATURATE = f"{SET_MODE}, 23, 1), 1"
SATURATED: list[tuple[str, str, Rows]] = [
    ("gfx942", "v_cvt_pk_fp8_f32 v0, v1, v2", {
        (f32(-1e9), NAN): 0xAAAA80FF, (NAN, f32(300)): 0xAAAA7F80}),
    ("gfx950", "v_cvt_pk_fp8_f32 v0, v1, v2", {
        (f32(449), NAN): 0xAAAA7F7E, (NAN, f32(-1e9)): 0xAAAAFE7F}),
    ("gfx942", "v_cvt_pk_bf8_f32 v0, v1, v2", {(f32(1e9), f32(-1e9)): 0xAAAAFF7F}),
    ("gfx950", "v_cvt_pk_bf8_f32 v0, v1, v2", {(f32(1e9), f32(-1e9)): 0xAAAAFB7B}),
]  # fmt: skip
REGISTER = re.compile(r"\b([vs])(?:(\d+)\b|\[(\d+):(\d+)\])")
#: What of a wave of 64 lanes has another name in one of 32.
MASKS = {
    "s[0:1]": "s0", "s[2:3]": "s2", "vcc": "vcc_lo", "exec": "exec_lo", "s_mov_b64": "s_mov_b32",
}  # fmt: skip
KEEP_SCC = "\ns_cselect_b32 s99, 1, 0"


@dataclass(frozen=True)
class Instructions:
    """A text of the table on one target."""

    target: str
    text: str
    before: str

    def __str__(self) -> str:
        return f"{self.target} {self.text}"

    @property
    def vector(self) -> bool:
        return bool(re.search(r"\bv_", self.text))

    def is_mask(self, kind: str, words: int) -> bool:
        """Say whether a register holds a bit for each lane."""
        return self.vector and (kind, words) == ("s", 2)

    @property
    def registers(self) -> list[tuple[str, int, int]]:
        """The kind, the number and the words of each register, in the text's order."""
        found = dict[tuple[str, int, int], None]()
        for kind, number, first, last in REGISTER.findall(self.text):
            low = int(number or first)
            found[kind, low, int(number or last) - low + 1] = None
        return list(found)

    def lowered(self) -> str:
        """Return the text as the target's assembler takes it."""
        text = self.text
        if self.vector and self.target in RDNA.split():
            for wide, narrow in MASKS.items():
                text = re.sub(rf"(?<!\w){re.escape(wide)}(?!\w)", narrow, text)
        return text.replace("; ", "\n") + ("" if self.vector else KEEP_SCC)


CASES = [
    (Instructions(target, text, before), rows)
    for before, table in (("", CORNERS), (SATURATE, SATURATED))
    for targets, text, rows in table
    for target in targets.split()
]


def assembled(text: str, target: str, folder: Path, *, quiet: bool = False) -> bytes:
    """Return the machine code of a text; quiet: its errors are in the exception."""
    using = hip_toolchain(target)
    assert isinstance(using, Toolchain), using
    source, out = folder / "text.s", folder / "text.o"
    source.write_text(text, encoding="utf-8")
    # Later releases name the halves of registers in 16-bit instructions.
    flags = ["-triple", "amdgcn-amd-amdhsa", "-target-feature", "-real-true16", "-filetype", "obj"]
    subprocess.run(
        [*using.argv[:2], "-cc1as", *flags, "-target-cpu", target, "-o", out, source],
        check=True, capture_output=quiet, text=True,
    )  # fmt: skip
    with out.open("rb") as file:
        elf = importlib.import_module("elftools.elf.elffile").ELFFile(file)
        return bytes(elf.get_section_by_name(".text").data())


def program(target: str, text: str, *, scratch: int = 0) -> Program:
    """Return a kernel of a text, in which subnormals are kept and a clamp makes 0 of NaN."""
    with tempfile.TemporaryDirectory() as folder:
        image = assembled(text, target, Path(folder)) + bytes(16)
    family = TABLES[target]
    metadata = Metadata.model_validate({
        ".name": "table", ".symbol": "table.kd", ".kernarg_segment_size": 0,
        ".wavefront_size": 64 if family == "cdna" else 32, ".max_flat_workgroup_size": 64,
    })  # fmt: skip
    # Older targets have their IEEE mode, RDNA's the WGP mode.
    modes = 0xF0000 | 1 << 21 | 1 << 29 | (family != "rdna4") << 23
    descriptor = Descriptor(0, scratch, 0, modes, 0, 0)
    return Program(Kernel(target, image, descriptor, metadata, LineTable(b""), len(image)))


def split(made: Program, held: Words) -> tuple[Words, Words]:
    """Return views of scalar registers, by wave, and of vector registers, by wave and lane."""
    return held[:, :256], held[:, 256:].reshape(len(held), -1, made.mode.lanes)


def initial_registers(made: Program, waves: int) -> tuple[dict[str, Words], Words]:
    """Return what so many waves begin with: views of both kinds of registers, and all of them."""
    initial = np.zeros((waves, 256 + made.vectors * made.mode.lanes), np.uint32)
    scalar, vector = split(made, initial)
    scalar[:, 126 : 126 + made.mode.lanes // 32] = ONES
    scalar[:, 254] = made.kernel.descriptor.entry
    return {"s": scalar, "v": vector}, initial


def executed(target: str, before: str) -> dict[Instructions, dict[Bits, list[int]]]:
    """Return what each row of a target leaves in registers: each is a wave of one kernel."""
    cases = [case for case in CASES if (case[0].target, case[0].before) == (target, before)]
    jumps = [f"s_cmp_eq_u32 s100, {i}\ns_cbranch_scc1 case{i}" for i in range(len(cases))]
    bodies = [f"case{i}:\n{case.lowered()}\ns_endpgm" for i, (case, _) in enumerate(cases)]
    made = program(target, "\n".join([before, *jumps, "s_endpgm", *bodies, ""]))
    waves = [(i, case, row) for i, (case, rows) in enumerate(cases) for row in rows]
    banks, initial = initial_registers(made, len(waves))
    banks["s"][:, :2] = banks["v"][:, :2] = BEFORE
    lanes = made.mode.lanes
    for wave, (i, case, row) in enumerate(waves):
        banks["s"][wave, 100] = i
        sources = [register for register in case.registers if register[1]]
        for (kind, first, words), bits in zip(sources, row, strict=True):
            held = ONES64 if case.is_mask(kind, words) and bits else bits
            for word in range(words):
                banks[kind][wave, first + word] = held >> 32 * word & ONES
    machine = Executor(Launch(made, Memory(), (1, 1, 1), initial, [None] * 3, 0), 1, c_uint64(0))
    machine.run()
    if machine.cause:
        raise machine.error()
    banks["s"], banks["v"] = split(made, machine.registers)
    left = dict[Instructions, dict[Bits, list[int]]]()
    for wave, (_, case, row) in enumerate(waves):
        found = left.setdefault(case, {})[row] = []
        for kind, first, words in case.registers:
            if not first:
                # The last lane: there are others below it.
                words_of = banks[kind][wave, :words].reshape(words, -1)[:, -1]
                bits = sum(int(word) << 32 * place for place, word in enumerate(words_of))
                found.append(bits >> lanes - 1 & 1 if case.is_mask(kind, words) else bits)
        found.append(int(banks["s"][wave, 99]))
    return left


@functools.cache
def results(target: str, before: str) -> Future[dict[Instructions, dict[Bits, list[int]]]]:
    """Return what `executed` returns, or its error, which is then every case's."""
    found = Future[dict[Instructions, dict[Bits, list[int]]]]()
    try:
        found.set_result(executed(target, before))
    except (ContribbotError, subprocess.CalledProcessError) as error:
        found.set_exception(error)
    return found


def shown(bits: int, expected: int | None) -> str:
    """Return bits in hexadecimal, or that they are a quiet NaN where one is expected."""
    quiet = QUIET64 if bits >> 32 else NAN
    return "a quiet NaN" if expected is QUIET and bits & quiet == quiet else hex(bits)


@pytest.mark.parametrize(("instructions", "rows"), CASES, ids=[str(text) for text, _ in CASES])
def test_corner_values(instructions: Instructions, rows: Rows) -> None:
    found = results(instructions.target, instructions.before).result()[instructions]
    for sources, expected in rows.items():
        promised = expected if isinstance(expected, tuple) else (expected,)
        told = [shown(bits, wanted) for bits, wanted in zip(found[sources], promised, strict=False)]
        wanted = ["a quiet NaN" if bits is QUIET else hex(bits) for bits in promised]
        assert told == wanted, [hex(bits) for bits in sources]


#: Instructions whose text computes with numbers for which C++ has no type.
COMPUTES = {"cdna": set(), "rdna3": {"V_DOT2_BF16_BF16"}, "rdna4": {"V_DOT2_BF16_BF16"}}


@pytest.mark.parametrize("table", COMPUTES)
def test_what_computes_with_bfloat16_is_listed_and_refused(table: str) -> None:
    texts = importlib.import_module(f"tinygrad.runtime.autogen.amd.{table}.str_pcode").PCODE
    found = set()
    for instruction, text in texts.items():
        if instruction.name.startswith("V_"):
            try:
                translate._translation(text, lanes=True, flush=frozenset())
            except NotModelledError as error:
                if "computes with" in str(error):
                    found.add(instruction.name.removesuffix("_E32").removesuffix("_E64"))
    assert found == COMPUTES[table]


@pytest.mark.parametrize(
    "text",
    [
        "D0.bf16 = S0.bf16 + S1.bf16", "D0.u32 = S0.bf16 < S1.bf16 ? 1U : 0U",
        "t = S0.bf16; D0.f32 = 32'F(t) + -t", "D0.bf16 = -S0.bf16", "D0.f32 = S0.fp8 * S1.fp8",
        "D0.bf16 = v_max_f32(S0.bf16, S1.bf16)", "D0.f32 = S0.bf16", "D0.u32 = 32'U(S0.bf16)",
        "tmp = S0.bf16; tmp += S1.f32; D0.f32 = tmp", "D0.u32 = isNAN(S0.bf16) ? 1U : 0U",
    ],
)  # fmt: skip
def test_no_arithmetic_on_what_is_held_as_a_whole_number(text: str) -> None:
    with pytest.raises(NotModelledError, match=r"bf16|fp8"):
        translate._translation(text, lanes=True, flush=frozenset())


def test_beyond_scratch_its_own_size_is_told() -> None:
    made = program(
        "gfx942", "v_mov_b32 v1, 16\nscratch_load_dword v0, v1, off\ns_endpgm\n", scratch=16
    )
    _, initial = initial_registers(made, 1)
    with pytest.raises(KernelError, match=r"4 bytes at offset 16 of scratch \(16 bytes\)"):
        Launch(made, Memory(), (1, 1, 1), initial, [None] * 3, 64).run()


@pytest.mark.parametrize("target", ["gfx942", "gfx950", "gfx1100", "gfx1201"])
def test_a_spilled_register_may_be_read_before_it_is_written(target: str) -> None:
    """LLVM reloads at a join what one way has spilled: at a constant place, no index."""
    old = target.startswith("gfx9")
    word = "dword" if old else "b32"
    for address, fails in (
        ("off, off offset:8", False),
        ("v1, off", True),
        ("off, s4", False),
        ("off, s5", True),
    ):
        text = "v_mov_b32 v0, 7\nv_mov_b32 v1, 8\ns_movk_i32 s4, 8\ns_lshl_b32 s5, s4, 0\n"
        text += f"scratch_load_{word} v0, {address}\n"
        made = program(target, f"{text}s_endpgm\n", scratch=16)
        machine = Executor(
            Launch(made, Memory(), (1, 1, 1), initial_registers(made, 1)[1], [None] * 3, 0),
            1,
            c_uint64(0),
        )
        machine.run()
        assert machine.cause == ("unwritten" if fails else "")
        assert split(made, machine.registers)[1][0, 0, 0] == (7 if fails else 0)


@pytest.mark.parametrize(
    ("target", "text", "lacking"),
    [
        ("gfx942", "v_mov_b64_dpp v[0:1], v[2:3] row_newbcast:1", "64 bits of another lane"),
        ("gfx1100", "v_mov_b32_dpp v0, v1 dpp8:[7,6,5,4,3,2,1,0] fi:1", "DPP8"),
        ("gfx1201", "v_mov_b32_dpp v0, v1 dpp8:[7,6,5,4,3,2,1,0]", "DPP8"),
        # Whether a lane without a source keeps its bit of the mask is not documented.
        ("gfx1201", "v_cmp_eq_u32_e64_dpp s4, v1, v2 row_xmask:1", "a compare or carry with DPP"),
        ("gfx942", f"{SET_MODE}, 2, 2), 3", "pseudo-code uses WAVE_STATUS"),
        ("gfx942", f"{SET_MODE}, 2, 3), 0", "pseudo-code uses WAVE_STATUS"),
        ("gfx942", f"{SET_MODE}, 2, 2), 0", ""),
        ("gfx1201", f"{SET_MODE}, 0, 4), 0", ""),
    ],
)
def test_instructions_that_are_refused(target: str, text: str, lacking: str) -> None:
    unmodelled = program(target, f"{text}\ns_endpgm\n").unmodelled
    assert unmodelled == ({0: f"not modelled: {lacking}"} if lacking else {})
