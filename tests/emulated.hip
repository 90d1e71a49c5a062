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
  q[blockIdx.x * 32 + lane] = __builtin_amdgcn_cvt_pk_fp8_f32(v[2], v[3], packed, true);  // WRITES quantise
#endif
}

extern "C" __global__ void divide(const float* a, const float* b, float* out, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) out[i] = a[i] / b[i];
}

extern "C" __global__ void divide64(const double* a, const double* b, double* out, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) out[i] = a[i] / b[i];
}

// The sum of 256 integers, by a tree in LDS.
extern "C" __global__ void reduce(const int* x, int* out) {
  __shared__ int part[256];
  part[threadIdx.x] = x[blockIdx.x * 256 + threadIdx.x];
  for (int half = 128; half; half >>= 1) {
    __syncthreads();
    if (threadIdx.x < half) part[threadIdx.x] += part[threadIdx.x + half];
  }
  if (threadIdx.x == 0) out[blockIdx.x] = part[0];
}

// Rows of any length by 64 lanes: each loop ends at another place.
extern "C" __global__ void softmax(const float* x, float* out, const int* lengths, int stride) {
  __shared__ float shared[64];
  const float* row = x + blockIdx.x * stride;
  const int length = lengths[blockIdx.x];
  float largest = -__builtin_inff();
  for (int i = threadIdx.x; i < length; i += 64) largest = __builtin_fmaxf(largest, row[i]);
  shared[threadIdx.x] = largest;
  __syncthreads();
  for (int i = 0; i < 64; i++) largest = __builtin_fmaxf(largest, shared[i]);
  __syncthreads();
  float sum = 0;
  for (int i = threadIdx.x; i < length; i += 64)
    sum += __builtin_amdgcn_exp2f((row[i] - largest) * 1.44269504f);
  shared[threadIdx.x] = sum;
  __syncthreads();
  sum = 0;
  for (int i = 0; i < 64; i++) sum += shared[i];
  for (int i = threadIdx.x; i < length; i += 64)
    out[blockIdx.x * stride + i] = __builtin_amdgcn_exp2f((row[i] - largest) * 1.44269504f) / sum;
}

// A softmax of 16 numbers by each work-item.
extern "C" __global__ void exponentials(const float* x, float* out, int rows) {
  const int row = blockIdx.x * blockDim.x + threadIdx.x;
  if (row >= rows) return;
  float e[16], sum = 0;
  for (int i = 0; i < 16; i++) sum += e[i] = __builtin_amdgcn_exp2f(x[row * 16 + i]);
  const float scale = __builtin_amdgcn_rcpf(sum);
  for (int i = 0; i < 16; i++) out[row * 16 + i] = e[i] * scale;
}

// float16 rows of 512 by 128 work-items, and shuffles between them.
extern "C" __global__ void rms_norm(const _Float16* x, const _Float16* weight, _Float16* out, float eps) {
  __shared__ float parts[4];
  const int wave = threadIdx.x / warpSize;
  float v[4], sum = 0;
  for (int i = 0; i < 4; i++) {
    v[i] = x[blockIdx.x * 512 + threadIdx.x * 4 + i];
    sum += v[i] * v[i];
  }
  for (int by = warpSize / 2; by; by >>= 1) sum += __shfl_xor(sum, by);
  if (threadIdx.x % warpSize == 0) parts[wave] = sum;
  __syncthreads();
  sum = 0;
  for (int i = 0; i < 128 / warpSize; i++) sum += parts[i];
  const float scale = 1.0f / __builtin_sqrtf(sum / 512 + eps);
  for (int i = 0; i < 4; i++)
    out[blockIdx.x * 512 + threadIdx.x * 4 + i] = (_Float16)(v[i] * scale) * weight[threadIdx.x * 4 + i];
}

extern "C" __global__ void count(const int* x, int* bins, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) atomicAdd(&bins[x[i] & 7], 1);
}

// The last three arguments are loaded as four words, the last of which nobody passes.
extern "C" __global__ void three_words(float* out, long n, float a, float b, float c) {
  if (threadIdx.x < n) out[threadIdx.x] = a * threadIdx.x * b + c;
}

// One address for a whole wave, in vector registers, of which some lanes read.
extern "C" __global__ void one_place(const int* x, int* out) {
  asm volatile("" : "+v"(x));
  if (threadIdx.x & 1) out[threadIdx.x] = *x;  // LOAD one_place
}

// Planted faults: each stands on a line of its own.
extern "C" __global__ void past_the_end(const float* x, float* out) {
  const int i = blockIdx.x * 64 + threadIdx.x;
  out[i] = x[i + 1];  // FAULT past_the_end
}

extern "C" __global__ void no_barrier(const int* x, int* out, int by) {
  __shared__ int part[256];
  part[threadIdx.x] = x[threadIdx.x];
  out[threadIdx.x] = part[(threadIdx.x + by) & 255];  // FAULT no_barrier
}

extern "C" __global__ void never_written(int* out) {
  __shared__ int part[64];
  if (threadIdx.x < 32) part[threadIdx.x] = out[threadIdx.x];
  __syncthreads();
  out[threadIdx.x] = part[threadIdx.x];  // FAULT never_written
}

extern "C" __global__ void endless(const volatile int* flag) {
  while (*flag == 0) {}  // FAULT endless
}

extern "C" __global__ void misaligned(const char* x, int* out) {
  out[threadIdx.x] = *(const int*)(x + 4 * threadIdx.x + 2);  // UNALIGNED
}

extern "C" __global__ void misaligned_atomic(char* x) {
  __atomic_fetch_add((int*)(x + 2), 1, __ATOMIC_RELAXED);  // FAULT misaligned_atomic
}

// A slot for each 32 lanes, and the first lane of a wave fills its own.
extern "C" __global__ void waves_of_32(const int* x, int* out) {
  __shared__ int part[8];
  int sum = x[threadIdx.x];
  for (int by = 16; by; by >>= 1) sum += __shfl_xor(sum, by);
  if (threadIdx.x % warpSize == 0) part[threadIdx.x / 32] = sum;
  __syncthreads();
  out[threadIdx.x] = part[threadIdx.x & 7];  // FAULT waves_of_32
}

// No barrier, as if 64 lanes went together.
extern "C" __global__ void waves_of_64(const int* x, int* out) {
  __shared__ int part[64];
  part[threadIdx.x] = x[threadIdx.x];
  out[threadIdx.x] = part[63 - threadIdx.x];  // FAULT waves_of_64
}

// Bits that are shifted out of range: a faulty conversion's last step.
extern "C" __global__ void shift(const int* x, const int* by, int* out) {
  out[threadIdx.x] = x[threadIdx.x] << by[threadIdx.x];  // FAULT shift
}

// Lanes of a wave, assumed to be 32: wrong where a wave has 64.
extern "C" __global__ void lanes_of_32(const int* x, int* out) {
  int sum = x[threadIdx.x];
  for (int by = 16; by; by >>= 1) sum += __shfl_xor(sum, by);
  if (threadIdx.x % warpSize == 0) out[threadIdx.x / warpSize] = sum;
}

__device__ int launches;
extern "C" __global__ void device_variable(int* out) {
  if (threadIdx.x == 0) out[0] = atomicAdd(&launches, 1);
}

__attribute__((noinline)) __device__ int fibonacci(int n) {
  return n < 2 ? n : fibonacci(n - 1) + fibonacci(n - 2);
}
extern "C" __global__ void recursion(int* out) { out[threadIdx.x] = fibonacci(threadIdx.x & 7); }

extern "C" __global__ void add_to_both(int* a, int* b) {
  a[threadIdx.x] += 1;
  b[threadIdx.x] += 10;
}

extern "C" __global__ void before_the_start(const int* x, int* out) {
  const int i = threadIdx.x;
  out[i] = x[i - 1];
}
