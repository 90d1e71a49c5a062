// Stands in for ROCm's device library (ockl.bc, ocml.bc), which is linked only where more of it is
// called: the copy in the triton wheel is bitcode of a newer LLVM than some clangs can read.
//
// HIP's headers implement threadIdx, __any() and the like by functions of that library. Here are
// those that come down to a builtin of the compiler; the library implements them by the same
// builtins, and the optimizer sees through both. What needs an algorithm of the library (sinf,
// powf, erff ...) is left undefined on purpose: the library is linked for it, and where that cannot
// be, the listing says so, because registers and instructions of such a kernel are not real.
//
// Code object version 5, the default of clang 18 and newer, is assumed for the grid's size.
#pragma once

#ifdef __HIP_DEVICE_COMPILE__

#define __CONTRIBBOT_LIBRARY extern "C" __device__ inline __attribute__((always_inline))

// Position in the grid.

__CONTRIBBOT_LIBRARY __attribute__((const)) size_t __ockl_get_local_id(unsigned int dimension) {
  return dimension == 0   ? __builtin_amdgcn_workitem_id_x()
         : dimension == 1 ? __builtin_amdgcn_workitem_id_y()
                          : __builtin_amdgcn_workitem_id_z();
}

__CONTRIBBOT_LIBRARY __attribute__((const)) size_t __ockl_get_group_id(unsigned int dimension) {
  return dimension == 0   ? __builtin_amdgcn_workgroup_id_x()
         : dimension == 1 ? __builtin_amdgcn_workgroup_id_y()
                          : __builtin_amdgcn_workgroup_id_z();
}

__CONTRIBBOT_LIBRARY __attribute__((const)) size_t __ockl_get_local_size(unsigned int dimension) {
  return dimension == 0   ? __builtin_amdgcn_workgroup_size_x()
         : dimension == 1 ? __builtin_amdgcn_workgroup_size_y()
                          : __builtin_amdgcn_workgroup_size_z();
}

// hidden_block_count_x, _y and _z are the first three words of the implicit kernel arguments. HIP
// launches whole blocks only, so there is no partial one to add.
__CONTRIBBOT_LIBRARY __attribute__((const)) size_t __ockl_get_num_groups(unsigned int dimension) {
  typedef const unsigned int __attribute__((address_space(4))) * words;
  return ((words)__builtin_amdgcn_implicitarg_ptr())[dimension];
}

// Lanes of a wavefront. 33 is LLVM's number for "not equal".

__CONTRIBBOT_LIBRARY __attribute__((const)) unsigned int __ockl_lane_u32() {
  return __builtin_amdgcn_mbcnt_hi(~0U, __builtin_amdgcn_mbcnt_lo(~0U, 0U));
}

__CONTRIBBOT_LIBRARY __attribute__((const)) bool __ockl_wfany_i32(int value) {
  return __builtin_amdgcn_uicmp(static_cast<unsigned int>(value), 0U, 33) != 0;
}

__CONTRIBBOT_LIBRARY __attribute__((const)) bool __ockl_wfall_i32(int value) {
  return __builtin_amdgcn_uicmp(static_cast<unsigned int>(value == 0), 0U, 33) == 0;
}

// Leading zeros; the builtin leaves those of zero open.
__CONTRIBBOT_LIBRARY __attribute__((const)) unsigned int __ockl_clz_u32(unsigned int value) {
  return value ? __builtin_clz(value) : 32;
}

// Mathematics that LLVM has as intrinsics, lowered by the AMDGPU back end with the accuracy that
// HIP asks for. (expf, exp2f, sqrtf, fmaf, rounding and more reach it without the library.)

__CONTRIBBOT_LIBRARY __attribute__((const)) float __ocml_log_f32(float x) {
  return __builtin_logf(x);
}
__CONTRIBBOT_LIBRARY __attribute__((const)) float __ocml_log2_f32(float x) {
  return __builtin_log2f(x);
}
__CONTRIBBOT_LIBRARY __attribute__((const)) float __ocml_exp10_f32(float x) {
  return __builtin_exp10f(x);
}

// v_rsq_f32 flushes subnormal input; such input is scaled up, and the result accordingly.
__CONTRIBBOT_LIBRARY __attribute__((const)) float __ocml_rsqrt_f32(float x) {
  const bool small = x < 0x1p-100F;
  const float root = __builtin_amdgcn_rsqf(small ? x * 0x1p+24F : x);
  return small ? root * 0x1p+12F : root;
}

#undef __CONTRIBBOT_LIBRARY

#endif  // __HIP_DEVICE_COMPILE__
