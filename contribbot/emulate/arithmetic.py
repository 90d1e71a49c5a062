"""What the vendor's pseudo-code calls by name, as array operations on numpy's types.

Arrays have the shape (waves, lanes), or 1 where a value is the same along an axis.
"""

from __future__ import annotations

import ctypes
import ctypes.util
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from contribbot.emulate.pseudocode import NotModelledError

Array: TypeAlias = NDArray[np.generic]
U8: TypeAlias = NDArray[np.uint8]
U16: TypeAlias = NDArray[np.uint16]
U32: TypeAlias = NDArray[np.uint32]
U64: TypeAlias = NDArray[np.uint64]
F16: TypeAlias = NDArray[np.float16]
F32: TypeAlias = NDArray[np.float32]
F64: TypeAlias = NDArray[np.float64]
Bools: TypeAlias = NDArray[np.bool_]


@dataclass(frozen=True)
class Format:
    """A binary floating-point format: its width, its exponent's width and bias, in bits."""

    width: int
    exponent: int
    bias: int

    @property
    def mantissa(self) -> int:
        """How many bits of the mantissa are stored."""
        return self.width - 1 - self.exponent


_FORMATS: Final = {2: Format(16, 5, 15), 4: Format(32, 8, 127), 8: Format(64, 11, 1023)}


def _format(x: Array) -> Format:
    return _FORMATS[x.dtype.itemsize]


def _bits(x: Array) -> U64:
    """Return unsigned integers of the same width, whose type is given as the widest."""
    return x.view(f"u{x.dtype.itemsize}")


def _field(x: Array) -> U64:
    """Return the biased exponent."""
    form = _format(x)
    bits = _bits(x)
    kind = bits.dtype.type
    return (bits >> kind(form.mantissa)) & kind((1 << form.exponent) - 1)


def exponent(x: Array) -> NDArray[np.int32]:
    """Return the biased exponent."""
    return _field(x).astype(np.int32)


def mantissa(x: Array) -> Array:
    """Return the fraction of `frexp`: at least 0.5 and below 1."""
    return np.frexp(x)[0].astype(x.dtype)


def frexp_exponent(x: Array) -> NDArray[np.int32]:
    """Return the exponent that belongs to `mantissa`; 0 for zero, infinities and NaN."""
    return np.where(np.isfinite(x), np.frexp(x)[1], 0).astype(np.int32)


def is_denorm(x: F32) -> Bools:
    """Say which are subnormal."""
    result: Bools = (_field(x) == 0) & (x != 0)
    return result


def is_nan(x: Array) -> Bools:
    """Say which are NaN."""
    return np.isnan(x)


def is_quiet_nan(x: Array) -> Bools:
    """Say which are quiet NaN."""
    bits = _bits(x)
    top = bits.dtype.type(1 << (_format(x).mantissa - 1))
    result: Bools = np.isnan(x) & ((bits & top) != 0)
    return result


def is_signal_nan(x: Array) -> Bools:
    """Say which are signalling NaN."""
    bits = _bits(x)
    top = bits.dtype.type(1 << (_format(x).mantissa - 1))
    result: Bools = np.isnan(x) & ((bits & top) == 0)
    return result


def quiet(x: Array) -> Array:
    """Return NaN with the bit set that makes them quiet."""
    bits = _bits(x)
    return (bits | bits.dtype.type(1 << (_format(x).mantissa - 1))).view(x.dtype)


def flush(x: Array) -> Array:
    """Return zeros of the same sign instead of subnormals."""
    bits = _bits(x)
    sign = bits.dtype.type(1 << (_format(x).width - 1))
    return np.where(_field(x) == 0, bits & sign, bits).view(x.dtype)


def clamp(x: F32, nan_is_zero: bool) -> F32:
    """Return what an output clamp leaves: 0 to 1."""
    clipped = np.minimum(np.maximum(x, x.dtype.type(0)), x.dtype.type(1))
    return np.nan_to_num(clipped) if nan_is_zero else clipped


def fract(x: Array) -> Array:
    """Return what is above the floor."""
    return x - np.floor(x)


def is_even(x: F32) -> Bools:
    """Say which whole numbers are even."""
    result: Bools = np.fmod(x, 2) == 0
    return result


def ldexp(x: Array, by: Array) -> Array:
    """Return `x` times two to the power of `by`, rounded once."""
    return np.ldexp(x, np.clip(by.astype(np.int64), -5000, 5000).astype(np.int32))


def fma(a: Array, b: Array, c: Array) -> Array:
    """Return a * b + c, rounded once.

    A product of two float32 is exact in float64. The sum is rounded to odd there, which makes
    the second rounding innocuous (Boldo and Melquiond, 2008).
    """
    if a.dtype == np.float64:
        return _each(a, b, c)
    product, addend = to_f64(a) * to_f64(b), to_f64(c)
    total = product + addend
    bits = total.view(np.uint64)
    # Only a tie of the second rounding, or one into subnormals, can go wrong.
    tie = (bits & np.uint64((1 << (52 - _format(a).mantissa - 1)) - 1)) == 0
    small = np.uint64((1023 - _format(a).bias + 2) << 53)
    risky = tie | (bits + bits < small)
    if risky.any():
        parts = (np.broadcast_to(part, total.shape)[risky] for part in (product, addend, total))
        total[risky] = _odd(*parts)
    result: Array = total.astype(a.dtype)
    return result


def scaled_fma(a: F32, b: F32, c: F32, by: NDArray[np.int32]) -> F32:
    """Return (a * b + c) times two to the power of `by`, rounded once."""
    product, addend = a.astype(np.float64) * b, c.astype(np.float64)
    total = _odd(product, addend, product + addend)
    return np.ldexp(total, by).astype(np.float32)


def _odd(product: F64, addend: F64, total: F64) -> F64:
    """Return a sum rounded to odd instead of to nearest."""
    back = total - product
    error = (product - (total - back)) + (addend - back)
    bits = total.view(np.uint64)
    even = (error != 0) & ((bits & np.uint64(1)) == 0) & np.isfinite(total)
    step = np.where((error > 0) == (total > 0), np.uint64(1), np.uint64(2**64 - 1))
    return np.where(even, bits + step, bits).view(np.float64)


_libm: Final = ctypes.CDLL(ctypes.util.find_library("m") or "libm.so.6")
_libm.fma.restype = ctypes.c_double
_libm.fma.argtypes = [ctypes.c_double] * 3
_each: Final[Callable[..., Array]] = np.vectorize(_libm.fma, otypes=[np.float64])


def number(pick: np.ufunc, beyond: np.ufunc, *, ieee: bool) -> Callable[[Array, Array], Array]:
    """Return a minimum or maximum that prefers a number to NaN, and -0 counts as below +0.

    Older targets have an IEEE mode: there a signalling NaN comes out, made quiet.
    `beyond` is of the bits of two zeros: their sign.
    """

    def picked(a: Array, b: Array) -> Array:
        result: Array = pick(a, b)
        zero = result == 0
        if zero.any():
            both = zero & (a == 0) & (b == 0)
            result = np.where(both, beyond(_bits(a), _bits(b)).view(result.dtype), result)
        nan = np.isnan(result)
        if nan.any():
            result = np.where(nan, np.where(np.isnan(b), a, b), result)
            last = b if ieee else quiet(a)
            result = np.where(np.isnan(a) & np.isnan(b), last, result)
            if ieee:
                result = np.where(is_signal_nan(b), quiet(b), result)
                result = np.where(is_signal_nan(a), quiet(a), result)
        return result

    return picked


maximum_number = number(np.maximum, np.bitwise_and, ieee=False)
minimum_number = number(np.minimum, np.bitwise_or, ieee=False)
maximum_ieee = number(np.maximum, np.bitwise_and, ieee=True)
minimum_ieee = number(np.minimum, np.bitwise_or, ieee=True)


def f32_to_f16(x: F32, mode: int = 0) -> F16:
    """Return float16: to nearest even (mode 0) or towards zero (mode 3)."""
    near = x.astype(np.float16)
    if mode == 0:
        return near
    back = near.astype(np.float32)
    beyond = np.abs(back) > np.abs(x)
    bits = near.view(np.uint16)
    # An infinity that came from a finite number is the largest number again.
    return (bits - beyond.astype(np.uint16)).view(np.float16)


def f16_to_f32(x: F16) -> F32:
    """Return float32; NaN come out quiet."""
    wide = x.astype(np.float32)
    return np.where(np.isnan(wide), quiet(wide), wide)


def bf16_to_f32(x: U16) -> F32:
    """Return the float32 that a bfloat16 is."""
    return (x.astype(np.uint32) << np.uint32(16)).view(np.float32)


def f32_to_bf16(x: F32) -> U16:
    """Return bfloat16, to nearest even."""
    bits = x.view(np.uint32)
    rounded = bits + np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))
    quieted = bits | np.uint32(0x400000)
    return (np.where(np.isnan(x), quieted, rounded) >> np.uint32(16)).astype(np.uint16)


def to_int(kind: type[np.signedinteger | np.unsignedinteger]) -> Callable[[Array], Array]:
    """Return a conversion that truncates, saturates, and makes 0 of NaN."""
    info = np.iinfo(kind)

    def convert(x: Array) -> Array:
        wide = np.trunc(x.astype(np.float64))
        clipped = np.clip(np.where(np.isnan(wide), 0.0, wide), info.min, info.max)
        return clipped.astype(np.int64).astype(kind)

    return convert


to_i32, to_u32 = to_int(np.int32), to_int(np.uint32)
to_i16, to_u16 = to_int(np.int16), to_int(np.uint16)
to_u8 = to_int(np.uint8)


def cast(kind: type[np.generic]) -> Callable[[Array], Array]:
    """Return a conversion as numpy makes it: integers extend, floats round to nearest even."""
    return lambda x: x.astype(kind)


def to_f64(x: Array) -> F64:
    """Return float64."""
    return x.astype(np.float64)


to_f16, to_f32 = cast(np.float16), cast(np.float32)
to_i32_plain, to_u32_plain = cast(np.int32), cast(np.uint32)


def extend(x: U64, count: NDArray[np.int32]) -> Array:
    """Return the lowest `count` bits of each integer, the highest of them as the sign."""
    width = x.dtype.itemsize * 8
    by = np.clip(width - count, 0, width - 1).astype(x.dtype)
    return np.where(count > 0, (x << by) >> by, 0).astype(x.dtype)


@dataclass(frozen=True)
class Float8:
    """A format of 8 bits: its mantissa's bits and bias, and how it ends."""

    mantissa: int
    bias: int
    fnuz: bool  # no infinities, no -0, and 0x80 is the one NaN
    infinity: int = 0  # its code; 0: it has none, and all ones is NaN
    saturates: bool = False  # what is too large becomes the largest number

    def decode(self, codes: U8) -> F32:
        """Return the float32 of each code."""
        return self._table()[codes]

    def _table(self) -> F32:
        codes = np.arange(128, dtype=np.float64)
        fraction = 1 << self.mantissa
        place, digits = codes // fraction, codes % fraction
        normal = (1 + digits / fraction) * 2.0 ** (place - self.bias)
        values = np.where(place == 0, digits / fraction * 2.0 ** (1 - self.bias), normal)
        if self.infinity:
            values[self.infinity] = np.inf
            values[self.infinity + 1 :] = np.nan
        elif not self.fnuz:
            values[127] = np.nan
        both = np.concatenate([values, -values]).astype(np.float32)
        if self.fnuz:
            both[128] = np.nan
        return both

    def encode(self, x: F32) -> U8:
        """Return the nearest codes, ties to even; what is too large is NaN (or infinity)."""
        bits = x.view(np.uint32)
        size = bits & np.uint32(0x7FFFFFFF)
        shift = 23 - self.mantissa
        lowest = np.uint32((127 - self.bias + 1) << 23)
        odd = (size >> np.uint32(shift)) & np.uint32(1)
        normal = (size + np.uint32((1 << (shift - 1)) - 1) + odd) >> np.uint32(shift)
        normal -= np.uint32((127 - self.bias) << self.mantissa)
        # Added to a number whose last bit is the format's, a small one is rounded as it should.
        magic = np.float32(2.0 ** (23 - self.mantissa + 1 - self.bias))
        small = (size.view(np.float32) + magic).view(np.uint32) - magic.view(np.uint32)
        code = np.where(size < lowest, small, normal)
        last = 127 if self.fnuz else 126
        over = (code > np.uint32(last)) if not self.infinity else code > np.uint32(self.infinity)
        nan = np.isnan(x)
        if self.saturates:
            largest = np.uint32(self.infinity - 1 if self.infinity else last)
            code, over = np.where(over, largest, code), np.zeros_like(nan)
        elif self.infinity:
            code = np.where(over, np.uint32(self.infinity), code)
        elif not self.fnuz:
            nan |= over
        code = np.where(nan, np.uint32(127), code) | (bits >> np.uint32(24)) & np.uint32(0x80)
        if self.fnuz:
            code = np.where(nan | over, np.uint32(0x80), code)
            code = np.where((code & np.uint32(0x7F)) == 0, np.where(nan | over, code, 0), code)
        return code.astype(np.uint8)


def finite16(x: Array) -> Array:
    """Return float16 numbers of kernels that let them saturate: then an infinity is in doubt."""
    halves = np.ascontiguousarray(x).view(np.uint16)
    if ((halves & np.uint16(0x7FFF)) == np.uint16(0x7C00)).any():
        raise NotModelledError("an infinity of float16 where the kernel has overflow saturate")
    return x


#: OCP's formats, which gfx950 and gfx12 have; and those of gfx942, whose bias is one more.
E4M3: Final = Float8(3, 7, fnuz=False)
E5M2: Final = Float8(2, 15, fnuz=False, infinity=0x7C)
E4M3_FNUZ: Final = Float8(3, 8, fnuz=True)
E5M2_FNUZ: Final = Float8(2, 16, fnuz=True)


def count_bits(x: U64) -> U32:
    """Return how many bits are set."""
    return np.bitwise_count(x).astype(np.uint32)


def reverse_bits(x: U32) -> U32:
    """Return the bits in reverse order."""
    for shift, mask in ((1, 0x55555555), (2, 0x33333333), (4, 0x0F0F0F0F)):
        low, by = np.uint32(mask), np.uint32(shift)
        x = ((x >> by) & low) | ((x & low) << by)
    return x.byteswap()


def leading_zeros(x: U32) -> NDArray[np.int32]:
    """Return how many zeros stand before the first one; -1: there is none."""
    return np.where(x == 0, -1, 32 - np.frexp(x.astype(np.float64))[1]).astype(np.int32)


def trailing_zeros(x: U64) -> NDArray[np.int32]:
    """Return how many zeros stand after the last one; -1: there is none."""
    lowest = x & (~x + x.dtype.type(1))
    return np.where(x == 0, -1, np.frexp(lowest.astype(np.float64))[1] - 1).astype(np.int32)


def select_byte(low_first: U64, selector: U32) -> U32:
    """Return one byte of eight, or one of the constants, as V_PERM_B32 selects it."""
    chosen = selector.astype(np.uint64) & np.uint64(0xFF)
    byte = (low_first >> ((chosen & np.uint64(7)) * np.uint64(8))) & np.uint64(0xFF)
    # 8 to 11: the sign of a half, repeated; 12: 0; above: all ones.
    half = np.uint64(16) * (chosen - np.uint64(8)) + np.uint64(15)
    sign = ((low_first >> (half & np.uint64(63))) & np.uint64(1)) * np.uint64(0xFF)
    byte = np.where(chosen >= 8, sign, byte)
    byte = np.where(chosen == 12, np.uint64(0), byte)
    return np.where(chosen > 12, np.uint64(0xFF), byte).astype(np.uint32)


def bounded(x: Array, side: int) -> Array:
    """Return what a result is at one end of the 1 ULP by which documents bound it."""
    if side == 0:
        return x
    moved = np.nextafter(x, x.dtype.type(np.inf * side))
    return np.where(np.isfinite(x) & (x != 0), moved, x)


def coarse(x: F64, side: int) -> F64:
    """Return what a reciprocal of float64 is at one end of its 2 ** 29 ULP."""
    moved = (x.view(np.int64) + side * (1 << 29)).view(np.float64)
    return np.where(np.isfinite(x) & (np.abs(x) > 1e-290), moved, x)
