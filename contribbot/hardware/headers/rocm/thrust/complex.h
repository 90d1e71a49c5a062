// Stands in for rocThrust's <thrust/complex.h>, which the HIP headers of the triton wheel lack.
//
// torch/headeronly/util/complex.h includes it in every HIP compile, to convert between
// c10::complex and thrust::complex. Sound for a device-only compile of a kernel that uses neither:
// templates that nothing instantiates leave no code behind. polar() is declared only, so code that
// really needs it shows up as a call to an undefined function, never as wrong arithmetic.
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

}  // namespace thrust
