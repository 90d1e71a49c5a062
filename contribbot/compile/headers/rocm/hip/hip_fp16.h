// Stands in for HIP's <hip/hip_fp16.h>, which the HIP headers of the triton wheel lack.
//
// __half and __half2 on the compiler's own _Float16, which the AMDGPU back end implements in
// hardware: conversions, arithmetic and comparisons are the same single instructions that ROCm's
// header leads to (it, too, is written on _Float16). What is not here (math functions, atomics,
// shuffles) does not compile, instead of compiling to something else.
#pragma once

#include <hip/hip_runtime.h>

union __half_raw {
  unsigned short x;
  _Float16 data;
};

struct __half2_raw {
  __half_raw x;
  __half_raw y;
};

struct __half {
  _Float16 data;

  __half() = default;
  __host__ __device__ constexpr __half(_Float16 value) : data(value) {}
  __host__ __device__ constexpr __half(float value) : data(static_cast<_Float16>(value)) {}
  __host__ __device__ constexpr __half(double value) : data(static_cast<_Float16>(value)) {}
  __host__ __device__ constexpr __half(int value) : data(static_cast<_Float16>(value)) {}
  __host__ __device__ __half(__half_raw raw) : data(__builtin_bit_cast(_Float16, raw.x)) {}
  __host__ __device__ constexpr operator float() const { return data; }
  __host__ __device__ operator __half_raw() const {
    return {__builtin_bit_cast(unsigned short, data)};
  }
};
typedef __half half;

struct __half2 {
  __half x;
  __half y;
};
typedef __half2 half2;

// Conversions: _rn is the default rounding of the hardware, to nearest even.
__host__ __device__ inline __half __float2half(float a) { return __half(a); }
__host__ __device__ inline __half __float2half_rn(float a) { return __half(a); }
__host__ __device__ inline __half __int2half_rn(int a) { return __half(a); }
__host__ __device__ inline float __half2float(__half a) { return a.data; }
__host__ __device__ inline short __half_as_short(__half a) {
  return __builtin_bit_cast(short, a.data);
}
__host__ __device__ inline unsigned short __half_as_ushort(__half a) {
  return __builtin_bit_cast(unsigned short, a.data);
}
__host__ __device__ inline __half __short_as_half(short a) {
  return __half(__builtin_bit_cast(_Float16, a));
}
__host__ __device__ inline __half __ushort_as_half(unsigned short a) {
  return __half(__builtin_bit_cast(_Float16, a));
}
__host__ __device__ inline __half2 __halves2half2(__half a, __half b) { return {a, b}; }
__host__ __device__ inline __half2 __half2half2(__half a) { return {a, a}; }
__host__ __device__ inline __half2 __float2half2_rn(float a) { return {__half(a), __half(a)}; }
__host__ __device__ inline __half2 __floats2half2_rn(float a, float b) {
  return {__half(a), __half(b)};
}
__host__ __device__ inline __half2 __float22half2_rn(float2 a) {
  return {__half(a.x), __half(a.y)};
}
__host__ __device__ inline float2 __half22float2(__half2 a) { return {a.x.data, a.y.data}; }
__host__ __device__ inline __half __low2half(__half2 a) { return a.x; }
__host__ __device__ inline __half __high2half(__half2 a) { return a.y; }
__host__ __device__ inline float __low2float(__half2 a) { return a.x.data; }
__host__ __device__ inline float __high2float(__half2 a) { return a.y.data; }

// Arithmetic and comparisons: one instruction each.
__host__ __device__ inline __half __hneg(__half a) { return __half(-a.data); }
__device__ inline __half __habs(__half a) { return __half(__builtin_fabsf16(a.data)); }
__host__ __device__ inline __half __hadd(__half a, __half b) { return __half(a.data + b.data); }
__host__ __device__ inline __half __hsub(__half a, __half b) { return __half(a.data - b.data); }
__host__ __device__ inline __half __hmul(__half a, __half b) { return __half(a.data * b.data); }
__device__ inline __half __hfma(__half a, __half b, __half c) {
  return __half(__builtin_fmaf16(a.data, b.data, c.data));
}
__device__ inline __half __hmax(__half a, __half b) {
  return __half(__builtin_fmaxf16(a.data, b.data));
}
__device__ inline __half __hmin(__half a, __half b) {
  return __half(__builtin_fminf16(a.data, b.data));
}
__host__ __device__ inline bool __heq(__half a, __half b) { return a.data == b.data; }
__host__ __device__ inline bool __hgt(__half a, __half b) { return a.data > b.data; }
__host__ __device__ inline bool __hge(__half a, __half b) { return a.data >= b.data; }
__host__ __device__ inline bool __hlt(__half a, __half b) { return a.data < b.data; }
__host__ __device__ inline bool __hle(__half a, __half b) { return a.data <= b.data; }
__host__ __device__ inline bool __hisnan(__half a) { return a.data != a.data; }

__host__ __device__ inline __half2 __hadd2(__half2 a, __half2 b) {
  return {__hadd(a.x, b.x), __hadd(a.y, b.y)};
}
__host__ __device__ inline __half2 operator+(__half2 a, __half2 b) { return __hadd2(a, b); }
__host__ __device__ inline __half2 __hsub2(__half2 a, __half2 b) {
  return {__hsub(a.x, b.x), __hsub(a.y, b.y)};
}
__host__ __device__ inline __half2 __hmul2(__half2 a, __half2 b) {
  return {__hmul(a.x, b.x), __hmul(a.y, b.y)};
}
__device__ inline __half2 __hfma2(__half2 a, __half2 b, __half2 c) {
  return {__hfma(a.x, b.x, c.x), __hfma(a.y, b.y, c.y)};
}
