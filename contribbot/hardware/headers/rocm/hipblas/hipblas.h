// Stands in for hipBLAS's <hipblas/hipblas.h>, which the HIP headers of the triton wheel lack.
//
// Only host code calls hipBLAS, and a device-only compile emits none. Helper headers beside a
// kernel still have to parse, for which they need the name of the handle.
#pragma once

typedef void* hipblasHandle_t;
