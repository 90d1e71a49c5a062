// Stands in for the headers of a ROCm build of torch that host code beside a kernel includes; the
// files under ATen/hip and c10/hip lead here. A torch for CPU or CUDA has them for CUDA alone.
//
// Only host code calls any of this, and a device-only compile emits none: names and types, as
// torch's CUDA headers of the same names document them, so that it parses. Nothing is defined.
#pragma once

#include <cfloat>
#include <optional>

#include <c10/core/Device.h>
#include <c10/macros/Macros.h>
#include <hip/hip_runtime.h>

namespace c10::cuda {

class CUDAStream {
 public:
  operator hipStream_t() const;
  hipStream_t stream() const;
};

class CUDAGuard {
 public:
  explicit CUDAGuard(DeviceIndex index);
  explicit CUDAGuard(Device device);
  ~CUDAGuard();
};

class OptionalCUDAGuard {
 public:
  OptionalCUDAGuard();
  explicit OptionalCUDAGuard(std::optional<Device> device);
  explicit OptionalCUDAGuard(std::optional<DeviceIndex> index);
  ~OptionalCUDAGuard();
};

DeviceIndex current_device();
CUDAStream getCurrentCUDAStream(DeviceIndex index = -1);
CUDAStream getCurrentHIPStreamMasqueradingAsCUDA(DeviceIndex index = -1);

}  // namespace c10::cuda

namespace at::cuda {

using namespace c10::cuda;

hipDeviceProp_t* getCurrentDeviceProperties();

}  // namespace at::cuda

#define C10_CUDA_CHECK(call) static_cast<void>(call)
#define C10_CUDA_KERNEL_LAUNCH_CHECK() C10_CUDA_CHECK(hipGetLastError())
#define C10_HIP_CHECK(call) C10_CUDA_CHECK(call)
#define C10_HIP_KERNEL_LAUNCH_CHECK() C10_CUDA_KERNEL_LAUNCH_CHECK()
#define AT_CUDA_CHECK(call) C10_CUDA_CHECK(call)
