// Stands in for hipBLAS's <hipblas/hipblas.h>, which the HIP headers of the triton wheel lack.
//
// Only host code calls hipBLAS, and a device-only compile emits none. What host code beside a kernel
// names must still parse: the handle, and one product of matrices, which is declared alone.
#pragma once

typedef void* hipblasHandle_t;
typedef unsigned short hipblasHalf;
enum hipblasStatus_t { HIPBLAS_STATUS_SUCCESS = 0 };
enum hipblasOperation_t { HIPBLAS_OP_N = 111, HIPBLAS_OP_T = 112, HIPBLAS_OP_C = 113 };

extern "C" hipblasStatus_t hipblasHgemm(hipblasHandle_t, hipblasOperation_t, hipblasOperation_t,
                                        int m, int n, int k, const hipblasHalf* alpha,
                                        const hipblasHalf* a, int lda, const hipblasHalf* b,
                                        int ldb, const hipblasHalf* beta, hipblasHalf* c, int ldc);
