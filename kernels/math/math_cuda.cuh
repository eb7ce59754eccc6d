// cuda::Exp, cuda::Log, … : the functions of math.h on the device.
//
// Equation:  as in math.h.
// Shapes:    one number a call.
// Units:     natural logarithms.
// Requires:  --fmad=false, IEEE division and square root (nvcc's default).
// Rejects:   none.
// Effects:   none.
// Numerics:  the bits of math.h on the host: the operations of vector_math.h one by one.
// Threads:   safe.
#ifndef LETHE_KERNELS_MATH_MATH_CUDA_CUH_
#define LETHE_KERNELS_MATH_MATH_CUDA_CUH_

#include <cstdint>

#include "kernels/math/math_constants.h"

namespace lethe::cuda {

__device__ __forceinline__ float Fma(float a, float b, float c) { return __fmaf_rn(a, b, c); }
__device__ __forceinline__ double Fma(double a, double b, double c) { return __fma_rn(a, b, c); }
__device__ __forceinline__ float Round(float x) { return rintf(x); }
__device__ __forceinline__ double Round(double x) { return rint(x); }
__device__ __forceinline__ float Abs(float x) { return fabsf(x); }
__device__ __forceinline__ double Abs(double x) { return fabs(x); }
__device__ __forceinline__ float Clamp(float x, float low, float high) {
  return fminf(fmaxf(x, low), high);
}
__device__ __forceinline__ double Clamp(double x, double low, double high) {
  return fmin(fmax(x, low), high);
}
__device__ __forceinline__ bool IsNan(float x) { return x != x; }
__device__ __forceinline__ bool IsNan(double x) { return x != x; }

template <typename T>
struct Bits;
template <>
struct Bits<float> {
  using Word = uint32_t;
  static __device__ __forceinline__ Word Of(float x) { return __float_as_uint(x); }
  static __device__ __forceinline__ float From(Word bits) { return __uint_as_float(bits); }
  static constexpr Word kSmallestNormal = 0x00800000u;
  static constexpr Word kInfinity = 0x7f800000u;
  static constexpr Word kNan = 0x7fc00000u;
};
template <>
struct Bits<double> {
  using Word = uint64_t;
  static __device__ __forceinline__ Word Of(double x) {
    return static_cast<Word>(__double_as_longlong(x));
  }
  static __device__ __forceinline__ double From(Word bits) {
    return __longlong_as_double(static_cast<long long>(bits));
  }
  static constexpr Word kSmallestNormal = 0x0010000000000000u;
  static constexpr Word kInfinity = 0x7ff0000000000000u;
  static constexpr Word kNan = 0x7ff8000000000000u;
};

enum class Tail { kExp, kLog, kLog1p };

// Coefficient i as a constant: the device cannot read the host's arrays.
template <typename T, Tail tail, int i>
__device__ __forceinline__ T Coefficient() {
  using C = simd::MathConstants<T>;
  if constexpr (tail == Tail::kExp) {
    constexpr T c = C::kExpTail[i];
    return c;
  } else if constexpr (tail == Tail::kLog) {
    constexpr T c = C::kLogTail[i];
    return c;
  } else {
    constexpr T c = C::kLog1pTail[i];
    return c;
  }
}

template <typename T, Tail tail>
__host__ __device__ constexpr int NumCoefficients() {
  using C = simd::MathConstants<T>;
  if constexpr (tail == Tail::kExp) {
    return static_cast<int>(sizeof C::kExpTail / sizeof(T));
  } else if constexpr (tail == Tail::kLog) {
    return static_cast<int>(sizeof C::kLogTail / sizeof(T));
  } else {
    return static_cast<int>(sizeof C::kLog1pTail / sizeof(T));
  }
}

// c[i] + c[i+1] x + … , one fma chain from the highest coefficient down.
template <typename T, Tail tail, int i = 0>
__device__ __forceinline__ T Polynomial(T x) {
  if constexpr (i + 1 == NumCoefficients<T, tail>()) {
    return Coefficient<T, tail, i>();
  } else {
    return Fma(Polynomial<T, tail, i + 1>(x), x, Coefficient<T, tail, i>());
  }
}

template <typename T>
__device__ __forceinline__ T PowerOfTwo(T n) {
  using C = simd::MathConstants<T>;
  const T shifted = n + (C::kRoundToInt * T{1.5} + C::kExponentBias);
  return Bits<T>::From(Bits<T>::Of(shifted) << C::kMantissaBits);
}

// x = n ln2 + r; *e = e^r - 1.
template <typename T>
__device__ __forceinline__ void ReduceExp(T x, T* n, T* e) {
  using C = simd::MathConstants<T>;
  *n = Round(x * C::kLog2E);
  T r = Fma(-*n, C::kLn2High, x);
  r = Fma(-*n, C::kLn2Low, r);
  *e = Fma(r * r, Polynomial<T, Tail::kExp>(r), r);
}

template <typename T>
__device__ __forceinline__ T Exp(T x) {
  using C = simd::MathConstants<T>;
  T n, e;
  ReduceExp(Clamp(x, C::kExpMin, C::kExpMax), &n, &e);
  const T n_half = Round(n * T{0.5});
  const T y = (e + T{1}) * PowerOfTwo(n_half) * PowerOfTwo(n - n_half);
  if (IsNan(x)) return x;
  return y < Bits<T>::From(Bits<T>::kSmallestNormal) ? T{0} : y;
}

template <typename T>
__device__ __forceinline__ T Log(T x) {
  using C = simd::MathConstants<T>;
  using Word = typename Bits<T>::Word;
  const bool is_small = x < Bits<T>::From(Bits<T>::kSmallestNormal);
  const T scaled = is_small ? x * C::kRoundToInt : x;
  const T scale_log2 = is_small ? static_cast<T>(C::kMantissaBits) : T{0};
  const Word bits = Bits<T>::Of(scaled) + (C::kOneBits - C::kSqrtHalfBits);
  const T n_biased =
      Bits<T>::From((bits >> C::kMantissaBits) | Bits<T>::Of(C::kRoundToInt)) - C::kRoundToInt;
  const T n = n_biased - C::kExponentBias - scale_log2;
  constexpr Word kMantissaMask = (Word{1} << C::kMantissaBits) - 1;
  const T f = Bits<T>::From((bits & kMantissaMask) + C::kSqrtHalfBits) - T{1};
  const T s = f / (f + T{2});
  const T z = s * s;
  const T half_square = f * T{0.5} * f;
  const T tail = Fma(z, Polynomial<T, Tail::kLog>(z), half_square);
  const T small = Fma(n, C::kLn2Low, s * tail);
  const T y = Fma(n, C::kLn2High, f - (half_square - small));
  const T infinity = Bits<T>::From(Bits<T>::kInfinity);
  if (x == T{0}) return -infinity;
  if (x == infinity) return infinity;
  return x >= T{0} ? y : Bits<T>::From(Bits<T>::kNan);
}

__device__ __forceinline__ float Sigmoid(float x) {
  const float e = Exp(-Abs(x));
  return IsNan(x) ? x : (x < 0.0f ? e : 1.0f) / (1.0f + e);
}

__device__ __forceinline__ float Silu(float x) {
  const float factor = x < -128.0f ? -128.0f : x;
  return IsNan(x) ? x : factor * Sigmoid(x);
}

__device__ __forceinline__ float Softplus(float x) {
  const float e = Exp(-Abs(x));
  const float s = e / (e + 2.0f);
  const float z = s * s;
  const float log1p = Fma(s, z * Polynomial<float, Tail::kLog1p>(z), s + s);
  return IsNan(x) ? x : (x > 0.0f ? x : 0.0f) + log1p;
}

__device__ __forceinline__ float Elu(float x) {
  float n, e;
  ReduceExp(x > 0.0f ? 0.0f : fmaxf(x, -64.0f), &n, &e);
  const float scale = PowerOfTwo(n);
  return x < 0.0f ? Fma(scale, e, scale - 1.0f) : x;
}

__device__ __forceinline__ float EluPlusOne(float x) {
  const float below = Exp(x > 0.0f ? 0.0f : x);
  return x > 0.0f ? x + 1.0f : below;
}

// The tree of Dot and Sum over lane l of 8 neighbouring lanes of a warp, all of which get the sum.
__device__ __forceinline__ float SumTree(float lane) {
  lane += __shfl_xor_sync(0xffffffffu, lane, 4);
  lane += __shfl_xor_sync(0xffffffffu, lane, 2);
  return lane + __shfl_xor_sync(0xffffffffu, lane, 1);
}

// The same over an array.
__device__ __forceinline__ float SumTree(const float (&l)[8]) {
  return ((l[0] + l[4]) + (l[2] + l[6])) + ((l[1] + l[5]) + (l[3] + l[7]));
}

}  // namespace lethe::cuda

#endif  // LETHE_KERNELS_MATH_MATH_CUDA_CUH_
