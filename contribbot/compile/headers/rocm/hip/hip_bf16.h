// Stands in for HIP's <hip/hip_bf16.h>, which the HIP headers of the triton wheel lack.
//
// The types and their conversions from and to float, rounding to nearest even. Arithmetic is declared
// and not defined: in a kernel that does any, it stays a call, which the listing names, instead of
// becoming something that ROCm's header would not give. c10::BFloat16 does not use this header.
#pragma once

#include <hip/hip_runtime.h>

struct __hip_bfloat16_raw {
  unsigned short x;
};

struct __hip_bfloat16 {
  unsigned short __x = 0;

  __hip_bfloat16() = default;
  __host__ __device__ __hip_bfloat16(const __hip_bfloat16_raw& raw) : __x(raw.x) {}
  __host__ __device__ __hip_bfloat16(float value) {
    const unsigned bits = __builtin_bit_cast(unsigned, value);
    const bool nan = (bits & 0x7fffffffU) > 0x7f800000U;
    // A NaN keeps its sign and its upper bits, made quiet: rounding could carry it to infinity.
    __x = static_cast<unsigned short>(
        nan ? (bits >> 16) | 0x40U : (bits + 0x7fffU + ((bits >> 16) & 1U)) >> 16);
  }
  __host__ __device__ operator float() const {
    return __builtin_bit_cast(float, static_cast<unsigned>(__x) << 16);
  }
  __host__ __device__ operator __hip_bfloat16_raw() const { return {__x}; }
};

struct __hip_bfloat162 {
  __hip_bfloat16 x;
  __hip_bfloat16 y;
};

__host__ __device__ inline __hip_bfloat16 __float2bfloat16(float value) { return value; }
__host__ __device__ inline float __bfloat162float(__hip_bfloat16 value) { return value; }
__host__ __device__ inline __hip_bfloat162 __float22bfloat162_rn(float2 value) {
  return {value.x, value.y};
}
__host__ __device__ inline float2 __bfloat1622float2(__hip_bfloat162 value) {
  return {value.x, value.y};
}
__host__ __device__ inline __hip_bfloat162 __bfloat162bfloat162(__hip_bfloat16 value) {
  return {value, value};
}
__host__ __device__ inline __hip_bfloat16 __ushort_as_bfloat16(unsigned short value) {
  return __hip_bfloat16_raw{value};
}

__device__ __hip_bfloat16 __hadd(__hip_bfloat16 a, __hip_bfloat16 b);
__device__ __hip_bfloat16 __hmul(__hip_bfloat16 a, __hip_bfloat16 b);
__device__ __hip_bfloat162 __hadd2(__hip_bfloat162 a, __hip_bfloat162 b);
__device__ __hip_bfloat162 __hmul2(__hip_bfloat162 a, __hip_bfloat162 b);
__device__ __hip_bfloat162 __hfma2(__hip_bfloat162 a, __hip_bfloat162 b, __hip_bfloat162 c);
