// The machine that executes translated kernels: registers, memory with its checks, and the
// functions that the vendor's pseudo-code calls (namespace f). The macros LANES, IEEE, FNUZ,
// CLAMP_NAN, SATURATES and RDNA must be defined. The file includes no header and no C++ library,
// so that every clang compiles it.
typedef signed char i8; typedef unsigned char u8;
typedef short i16; typedef unsigned short u16;
typedef int i32; typedef unsigned int u32;
typedef long long i64; typedef unsigned long long u64;
typedef _Float16 f16; typedef float f32; typedef double f64;
#define INLINE static inline __attribute__((always_inline))
extern "C" f64 exp2(f64), log2(f64), sin(f64);

template <class T> constexpr bool floats = (T)0.5 != 0;

// Returns the lowest bits of x as another type.
template <class T, class S> INLINE T as(S x) {
  u64 word = 0;
  __builtin_memcpy(&word, &x, sizeof x);
  T result;
  __builtin_memcpy(&result, &word, sizeof result);
  return result;
}
// Returns a float64 rounded to odd in float32. A second rounding, to fewer bits, then gives the
// same result as a single rounding.
INLINE f32 odd(f64 x) {
  f32 near = (f32)x;
  u32 bits = as<u32>(near);
  if (x == x && (f64)near != x && !(bits & 1))
    bits += __builtin_fabs((f64)near) < __builtin_fabs(x) ? 1 : -1;
  return as<f32>(bits);
}
INLINE f16 narrow(f64 x) { return (f16)odd(x); }
// Returns a number as another type.
template <class T, class S> INLINE T number(S x) {
  if constexpr (sizeof(T) == 2 && floats<T> && sizeof(S) == 8 && floats<S>) return narrow(x);
  return (T)x;
}
// Returns an assigned value as another type; bits of the same width stay as they are.
template <class T, class S> INLINE T to(S x) {
  if constexpr (sizeof(T) == sizeof(S) && floats<T> != floats<S>) return as<T>(x);
  return number<T>(x);
}
INLINE u64 low(u64 x, int width) { return width < 64 ? x & ((1ull << width) - 1) : x; }
INLINE i64 low_signed(u64 x, int width) { return (i64)(x << (64 - width)) >> (64 - width); }
template <class S> INLINE auto slice(S x, int high, int place) {
  u64 bits = low(as<u64>(x) >> place, high - place + 1);
  if constexpr (sizeof(S) == 8) return bits; else return (u32)bits;
}
template <class S> INLINE u32 bit(S x, u64 place) { return as<u64>(x) >> (place & 63) & 1; }
template <class T> INLINE void set(T &x, int high, int place, u64 value) {
  u64 mask = low(~0ull, high - place + 1) << place;
  x = as<T>((as<u64>(x) & ~mask) | (value << place & mask));
}
INLINE u64 join(u32 low_word, u32 high_word) { return (u64)high_word << 32 | low_word; }

template <class T> struct Form;
template <> struct Form<f16> { typedef u16 Bits; static constexpr int mantissa = 10, exponent = 5; };
template <> struct Form<f32> { typedef u32 Bits; static constexpr int mantissa = 23, exponent = 8; };
template <> struct Form<f64> { typedef u64 Bits; static constexpr int mantissa = 52, exponent = 11; };
struct Denorm {} constexpr DENORM;
constexpr f64 INF = __builtin_inf(), NAN = __builtin_nan(""), PI = 3.141592653589793;
// Rounding is to nearest even; a number that is too small is 0, and one that is too large is
// infinite.
constexpr f64 UNDERFLOW_F32 = 0, UNDERFLOW_F64 = 0, OVERFLOW_F32 = INF, OVERFLOW_F64 = INF;

namespace f {
#define T_ template <class T> INLINE
T_ auto bits(T x) { return as<typename Form<T>::Bits>(x); }
T_ i32 exponent(T x) { return bits(x) >> Form<T>::mantissa & ((1 << Form<T>::exponent) - 1); }
T_ bool isNAN(T x) { return x != x; }
T_ bool quiet_bit(T x) { return bits(x) >> (Form<T>::mantissa - 1) & 1; }
T_ bool isQuietNAN(T x) { return x != x && quiet_bit(x); }
T_ bool isSignalNAN(T x) { return x != x && !quiet_bit(x); }
T_ T cvtToQuietNAN(T x) { return as<T>(bits(x) | (u64)1 << (Form<T>::mantissa - 1)); }
T_ bool isDENORM(T x) { return exponent(x) == 0 && x != 0; }
T_ bool sign(T x) { return bits(x) >> (sizeof(T) * 8 - 1); }
T_ T abs(T x) {
  if constexpr (floats<T>) return as<T>(low(as<u64>(x), sizeof(T) * 8 - 1));
  else return x < 0 ? -x : x;
}
T_ T flush(T x) { return exponent(x) ? x : as<T>((u64)sign(x) << (sizeof(T) * 8 - 1)); }
T_ T floor(T x) { return (T)__builtin_floor((f64)x); }
T_ T trunc(T x) { return (T)__builtin_trunc((f64)x); }
T_ T rint(T x) { return (T)__builtin_rint((f64)x); }
T_ T fract(T x) { return x - floor(x) == 1 ? as<T>(bits((T)1) - 1) : x - floor(x); }
T_ bool isEven(T x) { return x / 2 == floor(x / 2); }
T_ T clamp(T x) { return x != x ? (CLAMP_NAN ? (T)0 : x) : x > 1 ? (T)1 : x > 0 ? x : (T)0; }
T_ T scaled(T x, f64 factor) {  // under the output modifier, subnormals and -0 are +0
  T result = (T)(x * (T)factor);
  return exponent(result) ? result : (T)0;
}
INLINE f64 exp2(f64 x) { return ::exp2(x); }
INLINE f64 log2(f64 x) { return ::log2(x); }
INLINE f64 pow(f64 base, f64 x) { return ::exp2(x * ::log2(base)); }
INLINE f64 sqrt(f64 x) { return __builtin_sqrt(x); }
// The sine of turns. The reduction is exact, so that a whole or a half turn gives 0.
INLINE f64 sin_turns(f64 x) {
  f64 turn = x - __builtin_rint(x), size = __builtin_fabs(turn);
  if (turn == 0) return x == 0 ? x : 0;
  return __builtin_copysign(::sin(2 * PI * (size > 0.25 ? 0.5 - size : size)), turn) + 0.0;
}
INLINE f64 cos_turns(f64 x) { return sin_turns(0.25 - __builtin_fabs(x - __builtin_rint(x))); }
// Returns two to a power, within the range of float64.
INLINE f64 two(i32 by) { return as<f64>((u64)(1023 + (by < -1000 ? -1000 : by > 1000 ? 1000 : by)) << 52); }
T_ T ldexp(T x, i32 by) {
  if constexpr (sizeof(T) == 8) return __builtin_ldexp(x, by);
  else return number<T>((f64)x * two(by));
}
T_ T mantissa(T x) { i32 by; return number<T>(__builtin_frexp((f64)x, &by)); }
T_ i32 frexp_exponent(T x) {  // 0 for zero, infinities and NaN
  i32 by = 0;
  if (x - x == 0) __builtin_frexp((f64)x, &by);
  return by;
}
// Returns the error of the rounded sum of a and b.
INLINE f64 lost(f64 a, f64 b, f64 total) {
  f64 back = total - a;
  return (a - (total - back)) + (b - back);
}
// Returns a sum rounded to odd: a second rounding then does no harm (Boldo and Melquiond, 2008).
INLINE f64 odd(f64 a, f64 b) {
  f64 total = a + b, error = lost(a, b, total);
  u64 raw = as<u64>(total);
  if (error != 0 && !(raw & 1) && exponent(total) != 2047) raw += (error > 0) == (total > 0) ? 1 : -1;
  return as<f64>(raw);
}
INLINE f64 fma(f64 a, f64 b, f64 c) { return __builtin_fma(a, b, c); }
INLINE f32 fma(f32 a, f32 b, f32 c) { return __builtin_fmaf(a, b, c); }
INLINE f16 fma(f16 a, f16 b, f16 c) { return narrow(odd((f64)a * (f64)b, c)); }
INLINE f32 scaled_fma(f32 a, f32 b, f32 c, i32 by) {
  return (f32)(odd((f64)a * (f64)b, c) * two(by));
}
// The error of an FMA is that of Boldo and Muller, "Exact and approximated error of the FMA"
// (2011).
INLINE f64 scaled_fma(f64 a, f64 b, f64 c, i32 by) {
  if (by < 0) a *= 0x1p256, c *= 0x1p256, by -= 256;  // the error must not be subnormal
  f64 total = fma(a, b, c), product = a * b, low_part = fma(a, b, -product), small = c + low_part;
  f64 error = (product + small - total + lost(product, small, product + small)) + lost(c, low_part, small);
  f64 near = total * two(by), rest = total - near * two(-by);  // mends a tie that is none in truth
  bool beyond = error != 0 && (error > 0) == (rest > 0) && abs(rest) == two(-1075 - by);
  return beyond ? near + __builtin_copysign(0x1p-1074, rest) : near;
}

// A minimum or maximum that prefers a number to NaN; -0 is less than +0. Older targets have an
// IEEE mode, in which a signalling NaN is the result, made quiet. Of two other NaN, CDNA takes the
// second.
template <bool larger, bool ieee, class T> INLINE T pick(T a, T b) {
  if (ieee && isSignalNAN(a)) return cvtToQuietNAN(a);
  if (ieee && isSignalNAN(b)) return cvtToQuietNAN(b);
  if (a != a && b != b) return RDNA == 4 ? cvtToQuietNAN(a) : RDNA ? a : b;
  if (a != a) return b;
  if (b != b) return a;
  if (a == b) return larger == sign(a) ? b : a;
  return (a < b) == larger ? b : a;
}
T_ T v_max(T a, T b) { if constexpr (floats<T>) return pick<true, IEEE>(a, b); else return a > b ? a : b; }
T_ T v_min(T a, T b) { if constexpr (floats<T>) return pick<false, IEEE>(a, b); else return a < b ? a : b; }
// A minimum or maximum that is NaN if an operand is NaN: a signalling NaN first, made quiet.
template <bool larger, class T> INLINE T pick_nan(T a, T b) {
  if (isSignalNAN(a) || isSignalNAN(b)) return cvtToQuietNAN(isSignalNAN(a) ? a : b);
  return a != a ? a : b != b ? b : pick<larger, false>(a, b);
}
T_ T v_maximum(T a, T b) { return pick_nan<true>(a, b); }
T_ T v_minimum(T a, T b) { return pick_nan<false>(a, b); }
T_ T v_max_num(T a, T b) { return pick<true, false>(a, b); }
T_ T v_min_num(T a, T b) { return pick<false, false>(a, b); }

// Converts to an integer: truncated, limited to the range of the type, and 0 for NaN.
template <class T> INLINE T whole(f64 x) {
  constexpr T top = (T)-1 < 0 ? (T)(~(u64)0 >> (65 - 8 * sizeof(T))) : (T)-1, bottom = ~top;
  return x != x ? 0 : x >= (f64)top ? top : x <= (f64)bottom ? bottom : (T)x;
}
// The conversions that the text calls f32_to_i32 and the like.
template <class T, class S> INLINE T convert(S x) {
  if constexpr (floats<T>) return x; else return whole<T>(x);
}
INLINE i16 v_cvt_i16_f32(f32 x) { return whole<i16>(x); }
INLINE u16 v_cvt_u16_f32(f32 x) { return whole<u16>(x); }
INLINE f16 truncated_f16(f32 x) {  // towards zero: a number never becomes infinite
  f16 near = x;
  return abs((f32)near) > abs(x) ? as<f16>((u16)(bits(near) - 1)) : near;
}
INLINE f32 bf16_to_f32(u16 x) { return as<f32>((u32)x << 16); }
INLINE u16 f32_to_bf16(f32 x) {
  u32 raw = bits(x);
  return (x != x ? raw | 0x400000 : raw + 0x7FFF + (raw >> 16 & 1)) >> 16;
}
INLINE f32 bf16_to_flushed(u16 x) { return RDNA ? flush(bf16_to_f32(x)) : bf16_to_f32(x); }
INLINE u16 truncated_bf16(f64 x) {  // towards zero; a subnormal becomes 0
  f32 near = x;
  return bits(flush(as<f32>(bits(near) - (x - x == 0 && abs((f64)near) > abs(x))))) >> 16;
}
T_ i64 signext(T x) { return x; }
T_ i32 i4_to_i32(T x) { return x; }
T_ u32 u4_to_u32(T x) { return x; }
INLINE i32 i8_to_i32(i8 x) { return x; }
INLINE u32 u8_to_u32(u8 x) { return x; }
INLINE i32 i16_to_i32(i16 x) { return x; }
INLINE u32 u16_to_u32(u16 x) { return x; }
T_ T signext_from_bit(T x, u32 count) {
  return count == 0 ? 0 : count >= sizeof(T) * 8 ? x : (T)low_signed(as<u64>(x), count);
}

// Decodes a number in a format of few bits without infinities and NaN (OCP Microscaling Formats
// 1.0, section 5.3).
template <int exponent, int stored> static f64 tiny(u64 x, int bias = (1 << exponent - 1) - 1) {
  int digits = low(x, stored), place = low(x >> stored, exponent);
  f64 size = (place ? digits | 1 << stored : digits) * two((place ? place : 1) - bias - stored);
  return x >> (exponent + stored) & 1 ? -size : size;
}
// A format of 8 bits; `infinity` is 0 for a format without infinities. FNUZ: no -0, and 0x80 is
// the NaN.
template <int stored, int bias, u32 infinity> struct Float8 {
  static f32 decode(u8 code) {
    u32 size = code & 127;
    if (infinity && size == infinity) return code & 128 ? -INF : INF;
    if (FNUZ ? code == 128 : size > (infinity ? infinity : 126)) return code & 128 ? -NAN : NAN;
    return tiny<7 - stored, stored>(code, bias);
  }
  static u8 encode(f32 x) {  // the nearest code, ties to even; too large: NaN or infinity
    constexpr int shift = 23 - stored;
    u32 size = bits(x) & 0x7FFFFFFF, sign = bits(x) >> 24 & 128;
    // The sum with a number whose last bit is the format's rounds a small number correctly.
    f32 magic = two(23 - stored + 1 - bias);
    u32 code = size < (u32)(127 - bias + 1) << 23
        ? bits(as<f32>(size) + magic) - bits(magic)
        : ((size + (1 << (shift - 1)) - 1 + (size >> shift & 1)) >> shift) - ((127 - bias) << stored);
    constexpr u32 largest = infinity ? infinity - 1 : FNUZ ? 127 : 126;
    if (SATURATES && x == x && code > largest) code = largest;
    bool over = code > (infinity ? infinity : largest);
    if (FNUZ) return x != x || over ? 128 : code ? code | sign : 0;
    if (infinity) return sign | (x != x ? 127 : over ? infinity : code);
    return sign | (x != x || over ? 127 : code);
  }
};
// The formats of OCP, which gfx950 and gfx12 have, and those of gfx942, whose bias is greater by
// one.
typedef Float8<3, 7 + FNUZ, 0> E4m3;
typedef Float8<2, 15 + FNUZ, FNUZ ? 0 : 0x7C> E5m2;
INLINE u8 f32_to_fp8(f32 x) { return E4m3::encode(x); }
INLINE u8 f32_to_bf8(f32 x) { return E5m2::encode(x); }
INLINE f32 fp8_to_f32(u8 x) { return E4m3::decode(x); }
INLINE f32 bf8_to_f32(u8 x) { return E5m2::decode(x); }
INLINE f32 fp4_to_f32(u32 x) { return tiny<2, 1>(x); }

T_ u32 bitCount(T x) { return __builtin_popcountll(x); }
INLINE u32 reverse(u32 x) { return __builtin_bitreverse32(x); }
INLINE i32 leading_zeros(u32 x) { return x ? __builtin_clz(x) : -1; }
T_ i32 trailing_zeros(T x) { return x ? __builtin_ctzll(x) : -1; }
INLINE u32 select_byte(u64 both, u32 selector) {  // one byte of eight, or a constant
  u32 chosen = selector & 255;
  if (chosen < 8) return both >> (8 * chosen) & 255;
  if (chosen < 12) return both >> (16 * (chosen - 8) + 15) & 1 ? 255 : 0;  // the sign of a half, repeated
  return chosen == 12 ? 0 : 255;
}
// Returns the end of a bound: 1, -1 or neither; for another `side`, an end that x's hash chooses.
INLINE i64 end(u64 raw, i64 side) {
  if (side >= -1 && side <= 1) return side;
  u64 mixed = (raw ^ (u64)side << 40) * 0x9E3779B97F4A7C15;
  mixed = (mixed ^ mixed >> 29) * 0xBF58476D1CE4E5B9;
  return side & 1 ? (i64)((mixed >> 32) % 3) - 1 : mixed >> 32 & 1 ? 1 : -1;
}
T_ T bounded(T x, i64 side) {  // a result at an end of the 1 ULP that documents allow
  i64 by = end(bits(x), side);
  if (by == 0 || x == 0 || exponent(x) == (1 << Form<T>::exponent) - 1) return x;
  return as<T>(bits(x) + ((by > 0) != sign(x) ? 1 : -1));
}
INLINE f64 coarse(f64 x, i64 side) {  // the same for float64: 2 ** 29 ULP
  return exponent(x) == 2047 || abs(x) <= 1e-290 ? x : as<f64>(as<u64>(x) + (end(as<u64>(x), side) << 29));
}
// For sine and cosine, whose bound no document states; captures of rocjitsu (amdgpu_trig.h) are
// within 2^-22.
INLINE f64 rough(f64 x, i64 side) {
  f64 moved = x + end(as<u64>(x), side) * 0x1p-20;
  return side == 0 ? x : moved > 1 ? 1 : moved < -1 ? -1 : moved;
}
// Returns a sum of `count` products and a number, at an end of what any order of float32 additions
// gives.
INLINE f64 added(f64 x, f64 sizes, i32 count, i64 side) {
  return side ? x + end(as<u64>(x), side) * count * 0x1p-23 * sizes : x;
}
}  // namespace f
template <class T> INLINE bool operator==(T x, Denorm) { return f::isDENORM(x); }

// The formats of a matrix's elements: the value of bits, and the bits of a rounded value; `unit`
// is the distance of 1 to the next larger number.
#define INPUT(name, width, code) \
  struct name { static constexpr int bits = width; static f64 value(u64 x) { return code; } };
#define OUTPUT(name, width, ulp, code, written) \
  struct name { \
    static constexpr int bits = width; static constexpr f64 unit = ulp; \
    static f64 value(u64 x) { return code; } static u64 rounded(f64 x) { return written; } };
OUTPUT(F64, 64, 0x1p-52, as<f64>(x), as<u64>(x)) OUTPUT(F32, 32, 0x1p-23, as<f32>((u32)x), f::bits((f32)x))
OUTPUT(F16, 16, 0x1p-10, as<f16>((u16)x), f::bits(narrow(x)))
OUTPUT(BF16, 16, 0x1p-7, f::bf16_to_f32(x), f::f32_to_bf16(odd(x))) OUTPUT(I32, 32, 0, (i32)x, (u32)(i64)x)
// The formats of gfx90a's products of float16 and bfloat16: subnormals count as zero, also in
// results (MIOpen's documentation, "MI200 matrix fused multiply-add (MFMA) behavior specifics").
OUTPUT(FLUSHED_F32, 32, 0x1p-23, f::flush(as<f32>((u32)x)), f::bits(f::flush((f32)x)))
INPUT(FLUSHED_F16, 16, f::flush(as<f16>((u16)x))) INPUT(FLUSHED_BF16, 16, f::flush(f::bf16_to_f32(x)))
// Documents speak of rounding and of truncation. gfx942 truncates, also NaN, by
// ROCm/rocm-libraries#9176 and triton-lang/triton#11783.
INPUT(XF32, 32, as<f32>((u32)x & ~0x1FFFu)) INPUT(I8, 8, (i8)x) INPUT(U8, 8, x)
INPUT(I4, 4, low_signed(x, 4)) INPUT(U4, 4, x) INPUT(FP8, 8, f::fp8_to_f32(x)) INPUT(BF8, 8, f::bf8_to_f32(x))
INPUT(FP6, 6, (f::tiny<2, 3>(x))) INPUT(BF6, 6, (f::tiny<3, 2>(x)))
INPUT(FP4, 4, f::fp4_to_f32(x))
// Adds both halves of two words.
template <class T> INLINE u32 both(u32 a, u32 b) {
  u32 result = 0;
  for (int by = 0; by < 32; by += 16)
    result |= (u32)T::rounded(T::value(a >> by & 0xFFFF) + T::value(b >> by & 0xFFFF)) << by;
  return result;
}
typedef u32 (*Registers)[LANES];
// Returns up to 64 bits of a lane's registers.
INLINE u64 field(Registers from, int lane, int place, int bits) {
  int word = place / 32, shift = place % 32;
  u64 value = from[word][lane] >> shift;
  if (shift + bits > 32) value |= (u64)from[word + 1][lane] << (32 - shift);
  return low(value, bits);
}
// The registers of A or B, and their scales (translate.py describes the order of products).
struct Input {
  Registers registers;
  const u32 *scale;  // for each lane, the exponent for a row and 32 products; null: no scales
};
// Unpacks all elements of A or B; `across` is the step between rows of A (columns of B), `along`
// between products.
template <class T, int size, int products, int blocks>
static void unpack(Input from, f64 *to, int across, int along) {
  constexpr int groups = RDNA == 3 ? 1 : LANES / size / blocks, each = products / groups;
  constexpr int run = T::bits == 8 && each > 16 ? 16 : each;  // the products side by side in a lane
  for (int lane = 0; lane < size * blocks * groups; lane++)
    for (int i = 0; i < each; i++) {
      int row = lane % size, block = lane / size % blocks, group = lane / size / blocks;
      int k = i / run * run * groups + group * run + i % run;
      f64 value = T::value(field(from.registers, lane, i * T::bits, T::bits));
      if (from.scale) {
        u32 exponent = from.scale[k / 32 * size + row];
        value *= exponent == 255 ? NAN : f::two((i32)exponent - 127);
      }
      to[block * size * products + row * across + k * along] = value;
    }
}
// Computes D = A B + C in all lanes, also inactive lanes. Without registers for C, C is a
// constant. With `only`, all products take that block of A. `half` is the half of the registers
// that has C and D on gfx11.
template <class A, class B, class C, int size, int products, int blocks>
static void multiply(i64 side, Registers d, Input a, Input b, Registers c, u64 constant, int only, int half) {
  typedef f64 Row __attribute__((vector_size(size * sizeof(f64))));
  constexpr int elements = size * size * blocks / LANES, rows = LANES / size;
  constexpr int words = C::bits == 64 ? 2 * elements : C::bits == 16 && RDNA == 4 ? elements / 2 : elements;
  f64 left[blocks * size][products];
  Row right[blocks][products], sums[blocks * size];
  u32 result[words][LANES];  // the registers of D may be among those of C
  unpack<A, size, products, blocks>(a, left[0], products, 1);
  unpack<B, size, products, blocks>(b, (f64 *)right, 1, size);
  for (int row = 0; row < blocks * size; row++) {
    const f64 *factors = left[only < 0 ? row : only * size + row % size];
    Row sum = {};
    for (int k = 0; k < products; k++) sum = __builtin_elementwise_fma((Row)(factors[k] - Row{}), right[row / size][k], sum);
    sums[row] = sum;
  }
  __builtin_memcpy(result, d, sizeof result);
  for (int i = 0; i < elements; i++)
    for (int lane = 0; lane < LANES; lane++) {
      int row = RDNA == 3 ? 2 * i + lane / 16 : RDNA == 4 ? lane / 16 * 8 + i
                : C::bits == 64 ? i * rows + lane / size : i / 4 * 4 * rows + lane / size * 4 + i % 4;
      int place = C::bits == 16 && RDNA == 3 ? 32 * i + 16 * half : C::bits * i, column = lane % size;
      f64 before = C::value(c ? field(c, lane, place, C::bits) : constant);
      if (side && C::unit) {
        f64 sizes = f::abs(before);
        for (int k = 0; k < products; k++)
          sizes += f::abs(left[only < 0 ? row : only * size + row % size][k] * right[row / size][k][column]);
        before += f::end(i + lane, side) * products * C::unit * sizes;
      }
      u64 bits = C::rounded(before + sums[row][column]);
      u32 &word = result[place / 32][lane];
      word = C::bits == 16 ? (word & 0xFFFF0000u >> place % 32) | bits << place % 32 : bits;
      if (C::bits == 64) result[place / 32 + 1][lane] = bits >> 32;
    }
  __builtin_memcpy(d, result, sizeof result);
}
// Transposes the matrix that 16 lanes have read as rows of 16.
template <int bits> INLINE void transpose(Registers to) {
  constexpr int words = bits == 6 ? 3 : 2, each = words * 32 / bits;
  u32 from[words][LANES];
  __builtin_memcpy(from, to, sizeof from);
  __builtin_memset(to, 0, sizeof from);
  for (int lane = 0; lane < LANES; lane++)
    for (int i = 0; i < each; i++) {
      int source = i * 16 + lane % 16, place = i * bits;
      u64 element = field(from, lane / 16 * 16 + source / each, source % each * bits, bits) << place % 32;
      to[place / 32][lane] |= element;
      if (place % 32 + bits > 32) to[place / 32 + 1][lane] |= element >> 32;
    }
}

constexpr u32 VCC_ = 106, EXEC_ = 126, SCC_ = 253, PC_ = 254;
INLINE u64 mask(const u32 *s, u32 place) { return LANES == 64 ? join(s[place], s[place + 1]) : s[place]; }
INLINE void set_mask(u32 *s, u32 place, u64 lanes) {
  s[place] = lanes;
  if (LANES == 64) s[place + 1] = lanes >> 32;
}

enum Fault : u64 { NONE, OUTSIDE, NOWHERE, READ_ONLY, MISALIGNED, UNWRITTEN, RACE_READ, RACE_WRITE, PENDING, UNFENCED, UNSTORED, ENDLESS, UNMODELLED, UNKNOWN };
enum Space : u64 { GLOBAL, SHARED, SCRATCH, FLAT };
enum { READ = 1, WRITE = 2, ATOMIC = 3, RELOAD = 4 };  // RELOAD: perhaps of a spilled register
constexpr u32 ENDED = ~0u;  // the program counter of a wave that has ended
// The fields are those of `ROW` in memory.py.
struct Buffer {
  u64 base, size;
  u8 *data, *written;  // marks the written bytes; null: all bytes are written
  u64 writable, changed;
  u32 *writers;  // the instruction that wrote each byte last, by its offset; null: not recorded
  u32 *touched;  // the last accesses to each byte, as in `writer` and `reader`; null: not recorded
  u8 *known;     // as `written`, but to note hazards; null: all bytes
};
struct Machine;
// Executes an instruction for a wave, and returns the next instruction's offset, or FAULTY or
// PAUSED.
typedef u64 Execute(Machine *, u32 *s, const u64 *op);
constexpr u64 FAULTY = ~0ull, PAUSED = ~1ull;  // PAUSED: at a barrier, or at the wave's end
// The effects of an instruction on unfinished memory operations (`track` in registers.py).
struct Track {
  u16 uses, results;           // how many registers it uses at once, and how many its operation writes
  u16 begins, into, arrives;   // its operation's kind plus 1; a load into LDS; arrival at a barrier
  u16 stores;                  // whether it begins a store with a counter of its own
  u16 most[4], registers[];    // operations of each kind, and stores, that it leaves; ANY
};
struct Instruction {
  Execute *execute;
  const u64 *op;
  const Track *track;
  u64 bits, counts;  // of its registers (registers.py, `bits`); 1: begins, awaits or arrives; and below
};
constexpr u64 WIDE = 2;     // loads the word around the half that an atomic operation of its line changes
constexpr u64 INDEXED = 4;  // loads at a scalar register's index, not a spilled register
constexpr u16 ANY = 0xFFFF;
enum Kind { VECTOR_MEMORY, LOCAL, SCALAR_MEMORY, FLAT_MEMORY, KINDS };
// The memory operations of a wave, numbered by kind. Vector memory and LDS finish in order.
struct Wave {
  u64 begun[KINDS], done[KINDS], last[KINDS];  // begun, finished, and the last with a result
  u64 arrived, fenced;                         // vector memory finished at this barrier, and at the last
  u64 stores, stored;                          // stores with a counter of their own: begun, and finished
  u64 reached, visible;                        // the barrier with all stores finished, and as others know it
  u64 flat[2][64];                             // the numbers of the last flat operations in both counters
  u64 open;                                    // the bits of the registers that wait for a result
  u32 due[768];                                // by register, its operation: number * 4 + kind
  u32 from[768];                               // by register, that operation's offset
  u64 bits[KINDS][64];                         // the bits of the results of the last operations
};
// The machine of one thread, which executes workgroups one by one. The fields are those of
// `_Machine` in workgroup.py.
struct Machine {
  Instruction *code;  // by word of the code
  u64 code_size;
  u16 *pages;  // by page of 4 GiB, the number of the buffer; 0: no buffer
  Buffer *buffers;
  u32 *registers;  // `stride` for each wave: 256 scalar registers, then vector registers
  u32 *initial;    // the first `initials` registers of each wave at its start
  u64 initials, stride, waves, groups, columns, rows;  // of the grid: workgroups in all, along x, and along y
  u64 id_place[3];  // scalar registers, plus 1, for a workgroup's x, y and z; 0: no register
  u64 *next;        // the next workgroup, for whichever thread is free
  u64 group, wave, started, side, *hits, executed, limit, epoch;
  Buffer shared, scratch;  // of one workgroup, and of one lane; the data are all lanes'
  u8 *notes;               // by word of the code: 1, a wide shift; 2, an unaligned access
  u32 *writer, *reader;    // the last accesses to each byte of LDS: barrier * 64 + wave
  u64 at, fault, space, address, size, other;
  u64 turn, reverse;     // the present turn, and whether the last wave is first
  u64 (*hazards)[2];     // by word of the code: the first race, the first unwritten read
  u16 *clash;            // by byte of LDS that two waves write: 1, the first wave, the old byte
  u32 *places;           // the places of those bytes
  u64 clashes;           // the number of those bytes
  Wave *tracks;          // one for each wave
  u64 *late;             // by byte of LDS, its load: number << 32 | barrier << 6 | wave
  u64 loads, into;       // the last such load; whether the last operation is one
  u64 first;             // the first barrier of the workgroup
  u64 split;             // whether its waves may have separate caches (RDNA's WGP mode)
  u64 word;              // a word of which some bytes lie past a tensor's end
  // Functions of the library with `run`: no other library compiles them.
  u8 *(*near)(Machine *, u64 lane, u64 space, u64 address, u64 size, int how, const u8 *value);
  bool (*watch)(Machine *, Buffer *, u64 row, u64 offset, u64 size, int how, const u8 *value);
  u8 *(*most)(Machine *, u64 lane, u64 space, u64 address, u64 &size, u64 least, int how);
  bool (*scalar)(Machine *, u64 base, u64 offset, u64 records, u64 size, u32 *words);
};

static __attribute__((noinline)) u8 *fail(Machine *m, u64 fault, u64 space, u64 address, u64 size, u64 other) {
  m->fault = fault, m->space = space, m->address = address, m->size = size, m->other = other;
  return nullptr;
}
INLINE bool marked(Machine *m, u8 *written, u64 offset, u64 size, int how, u64 space, u64 other) {
  for (u64 byte = 0; written && byte < size; byte++) {
    if (how & READ && !written[offset + byte]) return fail(m, UNWRITTEN, space, offset + byte, 1, other);
    if (how == WRITE) written[offset + byte] = 1;
  }
  return true;
}
// The HSA runtime allows unaligned accesses, except by atomic operations; LLVM relies on that.
INLINE bool aligned(Machine *m, u64 address, u64 size, int how) {
  if (!(address & ((size < 4 ? size : 4) - 1))) return true;
  m->notes[m->at / 4] |= 2;
  return how != ATOMIC;
}
#if RUNNER
// Whether the load into a byte of LDS has finished, as far as this wave can know. All other writes
// to LDS reach all waves in one order (LLVM's AMDGPUUsage, memory model), so that a barrier
// suffices.
INLINE bool settled(Machine *m, u64 place) {
  const u64 late = m->late[place], barrier = late >> 6 & 0x3FFFFFF, wave = late & 63;
  if (barrier < m->first || (barrier == m->epoch && wave != m->wave)) return true;  // the last case is a race
  const Wave *w = m->tracks + wave;
  return late >> 32 <= (wave == m->wave ? w->done[VECTOR_MEMORY] : w->fenced);
}
static u8 *near(Machine *m, u64 lane, u64 space, u64 address, u64 size, int how, const u8 *value) {
  Buffer *b = space == SHARED ? &m->shared : &m->scratch;
  if (address + size > b->size) return fail(m, OUTSIDE, space, address, size, 0);
  if (!aligned(m, address, size, how)) return fail(m, MISALIGNED, space, address, size, 0);
  u64 offset = space == SHARED ? address : address + (m->wave * LANES + lane) * b->size;
  if (how == RELOAD && m->code[m->at / 4].counts & INDEXED) how = READ;
  if (!marked(m, b->written, offset, size, how, space, 0)) return nullptr;
  // Where two paths join, LLVM also reloads a register that only the other path has spilled:
  // nobody uses it.
  for (u64 byte = 0; how == RELOAD && byte < size; byte++)
    if (!b->written[offset + byte]) b->data[offset + byte] = 0;
  if (space == SHARED && m->loads)
    for (u64 place = address; place < address + size; place++)
      if (how & WRITE) m->late[place] = m->into ? m->loads : 0;
      else if (!settled(m, place)) return fail(m, UNFENCED, VECTOR_MEMORY, place, size, m->late[place] & 63);
  if (space == SHARED && how != ATOMIC) {
    u32 stamp = m->epoch << 6 | m->wave;
    for (u64 place = address; place < address + size; place++) {
      u32 last = m->writer[place], read = m->reader[place], mine = stamp;
      if (__builtin_expect(last >> 6 == m->epoch && last != stamp, 0)) {
        u64 byte = place - address;
        // Writes of equal values give one result in any order, but a reader needs a barrier all
        // the same.
        if (how == READ) return fail(m, RACE_WRITE, how, place, size, last & 63);
        bool same = value && value[byte / 4 * 4 * LANES + byte % 4] == b->data[place];
        if (!same && !m->clash[place]) {
          m->clash[place] = 1 << 14 | (last & 63) << 8 | b->data[place];
          m->places[m->clashes++] = place;
        }
        mine |= 63;
      }
      if (how == WRITE && read >> 6 == m->epoch && read != stamp)
        return fail(m, RACE_READ, how, place, size, read & 63);
      if (how == WRITE) m->writer[place] = mine;
      else m->reader[place] = read >> 6 == m->epoch && read != stamp ? stamp | 63 : stamp;
    }
  }
  return b->data + offset;
}
// Records the hazards of an access: an order of waves that no barrier fixes, and a read of
// unwritten bytes. A second run shows whether the result depends on a hazard (`LaunchWatch` in
// workgroup.py).
static bool watch(Machine *m, Buffer *b, u64 row, u64 offset, u64 size, int how, const u8 *value) {
  const u32 stamp = m->epoch << 6 | m->wave;
  for (u64 byte = 0; byte < size; byte++) {
    const u64 place = offset + byte, where = place << 28 | row << 12 | m->wave << 6;
    u64 *found = m->hazards[m->at / 4];
    if (b->known && how & READ && !b->known[place] && !found[1]) found[1] = where;
    if (b->known && how & WRITE) b->known[place] = 1;
    if (how == ATOMIC) continue;
    u32 *last = b->touched + 2 * place, *read = last + 1;
    const u64 when = *last >> 6, wave = *last & 63;
    if (m->split && how == READ && wave < m->waves && wave != m->wave && when >= m->first && when < m->epoch &&
        m->tracks[wave].visible < when)
      return fail(m, UNSTORED, GLOBAL, place, wave, row);
    const bool same = value && value[byte / 4 * 4 * LANES + byte % 4] == b->data[place];
    const u32 before = last[0] >> 6 == m->epoch && last[0] != stamp ? last[0]
                       : how == WRITE && *read >> 6 == m->epoch && *read != stamp ? *read : 0;
    if (before && !same && !found[0]) found[0] = where | (before & 63);
    if (how == WRITE) *last = last[0] >> 6 == m->epoch && last[0] != stamp ? stamp | 63 : stamp;
    else *read = *read >> 6 == m->epoch && *read != stamp ? stamp | 63 : stamp;
  }
  return true;
}
#endif
// Returns where an access reaches, or null after a fault; `value`: the registers that a store
// reads.
INLINE u8 *reach(Machine *m, u64 lane, u64 space, u64 address, u64 size, int how, const u8 *value = nullptr) {
  if (space == FLAT) {  // the windows of LDS and scratch
    space = address >> 48 > 2 ? GLOBAL : address >> 48;
    address = space ? address & ((1ull << 48) - 1) : address;
  }
  if (space != GLOBAL) return m->near(m, lane, space, space == SCRATCH ? (u32)address : address, size, how, value);
  u64 row = address >> 48 ? 0 : m->pages[address >> 32];
  if (!row) return fail(m, NOWHERE, GLOBAL, address, size, 0);
  Buffer *b = m->buffers + row;
  u64 offset = address - b->base;
  if (offset + size > b->size) {
    if (how != READ || offset % 4 || offset >= b->size || !(m->code[m->at / 4].counts & WIDE))
      return fail(m, OUTSIDE, GLOBAL, offset, size, row);
    m->word = 0;
    return __builtin_memcpy(&m->word, b->data + offset, b->size - offset), (u8 *)&m->word;
  }
  if (how & WRITE && !b->writable) return fail(m, READ_ONLY, GLOBAL, offset, size, row);
  if (!aligned(m, offset, size, how)) return fail(m, MISALIGNED, GLOBAL, offset, size, row);
  if (how & WRITE) b->changed = 1;
  for (u64 byte = 0; how & WRITE && b->writers && byte < size; byte++) b->writers[offset + byte] = m->at;
  if (__builtin_expect(b->touched != nullptr, 0) && !m->watch(m, b, row, offset, size, how, value)) return nullptr;
  return marked(m, b->written, offset, size, how, GLOBAL, row) ? b->data + offset : nullptr;
}
INLINE int first_lane(u64 x) { return x ? __builtin_ctzll(x) : 0; }
template <class T> INLINE T get(const u8 *p) { T x; __builtin_memcpy(&x, p, sizeof x); return x; }
template <class T> INLINE void put(u8 *p, T x) { __builtin_memcpy(p, &x, sizeof x); }
#if RUNNER
// Reaches a word, or the part of the word within a tensor if `least` bytes are; `size` gets the
// number.
static u8 *most(Machine *m, u64 lane, u64 space, u64 address, u64 &size, u64 least, int how) {
  const u64 whole = size;
  for (; size && size >= least; size--) {
    if (u8 *p = reach(m, lane, space, address, size, how)) return m->fault = NONE, p;
    if (m->fault != OUTSIDE || address % 4) break;
  }
  return reach(m, lane, space, address, whole, how);  // reports a fault for the whole word
}
// Loads words, or fewer bytes, for scalar registers. LLVM widens a load of a byte or two to the
// aligned word around it (AMDGPULateCodeGenPrepare.cpp, visitLoadInst): up to three bytes of the
// last word may lie past the end of a tensor, and read as 0. So do bytes past a buffer's records.
static bool scalar(Machine *m, u64 base, u64 offset, u64 records, u64 size, u32 *words) {
  u64 unit = size < 4 ? size : 4, address = (base + offset) & ~(unit - 1);
  __builtin_memset(words, 0, size < 4 ? 4 : size);
  if (offset >= records) return true;
  if (size > records - offset) size = records - offset & ~(unit - 1);
  if (!size) return true;
  u64 within = size;
  u8 *p = most(m, 0, GLOBAL, address, within, size < 4 ? size : size - 3, READ);
  if (p) __builtin_memcpy(words, p, within);
  return p;
}
// If lanes of a wave write to one byte, the last lane's value stays. Equal results of two waves
// are no race.
static __attribute__((noinline)) bool clashed(Machine *m, bool whole) {
  bool race = false;
  while (m->clashes) {
    u32 place = m->places[--m->clashes];
    u16 clash = m->clash[place];
    m->clash[place] = 0;
    if (whole && (u8)clash != m->shared.data[place])
      race = true, fail(m, RACE_WRITE, WRITE, place, 1, clash >> 8 & 63);
  }
  return race;
}
// Whether an instruction's registers wait for no operation. Operations of one kind write in order.
static __attribute__((noinline)) bool ready(Machine *m, const Wave *w, const Track *t) {
  for (int i = 0; i < t->uses + t->results; i++) {
    const u16 place = t->registers[i];
    const u32 due = w->due[place], kind = due & 3;
    if (due >> 2 <= w->done[kind] || (i >= t->uses && kind + 1 == t->begins && kind <= LOCAL)) continue;
    return fail(m, PENDING, kind, place, 0, w->from[place]);
  }
  return true;
}
// Counts the operations that an instruction begins, and those for which it has waited.
static __attribute__((noinline)) void count(Machine *m, Wave *w, const Track *t, u64 at, u64 bits) {
  for (int kind = 0; kind < SCALAR_MEMORY; kind++) {
    const u64 most = t->most[kind] == ANY ? w->begun[kind] : t->most[kind];
    // GFX9 finishes flat operations out of order: until then only 0 is certain (LLVM's
    // SIInsertWaitcnts.cpp).
    if (!RDNA && most && w->done[FLAT_MEMORY] < w->begun[FLAT_MEMORY]) continue;
    if (w->begun[kind] > w->done[kind] + most) w->done[kind] = w->begun[kind] - most;
  }
  if (!t->most[SCALAR_MEMORY]) w->done[SCALAR_MEMORY] = w->begun[SCALAR_MEMORY];
  if (t->most[3] != ANY && w->stores > w->stored + t->most[3]) w->stored = w->stores - t->most[3];
  w->stores += t->stores;
  if (t->arrives) w->arrived = w->done[VECTOR_MEMORY];
  if (t->arrives && w->stored == w->stores) w->reached = m->epoch;
  if (t->begins) {
    const u32 kind = t->begins - 1, number = ++w->begun[kind];
    if (t->into) m->loads = (u64)number << 32 | m->epoch << 6 | m->wave;
    m->into = t->into;
    if (kind == FLAT_MEMORY)
      for (int counter = 0; counter < 2; counter++) w->flat[counter][number % 64] = ++w->begun[counter];
    w->bits[kind][number % 64] = t->results ? bits : 0;
    for (int i = t->uses; i < t->uses + t->results; i++)
      w->due[t->registers[i]] = number << 2 | kind, w->from[t->registers[i]] = at, w->last[kind] = number;
  }
  for (u64 &done = w->done[FLAT_MEMORY]; done < w->begun[FLAT_MEMORY]; done++) {
    const u64 next = (done + 1) % 64;
    if (w->flat[0][next] > w->done[VECTOR_MEMORY] || w->flat[1][next] > w->done[LOCAL]) break;
  }
  w->open = 0;
  for (int kind = 0; kind < KINDS; kind++)
    for (u64 number = w->last[kind]; number > w->done[kind]; number--)
      w->open |= w->begun[kind] - number < 64 ? w->bits[kind][number % 64] : ~0ull;
}
// Runs a wave to its next barrier or its end; false: a fault stops the wave.
static bool step(Machine *m, u32 *s) {
  Wave *w = m->tracks + m->wave;
  for (u64 at = s[PC_], next;; at = next) {
    m->at = at;
    Fault fault = at / 4 >= m->code_size ? UNMODELLED : !m->code[at / 4].execute ? UNKNOWN
                  : ++m->executed > m->limit ? ENDLESS : NONE;
    if (fault) {
      fail(m, fault, 0, 0, 0, 0);
    } else {
      const Instruction &it = m->code[at / 4];
      if (__builtin_expect((w->open & it.bits) != 0, 0) && !ready(m, w, it.track)) return s[PC_] = at, false;
      if (it.counts) count(m, w, it.track, at, it.bits);
      m->hits[at / 4]++, next = it.execute(m, s, it.op);
    }
    if (m->clashes && clashed(m, next != FAULTY)) next = FAULTY;
    if (fault || next == FAULTY) return s[PC_] = at, false;
    if (next == PAUSED) return true;
  }
}
// A later wave of this turn may write the byte that was read unwritten: then the fault is a race.
static void settle(Machine *m, u32 *waves) {
  Machine found = *m;
  if (found.fault != UNWRITTEN || found.space != SHARED || m->reverse) return;
  while (++m->wave < m->waves)
    if (waves[m->wave * m->stride + PC_] != ENDED) step(m, waves + m->wave * m->stride);
  u32 last = m->writer[found.address];
  *m = found;
  if (last >> 6 == m->epoch) m->fault = RACE_WRITE, m->space = READ, m->other = last & 63;
}
// Takes the next workgroup of the grid; false: no workgroup is left.
static bool begin(Machine *m) {
  if ((m->group = __atomic_fetch_add(m->next, 1, __ATOMIC_RELAXED)) >= m->groups) return false;
  u32 id[3] = {(u32)(m->group % m->columns), (u32)(m->group / m->columns % m->rows),
               (u32)(m->group / m->columns / m->rows)};
  __builtin_memset(m->registers, 0, m->waves * m->stride * sizeof(u32));
  for (u64 wave = 0; wave < m->waves; wave++) {
    u32 *s = m->registers + wave * m->stride;
    __builtin_memcpy(s, m->initial + wave * m->initials, m->initials * sizeof(u32));
    Wave *w = m->tracks + wave;
    __builtin_memset(w, 0, (char *)w->from - (char *)w);
    if (RDNA == 4) s[115] = id[1] | id[2] << 16, s[117] = id[0];  // TTMP7 and TTMP9
    else for (int axis = 0; axis < 3; axis++) if (m->id_place[axis]) s[m->id_place[axis] - 1] = id[axis];
  }
  __builtin_memset(m->shared.written, 0, m->shared.size);
  __builtin_memset(m->scratch.written, 0, m->scratch.size * m->waves * LANES);
  if (m->epoch >> 25) {  // the stamps have 26 bits for the barrier's number
    __builtin_memset(m->writer, 0, m->shared.size * sizeof(u32));
    __builtin_memset(m->reader, 0, m->shared.size * sizeof(u32));
    __builtin_memset(m->late, 0, m->shared.size * sizeof(u64));
    m->epoch = 1;
  }
  m->first = m->epoch;
  m->executed = m->turn = 0;
  return m->started = 1;
}
// Runs workgroups until none is left; the waves of a workgroup take turns from barrier to barrier.
// After UNKNOWN, when the code has been added, the run goes on where it stopped.
extern "C" int run(Machine *m) {
  m->near = near, m->watch = watch, m->most = most, m->scalar = scalar;
  for (; m->started || begin(m); m->started = 0)
    for (bool alive = true; alive;) {
      for (; m->turn < m->waves; m->turn++) {
        m->wave = m->reverse ? m->waves - 1 - m->turn : m->turn;
        u32 *s = m->registers + m->wave * m->stride;
        if (s[PC_] != ENDED && !step(m, s)) return settle(m, m->registers), 1;
      }
      alive = false;
      for (m->turn = m->waves; m->turn; m->turn--) {
        Wave *w = m->tracks + m->turn - 1;
        w->fenced = w->arrived, w->visible = w->reached;
        alive |= m->registers[(m->turn - 1) * m->stride + PC_] != ENDED;
      }
      m->epoch++;
    }
  return 0;
}
#endif
#define STOP(fault) return fail(m, fault, 0, 0, 0, 0), FAULTY;
// In kernels that let overflow saturate, an infinity of float16 is in doubt.
#define FINITE(bits) if (on && ((bits) & 0x7FFF) == 0x7C00) STOP(UNMODELLED)
// AMD's documents define a shift by the width or more (by the distance's low bits), and C++ does
// not.
#define SHIFTED(wide) if (wide) m->notes[m->at / 4] |= 1;
#define EACH for (int l = 0; l < LANES; l++) if (x >> l & 1)
// All lanes of each half of a wave that has active lanes. No lane may use another lane's registers:
// the compiler computes several lanes at once.
#define HALVES for (int first = 0; first < LANES; first += 32) if (const u32 part = x >> first; part)
#define LANEWISE _Pragma("clang loop vectorize(assume_safety)") for (int i = 0; i < 32; i++)
#define KEEP(name, code) u32 name[LANES]; for (int l = 0; l < LANES; l++) name[l] = code;
#define REACH(p, space, address, size, ...)                \
  u8 *p = reach(m, l, space, address, size, __VA_ARGS__);  \
  if (!p) return FAULTY;
#define EXECUTE(name) static u64 name(Machine *m, u32 *s, const u64 *__restrict op) { \
  u32 (*const v)[LANES] = (u32 (*)[LANES])(s + 256);
