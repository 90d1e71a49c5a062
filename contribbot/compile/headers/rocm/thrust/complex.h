// Stands in for rocThrust's <thrust/complex.h>, which the HIP headers of the triton wheel lack.
//
// torch/headeronly/util/complex.h includes it in every HIP compile, to convert between
// c10::complex and thrust::complex. Sound for a device-only compile of a kernel that uses neither:
// templates that nothing instantiates leave no code behind. polar() and the functions that c10's
// complex_math.h names are declared only, so code that really needs one shows up as a call to an
// undefined function, never as wrong arithmetic.
#pragma once

namespace thrust {

template <typename T>
struct complex {
  T re{};
  T im{};

  complex() = default;
  __host__ __device__ constexpr complex(T real, T imag = T()) : re(real), im(imag) {}
  template <typename U>
  __host__ __device__ constexpr explicit complex(const complex<U>& other)
      : re(static_cast<T>(other.real())), im(static_cast<T>(other.imag())) {}

  __host__ __device__ constexpr T real() const { return re; }
  __host__ __device__ constexpr T imag() const { return im; }
};

template <typename T>
__host__ __device__ complex<T> polar(const T& magnitude, const T& angle = T());

template <typename T>
__host__ __device__ T abs(const complex<T>& value);
template <typename T>
__host__ __device__ complex<T> acos(const complex<T>& value);
template <typename T>
__host__ __device__ complex<T> acosh(const complex<T>& value);
template <typename T>
__host__ __device__ complex<T> asin(const complex<T>& value);
template <typename T>
__host__ __device__ complex<T> asinh(const complex<T>& value);
template <typename T>
__host__ __device__ complex<T> atan(const complex<T>& value);
template <typename T>
__host__ __device__ complex<T> atanh(const complex<T>& value);
template <typename T>
__host__ __device__ complex<T> cos(const complex<T>& value);
template <typename T>
__host__ __device__ complex<T> cosh(const complex<T>& value);
template <typename T>
__host__ __device__ complex<T> exp(const complex<T>& value);
template <typename T>
__host__ __device__ complex<T> log(const complex<T>& value);
template <typename T>
__host__ __device__ complex<T> log10(const complex<T>& value);
template <typename T>
__host__ __device__ complex<T> sin(const complex<T>& value);
template <typename T>
__host__ __device__ complex<T> sinh(const complex<T>& value);
template <typename T>
__host__ __device__ complex<T> sqrt(const complex<T>& value);
template <typename T>
__host__ __device__ complex<T> tan(const complex<T>& value);
template <typename T>
__host__ __device__ complex<T> tanh(const complex<T>& value);
template <typename T, typename U>
__host__ __device__ complex<decltype(T() * U())> pow(const complex<T>& base, const complex<U>& power);
template <typename T, typename U>
__host__ __device__ complex<decltype(T() * U())> pow(const complex<T>& base, const U& power);
template <typename T, typename U>
__host__ __device__ complex<decltype(T() * U())> pow(const T& base, const complex<U>& power);

}  // namespace thrust
