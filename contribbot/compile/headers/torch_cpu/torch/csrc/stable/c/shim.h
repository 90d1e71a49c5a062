// Goes in front of torch's own header of this name, which it includes.
//
// A CPU or CUDA wheel of torch declares the function below only under USE_CUDA; a ROCm wheel
// declares it under USE_ROCM. Host code alone calls it, and a device-only compile emits none, so
// the declaration (repeated harmlessly where torch has it) is all that is needed to parse.
#pragma once

#include_next <torch/csrc/stable/c/shim.h>

AOTI_TORCH_EXPORT AOTITorchError torch_get_current_cuda_blas_handle(void** ret_handle);
