// Goes in front of torch's own header of this name, which it includes.
//
// What it checks calls with, in a torch for CPU or CUDA, names CUDA's types; that of a ROCm wheel
// names HIP's. Host code alone checks calls, and a device-only compile emits none: here the call is
// parsed, and nothing is checked.
#pragma once

#include_next <torch/csrc/stable/macros.h>

#undef STD_CUDA_CHECK
#define STD_CUDA_CHECK(call) static_cast<void>(call)
#undef STD_CUDA_KERNEL_LAUNCH_CHECK
#define STD_CUDA_KERNEL_LAUNCH_CHECK() STD_CUDA_CHECK(hipGetLastError())
