// Stands in for HIP's older <hip/hip_bfloat16.h>, which the HIP headers of the triton wheel lack.
//
// Its type has the name alone: sources still include the header, and take <hip/hip_bf16.h>'s.
#pragma once

struct hip_bfloat16;
