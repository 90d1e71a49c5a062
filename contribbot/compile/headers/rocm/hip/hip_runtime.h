// Goes in front of HIP's own header of this name, which it includes.
//
// It adds the device library, without which every use of threadIdx would be a function call.
#pragma once

#include_next <hip/hip_runtime.h>

#include <contribbot/device_library.h>
