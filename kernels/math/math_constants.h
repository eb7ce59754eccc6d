// MathConstants: the polynomials and bounds of the elementary functions, one set for vectors of the host
// (vector_math.h) and for the device (math_cuda.cuh), which therefore give the same bits.
//
// Equation:  beside each constant.
// Shapes:    coefficients from the constant term up.
// Units:     natural logarithms.
// Requires:  none.
// Rejects:   none.
// Effects:   none.
// Numerics:  the polynomials are Chebyshev fits made for this file (mpmath, 50 digits); their errors are
//            named beside them.
// Threads:   safe.
#ifndef LETHE_KERNELS_MATH_MATH_CONSTANTS_H_
#define LETHE_KERNELS_MATH_MATH_CONSTANTS_H_

#include <cstdint>

namespace lethe::simd {

template <typename T>
struct MathConstants;

template <>
struct MathConstants<float> {
  static constexpr float kLog2E = 0x1.715476p+0f;
  // kLn2High has 15 bits, so its product with an exponent is exact; high + low is ln 2.
  static constexpr float kLn2High = 0x1.62e4p-1f;
  static constexpr float kLn2Low = 0x1.7f7d1cp-20f;
  static constexpr float kExpMin = -88.0f;  // below the logarithm of the smallest normal number
  static constexpr float kExpMax = 89.0f;   // above the logarithm of the largest number
  // (e^r - 1 - r) / r^2 on |r| <= ln(2)/2, error 1.4e-9.
  static constexpr float kExpTail[] = {0x1.0p-1f,      0x1.555556p-3f,  0x1.5554eap-5f,
                                       0x1.1110e0p-7f, 0x1.6d4324p-10f, 0x1.a124f2p-13f};
  // (2 atanh(s)/s - 2) / s^2 as a function of s^2, for s = f/(2+f), 1+f in [sqrt(1/2), sqrt(2)],
  // error 1.2e-9.
  static constexpr float kLogTail[] = {0x1.555556p-1f, 0x1.9999ecp-2f, 0x1.245c28p-2f,
                                       0x1.ddd4dap-3f};
  // The same function for s in [0, 1/3], error 7.2e-9.
  static constexpr float kLog1pTail[] = {0x1.555556p-1f, 0x1.9998d4p-2f, 0x1.24c926p-2f,
                                         0x1.bc8cf8p-3f, 0x1.dba260p-3f};
  static constexpr int kMantissaBits = 23;
  static constexpr float kRoundToInt = 0x1.0p23f;  // bits of kRoundToInt + n hold n in the low bits
  static constexpr float kExponentBias = 127.0f;
  static constexpr uint32_t kOneBits = 0x3f800000u;
  static constexpr uint32_t kSqrtHalfBits = 0x3f3504f3u;
};

template <>
struct MathConstants<double> {
  static constexpr double kLog2E = 0x1.71547652b82fep+0;
  static constexpr double kLn2High = 0x1.62e42fefp-1;  // 33 bits
  static constexpr double kLn2Low = 0x1.473de6af278edp-34;
  static constexpr double kExpMin = -709.0;
  static constexpr double kExpMax = 710.0;
  static constexpr double kExpTail[] = {// error 1.4e-18
                                        0x1.0p-1,
                                        0x1.5555555555557p-3,
                                        0x1.5555555555556p-5,
                                        0x1.11111111100dcp-7,
                                        0x1.6c16c16c162d4p-10,
                                        0x1.a01a01abe7fe1p-13,
                                        0x1.a01a01a6d889cp-16,
                                        0x1.71de0231960ebp-19,
                                        0x1.27e4db646b17ep-22,
                                        0x1.af4de97ca4194p-26,
                                        0x1.1f730349868cep-29};
  static constexpr double kLogTail[] = {
      // error 2.1e-18
      0x1.5555555555555p-1, 0x1.9999999999a39p-2, 0x1.2492492476a1ap-2, 0x1.c71c7201a55d7p-3,
      0x1.745cf8e4bba1bp-3, 0x1.3b1c3c1c81c8fp-3, 0x1.0fbde0f4ad17bp-3, 0x1.0c0aff044a970p-3};
  static constexpr int kMantissaBits = 52;
  static constexpr double kRoundToInt = 0x1.0p52;
  static constexpr double kExponentBias = 1023.0;
  static constexpr uint64_t kOneBits = 0x3ff0000000000000u;
  static constexpr uint64_t kSqrtHalfBits = 0x3fe6a09e667f3bcdu;
};

}  // namespace lethe::simd

#endif  // LETHE_KERNELS_MATH_MATH_CONSTANTS_H_
