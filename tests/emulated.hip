// Kernels that tests/test_emulate.py executes.
#include <hip/hip_runtime.h>

// One group of 128 values a workgroup of 32: its largest size, and FP8 by the instruction.
extern "C" __global__ void quantise(const float* x, unsigned* q, float* scales) {
#if defined(__gfx942__)
  const float top = 240.0f;
#else
  const float top = 448.0f;
#endif
  const unsigned lane = threadIdx.x;
  const float* group = x + blockIdx.x * 128 + lane * 4;
  float largest = 1e-10f;
  for (int i = 0; i < 4; i++) largest = __builtin_fmaxf(largest, __builtin_fabsf(group[i]));
  for (int by = 16; by; by >>= 1) {
    const int other = __builtin_amdgcn_ds_bpermute((lane ^ by) << 2, __builtin_bit_cast(int, largest));
    largest = __builtin_fmaxf(largest, __builtin_bit_cast(float, other));
  }
  const float scale = largest / top;
  if (lane == 0) scales[blockIdx.x] = scale;
#if defined(__gfx942__) || defined(__gfx950__) || defined(__gfx1201__)
  float v[4];
  for (int i = 0; i < 4; i++)
    v[i] = __builtin_fminf(__builtin_fmaxf(group[i] / scale, -top), top);
  int packed = __builtin_amdgcn_cvt_pk_fp8_f32(v[0], v[1], 0, false);
  q[blockIdx.x * 32 + lane] = __builtin_amdgcn_cvt_pk_fp8_f32(v[2], v[3], packed, true);
#endif
}
