// Stands in for HIP's <hip/hip_bf16.h>, which the HIP headers of the triton wheel lack.
//
// The types and their conversions from and to float, rounding to nearest even, and nothing else:
// arithmetic that a kernel does on them does not compile, instead of compiling to something that
// ROCm's header would not give. c10::BFloat16 does not use this header.
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
