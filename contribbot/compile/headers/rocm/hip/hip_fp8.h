// Stands in for HIP's <hip/hip_fp8.h>, which the HIP headers of the triton wheel lack.
//
// The two e4m3 types, their names and the conversion from float that kernels for FP8 use. Where a
// target has v_cvt_pk_fp8_f32 (the compiler says so by __builtin_amdgcn_cvt_pk_fp8_f32), it is
// used, as ROCm's header does: gfx94x converts to e4m3fnuz, gfx950 and gfx12 to e4m3fn. Elsewhere
// the same result is computed in integers; the number of instructions of THAT path is ours, not
// ROCm's. Conversions saturate; NoSat is not offered. Conversions from FP8, from and to half, and
// all of e5m2 are declared and not defined: in a kernel they stay calls, which the listing names.
#pragma once

#include <hip/hip_fp16.h>
#include <hip/hip_runtime.h>

#if defined(__gfx940__) || defined(__gfx941__) || defined(__gfx942__)
#define HIP_FP8_TYPE_FNUZ 1
#else
#define HIP_FP8_TYPE_FNUZ 0
#endif
#if defined(__gfx950__) || defined(__GFX12__) || !defined(__HIP_DEVICE_COMPILE__)
#define HIP_FP8_TYPE_OCP 1
#else
#define HIP_FP8_TYPE_OCP 0
#endif

typedef unsigned char __hip_fp8_storage_t;
typedef unsigned short __hip_fp8x2_storage_t;

enum __hip_saturation_t { __HIP_SATFINITE = 1 };
enum __hip_fp8_interpretation_t { __HIP_E4M3 = 0, __HIP_E4M3_FNUZ = 2 };

// One value to e4m3 in integers, to nearest even, clamped to the largest finite value.
template <bool fnuz>
__host__ __device__ inline __hip_fp8_storage_t __contribbot_to_e4m3(float value) {
  constexpr float largest = fnuz ? 240.0F : 448.0F;
  constexpr int bias = fnuz ? 8 : 7;
  const unsigned bits = __builtin_bit_cast(unsigned, value);
  const unsigned char sign = (bits >> 24) & 0x80U;
  float size = __builtin_bit_cast(float, bits & 0x7fffffffU);
  if (size != size) return fnuz ? 0x80 : 0x7f | sign;
  size = size > largest ? largest : size;
  unsigned code;
  if (size < 1.0F / (1 << (bias - 1))) {
    // Subnormal: an integer number of the smallest step, rounded by adding 2**23.
    const float steps = size * static_cast<float>(1 << (bias + 2));
    code = __builtin_bit_cast(unsigned, steps + 8388608.0F) & 0xfU;
  } else {
    const unsigned full = __builtin_bit_cast(unsigned, size);
    code = ((full + 0x7ffffU + ((full >> 20) & 1U)) >> 20) - ((127U - bias) << 3);
  }
  // fnuz has no negative zero: that code is its NaN.
  return fnuz && code == 0 ? 0 : code | sign;
}

__host__ __device__ inline __hip_fp8x2_storage_t __hip_cvt_float2_to_fp8x2(
    const float2 value, const __hip_saturation_t, const __hip_fp8_interpretation_t kind) {
#if defined(__HIP_DEVICE_COMPILE__) && (HIP_FP8_TYPE_FNUZ || HIP_FP8_TYPE_OCP)
  if (kind == (HIP_FP8_TYPE_FNUZ ? __HIP_E4M3_FNUZ : __HIP_E4M3)) {
    constexpr float largest = HIP_FP8_TYPE_FNUZ ? 240.0F : 448.0F;
    // fmed3 clamps; it must not see NaN, which the instruction converts by itself.
    const float x = value.x != value.x ? value.x
                                       : __builtin_amdgcn_fmed3f(value.x, largest, -largest);
    const float y = value.y != value.y ? value.y
                                       : __builtin_amdgcn_fmed3f(value.y, largest, -largest);
    return __builtin_amdgcn_cvt_pk_fp8_f32(x, y, 0, false) & 0xffff;
  }
#endif
  const bool fnuz = kind == __HIP_E4M3_FNUZ;
  const unsigned low =
      fnuz ? __contribbot_to_e4m3<true>(value.x) : __contribbot_to_e4m3<false>(value.x);
  const unsigned high =
      fnuz ? __contribbot_to_e4m3<true>(value.y) : __contribbot_to_e4m3<false>(value.y);
  return static_cast<__hip_fp8x2_storage_t>(low | high << 8);
}

__host__ __device__ inline __hip_fp8_storage_t __hip_cvt_float_to_fp8(
    const float value, const __hip_saturation_t saturation,
    const __hip_fp8_interpretation_t kind) {
  return __hip_cvt_float2_to_fp8x2({value, value}, saturation, kind) & 0xff;
}

struct __hip_fp8_e4m3 {
  static constexpr __hip_saturation_t __default_saturation = __HIP_SATFINITE;
  static constexpr __hip_fp8_interpretation_t __default_interpret = __HIP_E4M3;

  __hip_fp8_storage_t __x;

  __hip_fp8_e4m3() = default;
  __host__ __device__ __hip_fp8_e4m3(float value)
      : __x(__hip_cvt_float_to_fp8(value, __HIP_SATFINITE, __HIP_E4M3)) {}
  __device__ explicit operator float() const;
};

struct __hip_fp8x2_e4m3 {
  __hip_fp8x2_storage_t __x;

  __device__ explicit operator float2() const;
};

struct __hip_fp8_e5m2 {
  __hip_fp8_storage_t __x;

  __host__ __device__ explicit __hip_fp8_e5m2(float value);
  __device__ explicit operator float() const;
};

struct __hip_fp8_e4m3_fnuz {
  static constexpr __hip_saturation_t __default_saturation = __HIP_SATFINITE;
  static constexpr __hip_fp8_interpretation_t __default_interpret = __HIP_E4M3_FNUZ;

  __hip_fp8_storage_t __x;

  __hip_fp8_e4m3_fnuz() = default;
  __host__ __device__ __hip_fp8_e4m3_fnuz(float value)
      : __x(__hip_cvt_float_to_fp8(value, __HIP_SATFINITE, __HIP_E4M3_FNUZ)) {}
  __device__ explicit operator float() const;
};

struct __hip_fp8x2_e4m3_fnuz {
  __hip_fp8x2_storage_t __x;

  __device__ explicit operator float2() const;
};

__device__ __half2_raw __hip_cvt_fp8x2_to_halfraw2(__hip_fp8x2_storage_t,
                                                   __hip_fp8_interpretation_t);
__device__ __hip_fp8_storage_t __hip_cvt_halfraw_to_fp8(__half_raw, __hip_saturation_t,
                                                        __hip_fp8_interpretation_t);
__device__ __hip_fp8x2_storage_t __hip_cvt_halfraw2_to_fp8x2(__half2_raw, __hip_saturation_t,
                                                             __hip_fp8_interpretation_t);
