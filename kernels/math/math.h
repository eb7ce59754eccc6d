// Exp, Log, Sigmoid, Silu, Softplus, Elu, Dot, L2Normalize: the elementary functions that may reach
// session state or logits. No libm: libm's bits differ between versions and machines.
//
// Equation:  Sigmoid(x) = 1 / (1 + e^-x); Silu(x) = x * Sigmoid(x); Softplus(x) = log(1 + e^x);
//            Elu(x) = x for x > 0, else e^x - 1; EluPlusOne(x) = x + 1 for x > 0, else e^x
//            (computed as such, not as Elu(x) + 1, which loses the small values); L2Normalize(x) =
//            x / sqrt(sum x^2 + 1e-12); Dot(x, y) = sum x_i y_i.
// Shapes:    array forms take x and y of equal length, any length, any alignment; y may be x
//            itself, other overlap is not allowed.
// Units:     natural logarithms.
// Requires:  equal lengths (LETHE_CHECK).
// Rejects:   none.
// Effects:   array forms write y.
// Numerics:  an element's result does not depend on its position, the length, the alignment or the
//            vector width: the scalar and the array form give the same bits. Errors in ulp of the
//            exact result (measured against long double by tests/kernels/math_test.cc): f32 Exp 1,
//            Log 1, Sigmoid 2.5, Silu 3, Softplus 2.5, Elu 2.5, EluPlusOne 1; f64 Exp 1, Log 1.
//            Exp(-inf) = 0; overflow is +inf; results of Exp below the smallest normal number are
//            exactly 0 (and so with Sigmoid, Silu, Softplus and EluPlusOne where e^-|x| is). Log(0)
//            = -inf, Log of a negative number is NaN, subnormal arguments are exact. Silu(-inf) =
//            -0. NaN gives NaN. Sums run in 8 lanes, lane = index mod 8, each one fma chain from +0
//            in order of the index, joined as ((l0+l4)+(l2+l6))+((l1+l5)+(l3+l7)); a missing
//            element is an exact no-op. L2Normalize divides every element by the rounded root; it
//            does not guard against overflow of the sum.
// Threads:   safe.
#ifndef LETHE_KERNELS_MATH_MATH_H_
#define LETHE_KERNELS_MATH_MATH_H_

#include "absl/types/span.h"

namespace lethe {

// Added under the root of L2Normalize (docs/model-format.md 2).
inline constexpr float kL2Epsilon = 1e-12f;

float Exp(float x);
double Exp(double x);
void Exp(absl::Span<const float> x, absl::Span<float> y);
void Exp(absl::Span<const double> x, absl::Span<double> y);

float Log(float x);
double Log(double x);
void Log(absl::Span<const float> x, absl::Span<float> y);
void Log(absl::Span<const double> x, absl::Span<double> y);

float Sigmoid(float x);
void Sigmoid(absl::Span<const float> x, absl::Span<float> y);

float Silu(float x);
void Silu(absl::Span<const float> x, absl::Span<float> y);

float Softplus(float x);
void Softplus(absl::Span<const float> x, absl::Span<float> y);

float Elu(float x);
void Elu(absl::Span<const float> x, absl::Span<float> y);

float EluPlusOne(float x);
void EluPlusOne(absl::Span<const float> x, absl::Span<float> y);

float Dot(absl::Span<const float> x, absl::Span<const float> y);
double Dot(absl::Span<const double> x, absl::Span<const double> y);

// sum x_i and sum x_i^2, in the lanes and tree of Dot.
float Sum(absl::Span<const float> x);
float SumSquares(absl::Span<const float> x);

void L2Normalize(absl::Span<const float> x, absl::Span<float> y);

}  // namespace lethe

#endif  // LETHE_KERNELS_MATH_MATH_H_
