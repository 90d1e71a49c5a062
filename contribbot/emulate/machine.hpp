// What translated kernels run on: registers, memory with its checks, and the functions that the
// vendor's pseudo-code calls (namespace f). LANES, IEEE, FNUZ, CLAMP_NAN, SATURATES and RDNA are defined
// before. It needs no header and no C++ library, so that every clang compiles it.
typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;
typedef signed char i8;
typedef short i16;
typedef int i32;
typedef long long i64;
typedef _Float16 f16;
typedef float f32;
typedef double f64;
#define INLINE static inline __attribute__((always_inline))
extern "C" f64 exp2(f64);
extern "C" f64 log2(f64);

template <class T> constexpr bool floats = false;
template <> constexpr bool floats<f16> = true;
template <> constexpr bool floats<f32> = true;
template <> constexpr bool floats<f64> = true;

// The lowest bits as another type.
template <class T, class S> INLINE T as(S x) {
  u64 word = 0;
  __builtin_memcpy(&word, &x, sizeof x);
  T result;
  __builtin_memcpy(&result, &word, sizeof result);
  return result;
}
// float16 of a float64, rounded once: to odd among float32 first.
INLINE f16 narrow(f64 x) {
  f32 near = (f32)x;
  u32 bits = as<u32>(near);
  if (x == x && (f64)near != x && !(bits & 1))
    bits += __builtin_fabs((f64)near) < __builtin_fabs(x) ? 1 : -1;
  return (f16)as<f32>(bits);
}
// A number as another type.
template <class T, class S> INLINE T number(S x) {
  if constexpr (sizeof(T) == 2 && floats<T> && sizeof(S) == 8 && floats<S>) return narrow(x);
  return (T)x;
}
// What an assignment converts: bits of the same width stay as they are.
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
// Rounding to nearest even, what is too small is 0, and what is too large infinite.
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
T_ T fract(T x) { return x - floor(x); }
T_ bool isEven(T x) { return x / 2 == floor(x / 2); }
T_ T clamp(T x) { return x != x ? (CLAMP_NAN ? (T)0 : x) : x > 1 ? (T)1 : x > 0 ? x : (T)0; }
INLINE f64 exp2(f64 x) { return ::exp2(x); }
INLINE f64 log2(f64 x) { return ::log2(x); }
INLINE f64 pow(f64 base, f64 x) { return ::exp2(x * ::log2(base)); }
INLINE f64 sqrt(f64 x) { return __builtin_sqrt(x); }
// Two to a power that float64 holds.
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
// A sum rounded to odd instead of to nearest: a second rounding is then innocuous (Boldo and
// Melquiond, 2008).
INLINE f64 odd(f64 a, f64 b) {
  f64 total = a + b, back = total - a, error = (a - (total - back)) + (b - back);
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

// A minimum or maximum that prefers a number to NaN; -0 counts as below +0. Older targets have an
// IEEE mode: there a signalling NaN comes out, made quiet. Of two other NaN CDNA takes the second.
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
T_ T v_max_num(T a, T b) { return pick<true, false>(a, b); }
T_ T v_min_num(T a, T b) { return pick<false, false>(a, b); }

// To an integer: truncated, as near as it comes, and 0 of NaN.
template <class T> INLINE T whole(f64 x) {
  constexpr T top = (T)-1 < 0 ? (T)(~(u64)0 >> (65 - 8 * sizeof(T))) : (T)-1, bottom = ~top;
  return x != x ? 0 : x >= (f64)top ? top : x <= (f64)bottom ? bottom : (T)x;
}
INLINE i32 f32_to_i32(f32 x) { return whole<i32>(x); }
INLINE u32 f32_to_u32(f32 x) { return whole<u32>(x); }
INLINE i32 f64_to_i32(f64 x) { return whole<i32>(x); }
INLINE u32 f64_to_u32(f64 x) { return whole<u32>(x); }
INLINE i16 f16_to_i16(f16 x) { return whole<i16>(x); }
INLINE u16 f16_to_u16(f16 x) { return whole<u16>(x); }
INLINE i16 v_cvt_i16_f32(f32 x) { return whole<i16>(x); }
INLINE u16 v_cvt_u16_f32(f32 x) { return whole<u16>(x); }
INLINE u8 f32_to_u8(f32 x) { return whole<u8>(x); }
INLINE f32 i32_to_f32(i32 x) { return x; }
INLINE f32 u32_to_f32(u32 x) { return x; }
INLINE f64 i32_to_f64(i32 x) { return x; }
INLINE f64 u32_to_f64(u32 x) { return x; }
INLINE f16 i16_to_f16(i16 x) { return x; }
INLINE f16 u16_to_f16(u16 x) { return x; }
INLINE f64 f32_to_f64(f32 x) { return x; }
INLINE f32 f64_to_f32(f64 x) { return x; }
INLINE f32 f16_to_f32(f16 x) { return x; }
INLINE f16 f32_to_f16(f32 x) { return x; }
INLINE f16 truncated_f16(f32 x) {  // towards zero: infinity of a number is the largest number
  f16 near = x;
  return abs((f32)near) > abs(x) ? as<f16>((u16)(bits(near) - 1)) : near;
}
INLINE f32 bf16_to_f32(u16 x) { return as<f32>((u32)x << 16); }
INLINE u16 f32_to_bf16(f32 x) {
  u32 raw = bits(x);
  return (x != x ? raw | 0x400000 : raw + 0x7FFF + (raw >> 16 & 1)) >> 16;
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

// A format of 8 bits; without infinities, `infinity` is 0. FNUZ: no -0, and 0x80 is the one NaN.
template <int stored, int bias, u32 infinity> struct Float8 {
  static f32 decode(u8 code) {
    u32 digits = code & ((1 << stored) - 1), place = (code & 127) >> stored;
    f64 size = place ? (f64)(digits | 1 << stored) * two((i32)place - bias - stored)
                     : (f64)digits * two(1 - bias - stored);
    if (infinity && (code & 127) >= infinity) size = (code & 127) == infinity ? INF : NAN;
    else if (FNUZ ? code == 128 : !infinity && (code & 127) == 127) size = NAN;
    return code & 128 ? -size : size;
  }
  static u8 encode(f32 x) {  // the nearest code, ties to even; what is too large is NaN or infinity
    constexpr int shift = 23 - stored;
    u32 size = bits(x) & 0x7FFFFFFF, sign = bits(x) >> 24 & 128;
    // Added to a number whose last bit is the format's, a small one is rounded as it should.
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
// OCP's formats, which gfx950 and gfx12 have; and those of gfx942, whose bias is one more.
typedef Float8<3, 7 + FNUZ, 0> E4m3;
typedef Float8<2, 15 + FNUZ, FNUZ ? 0 : 0x7C> E5m2;
INLINE u8 f32_to_fp8(f32 x) { return E4m3::encode(x); }
INLINE u8 f32_to_bf8(f32 x) { return E5m2::encode(x); }
INLINE f32 fp8_to_f32(u8 x) { return E4m3::decode(x); }
INLINE f32 bf8_to_f32(u8 x) { return E5m2::decode(x); }

T_ u32 bitCount(T x) { return __builtin_popcountll(x); }
INLINE u32 reverse(u32 x) { return __builtin_bitreverse32(x); }
INLINE i32 leading_zeros(u32 x) { return x ? __builtin_clz(x) : -1; }
T_ i32 trailing_zeros(T x) { return x ? __builtin_ctzll(x) : -1; }
INLINE u32 select_byte(u64 both, u32 selector) {  // one byte of eight, or a constant
  u32 chosen = selector & 255;
  if (chosen < 8) return both >> (8 * chosen) & 255;
  if (chosen < 12) return both >> (16 * (chosen - 8) + 15) & 1 ? 255 : 0;  // a half's sign, repeated
  return chosen == 12 ? 0 : 255;
}
// Which end of a bound: 1 or -1, both among the lanes for 2; 0: neither.
INLINE i64 end(u64 raw, i64 side) { return side == 2 ? (raw & 1 ? 1 : -1) : side; }
T_ T bounded(T x, i64 side) {  // what a result is at one end of the 1 ULP that documents allow
  if (side == 0 || x == 0 || exponent(x) == (1 << Form<T>::exponent) - 1) return x;
  return as<T>(bits(x) + ((end(bits(x), side) > 0) != sign(x) ? 1 : -1));
}
INLINE f64 coarse(f64 x, i64 side) {  // the same for a reciprocal of float64: 2 ** 29 ULP
  return exponent(x) == 2047 || abs(x) <= 1e-290 ? x : as<f64>(as<u64>(x) + (end(as<u64>(x), side) << 29));
}
}  // namespace f
template <class T> INLINE bool operator==(T x, Denorm) { return f::isDENORM(x); }

#define ELEMENT(name, width, code) \
  struct name { static constexpr int bits = width; static f64 value(u32 x) { return code; } };
ELEMENT(F32, 32, as<f32>(x)) ELEMENT(F16, 16, as<f16>((u16)x)) ELEMENT(BF16, 16, f::bf16_to_f32(x))
ELEMENT(FP8, 8, f::fp8_to_f32(x)) ELEMENT(BF8, 8, f::bf8_to_f32(x)) ELEMENT(I8, 8, (i8)x) ELEMENT(U8, 8, (u8)x)
typedef u32 (*Registers)[LANES];
// D = A B + C, in all lanes, active or not (see matrix.py); without registers, C is a constant.
template <class A, class B, bool whole, int size, int inputs, int outputs>
static void multiply(i64 side, Registers d, Registers a, Registers b, Registers c, u32 constant) {
  constexpr int groups = RDNA == 3 ? 1 : LANES / size, each = inputs * 32 / A::bits, k = groups * each;
  f64 left[size][k], right[size][k];
  u32 result[outputs][LANES];  // D may begin within C
  for (int lane = 0; lane < groups * size; lane++)
    for (int i = 0; i < each; i++) {
      int word = i * A::bits / 32, shift = i * A::bits % 32, place = lane / size * each + i;
      left[lane % size][place] = A::value(a[word][lane] >> shift);
      right[lane % size][place] = B::value(b[word][lane] >> shift);
    }
  for (int i = 0; i < outputs; i++)
    for (int lane = 0; lane < LANES; lane++) {
      int row = RDNA == 3 ? 2 * i + lane / 16 : RDNA == 4 ? lane / 16 * 8 + i
                          : i / 4 * 4 * groups + lane / size * 4 + i % 4;
      u32 word = c ? c[i][lane] : constant;
      f64 before = whole ? (f64)(i32)word : as<f32>(word), sum = 0, sizes = f::abs(before);
      for (int j = 0; j < k; j++) {
        f64 product = left[row][j] * right[lane % size][j];
        sum += product, sizes += f::abs(product);
      }
      if (side && !whole) before += f::end(i + lane, side) * k * 0x1p-23 * sizes;
      result[i][lane] = whole ? (u32)(i64)(before + sum) : as<u32>((f32)(before + sum));
    }
  __builtin_memcpy(d, result, sizeof result);
}
// The columns of what 16 lanes read as rows of 16.
template <class T> INLINE void transpose(Registers from, Registers to) {
  constexpr int each = 8 / sizeof(T), bits = 8 * sizeof(T);
  for (int lane = 0; lane < LANES; lane++) {
    u64 column = 0;
    for (int i = 0; i < each; i++) {
      int place = i * 16 + lane % 16, e = place % each;
      column |= (u64)(T)(from[e * bits / 32][lane / 16 * 16 + place / each] >> e * bits % 32) << i * bits;
    }
    to[0][lane] = column, to[1][lane] = column >> 32;
  }
}

constexpr u32 VCC_ = 106, EXEC_ = 126, SCC_ = 253, PC_ = 254;
INLINE u64 mask(const u32 *s, u32 place) { return LANES == 64 ? join(s[place], s[place + 1]) : s[place]; }
INLINE void set_mask(u32 *s, u32 place, u64 lanes) {
  s[place] = lanes;
  if (LANES == 64) s[place + 1] = lanes >> 32;
}

enum Fault : u64 { NONE, OUTSIDE, NOWHERE, READ_ONLY, MISALIGNED, UNWRITTEN, RACE_READ, RACE_WRITE, ENDLESS, UNMODELLED, UNKNOWN };
enum Space : u64 { GLOBAL, SHARED, SCRATCH, FLAT };
enum { READ = 1, WRITE = 2, ATOMIC = 3 };
constexpr u32 ENDED = ~0u;  // where a wave stands that has ended
struct Buffer {
  u64 base, size;
  u8 *data, *written;  // which bytes anybody wrote; null: all
  u64 writable, changed;
  u32 *writers;  // where the instruction stands that wrote each byte last; null: nobody asks
};
struct Machine;
// Executes an instruction for a wave and returns where it goes on, or one of these.
typedef u64 Execute(Machine *, u32 *s, const u64 *op);
constexpr u64 FAULTY = ~0ull, PAUSED = ~1ull;  // at a barrier, or its end
struct Instruction {
  Execute *execute;
  const u64 *op;
};
// Its fields are those of `_Machine` in machine.py.
struct Machine {
  Instruction *code;  // by where it stands, in words
  u64 code_size;
  Buffer *buffers;
  u64 buffer_count;
  u32 *registers;  // of each wave `stride` of them: 256 scalar ones, then the vector ones
  u64 stride, groups, group, waves, wave, started, side, *hits, executed, limit, epoch;
  Buffer shared, scratch;  // of one workgroup, and of one lane; the data are all lanes'
  u8 *notes;               // by word of the code: 1, a shift by its operand's width or more; 2, an unaligned access
  u32 *writer, *reader;    // who last wrote and read each byte of LDS: the barrier's number * 64 + the wave
  u64 at, fault, space, address, size, other;
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
// The HSA runtime has accesses be unaligned, but those of atomic operations; LLVM relies on it.
INLINE bool aligned(Machine *m, u64 address, u64 size, int how) {
  if (!(address & ((size < 4 ? size : 4) - 1))) return true;
  m->notes[m->at / 4] |= 2;
  return how != ATOMIC;
}
static __attribute__((noinline)) u8 *near(Machine *m, u64 lane, u64 space, u64 address, u64 size, int how,
                                          const u8 *value) {
  Buffer *b = space == SHARED ? &m->shared : &m->scratch;
  if (address + size > b->size) return fail(m, OUTSIDE, space, address, size, 0);
  if (!aligned(m, address, size, how)) return fail(m, MISALIGNED, space, address, size, 0);
  u64 offset = space == SHARED ? address : address + (m->wave * LANES + lane) * b->size;
  if (!marked(m, b->written, offset, size, how, space, 0)) return nullptr;
  if (space == SHARED && how != ATOMIC) {
    u32 stamp = m->epoch << 6 | m->wave;
    for (u64 place = address; place < address + size; place++) {
      u32 last = m->writer[place], read = m->reader[place];
      u32 mine = stamp;
      if (__builtin_expect(last >> 6 == m->epoch && last != stamp, 0)) {
        u64 byte = place - address;
        // Equal values leave the same in any order; whoever reads them needs a barrier all the same.
        if (!value || value[byte / 4 * 4 * LANES + byte % 4] != b->data[place])
          return fail(m, RACE_WRITE, how, place, size, last & 63);
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
// Where an access reaches, or null after a fault; `value`: the vector registers that a store takes.
INLINE u8 *reach(Machine *m, u64 lane, u64 space, u64 address, u64 size, int how, const u8 *value = nullptr) {
  if (space == FLAT) {  // the windows of LDS and scratch
    space = address >> 48 > 2 ? GLOBAL : address >> 48;
    address = space ? address & ((1ull << 48) - 1) : address;
  }
  if (space != GLOBAL) return near(m, lane, space, space == SCRATCH ? (u32)address : address, size, how, value);
  u64 key = (address >> 36) - FIRST_BUFFER;
  if (key >= m->buffer_count) return fail(m, NOWHERE, GLOBAL, address, size, 0);
  Buffer *b = m->buffers + key;
  u64 offset = address - b->base;
  if (offset + size > b->size) return fail(m, OUTSIDE, GLOBAL, offset, size, key);
  if (how & WRITE && !b->writable) return fail(m, READ_ONLY, GLOBAL, offset, size, key);
  if (!aligned(m, offset, size, how)) return fail(m, MISALIGNED, GLOBAL, offset, size, key);
  if (how & WRITE) b->changed = 1;
  for (u64 byte = 0; how & WRITE && b->writers && byte < size; byte++) b->writers[offset + byte] = m->at;
  return marked(m, b->written, offset, size, how, GLOBAL, key) ? b->data + offset : nullptr;
}
template <class T> INLINE T get(const u8 *p) { T x; __builtin_memcpy(&x, p, sizeof x); return x; }
template <class T> INLINE void put(u8 *p, T x) { __builtin_memcpy(p, &x, sizeof x); }
INLINE int first_lane(u64 x) { return x ? __builtin_ctzll(x) : 0; }

#if RUNNER
// Runs a wave to its next barrier or its end; false: it has a fault.
static bool step(Machine *m, u32 *s) {
  for (u64 at = s[PC_], next;; at = next) {
    m->at = at;
    if (at / 4 >= m->code_size) fail(m, UNMODELLED, 0, 0, 0, 0), next = FAULTY;
    else if (!m->code[at / 4].execute) fail(m, UNKNOWN, 0, 0, 0, 0), next = FAULTY;
    else if (++m->executed > m->limit) fail(m, ENDLESS, 0, 0, 0, 0), next = FAULTY;
    else {
      m->hits[at / 4]++;
      next = m->code[at / 4].execute(m, s, m->code[at / 4].op);
    }
    if (next == FAULTY) return s[PC_] = at, false;
    if (next == PAUSED) return true;
  }
}
// What nobody wrote may be what a wave writes whose turn is later: that is a race.
static void settle(Machine *m, u32 *waves) {
  Machine found = *m;
  if (found.fault != UNWRITTEN || found.space != SHARED) return;
  while (++m->wave < m->waves)
    if (waves[m->wave * m->stride + PC_] != ENDED) step(m, waves + m->wave * m->stride);
  u32 last = m->writer[found.address];
  *m = found;
  if (last >> 6 == m->epoch) m->fault = RACE_WRITE, m->space = READ, m->other = last & 63;
}
// Runs workgroups one after the other; the waves of each in turn, from barrier to barrier. After
// UNKNOWN, with the code of that place known, it goes on where it stopped.
extern "C" int run(Machine *m) {
  for (; m->group < m->groups; m->group++, m->started = 0) {
    u32 *waves = m->registers + m->group * m->waves * m->stride;
    if (!m->started++) {
      __builtin_memset(m->shared.written, 0, m->shared.size);
      __builtin_memset(m->scratch.written, 0, m->scratch.size * m->waves * LANES);
      m->executed = 0;
    }
    for (bool alive = true; alive;) {
      for (; m->wave < m->waves; m->wave++) {
        u32 *s = waves + m->wave * m->stride;
        if (s[PC_] != ENDED && !step(m, s)) return settle(m, waves), 1;
      }
      alive = false;
      for (m->wave = m->waves; m->wave; m->wave--) alive |= waves[(m->wave - 1) * m->stride + PC_] != ENDED;
      m->epoch++;
    }
  }
  return 0;
}
#endif
#define STOP(fault) return fail(m, fault, 0, 0, 0, 0), FAULTY;
// An infinity of float16 in kernels that let overflow saturate is in doubt.
#define FINITE(bits) if (((bits) & 0x7FFF) == 0x7C00) STOP(UNMODELLED)
// What AMD's documents define, taking the low bits of the distance, and C++ does not.
#define SHIFTED(by, width) if ((by) >= width) m->notes[m->at / 4] |= 1;
#define EACH for (int l = 0; l < LANES; l++) if (x >> l & 1)
#define KEEP(name, code) u32 name[LANES]; for (int l = 0; l < LANES; l++) name[l] = code;
#define REACH(p, space, address, size, ...)                \
  u8 *p = reach(m, l, space, address, size, __VA_ARGS__);  \
  if (!p) return FAULTY;
#define EXECUTE(name) static u64 name(Machine *m, u32 *s, const u64 *op) { \
  u32 (*const v)[LANES] = (u32 (*)[LANES])(s + 256);
